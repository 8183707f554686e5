// @ts-check
// What agents are called where the person reads of them.

import { escapeHidden } from "./hidden_characters.js";

/** Return the name of an agent: of one that makes an option "Option 2". @param {string} id */
export function agentName(id) {
  const number = /^option-(\d+)$/.exec(id)?.[1];
  return number ? `Option ${number}` : escapeHidden(id);
}
