// @ts-check
// What the page knows of the whole studio: its sessions, the questions that wait in them, its models and teams.

import { computed, effect, signal } from "../vendor/preact.js";
import { UNREACHABLE, api, reconnects } from "../net/api.js";

const REFRESH_MS = 300; // from an event to the list it changes, once for all events meanwhile
const PAGE = 100; // sessions of a page of the list
const TITLE_CHARS = 60;
const SUBJECT_CHARS = 80; // of what a question in another session is about
const SEARCH_DELAY_MS = 250; // from the last key to the search

/** @typedef {{id: string, name: string|null, model: string|null, permission_mode: string, workspace: string,
 *   team: string|null, pinned: boolean, archived: boolean, created_at: string, updated_at: string,
 *   state: "idle"|"running"|"waiting", running_turn_id: string|null, running_since: string|null, last_outcome: string|null, vaults: string[]|null, matches?: any[]}} Session */
/** @typedef {{id: string, kind: "confirm"|"question", sessionId: string, text: string, tool: string, agentPath: string[]|null}} Waiting */

/** @type {import("../vendor/preact.js").Signal<Session[]>} */
export const sessions = signal([]);
export const isListed = signal(false);
export const hasMore = signal(false); // whether there are older sessions than those that are listed
export const words = signal(""); // that the listed sessions have
export const showsArchived = signal(false);
/** @type {import("../vendor/preact.js").Signal<Session|null>} */
export const current = signal(null);
/** Requests to the person that are open, of all sessions, by id. @type {import("../vendor/preact.js").Signal<Map<string, Waiting>>} */
export const waiting = signal(new Map());
/** @type {import("../vendor/preact.js").Signal<{default: string, models: any[]}>} */
export const models = signal({ default: "", models: [] });
/** @type {import("../vendor/preact.js").Signal<any[]>} */
export const teams = signal([]);
/** One sentence for the status line, such as why an action failed. */
export const status = signal("");

export const waitingElsewhere = computed(() =>
  [...waiting.value.values()].filter(({ sessionId }) => sessionId !== current.value?.id));

/** How long it is said that something was done, in milliseconds. */
export const SHORTLY = 8000;

/** @type {ReturnType<typeof setTimeout>|undefined} */
let clearing;

/** Show a sentence in the status line until another one is shown, or for some time. @param {string} text @param {number} [milliseconds] */
export function showStatus(text, milliseconds) {
  clearTimeout(clearing);
  status.value = text;
  if (milliseconds) clearing = setTimeout(() => { status.value = ""; }, milliseconds);
}

effect(() => { if (reconnects.value && status.peek() === UNREACHABLE) showStatus(""); });

/** Run an action; a failure is shown in the status line. @param {() => Promise<unknown>} action */
export async function attempt(action) {
  try {
    await action();
    return true;
  } catch (error) {
    showStatus(error instanceof Error ? error.message : String(error));
    return false;
  }
}

/** How the first messages of sessions begin that have no name yet, by session. @type {import("../vendor/preact.js").Signal<Map<string, string>>} */
const firstWords = signal(new Map());

/** Keep the beginning of a session's first message, which is its title until it has a name. */
export function noteFirstMessage(/** @type {string} */ sessionId, /** @type {string} */ text) {
  const line = text.replace(/\s+/g, " ").trim();
  if (!line || firstWords.peek().has(sessionId)) return;
  const shown = line.length > TITLE_CHARS ? `${line.slice(0, TITLE_CHARS)}…` : line;
  firstWords.value = new Map(firstWords.peek()).set(sessionId, shown);
}

export const titleOf = (/** @type {Session} */ session) => session.name ?? firstWords.value.get(session.id)
  ?? new Date(session.created_at).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });

/** Sessions with open requests that the list does not have, by id; null while they are loaded. @type {import("../vendor/preact.js").Signal<Map<string, Session|null>>} */
const unlisted = signal(new Map());

