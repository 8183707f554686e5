// The files that live in the session, with preview, code and revisions. The options of a message have files of their
// own; of these there is a tab for each option. Another tab has the files of the workspace that the agent has changed.

import { html, useEffect, useLayoutEffect, useMemo, useRef, useSignal } from "../vendor/preact.js";
import { UNREACHABLE, api, blob, encodedPath, reconnects } from "../net/api.js";
import {
  CSV, FOLDER, IMAGES, MARKDOWN, PAGES, SESSION, hasOtherOption, isOption, latest, mediaTypeOf, openOptions, optionsOf, pathsOf, pickedOptions,
} from "../state/files.js";
import { editedText, withFolder } from "../state/folder_files.js";
import { optionOf } from "../state/reducer.js";
import { openRequests } from "../state/requests.js";
import { SHORTLY, attempt, showStatus } from "../state/studio.js";
import { agentName, endWord } from "../text/agent_words.js";
import { escapeHidden, escapeHiddenText } from "../text/hidden_characters.js";
import { Doing } from "./activity.js";
import { copyText } from "./clipboard.js";
import { CsvView } from "./csv_view.js";
import { DiffView } from "./diff_view.js";
import { CodeText, MarkdownView } from "./markdown_view.js";
import { NewestSelect } from "./newest_select.js";
import { PreviewFrame } from "./preview_frame.js";
import { RevisionDiff } from "./revision_diff.js";
import { moveBetweenTabs } from "./tab_keys.js";
import { Failure } from "./turn_end.js";
import { useAction } from "./use_action.js";
import { useLimit } from "./use_limit.js";

const ALL = "all"; // instead of the number of an option: those of the last turn that has some beside each other
const FILES = 100; // in the list, at first
const MAX_TOGETHER = 4; // options beside each other; more are tabs
const END_PIXELS = 24; // from the end of a box, within which it is followed
const WIDTHS = [["", "Full"], ["768", "768 px"], ["390", "390 px"]];
const RUN_NOTE = "Scripts run only after Run. Requests are blocked, with two exceptions.";
const EXCEPTIONS =
  "Browsers cannot block these: a script that runs could send what the page contains over WebRTC, and a frame in the page " +
  "opens a connection, without a request, to its address.";
const HOSTS_NOTE = "To let previews load scripts, styles, images and fonts of a host, name it in AGX_PREVIEW_HOSTS.";

const MAX_NAMED = 60; // files that a page of the workspace loads
const REFERENCE = /(?<=["'(=\s,])[^"'()<>=\s,]{1,300}\.(?:css|m?js|gif|jpe?g|png|svg|webp)(?=[?#"'()<>\s,])/gi;

const keyOf = (option, { path, number }) => `${option} ${number} ${path}`;

export function PreviewPane(props) {
  return props.session.value && html`<${Files} ...${props} />`; // none is there while another session is opened
}

