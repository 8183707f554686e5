// The page: a view of the events of one session, and the actions of the user.
// All content comes from events and is inserted as text, never as markup.

import { followEvents } from "./stream.js";
import { Artifacts } from "./artifacts.js";
import { Attachments, pastedFiles } from "./attachments.js";
import { Conversation } from "./conversation.js";
import { escapeHidden } from "./hidden_characters.js";
import { NO_VAULT, asTyped, explainMode, parseMode } from "./modes.js";
import { Rules } from "./permissions.js";
import { QueuedMessages, SEND_LABELS } from "./queued_messages.js";
import { Subagents } from "./subagents.js";
import { SessionOptions, modelOption } from "./session_options.js";
import { SessionList, bindSessionActions, titleOf } from "./sessions.js";
import { TrustNotice } from "./trust.js";
import { Vaults } from "./vaults.js";

const $ = (id) => document.getElementById(id);
const attachments = new Attachments($("attached"), $("attachment-error"));
const subagents = new Subagents($("subagents"));
const queuedMessages = new QueuedMessages($("queued"), restoreDraft);
const TOKEN_KEY = "agenticx.token"; // in the session storage
let current = null; // {session, conversation, unsubscribe}
let changesSeen = 0; // events that say that the session changed
const sessionList = new SessionList(
  { list: $("sessions"), find: $("find"), archived: $("archived") },
  { api, openSession, currentId: () => current?.session.id, showStatus },
);
const sessionOptions = new SessionOptions(
  { model: $("session-model"), mode: $("session-mode"), warning: $("auto-warning") },
  { change: changeSession, showStatus },
);
const vaults = new Vaults(
  { box: $("vaults"), list: $("vault-list"), form: $("add-vault"), error: $("vault-error") },
  { api, json },
);
const rules = new Rules(
  { box: $("rules"), list: $("rule-list"), form: $("explain"), explained: $("explained"), error: $("rule-error") },
  { api, json, sessionId: () => current?.session.id },
);
const trust = new TrustNotice($("session-trust"), { api, json, sessionId: () => current?.session.id, showStatus });
const artifacts = new Artifacts(
  { pane: $("artifacts"), toggle: $("show-artifacts") },
  { api, json, blob: async (path) => (await request(path)).blob(), showStatus },
);

// --- signing in -----------------------------------------------------------------------------------------------------

/** Exchange the ticket in the URL, if there is one, for the token; show the first session. */
async function signIn() {
  const ticket = location.hash.slice(1);
  if (ticket) {
    history.replaceState(null, "", location.pathname);
    const response = await fetch("api/ticket", json("POST", { ticket }));
    if (response.ok) sessionStorage.setItem(TOKEN_KEY, (await response.json()).token);
    else if (!sessionStorage.getItem(TOKEN_KEY)) return signOut("This ticket was used already or has expired.");
  }
  if (!sessionStorage.getItem(TOKEN_KEY)) return signOut();
  $("studio").hidden = false;
  $("locked").hidden = true;
  await loadModels();
  await openFirstSession();
}

async function openFirstSession() {
  const [first] = await sessionList.refresh();
  await (first ? openSession(first) : createSession());
}

/** Remove the token and show how to sign in. */
function signOut(reason) {
  sessionStorage.removeItem(TOKEN_KEY);
  current?.unsubscribe();
  artifacts.open(null);
  $("studio").hidden = true;
  $("locked").hidden = false;
  if (reason) $("locked-reason").textContent = reason;
}

// --- requests -------------------------------------------------------------------------------------------------------

