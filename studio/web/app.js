// The page: a view of one session's log, and the few things a person can do to it.
// Everything shown comes from the log and goes in as text, never as markup.

import { followEvents } from "/assets/stream.js";
import { Conversation } from "/assets/conversation.js";

const $ = (id) => document.getElementById(id);
const TOKEN = "agenticx.token";
let current = null; // {session, conversation, leave}

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
  const sessions = await listSessions();
  if (sessions.length) await open(sessions[0]);
  else await create();
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
  const content = answer.status === 204 ? null : await answer.json();
  if (!answer.ok) throw Object.assign(new Error(content.detail), { status: answer.status });
  return content;
}

// --- sessions -------------------------------------------------------------------------------------------------------

async function showModels() {
  const { models, default: usual } = await api("/api/models");
  const option = (value, label) => Object.assign(document.createElement("option"), { value, textContent: label });
  $("model").replaceChildren(option("", `as set up (${usual})`), ...models.map(({ id }) => option(id, id)));
}

async function listSessions() {
  const { sessions } = await api("/api/sessions");
  $("sessions").replaceChildren(...sessions.map(sessionRow));
  return sessions;
}

function sessionRow(session) {
  const button = Object.assign(document.createElement("button"), { type: "button", textContent: titleOf(session) });
  if (session.id === current?.session.id) button.setAttribute("aria-current", "true");
  button.addEventListener("click", () => open(session));
  const row = document.createElement("li");
  row.append(button);
  return row;
}

const titleOf = (session) => session.name ?? new Date(session.created_at).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });

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
  const conversation = new Conversation($("log"), { answer: (question, decision) => answer(question, decision) });
  const leave = followEvents(`/api/sessions/${session.id}/events`, {
    token: () => sessionStorage.getItem(TOKEN),
    event: (envelope) => { conversation.take(envelope); reflect(); },
    reset: () => conversation.clear(),
    status: say,
    refused: (status) => (status === 401 ? lock() : say("This session is gone.")),
  });
  current = { session, conversation, leave };
  conversation.clear();
  $("title").textContent = titleOf(session);
  $("place").textContent = session.workspace;
  reflect();
  await listSessions();
  $("input").focus();
}

function reflect() {
  const running = current.conversation.running;
  $("send").hidden = running;
  $("stop").hidden = !running;
  say(running ? current.conversation.state : "");
}

const say = (sentence) => { $("status").textContent = sentence; };

// --- what a person does -----------------------------------------------------------------------------------------------

async function send() {
  const input = $("input").value;
  if (!input.trim() || !current || current.conversation.running) return;
  $("input").value = "";
  try {
    const turn = { input, client_turn_id: crypto.randomUUID() };
    await api(`/api/sessions/${current.session.id}/turns`, json("POST", turn));
  } catch (error) {
    $("input").value = input;
    say(error.message);
  }
}

async function stop() {
  say("stopping");
  await api(`/api/sessions/${current.session.id}/stop`, json("POST", {})).catch((error) => say(error.message));
}

async function answer(question, decision) {
  const body = { ...decision, digest: question.digest };
  await api(`/api/confirms/${question.id}`, json("POST", body));
}

$("composer").addEventListener("submit", (event) => { event.preventDefault(); send(); });
$("input").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
});
$("stop").addEventListener("click", stop);
$("new-session").addEventListener("click", create);
window.addEventListener("hashchange", () => { if (location.hash.length > 1) enter(); });

enter().catch((error) => say(error.message));
