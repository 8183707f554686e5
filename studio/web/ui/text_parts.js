// @ts-check
// The text of a message in parts, a row of the log each, so that of a long one too only what is near is mounted.

import { parseMarkdown } from "../text/markdown.js";
import { markCitations } from "./citations.js";

/** @typedef {import("../state/types.js").Turn} Turn */
/** @typedef {import("../state/types.js").TextItem} TextItem */
/** @typedef {import("../text/markdown.js").Block} Block */
/** @typedef {import("../text/markdown.js").Markdown} Markdown */
/** @typedef {{blocks: Block[], lines: number}} Part */
/** @typedef {{parts: Part[], references: Markdown["references"]}} Divided */

export const LINE_CHARACTERS = 85; // about as many fit into a line of the log
const PART_LINES = 40; // after which a part ends, with the block that has the line

/** @type {WeakMap<TextItem, Divided>} */
const divided = new WeakMap();

/** @type {WeakMap<object, Map<string, {markdown: Markdown, parts: Part[]}>>} */
const written = new WeakMap(); // by the turn's message, which stays the same object, and the key of the text

/**
 * Return the parts of a text, null for a short one that is complete: it is read when it is mounted. While a text is
 * written, what does not change stays the same objects. Only its own lines decide where a text is divided, so that its
 * rows have the same keys whether it was read whole or while it was written.
 *
 * @param {Turn} turn @param {TextItem} item @returns {Divided | null}
 */
export function dividedText(turn, item) {
  const known = divided.get(item);
  if (known) return known;
  const ofTurn = written.get(turn.message) ?? new Map();
  const before = ofTurn.get(item.key) ?? null;
  const isLong = linesOfText(item.text) > PART_LINES;
  if (!before && item.complete && !isLong) return null;
  const markdown = parseMarkdown(markCitations(item.text, item.citations), before?.markdown ?? null);
  const parts = partsOf(markdown.blocks, isLong ? PART_LINES : Infinity, before?.parts ?? []);
  written.set(turn.message, ofTurn.set(item.key, { markdown, parts }));
  const made = { parts, references: markdown.references };
  divided.set(item, made);
  return made;
}

/** Divide blocks from the first one on, so that more of them change only the last part. */
function partsOf(/** @type {Block[]} */ blocks, /** @type {number} */ most, /** @type {Part[]} */ before) {
  /** @type {Part[]} */
  const parts = [{ blocks: [], lines: 0 }];
  for (const block of blocks) {
    let part = parts[parts.length - 1];
    if (part.lines >= most && block.type !== "definitions") parts.push(part = { blocks: [], lines: 0 });
    part.blocks.push(block);
    part.lines += linesOfBlock(block);
  }
  return parts.map((part, place) => before[place] && isSame(before[place], part) ? before[place] : part);
}

const isSame = (/** @type {Part} */ one, /** @type {Part} */ other) =>
  one.blocks.length === other.blocks.length && one.blocks.every((block, place) => block === other.blocks[place]);

/** Return about how many lines a text has; its blocks have as many or less. */
function linesOfText(/** @type {string} */ text) {
  let count = 1;
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) count += 1;
  return count + text.length / LINE_CHARACTERS;
}

const sum = (/** @type {number[]} */ numbers) => numbers.reduce((one, other) => one + other, 0);

/** @type {WeakMap<Block, number>} */
const lines = new WeakMap();

/** @returns {number} */
function linesOfBlock(/** @type {Block} */ block) {
  const known = lines.get(block);
  if (known !== undefined) return known;
  const count = countLines(block);
  lines.set(block, count);
  return count;
}

/** @returns {number} */
function countLines(/** @type {Block} */ block) {
  switch (block.type) {
    case "paragraph": case "heading": case "html": case "code": return linesOfText(block.text);
    case "quote": return sum(block.children.map(linesOfBlock));
    case "list": return sum(block.items.map(({ children }) => sum(children.map(linesOfBlock))));
    case "table": return 1 + block.rows.length + sum([block.header, ...block.rows].flat().map((cell) => cell.length)) / LINE_CHARACTERS;
    case "rule": return 1;
    default: return 0;
  }
}
