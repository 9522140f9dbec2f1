// Two datasets side by side, by key: the differences first.

import { ask } from "./api.js";
import { large, small } from "./cells.js";
import { amount, el, number as shown } from "./dom.js";
import { go, opens, state } from "./state.js";
import { follow, progress } from "./work.js";

const PAGE = 20, SAME = 300;
const KINDS = { changed: "Changed", only_a: "Only in A", only_b: "Only in B" };

/** Show the comparison; return what takes the page away. */
export function compare(main, { dataset }) {
  const stop = new AbortController(), verdict = el("div", { "aria-live": "polite" }), list = el("div");
  main.replaceChildren(el("article.checks.compare", {},
    el("p.sides", { dir: "auto" }, el("b", {}, "A"), ` ${dataset.title} `, el("b", {}, "B"), ` ${dataset.compare}`), verdict, list));
  follow("compare", stop.signal, (found) => {
    verdict.replaceChildren(...(found.running ? [progress(found)] : verdictOf(found)));
    if (found.counts) list.replaceChildren(...differences(found, stop.signal));
  })({});
  return { close() { stop.abort(); }, counted() {} };
}

function verdictOf({ error, stopped, counts, by, in_order: ordered }) {
  if (error) return [el("p.error", {}, error)];
  if (stopped) return [el("p.more", {}, "Stopped. Open the page again to compare.")];
  const differ = counts.changed + counts.only_a + counts.only_b;
  const parts = [el(`p.verdict.${differ ? "error" : "good"}`, {}, differ ? `${amount(differ, "sample")} ${differ === 1 ? "differs" : "differ"}`
    : ordered ? "Both datasets are equal" : "Both datasets have the same samples, in another order",
    el("span.more", {}, ` A: ${amount(counts.a, "sample")}. B: ${amount(counts.b, "sample")}. The same in both: ${shown(counts.same)}${differ && !ordered ? ", in another order" : ""}.`))];
  if (by === "number") parts.push(el("p.more", {}, "Samples of one number are compared: a dataset has no keys."));
  return parts;
}

function differences({ counts }, signal) {
  const kinds = Object.keys(KINDS).filter((kind) => counts[kind]);
  if (!kinds.length) return [];
  const asked = state().query.get("kind"), kind = kinds.includes(asked) ? asked : kinds[0];
  const body = el("div"), more = el("p.buttons");
  let next = 0;
  async function load() {
    more.replaceChildren(el("span.more", {}, "reading …"));
    try {
      const { differences: found } = await ask("differences", { kind, start: next, stop: next + PAGE }, signal);
      next += found.length;
      body.append(...found.map(difference));
      more.replaceChildren(next < counts[kind] ? el("button", { onclick: load }, `Show more of ${shown(counts[kind] - next)}`) : "");
    } catch (error) { if (!signal.aborted) more.replaceChildren(el("span.error", {}, error.message)); }
  }
  load();
  return [el("p.buttons", { role: "group", "aria-label": "Kind of difference" }, kinds.map((name) => el("button",
    { "aria-pressed": String(name === kind), onclick: () => go({ kind: name }) }, `${KINDS[name]} ${shown(counts[name])}`))), body, more];
}

function difference(found) {
  const { a, b, key, error, cells } = found;
  const name = key ?? `sample ${shown(a ?? b)}`;
  const numbers = [a !== null && `A ${shown(a)}`, b !== null && `B ${shown(b)}`].filter(Boolean).join(", ");
  return el("section.difference", { "data-key": name },
    el("h3", { dir: "auto" }, a === null ? name : el("a", opens(a), name),
      el("small", {}, ` ${numbers}`)),
    error ? el("p.error", { dir: "auto" }, error) : null,
    cells ? el("dl.alone", {}, Object.entries(cells).flatMap(([column, cell]) =>
      [el("dt", {}, column), el("dd", {}, small(cell, at(a, b), column))])) : null,
    (found.fields ?? []).map((field) => el("div.change", { "data-column": field.name }, el("h4", {}, field.name), values(field, a, b, field.name))),
    (found.items ?? []).map((item) => el("div.change", {}, el("h4", {}, `${item.modality}, position ${shown(item.position)}`,
      item.only_in ? el("small", {}, ` only in ${item.only_in}`) : null), values(item, a, b, "items", item.at))),
    found.more_items ? el("p.more", {}, `${amount(found.more_items, "more item")} differ`) : null);
}

const at = (a, b) => a ?? `b${b}`;

function values({ a: one, b: other, words, changes, more_changes: more }, a, b, column, item = {}) {
  if (changes) return el("table.fields", {}, el("thead", {}, el("tr", {}, el("th", {}, "field"), el("th", {}, "A"), el("th", {}, "B"))),
    el("tbody", {}, changes.map((change) => el("tr", {}, el("th", { scope: "row" }, change.path || "the value"),
      el("td", { dir: "auto" }, written(change.a)), el("td", { dir: "auto" }, written(change.b))))),
    more ? el("caption.more", {}, `${amount(more, "more field")} differ`) : null);
  if (words) return el("div.words", { dir: "auto" }, words.map(([side, text]) =>
    side === "a" ? el("del", {}, text) : side === "b" ? el("ins", {}, text) : el("span", {}, shortened(text))));
  return el("div.sidebyside", {}, [["A", one, a, item.a], ["B", other, `b${b}`, item.b]].map(([side, cell, number, place]) =>
    el("div", {}, el("small", {}, side), cell ? large(cell, number, column, place ?? 0) : el("p.more", {}, "not there"))));
}

const written = (value) => value === null ? el("span.more", {}, "not there") : value;

/** Return the ends of text that both have. */
const shortened = (text) => text.length > 2 * SAME ? `${text.slice(0, SAME)} […] ${text.slice(-SAME)}` : text;
