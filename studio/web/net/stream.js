// @ts-check
// A reader of server-sent events over fetch (an EventSource cannot send the token), resumed at the last cursor.

import { doubtStudio, fetchWithToken, signOut, signedIn } from "./api.js";

const FIRST_RETRY_DELAY_MS = 500;
const MAX_RETRY_DELAY_MS = 5000;
const SILENCE_TIMEOUT_MS = 25000; // the server sends a heartbeat every 10 s: after this long the connection is dead

/**
 * Follow a stream of events, with reconnects, until `signal` is aborted.
 *
 * `onEvents(envelopes, cursor)` gets the events of one chunk and the cursor behind them, `onReset()` says that the
 * stream begins anew, `onOpen()` that bytes arrive again, `onDown()` that they do not, `onClosing(reason)` that the
 * studio ends, `onGone()` that there is no such stream.
 * @param {string} path
 * @param {{cursor?: string|null, signal: AbortSignal, onEvents: (envelopes: any[], cursor: string|null) => void,
 *   onReset: () => void, onOpen: () => void, onDown: () => void, onClosing: (reason?: string) => void,
 *   onGone: () => void}} options
 */
export async function followEvents(path, { cursor = null, signal, ...on }) {
  let retryDelay = FIRST_RETRY_DELAY_MS;
  while (!signal.aborted) {
    const attempt = new AbortController();
    const abortAttempt = () => attempt.abort();
    signal.addEventListener("abort", abortAttempt);
    let timer = setTimeout(abortAttempt, SILENCE_TIMEOUT_MS);
    try {
      /** @type {Record<string, string>} */
      const headers = { Accept: "text/event-stream" };
      if (cursor) headers["Last-Event-ID"] = cursor;
      const response = await fetchWithToken(path, { headers, signal: attempt.signal, cache: "no-store" });
      if (response.status === 401) return signOut("This tab's token is not valid: the studio was restarted with another one.");
      if (response.status === 404) return on.onGone();
      if (response.ok && response.body) {
        for await (const frames of readFrames(response.body)) {
          clearTimeout(timer);
          timer = setTimeout(abortAttempt, SILENCE_TIMEOUT_MS);
          retryDelay = FIRST_RETRY_DELAY_MS;
          if (signal.aborted) return;
          on.onOpen();
          cursor = takeFrames(frames, cursor, on);
        }
      }
    } catch (error) {
      // A TypeError is fetch's network error: reconnect, as after an abort for silence.
      const isCut = error instanceof TypeError || (error instanceof DOMException && error.name === "AbortError");
      if (!signal.aborted && !isCut) throw error;
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", abortAttempt);
    }
    if (signal.aborted || signedIn.peek() === "out") return;
    doubtStudio();
    on.onDown();
    await sleep(retryDelay, signal);
    retryDelay = Math.min(retryDelay * 2, MAX_RETRY_DELAY_MS);
  }
}

/**
 * Deliver the events of some frames in order; return the cursor behind them.
 * @param {{id?: string, data: string}[]} frames @param {string|null} cursor @param {any} on
 */
function takeFrames(frames, cursor, on) {
  /** @type {any[]} */
  let envelopes = [];
  const deliver = () => {
    if (envelopes.length) on.onEvents(envelopes, cursor);
    envelopes = [];
  };
  for (const { id, data } of frames) {
    const envelope = data === "" ? null : JSON.parse(data);
    if (envelope?.type === "reset") {
      deliver();
      on.onReset();
    } else if (envelope?.type === "server_closing") on.onClosing(envelope.data?.reason);
    else if (envelope) envelopes.push(envelope);
    cursor = id ?? cursor;
  }
  deliver();
  return cursor;
}

/** Yield `{id, data}` of the frames of each chunk; `data` is "" for a comment or another frame without data. */
async function* readFrames(/** @type {ReadableStream<Uint8Array>} */ body) {
  const reader = body.pipeThrough(/** @type {ReadableWritablePair<string, Uint8Array>} */ (new TextDecoderStream())).getReader();
  const chunks = []; // of the incomplete frame at the end
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    chunks.push(value);
    if (!value.includes("\n")) continue;
    const frames = chunks.splice(0).join("").split("\n\n");
    chunks.push(frames.pop() ?? "");
    yield frames.map(parseFrame);
  }
}

function parseFrame(/** @type {string} */ frame) {
  /** @type {{id: string|undefined, data: string}} */
  const parsed = { id: undefined, data: "" };
  for (const line of frame.split("\n")) {
    if (line.startsWith("data: ")) parsed.data += line.slice(6);
    else if (line.startsWith("id: ")) parsed.id = line.slice(4);
  }
  return parsed;
}

/** @param {number} milliseconds @param {AbortSignal} signal */
function sleep(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(end, milliseconds);
    function end() {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      resolve(undefined);
    }
    signal.addEventListener("abort", end);
  });
}
