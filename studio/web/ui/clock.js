// @ts-check
// Times as text: how long something took, and how long it goes on. One timer writes all that go on, so that the same time
// is the same text everywhere.

import { html, useEffect, useLayoutEffect, useReducer, useRef } from "../vendor/preact.js";
import { cutSince } from "../net/lost_connection.js";

const TICK_MS = 100;

/** Writes each time that goes on. @type {Set<() => void>} */
const shown = new Set();
/** @type {ReturnType<typeof setInterval>|undefined} */
let timer;

/** Return milliseconds as "9 s", "3 min 5 s" or "2 h 4 min", with tenths "9.3 s"; they are never rounded up. */
function textOf(/** @type {number} */ milliseconds, tenths = false) {
  const rest = Math.max(0, milliseconds);
  const seconds = Math.floor(rest / 1000), minutes = Math.floor(seconds / 60);
  if (!minutes) return `${tenths ? (Math.floor(rest / 100) / 10).toFixed(1) : seconds} s`;
  return minutes < 60 ? `${minutes} min ${seconds % 60} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** Return the time between two times as text, "" if one is missing; with tenths also if it is less than a tenth. */
export function spanText(/** @type {string | null} */ from, /** @type {string | null} */ to, tenths = false) {
  const milliseconds = Date.parse(to ?? "") - Date.parse(from ?? "");
  return Number.isFinite(milliseconds) && (!tenths || milliseconds >= 100) ? textOf(milliseconds, tenths) : "";
}

/** Return a time of day as "12:03", "" if there is none. */
export function timeOfDay(/** @type {string | null} */ at) {
  const time = new Date(at ?? NaN);
  return Number.isNaN(time.getTime()) ? "" : time.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
}

/**
 * The time since `since`, or until `until`: nothing else is drawn for it. It stands still while the studio does not answer.
 * It is not read aloud.
 * @param {{since?: string | null, until?: string | null, tenths?: boolean}} props
 */
export function Seconds({ since = null, until = null, tenths = false }) {
  const element = useRef(/** @type {HTMLElement | null} */ (null));
  useLayoutEffect(() => { // so that it is never painted without them
    const write = () => {
      const now = cutSince.peek() ?? Date.now(); // what goes on is not known meanwhile
      const span = until ? Date.parse(until) - now + 999 : now - Date.parse(since ?? "");
      const text = Number.isFinite(span) ? textOf(span, tenths) : "";
      if (element.current && element.current.textContent !== text) element.current.textContent = text;
    };
    write();
    shown.add(write);
    timer ??= setInterval(() => { for (const each of shown) each(); }, TICK_MS);
    return () => {
      shown.delete(write);
      if (shown.size) return;
      clearInterval(timer);
      timer = undefined;
    };
  }, [since, until, tenths]);
  return html`<span class="clock" aria-hidden="true" ref=${element}></span>`;
}

/** Draw the component again at a time, after which it says something else; null if there is none. @param {string | null} time */
export function useRedrawAt(time) {
  const [, draw] = useReducer((/** @type {number} */ count) => count + 1, 0);
  useEffect(() => {
    const wait = Date.parse(time ?? "") - Date.now();
    if (!(wait > 0)) return undefined;
    const timer = setTimeout(() => draw(0), Math.min(wait, 2 ** 31 - 1));
    return () => clearTimeout(timer);
  }, [time]);
}
