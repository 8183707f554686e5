// The page: the sessions, the one that is shown, and the pane beside it.
//
// The list of sessions and the message box are there first. The rest is loaded after the first paint.

import { html, signal, useEffect, useLayoutEffect } from "../vendor/preact.js";
import { api, signedIn } from "../net/api.js";
import { asked } from "../state/asked.js";
import { storedText } from "../state/drafts.js";
import { isFinderOpen } from "../state/finder.js";
import { send } from "../state/outbox.js";
import { go, keepLastSession, lastSession, parseRoute, route, sessionPath } from "../state/route.js";
import {
  attempt, current, isListed, loadAll, noteEvent, refreshModels, refreshSession, refreshSoon, sessions, showStatus,
} from "../state/studio.js";
import { makeActions } from "./actions.js";
import { Composer } from "./composer.js";
import { isKeyListOpen, useKeys } from "./keys.js";
import { Finder } from "./finder.js"; // at once, so that no key after Ctrl+K is lost
import { Message, lazy } from "./lazy.js";
import { MAKING, NewSession } from "./new_session.js";
import { useNotices } from "./notices.js";
import { closePane, isOnTop, openTab } from "./pane.js";
import { Sessions } from "./sessions.js";

const conversation = () => import("./conversation.js");
const Conversation = lazy(conversation, "Conversation",
  html`<section id="log" role="log" aria-label="Conversation" aria-live="off"><p class="note" role="status">Loading…</p></section>`);
const Gone = lazy(conversation, "Gone");
const Announcements = lazy(() => import("./announcements.js"), "Announcements");
const Pane = lazy(() => import("./pane_tabs.js"), "Pane");
const Below = lazy(() => import("./below.js"), "Below");
const Settings = lazy(() => import("./settings.js"), "Settings", html`<main><p class="note" role="status">Loading…</p></main>`);
const Dialog = lazy(() => import("./dialog.js"), "Dialog");
const Locked = lazy(() => import("./locked.js"), "Locked");
const KeyList = lazy(() => import("./key_list.js"), "KeyList");

/** The session that is shown: its feed, actions and view; null while none is. */
const shown = signal(/** @type {any} */ (null));

export function App() {
  if (signedIn.value === "in") return html`<${Studio} />`;
  if (signedIn.value === "unknown") return html`<main><p class="note" role="status">Loading…</p></main>`;
  return html`<${Locked} />`;
}

function Studio() {
  useEffect(() => {
    const ended = new AbortController();
    const load = () => attempt(loadAll);
    const loadUntold = () => { // no event tells that a session was made, or that a key came: with a restart, from a terminal or another tab
      refreshSoon();
      attempt(refreshModels);
    };
    load();
    Conversation.load();
    Below.load(); // before a decision is needed
    import("../net/leader.js").then(({ followAll }) => {
      if (ended.signal.aborted) return undefined;
      return followAll({ signal: ended.signal, onEvent: takeEvent, onGap: load, onReconnect: loadUntold });
    }, () => showStatus("The studio did not send a part of the page. Reload it.")).catch(reportError);
    const look = () => { if (!document.hidden) loadUntold(); };
    document.addEventListener("visibilitychange", look);
    addEventListener("focus", look);
    return () => {
      document.removeEventListener("visibilitychange", look);
      removeEventListener("focus", look);
      ended.abort();
      openSession(null);
    };
  }, []);
  useRoute();
  useNotices();
  useEffect(() => { if (isFinderOpen.value) refreshSoon(); }, [isFinderOpen.value]);
  const view = shown.value;
  useKeys(view);
  const hasPane = Boolean(openTab.value && view && route.value.name === "session");
  const screen = hasPane ? "pane" : route.value.name === "sessions" ? "sessions" : "session";
  return html`<div id="studio" data-screen=${screen} data-pane=${hasPane}>
    <${Sessions} />
    <${Main} view=${view} />
    ${view?.feed.value && route.value.name === "session" && html`<${Pane} key=${`pane ${view.id}`} session=${current} state=${view.feed.value.state} actions=${view.actions} />`}
    ${isFinderOpen.value && html`<${Finder} view=${view} />`}
    ${isKeyListOpen.value && html`<${KeyList} />`}
    ${asked.value && html`<${Dialog} />`}
    <${Announcements} view=${view} />
  </div>`;
}

