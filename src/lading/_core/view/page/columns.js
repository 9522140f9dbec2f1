// The chooser of columns: what is chosen is part of the URL.

import { el } from "./dom.js";
import { go } from "./state.js";

const kept = { isOpen: false, focus: null }; // each choice draws the page anew

/** Return the chooser. `shown` are the columns that the page shows while none are chosen. */
export function chooser(dataset, columns, shown) {
  const own = dataset.columns.map((column) => column.name).filter((name) => name !== dataset.key), types = new Map(dataset.columns.map((column) => [column.name, column.type]));
  const chosen = columns.length ? columns : shown;
  const choose = (names, focus) => { kept.focus = focus; go({ column: names }, { replace: true }); };
  const line = (name) => el("label", {}, el("input", { type: "checkbox", checked: chosen.includes(name), "data-name": name,
    onchange: (event) => choose(event.target.checked ? [...chosen, name] : chosen.filter((each) => each !== name), name) }),
    el("span", { dir: "auto" }, name), el("small", {}, types.get(name) ?? "field"));
  const typed = el("input", { name: "field", placeholder: "a field, such as json.lang", "aria-label": "Field", autocomplete: "off", spellcheck: "false" });
  const made = el("details.columns", { ontoggle: () => { kept.isOpen = made.open; } },
    el("summary", {}, "Columns"),
    el("div.popup", {},
      [...new Set([...own, ...columns])].map(line),
      el("form", { onsubmit: (event) => {
        event.preventDefault();
        const name = typed.value.trim();
        if (name && !chosen.includes(name)) choose([...chosen, name], null);
      } }, typed, el("button", {}, "Add")),
      columns.length ? el("button", { onclick: () => choose([], null) }, "The usual ones") : null));
  made.open = kept.isOpen;
  if (kept.isOpen) requestAnimationFrame(() => {
    const boxes = [...made.querySelectorAll("[data-name]")];
    (boxes.find((box) => box.dataset.name === kept.focus) ?? typed).focus();
  });
  made.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    made.open = false;
    made.querySelector("summary").focus();
  });
  return made;
}

addEventListener("pointerdown", (event) => {
  for (const open of document.querySelectorAll("details.columns[open]")) if (!open.contains(event.target)) open.open = false;
});
