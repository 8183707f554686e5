// @ts-check
// The list of sessions: what waits and what runs, by day; found by words, archived ones on request.

import { html } from "../vendor/preact.js";
import { isLost } from "../net/lost_connection.js";
import { openFinder } from "../state/finder.js";
import { go, route, sessionPath } from "../state/route.js";
import {
  attempt, current, hasMore, isListed, refreshSessions, search, sessions, showMore, showsArchived, titleOf, waiting,
  waitingElsewhere, words,
} from "../state/studio.js";
import { escapeHiddenText } from "../text/hidden_characters.js";
import { Message, lazy } from "./lazy.js";
import { isListOpen, isNarrow } from "./pane.js";

const WaitingList = lazy(() => import("./waiting_list.js"), "WaitingList");
const CloseList = lazy(() => import("./close_list.js"), "CloseList");
const Seconds = lazy(() => import("./clock.js"), "Seconds");

/** The outcomes of a last turn that has not failed; all others are codes of errors. */
const NOT_FAILED = /^(answer|resolved|not_resolved|handoff|partial|stopped|interrupted)$/;
const MATCH_CHARS = 20; // before what was found

export function Sessions() {
  const count = waiting.value.size;
  const isScreen = isNarrow.value && route.value.name === "sessions"; // it is all that is shown
  return html`<div class="side" role=${isScreen ? "main" : undefined}><nav aria-label="Sessions" data-region="Sessions" tabindex="-1">
    <header>
      ${isListOpen() ? html`<${CloseList} />` : isScreen ? html`<h1 class="brand">AgenticX</h1>` : html`<strong class="brand">AgenticX</strong>`}
      <a class="button" id="new-session" role="button" href="#/new" onKeyDown=${clickOnSpace}>New session</a>
    </header>
    <div class="rail">
      <button type="button" class="expand" aria-label=${count ? `Show the sessions, ${count} waiting` : "Show the sessions"}
        onClick=${() => go("#/sessions")}>☰${count > 0 && html`<span class="badge">${count}</span>`}</button>
      <a class="button" role="button" href="#/new" aria-label="New" onKeyDown=${clickOnSpace}>+</a>
    </div>
    <${Message} place="sessions" />
    <div class="list">
      <div class="find">
        <input id="find" type="search" placeholder="Find" aria-label="Find in sessions" spellcheck=${false} autocomplete="off"
          value=${words.value} onInput=${(/** @type {any} */ event) => search(event.target.value)} />
        <button type="button" class="quiet" title="Sessions, turns and commands" aria-keyshortcuts="Control+K"
          onClick=${() => openFinder()}>${isNarrow.value ? "Go to…" : "Ctrl+K"}</button>
      </div>
      ${waitingElsewhere.value.length > 0 && html`<${WaitingList} />`}
      <${List} />
      <label class="inline"><input id="archived" type="checkbox" checked=${showsArchived.value} onChange=${toggleArchived} /> Archived</label>
    </div>
    <footer><a href="#/settings/usage">Usage</a> <a href="#/settings/models">Settings</a></footer>
  </nav></div>`;
}

function toggleArchived(/** @type {any} */ event) {
  showsArchived.value = event.target.checked;
  attempt(refreshSessions);
}

/** A link that looks like a button is pressed with the space bar, too. */
function clickOnSpace(/** @type {KeyboardEvent} */ event) {
  if (event.key !== " ") return;
  event.preventDefault();
  /** @type {HTMLElement} */ (event.currentTarget).click();
}

function List() {
  const listed = sessions.value;
  if (!isListed.value) return html`<p class="note" role="status">Loading the sessions…</p>`;
  if (!listed.length) {
    const text = words.value ? "No session has these words." : showsArchived.value ? "No session is archived." : "No session yet.";
    return html`<p class="note">${text}</p>`;
  }
  return html`<div id="sessions">${groups(listed).map(([name, rows]) => html`<section key=${name} aria-label=${labelOf(name, rows)}>
    <h2>${labelOf(name, rows)}</h2>
    <ul>${rows.map((session) => html`<${Row} key=${session.id} session=${session} />`)}</ul>
  </section>`)}</div>
  ${hasMore.value && html`<button type="button" class="quiet" onClick=${() => attempt(showMore)}>Show older sessions</button>`}`;
}

/** @param {import("../state/studio.js").Session[]} listed @returns {[string, import("../state/studio.js").Session[]][]} */
function groups(listed) {
  if (words.value.trim()) return [["Found", listed]];
  const today = new Date().setHours(0, 0, 0, 0);
  const isToday = (/** @type {any} */ { updated_at }) => Date.parse(updated_at) >= today;
  const busy = listed.filter(({ state }) => state !== "idle");
  const newestFirst = listed.filter(({ state }) => state === "idle").sort((one, other) => Date.parse(other.updated_at) - Date.parse(one.updated_at));
  /** @type {[string, import("../state/studio.js").Session[]][]} */
  const all = [
    ["busy", busy.sort((one, other) => Date.parse(other.running_since ?? "") - Date.parse(one.running_since ?? "") || 0)],
    ["Pinned", newestFirst.filter(({ pinned }) => pinned)],
    ["Today", newestFirst.filter((session) => !session.pinned && isToday(session))],
    ["Earlier", newestFirst.filter((session) => !session.pinned && !isToday(session))],
  ];
  return all.filter(([, rows]) => rows.length);
}

/** @param {string} group @param {import("../state/studio.js").Session[]} rows */
function labelOf(group, rows) {
  if (group !== "busy") return group;
  if (rows.every(({ state }) => state === "running")) return "Running";
  return rows.some(({ state }) => state === "running") ? "Waiting and running" : "Waiting for you";
}

/** @param {{session: import("../state/studio.js").Session}} props */
function Row({ session }) {
  const isCurrent = session.id === current.value?.id;
  return html`<li>
    <a href=${sessionPath(session.id)} aria-current=${isCurrent ? "page" : undefined}>
      <span class="name">${session.pinned ? "★ " : ""}${escapeHiddenText(titleOf(session))}</span>
      <${Mark} session=${session} />
    </a>
    ${(session.matches ?? []).filter(({ role }) => role !== "name").map(({ message_id: messageId, before, found, after }) =>
      html`<a key=${messageId} class="match" href=${sessionPath(session.id, messageId)}>${escapeHiddenText(before.slice(-MATCH_CHARS))}<mark>${escapeHiddenText(found)}</mark>${escapeHiddenText(after)}</a>`)}
  </li>`;
}

/** @param {{session: import("../state/studio.js").Session}} props */
function Mark({ session: { state, running_since: since, last_outcome: outcome } }) {
  if (state === "waiting") return html`<span class="mark waiting"><span aria-hidden="true">●</span> <span class="hidden-text">waiting for you</span></span>`;
  if (state !== "running") return outcome && !NOT_FAILED.test(outcome)
    ? html`<span class="mark failed" title="Failed"><span aria-hidden="true">✗</span> <span class="hidden-text">failed</span></span>` : null;
  return html`<span class="mark running"><span aria-hidden="true">◐</span> ${isLost.value ? "was running" : html`<span class="hidden-text">running</span>${since && html`<${Seconds} since=${since} />`}`}</span>`;
}
