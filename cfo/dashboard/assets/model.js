// What the page knows: the objects by kind, events, and history, updated by the messages of the stream.

const SEVERITY = { failed: 0, warning: 1, progressing: 2, waiting: 3, ok: 4 };
const MAX_EVENTS = 200;

/** Compares rows: problems first, then by namespace and name. */
export const bySeverity = (a, b) =>
  SEVERITY[a.level] - SEVERITY[b.level] || compare(a.namespace, b.namespace) || compare(a.name, b.name);

/** Compares two numbers or strings; numbers in strings are compared as numbers. */
export const compare = (a, b) => {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return collator.compare(String(a ?? ""), String(b ?? ""));
};

const collator = new Intl.Collator(undefined, { numeric: true });

export class Model {
  rows = new Map();
  kinds = [];
  scope = {};
  sections = []; // the sections of kinds: id, kind, type, title, ...
  events = [];
  orders = new Map(); // queue id -> samples [time, [ids of the waiting jobs in their order]]
  phases = new Map(); // object id -> changes [time, state, level]
  controllers = null;
  skew = 0;

  /** The current time of the server in milliseconds. */
  get now() { return Date.now() + this.skew; }

  /** Replaces everything, or applies changes, according to the `name` of the event. */
  apply(name, data) {
    if (name === "snapshot") {
      this.rows.clear();
      this.orders.clear();
      this.phases.clear();
      this.events = [];
      this.controllers = null;
      this.scope = data.scope;
      this.sections = data.sections;
    } else if (name !== "changes") return;
    if (data.time) this.skew = data.time - Date.now();
    if (data.kinds) this.kinds = data.kinds;
    for (const row of data.rows || []) this.rows.set(row.id, row);
    for (const id of data.removed || []) { this.rows.delete(id); this.phases.delete(id); this.orders.delete(id); }
    for (const [id, changes] of Object.entries(data.phases || {})) this.#extend(this.phases, id, changes, 64);
    for (const [id, samples] of Object.entries(data.orders || {})) this.#extend(this.orders, id, samples, 240);
    if (data.events) this.#addEvents(data.events);
    if (data.controllers) this.controllers = data.controllers;
    this.#nameKinds();
  }

  /** Gives each row and event the name of its kind: with the API group if objects of several groups have the kind. */
  #nameKinds() {
    const groups = new Map();
    for (const { kind, group } of this.rows.values()) groups.set(kind, (groups.get(kind) || new Set()).add(group));
    const named = (each) => {
      const title = groups.get(each.kind)?.size > 1 ? `${each.kind}.${each.group}` : each.kind;
      return each.title === title ? each : { ...each, title };
    };
    for (const [id, row] of this.rows) this.rows.set(id, named(row));
    this.events = this.events.map(named);
  }

  /** Returns why objects of a kind cannot be read; empty if they can. */
  problemOf(kind) { return this.kinds.find((each) => each.kind === kind)?.problem || ""; }

  /** Returns the rows of a kind. */
  ofKind(kind) {
    const found = [];
    for (const row of this.rows.values()) if (row.kind === kind) found.push(row);
    return found;
  }

  #extend(map, id, more, limit) {
    const known = map.get(id) || [];
    known.push(...more);
    map.set(id, known.slice(-limit));
  }

  #addEvents(events) {
    const ids = new Set(events.map((event) => event.id));
    this.events = [...events, ...this.events.filter((event) => !ids.has(event.id))]
      .sort((a, b) => b.time - a.time)
      .slice(0, MAX_EVENTS);
  }
}
