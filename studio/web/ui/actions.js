// @ts-check
// What a person can do in a session, as functions; each returns a promise that rejects with an `ApiError`.

import { api } from "../net/api.js";
import { draftOf, restoreDraft, shownDraft, writeDraft } from "../state/drafts.js";
import { contentOf, newId, send as sendTurn } from "../state/outbox.js";
import { go, sessionPath } from "../state/route.js";
import { SHORTLY, replaceSession, refreshSessions, showStatus } from "../state/studio.js";
import { asTyped, parseMode } from "../text/modes.js";
import { escapeHidden } from "../text/hidden_characters.js";
import { loadWhenIdle } from "./lazy.js";
import { openPane } from "./pane.js";

const loadEarlier = () => import("./edit_earlier.js");
loadWhenIdle(loadEarlier);

/**
 * Return the actions of a session.
 * @param {string} sessionId
 * @param {{feed: import("../vendor/preact.js").Signal<any>, command: import("../vendor/preact.js").Signal<any>}} view
 */
export function makeActions(sessionId, view) {
  const path = (/** @type {string} */ rest) => `api/sessions/${sessionId}/${rest}`;
  const post = (/** @type {string} */ to, body = {}) => api(to, { method: "POST", body });
  /** Send what can be repeated, once more if the answer is lost. */
  const postTwice = (/** @type {string} */ to, /** @type {object} */ body) =>
    post(to, body).catch((error) => error.status === 0 ? post(to, body) : Promise.reject(error));
  const encode = encodeURIComponent;
  const tell = (/** @type {any} */ command) => { view.command.value = { ...command }; };
  const tellMissing = (/** @type {string[]} */ files) => {
    draftOf(shownDraft(sessionId)).error.value = files.length ? `Attach again: ${files.map(escapeHidden).join(", ")}` : "";
    document.getElementById("input")?.focus();
  };

  /** @type {{sessionId: string} & Record<string, any>} */
  const actions = {
    sessionId,
    answerConfirm: (id, answer) => post(`api/confirms/${encode(id)}`, answer),
    /** Return the JSON Schema of a tool's arguments, null for one that the studio does not list. */
    toolSchema: async (name) => {
      const { tools } = await api("api/tools");
      return tools.find((/** @type {any} */ tool) => tool.name === name)?.parameters ?? null;
    },
    answerQuestion: (id, answer) => post(`api/questions/${encode(id)}`, { answer }),
    stop: () => post(path("stop")),
    cancelAgent: (id) => post(path(`subagents/${encode(id)}/cancel`)),
    /** Have a sub-agent begin anew; if the answer is lost, the same id makes the second request harmless. */
    retryAgent: (id) => {
      return postTwice(path(`subagents/${encode(id)}/retry`), { client_turn_id: newId() });
    },
    messageAgent: (id, text, client_message_id) => postTwice(path(`subagents/${encode(id)}/message`), { text, client_message_id }),
    /** Go on with an option, for which those that still run are stopped. */
    pickOption: async (number) => {
      const isRunning = view.feed.value.state.value.runningTurnId !== null;
      await post(path(`options/${number}/pick`));
      if (isRunning) showStatus(`Option ${number} goes on. The others are stopped.`, SHORTLY);
    },
    stopOption: (number) => post(path(`options/${number}/stop`)),

    /** Send a text as if it was typed; `when_busy` says what happens to it while a turn runs. */
    send: (input, files = [], when_busy = "queue", turn = {}) => {
      tell({ name: "end" });
      return sendTurn(sessionId, { input, when_busy, ...turn }, { typed: asTyped(input), files });
    },
    /** Send the last message again. */
    retry: (turn = {}) => {
      const message = lastTurn(view.feed.value.state.value)?.message;
      return message && actions.sendMessage({ input: message.text, attachments: message.attachments, clientTurnId: null }, undefined, turn);
    },
    cont: () => actions.send("Continue."),

    /** Go back to this message; the log says there what happened to files. */
    rewind: async (messageId) => {
      const answer = await post(path("rewind"), { message_id: messageId });
      const reported = answer.files.filter((/** @type {any} */ { outcome, reason }) => outcome !== "unchanged" || reason);
      (await import("../state/rewinds.js")).keepRewind(sessionId, answer, reported);
      return reported;
    },
    /** Go back to before a message; resolves to false if it is not in the conversation any more. */
    takeBack: async (messageId) => {
      const { state, isCaughtUp } = view.feed.value;
      if (!isCaughtUp.value) throw new Error("The session is still being read. Try again in a moment.");
      const { turns, messages } = state.value;
      if (!turns.some((/** @type {any} */ { onPath, message }) => onPath && message.id === messageId)) return false;
      await actions.rewind(messages.find((/** @type {any} */ { key }) => key === messageId).previousId);
      return true;
    },
    fork: async (messageId) => {
      const session = await post(path("fork"), { message_id: messageId }).catch(async (error) => {
        if (error.status !== 0) throw error;
        await refreshSessions();
        throw new Error("The answer was lost. If the fork was made, the list of sessions has it.");
      });
      await refreshSessions();
      go(sessionPath(session.id));
    },
    change: async (fields) => replaceSession(await api(`api/sessions/${sessionId}`, { method: "PATCH", body: fields })),

    insertDraft: (text, files = []) => {
      restoreDraft(shownDraft(sessionId), asTyped(text), files);
      document.getElementById("input")?.focus();
    },
    /** Put a message that was not sent back into the box. */
    editMessage: async (message) => {
      const { typed, files, missing } = await contentOf(sessionId, message);
      restoreDraft(shownDraft(sessionId), typed, files);
      tellMissing(missing);
    },
    /** Edit a message of the conversation: it, and what came after, stay until the edited one is sent. */
    editEarlier: async (message) => {
      const missing = await (await loadEarlier()).editEarlier(sessionId, message, view.feed.value?.state.value);
      if (missing) tellMissing(missing);
      else actions.leaveDock();
    },
    dropEdit: async () => (await loadEarlier()).dropEdit(sessionId, view.feed.value?.state.value),
    changeQueued: (id, fields) => api(path(`queue/${encode(id)}`), { method: "PATCH", body: fields }),
    removeQueued: (id) => api(path(`queue/${encode(id)}`), { method: "DELETE" }),
    /** Send a message again that was not sent; `onRead` is called once its files are read. */
    sendMessage: async (message, onRead = () => {}, turn = {}) => {
      const { typed, files, missing } = await contentOf(sessionId, message);
      onRead();
      if (missing.length) {
        await actions.editMessage(message);
        return;
      }
      const { mode, input } = parseMode(typed);
      await actions.send(input ?? typed, files, "queue", mode ? { mode, ...turn } : turn);
    },
    replaceDraft: (text) => writeDraft(shownDraft(sessionId), text),
    leaveDock: () => document.getElementById("input")?.focus(),
    denyAll: (requests) => Promise.all(requests.map((/** @type {any} */ { id, digest }) =>
      actions.answerConfirm(id, { approved: false, digest }))),
    openNote: (vault, notePath, lines, hasChanged) => openPane("notes", { vault, path: notePath, lines, hasChanged }),
    openPane,
    goTo: (id) => tell({ name: "goTo", id }),
    showStatus,
  };
  return actions;
}

/** Return the last turn of the conversation, undefined if there is none. */
export const lastTurn = (/** @type {any} */ state) => state.turns.filter((/** @type {any} */ turn) => turn.onPath).at(-1);
