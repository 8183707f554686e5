// A reader of server-sent events over fetch (an EventSource cannot send the token), resumed at the last cursor.

const FIRST_RETRY_DELAY_MS = 500;
const MAX_RETRY_DELAY_MS = 5000;
const SILENCE_TIMEOUT_MS = 25000; // the server sends a heartbeat every 10 s: after this long the connection is dead

/** Follow a stream of events, with reconnects; return a function that ends it. */
export function followEvents(path, { token, onEvent, onReset, onStatus, onRejected }) {
  const ended = new AbortController();
  follow().catch((error) => onStatus(error.message));
  return () => ended.abort();

  async function follow() {
    let cursor = null;
    let retryDelay = FIRST_RETRY_DELAY_MS;
    while (!ended.signal.aborted) {
      const attempt = new AbortController();
      const abortAttempt = () => attempt.abort();
      ended.signal.addEventListener("abort", abortAttempt);
      let timer = setTimeout(abortAttempt, SILENCE_TIMEOUT_MS);
      try {
        const headers = { Authorization: `Bearer ${token()}`, Accept: "text/event-stream" };
        if (cursor) headers["Last-Event-ID"] = cursor;
        const response = await fetch(path, { headers, signal: attempt.signal, cache: "no-store" });
        if (response.status === 401 || response.status === 404) return onRejected(response.status);
        for await (const frame of readFrames(response.body)) {
          clearTimeout(timer);
          timer = setTimeout(abortAttempt, SILENCE_TIMEOUT_MS);
          retryDelay = FIRST_RETRY_DELAY_MS;
          if (frame.data === "") continue;
          const envelope = JSON.parse(frame.data);
          if (envelope.type === "reset") onReset();
          else if (envelope.type === "server_closing") onStatus("the studio is closing");
          else onEvent(envelope);
          cursor = frame.id ?? cursor;
        }
      } catch (error) {
        // A TypeError is fetch's network error: reconnect, as after an abort for silence.
        if (!ended.signal.aborted && error.name !== "AbortError" && !(error instanceof TypeError)) throw error;
      } finally {
        clearTimeout(timer);
        ended.signal.removeEventListener("abort", abortAttempt);
      }
      if (ended.signal.aborted) return;
      onStatus("reconnecting");
      await new Promise((resolve) => setTimeout(resolve, retryDelay));
      retryDelay = Math.min(retryDelay * 2, MAX_RETRY_DELAY_MS);
    }
  }
}

/** Yield `{id, data}` for each frame; `data` is "" for a comment or another frame without data. */
async function* readFrames(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  const chunks = []; // of the incomplete frame at the end
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    chunks.push(value);
    if (!value.includes("\n")) continue;
    const frames = chunks.splice(0).join("").split("\n\n");
    chunks.push(frames.pop());
    for (const frame of frames) yield parseFrame(frame);
  }
}

function parseFrame(frame) {
  const parsed = { id: undefined, data: "" };
  for (const line of frame.split("\n")) {
    if (line.startsWith("data: ")) parsed.data += line.slice(6);
    else if (line.startsWith("id: ")) parsed.id = line.slice(4);
  }
  return parsed;
}
