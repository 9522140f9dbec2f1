// Media of one sample: pictures that are enlarged and moved, sounds with their waveform, videos, arrays, bytes.

import { ask, pictureUrl, rawUrl, thumbnailUrl } from "./api.js";
import { bytes, el } from "./dom.js";
import { isTyping } from "./keys.js";

const KNOWN = ["jpeg", "png", "gif", "webp", "bmp", "avif"], MOST_PIXELS = 100e6; // what the browser decodes itself
const PREVIEW = 1600, PEAKS = 600, HEX = 512, LEAST = 160, MOST_SCALE = 32;
const waves = new Map(), KEPT_WAVES = 500;

/** Return a link to a value's bytes. */
export const download = (at, column, item, name = "Save the bytes") => el("a", { href: rawUrl(at, column, item), download: "" }, name);

/** Return a picture with its facts, to be enlarged and moved. */
export function picture(cell, at, column, item, told) {
  const { width, height, format } = cell.facts, isWhole = KNOWN.includes(format) && width * height <= MOST_PIXELS;
  const preview = thumbnailUrl(at, column, item, PREVIEW);
  const image = el("img.whole", { src: isWhole ? rawUrl(at, column, item) : preview, alt: told, loading: "lazy", draggable: "false", onerror: failed });
  const frame = el("div.frame", { tabindex: 0, role: "group", "aria-label": `Picture ${told}; + and − enlarge it` }, image);
  const wide = Math.max(width || 0, Math.min(LEAST, 8 * width)) || LEAST;
  frame.style.aspectRatio = `${width || 1} / ${height || 1}`;
  frame.style.width = `min(100%, ${wide}px, calc(75vh * ${(width || 1) / (height || 1)}))`;
  const zoom = zoomed(frame, image, width);
  const figure = el("figure.picture", {}, frame, el("figcaption", {},
    el("span.zoom", {},
      el("button", { "aria-label": "Smaller", onclick: () => zoom.by(1 / 1.5) }, "−"), el("button", { "aria-label": "Larger", onclick: () => zoom.by(1.5) }, "+"),
      el("button", { title: "A pixel of the picture is one of the screen", onclick: () => zoom.pixels() }, "1:1"), el("button", { onclick: () => zoom.to(1) }, "Fit")),
    el("span.told", {}, told, isWhole ? "" : " (shown smaller)"), download(at, column, item)));
  if (isWhole) image.addEventListener("load", compare, { once: true });
  return figure;

  async function failed() {
    if (image.getAttribute("src") !== preview) { image.src = preview; return; }
    frame.replaceWith(el("p.error", {}, `This picture cannot be decoded: ${await refusal(preview) ?? "the browser refuses it"}`));
  }

  async function compare() { // a browser shows what it can of a damaged picture, and says nothing
    const why = image.getAttribute("src") === preview ? null : await refusal(thumbnailUrl(at, column, item));
    if (why) figure.append(el("p.error", {}, `This picture is damaged: ${why}`));
  }
}

/** Return why the server decodes no picture; null if it does. */
async function refusal(url) {
  const answer = await fetch(url).catch(() => null);
  return answer === null ? "no answer" : answer.ok ? null : words(answer);
}

/** Return the words of an answer that is an error. */
const words = async (answer) => (await answer.json().catch(() => ({}))).error ?? `the server answered ${answer.status}`;

