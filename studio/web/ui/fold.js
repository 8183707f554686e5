// @ts-check
// A line that opens to more.

import { html, signal, useReducer } from "../vendor/preact.js";

/** @type {Map<string, boolean>} */
const chosen = new Map(); // what the person opened or closed; far parts of a log are removed and come back

const opened = signal(0); // how often parts were opened from elsewhere: those that are shown look whether it was them

/** What the person looks for, in small letters, "" for nothing: parts that have it open by themselves. */
export const sought = signal("");

export const hasSought = (/** @type {string} */ text) => sought.value !== "" && text.toLowerCase().includes(sought.value);

/**
 * A `details` element; its content is made by the function `children` while it is open. What the person chose for this
 * `id` is kept, before it `open` decides.
 */
export function Fold({ id, open = false, className = "", summary, children }) {
  const [, draw] = useReducer((/** @type {number} */ count) => count + 1, 0);
  const isOpen = opened.value >= 0 && (chosen.get(id) ?? open);
  const toggle = (/** @type {any} */ event) => {
    if (event.currentTarget.open === isOpen) return;
    chosen.set(id, event.currentTarget.open);
    draw(0);
  };
  return html`<details class=${className} open=${isOpen} onToggle=${toggle}>
    <summary>${summary}</summary>${isOpen && children()}
  </details>`;
}

/** Open a part by its `id`, also one that is not shown. */
export function openFold(/** @type {string} */ id) {
  chosen.set(id, true);
  opened.value += 1;
}
