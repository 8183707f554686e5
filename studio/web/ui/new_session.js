// A session that its first message makes: until then nothing is stored.

import { html, signal, useEffect } from "../vendor/preact.js";
import { api } from "../net/api.js";
import { draftOf, forgetText, moveDraft, put, restoreDraft, saveText, storedText, writeDraft } from "../state/drafts.js";
import { newId, send } from "../state/outbox.js";
import { go, sessionPath } from "../state/route.js";
import { attempt, isListed, models, refreshSessions, teams } from "../state/studio.js";
import { keyLink } from "../state/wanted_key.js";
import { escapeHidden } from "../text/hidden_characters.js";
import { BackLink } from "./back_link.js";
import { Composer, refusalOf } from "./composer.js";
import { Message, lazy } from "./lazy.js";

const WideFolder = lazy(() => import("./wide_folder.js"), "WideFolder");

const PROMPTS = [
  "Explain what the files in this folder do.",
  "Find a bug in this folder and mend it.",
  "Make a page index.html that shows a clock.",
];
const DEMO = "demo";
const DEMO_PROMPTS = [ // sentences that the demo model knows
  "List the files in this folder.",
  "Make a page about a garden.",
  "Write hello.txt with the text Hello",
];

const OPTIONS = "agenticx.new-session";
const chosen = sessionStorage.getItem(OPTIONS); // in this tab, before it was loaded again

/** The options of the session to come, as those of a session; null: from the settings. */
const options = signal({ model: null, permission_mode: null, workspace: "", team: null, vaults: null, ...JSON.parse(chosen ?? "{}") });

/** Change options; a reload of this tab keeps them. */
function choose(fields) {
  options.value = { ...options.value, ...fields };
  put(sessionStorage, OPTIONS, JSON.stringify(given(options.value)));
}

/** Return those options that are not from the settings. */
const given = (all) => Object.fromEntries(Object.entries(all).filter(([, value]) => value));

const usualMode = signal("default");
const whenBusy = signal("queue");
/** The folder of a session for which none is chosen, the home folder, and the folders of recent sessions. */
const known = signal(/** @type {{default: string, home: string, folders: {path: string}[]}} */ ({ default: "", home: "", folders: [] }));

export const MAKING = "new.session"; // under which its request is stored until it is answered

/** The request that makes the session now, null while none does. @type {Promise<any>|null} */
let making = null;

/** Whether the options may be those of a request that was not answered before its tab was closed. */
let isTakenOver = chosen === null && Boolean(storedText(MAKING));

/** Let the next session be of a team. */
export function startWithTeam(team) {
  choose({ team });
  go("#/new");
}

export function NewSession() {
  useEffect(() => {
    attempt(async () => {
      usualMode.value = (await api("api/permissions")).mode;
      known.value = await api("api/folders");
    });
    document.getElementById("input")?.focus({ preventScroll: true });
  }, []);
  useEffect(() => { takeOver().catch(() => {}); }, []);
  if (!isListed.value) return html`<main><p class="note" role="status">Loading…</p></main>`;
  const change = async (fields) => choose(fields.permission_mode === usualMode.value ? { permission_mode: null } : fields);
  const { workspace, team } = options.value;
  const session = { ...options.value, permission_mode: options.value.permission_mode ?? usualMode.value };
  const offered = teams.value.some(({ name }) => name === team) || !team ? teams.value : [...teams.value, { name: team }]; // it may be gone
  const isDemo = (options.value.model ?? models.value.default) === DEMO;
  return html`<main class="new-session">
    <header class="session-header" data-region="Header"><div class="line">
      <${BackLink} />
      <h1 id="title">New session</h1>
    </div></header>
    <section id="log" class="first-run" aria-label="New session" data-region="Conversation" tabindex="-1">
      ${isDemo && html`<${DemoNotice} />`}
      <div class="options">
        <label>Folder <input id="workspace" list="folders" placeholder=${escapeHidden(known.value.default) || "folder of the studio"} spellcheck=${false} autocomplete="off"
          value=${workspace} onInput=${({ target }) => change({ workspace: target.value })} /></label>
        <datalist id="folders">${known.value.folders.map(({ path }) => html`<option key=${path} value=${path} />`)}</datalist>
        ${offered.length > 0 && html`<label>Answered by <select id="team" value=${team ?? ""} onChange=${({ target }) => change({ team: target.value || null })}>
          <option value="">one agent</option>
          ${offered.map(({ name, problem }) => html`<option key=${name} value=${name} disabled=${Boolean(problem)}>the team ${escapeHidden(name)}</option>`)}
        </select></label>`}
        <p id="wide-folder" class="note" role="status"><${WideFolder} given=${workspace.trim() || known.value.default} home=${known.value.home} /></p>
      </div>
      <ul class="prompts" aria-label="Examples">${(isDemo ? DEMO_PROMPTS : PROMPTS).map((prompt) => html`<li key=${prompt}><button type="button" onClick=${() => {
        writeDraft(null, prompt);
        document.getElementById("input")?.focus();
      }}>${prompt}</button></li>`)}</ul>
    </section>
    <div class="below">
      <${Message} place="main" />
      <${Composer} sessionId=${null} session=${session} state=${null} actions=${{}} whenBusy=${whenBusy} change=${change} post=${begin} />
    </div>
  </main>`;
}

