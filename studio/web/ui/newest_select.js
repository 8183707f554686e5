// @ts-check
// A list to choose one of many from, of which the newest are there at first: thousands of options are slow to open.

import { html, useState } from "../vendor/preact.js";

const NEWEST = 50;
const EARLIER = "earlier"; // a choice among turns, whose ids have a prefix, or numbers

/**
 * `options` are in order, the newest last; `first` stands above all of them, and `noun` names several of them.
 * @param {{label: string, noun: string, value: string, options: {value: string, label: string}[],
 *   first?: {value: string, label: string}, choose: (value: string) => void}} props
 */
export function NewestSelect({ label, noun, value, options, first, choose }) {
  const [count, setCount] = useState(NEWEST);
  const left = Math.max(0, options.length - count);
  const chosen = options.slice(0, left).find((option) => option.value === value);
  const onChange = (/** @type {any} */ { target }) => {
    if (target.value !== EARLIER) {
      choose(target.value);
      return;
    }
    target.value = value;
    setCount(2 * count);
  };
  return html`<select aria-label=${label} value=${value} onChange=${onChange}>
    ${first && optionOf(first)}
    ${left > 0 && html`<option value=${EARLIER}>List ${Math.min(left, count)} earlier ${noun}</option>`}
    ${chosen && optionOf(chosen)}
    ${options.slice(left).map(optionOf)}
  </select>`;
}

const optionOf = (/** @type {{value: string, label: string}} */ { value, label }) => html`<option key=${value} value=${value}>${label}</option>`;
