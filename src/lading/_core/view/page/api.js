// Questions to the server. An answer that is an error becomes an Error with the server's words.

import { asked } from "./state.js";

let run = null; // of the server: a later one at this port may show other data

/** Return the server's answer about the selection. */
export async function ask(name, more = {}, signal = undefined) {
  const answer = await answered(`/api/${name}?${asked(more)}`, { signal });
  if (name === "dataset") run = answer.run;
  return answer;
}

/** Tell the server something to keep, and return its answer. */
export const tell = (name, said) => answered(`/api/${name}?${new URLSearchParams(said)}`, { method: "POST", keepalive: true });

async function answered(url, options) {
  let response;
  try { response = await fetch(url, options); } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("the server does not answer: start it again, and open the URL that it prints");
  }
  const answer = await response.json().catch((error) => {
    throw error.name === "AbortError" ? error : new Error(`the server answered ${response.status}`);
  });
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

/** Return the URL of a value's bytes. */
export const rawUrl = (number, column, item = 0) => `/raw?${asked({ number, column, item, run })}`;

/** Return the URL of a picture of a value: a thumbnail, a poster of a video, an array. */
export const pictureUrl = (what, number, column, item = 0, size = 256) =>
  `/picture/${what}?${asked({ number, column, item, size, run })}`;

/** Return the URL of a value's thumbnail. */
export const thumbnailUrl = (number, column, item = 0, size = 256) => pictureUrl("thumbnail", number, column, item, size);