/** Make the session and send its first message. */
async function begin(turn, message) {
  const { model, permission_mode, workspace, team } = options.value;
  const fields = given({ model, permission_mode, workspace: workspace.trim(), team });
  let session, request;
  try {
    request = await unanswered(message.typed, fields) ?? { typed: message.typed, fields, id: newId() };
    session = await make(request);
  } catch (error) {
    restoreDraft(null, message.typed, message.files);
    throw error;
  }
  try {
    if (JSON.stringify(request.fields) !== JSON.stringify(fields)) { // changed since the request that was not answered
      const folder = fields.workspace ?? known.value.default;
      const body = { model, permission_mode: permission_mode ?? usualMode.value, ...(folder && { workspace: folder }) };
      await api(`api/sessions/${session.id}`, { method: "PATCH", body }).catch((error) => {
        restoreDraft(session.id, message.typed, message.files);
        throw error;
      });
    }
    await send(session.id, turn, { ...message, draftOf: session.id });
  } catch (error) {
    const isRefused = error.status >= 400 && error.status < 500;
    const isUndone = isRefused && await import("./refused_session.js").then(({ undoSession }) => undoSession(session.id)).catch(() => false);
    if (isUndone) choose({ permission_mode, team });
    draftOf(isUndone ? null : session.id).error.value = await refusalOf(error);
  }
}

/** Show the options of a request that was not answered before its tab was closed; sending its message repeats it. */
async function takeOver() {
  if (!isTakenOver) return;
  isTakenOver = false;
  choose((await unanswered(draftOf(null).text.peek()))?.fields);
}

/** Return the request that may have made the session of a message, as it was not answered; undefined if there is none. */
const unanswered = async (typed, fields) =>
  storedText(MAKING) ? (await import("./unanswered.js")).unanswered(MAKING, typed, fields) : undefined;

/** Make the session and show it with the draft; a request that is repeated makes no other, unless that is in use by now. */
function make(request) {
  making ??= (async () => {
    const { fields, isRepeated } = request;
    saveText(MAKING, JSON.stringify(request));
    const post = (id) => api("api/sessions", { method: "POST", body: { ...fields, client_session_id: id } }).catch((error) => {
      if (error.status) forgetText(MAKING);
      throw error;
    });
    let session = await post(request.id);
    if (isRepeated && session.updated_at !== session.created_at) session = await post(newId());
    forgetText(MAKING);
    choose({ permission_mode: null, team: null });
    attempt(refreshSessions);
    moveDraft(session.id);
    go(sessionPath(session.id), { replace: true });
    return session;
  })().finally(() => { making = null; });
  return making;
}

/** Say that the chosen model is a script, and how to get another one. */
function DemoNotice() {
  const hasOther = models.value.models.some(({ id, available }) => available && id !== DEMO);
  if (hasOther) return html`<p class="note" id="demo-notice">The demo model is chosen. It is a script; you can choose another model below.</p>`;
  return html`<p class="note" id="demo-notice">Running the demo model, a script. <a ...${keyLink()}>Add a key</a> to use a real one.</p>`;
}
