// The notes of the session's vaults: one that an answer cites, at its lines, and those that a search finds.

import { html, useEffect, useLayoutEffect, useRef, useSignal } from "../vendor/preact.js";
import { api } from "../net/api.js";
import { readNote } from "../net/notes.js";
import { escapeHidden } from "../text/hidden_characters.js";
import { useAction } from "./use_action.js";

const MAX_LINES = 5000; // shown of a note
const FOUND_CHARS = 200; // shown of a passage

export function NotesPane({ session, detail }) {
  const shown = detail.value;
  if (shown?.path) return html`<${Note} key=${`${shown.vault} ${shown.path}`} shown=${shown} close=${() => { detail.value = null; }} />`;
  return html`<${Search} ids=${session.value?.vaults ?? null} open=${(note) => { detail.value = note; }} />`;
}

/** A note as it is now, the lines that are cited marked. */
function Note({ shown: { vault, path, lines, hasChanged = false }, close }) {
  const note = useSignal(/** @type {any} */ (null));
  const [run, error] = useAction();
  const cited = useRef(/** @type {any} */ (null));
  useEffect(() => { run(async () => { note.value = await readNote(vault, path); }, { repeats: true }); }, []);
  useLayoutEffect(() => cited.current?.scrollIntoView({ block: "center" }), [note.value]);
  const all = note.value?.text.split(/\r\n|\n|\r/) ?? [];
  const [first, last] = lines ?? [0, 0];
  const from = Math.max(0, Math.min(first - 1, all.length) - MAX_LINES / 2);
  const part = all.slice(from, from + MAX_LINES);
  return html`<section class="note-pane" aria-label="Note">
    <header><h2>${escapeHidden(path)}</h2> <button type="button" class="quiet" onClick=${close}>All notes</button></header>
    ${error}
    ${hasChanged && html`<p class="note">The note has changed since: the lines that were cited are not in it any more.</p>`}
    ${!hasChanged && lines && note.value && first > all.length && html`<p class="note">The note has no such lines any more.</p>`}
    ${note.value && html`<ol class="passage" start=${from + 1} tabindex="0" aria-label=${`Lines of ${escapeHidden(path)}`}>
      ${part.map((line, index) => {
        const number = from + index + 1;
        const isCited = !hasChanged && number >= first && number <= last;
        return html`<li key=${number} ref=${number === first ? cited : undefined}>${isCited ? html`<mark>${escapeHidden(line) || " "}</mark>` : escapeHidden(line)}</li>`;
      })}
    </ol>`}
    ${all.length > part.length && html`<p class="note">${all.length - part.length} lines are not shown.</p>`}
  </section>`;
}

/** The vaults, and the passages in which words are found. */
function Search({ ids, open }) {
  const vaults = useSignal(/** @type {any[]} */ ([]));
  const found = useSignal(/** @type {any} */ (null));
  const [run, error] = useAction();
  useEffect(() => {
    run(async () => {
      const { vaults: all } = await api("api/vaults");
      vaults.value = all.filter(({ id }) => ids === null || ids.includes(id));
    }, { repeats: true });
  }, []);
  const search = (event) => {
    event.preventDefault();
    const words = event.target.elements.words.value.trim();
    if (!words) return;
    run(async () => {
      const query = new URLSearchParams({ q: words });
      found.value = await Promise.all(vaults.value.map(async (vault) =>
        ({ vault, ...await api(`api/vaults/${vault.id}/search?${query}`) })));
    });
  };
  return html`<section class="note-pane" aria-label="Notes">
    <h2>Notes</h2>
    ${error}
    ${vaults.value.length ? html`<form onSubmit=${search} class="row">
        <input type="search" name="words" aria-label="Find in notes" placeholder="Find in ${vaults.value.map(({ name }) => escapeHidden(name)).join(", ")}" spellcheck=${false} />
        <button type="submit">Find notes</button>
      </form>`
      : html`<p class="note">This session has no vault of notes. <a href="#/settings/notes">Add one</a></p>`}
    <div role="status">${found.value?.map(({ vault, results, problem, note }) => html`<div key=${vault.id}>
      ${found.value.length > 1 && html`<h3>${escapeHidden(vault.name)}</h3>`}
      ${[problem, note].filter(Boolean).map((text) => html`<p class="note">${escapeHidden(text)}</p>`)}
      <ul class="rows">${results.map(({ path, heading, line_start, line_end, text }) => html`<li key=${`${path} ${line_start}`}>
        <button type="button" onClick=${() => open({ vault: vault.id, path, lines: [line_start, line_end] })}>${escapeHidden(path)}, lines ${line_start}–${line_end}</button>
        ${heading && html`<strong>${escapeHidden(heading)}</strong>`}
        <span>${escapeHidden(text.slice(0, FOUND_CHARS))}${text.length > FOUND_CHARS ? "…" : ""}</span></li>`)}</ul>
      ${!results.length && html`<p class="note">Nothing found.</p>`}
    </div>`)}</div>
  </section>`;
}
