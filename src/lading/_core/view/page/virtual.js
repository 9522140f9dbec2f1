// A list of any length in which only what is seen is there. Lines have one height.

const MOST = 8_000_000; // pixels: browsers cut taller elements off

/** A scrolled list. `line(number)` makes the element of a line. */
export class Virtual {
  constructor(root, height, line, scrolled = () => {}) {
    this.root = root;
    this.height = height;
    this.line = line;
    this.scrolled = scrolled;
    this.count = 0;
    this.at = 0; // pixels above the first one that is seen
    this.spacer = document.createElement("div");
    this.layer = document.createElement("div");
    this.layer.className = "layer";
    root.classList.add("virtual");
    root.replaceChildren(this.layer, this.spacer);
    this.shown = new Map();
    root.addEventListener("scroll", () => this.onScroll(), { passive: true });
    root.addEventListener("wheel", (event) => this.onWheel(event), { passive: false });
    this.seen = new ResizeObserver(() => this.draw());
    this.seen.observe(root);
  }

  get total() { return this.count * this.height; }
  get room() { return this.root.clientHeight; }
  get isScaled() { return this.total > MOST; }

  /** Say how many lines there are. */
  setCount(count) {
    this.count = count;
    this.spacer.style.height = `${Math.min(this.total, MOST)}px`;
    this.draw();
  }

  onScroll() {
    if (!this.isScaled) this.at = this.root.scrollTop;
    else if (Math.abs(this.root.scrollTop - this.expected()) > 1) {
      this.at = (this.root.scrollTop / (MOST - this.room)) * (this.total - this.room);
    }
    this.draw();
  }

  onWheel(event) {
    if (!this.isScaled || event.ctrlKey) return; // a wheel moves by lines, also where a pixel of the bar is many
    event.preventDefault();
    this.moveTo(this.at + event.deltaY * (event.deltaMode ? this.height : 1));
  }

  expected() { return (this.at / (this.total - this.room)) * (MOST - this.room); }

  moveTo(at) {
    this.at = Math.max(0, Math.min(at, this.total - this.room));
    this.root.scrollTop = this.isScaled ? this.expected() : this.at;
    this.draw();
  }

  /** Scroll so that a line is seen. */
  reveal(number) {
    const top = number * this.height;
    if (top < this.at) this.moveTo(top);
    else if (top + this.height > this.at + this.room) this.moveTo(top + this.height - this.room);
  }

  /** Make all lines anew. */
  redraw() { this.shown.clear(); this.layer.replaceChildren(); this.draw(); }

  draw() {
    const first = Math.max(0, Math.floor(this.at / this.height));
    const stop = Math.min(this.count, Math.ceil((this.at + this.room) / this.height) + 1);
    for (const [number, line] of this.shown) if (number < first || number >= stop) { line.remove(); this.shown.delete(number); }
    for (let number = first; number < stop; number += 1) {
      let line = this.shown.get(number);
      if (!line) {
        line = this.line(number);
        line.classList.add("line");
        line.style.height = `${this.height}px`;
        this.shown.set(number, line);
        this.layer.append(line);
      }
      line.style.transform = `translateY(${number * this.height - this.at}px)`;
    }
    this.scrolled(first, stop);
  }

  close() { this.seen.disconnect(); }
}
