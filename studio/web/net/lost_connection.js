// @ts-check
// Whether a stream of events is cut, so that what the page shows is what was last known.

import { signal } from "../vendor/preact.js";

export const LOST_MS = 1000; // without a stream, before the page says so

/** The streams that are cut: that of all sessions, and those of sessions by their ids. @type {Set<string>} */
const cut = new Set();
/** Since when a stream is cut, in milliseconds; null while none is: from then on the page knows no more. */
export const cutSince = signal(/** @type {number|null} */ (null));
/** Whether a stream is cut for longer than a moment. */
export const isLost = signal(false);
/** @type {ReturnType<typeof setTimeout>|undefined} */
let losing;

/** Return whether a stream is cut. @param {string} name */
export const isCut = (name) => cut.has(name);

/** Note that a stream is open, or is not needed, or is cut. @param {string} name @param {boolean} isOpen */
export function noteStream(name, isOpen) {
  if (isOpen !== cut.has(name)) return;
  if (isOpen) cut.delete(name);
  else cut.add(name);
  if (cut.size > 0 === (cutSince.peek() !== null)) return;
  clearTimeout(losing);
  cutSince.value = cut.size ? Date.now() : null;
  if (cut.size) losing = setTimeout(() => { isLost.value = true; }, LOST_MS);
  else isLost.value = false;
}
