// A list of any length in which only what is seen is there. Lines have one height.

const MOST = 8_000_000; // pixels: browsers cut taller elements off

/**
 * A scrolled list. `line(number)` makes the element of a line, with the class `waiting` in it where it has not come yet.
 * `scrolled(first, stop)` is told which lines are seen. A head stays above the lines.
 */
export class Virtual {
  constructor(root, height, line, scrolled = () => {}, head = null) {
    this.root = root;
    this.height = height;
    this.line = line;
    this.scrolled = scrolled;
    this.head = head;
    this.count = 0;
    this.at = 0; // pixels above the first one that is seen
    this.spacer = document.createElement("div");
    this.spacer.className = "spacer";
    this.layer = document.createElement("div");
    this.layer.className = "layer";
    root.classList.add("virtual");
    root.replaceChildren(...[head, this.layer, this.spacer].filter(Boolean));
    this.shown = new Map();
    root.addEventListener("scroll", () => this.onScroll(), { passive: true });
    root.addEventListener("wheel", (event) => this.onWheel(event), { passive: false });
    this.seen = new ResizeObserver(() => this.draw());
    this.seen.observe(root);
  }

  get total() { return this.count * this.height; }
  get room() { return this.root.clientHeight - (this.head?.offsetHeight ?? 0); }
  get isScaled() { return this.total > MOST; }

  /** Say how many lines there are. */
  setCount(count) {
    this.count = count;
    this.spacer.style.height = `${Math.min(this.total, MOST)}px`;
    this.draw();
  }

  /** Give all lines another height; the first one that is seen stays. */
  setHeight(height) {
    if (height === this.height) return;
    const first = this.at / this.height;
    this.height = height;
    this.clear();
    this.setCount(this.count);
    this.moveTo(first * height);
  }

  onScroll() {
    if (!this.isScaled) this.at = this.root.scrollTop;
    else if (Math.abs(this.root.scrollTop - this.expected()) > 1) {
      this.at = (this.root.scrollTop / (MOST - this.room)) * (this.total - this.room);
    }
    this.draw();
  }

  onWheel(event) {
    if (!this.isScaled || event.ctrlKey || event.shiftKey) return; // a wheel moves by lines, also where a pixel of the bar is many
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
  redraw() { this.clear(); this.draw(); }

  clear() { for (const number of [...this.shown.keys()]) this.drop(number); }

  /** Take a line away, and give up its pictures that have not come: those that are looked at come sooner. */
  drop(number) {
    const line = this.shown.get(number);
    for (const image of line.querySelectorAll("img")) if (!image.complete) image.removeAttribute("src");
    line.remove();
    this.shown.delete(number);
  }

  /** Make those lines anew that wait for something. */
  fill() {
    for (const [number, line] of this.shown) {
      if (line.classList.contains("waiting") || line.querySelector(".waiting")) this.drop(number);
    }
    this.draw();
  }

  draw() {
    if (this.head) this.layer.style.top = `${this.head.offsetHeight}px`;
    const first = Math.max(0, Math.floor(this.at / this.height));
    const stop = Math.min(this.count, Math.ceil((this.at + this.room) / this.height) + 1);
    for (const number of this.shown.keys()) if (number < first || number >= stop) this.drop(number);
    for (let number = stop - 1; number >= first; number -= 1) { // the later ones first: each goes before the one below it
      let line = this.shown.get(number);
      if (!line) {
        line = this.line(number);
        line.classList.add("line");
        line.style.height = `${this.height}px`;
        this.shown.set(number, line);
        this.layer.insertBefore(line, this.shown.get(number + 1) ?? null);
      }
      line.style.transform = `translateY(${number * this.height - this.at}px)`;
    }
    this.scrolled(first, stop);
  }

  close() { this.seen.disconnect(); this.clear(); }
}
