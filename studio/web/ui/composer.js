// @ts-check
// Where a message is written: its text and files, the model and mode that hold for it, and how it is sent.

import { html, useLayoutEffect, useRef, useSignal } from "../vendor/preact.js";
import { api } from "../net/api.js";
import { ask } from "../state/asked.js";
import { allRead, attachFiles, pastedFiles } from "../state/attachments.js";
import { draftOf, editedIn, endEdit, filesLoaded, restoreDraft, shownDraft, takeDraft, writeDraft } from "../state/drafts.js";
import { showSending } from "../state/outbox.js";
import { MODES } from "../state/permission_modes.js";
import { preferences } from "../state/preferences.js";
import { isTyped } from "../state/input.js";
import { canStop, openRequests } from "../state/requests.js";
import { SHORTLY, attempt, models, showStatus } from "../state/studio.js";
import { openKeyField } from "../state/wanted_key.js";
import { escapeHidden } from "../text/hidden_characters.js";
import { modelText } from "../text/model_words.js";
import { NO_VAULT, explainMode, parseMode } from "../text/modes.js";
import { grow } from "./grow.js";
import { lazy, loadWhenIdle } from "./lazy.js";
import { hasLittleRoom, isNarrow, openTab } from "./pane.js";
import { useReconnected } from "./use_action.js";

const Attached = lazy(() => import("./draft_files.js"), "Attached");
const Mentions = lazy(() => import("./mentions.js"), "Mentions");
const widerModes = () => import("./wider_modes.js");
loadWhenIdle(widerModes);
const refusal = () => import("./refusal.js");
loadWhenIdle(refusal);

const ADD_KEY = "add key"; // a choice among the models, whose names have no space

/** How a message is sent while a turn runs, by `when_busy`; and in short, beside a pane. */
const WHEN_BUSY = { queue: ["after this turn", "after turn"], steer: ["into this turn", "into turn"], interrupt: ["instead of this turn", "instead"] };

/**
 * `post(input, options)` sends a message: `options` are those of POST …/turns, with `typed` and `files`. `session` is
 * null for one that the first message makes; `change` sets its options, or those of the session.
 * @param {{sessionId: string|null, session: any, state: any, actions: any, change: (fields: any) => Promise<unknown>,
 *   post: (turn: any, message: any) => Promise<unknown>, whenBusy: any}} props
 */
