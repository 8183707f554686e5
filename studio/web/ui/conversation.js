// The session that is shown, apart from its message box: its header, its log, and what is said of it.

import { html, useEffect, useLayoutEffect, useRef } from "../vendor/preact.js";
import { isLost } from "../net/lost_connection.js";
import { forget, openFeed } from "../net/session_feed.js";
import { draftOf, joined, removeDraft, restoreDraft, shownDraft } from "../state/drafts.js";
import { hasView, openOptions } from "../state/files.js";
import { withFolder } from "../state/folder_files.js";
import { openRequests } from "../state/requests.js";
import { go } from "../state/route.js";
import { current, noteFirstMessage, refreshSoon } from "../state/studio.js";
import { escapeHidden, escapeHiddenText } from "../text/hidden_characters.js";
import { BackLink } from "./back_link.js";
import { Connection } from "./connection.js";
import { Header } from "./header.js";
import { Log } from "./log.js";
import "./lost_focus.js"; // listens in the whole page
import { closeUnused, isBeside, openByItself, openPane, openTab } from "./pane.js";

const WRITES_UNASKED = new Set(["accept_edits", "auto"]); // modes in which files are written without a question

const SHOWN_CHARS = 300; // of a text that was not sent

const loading = html`<section id="log" role="log" aria-label="Conversation" aria-live="off"><p class="note" role="status">Loading…</p></section>`;

export function Conversation({ view }) {
  const { id, feed, actions, command } = view;
  useLayoutEffect(() => { feed.value ??= openFeed(id); }, []);
  return feed.value ? html`<${Followed} id=${id} feed=${feed.value} actions=${actions} command=${command} />` : loading;
}

function Followed({ id, feed, actions, command }) {
  const { state } = feed;
  usePreview(id, state);
  useLayoutEffect(() => { document.documentElement.toggleAttribute("data-lost", isLost.value); }, [isLost.value]); // no caret
  const first = feed.isCaughtUp.value ? state.value.turns[0]?.message.text ?? "" : "";
  useEffect(() => { noteFirstMessage(id, first); }, [id, first]);
  return html`
    <${Header} session=${current} state=${state} actions=${actions} />
    <${Connection} is=${feed.connection.value} reason=${feed.closingReason.value} />
    ${!feed.isCaughtUp.value && !state.value.turns.length ? loading
      : html`<${Log} sessionId=${id} state=${state} session=${current} actions=${actions} command=${command} />`}`;
}

export function Gone({ id }) {
  const title = useRef(/** @type {HTMLElement|null} */ (null));
  useEffect(() => {
    forget(id);
    current.value = null; // the title of the tab has no name of it either
    refreshSoon();
  }, [id]);
  useEffect(() => { if (document.activeElement === document.body) title.current?.focus(); }, [id]); // what had the focus is gone
  useLayoutEffect(() => { openTab.value = null; }, [openTab.value]); // nothing in the pane works any more
  return html`<main class="gone">
    <${BackLink} />
    <h1 id="title" tabindex="-1" ref=${title}>This session does not exist any more</h1>
    <p>It was deleted, or this address is of another studio.</p>
    <${Unsent} id=${id} />
    <p><a class="button" role="button" href="#/new">New session</a></p>
  </main>`;
}

/** What was written in a session that is gone and not sent: a new session can have it. */
function Unsent({ id }) {
  const drafts = [...new Set([id, shownDraft(id)])].map((each) => draftOf(each));
  const text = joined(...drafts.map((draft) => draft.text.value));
  const files = drafts.flatMap((draft) => draft.files.value);
  if (!text && !files.length) return null;
  const use = () => {
    restoreDraft(null, text, files);
    removeDraft(id);
    go("#/new");
  };
  const shown = text.length > SHOWN_CHARS ? `${text.slice(0, SHOWN_CHARS).replace(/[\ud800-\udbff]$/, "")}…` : text;
  return html`<div class="unsent" role="group" aria-label="Not sent">
    ${text && html`<p>Your text: ${escapeHiddenText(shown)}</p>`}
    ${files.length > 0 && html`<p>Your files: ${files.map(({ name }) => escapeHidden(name)).join(", ")}</p>`}
    <button type="button" onClick=${use}>Use it in a new session</button>
  </div>`;
}

const opened = new Set(); // sessions, and turns with options, for which the pane has opened by itself

/**
 * Open the pane once for a session that has made a page, an image or a document, or a file of its folder is one; and once
 * for each turn with options, so that they are seen beside each other. A decision that waits has the room first: a file
 * that needs one, or may need one, is shown once it is allowed. Close it again if there is no such file after all.
 */
function usePreview(id, state) {
  const mode = current.value?.permission_mode ?? "", workspace = current.value?.workspace ?? "";
  useEffect(() => {
    const { turn, numbers } = openOptions(state.value);
    if (numbers.length > 1 && !opened.has(turn.id) && isBeside()) {
      opened.add(turn.id);
      if (!openTab.peek()) openPane("preview");
      return;
    }
    const asks = openRequests(state.value).length > 0;
    const mayAsk = asks || !WRITES_UNASKED.has(mode);
    if (hasView(withFolder(state.value, workspace), ({ isAllowed }) => isAllowed !== false || !mayAsk)) {
      if (asks || opened.has(id) || !isBeside()) return;
      opened.add(id);
      if (!openTab.peek()) openByItself("preview");
    } else if (closeUnused()) opened.delete(id);
  }, [id, state.value, mode, workspace]);
}