/** The main column: settings, a session, or one to come. */
function Main({ view }) {
  const { name } = route.value;
  if (name === "settings") return html`<${Settings} tab=${route.value.tab} />`;
  if (view && (name !== "session" || route.value.id === view.id)) return html`<${Session} key=${view.id} view=${view} />`;
  if (name === "new" || name === "sessions") return html`<${NewSession} />`;
  return html`<main><p class="note" role="status">Loading…</p></main>`;
}

/** Take an event of any session: it changes the list, and what is known of the session that is shown. */
function takeEvent(envelope) {
  noteEvent(envelope);
  if (envelope.session_id !== current.value?.id) return;
  shown.value?.feed.value?.readNews();
  if (envelope.type === "session_changed") refreshSession(envelope.session_id).catch(() => {}); // it may be deleted
}

/** Open the session of the address; without one the session that was shown last, else the first of the list. */
function useRoute() {
  const { name } = route.value;
  const id = name === "session" ? route.value.id : null;
  const messageId = name === "session" ? route.value.messageId : null;
  useLayoutEffect(() => { // before the next key: the message box stays
    if (name === "session") openSession(id);
    else if (name === "new") openSession(null);
  }, [name, id]);
  useEffect(() => {
    if (name !== "none" || !isListed.value || parseRoute(location.hash).name !== "none") return;
    const known = !storedText(MAKING) && (sessions.value.find((each) => each.id === lastSession()) ?? sessions.value[0]);
    go(known ? sessionPath(known.id) : "#/new", { replace: true });
  }, [name, isListed.value]);
  const isRead = shown.value?.feed.value?.isCaughtUp.value ?? false;
  useLayoutEffect(() => { if (messageId && isRead && shown.value) shown.value.actions.goTo(messageId); }, [messageId, isRead, shown.value]); // before the next click
}

/** Show another session, or none. */
function openSession(id) {
  if (shown.value?.id === id) return;
  shown.value?.feed.value?.close();
  closePane();
  showStatus("");
  if (id === null) {
    shown.value = null;
    current.value = null;
    return;
  }
  const view = {
    id, feed: signal(/** @type {any} */ (null)), isGone: signal(false), command: signal(/** @type {any} */ (null)), whenBusy: signal("queue"),
    actions: {},
  };
  view.actions = makeActions(id, view);
  current.value = sessions.value.find((each) => each.id === id) ?? null;
  shown.value = view;
  attempt(async () => {
    const session = await api(`api/sessions/${id}`).catch((error) => {
      if (error.status === 404) view.isGone.value = true;
      throw error;
    });
    if (shown.value?.id === id) {
      current.value = session;
      keepLastSession(id);
    }
    if (isListed.value && !sessions.value.some((each) => each.id === id)) refreshSoon(); // another client made it
  });
}

/** The session that is shown. */
function Session({ view }) {
  const { id, actions, command, whenBusy } = view;
  const feed = view.feed.value;
  useLayoutEffect(() => { document.getElementById("input")?.focus({ preventScroll: true }); }, [id]);
  if (view.isGone.value || feed?.connection.value === "gone") return html`<${Gone} id=${id} />`;
  return html`<main data-session=${id} inert=${isOnTop()}>
    <${Conversation} view=${view} />
    <div class="below">
      <${Message} place="main" />
      ${feed && html`<${Below} id=${id} feed=${feed} actions=${actions} />`}
      <${Composer} sessionId=${id} session=${current.value} state=${feed?.state ?? null} actions=${actions} whenBusy=${whenBusy}
        change=${actions.change} post=${(turn, message) => {
          command.value = { name: "end" };
          return send(id, turn, message);
        }} />
    </div>
  </main>`;
}