export function Composer({ sessionId, session, state, actions, change, post, whenBusy }) {
  const draftId = shownDraft(sessionId);
  const edited = editedIn(sessionId);
  const draft = draftOf(draftId);
  const box = useRef(/** @type {HTMLTextAreaElement|null} */ (null));
  const picker = useRef(/** @type {HTMLInputElement|null} */ (null));
  const isRunning = Boolean(state?.value.runningTurnId);
  const asks = state ? openRequests(state.value).length > 0 : false;
  const isBusy = Boolean(state && canStop(state.value));
  const completion = useRef(/** @type {import("./mentions.js").Completion|null} */ (null));
  const active = useSignal(/** @type {string|undefined} */ (undefined));
  const text = draft.text.value;
  useLayoutEffect(() => grow(box.current), [text, sessionId]);
  useDroppedFiles(draft);
  useReconnected(draft.error);

  const send = async (/** @type {string} */ when = isRunning ? whenBusy.value : "queue") => {
    const { mode, input } = parseMode(draft.text.value);
    if (input === null) return; // how to use the command is shown
    if (!input.trim() && !(session?.team && !draft.files.value.length)) {
      if (draft.files.value.length) draft.error.value = "Write a message for the attached files.";
      return;
    }
    if (edited && isBusy) {
      draft.error.value = "An agent works, or waits for you. Stop it first.";
      return;
    }
    showStatus(""); // it is about what was before
    const message = takeDraft(draftId); // before the files are read: what is typed meanwhile is another message
    const turn = turnOf(input, mode, when, isRunning || session?.team ? "" : message.variants);
    try {
      await showSending(sessionId, message.text, Promise.all([filesLoaded(), allRead()]));
      if (draft.error.value) { // of a file that cannot be sent
        restoreDraft(draftId, message.text, message.files.value);
        return;
      }
      if (mode === "vault" && !(await hasVault(session?.vaults ?? null))) {
        restoreDraft(draftId, message.text, message.files.value);
        throw new Error(NO_VAULT);
      }
      const typed = { typed: message.text, files: message.files.value, draftOf: draftId };
      if (edited) await sendEdited(edited, typed, () => post(turn, typed));
      else await post(turn, typed);
    } catch (error) {
      draftOf(shownDraft(sessionId)).error.value = await refusalOf(error);
    }
  };

  /** Take back a message, which was edited, with what came after it, and send it. @param {string} messageId @param {any} message @param {() => Promise<unknown>} sendIt */
  const sendEdited = async (messageId, message, sendIt) => {
    const isTakenBack = await actions.takeBack(messageId).catch((/** @type {Error} */ error) => {
      restoreDraft(draftId, message.typed, message.files);
      throw error;
    });
    if (isTakenBack) return sendIt().finally(leaveEdit);
    leaveEdit();
    restoreDraft(sessionId, message.typed, message.files);
    throw new Error("The conversation does not have the message any more that you edited. Your text is a new message now.");
  };
  /** End editing an earlier message; what was begun meanwhile is kept. */
  const leaveEdit = () => {
    if (draft.text.peek() || draft.files.peek().length) restoreDraft(sessionId, draft.text.peek(), draft.files.peek());
    endEdit(/** @type {string} */ (sessionId));
  };
  const cancelEdit = () => attempt(actions.dropEdit);

  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    if (event.isComposing || completion.current?.handleKey(event)) return;
    const control = event.ctrlKey || event.metaKey;
    if (event.key === "Escape" && edited) {
      event.preventDefault(); // otherwise it begins to stop the turn
      cancelEdit();
    }
    if (event.key === "ArrowUp" && !text && !control && !event.altKey) {
      const last = state?.value.turns.findLast((/** @type {any} */ { onPath }) => onPath)?.message.text;
      if (last) {
        event.preventDefault();
        actions.insertDraft(last);
      }
    }
    if (event.key !== "Enter") return;
    if (control) {
      event.preventDefault();
      send(event.shiftKey ? "interrupt" : isRunning ? "steer" : "queue");
    } else if (event.shiftKey !== preferences.value.enterSends) {
      event.preventDefault();
      send();
    }
  };

  const hint = explainMode(text, isRunning && whenBusy.value === "steer");
  const placeholder = asks ? `Answer above first${hasLittleRoom.value || openTab.value ? "" : ", or write a message for after this turn"}` : "Write a question or a task";
  return html`<form id="composer" autocomplete="off" data-region="Message" aria-label="Message"
      onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); send(); }}>
    ${draft.error.value && html`<p id="attachment-error" class="error" role="alert">${draft.error.value}</p>`}
    ${hint && !draft.error.value && html`<p id="mode-hint" role="status">${hint}</p>`}
    ${edited && html`<p id="editing" class="note">Editing an earlier message. ${isRunning || asks ? "Stop the turn first: sending" : "Sending"} it takes back what came after.
      <button type="button" class="quiet" onClick=${cancelEdit}>Cancel</button></p>`}
    <${Attached} draft=${draft} />
    <${Mentions} sessionId=${sessionId} workspace=${session?.workspace.trim() ?? ""} box=${box} draft=${draft} completion=${completion} active=${active} />
    <textarea id="input" ref=${box} rows="1" aria-label="Message" placeholder=${placeholder} value=${text}
      aria-autocomplete="list" aria-controls=${active.value && "mentions"} aria-activedescendant=${active.value}
      onInput=${(/** @type {any} */ event) => { writeDraft(draftId, event.target.value); completion.current?.update(); }}
      onKeyDown=${onKeyDown} onClick=${() => completion.current?.update()} onBlur=${() => completion.current?.close()}
      onPaste=${(/** @type {any} */ event) => {
        const files = pastedFiles(event.clipboardData);
        if (!files.length) return;
        event.preventDefault();
        attachFiles(draft, files);
      }}></textarea>
    <div class="row">
      <button id="attach" type="button" class="quiet" aria-label="Attach files" title="Attach images, PDFs or text files; dropping and pasting them works, too"
        onClick=${() => picker.current?.click()}>+</button>
      <input id="files" ref=${picker} type="file" multiple hidden aria-label="Files to attach" onChange=${(/** @type {any} */ { target }) => {
        attachFiles(draft, [...target.files]);
        target.value = ""; // otherwise picking the same file again is no change
      }} />
      ${session && html`<${ModelChoice} session=${session} change=${change} isRunning=${isRunning} /><${ModeChoice} session=${session} change=${change} />`}
      <span class="space"></span>
      ${isRunning ? html`<select id="when-busy" aria-label="How to send while a turn runs" value=${whenBusy.value}
          title=${`${preferences.value.enterSends ? "Enter" : "Shift+Enter"} sends as chosen here, Ctrl+Enter adds to the running turn, Ctrl+Shift+Enter interrupts it`}
          onChange=${(/** @type {any} */ { target }) => { whenBusy.value = target.value; box.current?.focus(); }}>
          ${Object.entries(WHEN_BUSY).map(([value, labels]) => html`<option key=${value} value=${value}>${labels[Number(openTab.value !== null)]}</option>`)}
        </select>` : !session?.team && html`<select id="variants" aria-label="Number of answers" title="Several answers at once, of which you pick one"
          value=${draft.variants.value} onChange=${(/** @type {any} */ { target }) => { draft.variants.value = target.value; }}>
          ${["", ..."2345678"].map((count) => html`<option key=${count} value=${count}>Answers: ${count || 1}</option>`)}
        </select>`}
      <button id="stop" type="button" hidden=${!isBusy} onClick=${() => attempt(() => actions.stop())}>Stop</button>
      <button id="send" type="submit" class="main">Send</button>
    </div>
  </form>`;
}

