// A line that can be copied.

import { el } from "./dom.js";

const SAID_MS = 1_500;

/** Return a line of code, and the button that copies it. `given` are attributes of the line. */
export function copied(line, given) {
  const code = el("code", given, line), button = el("button", { type: "button", onclick: async () => {
    try { await navigator.clipboard.writeText(line); button.textContent = "Copied"; } catch {
      getSelection().selectAllChildren(code); // no clipboard without https: Ctrl-C copies it
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, SAID_MS);
  } }, "Copy");
  return [code, " ", button];
}
