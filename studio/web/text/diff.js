// @ts-check
// Unified diffs as rows with line numbers, and the words that differ between two lines.

/**
 * @typedef {{type: "context" | "added" | "removed", old: number | null, new: number | null, text: string, ended: boolean}} LineRow
 *   `old` and `new` are the numbers of the line, null where it is not; `ended` is false if no line break follows
 * @typedef {LineRow | {type: "gap", count: number}} Row a gap stands for equal lines that the diff does not have
 * @typedef {{start: number, end: number}} Span
 */

const HUNK = /^@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@/;
const CUT = /^⟨([\d,]+) more lines? of this diff⟩$/; // as agenticx.tools.diffs ends a diff that it has cut
const TYPES = { " ": "context", "+": "added", "-": "removed" };
const MAX_MARKED_PAIRS = 300; // lines of a diff whose words are compared
const MAX_MARKED_CHARS = 5_000; // of a line
const MAX_COMPARED_CHARS = 400_000; // of all lines
const MAX_EQUAL_CHARS = 500; // of a line around a change, as agenticx.tools.diffs has them
const MAX_EDITS = 60; // words that differ; lines with more have little in common
const MAX_LINE_EDITS = 1000; // of two texts; others are shown as wholly replaced

/**
 * Return the rows of a unified diff of one file, and the number of lines that it was cut by. There are `below` equal lines
 * after the last one.
 *
 * @param {string} diff
 * @param {number} [below]
 * @returns {{rows: Row[], hidden: number}}
 */
export function diffLines(diff, below = 0) {
  /** @type {Row[]} */
  const rows = [];
  let hidden = 0;
  const next = { old: 1, new: 1 };
  let isInHunk = false;
  for (const line of diff.split("\n")) {
    const hunk = HUNK.exec(line);
    const cut = CUT.exec(line);
    if (hunk) {
      const start = firstLine(Number(hunk[1]), hunk[2]);
      if (start > next.old) rows.push({ type: "gap", count: start - next.old });
      next.old = start;
      next.new = firstLine(Number(hunk[3]), hunk[4]);
      isInHunk = true;
    } else if (cut) hidden = Number(cut[1].replaceAll(",", ""));
    else if (line.startsWith("\\")) markUnended(rows);
    else if (isInHunk && line[0] in TYPES) rows.push(lineRow(TYPES[line[0]], line.slice(1), next));
  }
  if (below && !hidden) rows.push({ type: "gap", count: below });
  return { rows, hidden };
}

/** Return the number of the first line of a hunk; a hunk without lines names the line before it. */
const firstLine = (number, count) => (count === "0" ? number + 1 : number);

function markUnended(rows) {
  const last = rows.at(-1);
  if (last && last.type !== "gap") last.ended = false;
}

/** @returns {LineRow} */
function lineRow(type, text, next) {
  const row = { type, old: type === "added" ? null : next.old, new: type === "removed" ? null : next.new, text, ended: true };
  if (row.old !== null) next.old += 1;
  if (row.new !== null) next.new += 1;
  return row;
}

/**
 * Return the rows with the equal lines that gaps stand for, null if `before` is not the text that the change is of.
 *
 * @param {Row[]} rows
 * @param {string} before
 * @returns {LineRow[] | null}
 */
export function fillGaps(rows, before) {
  const lines = before.split(/\r?\n/);
  const isEnded = lines.at(-1) === "";
  if (isEnded) lines.pop();
  const next = { old: 1, new: 1 };
  const filled = rows.flatMap((row) => {
    if (row.type !== "gap") {
      next.old = (row.old ?? next.old - 1) + 1;
      next.new = (row.new ?? next.new - 1) + 1;
      return [row];
    }
    return Array.from({ length: row.count }, () => lineRow("context", shortLine(lines[next.old - 1] ?? ""), next));
  });
  const isOf = ({ old, text }) => old <= lines.length && (text.includes("⟨") || text === lines[old - 1]);
  if (!filled.every((row) => row.old === null || isOf(row))) return null;
  const last = filled.at(-1);
  if (last?.type === "context" && last.old === lines.length) last.ended = isEnded;
  return filled;
}

/** Return an equal line as the studio shows it in a diff. */
const shortLine = (/** @type {string} */ line) =>
  line.length > MAX_EQUAL_CHARS ? `${line.slice(0, MAX_EQUAL_CHARS)} ⟨${line.length} characters⟩` : line;

/**
 * Return the rows between two texts; `compare` is `diffLines` of vendor/diff.js.
 *
 * @param {string} before
 * @param {string} after
 * @param {typeof import("../vendor/diff.js").diffLines} compare
 * @returns {Row[]}
 */
export function compareTexts(before, after, compare) {
  const parts = compare(before, after, { maxEditLength: MAX_LINE_EDITS, timeout: 200 }) ?? [
    { value: before, removed: true, added: false },
    { value: after, removed: false, added: true },
  ];
  const next = { old: 1, new: 1 };
  return parts.flatMap(({ value, added, removed }) => {
    const lines = value.split("\n");
    const isEnded = lines.at(-1) === "";
    if (isEnded) lines.pop();
    const rows = lines.map((line) => lineRow(added ? "added" : removed ? "removed" : "context", line, next));
    if (rows.length && !isEnded) rows[rows.length - 1].ended = false;
    return rows;
  });
}

/**
 * Return the rows as pairs of a line before and its place after, either of them null; context and gaps stand on both sides.
 *
 * @param {Row[]} rows
 * @returns {[Row | null, Row | null][]}
 */
export function pairRows(rows) {
  /** @type {[Row | null, Row | null][]} */
  const pairs = [];
  let removed = [], added = [];
  const flush = () => {
    for (let at = 0; at < Math.max(removed.length, added.length); at += 1) pairs.push([removed[at] ?? null, added[at] ?? null]);
    removed = [];
    added = [];
  };
  for (const row of rows) {
    if (row.type === "removed") { if (added.length) flush(); removed.push(row); }
    else if (row.type === "added") added.push(row);
    else { flush(); pairs.push([row, row]); }
  }
  flush();
  return pairs;
}

/**
 * Return the spans of the characters that differ, by row, for lines that were changed; `compare` is `diffWordsWithSpace`
 * of vendor/diff.js.
 *
 * @param {Row[]} rows
 * @param {typeof import("../vendor/diff.js").diffWordsWithSpace} compare
 * @returns {Map<Row, Span[]>}
 */
export function markWords(rows, compare) {
  const marks = new Map();
  const changed = pairRows(rows).filter(([old, after]) => old?.type === "removed" && after?.type === "added");
  let left = MAX_COMPARED_CHARS;
  for (const pair of changed.slice(0, MAX_MARKED_PAIRS)) {
    const [old, after] = /** @type {[LineRow, LineRow]} */ (pair);
    const length = old.text.length + after.text.length;
    if (Math.max(old.text.length, after.text.length) > MAX_MARKED_CHARS || length > left) continue;
    left -= length;
    const parts = compare(old.text, after.text, { maxEditLength: MAX_EDITS });
    if (!parts || !parts.some(({ added, removed, value }) => !added && !removed && value.trim())) continue;
    marks.set(old, spansOf(parts, "removed", "added"));
    marks.set(after, spansOf(parts, "added", "removed"));
  }
  return marks;
}

function spansOf(parts, own, other) {
  const spans = [];
  let at = 0;
  for (const part of parts) {
    if (part[other]) continue;
    if (part[own]) spans.push({ start: at, end: at + part.value.length });
    at += part.value.length;
  }
  return spans;
}
