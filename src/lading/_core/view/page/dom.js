// Elements out of values. Text is set as text: nothing of the data becomes markup.

/** Return an element: its tag (with classes, as in "td.number"), attributes and listeners, and children. */
export function el(spec, given = {}, ...children) {
  const [tag, ...classes] = spec.split(".");
  const made = document.createElement(tag || "div");
  if (classes.length) made.className = classes.join(" ");
  for (const [name, value] of Object.entries(given)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

/** Return a number as people write it: 12,345. */
export const number = (value) => Number(value).toLocaleString("en");

/** Return a number with its noun: 1 sample, 2 samples. */
export const amount = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;

/** Return a size as people write it: 53 KB. */
export function bytes(value) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let at = 0;
  while (value >= 1000 && at < units.length - 1) { value /= 1000; at += 1; }
  return `${value >= 100 || at === 0 ? Math.round(value) : value.toFixed(1)} ${units[at]}`;
}
