// @ts-check
// Long lists, of which the person first sees the beginning: thousands of elements hold up the page.

import { html, useState } from "../vendor/preact.js";

/** @type {WeakMap<object, number>} */
const chosen = new WeakMap(); // how many the person wanted; far parts of a log are removed and come back

/**
 * Return `[shown, more]`: the first items, at most `limit` at first, and a button that shows as many more, null where all
 * are shown. What the person chose is kept with the object `owner`.
 *
 * @template T @param {T[]} items @param {number} limit @param {string} noun @param {object} owner @returns {[T[], any]}
 */
export function useLimit(items, limit, noun, owner = items) {
  const [count, setCount] = useState(chosen.get(owner) ?? limit);
  const left = items.length - count;
  if (left <= 0) return [items, null];
  const next = Math.min(left, count);
  return [items.slice(0, count), html`<button type="button" class="quiet show-more" onClick=${() => {
    setCount(count + next);
    chosen.set(owner, count + next);
  }}>
    Show ${next.toLocaleString("en")} more ${noun}${left > next && ` (${left.toLocaleString("en")} left)`}</button>`];
}
