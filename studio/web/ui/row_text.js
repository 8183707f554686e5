// @ts-check
// The text of the rows of a log, as a person reads it: also of what is folded, or too far away to be mounted.

import { plainOutput } from "../text/command_output.js";
import { diffLines } from "../text/diff.js";
import { escapeHidden, escapeHiddenText } from "../text/hidden_characters.js";
import { parseMarkdown } from "../text/markdown.js";
import { argumentsText, callFacts, callTitle, commandOf, diffOf, outcomeWord, readingTitle } from "../text/tool_words.js";
import { markCitations } from "./citations.js";
import { textOfBlocks } from "./markdown_view.js";

/** @typedef {import("./rows.js").Row} Row */

/** @type {WeakMap<Row, string>} */
const texts = new WeakMap();

/** Return the text of a row, "" for one without text of its own. */
export function textOfRow(/** @type {Row} */ row) {
  const known = texts.get(row);
  if (known !== undefined) return known;
  const text = readRow(row);
  texts.set(row, text);
  return text;
}

/** Return a conversation to be copied: of calls it has the titles, and no thoughts. */
export function conversationText(/** @type {Row[]} */ rows) {
  return rows.map((row) => {
    switch (row.kind) {
      case "user": return `You:\n${textOfRow(row)}`;
      case "speaker": return `${textOfRow(row)}:`;
      case "call": return textOfRow(row).split("\n", 1)[0];
      case "reading": return readingTitle(row.calls);
      case "thinking": return "";
      default: return textOfRow(row);
    }
  }).filter(Boolean).join("\n\n");
}

/** Return what the card of a call says, its title first. @param {any} call @param {any} [request] */
export function textOfCall(call, request) {
  const facts = [callTitle(call), outcomeWord(call, request), ...callFacts(call, request)].filter(Boolean).join(" · ");
  const diff = diffOf(call, request), command = commandOf(call);
  const shown = command ? plainOutput : escapeHidden;
  const parts = [
    escapeHidden(command),
    diff ? diffText(diff) : "",
    !command && !diff ? escapeHidden(argumentsText(call)) : "",
    call.phase === "running" ? shown(call.output) : "",
    call.result && !(diff && !call.isError) ? shown(call.result) : "",
  ];
  return [facts, ...parts.filter(Boolean)].join("\n");
}

const diffText = (/** @type {string} */ diff) => diffLines(diff).rows.map((row) => "text" in row ? escapeHidden(row.text) : "").join("\n");

/** @param {Row} row @returns {string} */
function readRow(row) {
  switch (row.kind) {
    case "user": return escapeHiddenText(row.message.text);
    case "text": return row.part ? blocksText(row.part.blocks, row.references, row.citations) : markdownText(row.text, row.citations);
    case "thinking": case "message": return escapeHiddenText(row.item.text);
    case "call": return textOfCall(row.item, row.request);
    case "reading": return row.calls.map((/** @type {any} */ call) => textOfCall(call)).join("\n");
    case "option": return row.turn.items.map(itemText).join("\n");
    case "agent": return [row.agent.id, row.agent.task, row.agent.result ?? "", row.agent.error?.text ?? ""].map(escapeHiddenText).join("\n");
    case "request": return row.request ? requestText(row.request) : "";
    case "speaker": return escapeHidden(row.name);
    case "end": return row.turn.end?.code ? escapeHiddenText(row.turn.end.text) : "";
    default: return "";
  }
}

/** @param {any[]} blocks @param {any} references @param {any[]} citations */
function blocksText(blocks, references, citations) {
  const mark = (/** @type {number} */ number) => String(citations[number]?.marker ?? "");
  return blocks.map((block) => textOfBlocks([block], references, mark)).filter(Boolean).join("\n\n");
}

function markdownText(/** @type {string} */ text, /** @type {any[]} */ citations) {
  const { blocks, references } = parseMarkdown(markCitations(text, citations));
  return blocksText(blocks, references, citations);
}

/** @param {any} item of an option */
function itemText(item) {
  if (item.kind === "call") return textOfCall(item);
  return item.kind === "text" ? markdownText(item.text, item.citations) : escapeHiddenText(item.text ?? "");
}

/** @param {any} request */
function requestText({ kind, question, context, answer }) {
  const argumentsOf = (/** @type {any} */ args) => escapeHidden(argumentsText({ args: args ?? {}, argsText: "" }));
  const change = context.diff ? diffText(context.diff) : argumentsOf(context.arguments);
  const asked = kind === "confirm" ? context.command === undefined ? change : escapeHidden(context.command) : "";
  return [escapeHidden(question), asked, argumentsOf(answer?.arguments), ...[answer?.answer ?? "", answer?.reason ?? ""].map(escapeHidden)].join("\n");
}