/** Return what to show of an error. @returns {Promise<any>} */
export const refusalOf = async (/** @type {any} */ { code, message }) => code === "bad_settings" ? (await refusal()).refusalText(message) : message;

/** Return the fields of POST …/turns. @param {string} input @param {string|null} mode @param {string} when @param {string} variants */
function turnOf(input, mode, when, variants) {
  /** @type {Record<string, unknown>} */
  const turn = { input };
  if (variants) turn.variants = Number(variants); // options begin at once
  else turn.when_busy = when;
  if (mode) turn.mode = mode;
  return turn;
}

/** Return whether a session has a vault of notes: one of these, any for null. */
async function hasVault(/** @type {string[]|null} */ ids) {
  const { vaults } = await api("api/vaults");
  return vaults.some((/** @type {any} */ { id }) => ids === null || ids.includes(id));
}

/** Attach files that are dropped anywhere on the page. */
function useDroppedFiles(/** @type {import("../state/drafts.js").Draft} */ draft) {
  useLayoutEffect(() => {
    const take = (/** @type {DragEvent} */ event) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault(); // otherwise the browser leaves the page and opens the file
      if (event.type === "drop") attachFiles(draft, [...event.dataTransfer.files]);
    };
    addEventListener("dragover", take);
    addEventListener("drop", take);
    return () => {
      removeEventListener("dragover", take);
      removeEventListener("drop", take);
    };
  }, [draft]);
}

/** Have what is typed in a list be a message: it chooses nothing there. @param {KeyboardEvent} event */
const onTyped = (event) => { if (isTyped(event)) document.getElementById("input")?.focus(); };

/** Tell whether a choice was picked in the open list, which is deliberate; a key such as an arrow can choose in the closed one. */
function usePicked() {
  const lastKey = useRef("");
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    lastKey.current = event.key === " " ? "Enter" : event.key;
    onTyped(event);
  };
  const listeners = { onKeyDown, onPointerDown: () => { lastKey.current = ""; } };
  return { isPicked: () => lastKey.current === "" || lastKey.current === "Enter", listeners };
}

/** @param {{session: any, change: (fields: any) => Promise<unknown>, isRunning: boolean}} props */
function ModelChoice({ session, change, isRunning }) {
  const { default: defaultModel, models: all } = models.value;
  const model = session.model ?? "";
  const usable = all.filter(({ id, available }) => available || id === model);
  const isListed = !model || all.some(({ id }) => id === model);
  const label = `${defaultModel} (from settings)`;
  const byDefault = all.find(({ id }) => id === defaultModel);
  const picked = usePicked();
  const onChange = async (/** @type {any} */ { target }) => {
    const chosen = target.value;
    if (chosen !== ADD_KEY) {
      const isChanged = await attempt(() => change({ model: chosen || null }));
      if (isChanged && isRunning) showStatus("This turn keeps its model; the next message gets the new one.", SHORTLY);
      return;
    }
    target.value = model;
    if (picked.isPicked()) openKeyField(all.find(({ id, available }) => id === model && !available)?.provider);
  };
  return html`<select id="session-model" aria-label="Model" title=${`${model || defaultModel}: holds from the next message`} value=${model} onChange=${onChange} ...${picked.listeners}>
    <option value="">${byDefault ? modelText(byDefault, label) : escapeHidden(label)}</option>
    ${usable.map((each) => html`<option key=${each.id} value=${each.id}>${modelText(each)}</option>`)}
    ${!isListed && html`<option value=${model}>${escapeHidden(model)}</option>`}
    <option value=${ADD_KEY}>Add key…${usable.length < all.length && ` (${all.length - usable.length} more models)`}</option>
  </select>`;
}

/** Return the place of a mode among those that allow more and less. */
const widthOf = (/** @type {string} */ mode) => MODES.findIndex(([name]) => name === mode);

/** @param {{session: any, change: (fields: any) => Promise<unknown>}} props */
function ModeChoice({ session, change }) {
  const picked = usePicked();
  const onChange = async (/** @type {any} */ { target }) => {
    const mode = target.value;
    target.value = session.permission_mode; // until it is stored
    const isAsked = widthOf(mode) > widthOf(session.permission_mode) && (mode === "auto" || (mode === "accept_edits" && !picked.isPicked()));
    await attempt(async () => {
      if (!isAsked || await ask((await widerModes()).WIDER[mode]) !== null) await change({ permission_mode: mode });
    });
  };
  return html`<select id="session-mode" aria-label="Permissions" value=${session.permission_mode} onChange=${onChange} ...${picked.listeners}>
    ${MODES.map(([value, sentence, short]) => html`<option key=${value} value=${value}>${isNarrow.value || openTab.value ? short : sentence}</option>`)}
  </select>`;
}