effect(() => {
  if (!isListed.value) return;
  for (const { sessionId: id } of waiting.value.values()) {
    if (unlisted.peek().has(id) || sessions.value.some((each) => each.id === id)) continue;
    unlisted.value = new Map(unlisted.peek()).set(id, null);
    attempt(async () => { unlisted.value = new Map(unlisted.peek()).set(id, await api(`api/sessions/${id}`)); });
  }
});

/** Return the title of the session in which something waits, "" while it is loaded. */
export function waitingTitle(/** @type {Waiting} */ { sessionId }) {
  const session = sessions.value.find(({ id }) => id === sessionId) ?? unlisted.value.get(sessionId);
  return session ? titleOf(session) : "";
}

// --- loading --------------------------------------------------------------------------------------------------------

export async function loadAll() {
  await Promise.all([refreshSessions(), refreshWaiting(), refreshModels(), refreshTeams()]);
}

let pages = 1; // of the list that are shown
let latest = 0; // an older answer that arrives later is not shown
/** Newer than the list that is loaded, by id. @type {Map<string, Partial<Session>>} */
let replaced = new Map();
/** Likewise requests, null for one that was answered. @type {Map<string, Waiting|null>} */
let noted = new Map();

/**
 * Return the sessions that a query of GET /api/sessions finds, at most `count`, from as many pages as that takes.
 * @param {Record<string, string>} query @param {number} count @param {AbortSignal} [signal] @returns {Promise<Session[]>}
 */
export async function readSessions(query, count, signal) {
  /** @type {Session[]} */
  const found = [];
  for (let isLast = false; !isLast && found.length < count;) {
    const limit = Math.min(PAGE, count - found.length);
    const page = new URLSearchParams({ ...query, limit: String(limit) });
    if (found.length) page.set("before", found[found.length - 1].id);
    const { sessions: next } = await api(`api/sessions?${page}`, { signal });
    found.push(...next);
    isLast = next.length < limit;
  }
  return found;
}

export async function refreshSessions() {
  const request = ++latest;
  replaced = new Map();
  const count = pages * PAGE;
  const listed = await readSessions({ archived: String(showsArchived.value), q: words.value.trim() }, count);
  if (request !== latest) return;
  hasMore.value = listed.length === count;
  sessions.value = listed.map((each) => ({ ...each, ...replaced.get(each.id) }));
  isListed.value = true;
  const shown = sessions.value.find(({ id }) => id === current.value?.id);
  if (shown && current.value) current.value = { ...current.value, ...shown };
}

/** List more of the older sessions. */
export function showMore() {
  pages += 1;
  return refreshSessions();
}

export async function refreshModels() { models.value = await api("api/models"); }

export async function refreshTeams() { teams.value = (await api("api/teams")).teams; }

export async function refreshWaiting() {
  const since = noted = new Map();
  const [{ confirms }, { questions }] = await Promise.all([api("api/confirms"), api("api/questions")]);
  if (since !== noted) return;
  const open = new Map([
    ...confirms.map((/** @type {any} */ one) => [one.id, waitingOf("confirm", one.session_id, one)]),
    ...questions.map((/** @type {any} */ one) => [one.id, waitingOf("question", one.session_id, one)]),
    ...since,
  ]);
  waiting.value = new Map([...open].filter(([, request]) => request));
}

/** @param {"confirm"|"question"} kind @param {string} sessionId @param {any} data @returns {Waiting} */
function waitingOf(kind, sessionId, { id, question, text, context, agent_path }) {
  const asked = question ?? text;
  return { kind, id, sessionId, text: asked + subjectOf(asked, context ?? {}), tool: context?.tool ?? "", agentPath: agent_path ?? null };
}

