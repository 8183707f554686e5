// @ts-check
// Messages that were handed back, and then sent, edited or removed by the person: nothing is said of them any more.

import { signal } from "../vendor/preact.js";

const KEY = "agenticx.dismissed";
const MAX_IDS = 200;

/** @returns {string[]} */
function read() {
  try {
    return JSON.parse(localStorage.getItem(KEY) ?? "[]");
  } catch {
    return []; // not written by this page
  }
}

/** Their ids. */
export const dismissed = signal(read());

export function dismiss(/** @type {{messageId: string}} */ { messageId }) {
  dismissed.value = [...dismissed.value, messageId].slice(-MAX_IDS);
  localStorage.setItem(KEY, JSON.stringify(dismissed.value));
}

/** Return the messages that were not sent since the last turn began, which stand above the box for messages. */
export function notSent(/** @type {any} */ { handedBack, turns }) {
  const since = turns.at(-1)?.startedAt ?? "";
  return handedBack.filter((/** @type {any} */ { messageId, at }) => (at ?? "") >= since && !dismissed.value.includes(messageId));
}
