// The grid: a picture of each sample, with its key and the chosen fields.

import { face, small } from "./cells.js";
import { chooser } from "./columns.js";
import { el } from "./dom.js";
import { marked } from "./marks.js";
import { samples } from "./samples.js";
import { go, opens, state } from "./state.js";

const SIZES = { small: 120, medium: 180, large: 320 }; // pixels that a tile is wide, or more
const FACES = ["image", "items", "list", "video", "array", "audio", "text", "json"]; // what fills a tile, the first that there is
const MEDIA = ["image", "video", "audio"]; // one takes the place of another that a sample lacks, such as png that of jpg
const GAP = 8, KEY = 24, FIELD = 18, MOST_FIELDS = 6;

/** Show the grid; return what takes it away. */
export function grid(main, given) {
  const { dataset, columns } = given;
  const { picture, others, fields } = parts(dataset, columns);
  const isThere = (row, name) => row.cells?.[name] && row.cells[name].kind !== "null";
  const size = state().query.get("size") in SIZES ? state().query.get("size") : "medium";
  const names = [...new Set([picture, ...fields].filter(Boolean))];
  const body = el("div.grid"), left = el("span.rest");
  main.classList.add("filled");
  main.replaceChildren(el("div.tools", {}, chooser(dataset, columns, names), sizes(size), left), body);
  let across = 1, tileHeight = 0;
  const { lines, total, row: rowOf, counted, close } = samples(body, left, given, names, { height: KEY, line, came, across: () => across });
  const seen = new ResizeObserver(fit);
  seen.observe(body);

  function line(at) {
    const made = el("div.tiles");
    made.style.setProperty("--across", across);
    for (let number = at * across; number < Math.min((at + 1) * across, total()); number += 1) made.append(tile(number));
    return made;
  }

  function tile(number) {
    const row = rowOf(number);
    if (!row) return el("a.tile.waiting", opens(number), el("div.face"));
    if (row.error) return el("a.tile.error", { ...opens(number), title: row.error }, row.error);
    const shown = isThere(row, picture) ? picture : others.find((name) => isThere(row, name)) ?? picture;
    const made = el("a.tile", { ...opens(number), "data-key": row.key },
      el("div.face", {}, picture ? face(row.cells[shown], number, shown, tileHeight) : facts(row, number)),
      el("div.key", { dir: "auto", title: row.key }, el("b", {}, row.key ?? String(number))),
      picture ? fields.map((name) => el("div.field", {}, columns.length ? el("small", {}, `${name} `) : null, small(row.cells[name], number, name))) : null);
    made.firstChild.style.height = `${tileHeight}px`;
    return marked(made, row);
  }

  function came(chunks) { // where a sample lacks the picture, another column may have one
    if (others.length && !chunks.columns.includes(others[0]) && chunks.some((row) => !row.error && !isThere(row, picture))) chunks.add(others);
  }

  const facts = (row, number) => el("dl.facts", {}, fields.map((name) => [el("dt", {}, name), el("dd", {}, small(row.cells[name], number, name))]).flat());

  function fit() {
    const width = body.clientWidth - GAP, least = Math.min(SIZES[size], width / 2 - GAP);
    const next = Math.max(1, Math.floor(width / (least + GAP))), first = Math.floor(lines.at / lines.height) * across;
    const wide = width / next - GAP, high = Math.round(wide * (picture ? 0.85 : 0.7));
    if (next !== across || high !== tileHeight) {
      const isMoved = next !== across && lines.count > 0;
      across = next;
      tileHeight = high;
      lines.count = Math.ceil(total() / across);
      lines.setHeight(high + KEY + FIELD * (picture ? fields.length : 0) + GAP);
      lines.redraw();
      if (isMoved) lines.moveTo(Math.floor(first / across) * lines.height);
    }
    counted();
  }

  fit();
  return { counted, close() { close(); seen.disconnect(); } };
}

/** Which column fills a tile, if any, which others do where a sample lacks it, and which are shown below it, or in its place. */
function parts(dataset, columns) {
  const own = dataset.columns.filter((column) => column.name !== dataset.key);
  const kind = FACES.find((each) => own.some((column) => column.kind === each)), filling = own.filter((column) => column.kind === kind);
  const picture = (filling.find((column) => columns.includes(column.name)) ?? filling[0])?.name ?? null;
  const others = columns.length || !MEDIA.includes(kind) ? [] : own.filter((column) => MEDIA.includes(column.kind) && column.name !== picture).map((column) => column.name);
  if (columns.length) return { picture, others, fields: columns.filter((name) => name !== picture) };
  if (!picture) return { picture, others, fields: own.slice(0, MOST_FIELDS).map((column) => column.name) };
  const caption = own.find((column) => column.name !== picture && ["text", "value"].includes(column.kind));
  return { picture, others, fields: caption ? [caption.name] : [] };
}

/** The choice of the size of tiles. */
const sizes = (chosen) => el("span.sizes", { role: "group", "aria-label": "Size of tiles" }, Object.keys(SIZES).map((name) =>
  el("button", { "aria-pressed": String(name === chosen), onclick: () => go({ size: name === "medium" ? null : name }, { replace: true }) }, name)));
