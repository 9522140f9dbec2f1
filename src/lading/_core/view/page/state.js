// The state of the page is its URL: it can be sent, kept, and gone back to.

const CHOOSING = ["where", "sample", "sort", "shuffle", "seed"];
const listeners = new Set();

/** Return what the URL says: the page, the selection, the columns. */
export function state() {
  const query = new URLSearchParams(location.search);
  return { page: query.get("page") || "grid", number: query.get("number"), query };
}

/** Return the query of the selection alone, with more parameters for a request. */
export function asked(more = {}) {
  const query = new URLSearchParams(location.search), found = new URLSearchParams();
  for (const name of CHOOSING) if (query.get(name)) found.set(name, query.get(name));
  for (const [name, value] of Object.entries(more))
    for (const each of [value].flat()) if (each !== null && each !== undefined) found.append(name, each);
  return found.toString();
}

/** Change parts of the URL; null takes a part away. All that listen are told. */
export function go(changes, { replace = false } = {}) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    query.delete(name);
    for (const each of [value].flat()) if (each !== null && each !== undefined && each !== "") query.append(name, each);
  }
  const url = `${location.pathname}?${query}`;
  if (url === location.pathname + location.search) return;
  history[replace ? "replaceState" : "pushState"](null, "", url);
  listeners.forEach((listener) => listener());
}

/** Call a function whenever the URL changes. */
export function onChange(listener) { listeners.add(listener); }

addEventListener("popstate", () => listeners.forEach((listener) => listener()));