function Files({ session, state, actions, detail }) {
  const view = useSignal({ option: null, path: null, number: null, tab: "preview", width: "" });
  const set = (fields) => { view.value = { ...view.value, ...fields }; };
  const running = useSignal(/** @type {string|null} */ (null)); // the revision whose scripts run
  const versions = useRef(0);
  const contents = useContents(session.value.id, versions);
  const asked = detail.value;
  useLayoutEffect(() => { // before the next key
    if (!asked) return;
    const option = asked.option === undefined ? null : String(asked.option);
    set({ option, path: asked.path ?? null, number: asked.revision ?? null, ...(asked.path && { tab: "preview" }) });
  }, [asked]);
  const workspace = session.value.workspace, path = asked?.option === FOLDER ? asked.path : null;
  const latestState = useMemo(() => withFolder(state.value, workspace, path), [state.value, workspace, path]);
  versions.current = latestState.version;
  // What was written last, and is shown if nothing was chosen; `known` are the revisions of an option that were seen before.
  const followed = useRef({ option: SESSION, path: "", known: /** @type {Record<string, Set<string>>} */ ({}) });
  const { option, paths, revision } = selection(latestState, view.value, followed.current);
  const turn = optionTurns(latestState).get(option);
  const revisions = revision ? latestState.artifacts[option][revision.path].filter((each) => each.onPath || each.growing || each === revision) : [];
  const key = revision ? keyOf(option, revision) : null;
  useEffect(() => { if (running.value !== null && running.value !== key) running.value = null; }, [key]);
  const download = (query, name) => attempt(async () => save(await blob(query), name));
  const query = queryOf(option);
  const addressIn = (inOption) => (file) => {
    const encoded = encodedPath(file.path);
    return inOption === FOLDER ? `api/sessions/${session.value.id}/files/${encoded}?_=${file.number}`
      : `api/sessions/${session.value.id}/artifacts/${encoded}?revision=${file.number}${queryOf(inOption)}`;
  };
  const addressOf = addressIn(option);
  const show = (number) => set({ option: number, path: null, number: null });
  const pick = (number) => attempt(async () => {
    const { option: before } = view.value;
    await actions.pickOption(number);
    if (view.value.option !== before) return; // the person looks at another one by now
    show(latestState.runningTurnId === null && pathsOf(latestState, number).length ? SESSION : number);
  });
  useNewOptions(latestState, () => show(null));
  const all = optionsTogether(latestState);
  const isAll = view.value.option === ALL || (view.value.option === null && openOptions(latestState).numbers.length > 0);
  const together = isAll ? all : [];
  useDigits((digit) => {
    const isOption = optionTurns(latestState).has(digit);
    if (isOption) show(digit);
    return isOption;
  });
  return html`<section id="artifacts" class="preview-pane" aria-label="Files">
    <${Options} state=${latestState} option=${together.length ? ALL : option} hasAll=${all.length > 0} actions=${actions} show=${show} pick=${pick} />
    ${together.length ? html`<div class="grid">${together.map((number) => html`<${GridItem} key=${number} state=${latestState} number=${number}
        actions=${actions} contents=${contents} addressOf=${addressIn(number)} show=${show} pick=${pick} />`)}</div>`
      : html`${!paths.length && (turn ? html`<${Answer} key=${option} turn=${turn} />`
        : html`<p class="note">This session has no files yet. Files that the agent makes for you to look at are shown here.</p>`)}
    ${paths.length > 0 && html`<div class="bar">
      <${FileList} key=${option} paths=${paths} shown=${revision?.path} isGrowing=${(path) => latest(latestState, option, path)?.growing}
        choose=${(path) => set({ option, path, number: null })} />
      ${revisions.length > 1 && html`<${NewestSelect} key=${revision.path} label="Revision" noun="revisions" value=${String(revision.number)}
        options=${revisions.map((each) => ({ value: String(each.number), label: `Revision ${each.number}` }))}
        choose=${(chosen) => set({ option, path: revision.path, number: Number(chosen) === revisions.at(-1).number ? null : Number(chosen) })} />`}
      ${revision && html`<button type="button" class="quiet download" disabled=${revision.growing}
        onClick=${() => download(addressOf(revision), revision.path.split("/").pop())}>Download</button>`}
      ${option !== FOLDER && paths.length > 1 && html`<button type="button" class="quiet zip" onClick=${() => download(`api/sessions/${session.value.id}/artifacts?format=zip${query}`, "artifacts.zip")}>Download all</button>`}
    </div>`}
    ${revision && html`<${File} key=${`${session.value.id} ${option}`} state=${latestState} option=${option} revision=${revision} revisions=${revisions} view=${view.value} set=${set}
      running=${running} contents=${contents} addressOf=${addressOf} />`}`}
  </section>`;
}

/** Buttons for the first files, and for the one that is shown. */
function FileList({ paths, shown, isGrowing, choose }) {
  const [first, more] = useLimit(paths, FILES, "files");
  const listed = shown === undefined || first.includes(shown) ? first : [...first, shown];
  return html`<ul class="files" aria-label="Files of the session">${listed.map((path) => html`<li key=${path}><button type="button"
    aria-current=${path === shown ? "true" : undefined} onClick=${() => choose(path)}>${escapeHidden(path)}${isGrowing(path) ? " …" : ""}</button></li>`)}
    ${more && html`<li>${more}</li>`}</ul>`;
}

const queryOf = (option) => option === SESSION ? "" : `&option=${option}`;

