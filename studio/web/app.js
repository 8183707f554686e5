// The page: a view of one session's log, and the few things a person can do to it.
// Everything shown comes from the log and goes in as text, never as markup.

import { followEvents } from "/assets/stream.js";
import { Attachments, pasted } from "/assets/attachments.js";
import { Conversation, visible } from "/assets/conversation.js";
import { Sessions, sessionActions, titleOf } from "/assets/sessions.js";
import { SENDING, Waiting } from "/assets/waiting.js";

const $ = (id) => document.getElementById(id);
const attachments = new Attachments($("attached"), $("refused"));
const waiting = new Waiting($("waiting"), giveBack);
const TOKEN = "agenticx.token";
let current = null; // {session, conversation, leave}
const sessions = new Sessions(
  { list: $("sessions"), find: $("find"), archived: $("archived") },
  { api, open, current: () => current?.session.id, say: (sentence) => say(sentence) },
);

// --- getting in -----------------------------------------------------------------------------------------------------

async function enter() {
  const ticket = location.hash.slice(1);
  if (ticket) {
    history.replaceState(null, "", location.pathname);
    const answer = await fetch("/api/ticket", json("POST", { ticket }));
    if (answer.ok) sessionStorage.setItem(TOKEN, (await answer.json()).token);
    else if (!sessionStorage.getItem(TOKEN)) return lock("That ticket was used already or has expired.");
  }
  if (!sessionStorage.getItem(TOKEN)) return lock();
  $("studio").hidden = false;
  $("locked").hidden = true;
  await showModels();
  await openFirst();
}

async function openFirst() {
  const [first] = await sessions.show();
  await (first ? open(first) : create());
}

function lock(reason) {
  sessionStorage.removeItem(TOKEN);
  current?.leave();
  $("studio").hidden = true;
  $("locked").hidden = false;
  if (reason) $("locked-reason").textContent = reason;
}

// --- talking to the server ------------------------------------------------------------------------------------------

const json = (method, body) => ({
  method,
  headers: { "Content-Type": "application/json" },
  body: JSON.stringify(body),
});

/** The answer's JSON; throws an Error with the server's own sentence. */
async function api(path, options = {}) {
  const headers = { ...options.headers, Authorization: `Bearer ${sessionStorage.getItem(TOKEN)}` };
  const answer = await fetch(path, { ...options, headers });
  if (answer.status === 401) lock("The studio was restarted with another key, or this tab never had one.");
  const type = answer.headers.get("Content-Type") ?? "";
  const content = answer.status === 204 ? null : await (/json/.test(type) ? answer.json() : answer.text());
  if (!answer.ok) throw Object.assign(new Error(content.detail), { status: answer.status });
  return content;
}

// --- sessions -------------------------------------------------------------------------------------------------------

async function showModels() {
  const { models, default: usual } = await api("/api/models");
  const option = (value, label) => Object.assign(document.createElement("option"), { value, textContent: label });
  $("model").replaceChildren(option("", `as set up (${usual})`), ...models.map(({ id }) => option(id, id)));
}

/** The session has changed: show what of it stands around the conversation. */
async function changed(session) {
  if (session.id === current?.session.id) {
    current.session = session;
    $("title").textContent = titleOf(session);
    for (const [name, label] of [["pin", session.pinned ? "Unpin" : "Pin"], ["archive", session.archived ? "Unarchive" : "Archive"]]) {
      $("actions").querySelector(`[name=${name}]`).textContent = label;
    }
  }
  await sessions.show();
}

sessionActions($("actions"), { api, json, session: () => current.session, changed, gone: () => openFirst(), say: (sentence) => say(sentence) });

async function create() {
  const chosen = { model: $("model").value, permission_mode: $("mode").value, workspace: $("workspace").value.trim() };
  const body = Object.fromEntries(Object.entries(chosen).filter(([, value]) => value));
  try {
    await open(await api("/api/sessions", json("POST", body)));
  } catch (error) {
    $("options").open = true;
    say(error.message);
  }
}

