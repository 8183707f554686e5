// @ts-check
// Tables in text: a row on each line, its values between commas, semicolons or tabs, in quotation marks where they have
// one of these or line breaks.

const SEPARATORS = [",", ";", "\t"];
const MARK = "\ufeff"; // that some programs write before a text

/**
 * Return the first rows of a table, at most `limit`, and whether these are all.
 * @param {string} text @param {number} limit @returns {{rows: string[][], isWhole: boolean}}
 */
export function readCsv(text, limit) {
  const separator = separatorOf(text);
  const rows = [];
  let at = text.startsWith(MARK) ? 1 : 0;
  while (at < text.length && rows.length < limit) {
    /** @type {string[]} */
    const row = [];
    let end;
    do {
      const value = text[at] === '"' ? quotedEnd(text, at) : at;
      end = nextOf(text, value, separator);
      const quoted = value > at ? text.slice(at + 1, value - 1).replaceAll('""', '"') : "";
      row.push(quoted + text.slice(value, end));
      at = end + 1;
    } while (text[end] === separator);
    if (text[end] === "\r" && text[at] === "\n") at += 1;
    rows.push(row);
  }
  return { rows, isWhole: at >= text.length };
}

/** Return the separator that the first line has most of. */
function separatorOf(/** @type {string} */ text) {
  const line = text.slice(0, nextOf(text, 0, "\n"));
  const count = (/** @type {string} */ one) => line.split(one).length;
  return SEPARATORS.reduce((best, one) => count(one) > count(best) ? one : best);
}

/** Return the index behind the closing quotation mark, or the end of the text; two of them are one of the value. */
function quotedEnd(/** @type {string} */ text, /** @type {number} */ start) {
  let at = text.indexOf('"', start + 1);
  while (at >= 0 && text[at + 1] === '"') at = text.indexOf('"', at + 2);
  return at < 0 ? text.length + 1 : at + 1;
}

/** Return the index of the separator or line end from a place on. */
function nextOf(/** @type {string} */ text, /** @type {number} */ start, /** @type {string} */ separator) {
  let at = start;
  while (at < text.length && text[at] !== separator && text[at] !== "\n" && text[at] !== "\r") at += 1;
  return at;
}