/** Let a picture in a frame be enlarged about a point, and moved. */
function zoomed(frame, image, pixels) {
  let scale = 1, x = 0, y = 0;
  const put = () => {
    x = Math.min(0, Math.max(x, frame.clientWidth * (1 - scale)));
    y = Math.min(0, Math.max(y, frame.clientHeight * (1 - scale)));
    image.style.transform = scale === 1 ? "" : `translate(${x}px, ${y}px) scale(${scale})`;
    frame.classList.toggle("zoomed", scale > 1);
    frame.classList.toggle("pixels", (frame.clientWidth * scale) / pixels >= 2);
  };
  const to = (wanted, aroundX = frame.clientWidth / 2, aroundY = frame.clientHeight / 2) => {
    const next = Math.max(1, Math.min(wanted, MOST_SCALE));
    x = aroundX - ((aroundX - x) * next) / scale;
    y = aroundY - ((aroundY - y) * next) / scale;
    scale = next;
    put();
  };
  const at = (event) => { const box = frame.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
  const whole = () => Math.max(pixels / frame.clientWidth, 1);
  frame.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && scale === 1) return; // the page scrolls
    event.preventDefault();
    to(scale * Math.exp(-event.deltaY / 300), ...at(event));
  }, { passive: false });
  frame.addEventListener("dblclick", (event) => to(scale > 1 ? 1 : Math.max(whole(), 2), ...at(event)));
  frame.addEventListener("pointerdown", (event) => {
    if (scale === 1 || event.button) return;
    const from = [event.clientX - x, event.clientY - y];
    frame.setPointerCapture(event.pointerId);
    frame.onpointermove = (moved) => { x = moved.clientX - from[0]; y = moved.clientY - from[1]; put(); };
    frame.onpointerup = frame.onpointercancel = () => { frame.onpointermove = null; };
  });
  frame.addEventListener("keydown", (event) => {
    if (isTyping(event)) return;
    const step = frame.clientWidth / 8, moves = { ArrowLeft: [step, 0], ArrowRight: [-step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] };
    if (event.key === "+" || event.key === "=") to(scale * 1.5);
    else if (event.key === "-") to(scale / 1.5);
    else if (event.key === "0") to(1);
    else if (scale > 1 && event.key in moves) { x += moves[event.key][0]; y += moves[event.key][1]; put(); } else return;
    event.preventDefault();
  });
  return { to, by: (factor) => to(scale * factor), pixels: () => to(whole()) };
}

/** Return the waveform of a sound; where it cannot be read, why. */
export function waveform(at, column, item) {
  const made = el("div.wave", { "aria-hidden": "true" });
  peaks(at, column, item).then(({ peaks: found, error }) => {
    if (error || !found?.length) { made.replaceWith(el("p.error", {}, error ?? "an empty sound")); return; }
    made.append(drawn(found));
  }, (error) => made.replaceWith(el("p.error", {}, error.message)));
  return made;
}

function peaks(at, column, item) {
  const url = rawUrl(at, column, item);
  if (!waves.has(url)) {
    if (waves.size >= KEPT_WAVES) waves.delete(waves.keys().next().value);
    waves.set(url, ask("waveform", { number: at, column, item, size: PEAKS }));
  }
  return waves.get(url);
}

function drawn(found) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", "svg"), path = document.createElementNS(made.namespaceURI, "path");
  const most = Math.max(...found, 0.001);
  made.setAttribute("viewBox", `0 -1 ${found.length} 2`);
  made.setAttribute("preserveAspectRatio", "none");
  path.setAttribute("d", found.map((peak, place) => { const high = Math.max(peak / most, 0.01); return `M${place} ${-high}h.8V${high}h-.8z`; }).join(""));
  made.append(path);
  return made;
}

/** Return a sound: a player, and a waveform in which a click plays from there. */
export function sound(at, column, item, told) {
  const player = el("audio", { controls: true, preload: "metadata", src: rawUrl(at, column, item),
    onerror: () => player.replaceWith(el("p.missing", {}, "The browser cannot play this sound.")) });
  const played = el("div.played"), wave = el("div.waves", {}, waveform(at, column, item), played);
  wave.addEventListener("click", (event) => {
    if (!Number.isFinite(player.duration)) return;
    player.currentTime = (event.offsetX / wave.clientWidth) * player.duration;
    player.play().catch(() => {}); // the player itself says so
  });
  player.addEventListener("timeupdate", () => { played.style.width = `${(100 * player.currentTime) / (player.duration || 1)}%`; });
  return el("figure.sound", {}, wave, player, el("figcaption", {}, el("span.told", {}, told), download(at, column, item)));
}

