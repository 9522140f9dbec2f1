// Marks: keep, drop, a label. Keys and clicks give them; the header counts them, chooses samples by them, and saves them.

import { ask, fileOf, tell } from "./api.js";
import { el, number as shown } from "./dom.js";
import { KEYS, isTyping } from "./keys.js";
import { asked, go, state } from "./state.js";

const POLL_MS = 5_000, SAID_MS = 3_000, LEARN_MS = 50, MOST_LEARNED = 500;
const NONE = { mark: "", label: "" };
const known = new Map(); // what a mark belongs to → {mark, label}
const learned = new Map(), missing = new Set(); // of samples without keys, by number: what marks belong to, where rows do not say it
const undone = []; // what `u` takes back, the last change last
let at = 0, note = "", file = "", isByKey = true, isCounted = false, chosen = null;
let brush = "", lastLabel = "", said = null, panel = null;

KEYS.push(["k, d", "keep or drop a sample; K, D go on to the next one"], ["l", "label a sample"], ["u", "undo the last mark"]);

/** Make the panel of the header, and listen to keys and clicks. */
export async function marks(holder, main) {
  panel = el("details.columns.marks", { ontoggle: fill }, el("summary", {}), el("div.popup", {}));
  said = el("p.said", { role: "status" });
  holder.append(panel);
  document.body.append(said);
  addEventListener("keydown", onKey);
  main.addEventListener("click", onClick, true);
  panel.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    panel.open = false;
    panel.firstChild.focus();
  });
  fill();
  await refresh();
  setInterval(() => { if (!document.hidden) refresh(); }, POLL_MS);
}

/** Say what an element shows, so that it can be marked, and show its mark; return the element. */
export function marked(element, row) {
  const id = row.id ?? learned.get(row.number) ?? null;
  element.dataset.row = row.number;
  if (id !== null) element.dataset.id = id;
  else if (!isByKey) learn(row.number);
  paint(element);
  return element;
}

/** Another selection is shown, or the samples of it are counted. */
export function selected(isReady) {
  if (asked() !== chosen) { chosen = asked(); learned.clear(); missing.clear(); }
  isCounted = isReady;
  if (isReady && missing.size) learn();
  fill();
}

/** The buttons that mark the sample that is shown. */
export const markButtons = () => el("span.sizes.marking", { role: "group", "aria-label": "Marks" },
  el("button", { onclick: () => toggle("keep"), title: "Keep (k)", "data-does": "keep" }, "Keep"),
  el("button", { onclick: () => toggle("drop"), title: "Drop (d)", "data-does": "drop" }, "Drop"),
  el("button", { onclick: label, title: "Label (l)", "data-does": "label" }, "Label"));

const markOf = (id) => known.get(id) ?? NONE;
const isSame = (one, other) => one.mark === other.mark && one.label === other.label;
const words = ({ mark, label: text }) => [mark, text && `“${text}”`].filter(Boolean).join(", ");

function paint(element) {
  const { mark, label: text } = markOf(element.dataset.id);
  for (const each of [element, element.querySelector("h2")].filter(Boolean))
    for (const [name, value] of [["mark", mark], ["label", text]]) if (value) each.dataset[name] = value; else delete each.dataset[name];
  if (mark || text) element.setAttribute("aria-description", words({ mark, label: text })); else element.removeAttribute("aria-description");
  if (element.matches("article"))
    for (const button of document.querySelectorAll(".marking button"))
      button.setAttribute("aria-pressed", String(button.dataset.does === "label" ? Boolean(text) : button.dataset.does === mark));
}

async function refresh() {
  try {
    const found = await ask("marks", { since: at });
    for (const [id, mark, text] of found.marks) known.set(id, { mark, label: text });
    const isNew = found.marks.length > 0 || note !== found.note || file !== found.file;
    ({ at, note, file } = found);
    isByKey = found.by === "key";
    if (isNew) { document.querySelectorAll("[data-id]").forEach(paint); fill(); }
  } catch { /* the server has ended: the next question of the page says so */ }
}

