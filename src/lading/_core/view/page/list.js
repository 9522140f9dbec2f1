// The list: a line a sample, a column a field.

import { Chunks } from "./chunks.js";
import { small } from "./cells.js";
import { el, number as shown } from "./dom.js";
import { go } from "./state.js";
import { Virtual } from "./virtual.js";

/** Show the list; return what takes it away. */
export function list(main, { dataset, count, columns }) {
  const names = columns.length ? columns : dataset.columns.map((column) => column.name).filter((name) => name !== dataset.key).slice(0, 8);
  const types = Object.fromEntries(dataset.columns.map((column) => [column.name, column.type]));
  const head = el("div.head.cells", {}, el("span.number", {}, "#"), el("span", {}, dataset.key),
    names.map((name) => el("span", {}, name, el("small", {}, ` ${types[name] ?? ""}`))));
  const body = el("div.body");
  const table = el("div.list", {}, head, body);
  table.style.setProperty("--columns", names.length + 1);
  main.replaceChildren(table);
  const chunks = new Chunks(names, () => { fit(); lines.redraw(); });
  const lines = new Virtual(body, 56, (number) => {
    const row = chunks.row(number);
    if (!row) return el("div.cells.waiting");
    if (row.error) return el("div.cells.error", {}, row.error);
    return el("a.cells", { href: "#", "data-number": number,
      onclick: (event) => { event.preventDefault(); go({ page: "sample", number }); } },
      el("span.number", {}, shown(number)), el("span", { dir: "auto" }, row.key ?? ""),
      names.map((name) => el("span", {}, small(row.cells[name], number, name))));
  });
  const total = () => Math.min(count() ?? chunks.end, chunks.end, count() ?? 2_000);
  const fit = () => lines.setCount(total());
  fit();
  return { close() { chunks.close(); lines.close(); }, counted: fit };
}
