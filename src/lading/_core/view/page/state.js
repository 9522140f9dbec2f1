// The state of the page is its URL: it can be sent, kept, and gone back to.

/** The parts of the URL that say which samples are shown. */
export const CHOOSING = ["where", "sample", "sort", "shuffle", "seed", "marked"];
const listeners = new Set();

/** What pages tell each other: the number of the sample that was shown last. */
export const memory = { number: null };

/** Return what the URL says: the page, the selection, the columns. */
export function state() {
  const query = new URLSearchParams(location.search);
  return { page: query.get("page") || "grid", number: query.get("number"), query };
}

/** Return the query of the selection alone, with more parameters for a request. */
export function asked(more = {}) {
  const query = new URLSearchParams(location.search), found = new URLSearchParams();
  for (const name of CHOOSING) if (query.get(name)) found.set(name, query.get(name));
  return changed(found, more).toString();
}

/** Return the URL of this page with changes; null takes a part away. */
const linked = (changes) => `${location.pathname}?${changed(new URLSearchParams(location.search), changes)}`;

/** Return the attributes of a link that changes parts of the URL. */
export const goes = (changes) => ({ href: linked(changes), onclick: (event) => {
  if (event.ctrlKey || event.metaKey || event.shiftKey) return; // the browser opens it elsewhere
  event.preventDefault();
  go(changes);
} });

/** Return the attributes of a link to a sample. */
export const opens = (number) => ({ ...goes({ page: "sample", number }), "data-number": number });

/** Return the column that the URL sorts by, empty for none, and the way: asc or desc. */
export function sorted() {
  const [, by, way] = /^(.*?)(?::(asc|desc))?$/s.exec(state().query.get("sort") ?? "");
  return { by, way: way ?? "asc" };
}

/** Change parts of the URL; null takes a part away. All that listen are told. Another selection begins at its start. */
export function go(changes, { replace = false } = {}) {
  const starts = Object.keys(changes).some((name) => CHOOSING.includes(name)) ? { at: null, number: null } : {};
  const url = linked({ ...starts, ...changes });
  if (url === location.pathname + location.search) return;
  if (replace) history.replaceState(history.state, "", url);
  else history.pushState({ inside: true }, "", url);
  listeners.forEach((listener) => listener());
}

/** Change parts of the URL and tell nobody: they say where one is on a page. */
export function note(changes) { history.replaceState(history.state, "", linked(changes)); }

/** Go back to where one was; where this page was opened first, change the URL instead. */
export function back(otherwise) {
  if (history.state?.inside) history.back();
  else go(otherwise);
}

/** Call a function whenever the URL changes. */
export function onChange(listener) { listeners.add(listener); }

function changed(query, changes) {
  for (const [name, value] of Object.entries(changes)) {
    query.delete(name);
    for (const each of [value].flat()) if (each !== null && each !== undefined && each !== "") query.append(name, each);
  }
  return query;
}

addEventListener("popstate", () => listeners.forEach((listener) => listener()));
