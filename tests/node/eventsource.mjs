// A reader of the stream AGX_STREAM with npm `eventsource`: prints `id TAB data` per message until it is terminated.
import { EventSource } from "eventsource";

const fetchWithToken = (url, init) =>
  fetch(url, { ...init, headers: { ...init.headers, Authorization: `Bearer ${process.env.AGX_TOKEN}` } });

const source = new EventSource(process.env.AGX_STREAM, { fetch: fetchWithToken });
source.onmessage = ({ lastEventId, data }) => process.stdout.write(`${lastEventId}\t${data}\n`);
source.onerror = ({ code }) => {
  if (source.readyState === source.CLOSED) throw new Error(`EventSource closed the stream: ${code}`);
};
