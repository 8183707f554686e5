// @ts-check
// What is known of a model, in words.

import { escapeHidden } from "./hidden_characters.js";

const ABILITIES = { vision: "images", tools: "tools", reasoning: "thinking" };

/** Return what a model takes and does besides text. @param {any} model of GET /api/models */
export const abilitiesText = ({ abilities }) =>
  Object.entries(ABILITIES).filter(([name]) => abilities[name]).map(([, label]) => label).join(", ");

const LEAST = 0.0001; // US dollars that a cost is written in

/** Return what was paid, in dollars: "$0.0123". @param {string} usd */
export function costText(usd) {
  const cost = Number(usd);
  return cost > 0 && cost < LEAST ? `less than $${LEAST}` : `$${cost ? cost.toFixed(4) : 0}`;
}

/** Return a price in dollars, as "3.00", with more digits if it has them. @param {string} price */
const priceText = (price) => Number(price).toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 6 });

/** Return the price of a million tokens, in and out, or "$0" for a model that costs nothing. @param {any} price */
export const priceOf = ({ input, output }, words = (/** @type {string} */ a, /** @type {string} */ b) => `${a} / ${b}`) =>
  Number(input) || Number(output) ? words(priceText(input), priceText(output)) : "$0";

/**
 * Return a model in a line: its name or `label`, why it cannot be used, its window, price per million tokens and abilities.
 * @param {any} model
 */
export function modelText(model, label = model.id) {
  const { available, why, context_window: size, price } = model;
  const parts = [
    available ? "" : why,
    size === null ? "" : `${size.toLocaleString("en")} tokens`,
    price ? priceOf(price, (input, output) => `$${input} in, $${output} out per million`) : "",
    abilitiesText(model),
  ];
  return escapeHidden([label, ...parts.filter(Boolean)].join(" · "));
}
