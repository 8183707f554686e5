// @ts-check
// The studio's reasons for what happens with a call, in the words of the page.

import { MODES } from "../state/permission_modes.js";
import { kindText, ruleSentence } from "./rules.js";

/** @typedef {{text: string, isCode: boolean}} Piece */

const CODE = /(?<=^|[\s(])`(.+?)`(?=$|[\s.,:;)])/;
const RULE = /^(.*? rule[^:]*: )((?:allow|ask|deny) .+)(\.)$/s; // as the command line takes it
const RULE_ASIDE = /^(.*? a rule of the user is about \()((?:allow|ask|deny) .+)(\)(?:\.|; the command .+))$/s;
const RULE_FIELD = / (path|command|host|server|network)=("(?:[^"\\]|\\.)*"|[^\s"]+)/gy;
const SOURCES = /^The conversation has texts that others wrote \((.+)\)(?=; )/;
const TRUST = /^(.+) counts? as written by others until you trust (?:it|them): `agx trust`\.$/;
const KINDS = /^(A yes can be remembered for this kind: )(.+)\.$/;
const MODE = /\b(m|M)ode (default|accept_edits|plan|auto)\b/g;
const SENTENCES = new Map(MODES.map(([name, sentence]) => [name, sentence]));

/** Return the pieces of each reason; one that is for programs is left out. @param {string[]} reasons @returns {Piece[][]} */
export const reasonPieces = (reasons) => withoutTrust(reasons.filter((reason) => !reason.startsWith("The id of that rule is "))).map(piecesOf);

/**
 * Say in the reason that names the texts of others that they, or some of them, are not trusted: the page has a notice with
 * a button for each of these files, and the command that trusts them is one of the terminal.
 * @param {string[]} reasons
 */
function withoutTrust(reasons) {
  const files = reasons.map((reason) => TRUST.exec(reason)?.[1]).find((each) => each !== undefined);
  if (files === undefined) return reasons;
  return reasons.filter((reason) => !TRUST.test(reason)).map((reason) => reason.replace(SOURCES, (_, /** @type {string} */ sources) =>
    sources === files.replaceAll(" and ", ", ") ? `The conversation has instructions that you have not trusted (${sources})`
      : `The conversation has texts that others wrote, or that you have not trusted (${sources})`));
}

/** @param {string} reason @returns {Piece[]} */
function piecesOf(reason) {
  const whole = reason.replace(KINDS, (_, begin, kinds) => `${begin}${kinds.split(", and ").map(kindText).join(", and ")}.`)
    .replace(/^./, (first) => first.toUpperCase());
  const [, begin, rule, end] = RULE.exec(whole) ?? RULE_ASIDE.exec(whole) ?? [];
  if (rule === undefined) return wordPieces(whole);
  const words = ruleWords(rule);
  return [...wordPieces(begin), { text: words ?? rule, isCode: words === undefined }, ...wordPieces(end)];
}

/** @param {string} text @returns {Piece[]} */
const wordPieces = (text) => codePieces(text).map(({ text: piece, isCode }) => ({ text: isCode ? piece : inWords(piece), isCode }));

/** Return which calls a rule is about, undefined if it is cut. @param {string} text the rule as the command line takes it */
function ruleWords(text) {
  const [begin, tool] = /^\w+ (\S+)/.exec(text) ?? [];
  if (begin === undefined) return undefined;
  const rule = /** @type {Record<string, any>} */ ({ tool });
  RULE_FIELD.lastIndex = begin.length;
  let at = begin.length;
  for (let found; (found = RULE_FIELD.exec(text)); at = RULE_FIELD.lastIndex) {
    const value = found[2].startsWith('"') ? found[2].slice(1, -1).replace(/\\(.)/g, "$1") : found[2];
    rule[found[1]] = found[1] !== "network" ? value : value === "true" || value.split(",");
  }
  const rest = text.slice(at);
  if (!["", " exact=true", " with exactly these arguments"].includes(rest)) return undefined;
  return ruleSentence({ ...rule, exact: rest !== "", ...(rest.startsWith(" with") && { arguments: {} }) });
}

/** Return the pieces of a text in which code stands between backticks. @param {string} text @returns {Piece[]} */
export const codePieces = (text) => text.split(CODE).map((piece, place) => ({ text: piece, isCode: place % 2 === 1 }))
  .filter(({ text: piece }) => piece);

/** Return a text with the names of modes and tools as the page has them. @param {string} text */
function inWords(text) {
  return text.replace(MODE, (_, first, name) => `${first === "M" ? "The" : "the"} mode “${SENTENCES.get(name)}”`)
    .replace(/^Ask_user only asks\.$/, "It only asks you something.")
    .replace(/^The user's rule\b/, "Your rule").replace(/ a rule of the user is about \($/, " a rule of yours is about (");
}
