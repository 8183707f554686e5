// @ts-check
// A question to the person in a line. Words of the agent are quoted, so that they cannot look like words of the page.

import { agentName } from "../text/agent_words.js";
import { escapeHidden, escapeHiddenText } from "../text/hidden_characters.js";
import { shortened } from "../text/tool_words.js";
import { plainText } from "./markdown_view.js";

const QUOTED_CHARACTERS = 120;

/** Return the beginning of a text on one line between quotation marks, which are not in it. */
export const quoted = (/** @type {string} */ text) =>
  `“${shortened(text, QUOTED_CHARACTERS, escapeHiddenText).replace(/[“”„‟]/g, '"')}”`;

/** Return who asks, and what; `agentId` is undefined for the main agent. @param {string} kind @param {string} text @param {string} [agentId] */
export function requestInLine(kind, text, agentId) {
  const agent = agentId === undefined ? "" : agentName(agentId);
  if (kind === "question") return `${agent || "The agent"} asks: ${quoted(plainText(text))}`;
  return `${agent && `${agent}: `}${escapeHidden(text)}`;
}
