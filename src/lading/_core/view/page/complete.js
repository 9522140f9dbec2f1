// An input that completes what is typed: fields, functions and frequent values.

import { el } from "./dom.js";

const MOST = 10;
let made = 0;

/** Return an input with its list of completions. `suggest(before)` gives {from, texts: [{text, note}]}. */
export function completing(given, suggest) {
  const id = `completions${made += 1}`;
  const list = el("ul.completions", { id, role: "listbox", hidden: true });
  const input = el("input", { ...given, role: "combobox", autocomplete: "off", autocapitalize: "off", spellcheck: "false",
    "aria-autocomplete": "list", "aria-expanded": "false", "aria-controls": id });
  let found = null, active = -1;

  const close = () => { found = null; show(); };
  const show = () => {
    active = Math.min(active, (found?.texts.length ?? 0) - 1);
    list.hidden = !found?.texts.length;
    input.setAttribute("aria-expanded", String(!list.hidden));
    if (active >= 0) input.setAttribute("aria-activedescendant", `${id}-${active}`);
    else input.removeAttribute("aria-activedescendant");
    list.replaceChildren(...(found?.texts ?? []).map(({ text, note }, place) => el("li", {
      id: `${id}-${place}`, role: "option", "aria-selected": String(place === active),
      onmousedown: (event) => { event.preventDefault(); take(place); },
    }, el("span", {}, text), note ? el("small", {}, note) : null)));
    list.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
  };
  const look = async () => {
    const value = input.value, at = input.selectionStart ?? value.length;
    const next = await suggest(value.slice(0, at));
    if (input.value !== value || document.activeElement !== input) return;
    found = next && { ...next, texts: next.texts.slice(0, MOST) };
    active = -1;
    show();
  };
  const take = (place) => {
    const at = input.selectionStart ?? input.value.length, { text } = found.texts[place];
    input.setRangeText(text, found.from, at, "end");
    close();
    input.focus();
  };
  const keys = (event) => {
    if (event.key === "ArrowDown" && list.hidden) { event.preventDefault(); look(); return; }
    if (list.hidden) return;
    const moves = { ArrowDown: 1, ArrowUp: -1 };
    if (event.key in moves) {
      event.preventDefault();
      active = (active + moves[event.key] + found.texts.length) % found.texts.length;
      show();
    } else if (event.key === "Escape") { event.preventDefault(); event.stopPropagation(); close(); }
    else if ((event.key === "Enter" && active >= 0) || (event.key === "Tab" && !event.shiftKey)) {
      event.preventDefault();
      take(Math.max(active, 0));
    }
  };
  input.addEventListener("input", look);
  input.addEventListener("keydown", keys);
  input.addEventListener("click", () => { if (!input.value) look(); });
  input.addEventListener("blur", close);
  return { input, box: el("span.completing", {}, input, list) };
}

const FUNCTIONS = ["len(", "lower(", "upper(", "startswith(", "endswith(", "contains(", "matches("];

/** Return those of some texts that begin with a part, and then those that contain it. */
export function fitting(part, texts) {
  const wanted = part.toLowerCase(), at = ({ text }) => text.toLowerCase().indexOf(wanted);
  const fit = texts.filter((each) => at(each) >= 0 && each.text !== part);
  return [...fit.filter((each) => at(each) === 0), ...fit.filter((each) => at(each) > 0)];
}

/** Return what may stand at the end of the beginning of a condition. */
export function ofCondition(before, fields) {
  const value = before.match(/([^\s(),=<>!]+(?:\([^()]*\))?|\S*\['[^']*'\])\s*(?:==|!=|(?:not\s+)?in\s*\((?:[^()]*,)?)\s*((['"]?)[^'",()]*)$/);
  const compared = value && fields.find(({ name }) => name === value[1]);
  if (compared?.values.length) {
    const texts = compared.values.map((text) => ({ text }));
    return { from: before.length - value[2].length, texts: fitting(value[2], texts) };
  }
  if ((before.match(/(?<!\\)['"]/g) ?? []).length % 2) return null; // inside a text
  const [part] = before.match(/[^\s(),=<>!+*/]*$/);
  if (!part && before && !/(?:\(|\band|\bor|\bnot)\s*$/.test(before)) return null;
  const texts = [...fields.map(({ name, kind }) => ({ text: name, note: kind })),
    ...FUNCTIONS.map((text) => ({ text, note: "function" }))];
  return { from: before.length - part.length, texts: fitting(part, texts) };
}
