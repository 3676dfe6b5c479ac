/* Tables of cells: {title, columns: [{title, unit, right}], rows, total, footnotes, notes}. */
"use strict";

(function () {
  const LONG = 12; // letters
  const MANY = 40; // rows from which on blocks are closed at first
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
      this.how = {};
      this.open = new Set(); // the first rows of blocks that are open
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

    /**
     * Show cells.
     * @param {{marked?: number, unfit?: boolean[], faded?: boolean[], blocks?: Object[]}} [how]
     *     `marked` is the row looked at, `unfit` tells rows and `faded` columns of what does not
     *     fit, `blocks` are rows that belong together
     */
    show(cells, how) {
      this.cells = cells;
      this.how = { marked: -1, unfit: [], faded: [], blocks: [], ...how };
      const names = this.how.blocks.map(({ name, first }) => `${first} ${name}`).join();
      if (names !== this.named) {
        this.named = names;
        // Where there are many layers, blocks are looked at first.
        this.open = new Set(cells.rows.length > MANY ? [] : this.how.blocks.map(({ first }) => first));
      }
      this.caption.textContent = cells.title;
      this._fill();
      const notes = [...cells.footnotes, ...cells.notes.map((note) => `Note: ${note}`)];
      Paleo.list(this.footnotes, notes);
    }

    _fill() {
      const { columns, rows, total } = this.cells;
      this.head.replaceChildren(Paleo.el("tr", {}, ...columns.map((column) => this._heading(column))));
      const order = this._order(columns, rows);
      const { blocks } = this.how;
      const starts = new Map(this.sorted ? [] : blocks.map((block) => [block.first, block]));
      let block = null;
      const made = order.flatMap((index) => {
        const row = this._row(rows[index], index);
        const start = starts.get(index);
        if (start) block = start;
        if (!block || index >= block.first + block.layers) return [row];
        row.classList.add("inside");
        row.classList.toggle("folded", !this.sorted && !this.open.has(block.first));
        return start ? [this._block(start), row] : [row];
      });
      this.body.replaceChildren(...made);
      this.foot.replaceChildren(...(total ? [this._row(total, NaN)] : []));
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

    /** Return the row that heads a block, which opens and closes it. */
    _block({ name, first, said }) {
      const is = this.open.has(first);
      const button = Paleo.el(
        "button", { type: "button", "aria-expanded": is ? "true" : "false", "data-block": String(first) }, name,
      );
      button.addEventListener("click", () => {
        if (is) this.open.delete(first);
        else this.open.add(first);
        this._fill();
        this.body.querySelector(`[data-block="${first}"]`).focus();
      });
      return Paleo.el(
        "tr", { class: "block" },
        Paleo.el("th", { scope: "row" }, button),
        Paleo.el("td", { colspan: String(this.cells.columns.length - 1) }, said),
      );
    }

    _row(cells, index) {
      const { columns } = this.cells;
      const { marked, unfit, faded } = this.how;
      const row = document.createElement("tr");
      if (unfit[index]) {
        row.classList.add("unfit");
        row.title = "A worker's batch does not fit in the memory of the device";
      }
      if (index === marked) {
        row.classList.add("marked");
        row.setAttribute("aria-current", "true");
      }
      for (const [i, text] of cells.entries()) {
        const cell = document.createElement(i ? "td" : "th");
        if (!i) cell.setAttribute("scope", "row");
        if (columns[i].right) cell.classList.add("right");
        else cell.dataset.column = columns[i].title;
        if (faded[i]) cell.classList.add("unfit");
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
