/* The controls: they show the settings, and say what the reader changed. */
"use strict";

(function () {
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
      this.form.addEventListener("submit", (event) => event.preventDefault());
      for (const control of this.form.querySelectorAll("[data-kind]")) this._start(control);
      for (const slider of this.form.querySelectorAll("[data-for]")) this._startSlider(slider);
    }

    _start(control) {
      const kind = control.dataset.kind;
      const list = this.choices[control.dataset.list];
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
      if (key === "dataset" && value !== "") changes.dataset_size = this.defaults.dataset_size;
      if (key === "dataset_size" && value !== "") changes.dataset = "";
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
        const { kind, list } = control.dataset;
        if (kind !== "picker") showIn(control, shown[control.name]);
        if (kind === "select") explain(control, this.choices[list]);
      }
      for (const slider of this.form.querySelectorAll("[data-for]")) {
        slide(slider, shown[slider.dataset.for]);
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

    /** Show what is wrong, and mark the controls that lines begin with. */
    showErrors(lines) {
      const box = Paleo.by("errors");
      const same = [...box.querySelectorAll("li")].map((item) => item.textContent).join("\n");
      const texts = lines.map((line) => this._worded(line));
      if (same !== texts.join("\n")) {
        const list = Paleo.el("ul", {}, ...texts.map((line) => Paleo.el("li", {}, line)));
        box.replaceChildren(...(lines.length ? [list] : []));
      }
      box.hidden = lines.length === 0;
      const wrong = new Set(lines.map((line) => (/^(\w+):/.exec(line) || [])[1]));
      for (const control of this.form.querySelectorAll("[data-kind]")) {
        const bad = wrong.has(control.name);
        if (bad) control.setAttribute("aria-invalid", "true");
        else control.removeAttribute("aria-invalid");
        if (bad) control.setAttribute("aria-errormessage", "errors");
        else control.removeAttribute("aria-errormessage");
        if (bad && control.closest("details")) control.closest("details").open = true;
      }
    }
  }

  function fill(select, list) {
    const empty = select.dataset.empty;
    const options = empty === undefined ? [] : [new Option(empty, "")];
    for (const { name } of list) {
      if (name !== "") options.push(new Option(name, name));
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
    hint.textContent = (found && found.note) || empty || "";
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
