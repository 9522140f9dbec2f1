// JSON as a tree that folds. It is read here: numbers stay as they are written, and the text of the tree is JSON again.

import { el, number } from "./dom.js";

const TOKEN = /[ \t\r\n]*(?:([[\]{},:])|("(?:[^"\\]|\\.)*")|([^\s[\]{},:"]+))/sy;
const OPEN_DEPTH = 3, OPEN_CHILDREN = 100;

/** Return the tree of a JSON text; of a text that is none, the text. */
export function tree(text) {
  let found;
  try { found = parse(text); } catch { return el("pre.json", { dir: "auto" }, text); }
  const root = el("div.json.tree", {}, shown(found, [], "", 0));
  if (!root.querySelector("details details, details:not([open])")) return root; // nothing to fold
  return el("div.foldable", {}, root, el("p.folds", {}, el("button", { onclick: () => unfold(root) }, "Unfold all"), el("button", { onclick: () => fold(root) }, "Fold all")));
}

function unfold(holder) {
  for (const each of holder.children) {
    if (each.unfold) { each.open = true; each.unfold(); }
    unfold(each);
  }
}

function fold(holder) { for (const each of holder.querySelectorAll("details[open]")) each.open = false; }

/** Read a value: {token, type}, or {open, close, children: [[name, value], …]}. */
function parse(text) {
  TOKEN.lastIndex = 0;
  const next = () => {
    const at = TOKEN.lastIndex, found = TOKEN.exec(text);
    if (!found && text.slice(at).trim()) throw new SyntaxError(`no JSON at ${at}`);
    return found;
  };
  const string = (raw) => JSON.stringify(JSON.parse(raw)); // letters instead of their numbers
  const value = (token) => {
    if (!token) throw new SyntaxError("the text ends");
    const [, mark, quoted, word] = token;
    if (quoted) return { token: string(quoted), type: "string" };
    if (word) {
      if (!/^(true|false|null|NaN|-?Infinity|-?\d[\d.eE+-]*)$/.test(word)) throw new SyntaxError(word);
      return { token: word, type: /^[tfn]/.test(word) ? "word" : "number" };
    }
    if (mark !== "{" && mark !== "[") throw new SyntaxError(mark);
    const isObject = mark === "{", close = isObject ? "}" : "]", children = [];
    let token_ = next();
    if (token_?.[1] === close) return { open: mark, close, children };
    for (;;) {
      let name = null;
      if (isObject) {
        if (!token_?.[2] || next()?.[1] !== ":") throw new SyntaxError("no name");
        name = string(token_[2]);
        token_ = next();
      }
      children.push([name, value(token_)]);
      const after = next()?.[1];
      if (after === close) return { open: mark, close, children };
      if (after !== ",") throw new SyntaxError("no comma");
      token_ = next();
    }
  };
  const found = value(next());
  if (next()) throw new SyntaxError("more text");
  return found;
}

function shown(value, before, after, depth) {
  if (!value.children) return el("div.entry", {}, before, el(`span.${value.type}`, { dir: "auto" }, value.token), after);
  if (!value.children.length) return el("div.entry", {}, before, value.open + value.close, after);
  const count = value.children.length, inside = el("div.inside");
  const made = el("details", {}, el("summary", { "data-count": `${number(count)} ${value.open === "{" ? "fields" : "items"}` }, before, value.open), inside, value.close, after);
  made.unfold = () => {
    if (inside.childElementCount) return;
    inside.append(...value.children.map(([name, child], place) =>
      shown(child, name === null ? [] : [el("span.name", {}, name), ": "], place < count - 1 ? "," : "", depth + 1)));
  };
  made.addEventListener("toggle", () => { if (made.open) made.unfold(); });
  if (depth < OPEN_DEPTH && count <= OPEN_CHILDREN) { made.open = true; made.unfold(); }
  return made;
}
