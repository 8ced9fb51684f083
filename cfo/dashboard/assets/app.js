// The page: connects the stream, the model and the sections.

import { age } from "./duration.js";
import { arrange, element, levelled, link, setText } from "./element.js";
import { Model, bySeverity } from "./model.js";
import { Certificates, Controllers, Events, Objects, Queues, Timeline } from "./sections.js";
import { follow } from "./stream.js";

const FRAME = 250; // milliseconds: the shortest time between two updates of the page
const CLOCK = 10_000; // milliseconds: how often ages are updated
const SHOWN_PROBLEMS = 6;
const MAX_PROBLEMS = 200;
const TOKEN = "cfo-token";

const byId = (id) => document.getElementById(id);
const model = new Model();
const filter = { text: "", namespace: "" };

const context = {
  model,
  width: 1280,
  matches: (row) => {
    if (filter.namespace && row.namespace !== filter.namespace) return false;
    return !filter.text || `${row.namespace}/${row.name} ${row.state}`.toLowerCase().includes(filter.text);
  },
  open: (row) => openDetail(row.id),
};

// Sections, and tiles, problems and messages above them.

const TYPES = { table: Objects, timeline: Timeline, queues: Queues };
let sections = [];
let tiles = [];
let layout = "";

const newTile = ({ id, tile: title, kind, jobs }) => {
  const number = element("b");
  const state = element("span", { class: "state" });
  return { kind, jobs, number, state, node: element("a", { class: "tile", href: `#${id}` }, element("span", { class: "title" }, title), number, state) };
};

const updateLayout = () => {
  const wanted = JSON.stringify(model.sections);
  if (wanted === layout) return;
  layout = wanted;
  const root = byId("sections");
  root.replaceChildren();
  sections = model.sections.map((options) => new TYPES[options.type](root, context, options));
  sections.push(new Certificates(root, context), new Events(root, context), new Controllers(root, context));
  tiles = model.sections.filter((options) => options.tile).map(newTile);
  byId("tiles").replaceChildren(...tiles.map((tile) => tile.node));
};

// The levels that a tile counts, the worst first.
const COUNTED = [["failed", "failed"], ["warning", "with warnings"], ["progressing", "in progress"], ["waiting", "waiting"]];

const updateTiles = () => {
  for (const tile of tiles) {
    const { kind, jobs } = tile;
    const rows = [...model.ofKind(kind), ...(jobs ? model.ofKind(jobs) : [])];
    const problem = rows.length ? "" : model.problemOf(kind);
    setText(tile.number, problem ? "–" : String(rows.filter((row) => row.kind === (jobs || kind)).length));
    const worst = COUNTED.find(([level]) => rows.some((row) => row.level === level)) || ["ok", "all well"];
    const many = rows.filter((row) => row.level === worst[0] && worst[0] !== "ok").length;
    setText(tile.state, problem ? "cannot be read" : rows.length ? `${many || ""} ${worst[1]}`.trim() : "");
    tile.state.dataset.level = rows.length ? worst[0] : "waiting";
  }
};

let shownProblems = "";
let allProblems = false;
const updateProblems = () => {
  const rows = [...model.rows.values()].filter((row) => row.problems.length && ["failed", "warning"].includes(row.level));
  rows.sort(bySeverity);
  const shown = rows.slice(0, allProblems ? MAX_PROBLEMS : SHOWN_PROBLEMS);
  const identity = JSON.stringify([rows.length, allProblems, shown.map((row) => [row.id, row.title, row.level, row.problems])]);
  byId("attention").hidden = rows.length === 0;
  if (identity === shownProblems) return;
  shownProblems = identity;
  const lines = shown.map((row) => {
    const name = element("button", { class: "open", type: "button", onclick: () => openDetail(row.id) }, row.name);
    const [message, remedy] = row.problems[0];
    return element("li", {},
      element("div", {}, name, element("span", { class: "sub" }, `${row.title} · ${row.namespace}`)),
      element("div", {}, element("span", { class: "level", "data-level": row.level }, element("span", { class: "hidden-text" }, row.level)), message,
        remedy ? element("span", { class: "sub" }, remedy) : null,
        row.problems.length > 1 ? element("span", { class: "sub" }, `and ${row.problems.length - 1} more`) : null));
  });
  byId("problems").replaceChildren(...lines);
  const more = byId("all-problems");
  more.hidden = rows.length <= SHOWN_PROBLEMS;
  setText(more, allProblems ? "Show fewer" : `Show all ${Math.min(rows.length, MAX_PROBLEMS)}`);
  setText(byId("problem-count"), String(rows.length));
};

byId("all-problems").addEventListener("click", () => { allProblems = !allProblems; updateProblems(); });

const updateKinds = () => {
  const missing = model.kinds.filter((kind) => kind.level === "warning");
  byId("kinds").hidden = missing.length === 0;
  const text = missing.map((kind) => `${kind.title}: ${kind.problem}`);
  const shown = [...byId("kinds").querySelectorAll("li")].map((line) => line.textContent);
  if (text.join("\n") === shown.join("\n")) return;
  byId("kinds").replaceChildren(element("div", { class: "notice", "data-level": "warning", role: "status" },
    element("p", {}, "This page is incomplete:"), element("ul", {}, ...text.map((line) => element("li", {}, line)))));
};

const updateNamespaces = () => {
  const select = byId("namespace");
  const names = [...new Set([...model.rows.values()].map((row) => row.namespace).filter(Boolean))].sort();
  const known = [...select.options].slice(1).map((option) => option.value);
  if (names.join() === known.join()) return;
  select.replaceChildren(select.options[0], ...names.map((name) => element("option", { value: name }, name)));
  if (!names.includes(filter.namespace)) filter.namespace = "";
  select.value = filter.namespace;
};

