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

/** @returns {Preferences} */
function read() {
  try {
    return { ...DEFAULTS, ...JSON.parse(localStorage.getItem(KEY) ?? "{}") };
  } catch {
    return DEFAULTS; // not written by this page
  }
}
