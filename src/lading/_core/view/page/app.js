// The page: the header, and one of the pages below it, as the URL says.

import { ask } from "./api.js";
import { chooser } from "./choose.js";
import { compare } from "./compare.js";
import { amount, el } from "./dom.js";
import { grid } from "./grid.js";
import { listenForHelp } from "./keys.js";
import { list } from "./list.js";
import { marks, selected } from "./marks.js";
import { problems } from "./problems.js";
import { sample } from "./sample.js";
import { asked, go, goes, onChange, state } from "./state.js";
import { statistics } from "./stats.js";

const PAGES = { grid: ["Grid", grid], list: ["List", list], statistics: ["Statistics", statistics], problems: ["Problems", problems], compare: ["Compare", compare] };
const ALL = { ...PAGES, sample: ["Sample", sample] };
const main = document.getElementById("main"), told = document.getElementById("told");
let dataset = null, choosing = null, counted = null, shown = null, waiting = null, selection = null;

async function start() {
  try { dataset = await ask("dataset"); } catch (error) { main.replaceChildren(el("div.says", {}, el("h2", {}, "The dataset cannot be shown"), el("p.error", {}, error.message))); return; }
  document.title = `${[dataset.title, ...(dataset.steps ?? [])].join(" ")} – lading`;
  const title = document.getElementById("title");
  title.textContent = title.title = dataset.title;
  if (dataset.broken) { problems(main, { dataset }); return; }
  if (dataset.compare && !state().query.has("page")) go({ page: "compare" }, { replace: true });
  choosing = chooser(document.getElementById("choose"), dataset);
  marks(document.getElementById("marks"), main);
  onChange(draw);
  listenForHelp();
  draw();
}

function draw() {
  const now = state();
  shown?.close();
  main.className = "";
  main.replaceChildren();
  document.getElementById("pages").replaceChildren(...Object.entries(PAGES).filter(([name]) => name !== "compare" || dataset.compare).map(([name, [title]]) =>
    el("a", { ...goes({ page: name, number: null, at: null }), "aria-current": now.page === name ? "page" : null }, title)));
  choosing.drawn();
  selected(false);
  count();
  const [, show] = ALL[now.page] ?? PAGES.grid;
  shown = show(main, { dataset, count: () => counted?.count ?? null, error: () => counted?.error ?? null, columns: now.query.getAll("column") });
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
      if (signal.aborted) return;
      counted = { error: error.message, count: null, is_wrong: true };
    }
    if (signal.aborted) return;
    say();
    if (counted.is_wrong) refuse();
    shown?.counted();
    if (counted.count !== null || counted.error) return;
  }
}

function refuse() {
  shown?.close();
  shown = null;
  main.className = "";
  main.replaceChildren(el("div.says", {}, el("h2", {}, "No samples"), el("p", {}, "The words above say why.")));
}

function say() {
  selected(Boolean(counted) && counted.count !== null);
  choosing.told(counted);
  told.textContent = counted?.error ? "" : counted?.count === null ? "counting …" : amount(counted.count, "sample");
}

start();
