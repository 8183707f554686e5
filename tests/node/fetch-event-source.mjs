// A reader of the stream AGX_STREAM with `@microsoft/fetch-event-source`: prints `id TAB data` per message.
//
// Three things that the library leaves to its caller:
// 1. It counts a frame as received as soon as its id line has arrived: if the connection fails between id and data, the
//    event would be lost. So `fetchFromCursor` sends the cursor of the last message that was handled, or none before
//    the first one, instead of the library's own header.
// 2. It does not reconnect after a stream that ends normally, as after `server_closing`, unless `onclose` throws.
// 3. It passes comments and `retry` to `onmessage`, as messages without data.
import { fetchEventSource } from "@microsoft/fetch-event-source";

globalThis.window = globalThis; // the browser globals that the library uses
globalThis.document = { hidden: false, addEventListener() {}, removeEventListener() {} };

let cursor;
const fetchFromCursor = (url, init) => {
  const { "last-event-id": _, ...headers } = init.headers;
  return fetch(url, { ...init, headers: cursor ? { ...headers, "last-event-id": cursor } : headers });
};
await fetchEventSource(process.env.AGX_STREAM, {
  fetch: fetchFromCursor,
  headers: { Authorization: `Bearer ${process.env.AGX_TOKEN}` },
  onmessage({ id, data }) {
    if (!data) return;
    process.stdout.write(`${id}\t${data}\n`);
    cursor = id || cursor;
  },
  onclose() {
    throw new Error("the stream ended; reconnect");
  },
});
