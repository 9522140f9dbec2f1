// The page: the header, and one of the pages below it, as the URL says.

import { ask } from "./api.js";
import { el, number } from "./dom.js";
import { grid } from "./grid.js";
import { listenForHelp } from "./keys.js";
import { list } from "./list.js";
import { sample } from "./sample.js";
import { asked, go, onChange, state } from "./state.js";

const PAGES = { grid: ["Grid", grid], list: ["List", list] };
const ALL = { ...PAGES, sample: ["Sample", sample] };
const main = document.getElementById("main"), told = document.getElementById("told");
let dataset = null, counted = null, shown = null, waiting = null, selection = null;

async function start() {
  try { dataset = await ask("dataset"); } catch (error) { main.replaceChildren(el("p.error", {}, error.message)); return; }
  document.title = `${dataset.title} – lading`;
  document.getElementById("title").textContent = dataset.title;
  onChange(draw);
  listenForHelp();
  draw();
}

function draw() {
  const now = state();
  shown?.close();
  main.className = "";
  main.replaceChildren();
  document.getElementById("pages").replaceChildren(...Object.entries(PAGES).map(([name, [title]]) =>
    el("a", { href: `?page=${name}`, "aria-current": now.page === name ? "page" : null,
      onclick: (event) => { event.preventDefault(); go({ page: name, number: null, at: null }); } }, title)));
  choose(now);
  count();
  const [, show] = ALL[now.page] ?? PAGES.grid;
  shown = show(main, { dataset, count: () => counted?.count ?? null, error: () => counted?.error ?? null, columns: now.query.getAll("column") });
}

function choose(now) {
  const form = document.getElementById("choose");
  form.replaceChildren(
    el("input", { name: "where", placeholder: "condition, such as json.lang == 'en'", value: now.query.get("where") ?? "",
      "aria-label": "Condition", autocomplete: "off", spellcheck: "false" }),
    el("button", {}, "Filter"));
  form.onsubmit = (event) => { event.preventDefault(); go({ where: form.where.value, number: null }); };
}

async function count() {
  const query = asked();
  if (query === selection && counted?.count !== null && counted !== null) return say();
  waiting?.abort();
  waiting = new AbortController();
  if (query !== selection) counted = null;
  selection = query;
  const { signal } = waiting;
  for (let wait = 0; !signal.aborted; wait = 20) {
    try { counted = await ask("count", { wait }, signal); } catch (error) {
      if (!signal.aborted) { counted = { error: error.message, count: null }; say(); shown?.counted(); }
      return;
    }
    if (signal.aborted) return;
    say();
    shown?.counted();
    if (counted.count !== null || counted.error) return;
  }
}

function say() {
  told.classList.toggle("error", Boolean(counted?.error));
  told.textContent = counted?.error ?? (counted?.count === null ? "counting …" : `${number(counted.count)} samples`);
}

start();
