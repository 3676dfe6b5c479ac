/* The page: asks for what the controls say, and shows what is answered.

The page is also that of a report, one file without a server. Then it has a data block
<script type="application/json" id="report"> in place of the one of choices:

  {
    "title": "nin on K20X", "version": "1.2.0",
    "settings": every setting as in answers: what is shown first,
    "said": [{"label": "device", "value": "K20X"}, ...]    settings that stay, as texts
    "choices": {"net": [...], "cluster": [...], "device": [...], "batch_size": [...],
      "scaling": [...], "scheme": [...], "workers": [...]}
                                     what there are answers of; a control where more than one;
                                     of clusters, no devices
    "depends": {KIND: [...]}         settings that an answer depends on, where not on all
    "compare": what is said of all nets, devices and batches beside each other; null of one alone
    "answers": [...]                 a pool: answers as those of api/scaling, api/layers, api/memory
    "texts": [...]                   a pool: exports, as those of api/simulate.csv and so on
    "views": {NET: {CLUSTER or DEVICE: {BATCH_SIZE: {SCALING: {
      "scaling": {SCHEME: index into answers},             "" is the best scheme
      "layers": {WORKERS: index}, "memory": {WORKERS: index},
      "exports": {"simulate.csv": {SCHEME: index into texts}, "summary.csv": {WORKERS: index}, ...}
    }}}}}
  }

Layers, memory and exports may be absent, as a whole or in part: then there is no tab or button. */
"use strict";

