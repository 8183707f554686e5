// @ts-check
// How much a text with Markdown is to draw, about in elements, and a long one in parts.

export const MOST = 1000; // that is drawn at once of a block, or of what is in it
const CHARACTERS = 50; // take about as long as an element
const LONGEST = MOST * CHARACTERS;
const LOOK_BACK = 1000; // characters
const SIGNS = /[*_`~[\]<\n\ue000]|https?:|www\./gi; // an element has one at least
const COST = new Map(Object.entries({ "<": 1, "\ue000": 3 })); // a citation is a button in an element, with a text in one
const PAIRED = 0.5; // others begin or end an element

/** @typedef {import("./markdown.js").Block} Block */

/**
 * Return the parts of the text of a block, each of at most about `most` elements; a short text has one. Each is read by
 * itself: emphasis that ends in a later part is none. With the parts of a beginning of the text only what follows the last
 * but one is divided.
 *
 * @param {string} text @param {number} [most] @param {string[]} [before] @returns {string[]}
 */
export function divideText(text, most = MOST, before = []) {
  if (text.length <= most) return [text];
  const parts = before.slice(0, -1);
  let start = parts.reduce((length, part) => length + part.length, 0);
  for (let end; (end = endOfPart(text, start, most)) < text.length; start = end) parts.push(text.slice(start, end));
  return [...parts, text.slice(start)];
}

/** @returns {number} */
function endOfPart(/** @type {string} */ text, /** @type {number} */ start, /** @type {number} */ most) {
  const limit = start + most * CHARACTERS;
  let size = 0, last = start;
  SIGNS.lastIndex = start;
  for (let found; (found = SIGNS.exec(text)) && found.index < limit; last = SIGNS.lastIndex) {
    size += costOf(found[0]) + (found.index - last) / CHARACTERS;
    if (size > most) return placeBefore(text, found.index, start);
  }
  return limit < text.length ? placeBefore(text, limit, start) : text.length;
}

const costOf = (/** @type {string} */ sign) => COST.get(sign) ?? (sign.length > 1 ? 1 : PAIRED);

/** Return where a text can be divided: at a blank or a citation near by, and in no character. */
function placeBefore(/** @type {string} */ text, /** @type {number} */ at, /** @type {number} */ start) {
  const least = Math.max(start + 1, at - LOOK_BACK);
  for (let place = at; place > least; place -= 1) {
    if (/\s/.test(text[place - 1]) || text[place] === "\ue000") return place;
  }
  return /[\udc00-\udfff]/.test(text[at]) ? at + 1 : at;
}

/** @returns {number} */
function sizeOfText(/** @type {string} */ text) {
  if (text.length > LONGEST) return MOST;
  let size = text.length / CHARACTERS;
  for (const [sign] of text.matchAll(SIGNS)) size += costOf(sign);
  return Math.min(MOST, size);
}

/** Return the sizes together, at most `MOST`. @template T @param {T[]} parts @param {(part: T) => number} sizeOf */
function sum(parts, sizeOf) {
  let size = 0;
  for (let place = 0; place < parts.length && size < MOST; place += 1) size += sizeOf(parts[place]);
  return Math.min(MOST, size);
}

/** Return the size of a row of a table. @param {string[]} cells */
export const sizeOfRow = (cells) => sum(cells, (cell) => 1 + sizeOfText(cell));

/** @type {WeakMap<object, number>} */
const sizes = new WeakMap();

/** Return the size of a block, or of an item of a list; a large one has `MOST`. @param {any} block @returns {number} */
export function sizeOfBlock(block) {
  const known = sizes.get(block);
  if (known !== undefined) return known;
  const size = 1 + measure(block);
  sizes.set(block, size);
  return size;
}

/** @param {any} block @returns {number} */
function measure(block) {
  if (block.children) return sum(block.children, sizeOfBlock);
  switch (block.type) {
    case "paragraph": case "heading": case "html": return sizeOfText(block.text);
    case "code": return Math.min(MOST, block.text.length / 10);
    case "list": return sum(block.items, sizeOfBlock);
    case "table": return Math.min(MOST, sizeOfRow(block.header) + sum(block.rows, sizeOfRow));
    default: return 0;
  }
}
