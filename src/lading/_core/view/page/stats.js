// Statistics: for each column its counts, bars and frequent values. A click shows the samples of a bar or a value.

import { ask } from "./api.js";
import { both } from "./choose.js";
import { amount, bytes, el, number } from "./dom.js";
import { go, state } from "./state.js";

/** Show the statistics of the selection; return what takes them away. */
export function statistics(main) {
  const stop = new AbortController(), { query } = state();
  const head = el("p.summary", { role: "status" }, "reading …"), bar = el("progress", { max: 1, "aria-label": "Read so far" });
  const cards = el("div.cards");
  main.replaceChildren(el("div.statistics", {}, el("div.summary", {}, head, bar),
    query.get("sample") ? el("p.more", {}, "These are of a sample. A click shows all samples of a bar or value.") : null, cards));
  follow(null);

  async function follow(whole) {
    let seen = 0, of = "";
    while (!stop.signal.aborted) {
      let answer;
      try { answer = await ask("statistics", { seen, wait: 1, whole }, stop.signal); } catch (error) {
        if (!stop.signal.aborted) fail(error.message);
        return;
      }
      if (stop.signal.aborted) return;
      if (answer.error) { fail(answer.error); return; }
      const found = answer.statistics;
      if (found) {
        cards.replaceChildren(...found.columns.map(card));
        of = answer.is_whole ? summary(found) : `Of the first ${amount(found.samples, "sample")}.`;
      }
      seen = answer.stage;
      const { samples, share, phase } = answer.progress ?? {};
      head.textContent = seen === 2 ? of || "The statistics were stopped. Open the page again." :
        [of, samples ? `${phase || "Reading all"}: ${amount(samples, "sample")}${share ? `, ${Math.round(share * 100)} %` : ""} …` : "Reading …"].join(" ");
      bar.hidden = seen === 2;
      if (share) bar.value = share; else bar.removeAttribute("value");
      if (seen !== 2) continue;
      if (!answer.is_whole && of) head.append(" ", el("button", { type: "button", onclick: () => follow("1") }, "Read all of them"));
      return;
    }
  }

  function fail(words) { bar.hidden = true; head.textContent = words; head.classList.add("error"); }

  return { close() { stop.abort(); }, counted() {} };
}

function summary({ samples, size_bytes: size, duplicate_keys: repeated, items, notes }) {
  return [
    `${amount(samples, "sample")}, ${bytes(size)}`,
    repeated ? `${number(repeated)} keys come again` : null,
    ...Object.entries(items).map(([name, count]) => `${number(count)} × ${name}`), ...notes,
  ].filter(Boolean).join("; ");
}

function choose(where) {
  go({ page: null, number: null, sample: null, where: both(state().query.get("where"), where) });
}

function card(column) {
  const facts = [
    ["values", number(column.values)],
    column.nulls ? ["nulls", column.where_null ? el("button.link", { type: "button", onclick: () => choose(column.where_null),
      title: column.where_null }, number(column.nulls)) : number(column.nulls)] : null,
    column.not_finite ? ["NaN, infinite", about(column, "histogram", number(column.not_finite))] : null,
    column.unreadable ? ["unreadable", number(column.unreadable)] : null,
    column.distinct !== null ? ["distinct", about(column, "distinct", number(column.distinct))] : null,
    column.min !== null ? ["least", value(column.min)] : null,
    column.quantiles["0.5"] !== undefined ? ["median", about(column, "quantiles", value(column.quantiles["0.5"]))] : null,
    typeof column.mean === "number" ? ["mean", value(column.mean)] : null,
    column.max !== null ? ["greatest", value(column.max)] : null,
    column.size_bytes ? ["size", bytes(column.size_bytes)] : null,
  ].filter(Boolean);
  return el("section.card", { "data-column": column.name, "aria-label": column.name },
    el("h3", {}, column.name, el("small", {}, ` ${column.kind}`)),
    column.bars.length > 1 ? histogram(column) : frequent(column),
    el("dl", {}, facts.flatMap(([name, shown]) => [el("dt", {}, name), el("dd", {}, shown)])));
}

function histogram(column) {
  const most = Math.max(...column.bars.map(({ count }) => count), 1);
  const ends = `${value(column.min)} … ${value(column.max)}`, range = el("p.range", { "aria-hidden": "true" }, ends);
  const bars = column.bars.map(({ label, count, where }) => {
    const words = `${label}: ${about(column, "histogram", number(count))}`, fill = el("span.fill");
    fill.style.height = count ? `max(2px, ${(100 * count) / most}%)` : "0";
    const tell = () => { range.textContent = words; }, hush = () => { range.textContent = ends; };
    const clicks = where && count;
    return el(clicks ? "button.bar" : "span.bar", { type: clicks ? "button" : null, title: words, "aria-label": words,
      "data-where": where, onmouseenter: tell, onfocus: tell, onmouseleave: hush, onblur: hush,
      onclick: () => { if (clicks) choose(where); } }, fill);
  });
  return el("div", {}, el("div.bars", { role: "group", "aria-label": "Histogram" }, bars), range);
}

function frequent(column) {
  if (!column.top.length) return null;
  if (column.top[0].count === 1 && column.values > 1) return el("p.more", {}, "all values differ");
  return el("ol.top", {}, column.top.map(({ value: each, count, where }) => {
    const share = count / column.values, fill = el("span.fill"), shown = String(each);
    fill.style.width = `${100 * share}%`;
    const words = [el("span.value", { dir: "auto", title: shown }, shown === "" ? "(empty)" : shown),
      el("span.count", {}, `${column.approximate.includes("top") ? "≥ " : ""}${number(count)}`)];
    return el("li", {}, fill, where ? el("button", { type: "button", "data-where": where, onclick: () => choose(where) }, words)
      : el("span.plain", {}, words));
  }));
}

const about = (column, what, words) => (column.approximate.includes(what) ? `about ${words}` : words);

function value(each) {
  if (typeof each !== "number") return String(each);
  if (Number.isSafeInteger(each)) return number(each);
  const size = Math.abs(each);
  return size >= 1e15 || size < 1e-4 ? each.toExponential(4) : each.toLocaleString("en", { maximumSignificantDigits: 5 });
}
