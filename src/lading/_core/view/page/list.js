// The list: a line a sample, a column a field.

import { small } from "./cells.js";
import { chooser } from "./columns.js";
import { el, number as shown } from "./dom.js";
import { marked } from "./marks.js";
import { samples } from "./samples.js";
import { go, opens, sorted } from "./state.js";

const WIDTHS = { key: 150, text: 240, json: 240, items: 260, list: 240, image: 110, value: 120 }, USUAL = 140, NUMBER = 76, LEAST = 48;
const PICTURED = ["image", "items", "list"], HIGH = 56, LOW = 32, MOST = 8;
const SORTED = ["key", "text", "value", "field"];
const widths = new Map(); // of columns that were dragged

/** Show the list; return what takes it away. */
export function list(main, given) {
  const { dataset, columns } = given;
  const of = new Map(dataset.columns.map((column) => [column.name, column]));
  const names = columns.length ? columns.filter((name) => name !== dataset.key)
    : [...of.keys()].filter((name) => name !== dataset.key).slice(0, MOST);
  const body = el("div.list"), left = el("span.rest"), all = [dataset.key, ...names].filter(Boolean);
  const kind = (name) => name === dataset.key ? "key" : of.get(name)?.kind ?? "field";
  const high = names.some((name) => PICTURED.includes(kind(name))) ? HIGH : LOW;
  main.classList.add("filled");
  main.replaceChildren(el("div.tools", {}, chooser(dataset, columns, names), left), body);
  const head = el("div.cells.head", { role: "row" }, el("span.number", {}, "#"), all.map(title));
  const { row: rowOf, counted, close } = samples(body, left, given, names, { height: high, line, head });

  function line(number) {
    const row = rowOf(number);
    if (!row) return el("a.cells.waiting", opens(number), el("span.number", {}, shown(number)));
    if (row.error) return el("a.cells.error", { ...opens(number), title: row.error }, row.error);
    return marked(el("a.cells", { ...opens(number), "data-key": row.key },
      el("span.number", {}, shown(number)), dataset.key ? el("span.key", { dir: "auto", title: row.key }, row.key) : null,
      names.map((name) => el("span", { "data-column": name }, small(row.cells[name], number, name)))), row);
  }

  function title(name) {
    const { by, way } = sorted(), is = by === name ? way : null;
    const next = is === null ? name : is === "asc" ? `${name}:desc` : null;
    const type = name === dataset.key ? "key" : of.get(name)?.type ?? "field";
    const label = [el("span.name", { dir: "auto" }, name), el("small", {}, type)];
    const handle = el("span.handle", { role: "separator", tabindex: 0, "aria-label": `Width of ${name}`, "aria-orientation": "vertical",
      onpointerdown: (event) => drag(event, name), onkeydown: (event) => step(event, name) });
    return el("span", { role: "columnheader", "aria-sort": is && (is === "asc" ? "ascending" : "descending"), "data-column": name },
      SORTED.includes(kind(name))
        ? el("button", { title: "Sort by this column", onclick: () => go({ sort: next, shuffle: null }) }, label) : el("span.label", {}, label),
      handle);
  }

  function fit() {
    const wide = (name) => widths.get(name) ?? WIDTHS[kind(name)] ?? USUAL;
    const parts = all.map((name) => widths.has(name) ? `${wide(name)}px` : `minmax(${wide(name)}px, ${wide(name)}fr)`);
    body.style.setProperty("--template", `${NUMBER}px ${parts.join(" ")}`);
    body.style.setProperty("--width", `${NUMBER + all.reduce((sum, name) => sum + wide(name), 0)}px`);
  }

  function drag(event, name) {
    event.preventDefault();
    const holder = event.target, from = event.clientX, before = holder.parentElement.offsetWidth;
    holder.setPointerCapture(event.pointerId);
    holder.onpointermove = (moved) => { widths.set(name, Math.max(LEAST, before + moved.clientX - from)); fit(); };
    holder.onpointerup = () => { holder.onpointermove = null; };
  }

  function step(event, name) {
    const by = { ArrowLeft: -16, ArrowRight: 16 }[event.key];
    if (!by) return;
    event.preventDefault();
    widths.set(name, Math.max(LEAST, event.target.parentElement.offsetWidth + by));
    fit();
  }

  fit();
  counted();
  return { counted, close };
}
