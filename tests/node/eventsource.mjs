// npm `eventsource` on the stream AGX_STREAM: one line `id TAB data` per message, until somebody ends this program.
import { EventSource } from "eventsource";

const authorised = (url, init) =>
  fetch(url, { ...init, headers: { ...init.headers, Authorization: `Bearer ${process.env.AGX_TOKEN}` } });

const source = new EventSource(process.env.AGX_STREAM, { fetch: authorised });
source.onmessage = ({ lastEventId, data }) => process.stdout.write(`${lastEventId}\t${data}\n`);
source.onerror = ({ code }) => {
  if (source.readyState === source.CLOSED) throw new Error(`it gave up: ${code}`);
};
