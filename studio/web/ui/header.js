// @ts-check
// The line above the log: what the session is, where it works, what it may do, and what happens now.

import { html, useEffect, useLayoutEffect, useRef, useSignal } from "../vendor/preact.js";
import { api } from "../net/api.js";
import { ask } from "../state/asked.js";
import { removeDraft } from "../state/drafts.js";
import { openOptions, pathsOf } from "../state/files.js";
import { editsIn } from "../state/folder_files.js";
import { MODES } from "../state/permission_modes.js";
import { go, route } from "../state/route.js";
import { SHORTLY, attempt, current, refreshSessions, refreshTeams, sessions, showStatus, teams, titleOf } from "../state/studio.js";
import { participantNames } from "../text/agent_words.js";
import { costText } from "../text/model_words.js";
import { escapeHidden, escapeHiddenText, hasHidden } from "../text/hidden_characters.js";
import { BackLink } from "./back_link.js";
import { Trust, TrustLink } from "./trust.js";
import { closePane, isNarrow, openPane, openTab } from "./pane.js";
import { ActivityText } from "./status.js";

const MAX_NAME_CHARS = 200;

/** The modes beside the pane, where they are not as short otherwise. @type {Record<string, string>} */
const SHORTEST = { accept_edits: "Asks less" };

/** @param {{session: any, state: any, actions: any}} props */
export function Header({ session: shown, state, actions }) {
  const session = shown.value;
  if (!session) return null;
  const folder = escapeHidden(session.workspace);
  return html`<header class="session-header" data-region="Header">
    <div class="line">
      <${BackLink} />
      <h1 id="title" title=${escapeHiddenText(titleOf(session))}>${escapeHiddenText(titleOf(session))}</h1>
      <span id="session-folder" title=${folder}>${folder.split("/").filter(Boolean).at(-1) ?? folder}</span>
      ${session.archived && html`<span class="archived">archived</span>`}
      ${session.team && html`<${Team} name=${session.team} />`}
      <${Mode} mode=${session.permission_mode} />
      <p id="status"><${ActivityText} state=${state} /></p>
      <${PaneToggle} state=${state} />
      <${Menu} session=${session} actions=${actions} />
    </div>
    ${session.permission_mode === "auto" && html`<p id="auto-warning" class="strip bad" role="note"><strong>Runs everything without asking, except harmful calls.</strong>${" "}
      <button type="button" onClick=${() => attempt(() => actions.change({ permission_mode: "default" }))}>Ask before changes again</button></p>`}
    <${Trust} session=${session} state=${state} />
  </header>`;
}

/** The team that answers. @param {{name: string}} props */
function Team({ name }) {
  useEffect(() => { if (!teams.value.some((each) => each.name === name)) attempt(refreshTeams); }, [name]); // no event tells of a new one
  const text = teamText(name);
  return html`<span class="team" title=${text}>${text}</span>`;
}

/** Return the name of a team and its participants, as far as it is configured. @param {string} name */
function teamText(name) {
  const names = participantNames(teams.value.find((each) => each.name === name)?.participants ?? []);
  return `Team ${escapeHidden(name)}${names && `: ${names}`}`;
}

/** What the agent may do, in fewer words where there is little room. @param {{mode: string}} props */
function Mode({ mode }) {
  const [, sentence, short] = MODES.find(([name]) => name === mode) ?? [mode, mode, mode];
  return html`<span id="session-mode-text" class=${mode === "auto" ? "auto" : ""} title=${sentence}><span class="long">${sentence}</span><span
    class="short">${short}</span><span class="shortest">${SHORTEST[mode] ?? short}</span></span>`;
}

/** Opens the pane and closes it; says what of the session it shows first. @param {{state: any}} props */
function PaneToggle({ state }) {
  const count = pathsOf(state.value).length, { length: options } = openOptions(state.value).numbers;
  const { hasEdits, hasViewed } = editsIn(state.value);
  const tab = options || count || !hasEdits || hasViewed ? "preview" : "changes";
  const shown = options ? `options (${options})` : count ? `files (${count})` : tab;
  const label = isNarrow.value || openTab.value ? shown[0].toUpperCase() + shown.slice(1) : `Show ${shown}`;
  return html`<button type="button" class="quiet" id="show-artifacts" aria-label=${`Show ${shown}`} title="Preview, changes, agents, notes"
    aria-expanded=${Boolean(openTab.value)} aria-controls="pane" onClick=${() => openTab.value ? closePane() : openPane(tab)}><span class="long">${label}</span><span class="short pane-icon" aria-hidden="true"></span></button>`;
}

