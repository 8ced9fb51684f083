// The stream of server-sent events.
//
// It is read with fetch instead of EventSource, which cannot send a token. A stream that ends without an error is opened
// again at once, because the server ends it after some minutes to check the permissions again.

const SILENCE = 40_000; // the server sends something every 15 s; after this time the connection is considered dead
const FIRST_DELAY = 1_000;
const LAST_DELAY = 30_000;

/** The server refused the token; `message` is its reason. */
export class Refused extends Error {}

/** Splits the text of a stream into events, whose data is JSON. */
export class Parser {
  #buffer = "";

  /** Returns the complete events of `text` and of what was received before. */
  push(text) {
    this.#buffer += text;
    const blocks = this.#buffer.split("\n\n");
    this.#buffer = blocks.pop();
    return blocks.map(parse).filter(Boolean);
  }
}

const parse = (block) => {
  let name = "message";
  let data = "";
  for (const line of block.split("\n")) {
    if (line.startsWith("event: ")) name = line.slice(7);
    else if (line.startsWith("data: ")) data += line.slice(6);
  }
  return data ? { name, data: JSON.parse(data) } : null;
};

/**
 * Reads the stream at `url` until the page is closed.
 *
 * `token` returns the bearer token, or an empty string; `onEvent(name, data)` is called for each event, and
 * `onState(state, details)` with "live", "lost" (and the seconds until the next attempt), or "refused" (and the reason),
 * after which nothing more is attempted until the returned function is called.
 */
export const follow = (url, { token, onEvent, onState }) => {
  let wake = () => {};
  const run = async () => {
    let delay = FIRST_DELAY;
    for (;;) {
      let seen = false;
      try {
        await read(url, token(), (name, data) => {
          if (!seen) { seen = true; delay = FIRST_DELAY; onState("live"); }
          onEvent(name, data);
        });
        if (seen) continue;
      } catch (error) {
        if (error instanceof Refused) {
          onState("refused", error.message);
          await new Promise((resolve) => { wake = resolve; });
          continue;
        }
      }
      const wait = delay * (0.75 + Math.random() / 2);
      delay = Math.min(2 * delay, LAST_DELAY);
      onState("lost", Math.ceil(wait / 1000));
      await new Promise((resolve) => { wake = resolve; setTimeout(resolve, wait); });
    }
  };
  run();
  return () => wake();
};

const read = async (url, token, onEvent) => {
  const abort = new AbortController();
  let watchdog = setTimeout(() => abort.abort(), SILENCE);
  try {
    const headers = token ? { Authorization: `Bearer ${token}` } : {};
    const response = await fetch(url, { headers, signal: abort.signal, cache: "no-store", credentials: "same-origin" });
    if (response.status === 401 || response.status === 403) throw new Refused((await response.text()).trim());
    if (!response.ok) throw new Error(`HTTP ${response.status}`);
    const parser = new Parser();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(watchdog);
      watchdog = setTimeout(() => abort.abort(), SILENCE);
      for (const { name, data } of parser.push(value)) onEvent(name, data);
    }
  } finally {
    clearTimeout(watchdog);
    abort.abort();
  }
};
