// @ts-check
// The question that the page itself asks the person, in a dialog (`ui/dialog.js`).

import { signal } from "../vendor/preact.js";

/** @typedef {(answer: string, choice: string) => unknown} Act `choice` is "" if there is none to make. */
/** @typedef {{title: string, text?: string, action: string, isDangerous?: boolean, field?: {label: string, value: string,
 *   maxLength?: number, type?: string},
 *   choice?: {label: string, options: string[]}, act?: Act, otherwise?: {code: string, action: string, act: Act}}} Question */

/** @type {import("../vendor/preact.js").Signal<(Question & {resolve: (answer: string|null) => void})|null>} */
export const asked = signal(null);

/**
 * Ask the person; return what was typed ("" without a field), null if it was cancelled. With `act` the dialog stays open,
 * with what was typed, until `act` succeeds; it shows why it failed, and offers `otherwise` after an error of that code.
 * A question that is open stays, with what is typed in it: the other one counts as cancelled.
 * @param {Question} question @returns {Promise<string|null>}
 */
export function ask(question) {
  if (asked.peek()) return Promise.resolve(null);
  return new Promise((resolve) => { asked.value = { ...question, resolve }; });
}
