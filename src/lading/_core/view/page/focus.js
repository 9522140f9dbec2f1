// The keys that move among samples in the grid and the list.

import { isTyping } from "./keys.js";

/**
 * Move the focus among elements with `data-number` of a virtual list.
 *
 * `across()` is the number of samples in a line, `total()` that of all.
 */
export class Focus {
  constructor(lines, across, total) {
    this.lines = lines;
    this.across = across;
    this.total = total;
    this.number = null;
    this.onKey = (event) => this.key(event);
    this.onFocus = (event) => {
      const holder = event.target.closest("[data-number]");
      if (holder) this.number = Number(holder.dataset.number);
    };
    addEventListener("keydown", this.onKey);
    lines.root.addEventListener("focusin", this.onFocus);
  }

  /** Show a sample, and give it the focus. */
  on(number) {
    if (!this.total()) return;
    this.number = Math.max(0, Math.min(number, this.total() - 1));
    this.lines.reveal(Math.floor(this.number / this.across()));
    this.lines.root.querySelector(`[data-number="${this.number}"]`)?.focus({ preventScroll: true });
  }

  /** Give the focus back to a sample whose element was made anew. */
  restore() {
    if (this.number === null || document.activeElement !== document.body) return;
    this.lines.root.querySelector(`[data-number="${this.number}"]`)?.focus({ preventScroll: true });
  }

  key(event) {
    if (isTyping(event)) return;
    const across = this.across(), page = across * Math.max(1, Math.floor(this.lines.room / this.lines.height));
    const steps = { j: 1, ArrowDown: across, ArrowUp: -across, PageDown: page, PageUp: -page,
      Home: -Infinity, End: Infinity, ...(across > 1 ? { ArrowRight: 1, ArrowLeft: -1 } : {}) };
    if (!(event.key in steps)) return;
    event.preventDefault();
    const first = Math.ceil(this.lines.at / this.lines.height) * across;
    this.on(this.number === null && Number.isFinite(steps[event.key]) ? first : (this.number ?? 0) + steps[event.key]);
  }

  close() { removeEventListener("keydown", this.onKey); }
}
