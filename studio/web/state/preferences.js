// @ts-check
// How this browser shows the page: kept in its local storage.

import { signal } from "../vendor/preact.js";

const KEY = "agenticx.preferences";

/** @typedef {{enterSends: boolean, notify: boolean, widePane: boolean}} Preferences */
/** @type {Preferences} */
const DEFAULTS = { enterSends: true, notify: false, widePane: true };

export const preferences = signal(read());

/** @param {Partial<Preferences>} fields */
export function setPreferences(fields) {
  preferences.value = { ...preferences.value, ...fields };
  localStorage.setItem(KEY, JSON.stringify(preferences.value));
}

/** Return whether a key sends what is typed, as the person has set; with Ctrl or Cmd, Enter always does. */
export const sends = (/** @type {KeyboardEvent} */ { key, isComposing, shiftKey, ctrlKey, metaKey }) =>
  key === "Enter" && !isComposing && (ctrlKey || metaKey || shiftKey !== preferences.value.enterSends);

/** @returns {Preferences} */
function read() {
  try {
    return { ...DEFAULTS, ...JSON.parse(localStorage.getItem(KEY) ?? "{}") };
  } catch {
    return DEFAULTS; // not written by this page
  }
}
