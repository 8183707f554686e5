// @ts-check
// A session whose first message the studio has refused: it goes, and the message is one of a new session again.

import { api } from "../net/api.js";
import { draftOf, removeDraft, restoreDraft } from "../state/drafts.js";
import { go, route } from "../state/route.js";
import { refreshSessions } from "../state/studio.js";

/**
 * Delete a session in which nothing has happened, and show the form for a new one with what is typed and attached.
 * Return false if something has happened meanwhile: another window may have sent a message to it.
 * @param {string} id
 */
export async function undoSession(id) {
  const { created_at: createdAt, updated_at: updatedAt } = await api(`api/sessions/${id}`);
  if (updatedAt !== createdAt) return false;
  const { text, files } = draftOf(id);
  restoreDraft(null, text.peek(), files.peek());
  removeDraft(id);
  const shown = route.peek();
  if (shown.name === "session" && shown.id === id) go("#/new", { replace: true });
  await api(`api/sessions/${id}`, { method: "DELETE" });
  await refreshSessions();
  return true;
}
