// @ts-check
// What agents are called where the person reads of them.

import { escapeHidden } from "./hidden_characters.js";

/** Return the name of an agent: of one that makes an option "Option 2". @param {string} id */
export function agentName(id) {
  const number = /^option-(\d+)$/.exec(id)?.[1];
  return number ? `Option ${number}` : escapeHidden(id);
}

/** Return the name of who sent a message: an agent, or the person for null. @param {string | null} id */
export const senderName = (id) => id === null ? "You" : id === "meta" ? "The agent" : agentName(id);

/** Return the names of a team's participants, the person's among them marked. @param {{name: string, kind: string}[]} participants */
export const participantNames = (participants) => participants
  .map(({ name, kind }) => kind === "user" ? `${escapeHidden(name)} (you)` : escapeHidden(name)).join(", ");

/** Return the word for the status of an option that has ended. @param {string} status */
export const endWord = (status) => status === "partial" ? "incomplete" : status;
