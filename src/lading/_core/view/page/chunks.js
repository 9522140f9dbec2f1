// Rows of the selection by number, fetched in chunks and kept.

import { ask } from "./api.js";

const CHUNK = 60, KEPT = 40;

/** Rows by number. `told` is called whenever some have come. */
export class Chunks {
  constructor(columns, told) {
    this.columns = columns;
    this.told = told;
    this.known = new Map(); // chunk → {rows, error} or a promise of them
    this.stop = new AbortController();
    this.end = Infinity; // the number behind the last row, once it is known
  }

  /** Return a row, {error}, or null where it has not come yet. */
  row(number) {
    const chunk = Math.floor(number / CHUNK), found = this.known.get(chunk);
    if (!found) { this.fetch(chunk); return null; }
    if (found instanceof Promise) return null;
    return found.error ? found : found.rows[number - chunk * CHUNK] ?? null;
  }

  fetch(chunk) {
    const start = chunk * CHUNK;
    const coming = ask("rows", { start, stop: start + CHUNK, column: this.columns }, this.stop.signal).then(
      (answer) => { if (answer.is_last) this.end = start + answer.rows.length; return answer; },
      (error) => ({ error: error.message, rows: [] }),
    );
    this.known.set(chunk, coming);
    coming.then((answer) => {
      if (this.stop.signal.aborted) return;
      this.known.delete(chunk); // the newest come last
      this.known.set(chunk, answer);
      if (this.known.size > KEPT) this.known.delete(this.known.keys().next().value);
      this.told();
    });
  }

  close() { this.stop.abort(); }
}
