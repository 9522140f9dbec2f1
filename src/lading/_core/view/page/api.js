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

/** Return the name and the bytes of a file that the server makes. */
export async function fileOf(url) {
  const response = await fetched(url, {});
  return { name: response.headers.get("Content-Disposition").match(/filename="(.*)"/)[1], file: await response.blob() };
}

const answered = async (url, options) => asJson(await fetched(url, options));

async function fetched(url, options) {
  let response;
  try { response = await fetch(url, options); } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("the server does not answer: start it again, and open the URL that it prints");
  }
  if (!response.ok) throw new Error((await asJson(response)).error);
  return response;
}

async function asJson(response) {
  try { return await response.json(); } catch (error) {
    throw error.name === "AbortError" ? error : new Error(`the server answered ${response.status}`);
  }
}

/** Return the URL of a value's bytes. */
export const rawUrl = (number, column, item = 0) => `/raw?${asked({ number, column, item, run })}`;

/** Return the URL of a picture of a value: a thumbnail, a poster of a video, an array. */
export const pictureUrl = (what, number, column, item = 0, size = 256) =>
  `/picture/${what}?${asked({ number, column, item, size, run })}`;

/** Return the URL of a value's thumbnail. */
export const thumbnailUrl = (number, column, item = 0, size = 256) => pictureUrl("thumbnail", number, column, item, size);
