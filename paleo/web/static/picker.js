/* A text field with a list that narrows as one types: the combobox of the ARIA practices guide. */
"use strict";

(function () {
  let count = 0;

  /**
   * One of the things to choose from.
   * @typedef {{name: string, group?: string, note?: string}} Choice
   */

  /** Tell whether a word is a part of the name, or how a word of the rest begins. */
  function fits(choice, word) {
    const rest = `${choice.group || ""} ${choice.note || ""}`.toLowerCase();
    return (
      choice.name.toLowerCase().includes(word) ||
      rest.split(/[\s,()]+/).some((other) => other.startsWith(word))
    );
  }

  /** A combobox around an input that is in the page already. */
  class Picker {
    /**
     * @param {HTMLInputElement} input
     * @param {Choice[]} choices
     * @param {(name: string) => void} choose called with what the reader chose
     */
    constructor(input, choices, choose) {
      this.input = input;
      this.choices = choices;
      this.choose = choose;
      this.value = "";
      this.options = [];
      this.active = -1;
      this.list = Paleo.el("div", {
        role: "listbox",
        id: `list-${(count += 1)}`,
        class: "listbox",
        "aria-label": input.labels.length ? input.labels[0].textContent : input.name,
        hidden: true,
        // the field keeps the focus, so that its list stays
        mousedown: (event) => event.preventDefault(),
        click: (event) => this._click(event),
      });
      const box = Paleo.el("div", { class: "picker" });
      input.replaceWith(box);
      box.append(input, this.list);
      for (const [name, value] of Object.entries({
        role: "combobox",
        "aria-autocomplete": "list",
        "aria-expanded": "false",
        "aria-controls": this.list.id,
        autocapitalize: "off",
        spellcheck: "false",
      })) {
        input.setAttribute(name, value);
      }
      input.addEventListener("click", () => this.open(""));
      input.addEventListener("focus", () => input.select());
      input.addEventListener("input", () => this.open(input.value));
      input.addEventListener("keydown", (event) => this._key(event));
      input.addEventListener("blur", () => this._leave());
    }

    /** Show a value without choosing it. */
    set(value) {
      this.value = value;
      if (document.activeElement !== this.input || this.list.hidden) this.input.value = value;
    }

    /** Show what fits the words typed; all if there are none. */
    open(typed) {
      const words = typed.toLowerCase().split(/\s+/).filter(Boolean);
      const found = this.choices.filter((choice) => words.every((word) => fits(choice, word)));
      this.options = [];
      this.list.replaceChildren(...this._groups(found));
      if (found.length === 0) {
        this.list.append(Paleo.el("p", { class: "small" }, "No such name."));
      }
      this.list.hidden = false;
      this.list.scrollTop = 0;
      this.input.setAttribute("aria-expanded", "true");
      const own = this.options.findIndex((option) => option.dataset.name === this.value);
      this._activate(words.length ? -1 : own);
    }

    close() {
      this.list.hidden = true;
      this.input.setAttribute("aria-expanded", "false");
      this._activate(-1);
    }

    _groups(found) {
      const groups = new Map();
      for (const choice of found) {
        const name = choice.group || "";
        if (!groups.has(name)) groups.set(name, []);
        groups.get(name).push(this._option(choice));
      }
      return [...groups].flatMap(([name, options]) => {
        if (!name) return options;
        const label = Paleo.el("div", { class: "group", "aria-hidden": "true" }, name);
        return [Paleo.el("div", { role: "group", "aria-label": name }, label, ...options)];
      });
    }

    _option(choice) {
      const option = Paleo.el(
        "div",
        {
          role: "option",
          id: `${this.list.id}-${this.options.length}`,
          "data-name": choice.name,
          "aria-selected": choice.name === this.value ? "true" : "false",
        },
        Paleo.el("span", {}, choice.name),
        choice.note ? Paleo.el("span", { class: "small" }, ` ${choice.note}`) : null,
      );
      this.options.push(option);
      return option;
    }

    _activate(index) {
      if (this.options[this.active]) this.options[this.active].classList.remove("active");
      this.active = index;
      const option = this.options[index];
      if (!option) {
        this.input.removeAttribute("aria-activedescendant");
        return;
      }
      option.classList.add("active");
      option.scrollIntoView({ block: "nearest" });
      this.input.setAttribute("aria-activedescendant", option.id);
    }

    _take(name) {
      this.close();
      this.input.value = name;
      if (name === this.value) return;
      this.value = name;
      this.choose(name);
    }

    _click(event) {
      const option = event.target.closest("[role=option]");
      if (option) this._take(option.dataset.name);
    }

    _same() {
      const typed = this.input.value.trim().toLowerCase();
      const found = this.choices.find((choice) => choice.name.toLowerCase() === typed);
      return found ? found.name : null;
    }

    /** Take what stands there, known or not; nothing is as it was, or none. */
    _leave() {
      const none = this.input.placeholder ? "" : this.value; // it may be empty where that is said
      this._take(this._same() || this.input.value.trim() || none);
    }

    _key(event) {
      if (event.altKey && event.key === "ArrowUp") this.close();
      else if (["ArrowDown", "ArrowUp"].includes(event.key)) this._move(event.key === "ArrowDown");
      else if (event.key === "Enter") this._enter();
      else if (event.key === "Escape" && !this.list.hidden) {
        this.close();
        this.input.value = this.value;
        this.input.select();
      } else return;
      event.preventDefault();
    }

    _move(down) {
      if (this.list.hidden) {
        this.open("");
        if (this.active >= 0) return;
      }
      const last = this.options.length - 1;
      if (down) this._activate(this.active >= last ? 0 : this.active + 1);
      else this._activate(this.active <= 0 ? last : this.active - 1);
    }

    /** Take the option looked at, or the name typed; one that is not known is refused later. */
    _enter() {
      if (this.list.hidden) return;
      const typed = this.input.value.trim();
      const only = this.options.length === 1 ? this.options[0].dataset.name : null;
      if (this.active >= 0) this._take(this.options[this.active].dataset.name);
      else if (typed || this.input.placeholder) this._take(this._same() || only || typed);
    }
  }

  Paleo.Picker = Picker;
})();