async function open(session) {
  current?.leave();
  const conversation = new Conversation($("log"), { answer, useAgain: (text) => giveBack(text, []), rewind, fork });
  const leave = followEvents(`/api/sessions/${session.id}/events`, {
    token: () => sessionStorage.getItem(TOKEN),
    event: (envelope) => {
      if (!waiting.take(envelope)) conversation.take(envelope);
      if (envelope.type === "session_changed") changed({ ...current.session, ...envelope.data }).catch(() => {});
      reflect();
    },
    reset: () => { conversation.clear(); waiting.clear(); },
    status: say,
    refused: (status) => (status === 401 ? lock() : say("This session is gone.")),
  });
  current = { session, conversation, leave };
  conversation.clear();
  waiting.clear();
  $("place").textContent = session.workspace;
  reflect();
  await changed(session);
  $("input").focus();
}

function reflect() {
  const running = current.conversation.running;
  $("stop").hidden = $("when-busy").hidden = !running;
  $("send").textContent = running ? SENDING[$("when-busy").value] : "Send";
  say(running ? current.conversation.state : "");
}

const say = (sentence) => { $("status").textContent = sentence; };

// --- what a person does -----------------------------------------------------------------------------------------------

async function send(when_busy = $("when-busy").value) {
  const input = $("input").value;
  if (!current) return;
  if (!input.trim()) {
    if (attachments.files.length) attachments.refuse("Say what to do with what is attached.");
    return;
  }
  $("input").value = "";
  await attachments.ready;
  const files = attachments.take();
  const turn = { input, client_turn_id: crypto.randomUUID(), when_busy };
  if (files.length) turn.attachments = files.map(({ name, media_type, data }) => ({ name, media_type, data }));
  waiting.sending(turn.client_turn_id, input, files);
  try {
    await api(`/api/sessions/${current.session.id}/turns`, json("POST", turn));
  } catch (error) {
    if (waiting.refused(turn.client_turn_id)) giveBack(input, files);
    if (files.length) attachments.refuse(error.message);
    else say(error.message);
  }
}

/** Put a message that was not said back where it was written, behind what has been written since. */
function giveBack(input, files) {
  $("input").value = [$("input").value, input].filter((text) => text.trim()).join("\n\n");
  attachments.set([...attachments.files, ...files]);
  $("input").focus();
}

async function stop() {
  say("stopping");
  await api(`/api/sessions/${current.session.id}/stop`, json("POST", {})).catch((error) => say(error.message));
}

/** Let the conversation end with that message; true if it does. What became of files is said in the log's place. */
async function rewind(message_id) {
  try {
    const { rewound_to, files } = await api(`/api/sessions/${current.session.id}/rewind`, json("POST", { message_id }));
    const told = files.filter(({ outcome, reason }) => outcome !== "unchanged" || reason);
    const lines = told.map(({ path, outcome, reason }) => visible(`${path}: ${reason ?? outcome}`));
    current.conversation.tellOfRewind({ rewound_to, lines });
    return true;
  } catch (error) {
    say(error.message);
    return false;
  }
}

async function fork(message_id) {
  try {
    await open(await api(`/api/sessions/${current.session.id}/fork`, json("POST", { message_id })));
  } catch (error) {
    say(error.message);
  }
}

async function answer(question, decision) {
  const body = { ...decision, digest: question.digest };
  await api(`/api/confirms/${question.id}`, json("POST", body));
}

$("composer").addEventListener("submit", (event) => { event.preventDefault(); send(); });
$("input").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.isComposing) return;
  const control = event.ctrlKey || event.metaKey;
  if (event.shiftKey && !control) return; // a new line
  event.preventDefault();
  if (control) send(event.shiftKey ? "interrupt" : "steer");
  else send();
});
$("when-busy").addEventListener("change", () => { reflect(); $("input").focus(); });
$("attach").addEventListener("click", () => $("files").click());
$("files").addEventListener("change", () => {
  attachments.add([...$("files").files]);
  $("files").value = ""; // so that the same file can be picked again
});
$("input").addEventListener("paste", (event) => {
  const files = pasted(event.clipboardData);
  if (files.length) { event.preventDefault(); attachments.add(files); }
});
for (const type of ["dragover", "drop"]) {
  $("studio").addEventListener(type, (event) => {
    if (!event.dataTransfer.types.includes("Files")) return;
    event.preventDefault(); // the browser would leave the page and open the file
    if (type === "drop") attachments.add([...event.dataTransfer.files]);
  });
}
$("stop").addEventListener("click", stop);
$("new-session").addEventListener("click", create);
window.addEventListener("hashchange", () => { if (location.hash.length > 1) enter(); });

enter().catch((error) => say(error.message));