/** Call `show` with a digit that is pressed in the pane, or on the button that opened it; it returns whether it is one of an option. */
function useDigits(show) {
  const latestShow = useRef(show);
  latestShow.current = show;
  useLayoutEffect(() => {
    const onKey = (event) => {
      const { key, target, ctrlKey, metaKey, altKey, defaultPrevented } = event;
      if (!/^[1-9]$/.test(key) || ctrlKey || metaKey || altKey || defaultPrevented) return;
      if (!target.closest("#pane, #show-artifacts") || target.matches("input, textarea, select")) return;
      if (latestShow.current(key)) event.preventDefault();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
}

/** Return the turns of options by their numbers. */
function optionTurns({ childTurns }) {
  const turns = Object.values(childTurns).filter(({ agentId }) => isOption(agentId));
  return new Map(turns.map((turn) => [optionOf(turn.agentId), turn]));
}

/** Return the number of the option that was picked last, undefined if none was. */
const lastPicked = (state) => pickedOptions(state).at(-1);

/** Return the numbers of the options to show beside each other: those of the last turn that has some. */
function optionsTogether({ turns }) {
  const numbers = turns.filter(({ onPath }) => onPath).map(optionsOf).findLast(({ length }) => length > 0) ?? [];
  return numbers.length > 1 && numbers.length <= MAX_TOGETHER ? numbers : [];
}

/** Have the options of a new turn shown, also if one of an earlier turn was. */
function useNewOptions(state, showAll) {
  const newest = [...optionTurns(state).values()].at(-1)?.parentTurnId;
  const known = useRef(newest);
  useLayoutEffect(() => { // before the next key, which may be of an option
    if (newest !== undefined && known.current !== newest) showAll();
    known.current = newest;
  }, [newest]);
}

/** One of the options beside each other: what it is, its first page, and what can be done with it. */
function GridItem({ state, number, actions, contents, addressOf, show, pick }) {
  const turn = optionTurns(state).get(number);
  const picked = pickedOptions(state);
  const frame = useFrame();
  const running = useSignal(/** @type {string|null} */ (null)); // scripts run in the tab of the option only
  const paths = pathsOf(state, number);
  const path = firstPath(state, number, paths);
  const revision = path === undefined ? null : latest(state, number, path);
  const stored = revision?.text === null && !revision.growing ? contents(addressOf(revision), revision.mediaType) : null;
  const text = revision?.text ?? stored?.text ?? null;
  return html`<section class=${turn.status === "failed" && !revision ? "grid-item failed" : "grid-item"} aria-label=${`Option ${number}`}>
    <header><h2>${number} · ${escapeHidden(turn.model)} · <${OptionState} turn=${turn} state=${state} />${picked.includes(number) && ", picked"}</h2>
      <button type="button" class="quiet" aria-label=${`Show option ${number} alone`} onClick=${() => show(number)}>Show</button>
      ${turn.status === "done" && picked.at(-1) !== number && html`<button type="button" class="main" onClick=${() => pick(number)}>Use this one</button>`}
      ${turn.status === "running" && html`<button type="button" onClick=${() => attempt(() => actions.stopOption(number))}>Stop this one</button>`}
    </header>
    <${Failure} turn=${turn} hasOther=${hasOtherOption(state, number)} />
    ${revision && PAGES.has(revision.mediaType) ? html`<${Page} key=${`${path} ${revision.number}`} state=${state} option=${number} revision=${revision} text=${text}
        isHidden=${false} scripts=${false} running=${running} frame=${frame} contents=${contents} addressOf=${addressOf} width="" />`
      : revision?.mediaType === CSV ? html`<section class="preview document" tabindex="0" aria-label="Table"><${CsvView} key=${path} text=${text ?? ""} label=${escapeHidden(path)} /></section>`
      : revision ? html`<pre class="code" tabindex="0">${escapeHiddenText(text ?? "")}</pre>` : html`<${Answer} turn=${turn} />`}
  </section>`;
}

/** How an option stands, or what it does and since when. */
function OptionState({ turn, state }) {
  if (turn.status !== "running") return endWord(turn.status);
  if (openRequests(state).some(({ agentId }) => agentId === turn.agentId)) return "waits for you";
  return html`<${Doing} turn=${turn} />`;
}

/** Return the properties of a box that is at its end while it grows, then at its beginning, unless the person has scrolled up. */
function useEnd(text, isGrowing) {
  const box = useRef(/** @type {HTMLElement|null} */ (null));
  const isAtEnd = useRef(true);
  const hasGrown = useRef(false);
  useLayoutEffect(() => {
    if (box.current && isAtEnd.current && (isGrowing || hasGrown.current)) box.current.scrollTop = isGrowing ? Number.MAX_SAFE_INTEGER : 0;
    hasGrown.current = isGrowing;
  }, [text, isGrowing]);
  const onScroll = ({ currentTarget: { scrollHeight, scrollTop, clientHeight } }) => {
    isAtEnd.current = scrollHeight - scrollTop - clientHeight <= END_PIXELS;
  };
  return { ref: box, onScroll };
}

/** The answer of an option that has made no file. */
function Answer({ turn: { agentId, items, status } }) {
  const text = items.findLast(({ kind }) => kind === "text")?.text ?? "";
  const end = useEnd(text, status === "running");
  if (!text && status === "failed") return null; // of which the cause is said
  if (!text) return html`<p class="note">${status === "running" ? "It has written nothing yet." : "It has written nothing."}</p>`;
  return html`<section class="preview document" tabindex="0" aria-label=${`Answer of ${agentName(agentId)}`} ...${end}><${MarkdownView} text=${text} complete=${status !== "running"} /></section>`;
}

/**
 * Return the option and the revision to show: those that the person chose, else what is being written, or was last, else
 * the page. `followed` keeps what is being written.
 */
function selection(state, { option: chosen, path: chosenPath, number }, followed) {
  const options = Object.keys(state.artifacts).filter((option) => pathsOf(state, option).length);
  const writing = options.find((each) => pathsOf(state, each).some((path) => latest(state, each, path).growing));
  const changed = newestPage(state, FOLDER, followed);
  const option = chosen ?? writing ?? [changed && FOLDER, followed.option, SESSION, ...options].find((each) => options.includes(each)) ??
    lastPicked(state) ?? [...optionTurns(state).keys()].at(-1) ?? SESSION; // texts, if there are no files
  const paths = pathsOf(state, option);
  followed.option = option;
  followed.path = (option === FOLDER ? changed : newestPage(state, option, followed)) ?? followed.path;
  const path = [chosenPath, followed.path].find((each) => paths.includes(each)) ?? firstPath(state, option, paths);
  if (path === undefined) return { option, paths, revision: null };
  const revision = state.artifacts[option][path].find((each) => each.number === number) ?? latest(state, option, path);
  return { option, paths, revision };
}

/** Return the page that grows or has come since the pane looked last, undefined if there is none. */
function newestPage(state, option, followed) {
  const files = pathsOf(state, option).map((path) => latest(state, option, path));
  const pages = option === FOLDER ? files : files.filter(({ mediaType }) => PAGES.has(mediaType));
  const before = followed.known[option];
  followed.known[option] = new Set([...before ?? [], ...pages.map((page) => keyOf(option, page))]);
  return pages.find((page) => page.growing || (before && !before.has(keyOf(option, page))))?.path;
}

/** Return the path that is shown if none is selected: a page, rather than what it names; of the folder the last changed. */
function firstPath(state, option, paths) {
  if (option === FOLDER) return paths.toSorted((one, other) => changedAt(state, one) < changedAt(state, other) ? 1 : -1)[0];
  const pages = paths.filter((path) => PAGES.has(latest(state, option, path).mediaType));
  return pages.includes("index.html") ? "index.html" : (pages[0] ?? paths[0]);
}

const changedAt = (state, path) => latest(state, FOLDER, path).startedAt;

/**
 * Return a function for the texts and bytes of files that no event had: each is loaded once, those of the workspace anew
 * for each version, and until then they are as before. What the studio did not answer is loaded again once it does.
 */
function useContents(sessionId, versions) {
  const changes = useSignal(0);
  const loaded = useMemo(() => new Map(), [sessionId]);
  changes.value; // draw again when one has been loaded
  const load = (address, type) => {
    const isInFolder = address.startsWith(`api/sessions/${sessionId}/files/`);
    const version = isInFolder ? versions.current : 0;
    const count = reconnects.value;
    const before = loaded.get(address);
    const isLost = before?.error === UNREACHABLE && before.count !== count;
    if (before && ((before.version === version && !isLost) || before.isLoading)) return before;
    loaded.set(address, { ...before, version, isLoading: true });
    blob(address).then((content) => contentOf(content, type, before), (error) => ({ error: error.message }))
      .then((content) => {
        loaded.set(address, { ...content, version, count });
        changes.value += 1;
      });
    return loaded.get(address);
  };
  return load;
}

/** Return what was loaded, or what was before if that is the same. */
async function contentOf(content, type, before) {
  if (before?.blob && await isSame(before.blob, content)) return { blob: before.blob, text: before.text };
  const isText = /^(text|application|image\/svg)/.test(type);
  if (isText && content.type === "application/octet-stream" && (await content.slice(0, 8192).text()).includes("\0")) {
    return { error: "The file is not text." };
  }
  return { blob: new Blob([content], { type }), text: isText ? await content.text() : null };
}

async function isSame(/** @type {Blob} */ one, /** @type {Blob} */ other) {
  if (one.size !== other.size) return false;
  const [some, others] = await Promise.all([one, other].map(async (blob) => new Uint8Array(await blob.arrayBuffer())));
  let place = 0;
  while (place < some.length && some[place] === others[place]) place += 1;
  return place === some.length;
}

/** A tab for the session's files and one for each option, and how the option stands that is shown. */
function Options({ state, option, hasAll, actions, show, pick }) {
  const byNumber = optionTurns(state);
  const picked = pickedOptions(state);
  const place = (number) => number === FOLDER ? 0.5 : Number(number);
  const numbers = [...new Set([...Object.keys(state.artifacts), ...byNumber.keys()])].sort((one, other) => place(one) - place(other));
  const tabs = numbers.filter((number) => number !== SESSION || pathsOf(state).length)
    .map((number) => [number, { [SESSION]: "Session", [FOLDER]: "Folder" }[number] ?? `Option ${number}${picked.includes(number) ? " · picked" : ""}`]);
  if (!byNumber.size && tabs.length < 2) return null;
  const shown = hasAll ? [[ALL, "All"], ...tabs] : tabs;
  const turn = byNumber.get(option);
  return html`<div class="options" role="tablist" aria-label="Options">
      ${shown.map(([number, label]) => html`<button key=${label} type="button" role="tab" aria-selected=${number === option} tabindex=${number === option ? 0 : -1}
        onClick=${() => show(number)} onKeyDown=${moveBetweenTabs}>${label}</button>`)}
    </div>
    ${turn && html`<p class="note option-state"><span>${escapeHidden(turn.model)}: <${OptionState} turn=${turn} state=${state} />${picked.includes(option) ? ", picked" : ""}.</span>
      ${turn.status === "done" && picked.at(-1) !== option && html` <button type="button" class="main pick" onClick=${() => pick(option)}>Use this one</button>`}
      ${turn.status === "running" && html` <button type="button" class="stop-option" onClick=${() => attempt(() => actions.stopOption(option))}>Stop this one</button>`}
    </p><${Failure} turn=${turn} hasOther=${hasOtherOption(state, option)} />`}`;
}

/** One revision of a file. */
function File({ state, option, revision, revisions, view, set, running, contents, addressOf }) {
  const { path, number, mediaType, growing, size } = revision;
  const { text, error, stored } = useText(revision, contents, addressOf);
  const isPage = PAGES.has(mediaType), isImage = IMAGES.has(mediaType), isMarkdown = mediaType === MARKDOWN, isTable = mediaType === CSV;
  const canPreview = isPage || isImage || isMarkdown || isTable;
  const before = isImage || growing ? undefined : revisions[revisions.indexOf(revision) - 1];
  const hasDiff = before !== undefined || (option === FOLDER && !isImage && !growing);
  const wanted = view.tab === "diff" && !hasDiff ? "preview" : view.tab;
  const tab = isImage ? "preview" : canPreview || wanted === "diff" ? wanted : "code";
  const frame = useFrame();
  const key = keyOf(option, revision);
  const isRunning = running.value === key;
  const canStop = isRunning || frame.isHanging.value;
  const run = () => {
    if (!canStop) {
      running.value = key;
      set({ tab: "preview" });
      return;
    }
    frame.stopped.value = isRunning ? null : key;
    running.value = null;
  };
  const copy = () => attempt(async () => {
    await copyText(text ?? "");
    showStatus("Copied", SHORTLY);
  });
  const isStopped = frame.stopped.value === key && !isRunning;
  const written = sizeText(revision, text, size ?? stored?.blob?.size);
  return html`<div class="bar">
      <span class="tabs" role="tablist" aria-label="View">
        ${[["preview", "Preview", canPreview], ["code", "Code", !isImage], ["diff", "Diff", hasDiff]].map(([name, label, isPossible]) => html`<button key=${name} type="button" role="tab"
          aria-selected=${tab === name} disabled=${!isPossible} onClick=${() => set({ tab: name })} onKeyDown=${moveBetweenTabs}>${label}</button>`)}
      </span>
      ${isPage && html`<select aria-label="Width of the preview" value=${view.width} onChange=${({ target }) => set({ width: target.value })}>
        ${WIDTHS.map(([value, label]) => html`<option key=${value} value=${value}>${label}</option>`)}</select>
        <button type="button" class="run" disabled=${!canStop && (growing || text === null)} onClick=${run}>${canStop ? "Stop" : "Run"}</button>`}
      ${!isImage && html`<button type="button" class="quiet copy" disabled=${text === null} onClick=${copy}>Copy</button>`}
      <span class="note size" title=${written}>${written}</span>
    </div>
    ${isPage && html`<details class="note run-note"><summary>${RUN_NOTE}</summary>${EXCEPTIONS}</details>`}
    ${isPage && (frame.isHanging.value || isStopped) && html`<p class="error">${isStopped
      ? html`The page was stopped, as it did not answer. <button type="button" class="quiet" onClick=${() => { frame.stopped.value = null; }}>Show it again</button>`
      : "The page does not answer. Stop ends it."}</p>`}
    ${frame.isHeld.value && tab === "preview" && html`<p class="note held"><span>${growing
      ? "The preview waits where you moved it, while the file is being written. " : "The file is complete; the preview waits where you moved it. "}</span>
      <button type="button" class="quiet" onClick=${() => { frame.isHeld.value = false; }}>Show the newest</button></p>`}
    ${(error ?? frame.error.value) && html`<p class="error" role="alert">${error ?? frame.error.value}</p>`}
    ${isPage && html`<${Page} key=${`${path} ${number}`} state=${state} option=${option} revision=${revision} text=${text} isHidden=${tab !== "preview"}
      scripts=${isRunning} running=${running} frame=${frame} contents=${contents} addressOf=${addressOf} width=${view.width} />`}
    ${tab === "preview" && isImage && html`<section class="preview"><${Image} path=${path} content=${contents(addressOf(revision), mediaType).blob ?? null} /></section>`}
    ${tab === "preview" && isMarkdown && html`<section class="preview document">${text !== null && html`<${MarkdownView} text=${text} complete=${!growing} />`}</section>`}
    ${tab === "preview" && isTable && html`<section class="preview document" tabindex="0" aria-label="Table">${text !== null && html`<${CsvView} key=${path} text=${text} label=${escapeHidden(path)} />`}</section>`}
    ${tab === "code" && html`<pre class="code" tabindex="0" aria-label="Code"><${CodeText} text=${text ?? ""} language=${suffixOf(path)} closed=${!growing} /></pre>`}
    ${tab === "diff" && option === FOLDER && html`<${FolderChange} state=${state} path=${path} />`}
    ${tab === "diff" && before && html`<${Change} before=${before} text=${text} path=${path} contents=${contents} addressOf=${addressOf} />`}
    ${isPage && tab === "preview" && html`<${Blocked} frame=${frame} />`}`;
}

/** Return the text of a revision and why there is none; `stored` is what the studio has of it. */
function useText(revision, contents, addressOf) {
  const { text, edit, growing, number, mediaType } = revision;
  const isStored = text === null && (edit || !growing);
  const address = addressOf(edit ? { ...revision, number: `${number}-before` } : revision); // it has another text after the edit
  const stored = isStored ? contents(address, mediaType) : null;
  const before = stored?.text ?? null;
  const after = useMemo(() => edit && before !== null ? editedText(before, edit) : null, [before, edit]);
  return { text: edit ? after?.text ?? null : text ?? before, error: stored?.error ?? after?.error, stored };
}

function sizeText({ growing, isProposed }, text, size) {
  if (!growing) return size === undefined ? "" : `${size.toLocaleString("en")} bytes`;
  const state = isProposed ? "not written yet" : "being written";
  return text === null ? state : `${state}, ${text.length.toLocaleString("en")} characters`;
}

const suffixOf = (/** @type {string} */ path) => /\.([\w+-]+)$/.exec(path)?.[1] ?? "";

/** What a revision changed of the one before. */
function Change({ before, text, path, contents, addressOf }) {
  const stored = before.text === null ? contents(addressOf(before), before.mediaType) : null;
  const former = before.text ?? stored?.text ?? null;
  if (stored?.error) return html`<p class="error" role="alert">${stored.error}</p>`;
  if (former === null || text === null) return html`<p class="note">Loading…</p>`;
  return html`<div class="change"><${RevisionDiff} before=${former} after=${text} label=${`Change of ${escapeHidden(path)} since revision ${before.number}`} /></div>`;
}

/** What the session has changed of a file of the workspace. */
function FolderChange({ state: { session: { id }, version }, path }) {
  const found = useSignal(/** @type {any} */ (null));
  const [run, error] = useAction();
  useEffect(() => {
    let isShown = true;
    run(async () => {
      const { files } = await api(`api/sessions/${id}/changes?${new URLSearchParams({ path })}`);
      if (isShown) found.value = files[0] ?? {};
    }, { repeats: true });
    return () => { isShown = false; };
  }, [id, path, version]);
  if (error || !found.value) return error ?? html`<p class="note">Loading…</p>`;
  const { diff, diff_cut: cut, unchanged_below: below, before } = found.value;
  if (!diff) return html`<p class="note">The agent's file tools have not changed it, or what it was is not stored any more.</p>`;
  return html`<div class="change"><${DiffView} diff=${diff} below=${below} cut=${cut} label=${`Change of ${escapeHidden(path)}`} readBefore=${before !== null && (async () => before)} /></div>`;
}

/** What a frame has said, and what was told to it. */
function useFrame() {
  const [isHeld, isHanging] = [useSignal(false), useSignal(false)];
  const [stopped, error] = [useSignal(/** @type {string|null} */ (null)), useSignal("")];
  const [blocked, scripts] = [useSignal(/** @type {any[]} */ ([])), useSignal(0)];
  return { isHeld, isHanging, stopped, error, blocked, scripts };
}

/** A page in its frame, drawn again as it grows. */
function Page({ state, option, revision, text, isHidden, scripts, running, frame, contents, addressOf, width }) {
  const box = useRef(/** @type {HTMLElement|null} */ (null));
  const drawn = useRef(/** @type {any} */ (null));
  const own = useRef(/** @type {PreviewFrame|null} */ (null));
  useEffect(() => {
    if (!box.current) return undefined;
    const block = (item) => { frame.blocked.value = [...frame.blocked.value.filter((each) => each.url !== item.url || each.kind !== item.kind), item]; };
    const preview = new PreviewFrame(box.current, {
      onDraw: () => { // until then the frame tells about the text before
        frame.blocked.value = [];
        frame.scripts.value = 0;
      },
      onBlocked: block,
      onScripts: (count) => { frame.scripts.value = count; },
      onLeft: (url) => {
        running.value = null;
        drawn.current = { ...drawn.current, scripts: false };
        block({ kind: "link", url, canBeAllowed: false });
        frame.error.value = "The page tried to go to another address, so its scripts were stopped.";
      },
      onHeld: () => { frame.isHeld.value = true; },
      onHang: (isHanging) => { frame.isHanging.value = isHanging; },
      onRemoved: (what) => {
        running.value = null;
        drawn.current = null;
        frame.error.value = `The page ${what}, so its scripts were stopped.`;
      },
    });
    own.current = preview;
    return () => {
      preview.dispose();
      Object.assign(frame.isHeld, { value: false });
      Object.assign(frame.error, { value: "" });
    };
  }, []);
  const files = text === null ? [] : filesNamedIn(state, option, revision, text, contents, addressOf);
  const isHeld = frame.isHeld.value, stopped = frame.stopped.value;
  useEffect(() => {
    const preview = own.current;
    if (stopped === keyOf(option, revision) && !scripts) {
      preview?.clear();
      drawn.current = null;
      return;
    }
    if (!preview || text === null || isHidden) return;
    const { path, growing } = revision;
    const next = { text, growing, scripts, files: files.map((file) => file.path + file.sha256).join() };
    if (drawn.current && preview.frame && Object.keys(next).every((key) => next[key] === drawn.current[key])) return;
    if (isHeld && drawn.current && !scripts) return;
    if (drawn.current?.scripts && !scripts) preview.clear();
    frame.isHeld.value = false;
    drawn.current = next;
    preview.show({ path, html: text, files, scripts, isGrowing: growing });
  });
  return html`<section class="preview" hidden=${isHidden}><div class="frame" ref=${box} style=${{ width: width ? `${width}px` : "auto" }}></div></section>`;
}

/** Return the files that a page may name, by their names, as far as they are loaded; those in style sheets too. */
function filesNamedIn(state, option, { path: page }, text, contents, addressOf) {
  if (option === FOLDER) return folderFilesNamedIn(page, text, contents, addressOf);
  const others = pathsOf(state, option).filter((path) => path !== page).map((path) => latest(state, option, path));
  const textOf = (file) => file.text ?? contents(addressOf(file), file.mediaType).text ?? "";
  const sheets = others.filter(({ mediaType, growing }) => mediaType === "text/css" && !growing).map(textOf);
  const named = others.filter(({ path, growing }) => {
    const name = path.split("/").pop();
    return !growing && [text, ...sheets].some((each) => each.includes(name));
  });
  return named.flatMap((file) => {
    const content = contents(addressOf(file), file.mediaType).blob;
    return content ? [{ path: file.path, sha256: file.sha256, content }] : [];
  });
}

/** Return the files of the workspace that a page names, and those that its style sheets do. */
function folderFilesNamedIn(page, text, contents, addressOf) {
  /** @type {Map<string, any>} */
  const found = new Map([[page, null]]);
  const add = (from, content) => {
    for (const path of namedPaths(content, from)) {
      if (found.has(path) || found.size > MAX_NAMED) continue;
      const type = mediaTypeOf(path);
      const file = contents(addressOf({ path, number: "" }), type);
      found.set(path, file.blob ? { path, sha256: idOf(file.blob), content: file.blob } : null);
      if (type === "text/css") add(path, file.text ?? "");
    }
  };
  add(page, text);
  return [...found.values()].filter((file) => file !== null);
}

const named = new Map(); // by path: a text, and what it names

/** Return the paths of files in the workspace that a page or a style sheet may load. */
function namedPaths(text, from) {
  if (named.get(from)?.text !== text) named.set(from, { text, paths: findPaths(text, from) });
  return named.get(from).paths;
}

function findPaths(text, from) {
  const base = `https://folder.invalid/${encodedPath(from)}`;
  return [...text.matchAll(REFERENCE)].flatMap(([reference]) => {
    try {
      const { origin, pathname } = new URL(reference, base);
      return origin === "https://folder.invalid" ? [decodeURIComponent(pathname.slice(1))] : [];
    } catch {
      return []; // no URL, or no UTF-8 in it
    }
  });
}

const ids = new WeakMap(); // of contents, by which a frame knows them again
let lastId = 0;
function idOf(/** @type {Blob} */ content) {
  if (!ids.has(content)) ids.set(content, `folder ${lastId += 1}`);
  return ids.get(content);
}

function Image({ path, content }) {
  const image = useRef(/** @type {HTMLImageElement|null} */ (null));
  useEffect(() => {
    if (!content || !image.current) return undefined;
    const address = URL.createObjectURL(content);
    image.current.src = address;
    return () => URL.revokeObjectURL(address);
  }, [content]);
  return html`<img ref=${image} alt=${escapeHidden(path)} hidden=${!content} />`;
}

/** What the preview did not load, and that scripts have not run. */
function Blocked({ frame }) {
  const items = frame.blocked.value, count = frame.scripts.value;
  if (!items.length && !count) return null;
  const scripts = count === 1 ? "A script of the page has" : `${count} scripts of the page have`;
  return html`<section class="blocked" aria-label="What the preview did not load">
    ${count > 0 && html`<p>${scripts} not run. Parts of it may be missing before Run.</p>`}
    ${items.length > 0 && html`<p>Blocked in the preview (${items.length}):</p>
      <ul>${items.map(({ kind, url }) => html`<li key=${`${kind} ${url}`}>${escapeHidden(`${kind === "link" ? "link to" : kind} ${url}`)}</li>`)}</ul>`}
    ${items.some(({ canBeAllowed }) => canBeAllowed) && html`<p class="note">${HOSTS_NOTE}</p>`}
  </section>`;
}

/** Have the browser store a file, which it does not open. */
function save(content, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}
