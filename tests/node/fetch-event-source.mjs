// `@microsoft/fetch-event-source` on the stream AGX_STREAM: one line `id TAB data` per message, until it is ended.
//
// Three things that it leaves to whoever uses it:
// 1. It takes the id of a frame for seen as soon as that line is there, so a connection that is cut between id and data
//    would lose the event. Its own `fetch` sends the cursor of the last message that was handled instead.
// 2. A stream that ends well, as after `server_closing`, is over for it, unless `onclose` throws.
// 3. It hands on comments and `retry` as messages without data.
import { fetchEventSource } from "@microsoft/fetch-event-source";

globalThis.window = globalThis; // what it wants of a browser
globalThis.document = { hidden: false, addEventListener() {}, removeEventListener() {} };

let cursor;
await fetchEventSource(process.env.AGX_STREAM, {
  fetch: (url, init) => fetch(url, { ...init, headers: cursor ? { ...init.headers, "last-event-id": cursor } : init.headers }),
  headers: { Authorization: `Bearer ${process.env.AGX_TOKEN}` },
  onmessage({ id, data }) {
    if (!data) return;
    process.stdout.write(`${id}\t${data}\n`);
    cursor = id || cursor;
  },
  onclose() {
    throw new Error("the stream ended; ask again");
  },
});
