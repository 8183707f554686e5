// @ts-check
// What was typed and attached and not sent: for each session and each decision in it, stored in the browser, so that
// neither a reload nor another session takes it. A text is stored for the tab, which shows it again after a reload, and
// for the browser, which gives the latest one to a tab that has none.

import { effect, signal } from "../vendor/preact.js";
import { readFiles, storeFiles } from "./stored_files.js";

export const KEY = "agenticx.draft.";
const VARIANTS = "agenticx.variants."; // of a draft, in the storage of the tab
const SAVE_MS = 300; // from the last key to the store
const NEW = "new session"; // that its first message makes; no id of a session has a space
const EDITED_KEY = "agenticx.edited";
const SENT_KEY = "agenticx.sent"; // tells other tabs of a message that was sent
const NOT_STORED = "This browser does not store the files: attach them again after a reload.";
const TEXT_NOT_STORED = "This text is too long for the browser to store: it is lost when this page is left.";

/** @typedef {{name: string, media_type: string|null, size: number, data: string}} File */
/** @typedef {import("../vendor/preact.js").Signal<File[]>} Files */
/**
 * `files` are replaced once the message is taken: a file that is read only then belongs to that message.
 * @typedef {{text: import("../vendor/preact.js").Signal<string>, readonly files: Files, setFiles: (files: Files) => void,
 *   error: import("../vendor/preact.js").Signal<string>, variants: import("../vendor/preact.js").Signal<string>}} Draft
 */

/** @type {Map<string, Draft>} */
const drafts = new Map();
/** Texts that are stored soon, by the key after `KEY`. @type {Map<string, {timer: ReturnType<typeof setTimeout>, read: () => string}>} */
const unsaved = new Map();

/** Return the draft of a session, of the new one for null. @returns {Draft} */
export function draftOf(/** @type {string|null} */ sessionId) {
  const id = sessionId ?? NEW;
  const known = drafts.get(id);
  if (known) return known;
  const files = signal(noFiles());
  const draft = {
    text: signal(storedText(id)),
    get files() { return files.value; },
    setFiles: (/** @type {Files} */ other) => { files.value = other; },
    error: signal(""),
    variants: signal(sessionStorage.getItem(VARIANTS + id) ?? ""),
  };
  drafts.set(id, draft);
  effect(() => storeVariants(id, draft.variants.value));
  loading = Promise.all([loading, keepFiles(id, draft)]);
  return draft;
}

/** @type {Promise<unknown>} */
let loading = Promise.resolve();

/** Resolves when the drafts have the files that were stored. */
export const filesLoaded = () => loading;

/** Messages that are on their way, by the id of their draft: they stay stored until they are accepted. @type {Map<string, {text: string, files: Files, variants: string}>} */
const taken = new Map();

/** The files that are stored, by the id of their draft. @type {Map<string, File[]>} */
const storedFiles = new Map();

/** Take the files of a draft that are stored, and store them when they change. @param {string} id @param {Draft} draft */
async function keepFiles(id, draft) {
  const { files } = draft; // of the message that is written now
  try {
    const stored = await readFiles(id);
    storedFiles.set(id, stored);
    if (stored.length) files.value = [...stored, ...files.value];
    effect(() => {
      const now = draft.files.value; // also of those that are added later
      store(id, [...taken.get(id)?.files.value ?? [], ...now]);
    });
  } catch (error) {
    if (!(error instanceof DOMException)) throw error;
    effect(() => { if (draft.files.value.length) draft.error.value = NOT_STORED; });
  }
}

/** Store the files of a draft if others are stored. @param {string} id @param {File[]} files */
function store(id, files) {
  const before = storedFiles.get(id) ?? [];
  if (files.length === before.length && files.every((file, place) => file === before[place])) return;
  storedFiles.set(id, files);
  storeFiles(id, files).catch(() => { draftOf(id === NEW ? null : id).error.value = NOT_STORED; });
}

