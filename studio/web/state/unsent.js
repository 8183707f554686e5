// @ts-check
// What was typed beside the message box and not sent, for example the edit of a queued message: stored as drafts are.

import { forgetText, storeSoon, storedText } from "./drafts.js";

/** By key: a session's id, a full stop, and what the value is for. @type {Map<string, any>} */
const values = new Map();

/** Return what was kept under a key, also before a reload; null if nothing was. @param {string} key */
export function unsentOf(key) {
  if (!values.has(key)) values.set(key, JSON.parse(storedText(key) || "null"));
  return values.get(key);
}

/** Keep a value that JSON can hold, null for nothing. @param {string} key @param {any} value */
export function keepUnsent(key, value) {
  values.set(key, value);
  if (value === null) forgetText(key);
  else storeSoon(key, () => JSON.stringify(value));
}