/** The actions on the session that is shown. @param {{session: any, actions: any}} props */
function Menu({ session, actions }) {
  const isOpen = useSignal(false);
  const box = useRef(/** @type {HTMLElement|null} */ (null));
  const button = useRef(/** @type {HTMLElement|null} */ (null));
  const close = () => { isOpen.value = false; };
  useLayoutEffect(close, [route.value]); // where the list takes the place of the session, the menu would be there again
  useEffect(() => {
    if (!isOpen.value) return undefined;
    /** @type {HTMLElement|null} */ (box.current?.querySelector("[role=menuitem]"))?.focus();
    const closeOutside = (/** @type {Event} */ event) => { if (!box.current?.contains(/** @type {Node} */ (event.target))) close(); };
    addEventListener("pointerdown", closeOutside);
    return () => removeEventListener("pointerdown", closeOutside);
  }, [isOpen.value]);
  const items = sessionCommands(session, actions);
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Escape") {
      event.stopPropagation();
      close();
      button.current?.focus();
    }
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const all = /** @type {HTMLElement[]} */ ([...(box.current?.querySelectorAll("[role=menuitem]") ?? [])]);
    all[(all.indexOf(/** @type {HTMLElement} */ (document.activeElement)) + step + all.length) % all.length]?.focus();
  };
  return html`<div id="more" ref=${box} onKeyDown=${onKeyDown}>
    <button type="button" class="quiet" ref=${button} aria-label="Session menu" aria-haspopup="menu" aria-expanded=${isOpen.value}
      onClick=${() => { isOpen.value = !isOpen.value; }}>⋯</button>
    ${isOpen.value && html`<div id="actions" role="menu" aria-label="Session">
      ${items.map(({ label, run }) => html`<button key=${label} type="button" role="menuitem" tabindex="-1"
        onClick=${() => { button.current?.focus(); close(); attempt(async () => run()); }}>${label}</button>`)}
      <${Instructions} session=${session} />
    </div>`}
  </div>`;
}

/** Return the commands on a session, with labels for a menu and for Ctrl+K. @param {any} session @param {any} actions */
export function sessionCommands(session, actions) {
  return [
    { label: "Rename", run: () => rename(session, actions) },
    { label: session.pinned ? "Unpin" : "Pin", run: () => actions.change({ pinned: !session.pinned }) },
    { label: session.archived ? "Unarchive" : "Archive", run: () => archive(session, actions) },
    { label: "Export", run: () => exportSession(session) },
    { label: "Delete", run: () => confirmDelete(session) },
  ];
}

/** Take a session out of the list, or put it back. @param {any} session @param {any} actions */
async function archive(session, actions) {
  await actions.change({ archived: !session.archived });
  showStatus(session.archived ? "Listed again among the sessions." : "Archived. It is listed under Archived.", SHORTLY);
}

/** @param {any} session @param {any} actions */
async function rename(session, actions) {
  const field = { label: "Name (empty: none)", value: session.name ?? "", maxLength: MAX_NAME_CHARS };
  const act = async (/** @type {string} */ name) => {
    try {
      await actions.change({ name: name.trim().slice(0, MAX_NAME_CHARS) || null });
    } catch (error) {
      if (error instanceof Error && hasHidden(name)) error.message += ` You typed: ${escapeHidden(name)}`;
      throw error;
    }
  };
  await ask({ title: "Rename the session", action: "Rename session", field, act });
}

async function exportSession(/** @type {any} */ { id }) {
  const text = await api(`api/sessions/${id}/export?format=markdown`);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/markdown" }));
  link.download = `${id}.md`;
  link.click();
  URL.revokeObjectURL(link.href);
}

async function confirmDelete(/** @type {any} */ session) {
  const title = `Delete “${escapeHiddenText(titleOf(session))}”?`;
  const text = "The session is deleted permanently. Files that it changed are kept.";
  if (await ask({ title, text, action: "Delete session", isDangerous: true }) !== null) await deleteSession(session.id);
}

/** Delete a session and show another one. */
async function deleteSession(/** @type {string} */ id) {
  await api(`api/sessions/${id}`, { method: "DELETE" });
  removeDraft(id);
  sessions.value = sessions.value.filter((each) => each.id !== id); // one of the others is shown
  current.value = null;
  go("#/", { replace: true });
  await refreshSessions();
}

/** The files of the workspace whose instructions the model gets. @param {{session: any}} props */
function Instructions({ session }) {
  const files = useSignal(/** @type {string[]} */ ([]));
  useEffect(() => {
    attempt(async () => { files.value = (await api(`api/sessions/${session.id}/instructions`)).files; });
  }, [session.id, session.workspace]);
  return html`<p class="note">Folder: ${escapeHidden(session.workspace)}</p>
    ${session.team && html`<p class="note" id="session-team">${teamText(session.team)}</p>`}
    ${Number(session.cost_usd) > 0 && html`<p class="note" id="session-cost">Cost so far: ${costText(session.cost_usd)}</p>`}
    ${files.value.length > 0 && html`<p class="note" id="session-instructions">Instructions: ${files.value.map(escapeHidden).join(", ")}</p>`}
    <${TrustLink} />`;
}