/** Store how many answers a draft asks for, or the message of it that is on its way. @param {string} id @param {string} count */
function storeVariants(id, count) {
  const stored = count || taken.get(id)?.variants;
  if (stored) put(sessionStorage, VARIANTS + id, stored);
  else sessionStorage.removeItem(VARIANTS + id);
}

/** @returns {Files} */
const noFiles = () => signal([]);

/** Earlier messages that are edited, by their session: ids. @type {import("../vendor/preact.js").Signal<Record<string, string>>} */
const edited = signal(JSON.parse(localStorage.getItem(EDITED_KEY) ?? "{}"));

/** Return the id of the earlier message of a session that is edited, null if none is. */
export const editedIn = (/** @type {string|null} */ sessionId) => edited.value[sessionId ?? NEW] ?? null;

/** Return whose draft is in the box: that of a message that is edited, beside which the session's own is kept. */
export const shownDraft = (/** @type {string|null} */ sessionId) => editedIn(sessionId) ? `${sessionId}.edit` : sessionId;

/** Put an earlier message into the box. @param {string} sessionId @param {string} messageId @param {string} text @param {File[]} files */
export function beginEdit(sessionId, messageId, text, files) {
  setEdited({ ...edited.peek(), [sessionId]: messageId });
  const id = shownDraft(sessionId);
  writeDraft(id, text);
  draftOf(id).files.value = files;
}

/** Show the draft of the session again; remove what was typed for the message that was edited. */
export function endEdit(/** @type {string} */ sessionId) {
  if (!editedIn(sessionId)) return;
  const id = /** @type {string} */ (shownDraft(sessionId));
  const { [sessionId]: _, ...others } = edited.peek();
  setEdited(others);
  removeDraft(id);
}

function setEdited(/** @type {Record<string, string>} */ messages) {
  edited.value = messages;
  localStorage.setItem(EDITED_KEY, JSON.stringify(messages));
}

/** Set the text of a draft, and store it once no key was pressed for a moment. */
export function writeDraft(/** @type {string|null} */ sessionId, /** @type {string} */ text) {
  const id = sessionId ?? NEW;
  draftOf(sessionId).text.value = text;
  storeSoon(id, () => textToStore(id));
}

/** Return what is typed in a draft, below the message of it that is on its way. */
const textToStore = (/** @type {string} */ id) => joined(taken.get(id)?.text, drafts.get(id)?.text.value);

/** Return texts below each other, without blank ones. */
export const joined = (/** @type {(string|undefined)[]} */ ...texts) => texts.filter((text) => text?.trim()).join("\n\n");

/** Store the text that `read` returns, as it is once no key was pressed for a moment, or the page goes. */
export function storeSoon(/** @type {string} */ key, /** @type {() => string} */ read) {
  clearTimeout(unsaved.get(key)?.timer);
  unsaved.set(key, { timer: setTimeout(() => save(key), SAVE_MS), read });
}

/** Return a text that was stored for a key, "" if there is none. */
export const storedText = (/** @type {string} */ key) => sessionStorage.getItem(KEY + key) ?? localStorage.getItem(KEY + key) ?? "";

/** Remove the text of a key; one of another tab stays. */
export function forgetText(/** @type {string} */ key) {
  clearTimeout(unsaved.get(key)?.timer);
  unsaved.delete(key);
  const own = sessionStorage.getItem(KEY + key);
  sessionStorage.removeItem(KEY + key);
  if (own === null || own === localStorage.getItem(KEY + key)) localStorage.removeItem(KEY + key);
}

window.addEventListener("storage", ({ key, newValue, storageArea }) => { // another tab has sent or removed its text
  if (key === SENT_KEY && newValue) {
    const { id, text } = JSON.parse(newValue);
    const shown = drafts.get(id)?.text;
    if (shown ? shown.peek() === text : storedText(id) === text) { // the same text: that tab or this one took it over
      if (shown) shown.value = "";
      forgetText(id);
    }
    return;
  }
  const own = key?.startsWith(KEY) && storageArea === localStorage && newValue === null ? sessionStorage.getItem(key) : null;
  if (own !== null) put(localStorage, /** @type {string} */ (key), own);
});

