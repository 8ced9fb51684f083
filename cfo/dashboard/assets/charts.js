// Charts as SVG. Each has a text alternative; what it shows is in a table or list of the page as well.

import { age, clock, duration } from "./duration.js";
import { element, svg } from "./element.js";

const HUES = 8;
const MAX_JOBS = 10;
/** The phases at which the bar of an object ends: nothing of it runs any more. */
export const ENDED = new Set(["Succeeded", "Failed"]);

/** Returns a bar that shows how much of a quota is used, with its numbers. */
export const quotaBar = (title, used, limit, shownUsed, shownLimit) => {
  const share = limit > 0 ? Math.min(1, used / limit) : used > 0 ? 1 : 0;
  const level = used > limit ? "failed" : share >= 0.9 ? "warning" : "progressing";
  const text = `${shownUsed} of ${shownLimit}`;
  return element("div", { class: "quota" },
    element("span", {}, title), element("span", {}, text),
    svg("svg", { role: "img", "aria-label": `${title}: ${text} used`, preserveAspectRatio: "none" },
      svg("rect", { class: "track", width: "100%", height: "100%" }),
      svg("rect", { class: `fill-${level}`, width: `${(share * 100).toFixed(2)}%`, height: "100%" })));
};

/**
 * Returns a chart of the order in which jobs wait: one line for each job, the next one to be admitted on top.
 *
 * `samples` are [time, [names of the jobs in their order]]; each is valid until the next, the last until `now`.
 */
export const orderChart = (samples, now, width) => {
  const names = [...new Set(samples.flatMap(([, order]) => order.slice(0, MAX_JOBS)))];
  const depth = Math.min(MAX_JOBS, Math.max(1, ...samples.map(([, order]) => order.length)));
  const label = Math.min(190, Math.max(90, width * 0.3));
  const step = 20;
  const left = 22;
  const right = width - label;
  const height = depth * step + 22;
  const start = samples.length ? samples[0][0] : now;
  const span = Math.max(60_000, now - start);
  const x = (time) => right - ((now - time) / span) * (right - left);
  const y = (rank) => rank * step + step / 2;
  const chart = svg("svg", {
    class: "chart", viewBox: `0 0 ${width} ${height}`, height, role: "img",
    "aria-label": `Waiting order during the last ${duration(span / 1000)}; now: ${currentOrder(samples)}`,
  });
  for (let rank = 0; rank < depth; rank += 1) {
    chart.append(
      svg("line", { class: "grid", x1: left, x2: right, y1: y(rank), y2: y(rank) }),
      svg("text", { x: 0, y: y(rank) + 4 }, String(rank + 1)));
  }
  chart.append(
    svg("text", { x: left, y: height - 4 }, `${duration(span / 1000)} ago`),
    svg("text", { x: right, y: height - 4, "text-anchor": "end" }, "now"));
  names.forEach((name, index) => chart.append(...jobLine(name, index % HUES, samples, now, { x, y, right, label })));
  return chart;
};

const jobLine = (name, hue, samples, now, { x, y, right, label }) => {
  const parts = [];
  let path = "";
  let last = -1;
  samples.forEach(([time, order], index) => {
    const rank = order.indexOf(name);
    const until = index + 1 < samples.length ? samples[index + 1][0] : now;
    if (rank < 0 || rank >= MAX_JOBS) { last = -1; return; }
    const bend = Math.min(x(until), x(time) + 10);
    path += last < 0 ? `M${x(time)} ${y(rank)}` : last === rank ? "" : `L${x(time)} ${y(last)}L${bend} ${y(rank)}`;
    path += `L${x(until)} ${y(rank)}`;
    last = rank;
  });
  if (path) parts.push(svg("path", { class: `run hue-${hue}`, d: path }));
  if (last >= 0) {
    const shown = shorten(name, Math.floor((label - 16) / 6.6));
    parts.push(
      svg("circle", { class: `end hue-${hue}`, cx: right, cy: y(last), r: 4 }),
      svg("text", { class: "name", x: right + 10, y: y(last) + 4 }, svg("title", {}, name), shown));
  }
  return parts;
};

const currentOrder = (samples) => {
  const order = samples.length ? samples[samples.length - 1][1] : [];
  return order.length ? order.slice(0, MAX_JOBS).join(", ") : "no job waits";
};

const shorten = (text, length) => (text.length <= length ? text : `${text.slice(0, Math.max(1, length - 1))}…`);

/** Returns the bar of one object in a timeline from `from` to `to`; `changes` are [time, state, level]. */
export const phaseBar = (changes, from, to) => {
  const percent = (time) => Math.max(0, Math.min(100, ((time - from) / (to - from)) * 100));
  const bar = svg("svg", { role: "img", "aria-label": phasesText(changes, to), preserveAspectRatio: "none" },
    svg("rect", { class: "track", y: "40%", width: "100%", height: "20%" }));
  changes.forEach(([time, state, level], index) => {
    const end = index + 1 < changes.length ? changes[index + 1][0] : ENDED.has(state) ? time : to;
    const start = percent(time);
    if (end < from || start >= 100) return;
    const width = Math.max(percent(end) - start, ENDED.has(state) ? 0.8 : 0.3);
    bar.append(svg("rect", {
      class: `fill-${level}`, x: `${Math.min(start, 100 - width).toFixed(2)}%`, width: `${width.toFixed(2)}%`,
      height: "100%",
    }, svg("title", {}, `${state} since ${clock(time)}`)));
  });
  return bar;
};

const phasesText = (changes, now) =>
  changes.map(([time, state]) => `${state} ${age(time, now)} ago`).join(", ") || "no phase yet";

/** Returns the ticks of a time axis. */
export const ticks = (from, to, count) => {
  const labels = [];
  for (let index = 0; index < count; index += 1) {
    labels.push(element("span", {}, index === count - 1 ? "now" : clock(from + ((to - from) * index) / (count - 1))));
  }
  return element("div", { class: "ticks", "aria-hidden": "true" }, ...labels);
};

/** Returns a legend: a square of the level's colour for each [text, level]. */
export const legend = (entries) => element("p", { class: "legend", "aria-hidden": "true" },
  ...entries.map(([text, level]) => element("span", {},
    svg("svg", {}, svg("rect", { class: `fill-${level}`, width: 10, height: 10, rx: 2 })), text)));
