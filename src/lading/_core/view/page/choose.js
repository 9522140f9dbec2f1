// Which samples are shown: condition, sort, sample, order; jumps; and the lines that give the same samples elsewhere.

import { ask } from "./api.js";
import { completing, fitting, ofCondition } from "./complete.js";
import { copied } from "./copied.js";
import { el } from "./dom.js";
import { KEYS, isTyping } from "./keys.js";
import { CHOOSING, go, sorted, state } from "./state.js";

let fields = null; // a promise of what conditions may name

KEYS.push(["/", "write a condition"]);

const known = () => (fields ??= ask("fields").catch(() => { fields = null; return []; }));

/** Make the form of the header; return {drawn, told}: to call when the URL changes, and when samples are counted. */
export function chooser(form, dataset) {
  const wrong = el("p.wrong.error", { id: "wrong", role: "alert" });
  const where = completing({ name: "where", "aria-label": "Condition", "aria-describedby": "wrong",
    placeholder: `condition, such as ${example(dataset)}` }, async (before) => ofCondition(before, await known()));
  const sort = completing({ name: "sort", "aria-label": "Sort by", placeholder: "field" },
    async (before) => ({ from: 0, texts: fitting(before, (await known()).map(({ name, kind }) => ({ text: name, note: kind }))) }));
  const way = el("select", { "aria-label": "Direction" }, el("option", { value: "" }, "smallest first"), el("option", { value: "desc" }, "largest first"));
  const sample = el("input", { "aria-label": "Sample", placeholder: "1% or 1000", size: 9 });
  const shuffle = el("input", { type: "checkbox" }), seed = el("input", { type: "number", min: 0, "aria-label": "Seed", placeholder: "0" });
  const jump = el("input", { "aria-label": "Number or key", placeholder: "number or key", size: 14, autocomplete: "off" });
  const chips = el("span.chips"), lines = el("div.lines");
  const more = el("button", { type: "button", "aria-expanded": "false", "aria-controls": "choices", onclick: () => open(panel.hidden) }, "More");
  const panel = el("div.choices", { id: "choices", hidden: true },
    el("label", {}, "Sort by ", sort.box), way,
    el("label", {}, "Sample ", sample), el("label.check", {}, shuffle, " Shuffle"), el("label", {}, "Seed ", seed),
    el("button", {}, "Apply"),
    el("span.jump", {}, el("label", {}, "Go to ", jump), el("button", { type: "button", onclick: leap }, "Go")), lines);
  form.replaceChildren(where.box, el("button", {}, "Filter"), more, chips, wrong, panel);

  form.onsubmit = (event) => {
    event.preventDefault();
    if (document.activeElement === jump) { leap(); return; }
    const by = sort.input.value.trim(), text = where.input.value.trim();
    go({ where: text, sort: by && (way.value ? `${by}:desc` : by), sample: sample.value.trim(), number: null,
      shuffle: shuffle.checked && !by ? "1" : null, seed: (shuffle.checked || sample.value.trim()) && Number(seed.value) ? seed.value : null });
  };
  addEventListener("keydown", (event) => {
    if (event.key !== "/" || isTyping(event)) return;
    event.preventDefault();
    where.input.select();
  });
  form.addEventListener("focusin", known, { once: true }); // so that they are there when somebody types
  sort.input.addEventListener("input", () => { if (sort.input.value) shuffle.checked = false; });
  shuffle.addEventListener("change", () => { if (shuffle.checked) sort.input.value = ""; });

  function open(isOpen) { panel.hidden = !isOpen; more.setAttribute("aria-expanded", String(isOpen)); }

  function reset() { go({ ...Object.fromEntries(CHOOSING.map((name) => [name, null])), number: null }); }

  async function leap() {
    const text = jump.value.trim(), quoted = text.match(/^'(.*)'$/);
    if (!text) return;
    if (/^(0|[1-9]\d*)$/.test(text)) { go({ page: "sample", number: text }); return; }
    try {
      const { number } = await ask("find", { key: quoted ? quoted[1] : text });
      wrong.replaceChildren();
      go({ page: "sample", number });
    } catch (error) { say(error.message); }
  }

  function say(error, isCondition = false) {
    const text = state().query.get("where") ?? "", place = error?.match(/\(at character (\d+) of the condition\)/);
    const letters = [...text.trim()], at = place ? Number(place[1]) - 1 : null;
    wrong.replaceChildren(...(error ? [error, at === null ? "" : el("code", {}, letters.slice(0, at).join(""),
      el("mark", {}, letters.slice(at).join("") || " "))] : []));
    where.input.setAttribute("aria-invalid", String(isCondition && Boolean(text)));
  }

  function drawn() {
    const { query } = state(), { by, way: to } = sorted();
    const text = query.get("where") ?? "", marked = query.get("marked")?.replace(/@\d+$/, "");
    if (where.input.value.trim() !== text) where.input.value = text;
    sort.input.value = by;
    way.value = to === "desc" ? "desc" : "";
    sample.value = query.get("sample") ?? "";
    shuffle.checked = query.get("shuffle") === "1";
    seed.value = query.get("seed") ?? "";
    const chip = (words, changes) => el("button.chip", { type: "button", title: "Take this away",
      onclick: () => go({ ...changes, number: null }) }, words, el("span", { "aria-hidden": "true" }, " ×"));
    chips.replaceChildren(...[
      dataset.steps.length ? el("span.fixed", { title: dataset.steps.join(" ") }, dataset.steps.join(" ")) : null,
      by && chip(`sorted by ${by}, ${to === "desc" ? "largest" : "smallest"} first`, { sort: null }),
      sample.value && chip(`sample of ${sample.value}`, { sample: null, ...(shuffle.checked ? {} : { seed: null }) }),
      shuffle.checked && chip("shuffled", { shuffle: null, ...(sample.value ? {} : { seed: null }) }),
      marked && chip(`marked: ${{ any: "any", none: "not yet" }[marked] ?? marked.replace("label:", "")}`, { marked: null }),
      CHOOSING.some((name) => query.get(name)) ? el("button.chip", { type: "button", onclick: reset }, "Reset") : null,
    ].filter(Boolean));
    say(null);
  }

  function told(counted) {
    say(counted?.error, counted?.is_wrong);
    if (!counted || counted.error) { lines.replaceChildren(); return; }
    lines.replaceChildren(...[["Command", counted.command], ["Python", counted.python]].filter(([, line]) => line).map(
      ([name, line]) => el("p", {}, el("span", {}, name), copied(line, { tabindex: 0, "data-line": name }))));
  }

  return { drawn, told };
}

function example({ columns, key }) {
  const first = (kind) => columns.find((column) => column.kind === kind && column.name !== key)?.name, image = first("image"), text = first("text");
  const json = columns.find((column) => column.type === "json")?.name;
  return first("items") ? "modality == 'image'" : json ? `${json}.lang == 'en'` : image ? `${image}.width >= 256` : text ? `len(${text}) > 100` : "score > 0.5";
}

/** Return a condition that holds where both hold. */
export const both = (one, other) => (!one ? other : `${/\bor\b/.test(one) ? `(${one})` : one} and ${other}`);
