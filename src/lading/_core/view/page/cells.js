// A value as the page shows it.

import { rawUrl, thumbnailUrl } from "./api.js";
import { bytes, el, number } from "./dom.js";

/** Return the facts of a medium in a few words: 640×480 jpeg, 53 KB. */
export function facts(cell) {
  const { width, height, format, sample_rate, duration_s, frames, expected } = cell.facts || {};
  const words = [
    width && `${width}×${height}`, format, sample_rate && `${number(sample_rate)} Hz`,
    duration_s && `${duration_s.toFixed(1)} s`, frames > 1 && `${number(frames)} frames`,
    expected && `not ${expected === "image" ? "an image" : expected} that lading knows`,
  ].filter(Boolean).join(" ");
  return [words, cell.length !== undefined && bytes(cell.length)].filter(Boolean).join(", ");
}

/** Return a small form of a cell, for lists and captions. */
export function small(cell, at, column, item = 0) {
  if (!cell || cell.kind === "null") return el("span.null", {}, "null");
  if (cell.kind === "error") return el("span.error", { title: cell.text }, cell.text);
  if (cell.kind === "image") return el("img.thumb", {
    src: thumbnailUrl(at, column, item), alt: facts(cell), title: facts(cell), loading: "lazy",
    onerror: (event) => event.target.replaceWith(el("span.error", {}, `not decoded: ${facts(cell)}`)),
  });
  if (cell.kind === "items" || cell.kind === "list") return el("span.strip", {},
    cell.items.slice(0, 4).map((each, place) => small(each, at, column, place)),
    cell.length > 4 ? el("span.more", {}, `${number(cell.length)} items`) : null);
  if (cell.text !== undefined) {
    const label = cell.facts?.label;
    return el(`span.${cell.kind}`, { dir: "auto", title: cell.text }, label ? `${label} (${cell.text})` : cell.text);
  }
  return el("span.facts", {}, `${cell.kind} ${facts(cell)}`);
}

/** Return the whole of a cell, as one sample shows it. */
export function large(cell, at, column, item = 0) {
  switch (cell.kind) {
    case "image": return el("figure", {},
      el("a", { href: rawUrl(at, column, item), target: "_blank", rel: "noopener" },
        el("img.whole", { src: thumbnailUrl(at, column, item, 1024), alt: facts(cell),
          onerror: (event) => event.target.replaceWith(el("span.error", {}, "this picture cannot be decoded")) })),
      el("figcaption", {}, facts(cell)));
    case "audio": return el("figure", {}, el("audio", { controls: true, preload: "none", src: rawUrl(at, column, item) }),
      el("figcaption", {}, facts(cell)));
    case "video": return el("figure", {}, el("video", { controls: true, preload: "metadata", src: rawUrl(at, column, item) }),
      el("figcaption", {}, facts(cell)));
    case "items": case "list": return el("ol.items", {}, cell.items.map((each, place) =>
      el("li", {}, large(each, at, column, place))),
      cell.length > cell.items.length ? el("li.more", {}, `${number(cell.length - cell.items.length)} more`) : null);
    case "json": return el("pre.json", { dir: "auto" }, pretty(cell));
    case "text": return el("p.text", { dir: "auto" }, cell.text,
      cell.length ? el("span.more", {}, ` … ${number(cell.length)} characters`) : null);
    default: return small(cell, at, column, item);
  }
}

function pretty(cell) {
  if (cell.length) return cell.text;
  try { return JSON.stringify(JSON.parse(cell.text), null, 2); } catch { return cell.text; }
}
