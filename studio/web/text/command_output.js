// @ts-check
// What commands have written for a terminal: its sequences for colours become colours, all else is shown as it is.

import { escapeHidden } from "./hidden_characters.js";

/** @typedef {{text: string, style: string}} Part `style` has the names of classes, "" for none. */

const MOST_PARTS = 400; // with styles of their own; what follows them has the last one's

// As the studio has it, control characters of results are pictures, and those of output that is being written are not.
const STYLE = /[\x1b\u241b]\[([\d;:]{0,100})m/;
const CUT_STYLE = /[\x1b\u241b](?:\[[\d;:]{0,100})?$/;
const PICTURES = /[\u2400-\u2408\u240b\u240c\u240e-\u241f\u2421]/g;
const COLOURS = ["", "bad", "good", "changed", "accent", "keyword", "name", ""]; // of black, red, green, …, as they can be read

const control = (/** @type {string} */ picture) =>
  `⟨U+${(picture === "\u2421" ? 0x7f : picture.charCodeAt(0) - 0x2400).toString(16).toUpperCase().padStart(4, "0")}⟩`;

const shown = (/** @type {string} */ text) => escapeHidden(text.replace(PICTURES, control));

/** Return output without its styles, and other control characters as code points. */
export const plainOutput = (/** @type {string} */ text) => shown(text.replace(new RegExp(STYLE, "g"), ""));

/** Return the parts of output that have a style each, with the same text as `plainOutput`. @param {string} text @returns {Part[]} */
export function styledOutput(text) {
  /** @type {Part[]} */
  const parts = [];
  const style = { colour: "", isBold: false, isUnderlined: false };
  let names = "";
  text.split(STYLE).forEach((piece, at) => { // texts, and between them what changes
    if (at % 2) {
      applyStyle(style, piece);
      if (parts.length < MOST_PARTS) names = classesOf(style);
    } else if (piece && parts.at(-1)?.style === names) parts[parts.length - 1].text += piece;
    else if (piece) parts.push({ text: piece, style: names });
  });
  return parts.map(({ text: one, style: names }) => ({ text: shown(one), style: names }));
}

/** Return output in two parts, of which the first has at most so many characters, and none has half a sequence. @returns {[string, string]} */
export function cutOutput(/** @type {string} */ text, /** @type {number} */ characters) {
  if (text.length <= characters) return [text, ""];
  const half = CUT_STYLE.exec(text.slice(Math.max(0, characters - 102), characters))?.[0].length ?? 0;
  return [text.slice(0, characters - half), text.slice(characters - half)];
}

/** Change a style by the numbers of a sequence. @param {{colour: string, isBold: boolean, isUnderlined: boolean}} style @param {string} numbers */
function applyStyle(style, numbers) {
  const codes = numbers.split(/[;:]/).map(Number);
  for (let at = 0; at < codes.length; at += 1) {
    const code = codes[at];
    if (code === 0) Object.assign(style, { colour: "", isBold: false, isUnderlined: false });
    else if (code === 1) style.isBold = true;
    else if (code === 4) style.isUnderlined = true;
    else if (code === 22) style.isBold = false;
    else if (code === 24) style.isUnderlined = false;
    else if (code === 39) style.colour = "";
    else if (code >= 30 && code <= 37) style.colour = COLOURS[code - 30];
    else if (code >= 90 && code <= 97) style.colour = code === 90 ? "soft" : COLOURS[code - 90];
    else if (code === 38 || code === 48) { // one of 256 colours, or red, green and blue
      const [kind, value] = codes.slice(at + 1);
      if (code === 38) style.colour = kind === 5 && value < 16 ? COLOURS[value % 8] : "";
      at += kind === 5 ? 2 : kind === 2 ? 4 : 0;
    }
  }
}

const classesOf = (/** @type {{colour: string, isBold: boolean, isUnderlined: boolean}} */ { colour, isBold, isUnderlined }) =>
  [colour && `out-${colour}`, isBold && "out-bold", isUnderlined && "out-underlined"].filter(Boolean).join(" ");