/** Return a video with the browser's player; one of its frames where the browser cannot play it. */
export function video(at, column, item, told) {
  const words = el("p.missing", {}, "The browser cannot play this video.");
  const still = () => el("img.whole", { src: pictureUrl("poster", at, column, item, PREVIEW), alt: "a frame of the video", onerror: (event) => event.target.remove() });
  const player = el("video", { controls: true, preload: "metadata", src: rawUrl(at, column, item),
    onerror: () => player.replaceWith(still(), words) });
  return el("figure.video", {}, player, el("figcaption", {}, el("span.told", {}, told), download(at, column, item)));
}

/** Return a button that shows SVG as a picture: it runs nothing, but a hostile one may keep the browser busy. */
export function drawing(at, column, item) {
  const failed = (event) => event.target.replaceWith(el("p.missing", {}, "The browser cannot show this picture."));
  const show = () => el("img.whole", { src: `${rawUrl(at, column, item)}&as=svg`, alt: "the SVG as a picture", onerror: failed });
  return el("p", {}, el("button", { onclick: (event) => event.target.replaceWith(show()) }, "Show as a picture"));
}

/** Return an array: its type, shape and range, and a picture of two dimensions. */
export function array(cell, at, column, item, { isSmall = false } = {}) {
  const place = { number: at, column, item }, made = el(`figure.array${isSmall ? ".small" : ""}`, {}, el("p.facts", {}, cell.length === undefined ? "array" : `array, ${bytes(cell.length)}`));
  ask("array", { ...place, size: isSmall ? 256 : 800 }).then((found) => {
    const words = found.error ? el("p.error", {}, found.error) : found.arrays ? el("ul.facts", {}, found.arrays.map((each) =>
      el("li", {}, `${each.name}: ${each.dtype} ${each.shape.join("×") || "scalar"}`))) : el("p.facts", {}, `${found.dtype} ${found.shape.join("×") || "scalar"}`,
      found.min === undefined ? "" : `, from ${found.min} to ${found.max}`,
      found.why ? `; ${found.why}` : "");
    const image = found.mime ? el("img.plane", { alt: `the array as a picture`, src: pictureUrl("array", at, column, item, isSmall ? 256 : 800) }) : null;
    const values = found.first && !(isSmall && image) ? el("pre.values", {}, found.first.join("  "), found.shape.reduce((all, each) => all * each, 1) > found.first.length ? "  …" : "") : null;
    made.replaceChildren(...[image, words, values, isSmall ? null : download(at, column, item)].filter(Boolean));
  }, (error) => made.replaceChildren(el("p.error", {}, error.message)));
  return made;
}

/** Return the first bytes as numbers and letters. */
export function hex(at, column, item, length, told) {
  const shown = el("pre.hex", { "aria-label": "The first bytes" }, length === 0 ? "" : "…");
  const made = el("figure.bytes", {}, shown, el("figcaption", {},
    el("span.told", {}, length > HEX ? `the first ${HEX} of ${told}` : told), download(at, column, item)));
  if (length !== 0) fetch(rawUrl(at, column, item), { headers: { Range: `bytes=0-${HEX - 1}` } }).then(async (answer) => {
    if (!answer.ok) { shown.replaceWith(el("p.error", {}, await words(answer))); return; }
    const data = new Uint8Array(await answer.arrayBuffer()).slice(0, HEX), lines = [];
    for (let start = 0; start < data.length; start += 16) {
      const part = [...data.slice(start, start + 16)];
      lines.push([start.toString(16).padStart(4, "0"), part.map((each) => each.toString(16).padStart(2, "0")).join(" ").padEnd(47),
        part.map((each) => (each >= 32 && each < 127 ? String.fromCharCode(each) : "·")).join("")].join("  "));
    }
    shown.textContent = lines.join("\n");
  }, (error) => shown.replaceWith(el("p.error", {}, error.message)));
  return made;
}