function say(text, isWrong = false) {
  said.textContent = text;
  said.classList.toggle("error", isWrong);
  clearTimeout(said.timer);
  said.timer = setTimeout(() => { said.textContent = ""; }, isWrong ? 4 * SAID_MS : SAID_MS);
}

async function set(id, next) {
  const before = markOf(id);
  known.set(id, next);
  document.querySelectorAll(`[data-id="${CSS.escape(id)}"]`).forEach(paint);
  try { await tell("mark", { id, mark: next.mark, label: next.label }); } catch (error) {
    known.set(id, before);
    document.querySelectorAll(`[data-id="${CSS.escape(id)}"]`).forEach(paint);
    say(error.message, true);
    return false;
  }
  await refresh();
  return true;
}

const target = () => document.querySelector("article[data-row]") ?? document.activeElement?.closest("[data-row]") ?? document.querySelector("[data-row]:hover");

async function change(element, made) {
  if (!element) { say("Choose a sample first: with the arrow keys, or the mouse."); return; }
  const { id } = element.dataset;
  if (id === undefined) { say(isByKey ? "A sample without a key cannot be marked." : "Samples are counted first.", true); return; }
  const before = markOf(id), next = made(before);
  if (isSame(before, next)) return;
  if (await set(id, next)) {
    undone.push({ id, before, next });
    say(`${id}: ${words(next) || "no mark"}`);
  }
}

const toggle = (mark, element = target()) => change(element, (before) => ({ ...before, mark: before.mark === mark ? "" : mark }));

async function undo() {
  const last = undone.pop();
  if (!last) { say("Nothing to undo on this page."); return; }
  const { id, before, next } = last;
  if (!isSame(markOf(id), next)) say(`${id} has another mark by now.`, true);
  else if (await set(id, before)) say(`${id}: ${words(before) || "no mark"}`);
}

function label() {
  const element = target();
  if (!element) { change(null); return; }
  const { label: text } = markOf(element.dataset.id);
  const input = el("input", { value: text || lastLabel, maxlength: 200, list: "labels", "aria-label": "Label", autocomplete: "off" });
  const send = (value) => { lastLabel = value || lastLabel; change(element, (before) => ({ ...before, label: value })); };
  const made = el("dialog.keys", { "aria-label": "Label", onclose: () => made.remove() }, el("h2", {}, `Label of ${element.dataset.key ?? element.dataset.row}`),
    el("form", { method: "dialog", onsubmit: () => send(input.value.trim()) }, input,
      el("datalist", { id: "labels" }, [...counts().labels.keys()].map((value) => el("option", { value }))), " ",
      el("button", {}, "Set"), " ", text ? el("button", { type: "button", onclick: () => { send(""); made.close(); } }, "Take away") : null));
  document.body.append(made);
  made.showModal();
  input.select();
}

function onKey(event) {
  if (isTyping(event)) return;
  const does = { k: "keep", d: "drop" }[event.key.toLowerCase()];
  if (does) {
    const element = target(), isSample = element?.matches("article");
    toggle(does, element).then(() => {
      if (event.shiftKey && element) document.body.dispatchEvent(new KeyboardEvent("keydown", { key: isSample ? "ArrowRight" : "j", bubbles: true, cancelable: true }));
    });
  } else if (event.key === "l") label();
  else if (event.key === "u") undo();
  else return;
  event.preventDefault();
}

