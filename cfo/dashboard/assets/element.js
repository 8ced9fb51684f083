// Creates and updates elements. Strings from the cluster are only ever inserted as text, never parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

const fill = (node, attributes, children) => {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
};

/** Returns an HTML element; `children` are nodes or strings, and attributes that start with "on" are listeners. */
export const element = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);

/** Returns an SVG element. */
export const svg = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

/** Sets the text of `node`, if it differs: an unchanged node costs no layout, and keeps the selection. */
export const setText = (node, text) => { if (node.textContent !== text) node.textContent = text; };

/** Makes `nodes` the children of `parent`, in this order; nodes that are in their place are not touched. */
export const arrange = (parent, nodes) => {
  const wanted = new Set(nodes);
  for (const child of [...parent.children]) if (!wanted.has(child)) child.remove();
  let next = parent.firstElementChild;
  for (const node of nodes) {
    if (node === next) next = next.nextElementSibling;
    else parent.insertBefore(node, next);
  }
};

/** Returns a link for an http or https URL, and plain text for anything else. */
export const link = (url) => {
  let parsed = null;
  try { parsed = new URL(url); } catch { /* not a URL */ }
  if (!parsed || !["http:", "https:"].includes(parsed.protocol)) return document.createTextNode(String(url));
  return element("a", { href: parsed.href, class: "clip", rel: "noopener noreferrer", target: "_blank" }, parsed.host + (parsed.pathname === "/" ? "" : parsed.pathname));
};

/** Returns the state of an object with its level, which is shown by a symbol as well as by colour. */
export const levelled = (text, level) => element("span", { class: "level", "data-level": level }, text);
