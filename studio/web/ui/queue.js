// @ts-check
// The messages between the box and the conversation: those on their way, those that wait, those that were not read.

import { html, signal, useEffect, useLayoutEffect, useRef } from "../vendor/preact.js";
import { fileLabel } from "../state/attachments.js";
import { dismiss, notSent } from "../state/dismissed.js";
import { draftOf, shownDraft } from "../state/drafts.js";
import { sentTo, takeSent } from "../state/outbox.js";
import { sends } from "../state/preferences.js";
import { attempt } from "../state/studio.js";
import { keepUnsent, unsentOf } from "../state/unsent.js";
import { escapeHidden } from "../text/hidden_characters.js";
import { grow } from "./grow.js";
import { UnsentButtons } from "./unsent_buttons.js";

const SHOWN_CHARS = 160;

/** `isRead`: the state is that of now. @param {{sessionId: string, state: any, isRead: boolean, actions: any}} props */
export function Queue({ sessionId, state, isRead, actions }) {
  const { queue } = state.value;
  useLayoutEffect(() => dropArrived(sessionId, state.value), [state.value]); // before it is drawn twice
  const known = new Set(queue.map((/** @type {any} */ { clientTurnId }) => clientTurnId));
  const sending = sentTo(sessionId).filter(({ clientTurnId }) => !known.has(clientTurnId));
  const unsent = notSent(state.value);
  const edits = useEdits(sessionId, state, isRead, actions);
  if (!sending.length && !queue.length && !unsent.length) return null;
  return html`<ul id="queued" aria-label="Queued messages">
    ${queue.map((message) => html`<${Waiting} key=${message.messageId} message=${message} actions=${actions} edits=${edits} />`)}
    ${sending.map(({ clientTurnId, typed, files }) => html`<li key=${clientTurnId}>${excerpt("Sending", typed, files)}</li>`)}
    ${unsent.map((/** @type {any} */ message) => html`<li key=${message.messageId} class="unsent">${excerpt("Not sent", message.input, message.attachments)}
      <span class="buttons"><${UnsentButtons} message=${message} actions=${actions} /></span></li>`)}
  </ul>`;
}

/** A text of a waiting message that is edited; one that is not open was put aside. @typedef {{before: string, text: string, isOpen: boolean, isSent?: boolean}} Edit */

/** The edits of each session, which stay while another one or the settings are shown, and over a reload. @type {Map<string, import("../vendor/preact.js").Signal<Map<string, Edit>>>} */
const known = new Map();

function editsIn(/** @type {string} */ sessionId) {
  const before = known.get(sessionId);
  if (before) return before;
  /** @type {[string, Edit][]} */
  const stored = unsentOf(keyOf(sessionId)) ?? [];
  const texts = signal(new Map(stored.map(([id, edit]) => [id, { ...edit, isSent: false }])));
  known.set(sessionId, texts);
  return texts;
}

const keyOf = (/** @type {string} */ sessionId) => `${sessionId}.queue`;

/**
 * Return the texts of the waiting messages that are edited, by id, and how they are changed. A message that leaves the
 * queue meanwhile leaves its edited text in the box, unless it was put aside.
 * @param {string} sessionId @param {any} state @param {boolean} isRead @param {any} actions
 */
function useEdits(sessionId, state, isRead, actions) {
  const texts = editsIn(sessionId);
  const { queue } = state.value;
  const set = (/** @type {Map<string, Edit>} */ edits) => {
    texts.value = edits;
    keepUnsent(keyOf(sessionId), edits.size ? [...edits] : null);
  };
  const write = (/** @type {string} */ id, /** @type {Edit} */ edit) => set(new Map(texts.peek()).set(id, edit));
  const close = (/** @type {string} */ id) => set(new Map([...texts.peek()].filter(([other]) => other !== id)));
  const keepLeft = () => {
    const { queue: waiting, handedBack } = state.peek();
    for (const [id, { before, text, isOpen, isSent }] of texts.peek()) {
      if (isSent) continue;
      const isThis = (/** @type {any} */ { messageId }) => messageId === id;
      const isSaved = text !== before && text === textOf(id, state.peek()); // before a reload, or in another tab
      if (waiting.some(isThis) && !isSaved) continue;
      close(id);
      const returned = handedBack.find(isThis);
      if (text === before || isSaved || !isOpen) continue;
      if (returned) dismiss(returned);
      actions.insertDraft(text);
      draftOf(shownDraft(sessionId)).error.value = `The message was ${returned ? "not" : "already"} sent; your text is below.`;
    }
  };
  useEffect(() => { if (isRead) keepLeft(); }, [queue, isRead]);
  const save = async (/** @type {string} */ id) => {
    const edit = /** @type {Edit} */ (texts.peek().get(id));
    const sent = { ...edit, isSent: true }; // a reload shows it again, unless it is saved then
    write(id, sent);
    const isSaved = await attempt(() => actions.changeQueued(id, { input: edit.text }));
    if (texts.peek().get(id) !== sent) return; // it is edited again
    if (isSaved) {
      close(id);
    } else {
      write(id, edit);
      keepLeft();
    }
  };
  return { texts, write, close, save };
}