/**
 * Take the message of a draft, to be sent: its box is empty then, while what is stored stays until `forgetDraft`. Its
 * files are complete once all are read.
 * @param {string|null} sessionId
 */
export function takeDraft(sessionId) {
  const draft = draftOf(sessionId);
  const message = { text: draft.text.value, files: draft.files, variants: draft.variants.value };
  saveText(sessionId ?? NEW, message.text);
  taken.set(sessionId ?? NEW, message);
  draft.text.value = "";
  draft.setFiles(noFiles());
  draft.variants.value = "";
  draft.error.value = "";
  return message;
}

/** Append an unsent message to a draft. @param {string|null} sessionId @param {string} text @param {File[]} files */
export function restoreDraft(sessionId, text, files) {
  const draft = draftOf(sessionId);
  draft.variants.value ||= taken.get(sessionId ?? NEW)?.variants ?? "";
  taken.delete(sessionId ?? NEW);
  writeDraft(sessionId, joined(draft.text.value, text));
  draft.files.value = [...draft.files.value, ...files];
}

/** Move the message that has made a session, and what was written after it, from the new session to that one. */
export function moveDraft(/** @type {string} */ sessionId) {
  const from = draftOf(null), to = draftOf(sessionId);
  const message = taken.get(NEW);
  if (message) taken.set(sessionId, message);
  to.text.value = from.text.value;
  saveText(sessionId, textToStore(sessionId));
  from.text.value = "";
  to.variants.value = from.variants.value;
  from.variants.value = "";
  storeVariants(sessionId, to.variants.value);
  to.setFiles(from.files); // with those that are still read
  from.setFiles(noFiles());
  forgetDraft(null);
}

/** Store what was typed last, as the page may go. */
export function saveDrafts() {
  for (const id of unsaved.keys()) save(id);
}

/** Remove what is stored of a draft, unless more was typed meanwhile. @param {string|null} sessionId */
export function forgetDraft(sessionId) {
  const id = sessionId ?? NEW;
  const sent = taken.get(id);
  taken.delete(id);
  if (sent?.text && put(localStorage, SENT_KEY, JSON.stringify({ id, text: sent.text }))) localStorage.removeItem(SENT_KEY);
  store(id, draftOf(sessionId).files.value);
  storeVariants(id, draftOf(sessionId).variants.value);
  saveText(id, draftOf(sessionId).text.value);
}

/** Remove a draft with what is stored of it and of the decisions: its session was deleted. */
export function removeDraft(/** @type {string} */ sessionId) {
  endEdit(sessionId);
  const draft = draftOf(sessionId);
  draft.text.value = "";
  draft.files.value = [];
  draft.variants.value = "";
  draft.error.value = "";
  forgetDraft(sessionId);
  const stored = Object.keys(localStorage).filter((key) => key.startsWith(KEY)).map((key) => key.slice(KEY.length));
  for (const key of [...unsaved.keys(), ...stored]) if (key.startsWith(`${sessionId}.`)) forgetText(key); // of its decisions
}

function save(/** @type {string} */ key) {
  saveText(key, unsaved.get(key)?.read() ?? "");
}

/** Store a text now; "" removes it. @param {string} key @param {string} text */
export function saveText(key, text) {
  if (!text) {
    forgetText(key);
    return;
  }
  clearTimeout(unsaved.get(key)?.timer);
  unsaved.delete(key);
  const isStored = put(sessionStorage, KEY + key, text);
  const isShared = put(localStorage, KEY + key, text);
  const error = drafts.get(key)?.error;
  if (!error) return;
  if (!isStored && !isShared) error.value = TEXT_NOT_STORED;
  else if (error.peek() === TEXT_NOT_STORED) error.value = "";
}

/** Store a text and return true; where it has no room, no earlier one stays in its place. @param {Storage} storage @param {string} key @param {string} text */
export function put(storage, key, text) {
  try {
    storage.setItem(key, text);
    return true;
  } catch (error) {
    if (!(error instanceof DOMException)) throw error;
    storage.removeItem(key);
    return false;
  }
}
