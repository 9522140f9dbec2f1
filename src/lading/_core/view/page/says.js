// What a page says where there is nothing to show: no samples, or an error.

import { amount, el } from "./dom.js";
import { goes, state } from "./state.js";

/** Return the words for a page without samples. */
export function nothing(dataset) {
  const query = state().query, chosen = query.get("where"), marked = query.get("marked");
  return el("div.says", {}, marked ? [el("h2", {}, "No samples"), el("p", {}, chosen ? "None has both this mark and the condition." : "None has this mark.")] : chosen ? [el("h2", {}, "No samples"), el("p", {}, "The condition holds for none:"), el("pre", {}, chosen)]
    : [el("h2", {}, "An empty dataset"), el("p", {}, `${dataset.title} has ${amount(dataset.shards, "shard")} of ${dataset.format}, and no samples.`)]);
}

/** Return the words for a page whose samples cannot be read. */
export const failed = (text) => el("div.says", {}, el("h2", {}, "The samples cannot be read"), el("p.error", {}, text),
  el("p", {}, el("a", goes({ page: "problems", number: null, at: null }), "See what is damaged, and what helps")));