/** Return the text of a message of the person by its id, wherever it is. @param {string} id @param {any} state @returns {string|undefined} */
function textOf(id, { queue, handedBack, turns }) {
  const waiting = [...queue, ...handedBack].find(({ messageId }) => messageId === id);
  if (waiting) return waiting.input;
  const taken = turns.flatMap((/** @type {any} */ { message, items }) => [message, ...items.filter((/** @type {any} */ { kind }) => kind === "message")]);
  return taken.find((/** @type {any} */ message) => message.id === id)?.text;
}

/**
 * A message that waits for the next call of the running turn, or for the turn's end.
 * @param {{message: any, actions: any, edits: ReturnType<typeof useEdits>}} props
 */
function Waiting({ message: { messageId, position, input, attachments }, actions, edits }) {
  const edit = edits.texts.value.get(messageId);
  const field = useRef(/** @type {HTMLTextAreaElement|null} */ (null));
  const opener = useRef(/** @type {HTMLButtonElement|null} */ (null));
  const isEdited = Boolean(edit?.isOpen && !edit.isSent);
  const wasEdited = useRef(isEdited); // then the focus stays: the person may be typing elsewhere
  useLayoutEffect(() => {
    if (isEdited && !wasEdited.current) field.current?.focus();
    else if (!isEdited && wasEdited.current) opener.current?.focus();
    wasEdited.current = isEdited;
  }, [isEdited]);
  useLayoutEffect(() => grow(field.current), [isEdited, edit?.text]);
  const isInto = position === "into";
  if (edit && isEdited) {
    const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
      if (sends(event) && event.target === field.current) {
        event.preventDefault();
        edits.save(messageId);
      }
      if (event.key !== "Escape") return;
      event.preventDefault(); // otherwise it begins to stop the turn
      if (edit.text === edit.before) edits.close(messageId);
      else edits.write(messageId, { ...edit, isOpen: false });
    };
    return html`<li><form class="edit" onKeyDown=${onKeyDown} onSubmit=${(/** @type {Event} */ event) => {
        event.preventDefault();
        edits.save(messageId);
      }}>
      <label>Queued message <textarea ref=${field} rows="1" value=${edit.text}
        onInput=${(/** @type {any} */ { target }) => edits.write(messageId, { ...edit, text: target.value })}></textarea></label>
      <span class="buttons"><button type="submit">Save message</button>
        <button type="button" class="quiet" onClick=${() => edits.close(messageId)}>Cancel</button></span>
    </form></li>`;
  }
  return html`<li>${excerpt(isInto ? "Will be read in this turn" : "Queued", input, attachments)}
    <span class="buttons">
      <button type="button" class="quiet" ref=${opener} onClick=${() => edits.write(messageId, { ...edit ?? { before: input, text: input }, isOpen: true, isSent: false })}>${edit && !edit.isSent ? "Go on editing" : "Edit"}</button>
      ${!isInto && html`<button type="button" class="quiet" title="The running turn reads it before its next step"
        onClick=${() => attempt(() => actions.changeQueued(messageId, { when_busy: "steer" }))}>Send now</button>`}
      <button type="button" class="quiet" onClick=${() => attempt(() => actions.removeQueued(messageId))}>Remove</button>
    </span></li>`;
}

/** @param {string} state @param {string} text @param {any[]} [files] */
function excerpt(state, text, files = []) {
  const line = text.replace(/\s+/g, " ");
  const shown = line.length > SHOWN_CHARS ? `${line.slice(0, SHOWN_CHARS)}…` : line;
  return html`<span class="excerpt"><b>${state}</b> ${[shown, ...files.map(fileLabel)].map(escapeHidden).join(" · ")}</span>`;
}

/** Remove messages from the outbox that have arrived in the session. */
function dropArrived(/** @type {string} */ sessionId, /** @type {any} */ { turns, queue, handedBack }) {
  const sent = sentTo(sessionId);
  if (!sent.length) return;
  const arrived = new Set([...turns.map((/** @type {any} */ { message }) => message?.clientTurnId), ...[...queue, ...handedBack].map(({ clientTurnId }) => clientTurnId)]);
  for (const { clientTurnId } of sent) if (arrived.has(clientTurnId)) takeSent(sessionId, clientTurnId);
}
