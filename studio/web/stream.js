// Server-sent events over fetch (an EventSource cannot send the token), resumed by the last cursor seen.

const LONGEST_WAIT = 5000;
const QUIET = 25000; // a heartbeat comes every 10 s: longer silence is a dead connection

/** Follow a stream until the returned function is called. */
export function followEvents(path, { token, event, reset, status, refused }) {
  const leaving = new AbortController();
  follow().catch((error) => status(error.message));
  return () => leaving.abort();

  async function follow() {
    let cursor = null;
    let wait = 500;
    while (!leaving.signal.aborted) {
      const attempt = new AbortController();
      const give_up = () => attempt.abort();
      leaving.signal.addEventListener("abort", give_up);
      let alarm = setTimeout(give_up, QUIET);
      try {
        const headers = { Authorization: `Bearer ${token()}`, Accept: "text/event-stream" };
        if (cursor) headers["Last-Event-ID"] = cursor;
        const answer = await fetch(path, { headers, signal: attempt.signal, cache: "no-store" });
        if (answer.status === 401 || answer.status === 404) return refused(answer.status);
        for await (const frame of framesOf(answer.body)) {
          clearTimeout(alarm);
          alarm = setTimeout(give_up, QUIET);
          wait = 500;
          if (frame.data === "") continue;
          const envelope = JSON.parse(frame.data);
          if (envelope.type === "reset") reset();
          else if (envelope.type === "server_closing") status("the studio is closing");
          else event(envelope);
          cursor = frame.id ?? cursor;
        }
      } catch (error) {
        if (!leaving.signal.aborted && error.name !== "AbortError" && !(error instanceof TypeError)) throw error;
      } finally {
        clearTimeout(alarm);
        leaving.signal.removeEventListener("abort", give_up);
      }
      if (leaving.signal.aborted) return;
      status("reconnecting");
      await new Promise((resume) => setTimeout(resume, wait));
      wait = Math.min(wait * 2, LONGEST_WAIT);
    }
  }
}

/** `{id, data}` of each frame; a comment or another frame without data has the data "". */
async function* framesOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  const parts = []; // of the frame that has not ended yet
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    parts.push(value);
    if (!value.includes("\n")) continue;
    const frames = parts.splice(0).join("").split("\n\n");
    parts.push(frames.pop());
    for (const frame of frames) yield parse(frame);
  }
}

function parse(frame) {
  const parsed = { id: undefined, data: "" };
  for (const line of frame.split("\n")) {
    if (line.startsWith("data: ")) parsed.data += line.slice(6);
    else if (line.startsWith("id: ")) parsed.id = line.slice(4);
  }
  return parsed;
}
