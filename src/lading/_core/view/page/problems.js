// Problems: what verify and doctor find, the commands that help, and a look at all pictures.

import { ask } from "./api.js";
import { small } from "./cells.js";
import { copied } from "./copied.js";
import { amount, el, number as shown } from "./dom.js";
import { opens } from "./state.js";
import { follow, progress } from "./work.js";

const DEPTHS = {
  quick: ["Headers", "Opens every shard, and compares counts and sizes."],
  files: ["All files", "Reads all files, and compares their checksums."],
  deep: ["Every sample", "Reads all files and every sample, and looks at the headers of pictures."],
};
const SENTENCES = { counts: "counts", sizes: "sizes", checksums: "checksums", hashes: "hashes", indexes: "indexes", sidecars: "sidecars",
  videos: "external videos", keys: "keys", digest: "the digest", manifest: "the manifest" };

/** Show the problems; return what takes the page away. */
export function problems(main, { dataset, count = () => null }) {
  const stop = new AbortController(), found = el("div", { "aria-live": "polite" }), pictures = el("div", { "aria-live": "polite" });
  main.replaceChildren(el("article.checks", {},
    dataset.broken ? el("section.broken", { role: "alert" }, el("h2", {}, "This dataset cannot be opened"),
      el("p.error", {}, dataset.broken)) : null,
    el("section", { "aria-label": "Files and layout" }, el("h2", {}, "Files and layout"), found),
    dataset.broken ? null : el("section", { "aria-label": "Pictures" }, el("h2", {}, "Pictures"), pictures)));

  const check = follow("problems", stop.signal, (state) => found.replaceChildren(...checked(state, check)));
  check({}).then((state) => { if (state?.depth === null) check({ start: "quick" }); });
  if (!dataset.broken) {
    const look = follow("pictures", stop.signal, (state) => pictures.replaceChildren(...lookedAt(state, look, count())));
    look({});
  }
  return { close() { stop.abort(); }, counted() {} };
}

function checked(state, check) {
  const buttons = el("p.buttons", {}, Object.entries(DEPTHS).map(([depth, [name, title]]) =>
    el("button", { title, "aria-pressed": String(state.depth === depth), disabled: state.running && state.depth === depth,
      onclick: () => check({ start: depth }) }, name)),
    state.running ? el("button", { onclick: () => check({ stop: 1 }) }, "Stop") : null);
  const parts = [el("p", {}, "Check: "), buttons];
  parts[0].append(el("span.more", {}, DEPTHS[state.depth]?.[1] ?? ""));
  if (state.running) parts.push(progress(state));
  if (state.error) parts.push(el("p.error", {}, state.error));
  if (state.stopped) parts.push(el("p.more", {}, "Stopped: not everything was checked."));
  if (!state.groups) return parts;
  const count = state.problems + state.layout.length;
  parts.push(el(`p.verdict.${count ? "error" : "good"}`, {}, count ? amount(count, "problem") : "No problems",
    el("span.more", {}, scope(state))));
  if (state.commands.length) parts.push(el("div.help", {}, state.commands.map(({ purpose, command }) =>
    el("p.command", {}, el("span", {}, `${purpose[0].toUpperCase()}${purpose.slice(1)}: `), copied(command, { dir: "ltr" })))));
  parts.push(...state.groups.map(group), ...state.layout.map(layout));
  if (state.unlisted) parts.push(el("p.more", {}, `${amount(state.unlisted, "more problem")} of the same shards: lading verify --max-findings lists them.`));
  if (state.more_groups) parts.push(el("p.more", {}, `${amount(state.more_groups, "more kind")} of problems are not shown.`));
  return parts;
}

function scope(state) {
  if (state.shards === null) return "";
  const compared = state.checked.map((name) => SENTENCES[name] ?? name).join(", ");
  return ` in ${amount(state.shards, "shard")}, ${amount(state.samples, "sample")}. Compared: ${compared || "nothing, as there is no manifest and no index"}.`;
}

function group({ level, error, message, count, findings }) {
  return el("details.group", { open: count <= 10, "data-level": level },
    el("summary", {}, el("b", { dir: "auto" }, message), el("span.more", {}, ` ${level === "note" ? "note" : error}, ${shown(count)}`)),
    el("ol", {}, findings.map(finding), count > findings.length ? el("li.more", {}, `${shown(count - findings.length)} more`) : null));
}

