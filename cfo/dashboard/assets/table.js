// A table of objects: sorted, in pages, and updated by row, so that a change of one object touches only its row.

import { arrange, element, setText } from "./element.js";
import { bySeverity, compare } from "./model.js";

const PAGE = 25;

/**
 * `columns` have a `title`; `show(cell, row, now)` fills an emptied cell; `text(row, now)` is shown instead if it is
 * given, and is updated with the time; `sort(row)` returns the value to sort by. `wide` columns are hidden on narrow
 * screens; `number` columns are aligned to the right. The first column is the header of its row. `order` compares two
 * rows while no column is selected, and `page` is the number of rows of a page.
 */
export class Table {
  #columns;
  #body;
  #heads = [];
  #lines = new Map();
  #rows = [];
  #sorted = null;
  #descending = false;
  #page = 0;
  #size;
  #default;
  #pager;
  #range;
  #previous;
  #next;
  #now = () => 0;

  constructor(root, caption, columns, now, { order = bySeverity, page = PAGE } = {}) {
    this.#columns = columns;
    this.#default = order;
    this.#size = page;
    this.#now = now;
    this.#body = element("tbody");
    const head = element("tr");
    for (const column of columns) {
      const button = element("button", { type: "button", onclick: () => this.#sortBy(column) }, column.title);
      const cell = element("th", { scope: "col", class: classOf(column) }, column.sort ? button : column.title);
      this.#heads.push(cell);
      head.append(cell);
    }
    this.#range = element("span");
    this.#previous = element("button", { type: "button", onclick: () => this.#turn(-1) }, "Previous");
    this.#next = element("button", { type: "button", onclick: () => this.#turn(1) }, "Next");
    this.#pager = element("div", { class: "pager" }, this.#range, this.#previous, this.#next);
    root.append(
      element("div", { class: "scroll" }, element("table", { "aria-label": caption }, element("thead", {}, head), this.#body)),
      this.#pager,
    );
  }

  /** Shows these rows; a row whose object is the same as before is not touched, except for its times. */
  update(rows) {
    this.#rows = rows;
    this.#render();
  }

  #render() {
    const rows = [...this.#rows].sort(this.#order());
    const pages = Math.max(1, Math.ceil(rows.length / this.#size));
    this.#page = Math.min(this.#page, pages - 1);
    const first = this.#page * this.#size;
    const shown = rows.slice(first, first + this.#size);
    const lines = new Map();
    for (const row of shown) lines.set(row.id, this.#line(row));
    this.#lines = lines;
    arrange(this.#body, [...lines.values()].map((line) => line.node));
    this.#pager.hidden = pages === 1;
    setText(this.#range, `${first + 1}–${first + shown.length} of ${rows.length}`);
    this.#previous.disabled = this.#page === 0;
    this.#next.disabled = this.#page === pages - 1;
  }

  #line(row) {
    const line = this.#lines.get(row.id) || this.#newLine();
    const now = this.#now();
    this.#columns.forEach((column, index) => {
      const cell = line.cells[index];
      if (column.text) setText(cell, column.text(row, now));
      else if (line.row !== row) {
        const focused = cell.contains(document.activeElement);
        cell.replaceChildren();
        column.show(cell, row, now);
        if (focused) cell.querySelector("button, a")?.focus();
      }
    });
    line.row = row;
    return line;
  }

  #newLine() {
    const cells = this.#columns.map((column, index) =>
      element(index ? "td" : "th", { class: classOf(column), scope: index ? null : "row" }));
    return { node: element("tr", {}, ...cells), cells, row: null };
  }

  #order() {
    const column = this.#sorted;
    if (!column) return this.#default;
    const sign = this.#descending ? -1 : 1;
    return (a, b) => sign * compare(column.sort(a), column.sort(b)) || bySeverity(a, b);
  }

  #sortBy(column) {
    if (this.#sorted !== column) { this.#sorted = column; this.#descending = false; }
    else if (!this.#descending) this.#descending = true;
    else this.#sorted = null;
    this.#columns.forEach((one, index) => {
      if (one === this.#sorted) this.#heads[index].setAttribute("aria-sort", this.#descending ? "descending" : "ascending");
      else this.#heads[index].removeAttribute("aria-sort");
    });
    this.#page = 0;
    this.#render();
  }

  #turn(by) {
    this.#page += by;
    this.#render();
  }
}

const classOf = (column) => [column.number && "number", column.wide && "wide", column.short && "short"].filter(Boolean).join(" ") || null;
