// The vaults of notes: added, scanned again and forgotten; whether their text may be sent to be found by meaning.

import { html, useEffect, useSignal } from "../vendor/preact.js";
import { api } from "../net/api.js";
import { ask } from "../state/asked.js";
import { escapeHidden } from "../text/hidden_characters.js";
import { useAction } from "./use_action.js";
import { useLimit } from "./use_limit.js";

const ROWS = 100; // of problems, at first
const POLL_MS = 1000; // while an index is behind
const STATES = { indexing: "being indexed", ready: "up to date", missing: "the folder cannot be read" };
const PROBLEMS = {
  binary: "no text; not indexed",
  control_characters: "has control characters; indexed",
  frontmatter: "its frontmatter is not closed or no valid YAML; indexed without its values",
  name: "its name has control characters or is not valid Unicode; not indexed",
  not_a_file: "no regular file; not indexed",
  not_utf8: "not UTF-8; indexed with replacement characters",
  symlink: "a symbolic link; not followed",
  too_large: "over 8 MB; not indexed",
  unreadable: "cannot be read; not indexed",
};
const count = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;

/** Return whether passages get their vectors now. */
function isBeingEmbedded(embeddings) {
  const { consent, embedded, passages, problem } = embeddings ?? {};
  return (consent === "given" || consent === "not_needed") && embedded < passages && !problem;
}

/** A sentence about the search by meaning in a vault. */
function meaning({ consent, host, model, embedded, passages, problem }) {
  if (consent === "needed") return `To find notes by meaning, their text and questions would be sent to ${host}.`;
  if (consent === "refused") return `Found by words alone: nothing is sent to ${host}.`;
  return problem ?? `${embedded} of ${count(passages, "passage")} also found by meaning, with ${model}.`;
}

export function NoteSettings() {
  const vaults = useSignal(/** @type {any} */ (null));
  const [run, error] = useAction();
  const load = async () => { vaults.value = (await api("api/vaults")).vaults; };
  const act = (action) => run(async () => {
    await action();
    await load();
  });
  useEffect(() => { run(load, { repeats: true }); }, []);
  const isBehind = vaults.value?.some(({ state, embeddings }) => state === "indexing" || isBeingEmbedded(embeddings));
  useEffect(() => {
    if (!isBehind) return undefined;
    const timer = setTimeout(() => run(load, { repeats: true }), POLL_MS);
    return () => clearTimeout(timer);
  }, [isBehind, vaults.value]);
  const add = (event) => {
    event.preventDefault();
    const form = event.target;
    const body = { path: form.elements.path.value.trim() };
    if (!body.path) return;
    if (form.elements.name.value.trim()) body.name = form.elements.name.value.trim();
    act(async () => {
      await api("api/vaults", { method: "POST", body });
      form.reset();
    });
  };
  return html`<h2>Vaults of notes</h2>
    ${error && html`<div id="vault-error">${error}</div>`}
    <ul id="vault-list" class="rows" aria-label="Vaults of notes">
      ${vaults.value?.map((vault) => html`<${Vault} key=${vault.id} vault=${vault} act=${act} />`)}
      ${vaults.value?.length === 0 && html`<li class="note">No vault yet. Add a folder of Markdown or text files.</li>`}
    </ul>
    <form id="add-vault" autocomplete="off" onSubmit=${add}>
      <label>Folder of notes <input name="path" placeholder="~/Notes" spellcheck=${false} /></label>
      <label>Name <input name="name" maxlength="100" placeholder="that of the folder" spellcheck=${false} /></label>
      <button type="submit">Add vault</button>
    </form>`;
}

function Vault({ vault, act }) {
  const problems = useSignal(/** @type {any} */ (null));
  const name = escapeHidden(vault.name);
  const [shown, more] = useLimit(problems.value ?? [], ROWS, "problems");
  const toggle = () => problems.value ? (problems.value = null) : act(async () => {
    problems.value = (await api(`api/vaults/${vault.id}/problems`)).problems;
  });
  const remove = async () => {
    const text = "Its index is deleted; its notes stay as they are.";
    if (await ask({ title: `Forget the vault “${name}”?`, text, action: "Forget vault" }) === null) return;
    act(() => api(`api/vaults/${vault.id}`, { method: "DELETE" }));
  };
  return html`<li>
    <strong>${name}</strong>
    <span class="note path">${escapeHidden(vault.path)}</span>
    <span class=${`note state-${vault.state}`}>${count(vault.notes, "note")}, ${STATES[vault.state]}</span>
    ${vault.problem && html`<span class="note">${escapeHidden(vault.problem)}</span>`}
    ${vault.embedding_problem && html`<span class="note">${escapeHidden(vault.embedding_problem)}</span>`}
    ${vault.embeddings && html`<span class="note">${escapeHidden(meaning(vault.embeddings))}</span>`}
    <span class="buttons">
      ${vault.embeddings && html`<${Consent} vault=${vault} act=${act} />`}
      ${vault.problems > 0 && html`<button type="button" aria-expanded=${problems.value !== null} aria-label=${`Show the problems of ${name}`}
        onClick=${toggle}>${count(vault.problems, "problem")}</button>`}
      <button type="button" aria-label=${`Rescan ${name}`} onClick=${() => act(() => api(`api/vaults/${vault.id}/rescan`, { method: "POST", body: {} }))}>Rescan</button>
      <button type="button" aria-label=${`Remove ${name}`} onClick=${remove}>Remove</button>
    </span>
    ${problems.value && html`<ul class="problems">${shown.map(({ path, problem }) =>
      html`<li class="note">${escapeHidden(path)}: ${PROBLEMS[problem] ?? problem}</li>`)}</ul>${more}`}
  </li>`;
}

/** Let the person say whether text of the vault may be sent to the model that finds it by meaning. */
function Consent({ vault, act }) {
  const { consent, host } = vault.embeddings;
  const name = escapeHidden(vault.name);
  const allow = (embeddings) => act(() => api(`api/vaults/${vault.id}`, { method: "PATCH", body: { embeddings } }));
  return html`
    ${consent !== "given" && consent !== "not_needed" && html`<button type="button"
      aria-label=${`Allow sending the text of ${name} to ${escapeHidden(host)}`} onClick=${() => allow(true)}>Allow</button>`}
    ${(consent === "needed" || consent === "given") && html`<button type="button"
      aria-label=${`Do not send the text of ${name} to ${escapeHidden(host)}`} onClick=${() => allow(false)}>${consent === "needed" ? "Refuse" : "Revoke"}</button>`}`;
}
