// @ts-check
// What the agent's file tools changed in the workspace, by file, and the session's own files; in the session or in one turn.

import { html, useEffect, useLayoutEffect, useMemo, useSignal } from "../vendor/preact.js";
import { api } from "../net/api.js";
import { FOLDER, SESSION, isViewed } from "../state/files.js";
import { changesOf, isEdit, madeFilesOf } from "../state/folder_files.js";
import { escapeHidden, escapeHiddenText } from "../text/hidden_characters.js";
import { shortened } from "../text/tool_words.js";
import { DiffView } from "./diff_view.js";
import { NewestSelect } from "./newest_select.js";
import { useAction } from "./use_action.js";
import { useLimit } from "./use_limit.js";

const PAGE = 50; // files
const MAX_FILES = 200; // that the studio lists
const TURN_CHARS = 60;
const TURNS = 20; // the newest, of a file

/** @param {{session: any, state: any, actions: any, detail: any}} props */
export function ChangesPane({ session, state, actions, detail }) {
  const { path: shownPath = null, turnId = null } = detail.value ?? {};
  const turn = useSignal("");
  const limit = useSignal(PAGE);
  const list = useSignal(/** @type {any} */ (null));
  const [run, error] = useAction();
  const edits = useMemo(() => changesOf(state.value).filter(({ call }) => isEdit(call)), [state.value]);
  useLayoutEffect(() => { turn.value = turnId ?? ""; }, [turnId]);
  const sessionId = session.value?.id;
  useEffect(() => {
    if (!sessionId) return undefined;
    let isShown = true;
    run(async () => {
      const found = await api(`api/sessions/${sessionId}/changes?${query(turn.value, { limit: limit.value })}`);
      if (isShown) list.value = found;
    }, { repeats: true });
    return () => { isShown = false; };
  }, [sessionId, turn.value, limit.value, edits.length, state.value.lastMessageId]);
  const files = list.value?.files ?? [];
  const made = useMemo(() => madeFilesOf(state.value), [state.value]);
  const madePaths = [...new Set(made.filter((file) => !turn.value || file.turn.id === turn.value).map(({ path }) => path))].sort();
  const sum = (key) => files.reduce((total, file) => total + (file[key] ?? 0), 0);
  return html`<section class="changes-pane" aria-label="Changes">
    <header>
      <h2>${files.length ? html`${files.length}${list.value?.has_more && "+"} ${files.length === 1 ? "file" : "files"} of the folder, <${Counts} added=${sum("added")} removed=${sum("removed")} />`
        : "No file of the folder"}</h2>
      <${NewestSelect} label="Of which turn" noun="turns" value=${turn.value} choose=${(id) => { turn.value = id; }}
        first=${{ value: "", label: "In the whole session" }}
        options=${turnsOf([...edits, ...made], state.value.turns).map(({ id, message }) => ({ value: id, label: shortened(message.text, TURN_CHARS, escapeHiddenText) || "A turn" }))} />
    </header>
    ${error}
    ${list.value && !files.length && html`<p class="note">The agent's file tools have changed nothing in the folder. What commands change is not listed.</p>`}
    ${files.map((file) => html`<${File} key=${`${file.path} ${file.path === shownPath}`} file=${file} edits=${edits} turns=${state.value.turns} actions=${actions}
      isOpen=${file.path === shownPath || files.length === 1} address=${`api/sessions/${sessionId}/changes`} turnId=${turn.value} />`)}
    ${list.value?.has_more && limit.value < MAX_FILES && html`<button type="button" onClick=${() => { limit.value = Math.min(MAX_FILES, limit.value + PAGE); }}>More files</button>`}
    <${Made} paths=${madePaths} actions=${actions} />
  </section>`;
}

/** The session's own files, which are seen in another pane. */
function Made({ paths, actions }) {
  const [shown, more] = useLimit(paths, PAGE, "files");
  if (!paths.length) return null;
  return html`<section class="made" aria-label="Files of the session">
    <h3>${paths.length} ${paths.length === 1 ? "file" : "files"} of the session, not in the folder</h3>
    <ul>${shown.map((path) => html`<li key=${path}>${escapeHidden(path)} <button type="button" class="quiet" aria-label=${`Preview ${escapeHidden(path)}`}
      onClick=${() => actions.openPane("preview", { option: SESSION, path })}>Preview</button></li>`)}</ul>
    ${more}
  </section>`;
}

function File({ file, edits, turns: all, isOpen, actions, address, turnId }) {
  const whole = useSignal(/** @type {string | null} */ (null));
  const isShown = useSignal(isOpen);
  const [run, error] = useAction();
  useEffect(() => { whole.value = null; }, [file.diff]);
  const read = async () => (await api(`${address}?${query(turnId, { path: file.path })}`)).files[0];
  const showWhole = () => run(async () => { whole.value = (await read())?.diff ?? null; });
  const readBefore = async () => (await read())?.before ?? null;
  const calls = new Set(file.tool_call_ids);
  const [turns, more] = useLimit(turnsOf(edits.filter(({ call }) => calls.has(call.id)), all).reverse(), TURNS, "turns");
  return html`<details open=${isOpen} onToggle=${(event) => { isShown.value = event.currentTarget.open; }}>
    <summary>${escapeHidden(file.path)}${file.created && " (new)"} ${file.diff !== null && html`<${Counts} added=${file.added} removed=${file.removed} />`}</summary>
    ${isShown.value && html`
      ${turns.length > 0 && html`<p class="note">In ${turns.map(({ id, message }) => html`<button key=${id} type="button" class="quiet"
        onClick=${() => actions.goTo(id)}>${shortened(message.text, TURN_CHARS, escapeHiddenText) || "a turn"}</button>`)}${more}</p>`}
      ${file.diff === null
        ? html`<p class="note">The change cannot be shown: the file is not text, or what it was is not stored any more.</p>`
        : html`<${DiffView} diff=${whole.value ?? file.diff} below=${file.unchanged_below} cut=${file.diff_cut && whole.value === null} label=${`Change of ${file.path}`}
          showWhole=${file.diff_cut && whole.value === null && showWhole} readBefore=${readBefore} />`}
      ${isViewed(file.path) && html`<button type="button" onClick=${() => actions.openPane("preview", { option: FOLDER, path: file.path })}>Preview</button>`}
      ${error}`}
  </details>`;
}

const Counts = ({ added, removed }) => html`<span class="counts"><span class="added">+${added}</span> <span class="removed">−${removed}</span></span>`;

function query(turnId, /** @type {Record<string, any>} */ fields) {
  return new URLSearchParams({ ...fields, ...(turnId && { turn_id: turnId }) });
}

/** Return the turns of edits, each once, in the order of `turns`. */
function turnsOf(edits, turns) {
  const ids = new Set(edits.map(({ turn }) => turn.id));
  return turns.filter(({ id }) => ids.has(id));
}
