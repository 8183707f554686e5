// @ts-check
// Editing an earlier message of a session: it is put into the box, and what the box had is dropped if the person agrees.

import { ask } from "../state/asked.js";
import { beginEdit, draftOf, editedIn, endEdit, shownDraft } from "../state/drafts.js";
import { optionsOf } from "../state/files.js";
import { contentOf } from "../state/outbox.js";

const DROP_EDIT = {
  title: "Drop the edit that you began?", text: "The message box has a changed message, which was not sent.", action: "Drop the edit",
};

/**
 * Put an earlier message into the box, and return the names of its files that are missing; null if
 * the person keeps an edit that was begun.
 * @param {string} sessionId @param {any} message @param {any} state @returns {Promise<string[] | null>}
 */
export async function editEarlier(sessionId, message, state) {
  const begun = editedIn(sessionId);
  const isKept = begun === message.id || begun && await keepsEdit(sessionId, begun, state);
  if (isKept) return null;
  const { typed, files, missing } = await contentOf(sessionId, { ...message, input: message.text });
  beginEdit(sessionId, message.id, typed, files);
  draftOf(shownDraft(sessionId)).variants.value = variantsOf(turnOf(message.id, state));
  return missing;
}

/** Return how many answers a message asked for, as the box has it; the options that an agent makes are made by a call. @param {any} turn */
function variantsOf(turn) {
  const isAsked = turn?.items.every((/** @type {any} */ { kind }) => kind !== "call");
  return isAsked ? String(optionsOf(turn).length || "") : "";
}

const turnOf = (/** @type {string} */ id, /** @type {any} */ state) => state?.turns.find((/** @type {any} */ turn) => turn.message.id === id);

/** Drop the edit that was begun, unless the person keeps it. @param {string} sessionId @param {any} state */
export async function dropEdit(sessionId, state) {
  if (!await keepsEdit(sessionId, editedIn(sessionId) ?? "", state)) endEdit(sessionId);
}

/** Return whether the person keeps the edit of an earlier message. @param {string} sessionId @param {string} id @param {any} state */
const keepsEdit = async (sessionId, id, state) => await isChanged(sessionId, id, state) && await ask(DROP_EDIT) === null;

/** Return whether the box has something else than the earlier message that is edited. @param {string} sessionId @param {string} id @param {any} state */
async function isChanged(sessionId, id, state) {
  const message = turnOf(id, state)?.message;
  const { typed, files } = message ? await contentOf(sessionId, { ...message, input: message.text }) : { typed: "", files: [] };
  const { text, files: now } = draftOf(shownDraft(sessionId));
  const named = (/** @type {any[]} */ all) => all.map(({ name, size }) => `${size} ${name}`).join("\n");
  return text.value !== typed || named(now.value) !== named(files);
}
