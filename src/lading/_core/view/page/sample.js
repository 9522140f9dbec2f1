// One sample: every field as what it is.

import { ask } from "./api.js";
import { large } from "./cells.js";
import { el, number as shown } from "./dom.js";
import { isTyping } from "./keys.js";
import { markButtons, marked } from "./marks.js";
import { back, memory, note, state } from "./state.js";

const LATE_MS = 250;

/** Show the sample of the URL's number; return what takes it away. */
export function sample(main, { dataset, count }) {
  const types = new Map(dataset.columns.map((column) => [column.name, column.type]));
  const leave = () => { memory.number = number; back({ page: null }); };
  const before = el("button", { onclick: () => step(-1), title: "The sample before (←)", "aria-label": "The sample before" }, "←");
  const after = el("button", { onclick: () => step(1), title: "The next sample (→)", "aria-label": "The next sample" }, "→");
  const place = el("span.place"), body = el("div.fields");
  let number = Number(state().number ?? 0), stop = new AbortController(), end = Infinity;
  main.replaceChildren(el("div.tools.steps", {}, el("button", { onclick: leave, title: "Back (Escape)" }, "Back"), before, after, markButtons(), place), body);
  addEventListener("keydown", onKey);
  show();

  function last() { return Math.min(count() ?? Infinity, end) - 1; }

  function step(by) {
    const next = number + by;
    if (next < 0 || next > last()) return;
    number = next;
    note({ number });
    show();
  }

  function where(found) {
    before.disabled = number === 0;
    after.disabled = number >= last();
    place.textContent = `Number ${shown(number)}${count() ? ` (0 to ${shown(count() - 1)})` : ""}${found?.file ? ` · row ${shown(found.row)} of ${found.file}` : ""}`;
    place.title = place.textContent;
  }

  async function show() {
    stop.abort();
    stop = new AbortController();
    const { signal } = stop, asked = number, late = setTimeout(() => body.classList.add("waiting"), LATE_MS);
    where(null);
    try {
      const found = await ask("sample", { number: asked }, signal);
      if (signal.aborted) return;
      body.replaceChildren(article(found, asked));
      where(found);
      main.scrollTop = 0;
    } catch (error) {
      if (signal.aborted) return;
      if (count() === null && error.message.includes("no such sample")) end = asked;
      body.replaceChildren(el("div.says", {}, el("h2", {}, `Sample ${shown(asked)} cannot be shown`), el("p.error", {}, error.message)));
    } finally {
      clearTimeout(late);
      if (!signal.aborted) body.classList.remove("waiting");
    }
  }

  function article(found, at) {
    const cells = Object.entries(found.cells).sort(([, one], [, other]) => (other.kind === "items") - (one.kind === "items"));
    return marked(el("article.sample", { "data-number": at, "data-key": found.key },
      el("h2", { dir: "auto" }, found.key ?? `sample ${shown(at)}`),
      cells.map(([name, cell]) => el("section.field", { "data-column": name, "data-kind": cell.kind },
        el("h3", { dir: "auto" }, name, el("small", {}, types.get(name) ?? cell.kind)), el("div.value", {}, large(cell, at, name))))), found);
  }

  function onKey(event) {
    if (isTyping(event)) return;
    if (event.key === "ArrowLeft") step(-1);
    else if (event.key === "ArrowRight") step(1);
    else if (event.key === "Escape") leave();
    else return;
    event.preventDefault();
  }

  return { counted: () => where(null), close() { stop.abort(); removeEventListener("keydown", onKey); } };
}
