// @ts-check
// Long lists, of which the person first sees the beginning: thousands of elements hold up the page.

import { html, useState } from "../vendor/preact.js";

/** @type {WeakMap<object, number>} */
const chosen = new WeakMap(); // how often the person wanted more; far parts of a log are removed and come back

/**
 * Return `[shown, more]`: the first items, whose sizes are `limit` together, the last one may exceed it, and a button that
 * shows as many more, null where all are shown. What the person chose is kept with the object `owner`.
 *
 * @template T @param {T[]} items @param {number} limit @param {string} noun @param {object} owner
 * @param {(item: T) => number} sizeOf @returns {[T[], any]}
 */
export function useLimit(items, limit, noun, owner = items, sizeOf = () => 1) {
  const [wanted, setWanted] = useState(chosen.get(owner) ?? 0);
  const endFrom = (/** @type {number} */ start) => {
    let end = start;
    for (let size = 0; size < limit && end < items.length; end += 1) size += sizeOf(items[end]);
    return end;
  };
  let count = endFrom(0);
  for (let page = 0; page < wanted; page += 1) count = endFrom(count);
  const left = items.length - count;
  if (left <= 0) return [items, null];
  const next = endFrom(count) - count;
  return [items.slice(0, count), html`<button type="button" class="quiet show-more" onClick=${() => {
    setWanted(wanted + 1);
    chosen.set(owner, wanted + 1);
  }}>
    Show ${next.toLocaleString("en")} more ${next === 1 ? noun.replace(/ies$/, "y").replace(/s$/, "") : noun}${left > next && ` (${left.toLocaleString("en")} left)`}</button>`];
}
