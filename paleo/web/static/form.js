/* The controls: they show the settings, and say what the reader changed. */
"use strict";

(function () {
  /** The scheme that has servers. */
  const SERVERS = "parameter_server";
  /** The boxes whose controls are made of what is declared. */
  const GROUPS = ["training", "mesh", "exchange", "infer"];
  const LISTED = / \(there are: [^)]*\)$/;

  /**
   * What a change is: "draft" while something is dragged or typed, "done" when it is decided.
   * @typedef {"draft"|"done"} Stage
   */

  class Form {
    /**
     * @param {Object} choices the lists of the page's data block
     * @param {(changes: Object<string, string>, stage: Stage) => void} changed
     */
    constructor(choices, changed) {
      this.form = Paleo.by("settings");
      this.choices = choices;
      this.changed = changed;
      this.shown = {};
      /** @type {Object<string, Picker>} */
      this.pickers = {};
      for (const group of GROUPS) {
        const box = Paleo.by(`box-${group}`);
        if (box) box.querySelector("fieldset").append(...(choices[group] || []).map(made));
      }
      this.form.addEventListener("submit", (event) => event.preventDefault());
      for (const control of this.form.querySelectorAll("[data-kind]")) this._start(control);
      for (const slider of this.form.querySelectorAll("[data-for]")) this._startSlider(slider);
    }

    _start(control) {
      const kind = control.dataset.kind;
      const list = this._list(control);
      if (kind === "picker") {
        this.pickers[control.name] = new Paleo.Picker(control, list, (name) =>
          this._change(control.name, name, "done"),
        );
        return;
      }
      if (kind === "select") fill(control, list);
      if (kind === "text") {
        control.addEventListener("input", () => this._change(control.name, valueOf(control), "draft"));
      }
      control.addEventListener("change", () => this._change(control.name, valueOf(control), "done"));
    }

    /** Return what a control offers: a list of the page's, or that of its own declaration. */
    _list({ dataset: { list } }) {
      const declared = GROUPS.flatMap((group) => this.choices[group] || []);
      const own = declared.find(({ key }) => key === list);
      return own ? own.choices : this.choices[list];
    }

    _startSlider(slider) {
      const stops = stopsOf(slider);
      if (stops) {
        slider.min = "0";
        slider.max = String(stops.length - 1);
      }
      const text = () => (stops ? stops[slider.valueAsNumber] : slider.value);
      slider.addEventListener("input", () => this._change(slider.dataset.for, text(), "draft"));
      slider.addEventListener("change", () => this._change(slider.dataset.for, text(), "done"));
    }

    /** Say what changed: settings that go with it change, too. */
    _change(key, value, stage) {
      const changes = { [key]: value };
      if (key === "software" && value !== "") {
        changes.ppp_comp = this.defaults.ppp_comp;
        changes.ppp_comm = this.defaults.ppp_comm;
      }
      if (key === "software" && value === "") Object.assign(changes, this._shares());
      if (key.startsWith("ppp_") && this.shown.software) {
        Object.assign(changes, { software: "" }, this._shares(), { [key]: value });
      }
      if (key === "scheme" && value !== SERVERS) changes.num_servers = this.defaults.num_servers;
      if (key === "dataset" && value !== "") changes.dataset_size = this.defaults.dataset_size;
      if (key === "dataset_size" && value !== "") changes.dataset = "";
      if (["epochs", "dataset", "dataset_size"].includes(key) && value !== "") changes.tokens = "";
      if (key === "tokens" && value !== "") Object.assign(changes, { epochs: "", dataset: "", dataset_size: "" });
      this.changed(changes, stage);
    }

    /** Return the shares that the form shows: those of the software, where one is chosen. */
    _shares() {
      const found = (this.choices.software || []).find(({ name }) => name === this.shown.software);
      const shares = found || this.shown;
      return { ppp_comp: Paleo.text(shares.ppp_comp), ppp_comm: Paleo.text(shares.ppp_comm) };
    }

    /** Show settings. @param {Object<string, string>} values */
    show(values) {
      this.shown = { ...values };
      const shown = { ...values, ...this._shares() };
      for (const [key, picker] of Object.entries(this.pickers)) picker.set(shown[key]);
      for (const control of this.form.querySelectorAll("[data-kind]")) {
        const { kind } = control.dataset;
        if (kind !== "picker") showIn(control, shown[control.name]);
        if (kind === "select") explain(control, this._list(control));
      }
      for (const slider of this.form.querySelectorAll("[data-for]")) {
        slide(slider, shown[slider.dataset.for]);
      }
      this._hide(["device", "network"], shown.cluster);
      this._hide(["num_servers"], shown.scheme !== SERVERS && !shown.num_servers);
      this._mesh(shown);
      const cluster = (this.choices.clusters || []).find(({ name }) => name === shown.cluster);
      this._price(cluster ? cluster.device : shown.device);
    }

    /** Show how devices share a net where there is a cluster, or where it is not as usual. */
    _mesh(values) {
      const box = Paleo.by("box-mesh");
      if (!box) return; // a report
      const names = (this.choices.mesh || []).map(({ key }) => key);
      box.hidden = !values.cluster && names.every((key) => values[key] === this.defaults[key]);
    }

    /** Open what is folded at first where something in it was chosen. */
    unfold(values) {
      for (const box of this.form.querySelectorAll("#box-training, #box-mesh, #box-exchange, #box-other, #box-infer")) {
        const names = [...box.querySelectorAll("[data-kind]")].map(({ name }) => name);
        if (names.some((name) => values[name] !== this.defaults[name])) box.open = true;
      }
    }

    /** Open the settings that a tab has of its own, where there is room beside it. */
    reveal(view) {
      const box = Paleo.by(`box-${view}`);
      if (box && !matchMedia("(max-width: 54rem)").matches) box.open = true;
    }

    /** Hide fields that mean nothing: device and network where a cluster takes their place. */
    _hide(keys, isHidden) {
      for (const key of keys) {
        const field = this.form.querySelector(`[data-key="${key}"]`);
        if (field) field.hidden = Boolean(isHidden);
      }
    }

    /** Say beside the price which one is taken where none is given. */
    _price(device) {
      const input = /** @type {HTMLInputElement} */ (document.getElementById("price"));
      if (!input) return; // a report
      const { price, priced } = this.choices.devices.find(({ name }) => name === device) || {};
      input.placeholder = price || "none known";
      const example = "Of one device for an hour, such as 2.50 USD/h.";
      Paleo.by("price-hint").textContent = price && input.value === "" ? `${price} by ${priced}.` : example;
    }

    /**
     * Show what an answer took where nothing was chosen: it depends on the device and the net.
     * Datasets, all of which are of images, are offered only for nets that take some.
     */
    resolve({ settings, takes_images: takes }) {
      for (const key of ["dataset", "dtype"]) {
        const select = /** @type {HTMLSelectElement} */ (document.getElementById(key));
        if (!select) continue; // a report
        if (this.shown[key] === this.defaults[key]) select.value = Paleo.text(settings[key]);
        if (key === "dataset") {
          for (const option of select.options) option.disabled = !takes && option.value !== "";
          select.dataset.why = takes ? "" : "These are of images, and the net takes none: give samples.";
        }
        explain(select, this.choices[select.dataset.list]);
      }
    }

    /** Return a line in the words of the page: labels, and no list of what a control lists itself. */
    _worded(line) {
      const [start, key] = /^(\w+): /.exec(line) || [];
      const field = key && this.form.querySelector(`[data-key="${key}"]`);
      if (!field) return line;
      const label = [...field.querySelector("label, .label").childNodes]
        .filter((node) => node.nodeType === Node.TEXT_NODE)
        .map((node) => node.textContent.trim())
        .join("");
      const rest = line.slice(start.length);
      return `${label}: ${field.querySelector("[data-list]") ? rest.replace(LISTED, "") : rest}`;
    }

    /**
     * Show what is wrong, each line where it happened: below the control that it begins with, below
     * the upload if it is `ofFile`, else above all; mark the controls.
     * @returns {string[]} the lines in the words of the page
     */
    showErrors(lines, ofFile = false) {
      const places = new Map([["errors", []]]);
      for (const line of lines) {
        const place = ofFile && document.getElementById("upload") ? "error-upload" : this._place(line);
        places.set(place, [...(places.get(place) || []), line]);
      }
      for (const box of document.querySelectorAll(".here")) {
        if (!places.has(box.id)) tell(box, []);
      }
      for (const [id, own] of places) {
        const short = id === "errors" || id === "error-upload";
        tell(Paleo.by(id), own.map((line) => (short ? this._worded(line) : after(this._worded(line)))));
      }
      for (const control of this.form.querySelectorAll("[data-kind]")) {
        const id = `error-${control.name}`;
        const bad = places.has(id);
        if (bad) control.setAttribute("aria-invalid", "true");
        else control.removeAttribute("aria-invalid");
        if (bad) control.setAttribute("aria-errormessage", id);
        else control.removeAttribute("aria-errormessage");
        if (bad && control.closest("details")) control.closest("details").open = true;
      }
      return lines.map((line) => this._worded(line));
    }

    /** Return the id of the box where a line is said: that of a field, made if there is none yet. */
    _place(line) {
      const [, key] = /^(\w+): /.exec(line) || [];
      const field = key && this.form.querySelector(`[data-key="${key}"]`);
      if (!field || field.hidden) return "errors";
      const id = `error-${key}`;
      if (!document.getElementById(id)) field.append(Paleo.el("div", { id, class: "here", role: "alert" }));
      return id;
    }
  }

  /** Say lines in a box, which is hidden if there are none; the same ones are not said again. */
  function tell(box, lines) {
    const same = [...box.querySelectorAll("li")].map((item) => item.textContent).join("\n");
    if (same !== lines.join("\n")) {
      const list = Paleo.el("ul", {}, ...lines.map((line) => Paleo.el("li", {}, line)));
      box.replaceChildren(...(lines.length ? [list] : []));
    }
    box.hidden = lines.length === 0;
  }

  /** Return what a line says after the label of the control that it stands below. */
  function after(line) {
    const text = line.slice(line.indexOf(": ") + 2);
    return text.charAt(0).toUpperCase() + text.slice(1);
  }

  /** Return the field of a setting as it is declared: a list to choose from, a box to tick, or a text. */
  function made({ key, label, note, empty, flag, choices }) {
    const said = Paleo.el("p", { class: "small", id: `${key}-hint` }, note);
    const known = { id: key, name: key, "aria-describedby": said.id };
    if (flag) {
      const box = Paleo.el("input", { ...known, type: "checkbox", "data-kind": "check" });
      return Paleo.el("div", { class: "field check", "data-key": key }, Paleo.el("label", {}, box, ` ${label}`), said);
    }
    const none = empty === null ? {} : { "data-empty": empty };
    const control = choices
      ? Paleo.el("select", { ...known, "data-kind": "select", "data-list": key, ...none })
      : Paleo.el("input", { ...known, type: "text", "data-kind": "text", placeholder: empty });
    return Paleo.el(
      "div", { class: "field", "data-key": key }, Paleo.el("label", { for: key }, label), control, said,
    );
  }

  function fill(select, list) {
    const empty = select.dataset.empty;
    const options = empty === undefined ? [] : [new Option(empty, "")];
    for (const { name, title } of list) {
      if (name !== "") options.push(new Option(title || name, name));
    }
    select.replaceChildren(...options);
    if (!select.dataset.emptyNote && !list.some(({ note }) => note)) return;
    const hint = Paleo.el("p", { class: "small", id: `${select.id}-note` });
    select.after(hint);
    select.setAttribute("aria-describedby", hint.id);
  }

  /** Say below a select what its choice is. */
  function explain(select, list) {
    const hint = document.getElementById(`${select.id}-note`);
    if (!hint) return;
    const found = list.find(({ name }) => name === select.value);
    const empty = select.value === "" ? select.dataset.emptyNote : "";
    hint.textContent = select.dataset.why || (found && found.note) || empty || "";
    hint.hidden = hint.textContent === "";
  }

  function stopsOf(slider) {
    return slider.dataset.stops ? slider.dataset.stops.split(" ") : null;
  }

  function valueOf(control) {
    if (control.dataset.kind === "check") return control.checked ? "true" : "false";
    return control.dataset.kind === "text" ? control.value.trim() : control.value;
  }

  function showIn(control, value) {
    const kind = control.dataset.kind;
    if (kind === "check") control.checked = value === "true";
    else if (kind === "radio") control.checked = control.value === value;
    else if (kind === "text") {
      if (document.activeElement !== control || control.value.trim() !== value) control.value = value;
    } else showSelected(control, value);
  }

  /** Select an option; a value that is none of them gets one, so that it is seen. */
  function showSelected(select, value) {
    for (const option of select.querySelectorAll("[data-strange]")) option.remove();
    if (![...select.options].some((option) => option.value === value)) {
      const option = new Option(value, value);
      option.dataset.strange = "";
      select.append(option);
    }
    select.value = value;
  }

  /** Move a slider to the value, or to the stop below it. */
  function slide(slider, value) {
    const stops = stopsOf(slider);
    const number = Number(value);
    if (!stops) slider.value = value;
    else {
      const below = stops.filter((stop) => Number(stop) <= number);
      slider.value = String(Math.max(0, below.length - 1));
    }
    slider.setAttribute("aria-valuetext", value);
  }

  Paleo.Form = Form;
})();