function finding(one) {
  const places = [one.offset !== undefined && `byte ${shown(one.offset)}`, one.row !== undefined && `row ${shown(one.row)}`,
    one.sample !== undefined && `sample ${one.sample}`, one.column !== undefined && `column ${one.column}`].filter(Boolean);
  const facts = [one.expected !== undefined && `expected ${one.expected}`, one.found !== undefined && `found ${one.found}`].filter(Boolean);
  return el("li", {},
    el("p", { dir: "auto" }, el("code", {}, one.file ?? ""), places.length ? ` ${places.join(", ")}` : ""),
    facts.length ? el("p", { dir: "auto" }, facts.join(", ")) : null,
    one.advice ? el("p.more", { dir: "auto" }, one.advice) : null,
    one.details?.length ? el("ul", {}, one.details.map((text) => el("li", { dir: "auto" }, text))) : null,
    (one.row !== undefined && one.file) || one.sample !== undefined ? sampleOf(one) : null);
}

/** Return a button that shows the sample of a finding below it. */
function sampleOf({ file, row, sample: key }) {
  const told = el("span.more", { role: "status" }), body = el("div");
  const button = el("button", { "aria-expanded": "false", onclick: async () => {
    if (body.hasChildNodes()) { body.replaceChildren(); button.setAttribute("aria-expanded", "false"); return; }
    told.textContent = " looking for it …";
    try {
      const { number } = row !== undefined && file ? await ask("row", { file, row }) : await ask("find", { key });
      told.textContent = number === null ? " The samples that are chosen above do not have it." : "";
      if (number !== null) body.replaceChildren(shortSample(await ask("sample", { number }), number));
      button.setAttribute("aria-expanded", String(body.hasChildNodes()));
    } catch (error) { told.textContent = ` ${error.message}`; }
  } }, "Show the sample");
  return el("div", {}, button, told, body);
}

function shortSample({ key, cells }, number) {
  return el("section.found", {}, link(key, number), el("dl.alone", {}, Object.entries(cells).flatMap(([column, cell]) =>
    [el("dt", {}, column), el("dd", {}, small(cell, number, column))])));
}

const link = (key, number) => el("a", { dir: "auto", ...opens(number) }, key ?? `sample ${shown(number)}`);

function layout({ problem, shard, measured, why, shards }) {
  return el("details.group", { open: true, "data-level": "layout" },
    el("summary", {}, el("b", {}, problem), el("span.more", {}, shards > 1 ? ` layout, in ${amount(shards, "shard")}` : " layout")),
    el("p", { dir: "auto" }, el("code", {}, shard), ` ${measured}`), el("p.more", {}, why));
}

function lookedAt(state, look, count) {
  const parts = [el("p", {}, "Decodes every picture of the samples that are chosen above, and lists those that fail."),
    el("p.buttons", {}, state.running ? el("button", { onclick: () => look({ stop: 1 }) }, "Stop")
      : el("button", { onclick: () => look({ start: 1 }) }, state.decoded === null ? "Look at all pictures" : "Look again"))];
  if (state.error) parts.push(el("p.error", {}, state.error));
  if (state.decoded === null) return parts;
  if (state.running) parts.push(progress({ progress: state.progress && { ...state.progress, share: count && state.progress.samples / count } }));
  if (state.stopped) parts.push(el("p.more", {}, "Stopped: not all pictures were decoded."));
  parts.push(el(`p.verdict.${state.failed ? "error" : "good"}`, {},
    `${amount(state.decoded, "picture")} decoded, ${shown(state.failed)} failed`));
  if (state.failures.length) parts.push(el("ol.failures", {}, state.failures.map(({ number, key, column, item, error }) => el("li", {}, link(key, number),
    ` ${column}${item ? ` ${item}` : ""}: `, el("span.error", { dir: "auto" }, error)))));
  if (state.failed > state.failures.length) parts.push(el("p.more", {}, `${shown(state.failed - state.failures.length)} more failed`));
  return parts;
}
