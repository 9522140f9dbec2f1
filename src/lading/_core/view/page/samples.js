// Samples in lines of a page, fetched where they are seen: what the grid and the list share.

import { Chunks } from "./chunks.js";
import { number } from "./dom.js";
import { Focus } from "./focus.js";
import { Place } from "./place.js";
import { failed, nothing } from "./says.js";
import { Virtual } from "./virtual.js";

const FIRST = 2_000; // samples that are shown while they are counted

/**
 * Show the samples of a dataset in an element. `names` are the columns to read, `line(at)` makes a line, `across()` is
 * the number of samples in it, and `came(chunks)` is called when some have come. `left` says which samples are not shown yet.
 */
export function samples(body, left, { dataset, count, error }, names, { height, line, came = () => {}, across = () => 1, head = null }) {
  const chunks = new Chunks(names, told), lines = new Virtual(body, height, line, seen, head);
  const total = () => Math.min(count() ?? FIRST, chunks.end);
  const focus = new Focus(lines, across, total), place = new Place(across);

  function seen(first, stop) {
    place.keep(first, stop);
    chunks.see(first * across(), stop * across());
  }

  function counted() {
    lines.setCount(Math.ceil(total() / across()));
    const isPart = count() === null && chunks.end === Infinity && !error();
    left.textContent = isPart ? `the first ${number(FIRST)}; all of them when they are counted` : "";
    if (total() === 0) body.replaceChildren(error() ? failed(error()) : nothing(dataset));
    else place.find(lines, focus, total());
  }

  function told() {
    if (chunks.failure) { body.replaceChildren(failed(chunks.failure)); return; }
    counted();
    came(chunks);
    lines.fill();
    focus.restore();
  }

  return { lines, total, row: (at) => chunks.row(at), counted() { counted(); lines.fill(); },
    close() { chunks.close(); lines.close(); focus.close(); place.close(); } };
}
