/* What the other scripts share: elements, the data in the page, colours, downloads and copying.

Everything that comes from a server, a file or an address is put in as text or as an attribute,
never as markup. */
"use strict";

/** The one global name; each script adds its part. */
const Paleo = {};

(function () {
  /**
   * Return a new element. An attribute that is null, undefined or false is left out; one that is a
   * function listens to that event.
   * @param {string} tag
   * @param {Object<string, *>} [attributes]
   * @param {...(Node|string|null)} children texts become text nodes
   * @returns {HTMLElement}
   */
  Paleo.el = function (tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (typeof value === "function") element.addEventListener(name, value);
      else if (value === true) element.setAttribute(name, "");
      else if (value !== null && value !== undefined && value !== false) {
        element.setAttribute(name, value);
      }
    }
    element.append(...children.filter((child) => child !== null));
    return element;
  };

  /** @param {string} id @returns {HTMLElement} */
  Paleo.by = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

  /** Return a setting as the text that an address has for it. @param {*} value */
  Paleo.text = (value) => (value === null || value === undefined ? "" : String(value));

  /** Return the JSON of a data block, null if there is none. @param {string} id */
  Paleo.data = function (id) {
    const block = document.getElementById(id);
    return block === null ? null : JSON.parse(block.textContent);
  };

  /** Replace the children of a list by items, and hide it if there are none. */
  Paleo.list = function (list, texts) {
    list.replaceChildren(...texts.map((text) => Paleo.el("li", {}, text)));
    list.hidden = texts.length === 0;
  };

  /** Hand a text to the browser as a file to keep. @param {string} name @param {string} text */
  Paleo.download = function (name, text, type) {
    const address = URL.createObjectURL(new Blob([text], { type: type || "text/plain" }));
    const link = Paleo.el("a", { href: address, download: name });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(address), 10000);
  };

  /** Copy a text; where the browser does not let us, say so. @returns {Promise<boolean>} */
  Paleo.copy = async function (text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      return copyBySelection(text);
    }
  };

  function copyBySelection(text) {
    const area = Paleo.el("textarea", { readonly: true, class: "hidden" });
    const before = document.activeElement;
    area.value = text;
    document.body.append(area);
    area.select();
    let done = false;
    try {
      done = document.execCommand("copy");
    } catch {
      done = false;
    }
    area.remove();
    if (before instanceof HTMLElement) before.focus();
    return done;
  }

  const THEMES = ["light", "dark"];

  function remembered() {
    try {
      return localStorage.getItem("paleo-theme");
    } catch {
      return null; // storage may be forbidden
    }
  }

  function useTheme(name) {
    if (THEMES.includes(name)) document.documentElement.dataset.theme = name;
    else delete document.documentElement.dataset.theme;
  }

  /** Let the reader choose the colours, and remember them. */
  Paleo.startTheme = function () {
    const select = /** @type {HTMLSelectElement} */ (Paleo.by("theme"));
    const name = remembered();
    select.value = THEMES.includes(name) ? name : "system";
    select.addEventListener("change", () => {
      useTheme(select.value);
      try {
        localStorage.setItem("paleo-theme", select.value);
      } catch {
        // then it holds for this page
      }
    });
  };

  useTheme(remembered());
  document.documentElement.classList.add("ready"); // the page shows its controls where scripts run
})();
