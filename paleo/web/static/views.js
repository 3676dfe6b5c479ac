/* Puts answers on the page: headlines, charts, tables, exports, commands. */
"use strict";

(function () {
  const EXPORTS = {
    simulate: "Steps by workers",
    summary: "Layers",
    memory: "Memory by layer",
  };
  /** The charts of an answer about scaling, in the order of the page. */
  const SCALING = ["stage_times", "speedup", "time", "cost", "step", "parts", "efficiency"];
  /** The answers that are asked for where they are looked at, with the views that show them. */
  const FOUND = { plan: "plans", search: "nets", infer: "infer" };
  const COMPARE = ["throughput", "time", "cost", "step"];

  class Results {
    /** @param {(name: string) => void} take called with the export that the reader wants */
    constructor(take) {
      this.take = take;
      this.root = Paleo.by("results");
      const charts = (parent, names, table, alone) =>
        Object.fromEntries(
          names.map((name) => [name, new Paleo.Figure(Paleo.by(parent), { table, alone })]),
        );
      this.figures = {
        scaling: {
          ...charts("schedule-chart", ["schedule"], "table-stages"),
          ...charts("workers-charts", SCALING, "table-scaling"),
        },
        compare: charts("beside-charts", COMPARE, "table-compare"),
        plan: charts("plans-charts", ["plan_memory", "plan_cost"], "table-plans"),
        search: charts("nets-charts", ["front_params"], "table-nets"),
        infer: charts("infer-charts", ["serving", "first_token"], "table-infer"),
        layers: charts("layers-charts", ["layers", "roofline"], "table-layers"),
        memory: {
          ...charts("memory-bar", ["memory"], "table-memory", true),
          ...charts("memory-charts", ["footprint", "stage_memory"], "table-memory"),
        },
      };
      this.tables = {
        scaling: new Paleo.Table(Paleo.by("workers-table"), "table-scaling", "Steps by workers"),
        stages: new Paleo.Table(Paleo.by("stages-table"), "table-stages", "Stages"),
        fitting: new Paleo.Table(Paleo.by("fitting-table"), "table-fitting", "Plans that would fit"),
        compare: new Paleo.Table(Paleo.by("beside-table"), "table-compare", "Figures of both"),
        layers: new Paleo.Table(Paleo.by("layers-table"), "table-layers", "Layers"),
        plan: new Paleo.Table(Paleo.by("plans-table"), "table-plans", "Best plans"),
        search: new Paleo.Table(Paleo.by("nets-table"), "table-nets", "Nets that none beats"),
        chosen: new Paleo.Table(Paleo.by("chosen-table"), "table-chosen", "The quickest net"),
        infer: new Paleo.Table(Paleo.by("infer-table"), "table-infer", "Inference by load"),
        steps: new Paleo.Table(Paleo.by("steps-table"), "table-steps", "Steps on one device"),
        kinds: new Paleo.Table(Paleo.by("kinds-table"), "table-kinds", "Layers by type"),
        memory: new Paleo.Table(Paleo.by("memory-table"), "table-memory", "Memory by layer"),
      };
      this.commands = {};
      this.offered = "";
      this.items = {};
    }

    /** Show an answer. @param {"scaling"|"layers"|"memory"} kind */
    show(kind, answer) {
      if (kind === "scaling") this._scaling(answer);
      else if (kind === "compare") this.compare(answer);
      else if (FOUND[kind]) this._found(kind, answer);
      else {
        this._charts(kind, answer, null);
        this.tables[kind].show(answer.table, { blocks: answer.blocks || [] });
        if (kind === "layers") this.tables.kinds.show(answer.kinds);
        if (kind === "memory") {
          Paleo.list(Paleo.by("memory-hints"), answer.hints || []);
          this._maybe("fitting", answer.remedies);
          this._headlines("memory", answer.headlines || []);
        }
      }
      this.commands[kind] = answer.commands || [];
      this._commands();
    }

    /** Show configurations beside each other; none where `answer` is null, or says what is wrong. */
    compare(answer) {
      const shown = answer !== null && !answer.wrong;
      this.commands.compare = shown ? answer.commands : [];
      Paleo.by("beside").hidden = !shown;
      if (shown) {
        Paleo.by("beside-answer").textContent = answer.answer.join(" ");
        const out = answer.fits.map((fits) => fits === false);
        const how = answer.rows ? { unfit: out } : { faded: [false, ...out] };
        this.tables.compare.show(answer.table, how);
        this._charts("compare", answer, answer.settings ? answer.settings.workers : null);
      }
      this._commands();
    }

    /** Show the best of all plans, or nets, or inference, or why there is none. */
    _found(kind, answer) {
      const view = FOUND[kind];
      Paleo.by(`${view}-answer`).textContent = (answer.wrong || answer.answer).join(" ");
      Paleo.by(`${view}-table`).hidden = Boolean(answer.wrong);
      Paleo.by(`${view}-charts`).hidden = Boolean(answer.wrong);
      if (kind === "search") this._maybe("chosen", answer.chosen);
      if (kind === "infer") this._maybe("steps", answer.parts);
      if (answer.wrong) return;
      this._charts(kind, answer, null);
      this.tables[kind].show(answer.table);
    }

    /** Take away what there is no answer for. */
    hide(kind) {
      for (const figure of Object.values(this.figures[kind])) figure.show(null);
      delete this.commands[kind];
      this._commands();
    }

    _charts(kind, answer, marked) {
      for (const [name, figure] of Object.entries(this.figures[kind])) {
        figure.show(answer.charts[name] || null, marked);
      }
    }

    _scaling(answer) {
      const { settings } = answer;
      const row = answer.headlines.findIndex(({ workers }) => workers === settings.workers);
      this._charts("scaling", answer, settings.workers);
      const [first, ...more] = answer.answer || [];
      Paleo.by("answer").textContent = first || "Results";
      Paleo.by("answer").classList.toggle("hidden", !first);
      Paleo.by("more").textContent = more.join(" ");
      Paleo.by("more").hidden = more.length === 0;
      this.sentences = answer.answer || [];
      Paleo.by("heading").textContent = `${answer.table.title}, ${counted(settings.workers)}`;
      const items = row < 0 ? [] : answer.headlines[row].items;
      this.root.classList.toggle("unfit", row >= 0 && answer.headlines[row].fits === false);
      const unfit = answer.headlines.map(({ fits }) => fits === false);
      this.tables.scaling.show(answer.table, { marked: row, unfit });
      this._maybe("stages", answer.stages);
      this._headlines("scaling", items);
      Paleo.by("tiers").replaceChildren(...tiers(answer.tiers || []));
      this.nothing(false);
      Paleo.list(Paleo.by("hints"), answer.hints || []);
      document.title = `${settings.net} - Paleo`;
    }

    /** Show a table that not every answer has. */
    _maybe(name, table) {
      Paleo.by(`${name}-table`).hidden = !table;
      if (table) this.tables[name].show(table);
    }

    /** Show the figures of one kind of answer beside those of the others. */
    _headlines(kind, items) {
      this.items[kind] = items;
      const { scaling = [], memory = [] } = this.items;
      // What does not fit is said first.
      const all = memory.some(({ is_warning: warns }) => warns) ? [...memory, ...scaling] : [...scaling, ...memory];
      const figures = all.map(({ label, value }) => `${label}: ${value}`).join(", ");
      this._mini(all);
      this.said = [...(this.sentences || []), figures].join(" ");
      Paleo.by("headlines").replaceChildren(
        ...all.map(({ key, label, value, band, note, is_warning: warns }) =>
          Paleo.el(
            "div", { "data-key": key, class: warns ? "warns" : null },
            Paleo.el("dt", {}, label), Paleo.el("dd", {}, value),
            band ? Paleo.el("dd", { class: "band", title: "80 % of measured cases" }, band) : null,
            note ? Paleo.el("dd", { class: "band" }, note) : null,
          ),
        ),
      );
    }

    /** Show what is looked at first below the settings, where the results are out of sight. */
    _mini(items) {
      const mini = Paleo.by("mini");
      mini.hidden = items.length === 0;
      mini.textContent = items.slice(0, 2).map(({ label, value }) => `${label} ${value}`).join(" · ");
    }

    _commands() {
      const all = ["scaling", "layers", "memory", "compare", ...Object.keys(FOUND)].flatMap((kind) => this.commands[kind] || []);
      const isFirst = ({ text }, i) => all.findIndex((other) => other.text === text) === i;
      const unique = all.filter(isFirst);
      const key = JSON.stringify(unique);
      if (key === this.commandsShown) return; // so that who is copying keeps the focus
      this.commandsShown = key;
      Paleo.by("commands").replaceChildren(
        ...unique.map(({ label, text }) =>
          Paleo.el(
            "div", { class: "command" },
            Paleo.el("span", { class: "label" }, label),
            Paleo.el("code", { tabindex: "0", role: "region", "aria-label": label }, text),
            copyButton(`Copy the command: ${label}`, "Copy", () => text),
          ),
        ),
      );
    }

    /** Offer exports such as "simulate.csv"; `link` gives the link to copy, if there is one. */
    offer(names, link) {
      if (this.offered === names.join()) return;
      this.offered = names.join();
      const groups = Object.entries(EXPORTS).map(([stem, label]) => {
        const own = names.filter((name) => name.startsWith(`${stem}.`));
        const buttons = own.map((name) => {
          const format = name.slice(stem.length + 1).toUpperCase();
          return Paleo.el(
            "button",
            { type: "button", "data-export": name, "aria-label": `${label} as ${format}`,
              click: () => this.take(name) },
            format,
          );
        });
        return own.length ? Paleo.el("span", { class: "group" }, `${label} `, ...buttons) : null;
      });
      const copy = link ? copyButton("", "Copy link", link) : null;
      if (copy) copy.id = "copy-link";
      Paleo.by("exports").replaceChildren(...[...groups, copy].filter((part) => part !== null));
    }

    /** Show one tab. */
    select(view) {
      for (const tab of document.querySelectorAll("[role=tab]")) {
        const own = tab.dataset.view === view;
        tab.setAttribute("aria-selected", own ? "true" : "false");
        tab.tabIndex = own ? 0 : -1;
        Paleo.by(`view-${tab.dataset.view}`).hidden = !own;
      }
    }

    /** Say why what is shown is old: an error keeps the last good picture. "" says that it is not. */
    stale(why) {
      this.root.classList.toggle("stale", why !== "");
      Paleo.by("stale").hidden = why === "";
      Paleo.by("stale").textContent = why;
    }

    /** Say which settings everything on the page is of, as a query. */
    settled(query) {
      this.root.dataset.shows = query;
    }

    /** Say that nothing was answered yet, and why. */
    nothing(is, why = "") {
      this.root.classList.toggle("nothing", is);
      Paleo.by("nothing").hidden = !is;
      Paleo.by("nothing").textContent = `There is nothing to show yet. ${why}`;
    }

    busy(is) {
      this.root.setAttribute("aria-busy", is ? "true" : "false");
      Paleo.by("busy").hidden = !is;
    }
  }

  /** Return tiers, given from the outside in, as boxes in each other. */
  function tiers([outer, ...inner]) {
    if (!outer) return [];
    const { name, members, links, bound } = outer;
    const said = Paleo.el(
      "p", {},
      Paleo.el("strong", {}, name), ` ${members}, ${links}`,
      bound ? Paleo.el("span", { class: "bound" }, ` ${bound}`) : null,
    );
    return [Paleo.el("div", { class: bound ? "tier bounds" : "tier", role: "group", "aria-label": `tier ${name}` }, said, ...tiers(inner))];
  }

  function counted(workers) {
    return `${workers.toLocaleString("en")}\u00a0worker${workers === 1 ? "" : "s"}`;
  }

  function copyButton(label, text, content) {
    const button = Paleo.el("button", { type: "button", "aria-label": label || null }, text);
    const state = Paleo.el("span", { class: "hidden", role: "status" });
    button.addEventListener("click", async () => {
      const done = await Paleo.copy(content());
      button.textContent = done ? "Copied" : "Not allowed";
      state.textContent = done ? "Copied" : "The browser does not allow copying";
      setTimeout(() => {
        button.textContent = text;
        state.textContent = "";
      }, 1500);
    });
    const both = Paleo.el("span", { class: "copy" }, button, state);
    return both;
  }

  /** Let the arrow keys move among tabs. @param {(view: string) => void} choose */
  function startTabs(choose) {
    const tabs = [...document.querySelectorAll("[role=tab]")];
    for (const tab of tabs) {
      tab.addEventListener("click", () => choose(tab.dataset.view));
      tab.addEventListener("keydown", (event) => {
        const shown = tabs.filter((each) => !each.hidden);
        const at = shown.indexOf(tab);
        const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: shown.length - 1 }[event.key];
        if (to === undefined) return;
        event.preventDefault();
        const next = shown[(to + shown.length) % shown.length];
        next.focus();
        choose(next.dataset.view);
      });
    }
  }

  Paleo.Results = Results;
  Paleo.startTabs = startTabs;
})();
