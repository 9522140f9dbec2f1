// Rows of the selection by number, fetched in blocks and kept. Only what is seen is asked for, when scrolling pauses.

import { ask } from "./api.js";

const BLOCK = 12, TOGETHER = 10, KEPT = 200; // rows of a block, blocks of a request, blocks that stay
const PAUSE_MS = 60, MOST_MS = 240;

/** Rows by number. `told` is called whenever some have come. */
export class Chunks {
  constructor(columns, told) {
    this.columns = columns;
    this.told = told;
    this.known = new Map(); // block → {rows, error, isWhole}, the newest one at the end
    this.coming = new Map(); // block → the request that will bring it
    this.wanted = new Set(); // blocks to ask for
    this.seen = null; // first and last block that are seen, if somebody says so
    this.end = Infinity; // the number behind the last row, once it is known
    this.timer = this.since = null;
  }

  /** Return a row, {error}, or null where it has not come yet. */
  row(number) {
    const block = Math.floor(number / BLOCK), found = this.known.get(block);
    if (!found?.isWhole) this.want(block);
    const row = found?.rows[number - block * BLOCK];
    return row ?? (found?.error ? { error: found.error } : null);
  }

  /** Why there are no rows at all; null if there are some, or none has come yet. */
  get failure() {
    const first = this.known.get(0);
    return first && !first.rows.length ? first.error ?? null : null;
  }

  /** Return whether some row that is here is so. */
  some(isSo) { return [...this.known.values()].some(({ rows }) => rows.some(isSo)); }

  /** Ask for more columns: all rows come anew. */
  add(columns) {
    for (const request of new Set(this.coming.values())) this.giveUp(request);
    this.columns = [...this.columns, ...columns];
    this.known.clear();
  }

  /** Say which rows are seen: requests for others alone are given up. */
  see(first, stop) {
    this.seen = [Math.floor(first / BLOCK), Math.floor((stop - 1) / BLOCK)];
    for (const request of new Set(this.coming.values()))
      if (request.last < this.seen[0] || request.first > this.seen[1]) this.giveUp(request);
    for (let block = this.seen[0]; block <= this.seen[1]; block += 1) if (!this.known.get(block)?.isWhole) this.want(block);
  }

  want(block) {
    if (this.coming.has(block) || block * BLOCK >= this.end) return;
    this.wanted.add(block);
    // The first rows are asked for at once. While somebody scrolls, a pause shows what is looked at.
    const now = performance.now();
    this.since ??= now;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.fetch(), this.known.size ? Math.max(0, Math.min(PAUSE_MS, this.since + MOST_MS - now)) : 0);
  }

  fetch() {
    this.since = null;
    const [first, last] = this.seen ?? [0, Infinity];
    const blocks = [...this.wanted].filter((block) => block >= first && block <= last).sort((one, other) => one - other);
    this.wanted.clear();
    for (let at = 0; at < blocks.length;) {
      let stop = at + 1;
      while (stop < blocks.length && stop - at < TOGETHER && blocks[stop] === blocks[stop - 1] + 1) stop += 1;
      this.request(blocks[at], blocks[stop - 1]);
      at = stop;
    }
  }

  async request(first, last) {
    const request = { first, last, stop: new AbortController() }, start = first * BLOCK;
    for (let block = first; block <= last; block += 1) this.coming.set(block, request);
    let answer;
    try {
      answer = await ask("rows", { start, stop: (last + 1) * BLOCK, column: this.columns }, request.stop.signal);
    } catch (error) { answer = { rows: [], error: error.message, is_whole: true }; }
    if (request.stop.signal.aborted) return;
    this.settle(request);
    if (answer.is_last) this.end = start + answer.rows.length;
    for (let block = first; block <= last; block += 1) {
      const rows = answer.rows.slice((block - first) * BLOCK, (block - first + 1) * BLOCK);
      const isWhole = answer.is_whole || Boolean(answer.error) || rows.length === BLOCK;
      this.known.delete(block);
      this.known.set(block, { rows, error: answer.error, isWhole });
    }
    for (const block of this.known.keys()) {
      if (this.known.size <= KEPT) break;
      this.known.delete(block);
    }
    this.told(); // lines that still wait ask again
  }

  giveUp(request) { request.stop.abort(); this.settle(request); }

  settle(request) {
    for (let block = request.first; block <= request.last; block += 1)
      if (this.coming.get(block) === request) this.coming.delete(block);
  }

  close() {
    clearTimeout(this.timer);
    for (const request of new Set(this.coming.values())) this.giveUp(request);
  }
}
