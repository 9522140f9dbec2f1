// Work of the server that takes long: how far it is, and what it found.

import { ask } from "./api.js";
import { amount, bytes, el, number } from "./dom.js";

const POLL_MS = 400;

/** Return a function that asks the server, and goes on asking while work is running. */
export function follow(name, signal, draw) {
  let newest = 0;
  return async function next(more) {
    const mine = newest += 1;
    for (let given = more; ; given = {}) {
      let state;
      try { state = await ask(name, given, signal); } catch (error) {
        if (signal.aborted) return null;
        state = { error: error.message, running: false, depth: "", decoded: null };
      }
      if (signal.aborted || mine !== newest) return null;
      draw(state);
      if (!state.running) return state;
      await new Promise((done) => setTimeout(done, POLL_MS));
      if (signal.aborted || mine !== newest) return null;
    }
  };
}

/** Return a bar, and words, that say how far work is. */
export function progress(state) {
  const { shards = 0, all_shards: all = 0, samples = 0, bytes: size = 0, phase = "", share = null } = state.progress ?? {};
  const words = [phase, all > 1 && `${number(shards)} of ${amount(all, "shard")}`, samples && amount(samples, "sample"), size && bytes(size)];
  return el("p.progress", {}, el("progress", { max: 1, value: share, "aria-label": "Progress" }), " ",
    words.filter(Boolean).join(", ") || "starting …");
}
