// @ts-check
// A tool call: its arguments while they are written, its output while it runs, and what came of it.

import { html } from "../vendor/preact.js";
import { api } from "../net/api.js";
import { FOLDER, isViewed } from "../state/files.js";
import { isEdit } from "../state/folder_files.js";
import { cutOutput, plainOutput, styledOutput } from "../text/command_output.js";
import { escapeHidden } from "../text/hidden_characters.js";
import { ruleSentence } from "../text/rules.js";
import { argumentsText, callFacts, callTitle, commandOf, diffOf, exitCode, failedImages, hasNotRun, isDiffCut, isOvertaken, outcomeWord, readingTitle, unchangedBelow } from "../text/tool_words.js";
import { Arguments } from "./arguments.js";
import { AttachedFiles } from "./attached_files.js";
import { Seconds } from "./clock.js";
import { DiffView } from "./diff_view.js";
import { Fold, hasSought } from "./fold.js";
import { openPane } from "./pane.js";

export { callTitle, outcomeWord } from "../text/tool_words.js";

/** @typedef {import("../state/types.js").CallItem} CallItem */
/** @typedef {import("../state/types.js").Request} Request */

const LIVE_LINES = 5;
const LIVE_CHARACTERS = 2000;
const SHOWN_CHARACTERS = 20000; // of a result, before "Show all"

/** Outcomes that the person brought about, which need not open by themselves. */
const EXPECTED = new Set(["denied", "cancelled", "dropped", "stopped"]);

/**
 * The card of a call; `request` is the confirmation or question that it waits or waited for.
 * @param {{id: string, call: CallItem, request?: Request, actions?: any}} props
 */
export function ToolCard({ id, call, request, actions }) {
  const word = outcomeWord(call, request);
  const summary = html`<span class="call-title">${callTitle(call)}</span><${Meta} call=${call} request=${request} word=${word} />`;
  const hasFailed = (exitCode(call) ?? 0) !== 0 || failedImages(call) !== null;
  const opens = hasFailed || (call.isError && call.phase === "done" && (!EXPECTED.has(call.outcome ?? "") || isOvertaken(call, request)));
  const path = call.phase === "done" && isEdit(call) && isViewed(call.data.path) ? call.data.path : null;
  const isBad = hasFailed || (word !== "" && !hasNotRun(call));
  return html`<div class=${`card call ${call.phase} ${isBad ? "bad" : ""} ${path === null ? "" : "viewed"}`} data-call=${call.id}>
    <${Fold} id=${id} open=${opens} summary=${summary}>${() => html`<${Details} id=${id} call=${call} request=${request} actions=${actions} />`}<//>
    ${path !== null && html`<button type="button" class="quiet" aria-label=${`Preview ${escapeHidden(path)}`}
      onClick=${() => openPane("preview", { option: FOLDER, path })}>Preview</button>`}
    <${Live} call=${call} />
  </div>`;
}

/** What stands behind the title: how the call ended, or how long it goes on. */
function Meta({ call, request, word }) {
  if (call.phase === "waiting") return html`<span class="meta"> · waits for you</span>`;
  if (call.phase === "queued") return html`<span class="meta"> · waits</span>`;
  if (call.phase === "running" && call.startedAt) return html`<span class="meta"> · <${Seconds} since=${call.startedAt} /></span>`;
  if (call.phase !== "done") return html`<span class="meta"> …</span>`;
  const facts = callFacts(call, request);
  return html`${word && html`<span class="meta outcome"> · ${word}</span>`}${facts.map((fact) => html`<span class="meta"> · ${fact}</span>`)}`;
}

/** The arguments as they are written, and the last lines of a tool that runs. */
function Live({ call }) {
  const text = call.phase === "written" ? writtenText(call.argsText) : call.phase === "running" ? call.output : "";
  if (!text) return null;
  const lines = text.slice(-LIVE_CHARACTERS).replace(/\n$/, "").split("\n").slice(-LIVE_LINES).join("\n");
  return html`<pre class="live" aria-live="off">${call.phase === "running" && commandOf(call) ? plainOutput(lines) : escapeHidden(lines)}</pre>`;
}

/** Return the end of arguments that are written, with the line breaks and quotation marks of their JSON texts. */
function writtenText(/** @type {string} */ json) {
  return json.slice(-2 * LIVE_CHARACTERS).replace(/\\(n|t|"|\\)/g, (_, sign) => ({ n: "\n", t: "\t" })[sign] ?? sign);
}

function Details({ id, call, request, actions }) {
  const command = commandOf(call);
  const diff = diffOf(call, request);
  return html`
    ${command && html`<pre class="command">${escapeHidden(command)}</pre>`}
    ${diff && html`<${DiffView} diff=${diff} below=${unchangedBelow(call, request)} cut=${isDiffCut(call, request)} readBefore=${isEdit(call) && actions && (() => textBefore(call, actions))} />`}
    ${!command && !diff && html`<${WrittenArguments} call=${call} />`}
    ${call.allowedBy.length > 0 && html`<p class="note">Not asked about: your rule allows it to ${call.allowedBy.map(ruleSentence).join("; ")}.</p>`}
    ${call.edited && html`<p class="note">You changed the arguments.</p>`}
    ${call.repaired && html`<p class="note">The arguments were converted to fit.</p>`}
    ${call.phase === "running" && call.output && html`<${Output} id=${`${id}/output`} text=${call.output} isStyled=${command !== ""} />`}
    ${call.result && !(diff && !call.isError) && html`<${Output} id=${`${id}/result`} text=${call.result} isStyled=${command !== ""} />`}
    ${call.truncated && html`<p class="note">The middle of the result is left out.</p>`}
    <${AttachedFiles} files=${call.attachments} />`;
}

/** Return the text of the file that a call has changed, as it was before; null if it is not stored. */
async function textBefore({ id }, { sessionId }) {
  const { files } = await api(`api/sessions/${sessionId}/changes?${new URLSearchParams({ tool_call_id: id })}`);
  return files[0]?.before ?? null;
}

function WrittenArguments({ call }) {
  if (call.args !== null && typeof call.args === "object") return html`<${Arguments} args=${call.args} />`;
  const text = argumentsText(call);
  return text && html`<pre>${escapeHidden(text)}</pre>`;
}

/** A long text, cut until the person asks for all of it; that of a command may have colours. */
function Output({ id, text, isStyled }) {
  const [first, rest] = cutOutput(text, SHOWN_CHARACTERS);
  const shown = (part) => html`<pre class="result">${isStyled ? styledOutput(part).map(({ text: one, style }) =>
    style ? html`<span class=${style}>${one}</span>` : one) : escapeHidden(part)}</pre>`;
  if (!rest) return shown(first);
  return html`${shown(first)}
    <${Fold} id=${id} open=${hasSought(rest)} summary=${`${rest.length.toLocaleString("en")} more characters`}>${() => shown(rest)}<//>`;
}

/** Several calls that only read, in one line that opens to their cards. @param {{id: string, calls: CallItem[]}} props */
export function ReadingCard({ id, calls }) {
  return html`<div class="card reading">
    <${Fold} id=${id} summary=${html`<span class="call-title">${readingTitle(calls)}</span>`}>
      ${() => calls.map((call) => html`<${ToolCard} key=${call.key} id=${`${id}/${call.key}`} call=${call} />`)}
    <//>
  </div>`;
}
