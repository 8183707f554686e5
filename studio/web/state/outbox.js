// @ts-check
// Messages that this page has sent and that are not in their session yet, and those that were refused.

import { signal } from "../vendor/preact.js";
import { api, blob } from "../net/api.js";
import { asTyped } from "../text/modes.js";
import { base64 } from "./attachments.js";
import { forgetDraft, restoreDraft } from "./drafts.js";

/** @typedef {{clientTurnId: string, typed: string, files: import("./drafts.js").File[], error: string|null}} Sent */

const SHOWN_MS = 2000; // after a message was accepted, if its event does not arrive

/** By session. @type {import("../vendor/preact.js").Signal<Map<string, Sent[]>>} */
export const outbox = signal(new Map());

/** What was sent, by its id, for the case that it is handed back. @type {Map<string, {typed: string, files: import("./drafts.js").File[]}>} */
const accepted = new Map();

export const sentTo = (/** @type {string} */ sessionId) => outbox.value.get(sessionId) ?? [];

/**
 * Send a message; until its event arrives it is in the outbox. One that is refused goes back into the draft.
 * Rejects with an `ApiError` then.
 * @param {string} sessionId @param {Record<string, unknown>} turn of POST …/turns
 * @param {{typed: string, files: import("./drafts.js").File[], draftOf?: string|null}} message
 */
export async function send(sessionId, turn, { typed, files, draftOf = sessionId }) {
  const clientTurnId = newId();
  const attachments = files.map(({ name, media_type, data }) => ({ name, media_type, data }));
  set(sessionId, [...sentTo(sessionId), { clientTurnId, typed, files, error: null }]);
  try {
    const body = { ...turn, client_turn_id: clientTurnId, ...(files.length ? { attachments } : {}) };
    const response = await api(`api/sessions/${sessionId}/turns`, { method: "POST", body });
    accepted.set(clientTurnId, { typed, files });
    forgetDraft(draftOf);
    setTimeout(() => takeSent(sessionId, clientTurnId), SHOWN_MS);
    return response;
  } catch (error) {
    // If it is not in the outbox any more, its event has arrived: the message was accepted and only the answer is lost.
    if (takeSent(sessionId, clientTurnId)) restoreDraft(sessionId, typed, files);
    throw error;
  }
}

/** Show a message as one that is sent while its files are read. @param {string|null} sessionId @param {string} typed @param {Promise<unknown>} read */
export async function showSending(sessionId, typed, read) {
  if (sessionId === null) return read; // its session is not there yet
  const clientTurnId = newId();
  set(sessionId, [...sentTo(sessionId), { clientTurnId, typed, files: [], error: null }]);
  await read;
  takeSent(sessionId, clientTurnId);
  return undefined;
}

/**
 * Return the text and files of a message that was handed back: as they were typed here, else as they are stored.
 * `missing` are the names of files that the studio has not kept.
 * @param {string} sessionId @param {import("./types.js").Queued} message
 * @returns {Promise<{typed: string, files: import("./drafts.js").File[], missing: string[]}>}
 */
export async function contentOf(sessionId, { input, clientTurnId, attachments = [] }) {
  const sent = accepted.get(clientTurnId ?? "");
  if (sent) return { ...sent, missing: [] };
  const missing = [];
  const files = [];
  for (const { name, media_type, size, sha256 } of attachments) {
    try {
      const data = await base64(await blob(`api/sessions/${sessionId}/attachments/${sha256}`));
      files.push({ name, media_type, size, data });
    } catch (error) {
      if (error.status !== 404) throw error;
      missing.push(name);
    }
  }
  return { typed: asTyped(input), files, missing };
}

/** Remove a message of the outbox and return it; undefined if it is not there. */
export function takeSent(/** @type {string} */ sessionId, /** @type {string|null|undefined} */ clientTurnId) {
  const all = sentTo(sessionId);
  const found = all.find((each) => each.clientTurnId === clientTurnId);
  if (found) set(sessionId, all.filter((each) => each !== found));
  return found;
}

/** @param {string} sessionId @param {Sent[]} messages */
function set(sessionId, messages) {
  const next = new Map(outbox.value);
  if (messages.length) next.set(sessionId, messages);
  else next.delete(sessionId);
  outbox.value = next;
}

/** Return a random id; `crypto.randomUUID` is only there over https and on this machine. */
export function newId() {
  if (crypto.randomUUID) return crypto.randomUUID();
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
