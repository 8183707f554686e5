// @ts-check
// The AGENTS.md files whose content the person has not trusted: each is read here and then trusted, or left for now.

import { html, signal, useEffect, useSignal } from "../vendor/preact.js";
import { api } from "../net/api.js";
import { attempt, showStatus } from "../state/studio.js";
import { escapeHidden, escapeHiddenText } from "../text/hidden_characters.js";

/** @typedef {{path: string, sha256: string, text: string, cut: boolean, trusted: boolean}} File */

const KEY = "agenticx.left_untrusted"; // in the browser: folders with digests
const MAX_LEFT = 200;

/** Which files of which folders are left untrusted without a notice, each with its content. */
const left = signal(/** @type {string[]} */ (stored()));
/** Those of the session that is shown. */
const leftHere = signal(/** @type {string[]} */ ([]));

function stored() {
  try {
    return JSON.parse(localStorage.getItem(KEY) ?? "[]");
  } catch {
    return []; // not written by this page
  }
}

/** @param {string[]} keys */
function leave(keys) {
  left.value = keys.slice(-MAX_LEFT);
  localStorage.setItem(KEY, JSON.stringify(left.value));
}

/** @param {{session: any, state: any}} props */
export function Trust({ session, state }) {
  const files = useSignal(/** @type {File[]} */ ([]));
  // A question about text of others may be the first sign of a file that has changed.
  const asked = state.value.requests.filter((/** @type {any} */ { context }) => context?.decided_by === "untrusted").length;
  const load = async () => { files.value = (await api(`api/sessions/${session.id}/trust`)).files; };
  useEffect(() => { attempt(load); }, [session.id, session.workspace, asked]);
  const keyOf = (/** @type {File} */ { sha256 }) => `${sha256} ${session.workspace}`;
  const untrusted = files.value.filter(({ trusted }) => !trusted);
  const shown = untrusted.filter((file) => !left.value.includes(keyOf(file)));
  const hidden = untrusted.map(keyOf).filter((key) => left.value.includes(key)).join("\n");
  useEffect(() => { leftHere.value = hidden ? hidden.split("\n") : []; }, [hidden]);
  if (!shown.length) return null;
  const trust = async (/** @type {string} */ sha256) => {
    try {
      files.value = (await api(`api/sessions/${session.id}/trust`, { method: "POST", body: { sha256 } })).files;
    } catch (error) { // for example, the file has changed
      showStatus(/** @type {Error} */ (error).message);
      await load().catch(() => {});
    }
  };
  return html`<ul id="session-trust" aria-label="Instructions that are not trusted">
    ${shown.map((file) => html`<${Notice} key=${file.sha256} file=${file} trust=${trust}
      leave=${() => leave([...left.value, keyOf(file)])} />`)}
  </ul>`;
}

/** One file on a line; its text and what trusting it means are shown below on request. */
function Notice({ file: { path, sha256, text, cut }, trust, leave: leaveIt }) {
  const isRead = useSignal(false);
  const name = escapeHidden(path);
  return html`<li class="strip">
    <div class="strip-line"><span>${name} is not trusted.</span>
      <button type="button" aria-label=${`Read ${name}`} aria-expanded=${isRead.value} onClick=${() => { isRead.value = !isRead.value; }}>Read it</button>
      <button type="button" class="quiet" aria-label=${`Leave ${name} untrusted`} title="Not now: asks again if the file changes" onClick=${leaveIt}>✕</button>
    </div>
    ${isRead.value && html`<pre tabindex="0" aria-label=${name}>${escapeHiddenText(text)}</pre>
      <p>It is part of the prompt${cut && ", as far as it is shown here"}. Until you trust it, you are asked about calls that run code outside of a sandbox or send data.
        Its content is trusted in all sessions, until it changes.</p>
      <button type="button" onClick=${() => trust(sha256)}>Trust ${name}</button>`}
  </li>`;
}

/** Shows the notices again that the person has closed. */
export function TrustLink() {
  if (!leftHere.value.length) return null;
  return html`<button type="button" role="menuitem" tabindex="-1" onClick=${() => leave(left.value.filter((key) => !leftHere.value.includes(key)))}>
    Instructions that are not trusted</button>`;
}
