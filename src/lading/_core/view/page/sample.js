// One sample: every field as what it is.

import { ask } from "./api.js";
import { large } from "./cells.js";
import { el, number as shown } from "./dom.js";
import { go, state } from "./state.js";

/** Show the sample of the URL's number; return what takes it away. */
export function sample(main, { count }) {
  const stop = new AbortController(), number = Number(state().number ?? 0);
  const step = (by) => {
    const next = number + by;
    if (next >= 0 && next < (count() ?? Infinity)) go({ number: next });
  };
  main.replaceChildren(el("p.waiting", {}, "reading …"));
  ask("sample", { number }, stop.signal).then((found) => {
    main.replaceChildren(el("article.sample", {},
      el("h2", { dir: "auto" }, found.key ?? `sample ${shown(number)}`),
      el("p.place", {}, `number ${shown(number)}`, found.file ? `, row ${shown(found.row)} of ${found.file}` : ""),
      el("p.steps", {}, el("button", { onclick: () => step(-1), title: "Left arrow" }, "←"),
        el("button", { onclick: () => step(1), title: "Right arrow" }, "→")),
      Object.entries(found.cells).map(([name, cell]) => el("section", { "data-column": name },
        el("h3", {}, name, el("small", {}, ` ${cell.kind}`)), large(cell, number, name)))));
  }, (error) => { if (!stop.signal.aborted) main.replaceChildren(el("p.error", {}, error.message)); });
  const keys = (event) => {
    if (event.target.closest("input, textarea, select")) return;
    if (event.key === "ArrowLeft") step(-1);
    if (event.key === "ArrowRight") step(1);
    if (event.key === "Escape") go({ page: null, number: null });
  };
  addEventListener("keydown", keys);
  return { close() { stop.abort(); removeEventListener("keydown", keys); }, counted() {} };
}