function json(method, body) {
  return { method, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
}

/** Return the response's JSON or text, null if it has none; throw an Error with the server's message and `status`. */
async function api(path, options = {}) {
  const response = await request(path, options);
  if (response.status === 204) return null;
  return /json/.test(response.headers.get("Content-Type") ?? "") ? response.json() : response.text();
}

/** Return the response to a request with the token; throws as `api` does. */
async function request(path, options = {}) {
  const headers = { ...options.headers, Authorization: `Bearer ${sessionStorage.getItem(TOKEN_KEY)}` };
  const response = await fetch(path, { ...options, headers });
  if (response.status === 401) signOut("This tab's token is not valid: the studio was restarted with another one.");
  if (!response.ok) throw Object.assign(new Error((await response.json()).detail), { status: response.status });
  return response;
}

// --- sessions -------------------------------------------------------------------------------------------------------

async function loadModels() {
  const { models, default: defaultModel } = await api("api/models?available=true");
  const ids = models.map(({ id }) => id);
  $("model").replaceChildren(modelOption("", `from settings (${defaultModel})`), ...ids.map((id) => modelOption(id)));
  sessionOptions.setModels(ids, defaultModel);
}

async function changeSession(fields) {
  await showChangedSession(await api(`api/sessions/${current.session.id}`, json("PATCH", fields)));
}

/**
 * Load the session again after an event that says that it changed, once for all events that arrive meanwhile.
 * The event itself may be an old one: the stream begins with those of the past.
 */
async function reloadSession({ id }) {
  const seen = ++changesSeen;
  await new Promise((resolve) => setTimeout(resolve));
  if (seen !== changesSeen) return;
  const session = await api(`api/sessions/${id}`);
  if (seen === changesSeen) await showChangedSession(session);
}

/** Update title, options, buttons and list after a change of the session. */
async function showChangedSession(session) {
  if (session.id === current?.session.id) {
    current.session = session;
    $("title").textContent = titleOf(session);
    sessionOptions.show(session);
    const labels = { pin: session.pinned ? "Unpin" : "Pin", archive: session.archived ? "Unarchive" : "Archive" };
    for (const [name, label] of Object.entries(labels)) {
      $("actions").querySelector(`[name=${name}]`).textContent = label;
    }
  }
  await sessionList.refresh();
}

bindSessionActions($("actions"), {
  api,
  json,
  session: () => current.session,
  onChanged: showChangedSession,
  onDeleted: openFirstSession,
  showStatus,
});

async function createSession() {
  const options = { model: $("model").value, permission_mode: $("mode").value, workspace: $("workspace").value.trim() };
  const body = Object.fromEntries(Object.entries(options).filter(([, value]) => value));
  try {
    await openSession(await api("api/sessions", json("POST", body)));
  } catch (error) {
    $("options").open = true;
    showStatus(error.message);
  }
}

async function openSession(session) {
  current?.unsubscribe();
  const insertDraft = (text) => restoreDraft(asTyped(text), []);
  const readNote = (vault, path) => vaults.readNote(vault, path);
  const actions = { answerRequest, insertDraft, rewind, fork, readNote };
  const conversation = new Conversation($("log"), actions);
  const unsubscribe = followEvents(`api/sessions/${session.id}/events`, {
    token: () => sessionStorage.getItem(TOKEN_KEY),
    onEvent: (envelope) => {
      if (!queuedMessages.handle(envelope)) conversation.handle(envelope);
      subagents.handle(envelope);
      artifacts.handle(envelope);
      if (envelope.data.rules || envelope.data.rule_removed) rules.refresh();
      if (envelope.data.context?.decided_by === "untrusted") showTrust();
      if (envelope.type === "session_changed") {
        reloadSession(session).catch((error) => showStatus(error.message));
      }
      updateControls();
    },
    onReset: () => { conversation.clear(); queuedMessages.clear(); subagents.clear(); artifacts.clear(); },
    onStatus: showStatus,
    onRejected: (status) => (status === 401 ? signOut() : showStatus("This session does not exist any more.")),
  });
  current = { session, conversation, unsubscribe };
  conversation.clear();
  queuedMessages.clear();
  subagents.clear();
  artifacts.open(session);
  $("session-folder").textContent = session.workspace;
  updateControls();
  rules.refresh();
  showInstructions(session).catch((error) => showStatus(error.message));
  $("session-trust").hidden = true;
  showTrust();
  await showChangedSession(session);
  $("input").focus();
}

/** Name the files of the workspace whose instructions the model gets. */
async function showInstructions(session) {
  $("session-instructions").hidden = true;
  const { files } = await api(`api/sessions/${session.id}/instructions`);
  if (session.id !== current?.session.id || !files.length) return;
  $("session-instructions").textContent = `instructions: ${files.join(", ")}`;
  $("session-instructions").hidden = false;
}

/** Name the files among them that are not trusted. */
function showTrust() {
  trust.refresh().catch((error) => showStatus(error.message));
}

/** Show buttons and status according to whether a turn runs. */
function updateControls() {
  const running = current.conversation.running;
  $("stop").hidden = $("when-busy").hidden = !running;
  $("variants").hidden = running;
  $("send").textContent = running ? SEND_LABELS[$("when-busy").value] : "Send";
  showStatus(running ? current.conversation.state : "");
}

function showStatus(text) { $("status").textContent = text; }

// --- actions of the user ----------------------------------------------------------------------------------------------

async function send(when_busy = $("when-busy").value) {
  const typed = $("input").value;
  const { mode, input } = parseMode(typed);
  if (!current || input === null) return; // how to use the command is shown
  if (!input.trim()) {
    if (attachments.files.length) attachments.showError("Write a message for the attached files.");
    return;
  }
  const { session } = current;
  setInput("");
  await attachments.loaded;
  const files = attachments.takeAll();
  const turn = { input, client_turn_id: crypto.randomUUID(), when_busy };
  if (mode) turn.mode = mode;
  if ($("variants").value && !current.conversation.running) {
    turn.variants = Number($("variants").value);
    delete turn.when_busy; // options begin at once
    $("variants").value = "";
  }
  if (files.length) turn.attachments = files.map(({ name, media_type, data }) => ({ name, media_type, data }));
  queuedMessages.addSent(turn.client_turn_id, typed, files);
  try {
    if (mode === "vault" && !(await vaults.has(session.vaults))) throw new Error(NO_VAULT);
    await api(`api/sessions/${session.id}/turns`, json("POST", turn));
  } catch (error) {
    attachments.showError(error.message);
    if (queuedMessages.removeSent(turn.client_turn_id)) restoreDraft(typed, files);
  }
}

/** Set the text in the input box and say what a command at its beginning does. */
function setInput(text) {
  $("input").value = text;
  showModeHint();
}

function showModeHint() {
  const joinsTurn = Boolean(current?.conversation.running) && $("when-busy").value === "steer";
  const hint = explainMode($("input").value, joinsTurn);
  $("mode-hint").hidden = !hint || !$("attachment-error").hidden;
  if ($("mode-hint").textContent !== hint) $("mode-hint").textContent = hint;
}

/** Append an unsent message to the text in the input box, and its files to the attached ones. */
function restoreDraft(input, files) {
  setInput([$("input").value, input].filter((text) => text.trim()).join("\n\n"));
  attachments.set([...attachments.files, ...files]);
  $("input").focus();
}

async function stop() {
  showStatus("stopping");
  await api(`api/sessions/${current.session.id}/stop`, json("POST", {})).catch((error) => showStatus(error.message));
}

/** Rewind the conversation to this message and note which files were restored; return true on success. */
async function rewind(message_id) {
  try {
    const { rewound_to, files } = await api(`api/sessions/${current.session.id}/rewind`, json("POST", { message_id }));
    const reported = files.filter(({ outcome, reason }) => outcome !== "unchanged" || reason);
    const lines = reported.map(({ path, outcome, reason }) => escapeHidden(`${path}: ${reason ?? outcome}`));
    current.conversation.addRewindNotes({ rewound_to, lines });
    return true;
  } catch (error) {
    showStatus(error.message);
    return false;
  }
}

async function fork(message_id) {
  try {
    await openSession(await api(`api/sessions/${current.session.id}/fork`, json("POST", { message_id })));
  } catch (error) {
    showStatus(error.message);
  }
}

/** Answer a request to the user; `kind` is "confirms" or "questions". */
async function answerRequest(kind, id, answer) {
  await api(`api/${kind}/${id}`, json("POST", answer));
}

$("composer").addEventListener("submit", (event) => { event.preventDefault(); send(); });
$("input").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.isComposing) return;
  const control = event.ctrlKey || event.metaKey;
  if (event.shiftKey && !control) return; // inserts a line break
  event.preventDefault();
  if (control) send(event.shiftKey ? "interrupt" : "steer");
  else send();
});
$("input").addEventListener("input", showModeHint);
$("when-busy").addEventListener("change", () => { updateControls(); showModeHint(); $("input").focus(); });
$("attach").addEventListener("click", () => $("files").click());
$("files").addEventListener("change", () => {
  attachments.add([...$("files").files]);
  $("files").value = ""; // otherwise picking the same file again is no change
});
$("input").addEventListener("paste", (event) => {
  const files = pastedFiles(event.clipboardData);
  if (files.length) { event.preventDefault(); attachments.add(files); }
});
for (const type of ["dragover", "drop"]) {
  $("studio").addEventListener(type, (event) => {
    if (!event.dataTransfer.types.includes("Files")) return;
    event.preventDefault(); // otherwise the browser leaves the page and opens the file
    if (type === "drop") attachments.add([...event.dataTransfer.files]);
  });
}
$("stop").addEventListener("click", stop);
$("new-session").addEventListener("click", createSession);
window.addEventListener("hashchange", () => { if (location.hash.length > 1) signIn(); });

signIn().catch((error) => showStatus(error.message));
