// A value as the page shows it: as the face of a tile, small, and whole.

import { thumbnailUrl } from "./api.js";
import { amount, bytes, el, number } from "./dom.js";
import { tree } from "./json.js";
import { array, download, drawing, hex, picture, sound, video, waveform } from "./media.js";

const TURNS = { 2: "mirrored", 3: "turned by 180°", 4: "mirrored, turned by 180°", 5: "mirrored, turned by 270°",
  6: "turned by 90°", 7: "mirrored, turned by 90°", 8: "turned by 270°" };
const THUMBNAIL = 256;

/** Return the facts of a medium in a few words: 640×480 jpeg, 53 KB. */
export function facts(cell) {
  const { width, height, format, codec, sample_rate, channels, duration_s, frames, fps, expected } = cell.facts || {};
  const words = [
    width && `${width}×${height}`, format, codec !== format && codec, sample_rate && `${number(sample_rate)} Hz`,
    channels > 1 && `${channels} channels`, duration_s && `${duration_s.toFixed(1)} s`, fps && `${Number(fps.toFixed(2))} fps`,
    frames > 1 && `${number(frames)} frames`, expected && `not ${expected === "image" ? "an image" : expected} that lading knows`,
  ].filter(Boolean).join(" ");
  return [words, TURNS[cell.facts?.orientation], cell.length !== undefined && bytes(cell.length)].filter(Boolean).join(", ");
}

/** Return the place of an item, as the server wants it. */
const placeOf = (cell, place) => cell.facts?.item ?? place;

/** Return a picture as a thumbnail. */
const thumbnail = (cell, at, column, item, size = THUMBNAIL) => el("img.thumb", {
  src: thumbnailUrl(at, column, item, size), alt: facts(cell), title: facts(cell), draggable: "false",
  onerror: (event) => event.target.replaceWith(el("span.error", {}, `not decoded: ${facts(cell)}`)),
});

/** Return what fills a tile that is so many pixels high. */
export function face(cell, at, column, height) {
  if (!cell || cell.kind === "null") return el("span.null", {}, "null");
  if (cell.kind === "image") return thumbnail(cell, at, column, 0, height * devicePixelRatio > THUMBNAIL ? 2 * THUMBNAIL : THUMBNAIL);
  if (cell.kind === "items" || cell.kind === "list") return several(cell, at, column);
  if (cell.kind === "audio") return el("div.sound", {}, waveform(at, column, 0), el("span.facts", {}, facts(cell)));
  if (cell.kind === "video") return el("div.film", {}, el("span.play", { "aria-hidden": "true" }, "▶"), el("span.facts", {}, facts(cell)));
  if (cell.kind === "array") return array(cell, at, column, 0, { isSmall: true });
  if (cell.text !== undefined) return el(`div.words.${cell.kind}`, { dir: "auto" }, cell.text, cell.length ? " …" : null);
  return small(cell, at, column);
}

/** Return the first pictures of a list, or the first picture and the first words of a document. */
function several(cell, at, column) {
  if (!cell.items.length) return el("span.null", {}, "no items");
  const pictures = cell.items.map((item, place) => [item, placeOf(item, place)]).filter(([item]) => item.kind === "image");
  const text = cell.items.find((item) => item.kind === "text"), most = cell.kind === "list" ? 4 : 1;
  if (!pictures.length && !text) return el("span.strip", {}, cell.items.slice(0, 4).map((item, place) => small(item, at, column, placeOf(item, place))));
  return el(`div.several${text && pictures.length ? ".mixed" : ""}`, {},
    pictures.length ? el(`div.pictures.of${Math.min(pictures.length, most)}`, {}, pictures.slice(0, most).map(([item, place]) => thumbnail(item, at, column, place))) : null,
    text ? el("div.words.text", { dir: "auto" }, text.text) : null);
}

/** Return a small form of a cell, for lists and captions. */
export function small(cell, at, column, item = 0) {
  if (!cell || cell.kind === "null") return el("span.null", {}, "null");
  if (cell.kind === "error") return el("span.error", { title: cell.text }, cell.text);
  if (cell.kind === "image") return thumbnail(cell, at, column, item);
  if (cell.kind === "items" || cell.kind === "list") return el("span.strip", {},
    cell.items.slice(0, 4).map((each, place) => small(each, at, column, placeOf(each, place))),
    cell.length > 4 || !cell.length ? el("span.more", {}, amount(cell.length, "item")) : null);
  if (cell.text !== undefined) {
    const label = cell.facts?.label;
    return el(`span.${cell.kind}`, { dir: "auto", title: cell.text }, label ? `${label} (${cell.text})` : cell.text);
  }
  return el("span.facts", {}, `${cell.kind} ${facts(cell)}`);
}

/** Return the whole of a cell, as one sample shows it. */
export function large(cell, at, column, item = 0) {
  switch (cell.kind) {
    case "image": return picture(cell, at, column, item, facts(cell));
    case "audio": return sound(at, column, item, facts(cell));
    case "video": return video(at, column, item, facts(cell));
    case "array": return array(cell, at, column, item);
    case "bytes": return file(cell, at, column, item);
    case "items": return document_(cell, at, column);
    case "list": return el("ol.items", { start: 0 }, cell.items.map((each, place) => el("li", {}, large(each, at, column, place))), more(cell));
    case "json": return cell.length ? el("div", {}, el("pre.json", { dir: "auto" }, cell.text), cut(cell, at, column, item)) : tree(cell.text);
    case "text": return el("div.text", { dir: "auto" }, cell.text, cell.length ? cut(cell, at, column, item) : null);
    case "error": return el("p.error", {}, cell.text);
    default: return small(cell, at, column, item);
  }
}

/** Return bytes; more than that where the field's ending names a kind of file. */
function file(cell, at, column, item) {
  const ending = column.split(".").pop().toLowerCase();
  if (ending === "npz") return array(cell, at, column, item);
  const shown = hex(at, column, item, cell.length, facts(cell));
  return ending === "svg" ? el("div", {}, drawing(at, column, item), shown) : shown;
}

/** Return a document as it would be read: its items in order, missing ones by name. */
function document_(cell, at, column) {
  return el("div.document", {}, cell.items.map((each, place) => {
    const { modality, position, source_ref: source } = each.facts;
    const name = `${modality}, position ${position ?? place}`;
    const shown = each.kind === "null" ? el("p.missing", {}, `${name}: nothing is stored`, source ? ` (${source})` : "")
      : each.kind === "error" ? el("p.error", {}, `${name}: ${each.text}`, source ? ` (${source})` : "")
      : large(each, at, column, placeOf(each, place));
    return el("section.item", { "data-position": position ?? place, "aria-label": name }, el("small.position", { title: name }, String(position ?? place)), shown);
  }), more(cell));
}

const more = (cell) => cell.length > cell.items.length ? el("p.more", {}, `${amount(cell.length - cell.items.length, "more item")} not shown`) : null;

/** Say that a text is cut, and how to get the rest: values of a table have no bytes of their own. */
const cut = (cell, at, column, item) => el("p.more", {}, `… the first ${number(cell.text.length)} of ${number(cell.length)} characters. `,
  cell.facts?.in_table ? "Read the sample in Python for the rest." : download(at, column, item));
