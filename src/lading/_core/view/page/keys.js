// The keys of the page, and the window that names them.

import { el } from "./dom.js";

/** Keys and what they do. Pages with keys of their own add them. */
export const KEYS = [
  ["← → ↑ ↓, j", "move among samples"],
  ["Enter", "open a sample"],
  ["← →", "the sample before, the next one"],
  ["Escape", "back to where you were"],
  ["Page up, Page down, Home, End", "scroll"],
  ["+ − 0", "enlarge a picture that has the focus"],
  ["?", "show these keys"],
];

/** Return whether a key belongs to a field that is typed in, or to the browser. */
export const isTyping = (event) => event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey
  || Boolean(event.target.closest?.("input:not([type=checkbox]):not([type=radio]), textarea, select, dialog, audio, video"));

/** Show the keys when a question mark is typed. */
export function listenForHelp() {
  addEventListener("keydown", (event) => {
    if (event.key !== "?" || isTyping(event)) return;
    const shown = el("dialog.keys", { "aria-label": "Keys", onclose: () => shown.remove() }, el("h2", {}, "Keys"),
      el("dl", {}, KEYS.map(([keys, does]) => [el("dt", {}, keys), el("dd", {}, does)]).flat()),
      el("form", { method: "dialog" }, el("button", {}, "Close")));
    document.body.append(shown);
    shown.showModal();
  });
}