/** Return the command or the path that a question is about and does not name, on one line. @param {string} asked @param {any} context */
function subjectOf(asked, { command, path }) {
  const subject = (command ?? path ?? "").trim();
  if (!subject || asked.includes(subject)) return "";
  const line = subject.split("\n", 1)[0];
  const shown = line.slice(0, SUBJECT_CHARS).replace(/[\ud800-\udbff]$/, "");
  return ` ${shown}${shown === subject ? "" : "…"}`;
}

/** @type {ReturnType<typeof setTimeout>|undefined} */
let refreshing;
/** @type {ReturnType<typeof setTimeout>|undefined} */
let searching;

/** Load the list again soon, once for all calls meanwhile. */
export function refreshSoon() {
  refreshing ??= setTimeout(() => {
    refreshing = undefined;
    attempt(refreshSessions);
  }, REFRESH_MS);
}

/** Search the sessions once the person has stopped typing. */
export function search(/** @type {string} */ text) {
  words.value = text;
  clearTimeout(searching);
  searching = setTimeout(() => attempt(refreshSessions), SEARCH_DELAY_MS);
}

/** Load one session into the list and, if it is shown, the page. */
export async function refreshSession(/** @type {string} */ id) {
  replaceSession(await api(`api/sessions/${id}`));
}

export function replaceSession(/** @type {Session} */ session) {
  replaced.set(session.id, session);
  if (current.value?.id === session.id) current.value = { ...current.value, ...session };
  sessions.value = sessions.value.map((each) => each.id === session.id ? { ...each, ...session } : each);
  refreshSoon(); // its place in the list may be another
}

// --- events of all sessions -----------------------------------------------------------------------------------------

/** Take one event of any session. */
export function noteEvent(/** @type {any} */ { type, session_id: id, turn_id, ts, data }) {
  switch (type) {
    case "confirm_required": return addWaiting(waitingOf("confirm", id, data));
    case "question_asked": return addWaiting(waitingOf("question", id, data));
    case "confirm_response":
    case "question_answered": return removeWaiting(data.id, id);
    case "turn_started":
      if (data.parent_turn_id) return;
      noteFirstMessage(id, data.input ?? "");
      return change(id, { state: stateOf(id, turn_id), running_turn_id: turn_id, running_since: ts, updated_at: ts });
    case "error":
      if (!data.fatal) return;
    // falls through: a fatal error ends its turn as `final` does
    case "final": {
      const session = sessions.value.find((each) => each.id === id);
      if (session?.running_turn_id === turn_id) change(id, { state: stateOf(id, null), running_turn_id: null, running_since: null, last_outcome: data.code ?? data.reason, updated_at: ts });
      return refreshSoon();
    }
    default: return refreshSoon(); // a sub-agent may work on after the turn that began it
  }
}

function addWaiting(/** @type {Waiting} */ request) {
  noted.set(request.id, request);
  waiting.value = new Map(waiting.value).set(request.id, request);
  change(request.sessionId, { state: "waiting" });
}

function removeWaiting(/** @type {string} */ requestId, /** @type {string} */ sessionId) {
  noted.set(requestId, null);
  const rest = new Map(waiting.value);
  rest.delete(requestId);
  waiting.value = rest;
  const session = sessions.value.find(({ id }) => id === sessionId);
  if (session) change(sessionId, { state: stateOf(sessionId, session.running_turn_id) });
}

/** Return the state of a session: sub-agents can wait for the person after the turn that began them has ended. */
function stateOf(/** @type {string} */ id, /** @type {string|null} */ turnId) {
  if ([...waiting.value.values()].some(({ sessionId }) => sessionId === id)) return "waiting";
  return turnId === null ? "idle" : "running";
}

/** @param {string} id @param {Partial<Session>} fields */
function change(id, fields) {
  replaced.set(id, { ...replaced.get(id), ...fields });
  if (!sessions.value.some((each) => each.id === id)) return refreshSoon();
  sessions.value = sessions.value.map((each) => each.id === id ? { ...each, ...fields } : each);
  if (current.value?.id === id) current.value = { ...current.value, ...fields };
}
