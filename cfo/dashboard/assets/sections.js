// The sections of the page. Each updates itself from the model; `context` has the model, the width and open(row).

import { ENDED, legend, orderChart, phaseBar, quotaBar, ticks } from "./charts.js";
import { age, date, duration } from "./duration.js";
import { arrange, element, levelled, link, setText } from "./element.js";
import { bySeverity, compare } from "./model.js";
import { Table } from "./table.js";

const DAY = 86_400_000;
const LEVELS = ["waiting", "progressing", "ok", "warning", "failed"];
const SHOWN_LANES = 40;
const SHOWN_EVENTS = 50;
const WINDOWS = [["15 minutes", 900_000], ["1 hour", 3_600_000], ["6 hours", 6 * 3_600_000], ["24 hours", DAY]];

// Which sections the user has folded or unfolded, by id; it is kept on this device.
const FOLDS = "cfo-folds";
const folds = (() => { try { return JSON.parse(localStorage.getItem(FOLDS)) || {}; } catch { return {}; } })();
const remember = (id, folded) => {
  folds[id] = folded;
  try { localStorage.setItem(FOLDS, JSON.stringify(folds)); } catch { /* then it is forgotten with the page */ }
};

const fact = (row, name) => (row.facts.find(([known]) => known === name) || ["", ""])[1];

/**
 * The part that all sections share: a heading that folds the section, the number of objects, and text if there are none.
 * A section that is `calm` is folded to one line until the user unfolds it.
 */
class Section {
  constructor(root, id, title, context) {
    this.context = context;
    this.id = id;
    this.title = title;
    this.count = element("span", { class: "count" });
    this.calm = false;
    this.fold = element("button", { type: "button", class: "fold", "aria-controls": `${id}-content`, onclick: () => { remember(id, !this.folded); this.showFold(); } }, title);
    this.head = element("div", { class: "section-head" }, element("h2", { id: `${id}-title` }, this.fold), this.count);
    this.none = element("p", { class: "empty" });
    this.body = element("div");
    this.content = element("div", { id: `${id}-content` }, this.none, this.body);
    this.node = element("section", { id, class: "card", "aria-labelledby": `${id}-title` }, this.head, this.content);
    root.append(this.node);
    this.showFold();
  }

  get folded() { return folds[this.id] ?? this.calm; }

  showFold() {
    this.fold.setAttribute("aria-expanded", String(!this.folded));
    this.node.classList.toggle("folded", this.folded);
    this.content.hidden = this.folded;
  }

  get model() { return this.context.model; }

  show(count, total, empty, kind = "") {
    const problem = this.model.problemOf(kind);
    setText(this.count, count === total ? String(total) : `${count} of ${total}`);
    if (problem && !total) setText(this.count, "");
    setText(this.none, total ? "Nothing matches the filter." : problem ? `Cannot be read: ${problem}.` : empty);
    this.none.hidden = count > 0;
    this.body.hidden = count === 0;
    this.showFold();
  }

  opener(row) {
    return element("button", { class: "open", type: "button", onclick: () => this.context.open(row) }, row.name);
  }

  /** The columns that identify an object; on narrow screens the namespace is below the name. */
  get identity() {
    return [
      { title: "Name", sort: (row) => row.name, show: (cell, row) => {
        cell.append(this.opener(row), element("span", { class: "sub narrow" }, row.namespace));
        if (row.title !== row.kind) cell.append(element("span", { class: "sub" }, row.group));
      } },
      { title: "Namespace", wide: true, short: true, sort: (row) => row.namespace, text: (row) => row.namespace },
    ];
  }
}

const stateColumn = { title: "State", sort: (row) => row.state, show: (cell, row) => {
  cell.append(levelled(row.state || "-", row.level));
  const why = row.problems.length ? row.problems[0][0] : fact(row, "cause");
  if (why) cell.append(element("span", { class: "sub clip" }, why));
} };
const readyColumn = (title) => ({ title, number: true, sort: (row) => row.ready, text: (row) => row.ready });
const ageColumn = { title: "Age", number: true, sort: (row) => -row.created, text: (row, now) => age(row.created, now) };
const factColumn = (title, name, more = {}) => ({ title, sort: (row) => fact(row, name), show: (cell, row) => cell.append(value(fact(row, name))), ...more });

