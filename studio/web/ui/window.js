// @ts-check
// Which rows of a long list are mounted: those near what is seen. The others are spacers as high as the rows are, or are
// likely to be.

import { LINE_CHARACTERS } from "./text_parts.js";

/** @typedef {import("./rows.js").Row} Row */

const MARGIN_SCREENS = 1.5; // mounted above and below what is seen
const SLACK_ROWS = 10; // by which the mounted rows may differ from those before others are mounted
const CARD_HEIGHT = 42;
const LINE_HEIGHT = 24;

/** The heights of rows, as far as they were measured. */
export class Heights {
  constructor() {
    /** @type {Map<string, number>} */
    this.measured = new Map();
  }

  /** Return the height of a row in pixels. @param {Row} row */
  of(row) { return this.measured.get(row.key) ?? guess(row); }

  /** Return whether the heights of these rows are known. @param {Row[]} rows @param {{from: number, to: number}} range */
  areMeasured(rows, { from, to }) {
    for (let place = from; place < to; place += 1) if (!this.measured.has(rows[place].key)) return false;
    return true;
  }

  /** Return the height of the rows between two indexes. @param {Row[]} rows @param {number} from @param {number} to */
  between(rows, from, to) {
    let sum = 0;
    for (let place = from; place < to; place += 1) sum += this.of(rows[place]);
    return sum;
  }

  /** Return the index of the row at a distance from the top; the number of rows if the end is above it. */
  rowAt(/** @type {Row[]} */ rows, /** @type {number} */ top) {
    let sum = 0;
    for (let place = 0; place < rows.length; place += 1) {
      sum += this.of(rows[place]);
      if (sum > top) return place;
    }
    return rows.length;
  }

  /** Return the index of the first row of those at the end that have this height together. */
  rowFromEnd(/** @type {Row[]} */ rows, /** @type {number} */ height) {
    let place = rows.length;
    for (let sum = 0; place > 0 && sum < height; sum += this.of(rows[place])) place -= 1;
    return place;
  }
}

/** @param {Row} row */
function guess(row) {
  if (row.part) return LINE_HEIGHT * row.part.lines;
  const text = row.text ?? row.item?.text ?? row.message?.text;
  if (typeof text !== "string" || row.kind === "thinking") return row.kind === "end" ? LINE_HEIGHT : CARD_HEIGHT;
  return CARD_HEIGHT + LINE_HEIGHT * Math.ceil(text.length / LINE_CHARACTERS);
}

/**
 * Return the rows to mount, as indexes from and to, for a place in the list; those that are mounted if they will do.
 * @param {Heights} heights @param {Row[]} rows @param {{from: number, to: number}} mounted
 * @param {{top: number, screen: number}} view
 */
export function rowsNear(heights, rows, mounted, { top, screen }) {
  const margin = MARGIN_SCREENS * screen;
  const from = heights.rowAt(rows, top - margin);
  const to = Math.min(rows.length, heights.rowAt(rows, top + screen + margin) + 1);
  const first = heights.rowAt(rows, top - screen / 2), last = heights.rowAt(rows, top + 1.5 * screen);
  const isCovered = mounted.from <= first && Math.min(last + 1, rows.length) <= mounted.to;
  const isSimilar = mounted.to - mounted.from <= 2 * (to - from) + SLACK_ROWS;
  return isCovered && isSimilar ? mounted : { from, to };
}

/** Return the rows to mount at the end of the list; the first one changes only when much was added. */
export function rowsAtEnd(/** @type {Heights} */ heights, /** @type {Row[]} */ rows, /** @type {{from: number, to: number}} */ mounted, /** @type {number} */ screen) {
  const from = heights.rowFromEnd(rows, (1 + MARGIN_SCREENS) * screen);
  const isNear = mounted.from <= from && heights.between(rows, mounted.from, from) < 2 * screen && from - mounted.from < 8 * SLACK_ROWS;
  return { from: isNear ? mounted.from : from, to: rows.length };
}
