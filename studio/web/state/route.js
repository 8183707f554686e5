// @ts-check
// The address of the page: `#/s/ID` and `#/s/ID/m/MESSAGE` show a session, `#/new` a new one, and `#/settings/TAB`
// settings.

import { signal } from "../vendor/preact.js";

const LAST_KEY = "agenticx.last-session"; // in the local storage: where a page without an address begins

/** @typedef {{name: "session", id: string, messageId: string|null} | {name: "new"} | {name: "sessions"}
 *   | {name: "settings", tab: string} | {name: "none"}} Route */

/** Return the ticket in a fragment: `#ticket=T`, or `#T` as `agx open` writes it; null if it has none. */
export function ticketIn(/** @type {string} */ hash) {
  const text = hash.replace(/^#/, "");
  if (!text || text.startsWith("/")) return null;
  return text.replace(/^ticket=/, "");
}

/** @param {string} hash @returns {Route} */
export function parseRoute(hash) {
  const [name, ...parts] = hash.replace(/^#\/?/, "").split("/").map(decode);
  if (name === "s" && /^[\w-]+$/.test(parts[0])) return { name: "session", id: parts[0], messageId: parts[1] === "m" ? parts[2] ?? null : null };
  if (name === "settings") return { name, tab: parts[0] ?? "" };
  if (name === "new" || name === "sessions") return { name };
  return { name: "none" };
}

export const sessionPath = (/** @type {string} */ id, /** @type {string} */ messageId = "") =>
  `#/s/${encodeURIComponent(id)}${messageId && `/m/${encodeURIComponent(messageId)}`}`;

/** @type {import("../vendor/preact.js").Signal<Route>} */
export const route = signal({ name: "none" });

/** Show an address; with `replace` the one before is not kept for the browser's Back. */
export function go(/** @type {string} */ hash, { replace = false } = {}) {
  if (location.hash === hash) readLocation();
  else if (replace) {
    history.replaceState(null, "", hash);
    readLocation();
  } else location.hash = hash;
}

/** Take the route of the address bar; return the ticket, if there is one there instead, and remove it from the bar. */
export function readLocation() {
  const ticket = ticketIn(location.hash);
  if (ticket !== null) {
    const last = lastSession();
    history.replaceState(null, "", last ? sessionPath(last) : location.pathname);
  }
  route.value = parseRoute(location.hash);
  return ticket;
}

export const keepLastSession = (/** @type {string} */ id) => localStorage.setItem(LAST_KEY, id);
export const lastSession = () => localStorage.getItem(LAST_KEY);

function decode(/** @type {string} */ part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // a percent sign that somebody typed
  }
}