const byPosition = (a, b) => (a.position || Infinity) - (b.position || Infinity) || bySeverity(a, b);
const value = (text) => (/^https?:\/\//.test(text) ? link(text) : element("span", { class: text.length < 24 ? "short" : null }, text));

/** The objects of one kind as a table. */
export class Objects extends Section {
  #kind;
  #table;
  #empty;
  #optional;

  constructor(root, context, { id, kind, title, empty, ready, facts, optional }) {
    super(root, id, title, context);
    this.#optional = optional;
    this.#kind = kind;
    this.#empty = empty;
    const columns = [
      ...this.identity, stateColumn, readyColumn(ready),
      ...facts.map(([title, name]) => factColumn(title, name, { wide: true })), ageColumn,
    ];
    this.#table = new Table(this.body, title, columns, () => this.model.now);
  }

  update() {
    const all = this.model.ofKind(this.#kind);
    const rows = all.filter(this.context.matches);
    this.#table.update(rows);
    this.node.hidden = this.#optional && all.length === 0;
    this.show(rows.length, all.length, this.#empty, this.#kind);
  }
}

/** The queues: quotas, and the jobs that wait, in their order and over time. */
export class Queues extends Section {
  #options;
  #list;
  #table;
  #tableTitle;

  constructor(root, context, options) {
    super(root, options.id, options.title, context);
    this.#options = options;
    this.#list = element("div", { class: "queues" });
    this.#tableTitle = element("p", { class: "figure-title" }, "Jobs");
    this.body.append(this.#list, element("br"), this.#tableTitle);
    const columns = [
      ...this.identity, stateColumn,
      { title: "Position", number: true, sort: (row) => row.position || Infinity, text: (row) => (row.position ? String(row.position) : "") },
      { title: "Queue", wide: true, sort: (row) => row.queue, text: (row) => row.queue || "" },
      ageColumn,
    ];
    this.#table = new Table(this.body, "Jobs", columns, () => this.model.now, { page: 10, order: byPosition });
  }

  update() {
    const { kind, jobs: jobKind, empty } = this.#options;
    const allQueues = this.model.ofKind(kind);
    const allJobs = this.model.ofKind(jobKind);
    const queues = allQueues.filter(this.context.matches).sort(bySeverity);
    const jobs = allJobs.filter(this.context.matches).map((row) => row);
    arrange(this.#list, queues.map((row) => this.#queue(row)));
    this.#list.hidden = queues.length === 0;
    this.#table.update(jobs);
    this.#tableTitle.nextElementSibling.hidden = this.#tableTitle.hidden = jobs.length === 0;
    this.show(queues.length + jobs.length, allQueues.length + allJobs.length, empty, kind);
    setText(this.count, `${allQueues.length} ${allQueues.length === 1 ? "queue" : "queues"}, ${allJobs.length} ${allJobs.length === 1 ? "job" : "jobs"}`);
  }

  #queue(row) {
    const quotas = (row.quotas || []).map(([title, used, limit, shownUsed, shownLimit]) => quotaBar(title, used, limit, shownUsed, shownLimit));
    const samples = this.model.orders.get(row.id) || [];
    const width = Math.max(280, Math.min(760, this.context.width > 900 ? (this.context.width - 64) * 0.62 : this.context.width - 56));
    const waits = samples.some(([, order]) => order.length);
    const figure = waits
      ? element("div", {}, element("p", { class: "figure-title" }, "Waiting order"), orderChart(samples, this.model.now, width))
      : element("p", { class: "empty" }, "No job waits in this queue.");
    return element("div", { class: "queue" },
      element("h3", {}, this.opener(row), levelled(row.state || row.level, row.level),
        element("span", { class: "quiet" }, row.namespace)),
      element("div", { class: "queue-parts" }, element("div", { class: "quotas" }, ...quotas), figure));
  }
}

/** The objects of one kind with their phases over time. */
export class Timeline extends Section {
  #options;
  #lanes = element("div");
  #axis = element("div", { class: "axis" });
  #legend = element("div");
  #more = element("p", { class: "quiet" });
  #window = element("select", { id: "window" });
  #known = new Map();

  constructor(root, context, options) {
    super(root, options.id, options.title, context);
    this.#options = options;
    for (const [title, length] of WINDOWS) this.#window.append(element("option", { value: length }, title));
    this.#window.value = String(WINDOWS[1][1]);
    this.#window.addEventListener("change", () => { this.#known.clear(); this.update(); });
    this.head.append(element("label", { class: "tools" }, "Last", this.#window));
    this.body.append(this.#legend, this.#lanes, this.#axis, this.#more);
  }

  update() {
    const all = this.model.ofKind(this.#options.kind);
    const rows = all.filter(this.context.matches).sort((a, b) => b.created - a.created || compare(a.name, b.name));
    const to = this.model.now;
    const from = to - Number(this.#window.value);
    const known = new Map();
    for (const row of rows.slice(0, SHOWN_LANES)) known.set(row.id, this.#lane(row, from, to));
    this.#known = known;
    this.#updateLegend([...known.keys()].flatMap((id) => this.model.phases.get(id) || []));
    arrange(this.#lanes, [...known.values()].map((lane) => lane.node));
    this.#axis.replaceChildren(ticks(from, to, this.context.width < 640 ? 3 : 5));
    const hidden = rows.length - known.size;
    setText(this.#more, hidden > 0 ? `${hidden} older ${this.title} are not shown; filter to find them.` : "");
    this.show(rows.length, all.length, this.#options.empty, this.#options.kind);
  }

  /** Names each phase that is shown beside its colour. */
  #updateLegend(changes) {
    const named = (state) => (ENDED.has(state) ? `${state} (end)` : state);
    const entries = LEVELS.map((level) => [[...new Set(changes.filter((change) => change[2] === level).map(([, state]) => named(state)))].sort().join(", "), level]);
    const shown = entries.filter(([text]) => text);
    if (JSON.stringify(shown) === this.#legend.dataset.shown) return;
    this.#legend.dataset.shown = JSON.stringify(shown);
    this.#legend.replaceChildren(legend(shown));
  }

  #lane(row, from, to) {
    const changes = this.model.phases.get(row.id) || [];
    const lane = this.#known.get(row.id);
    const bar = phaseBar(changes, from, to);
    if (lane && lane.row === row) {
      lane.node.lastElementChild.replaceWith(bar);
      return lane;
    }
    const name = element("div", {}, this.opener(row), element("span", { class: "sub" }, row.namespace));
    return { row, node: element("div", { class: "lane" }, name, levelled(row.state || "New", row.level), bar) };
  }
}

/** The certificates by expiry. */
export class Certificates extends Section {
  #table;

  constructor(root, context) {
    super(root, "certificates", "Certificates", context);
    const left = (row) => row.expires - this.model.now;
    const columns = [
      ...this.identity,
      { title: "Certificate", wide: true, show: (cell, row) => cell.append(row.certificate || "") },
      { title: "Expires in", sort: (row) => row.expires, show: (cell, row) => {
        const rest = left(row);
        cell.append(levelled(rest > 0 ? duration(rest / 1000) : "expired", rest <= 0 ? "failed" : rest < 30 * DAY ? "warning" : "ok"));
      } },
      { title: "Expires on", number: true, wide: true, sort: (row) => row.expires, text: (row) => date(row.expires) },
    ];
    const order = (a, b) => a.expires - b.expires || bySeverity(a, b);
    this.#table = new Table(this.body, "Certificates", columns, () => this.model.now, { page: 10, order });
  }

  update() {
    const all = [...this.model.rows.values()].filter((row) => row.expires);
    const rows = all.filter(this.context.matches);
    this.#table.update(rows);
    const first = Math.min(...all.map((row) => row.expires)) - this.model.now;
    this.calm = all.length === 0 || first >= 30 * DAY;
    this.show(rows.length, all.length, "No certificate is known.");
    if (all.length && this.calm && this.folded) setText(this.count, `${all.length}, the first expires in ${duration(first / 1000)}`);
  }
}

/** The newest Events. */
export class Events extends Section {
  #list = element("ul", { class: "events" });
  #known = new Map();

  constructor(root, context) {
    super(root, "events", "Events", context);
    this.body.append(this.#list);
  }

  update() {
    const events = this.model.events.filter((event) => this.context.matches({ ...event, state: event.reason, problems: [] }));
    const known = new Map();
    for (const event of events.slice(0, SHOWN_EVENTS)) {
      const line = this.#known.get(event.id);
      known.set(event.id, line && line.event === event ? line : newEvent(event));
    }
    this.#known = known;
    for (const { node, event } of known.values()) setText(node.firstElementChild, age(event.time, this.model.now));
    arrange(this.#list, [...known.values()].map(({ node }) => node));
    this.show(events.length, this.model.events.length, "No Warning Events.");
  }
}

const newEvent = (event) => {
  const node = element("li", {},
    element("time", { datetime: new Date(event.time).toISOString() }),
    element("div", {}, event.name, element("span", { class: "sub" }, `${event.title} · ${event.namespace}`)),
    element("div", {}, element("span", { class: "reason" }, levelled(event.reason, event.type === "Warning" ? "warning" : "waiting")),
      event.count > 1 ? element("span", { class: "quiet" }, ` × ${event.count}`) : null,
      element("span", { class: "sub" }, event.note)));
  return { node, event };
};

/** The reconciles by controller; only the operator knows them. */
export class Controllers extends Section {
  #table;

  constructor(root, context) {
    super(root, "controllers", "Controllers", context);
    const number = (title, of, more = {}) => ({ title, number: true, sort: of, text: (row) => of(row).toLocaleString(), ...more });
    const columns = [
      { title: "Controller", sort: (row) => row.name, text: (row) => row.name },
      number("Reconciles", (row) => row.total),
      number("Errors", (row) => row.errors),
      number("Queued", (row) => row.depth),
      number("Running", (row) => row.active, { wide: true }),
      { title: "Mean time", wide: true, number: true, sort: (row) => row.mean, text: (row) => (row.total ? `${(row.mean * 1000).toFixed(1)} ms` : "") },
    ];
    this.#table = new Table(this.body, "Controllers", columns, () => this.model.now);
  }

  update() {
    this.node.hidden = !this.model.controllers;
    const rows = (this.model.controllers || []).map((row) => ({ ...row, id: row.name, namespace: "", level: "ok" }));
    this.#table.update(rows);
    const sum = (of) => rows.reduce((total, row) => total + of(row), 0);
    const errors = sum((row) => row.errors);
    this.calm = errors * 20 <= sum((row) => row.total); // conflicts of a few writes are usual
    this.show(rows.length, rows.length, "No controller is running in this replica.");
    if (this.folded) setText(this.count, `${rows.length}, ${errors} errors in ${sum((row) => row.total).toLocaleString()} reconciles, ${sum((row) => row.depth)} queued`);
  }
}