const updateScope = () => {
  const { server = "", namespace = "", version = "" } = model.scope;
  setText(byId("scope"), [server, namespace ? `namespace ${namespace}` : "all namespaces"].filter(Boolean).join(" · "));
  const hidden = model.kinds.filter((kind) => kind.level !== "warning").map((kind) => kind.title);
  const footer = [version && `cfo ${version}`, "read-only", hidden.length && `not readable, so some details are missing: ${hidden.join(", ")}`];
  setText(byId("footer"), footer.filter(Boolean).join(" · "));
};

// Details of one object, which are read when they are shown.

let detail = { id: "", row: null };
const openDetail = (id) => {
  detail = { id, row: null };
  byId("detail").showModal();
  updateDetail();
};

const updateDetail = async () => {
  if (!byId("detail").open) return;
  const row = model.rows.get(detail.id);
  if (!row) { setText(byId("detail-body"), "The object was deleted."); return; }
  if (row === detail.row) return;
  detail.row = row;
  setText(byId("detail-title"), `${row.title} ${row.namespace ? `${row.namespace}/` : ""}${row.name}`);
  let more = {};
  try {
    const response = await fetch(`object?id=${encodeURIComponent(row.id)}`, { headers: authorization(), cache: "no-store" });
    if (response.ok) more = await response.json();
  } catch { /* what the row contains is shown */ }
  if (detail.row !== row) return;
  const facts = [["State", levelled(row.state || "-", row.level)], ["Ready", row.ready], ["Age", age(row.created, model.now)],
    ...row.facts.map(([name, text]) => [name, /^https?:\/\//.test(text) ? link(text) : text])].filter(([, shown]) => shown);
  byId("detail-body").replaceChildren(...[
    ...(row.problems.length ? [element("h3", {}, "Problems"), element("ul", { class: "problems" }, ...row.problems.map(([message, remedy]) =>
      element("li", {}, element("div", {}, message), element("div", { class: "remedy" }, remedy))))] : []),
    element("dl", {}, ...facts.flatMap(([name, shown]) => [element("dt", {}, name), element("dd", {}, shown)])),
    ...Object.entries(more).flatMap(([title, pairs]) => list(title, pairs)),
  ]);
};

const list = (title, pairs) => (pairs.length
  ? [element("h3", {}, title), element("dl", {}, ...pairs.flatMap(([name, text]) => [element("dt", {}, name), element("dd", {}, title === "Commands" ? element("code", {}, text) : text)]))]
  : []);

byId("detail-close").addEventListener("click", () => byId("detail").close());
byId("detail").addEventListener("click", (event) => { if (event.target === byId("detail")) byId("detail").close(); });

// Updates: at most one in FRAME milliseconds, and none while the page is hidden.

let scheduled = false;
let lastRender = 0;
const render = () => {
  scheduled = false;
  lastRender = performance.now();
  context.width = document.documentElement.clientWidth > 1312 ? 1280 : document.documentElement.clientWidth;
  byId("content").hidden = false;
  for (const update of [updateLayout, updateScope, updateKinds, updateTiles, updateProblems, updateNamespaces, updateDetail]) update();
  for (const section of sections) section.update();
};
const schedule = () => {
  if (scheduled || document.hidden || !model.scope.ready) return;
  scheduled = true;
  setTimeout(() => requestAnimationFrame(render), Math.max(0, FRAME - (performance.now() - lastRender)));
};
setInterval(schedule, CLOCK);
document.addEventListener("visibilitychange", schedule);
addEventListener("resize", schedule);
byId("filters").addEventListener("submit", (event) => event.preventDefault());
byId("filter").addEventListener("input", (event) => { filter.text = event.target.value.trim().toLowerCase(); schedule(); });
byId("namespace").addEventListener("change", (event) => { filter.namespace = event.target.value; schedule(); });

// The connection. The token is in the fragment of the address, which browsers do not send, and is removed from it.

const storage = (action) => { try { return action(sessionStorage); } catch { return null; } };
let token = storage((store) => store.getItem(TOKEN)) || "";
const takeToken = () => {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given === null) return false;
  token = given;
  storage((store) => store.setItem(TOKEN, token));
  history.replaceState(null, "", location.pathname);
  return true;
};
takeToken();
const authorization = () => (token ? { Authorization: `Bearer ${token}` } : {});

const showState = (state, details) => {
  const lost = state !== "live";
  const connection = byId("connection");
  connection.className = "level";
  setText(connection, state === "live" ? "Live" : state === "lost" ? "Connection lost" : "Signed out");
  connection.dataset.level = lost ? "failed" : "ok";
  byId("content").classList.toggle("stale", lost);
  const notice = byId("notice");
  notice.hidden = state !== "lost";
  notice.dataset.level = "failed";
  setText(notice, state === "lost" ? `The connection to the server is lost${model.scope.ready ? "; the page shows the last known state" : ""}. Next attempt in ${details} s.` : "");
  byId("sign-in").hidden = state !== "refused";
  if (state === "refused") setText(byId("sign-in-reason"), details || "A token is required.");
};

const resume = follow("stream", {
  token: () => token,
  onEvent: (name, data) => { model.apply(name, data); if (name === "snapshot") model.scope.ready = true; schedule(); },
  onState: showState,
});

byId("sign-in").addEventListener("submit", (event) => {
  event.preventDefault();
  token = byId("token").value.trim();
  byId("token").value = "";
  storage((store) => store.setItem(TOKEN, token));
  resume();
});
addEventListener("hashchange", () => { if (takeToken()) resume(); });
