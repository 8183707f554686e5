// @ts-check
// The line that says that the studio closes, or does not answer.

import { html, useEffect, useSignal } from "../vendor/preact.js";
import { LOST_MS } from "../net/lost_connection.js";

const ENDED_MS = 8000; // without a stream, before the page says that the studio may have ended

/**
 * Say that the studio closes, and that the stream is cut once it has been for a moment; then also what the person can do.
 * @param {{is: string, reason: string}} props
 */
export function Connection({ is, reason }) {
  const late = useSignal(0);
  useEffect(() => {
    late.value = 0;
    if (is !== "reconnecting") return undefined;
    const timers = [LOST_MS, ENDED_MS].map((delay) => setTimeout(() => { late.value = delay; }, delay));
    return () => timers.forEach(clearTimeout);
  }, [is]);
  const hasEnded = reason ? reason !== "handed_over" : late.value >= ENDED_MS;
  if (is === "closing") return html`<p class="connection" role="status">${hasEnded ? "The studio is closing." : "Another studio takes over."} Your text is kept.</p>`;
  if (is !== "reconnecting" || !(reason || late.value)) return null;
  return html`<p class="connection" role="status">Reconnecting…${hasEnded && html` ${reason ? "The studio has ended" : "The studio may have ended"
    }: start it with <code>agx serve</code>. Your text is kept.`}</p>`;
}
