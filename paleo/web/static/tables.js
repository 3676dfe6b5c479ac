/* Tables of cells: {title, columns: [{title, unit, right}], rows, total, footnotes, notes}. */
"use strict";

(function () {
  const LONG = 12; // letters
  /** Tables of text keep to ASCII; the page need not. */
  const UNITS = { us: "\u00b5s" };
  const DIGITS = /^[-+]?[\d,]*\.?\d+(e[-+]?\d+)?\*?$/i;

  /** Return the number that a cell shows, NaN if it shows none: for sorting alone. */
  function number(text) {
    const plain = text.trim();
    return DIGITS.test(plain) ? parseFloat(plain.replaceAll(",", "")) : NaN;
  }

  function compare(one, other) {
    const [a, b] = [number(one), number(other)];
    if (!Number.isNaN(a) && !Number.isNaN(b)) return a - b;
    if (Number.isNaN(a) !== Number.isNaN(b)) return Number.isNaN(a) ? 1 : -1;
    return one.localeCompare(other);
  }

  /** A table that shows one answer after another, and keeps how it is sorted. */
  class Table {
    /**
     * @param {HTMLElement} parent
     * @param {string} id
     * @param {string} label what the table is of, for its region
     */
    constructor(parent, id, label) {
      this.sorted = null; // {title, down}
      this.marked = -1;
      this.caption = Paleo.el("span", {});
      this.head = Paleo.el("thead", {});
      this.body = Paleo.el("tbody", {});
      this.foot = Paleo.el("tfoot", {});
      const table = Paleo.el("table", { id }, Paleo.el("caption", {}, this.caption), this.head, this.body, this.foot);
      this.region = Paleo.el(
        "div", { class: "scroll", role: "region", tabindex: "0", "aria-label": label }, table,
      );
      this.footnotes = Paleo.el("ul", { class: "notes" });
      parent.append(this.region, this.footnotes);
      this.head.addEventListener("click", (event) => this._sort(event));
    }

    /** Show cells; the row of this index is the one looked at. */
    show(cells, marked) {
      this.cells = cells;
      this.marked = marked === undefined ? -1 : marked;
      this.caption.textContent = cells.title;
      this._fill();
      const notes = [...cells.footnotes, ...cells.notes.map((note) => `Note: ${note}`)];
      Paleo.list(this.footnotes, notes);
    }

    _fill() {
      const { columns, rows, total } = this.cells;
      this.head.replaceChildren(Paleo.el("tr", {}, ...columns.map((column) => this._heading(column))));
      const order = this._order(columns, rows);
      this.body.replaceChildren(
        ...order.map((index) => this._row(rows[index], index === this.marked)),
      );
      this.foot.replaceChildren(...(total ? [this._row(total, false)] : []));
    }

    _heading(column) {
      const own = this.sorted && this.sorted.title === column.title ? this.sorted : null;
      const lines = column.title.split("\n").flatMap((line, i) => (i ? [Paleo.el("br"), line] : [line]));
      const unit = column.unit ? Paleo.el("span", { class: "unit" }, `(${UNITS[column.unit] || column.unit})`) : null;
      const button = Paleo.el(
        "button",
        { type: "button", "data-title": column.title, title: "Sort" },
        Paleo.el("span", {}, ...lines),
        unit,
      );
      const sort = own ? (own.down ? "descending" : "ascending") : null;
      return Paleo.el(
        "th", { scope: "col", class: column.right ? "right" : null, "aria-sort": sort }, button,
      );
    }

    _row(cells, marked) {
      const { columns } = this.cells;
      const row = document.createElement("tr");
      if (marked) {
        row.className = "marked";
        row.setAttribute("aria-current", "true");
      }
      for (const [i, text] of cells.entries()) {
        const cell = document.createElement(i ? "td" : "th");
        if (!i) cell.setAttribute("scope", "row");
        if (columns[i].right) cell.className = "right";
        else cell.dataset.column = columns[i].title;
        cell.textContent = text;
        if (text.length > LONG) cell.title = text; // the style may cut it off
        row.append(cell);
      }
      return row;
    }

    _order(columns, rows) {
      const order = rows.map((_, index) => index);
      const column = this.sorted
        ? columns.findIndex(({ title }) => title === this.sorted.title)
        : -1;
      if (column < 0) return order;
      const sign = this.sorted.down ? -1 : 1;
      return order.sort((a, b) => sign * compare(rows[a][column], rows[b][column]) || a - b);
    }

    /** Sort by a column: numbers from the largest, then from the smallest, then as it was. */
    _sort(event) {
      const button = event.target.closest("button");
      if (!button) return;
      const { title } = button.dataset;
      const column = this.cells.columns.find((each) => each.title === title);
      const first = column.right;
      if (!this.sorted || this.sorted.title !== title) this.sorted = { title, down: first };
      else if (this.sorted.down === first) this.sorted = { title, down: !first };
      else this.sorted = null;
      this._fill();
      const again = [...this.head.querySelectorAll("button")];
      again.find((each) => each.dataset.title === title).focus();
    }
  }

  Paleo.Table = Table;
})();
