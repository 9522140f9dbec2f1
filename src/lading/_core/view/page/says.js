// What a page says where there is nothing to show: no samples, an error, or the rest of them is still to come.

import { amount, el, number } from "./dom.js";
import { go, linked, state } from "./state.js";

const PROBLEMS = { page: "problems", number: null, at: null };

/** The most samples that are shown while they are counted. */
export const FIRST = 2_000;

/** Return how many samples a page shows. */
export const totalOf = (count, chunks) => Math.min(count() ?? FIRST, chunks.end);

/** Return the words for a page without samples. */
export function nothing(dataset) {
  const query = state().query, chosen = query.get("where"), marked = query.get("marked");
  return el("div.says", {}, marked ? [el("h2", {}, "No samples"), el("p", {}, chosen ? "None has both this mark and the condition." : "None has this mark.")] : chosen ? [el("h2", {}, "No samples"), el("p", {}, "The condition holds for none:"), el("pre", {}, chosen)]
    : [el("h2", {}, "An empty dataset"), el("p", {}, `${dataset.title} has ${amount(dataset.shards, "shard")} of ${dataset.format}, and no samples.`)]);
}

/** Return the words for a page whose samples cannot be read. */
export const failed = (text) => el("div.says", {}, el("h2", {}, "The samples cannot be read"), el("p.error", {}, text),
  el("p", {}, el("a", { href: linked(PROBLEMS), onclick: (event) => { event.preventDefault(); go(PROBLEMS); } }, "See what is damaged, and what helps")));

/** Return the words about samples that are not shown yet; empty where all are. */
export const rest = (count, chunks) => count() === null && chunks.end === Infinity
  ? `the first ${number(FIRST)}; all of them when they are counted` : "";