(function () {
  const PATIENCE = 30; // ms between questions while something is dragged
  const BUSY_AFTER = 150; // ms without an answer until it says so
  const SAID_AFTER = 700; // ms without a change until the headlines are said
  const OVERTAKEN_AFTER = 250; // ms that a drag lets an answer take before it asks anew

  class App {
    constructor(source, choices, defaults, depends) {
      this.source = source;
      this.depends = depends;
      this.defaults = defaults;
      this.choices = choices;
      this.messages = [];
      this.state = { values: { ...defaults }, view: Paleo.address.VIEWS[0], net: null, fragment: "" };
      this.drafting = false;
      this.latest = 0; // the number of the latest question
      this.asked = null; // {controller, since}, while one is on its way
      this.again = false;
      this.file = null; // the one that was uploaded last
      this.wrong = []; // with the configuration that is compared with
      this.shown = {}; // of each kind of answer, which question it answers
      this.form = new Paleo.Form(choices, (changes, stage) => this.change(changes, stage));
      this.form.defaults = defaults;
      this.results = new Paleo.Results((name) => this.take(name));
      Paleo.startTabs((view) => this.look(view));
    }

    get isReport() {
      return this.source instanceof Paleo.Report;
    }

    // Settings and the address

    /** Take changes of the form. */
    change(changes, stage) {
      const values = { ...this.state.values, ...changes };
      const same = Object.keys(values).every((key) => values[key] === this.state.values[key]);
      if (same && !(stage === "done" && this.drafting)) return;
      const replace = this.drafting;
      this.drafting = stage === "draft";
      this.state = { ...this.state, values };
      if ("net" in changes) this.state = { ...this.state, net: null, fragment: "" };
      this.say([]);
      this.write(replace);
      this.form.show(values);
      this._own();
      this.refresh(stage === "done");
    }

    /** Show another tab. */
    look(view) {
      if (view === this.state.view) return;
      this.state = { ...this.state, view };
      this.write(false);
      this.results.select(view);
      this.form.reveal(view);
      this.refresh(true);
    }

    /** Write the address. While something is dragged, it is one step back to before. */
    write(replace) {
      if (this.isReport) return;
      const { values, view, fragment } = this.state;
      const address = Paleo.address.address(values, this.defaults, view, fragment);
      if (replace) history.replaceState(null, "", address);
      else history.pushState(null, "", address);
    }

    /** Read the address, and show what it says. */
    async read() {
      const { values, view, messages } = Paleo.address.read(
        this.isReport ? "" : location.search, this.defaults,
      );
      const fragment = this.isReport ? "" : location.hash.replace(/^#/, "");
      const kept = fragment && fragment === this.state.fragment ? this.state.net : null;
      const found = kept ? { net: kept, message: "" } : await Paleo.address.unpack(fragment);
      const packed = found.net ? fragment : "";
      this.state = { values, view, net: found.net, fragment: packed };
      this.drafting = false;
      this.results.select(view);
      this.form.show(values);
      this.form.unfold(values);
      this.form.reveal(view);
      this._own();
      this.say([...messages, ...(found.message ? [found.message] : [])]);
      await this.refresh(true);
    }

    /** Say something that is no error. */
    say(lines) {
      const box = Paleo.by("notice");
      box.replaceChildren(...lines.map((line) => Paleo.el("p", {}, line)));
      box.hidden = lines.length === 0;
    }

    reset() {
      this._replace({ ...this.defaults });
    }

    /** Go back from an uploaded net to the first one of the list. */
    removeNet() {
      this.file = null;
      Paleo.by("reading").hidden = true;
      Paleo.by("file-options").value = "";
      this._replace(this.state.values);
    }

    _replace(values) {
      this.state = { ...this.state, values, net: null, fragment: "" };
      this.drafting = false;
      this.write(false);
      this.form.show(this.state.values);
      this._own();
      this.say([]);
      this.refresh(true);
    }

    // Uploaded nets

    _own() {
      const { net } = this.state;
      if (!Paleo.by("own")) return; // a report of one net
      Paleo.by("own").hidden = net === null;
      const picker = document.querySelector("[data-key=net]");
      if (picker) picker.hidden = net !== null;
      Paleo.by("own-name").textContent = net ? net.file : "";
      if (net === null || net.text !== (this.read_ || {}).text) this._about(null);
      else this._about(this.read_);
    }

    _about(read) {
      const layers = read && read.layers;
      Paleo.by("own-about").textContent = layers ? `${read.name}, ${layers} layers` : "";
      Paleo.list(Paleo.by("own-notes"), (read && read.notes) || []);
    }

    /** Take a file of the reader's. @param {File} file */
    async upload(file) {
      const isImported = !/\.json$/i.test(file.name);
      const options = isImported ? Paleo.by("file-options").value.trim() : "";
      this.file = file; // to be read again with other options
      Paleo.by("reading").hidden = !isImported;
      Paleo.by("reading-name").textContent = file.name;
      this.results.busy(true);
      try {
        const read = await this.source.upload(file, options);
        const net = { file: read.file, text: read.text, options: read.options };
        const fragment = await Paleo.address.pack(net);
        this.read_ = read;
        const values = { ...this.state.values, net: this.defaults.net };
        this.state = { ...this.state, values, net, fragment };
        this.write(false);
        this.form.show(values);
        this._own();
        this.say(
          fragment.startsWith("net=") ? [] : ["This net is too large for a link: a link will ask for the file."],
        );
        await this.refresh(true);
      } catch (error) {
        this._fail(error, file.name);
      } finally {
        this.results.busy(false);
      }
    }

    // Questions and answers

    /**
     * Ask for what the controls say. While something is dragged, at most one question is on its
     * way, and the next waits for its answer; else it is given up.
     */
    async refresh(now) {
      clearTimeout(this.timer);
      if (!now) {
        const waits = this.asked && performance.now() - this.asked.since < OVERTAKEN_AFTER;
        if (waits) this.again = true;
        else this.timer = setTimeout(() => this._ask(), PATIENCE);
        return;
      }
      await this._ask();
    }

    async _ask() {
      if (this.asked) this.asked.controller.abort();
      const number = (this.latest += 1);
      const controller = new AbortController();
      this.asked = { controller, since: performance.now() };
      this.again = false;
      const { state } = this;
      const busy = setTimeout(() => this.results.busy(true), BUSY_AFTER);
      try {
        for (const kinds of [["scaling"], this._others(state)]) {
          await Promise.all(kinds.map((kind) => this._one(kind, state, number, controller.signal)));
        }
        if (number === this.latest) this._done(state);
      } catch (error) {
        if (number === this.latest && error.name !== "AbortError") this._fail(error);
        controller.abort();
      } finally {
        clearTimeout(busy);
        if (number === this.latest) {
          this.asked = null;
          this.results.busy(false);
          if (this.again) this.refresh(false);
        }
      }
    }

    /** Return what is asked for beside the steps: what takes longer only where it is looked at. */
    _others(state) {
      const kinds = ["memory", ...({ layers: ["layers"], plans: ["plan"], nets: ["search"], infer: ["infer"] }[state.view] || [])];
      const compares = Object.entries(state.values).some(([key, value]) => key.startsWith("other_") && value);
      if (compares) kinds.push("compare");
      else if (!this.isReport) this._alone();
      return this.isReport ? kinds.filter((kind) => this.source.has(kind, state)) : kinds;
    }

    async _one(kind, state, number, signal) {
      const key = this._key(kind, state);
      if (this.shown[kind] === key) return;
      const found = () => this._found(kind, state, signal);
      const other = { compare: () => this._compared(state, signal), plan: found, search: found, infer: found }[kind];
      const answer = await (other ? other() : this.source.ask(kind, state, signal));
      if (number !== this.latest) return; // never an older answer after a newer one
      this.results.show(kind, answer);
      this.shown[kind] = key;
      if (kind !== "scaling") return;
      this.answered = answer.settings;
      this.form.resolve(answer);
    }

    /** Return the answer about two configurations; what is wrong with the other is said there alone. */
    async _compared(state, signal) {
      try {
        const answer = await this.source.ask("compare", state, signal);
        this.wrong = [];
        return answer;
      } catch (error) {
        if (!(error instanceof Paleo.Refusal)) throw error;
        this.wrong = error.lines;
        return { wrong: error.lines };
      }
    }

    /** Return an answer that has a tab of its own; why there is none is said there alone. */
    async _found(kind, state, signal) {
      try {
        return await this.source.ask(kind, state, signal);
      } catch (error) {
        if (!(error instanceof Paleo.Refusal)) throw error;
        return { wrong: error.lines };
      }
    }

    /** Show no other configuration any more. */
    _alone() {
      this.wrong = [];
      delete this.shown.compare;
      this.results.compare(null);
    }

    /** Stop comparing. */
    stopComparing() {
      const others = Object.keys(this.state.values).filter((key) => key.startsWith("other_"));
      this.change(Object.fromEntries(others.map((key) => [key, ""])), "done");
    }

    /** Return what an answer of this kind depends on: it is asked for again when that changes. */
    _key(kind, state) {
      const keys = this.depends[kind] || Object.keys(this.defaults);
      return JSON.stringify([keys.map((key) => state.values[key]), state.net]);
    }

    _done(state) {
      this.form.showErrors(this.wrong);
      this.results.stale("");
      const query = Paleo.address.query(state.values, this.defaults, state.view);
      this.results.settled(state.net ? `${query}#${state.net.file}` : query);
      this.results.offer(
        this.source.exports(state), this.isReport ? null : () => location.href,
      );
      clearTimeout(this.saying);
      this.saying = setTimeout(() => {
        Paleo.by("live").textContent = this.results.said || "";
      }, SAID_AFTER);
    }

    /**
     * Say what went wrong where it happened, and above what is shown that it is old: of the last
     * settings without a mistake, or not of the `file` that could not be read.
     */
    _fail(error, file = "") {
      const lines = error instanceof Paleo.Refusal ? error.lines : [`The page failed: ${error.message}`];
      const [first] = this.form.showErrors(lines, file !== "");
      if (!this.answered) this.results.nothing(true, first);
      else if (file) this.results.stale(`${file} cannot be shown. What is below is still of ${this.answered.net}.`);
      else this.results.stale(`${first}\nWhat is below is old: of the last settings that had no mistake.`);
      if (!(error instanceof Paleo.Refusal)) throw error;
    }

    /** Hand an export to the reader. */
    async take(name) {
      try {
        const text = await this.source.export(name, this.state);
        const net = String((this.answered || {}).net || "net");
        const stem = net.replace(/\.[^.]*$/, "").replace(/[^\w.-]+/g, "_");
        const type = name.endsWith(".csv") ? "text/csv" : "application/json";
        Paleo.download(`${stem}-${name}`, text, type);
      } catch (error) {
        this._fail(error);
      }
    }
  }

  /** Let files be dropped anywhere on the page. */
  function startUploads(app) {
    const input = Paleo.by("file");
    input.addEventListener("change", () => {
      if (input.files.length) app.upload(input.files[0]);
      input.value = "";
    });
    Paleo.by("file-options").addEventListener("change", () => {
      if (app.file) app.upload(app.file);
    });
    Paleo.by("own-remove").addEventListener("click", () => {
      app.removeNet();
      Paleo.by("net").focus();
    });
    const page = document.documentElement;
    const isFile = (event) => event.dataTransfer && [...event.dataTransfer.types].includes("Files");
    page.addEventListener("dragover", (event) => {
      if (!isFile(event)) return;
      event.preventDefault();
      page.classList.add("dropping");
    });
    page.addEventListener("dragleave", (event) => {
      if (event.relatedTarget === null) page.classList.remove("dropping");
    });
    page.addEventListener("drop", (event) => {
      page.classList.remove("dropping");
      if (!isFile(event)) return;
      event.preventDefault();
      if (event.dataTransfer.files.length) app.upload(event.dataTransfer.files[0]);
    });
  }

  /** Leave the controls that a report has answers for. */
  function reportChoices(report) {
    const lists = {
      net: "nets", cluster: "clusters", device: "devices", scaling: "scalings", scheme: "schemes",
    };
    const choices = {};
    for (const [key, list] of Object.entries(lists)) {
      choices[list] = report.choices[key].map((name) => ({ name }));
    }
    const kept = Object.keys(report.choices).filter((key) => report.choices[key].length > 1);
    for (const key of ["workers", "batch_size"]) {
      choices[key] = report.choices[key].map((count) => ({ name: String(count) }));
      Paleo.by(`${key}-slider`).dataset.stops = [...report.choices[key]].sort((a, b) => a - b).join(" ");
      const select = { id: key, name: key, "data-kind": "select", "data-list": key };
      Paleo.by(key).replaceWith(Paleo.el("select", select));
    }
    const form = Paleo.by("settings");
    for (const field of form.querySelectorAll("[data-key]")) {
      if (!kept.includes(field.dataset.key)) field.remove();
    }
    for (const part of document.querySelectorAll("[data-server]")) part.remove();
    for (const box of form.querySelectorAll("fieldset, details")) {
      if (!box.querySelector("[data-kind]")) box.remove();
    }
    for (const key of ["cluster", "scheme"]) {
      const select = /** @type {HTMLSelectElement} */ (document.getElementById(key));
      if (select && !report.choices[key].includes("")) delete select.dataset.empty;
    }
    Paleo.by("said").hidden = false;
    Paleo.by("said").replaceChildren(
      ...report.said.map(({ label, value }) =>
        Paleo.el("div", {}, Paleo.el("dt", {}, label), Paleo.el("dd", {}, value)),
      ),
    );
    Paleo.by("title").textContent = report.title;
    return choices;
  }

  function startReport(report) {
    const choices = reportChoices(report);
    const defaults = Paleo.address.texts(report.settings);
    const app = new App(new Paleo.Report(report), choices, defaults, report.depends);
    const views = [1, 2, 3].reduce((found) => found.flatMap(Object.values), Object.values(report.views));
    for (const view of ["plans", "nets", "infer"]) Paleo.by(`tab-${view}`).hidden = true; // a report has none
    for (const kind of ["layers", "memory"]) {
      if (!views.some((view) => kind in view)) Paleo.by(`tab-${kind}`).hidden = true;
    }
    if (report.compare) {
      document.querySelector("#results .head").before(Paleo.by("beside"));
      app.results.compare({ ...report.compare, commands: [], rows: true });
    }
    Paleo.by("foot").textContent = `Made by Paleo ${report.version}`;
    document.title = report.title;
    return app;
  }

  function startServer(choices) {
    const defaults = Paleo.address.texts(choices.defaults);
    const source = new Paleo.Server(defaults, choices.exports);
    const app = new App(source, choices, defaults, choices.depends);
    startUploads(app);
    Paleo.by("reset").addEventListener("click", () => app.reset());
    Paleo.by("alone").addEventListener("click", () => {
      app.stopComparing();
      Paleo.by("results").focus();
    });
    addEventListener("popstate", () => app.read());
    Paleo.by("foot").textContent = `Paleo ${choices.version}`;
    return app;
  }

  /**
   * On a narrow window the answer comes first, and the settings after it, those that are changed
   * less folded; on a wide one the settings stand beside, open as they were.
   */
  function arrange(narrow) {
    const form = Paleo.by("settings");
    const parts = [...form.querySelectorAll("details")];
    if (narrow.matches) {
      Paleo.by("memory-bar").after(form);
      for (const part of parts.filter(({ open }) => open)) {
        part.open = false;
        part.dataset.folded = "";
      }
      return;
    }
    Paleo.by("results").before(form);
    for (const part of parts.filter(({ dataset }) => "folded" in dataset)) {
      part.open = true;
      delete part.dataset.folded;
    }
  }

  const report = Paleo.data("report");
  Paleo.startTheme();
  const narrow = matchMedia("(max-width: 54rem)");
  arrange(narrow);
  narrow.addEventListener("change", arrange);
  (report ? startReport(report) : startServer(Paleo.data("choices"))).read();
})();
