// A page of many samples keeps its place in the URL, and finds it again.

import { memory, note, state } from "./state.js";

const WAIT_MS = 250;

/** The place of a virtual list: the number of the first sample that is seen, as `at` of the URL. */
export class Place {
  constructor(across) {
    const { query, number } = state();
    this.across = across;
    this.wanted = Number(query.get("at") ?? 0); // until there are so many samples
    this.focused = memory.number ?? (number === null ? null : Number(number));
    memory.number = null;
    this.timer = null;
  }

  /** Go to the place of the URL, as soon as there are so many samples. */
  find(lines, focus, total) {
    if (!total) return;
    if (this.wanted !== null && this.wanted < total) {
      lines.moveTo(Math.floor(this.wanted / this.across()) * lines.height);
      this.wanted = null;
    }
    if (this.focused !== null && this.focused < total) {
      focus.on(this.focused);
      this.focused = null;
    }
  }

  /** Note the first line that is seen; the number of the URL goes when its sample is scrolled away. */
  keep(first, stop) {
    if (this.wanted !== null) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      const number = state().number, line = Math.floor(Number(number) / this.across());
      note({ at: first * this.across() || null, number: line >= first && line < stop ? number : null });
    }, WAIT_MS);
  }

  close() { clearTimeout(this.timer); }
}