function onClick(event) {
  const element = event.target.closest("[data-row]");
  if (!brush || !element || element.matches("article") || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  event.stopPropagation();
  element.focus({ preventScroll: true });
  if (brush !== "label") toggle(brush, element);
  else if (lastLabel) change(element, (before) => ({ ...before, label: before.label === lastLabel ? "" : lastLabel }));
  else label();
}

function learn(number) {
  if (number !== undefined) missing.add(number);
  if (!isCounted || learn.timer) return;
  learn.timer = setTimeout(async () => {
    const of = chosen, start = Math.min(...missing), stop = Math.min(Math.max(...missing) + 1, start + MOST_LEARNED);
    const ids = await ask("ids", { start, stop }).catch(() => []);
    learn.timer = null;
    if (of !== chosen) return;
    ids.forEach((id, place) => learned.set(start + place, id));
    for (let each = start; each < stop; each += 1) missing.delete(each);
    for (const element of document.querySelectorAll("[data-row]:not([data-id])"))
      if (learned.has(Number(element.dataset.row))) marked(element, { number: Number(element.dataset.row) });
    if (missing.size) learn();
  }, LEARN_MS);
}

/** Save a file of marks; where there is none, say why: a browser would only say that a download failed. */
async function save(event) {
  const link = event.currentTarget;
  event.preventDefault();
  try {
    const { name, file: made } = await fileOf(link.href);
    const url = URL.createObjectURL(made);
    el("a", { href: url, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(url), SAID_MS);
    say(`Saved ${name}`);
  } catch (error) { say(error.message, true); }
}

function counts() {
  const found = { keep: 0, drop: 0, any: 0, labels: new Map() };
  for (const { mark, label: text } of known.values()) {
    if (mark) found[mark] += 1;
    if (text) found.labels.set(text, (found.labels.get(text) ?? 0) + 1);
    if (mark || text) found.any += 1;
  }
  return found;
}

function fill() {
  const { keep, drop, any, labels } = counts();
  const labelled = [...labels.values()].reduce((sum, count) => sum + count, 0);
  panel.firstChild.replaceChildren("Marks", ...[["keep", keep], ["drop", drop], ["label", labelled]].filter(([, count]) => count)
    .map(([name, count]) => el("span.tally", { "data-tally": name }, ` ${shown(count)} ${name}`)));
  if (!panel.open) { panel.lastChild.replaceChildren(); return; }
  const [, now, then] = /^(.*)@(\d+)$/s.exec(state().query.get("marked") ?? "") ?? [null, "", String(at)];
  const choose = (what) => go({ marked: what && `${what}@${at}`, number: null });
  const saved = (what, kind) => el("a", { href: `/marks/${kind}?${new URLSearchParams({ of: `${what}@${at}` })}`, download: true, onclick: save }, kind);
  const line = (what, name, count) => [
    el("button", { type: "button", "aria-pressed": String(now === what), dir: "auto", "data-show": what || "all", onclick: () => choose(what || null) }, name),
    el("span.count", {}, count === null ? "" : shown(count)),
    el("span.kinds", {}, count ? ["txt", "csv", "parquet"].map((kind) => saved(what, kind)) : null)];
  const wanted = document.activeElement?.dataset?.show;
  panel.lastChild.replaceChildren(
    el("fieldset", {}, el("legend", {}, "A click"), [["", "opens"], ["keep", "keeps"], ["drop", "drops"], ["label", lastLabel ? `labels “${lastLabel}”` : "labels"]].map(([what, does]) =>
      el("label", {}, el("input", { type: "radio", name: "brush", checked: brush === what, onchange: () => { brush = what; document.body.dataset.brush = what; } }), does))),
    el("div.choose-marks", {}, el("b", {}, "Show"), el("b.count", {}, ""), el("b", {}, any ? "Save keys" : ""),
      line("", "all samples", null), line("none", "not marked", null), line("any", "marked", any), line("keep", "keep", keep), line("drop", "drop", drop),
      [...labels].sort().flatMap(([text, count]) => line(`label:${text}`, text, count))),
    now && Number(then) !== at ? el("button", { type: "button", onclick: () => choose(now) }, "Marks have changed: show again") : "",
    note ? el("p.note", {}, note) : "",
    el("p.file", {}, any ? `lading head … --take keep.txt${isByKey ? " · ds.join(\"marks.csv\")" : ""}` : "Point at a sample: k keeps, d drops, l labels, u undoes."),
    el("p.file", { title: file }, `Kept in ${file}`));
  if (wanted !== undefined) panel.querySelector(`[data-show="${CSS.escape(wanted)}"]`)?.focus();
}
