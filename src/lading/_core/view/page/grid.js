// The grid: a picture of each sample, with its key and the chosen fields.

import { Chunks } from "./chunks.js";
import { small } from "./cells.js";
import { el } from "./dom.js";
import { asked, go } from "./state.js";
import { Virtual } from "./virtual.js";

const WIDTH = 180, PICTURE = 168, CAPTION = 42;

/** Show the grid; return a function that takes it away. */
export function grid(main, { dataset, count, columns }) {
  const pictures = dataset.columns.filter((column) => ["image", "items", "list"].includes(column.kind));
  const picture = pictures[0]?.name ?? null;
  const captions = columns.filter((name) => name !== picture);
  const chunks = new Chunks([picture, ...captions].filter(Boolean), () => list.redraw());
  let across = 1;
  const list = new Virtual(main, PICTURE + CAPTION, (line) => {
    const made = el("div.tiles");
    for (let place = 0; place < across; place += 1) {
      const number = line * across + place;
      if (number >= total()) break;
      made.append(tile(number));
    }
    return made;
  });

  const total = () => Math.min(count() ?? chunks.end, chunks.end, count() ?? 2_000);
  const fit = () => {
    const next = Math.max(1, Math.floor(main.clientWidth / WIDTH));
    if (next !== across) { across = next; list.redraw(); }
    list.setCount(Math.ceil(total() / across));
  };
  const seen = new ResizeObserver(fit);
  seen.observe(main);
  chunks.told = () => { fit(); list.redraw(); };

  function tile(number) {
    const row = chunks.row(number);
    if (!row) return el("div.tile.waiting");
    if (row.error) return el("div.tile.error", {}, row.error);
    const cell = picture && row.cells[picture];
    return el("a.tile", { href: `?${asked({ page: "sample", number })}`, "data-number": number,
      onclick: (event) => { event.preventDefault(); go({ page: "sample", number }); } },
      el("div.picture", {}, cell ? small(cell, number, picture) : null),
      el("div.caption", {}, el("b", { dir: "auto" }, row.key ?? String(number)),
        captions.map((name) => small(row.cells[name], number, name))));
  }

  fit();
  return { close() { chunks.close(); list.close(); seen.disconnect(); }, counted: fit };
}
