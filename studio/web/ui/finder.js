// @ts-check
// Ctrl+K: the dialog and the box for the words, there at once so that no key is lost; what is found is a module of its own.

import { html, useLayoutEffect, useRef, useSignal, useState } from "../vendor/preact.js";
import { closeFinder, giveFocusBack } from "../state/finder.js";
import { lazy } from "./lazy.js";

const FinderRows = lazy(() => import("./finder_rows.js"), "FinderRows");

/** @param {{view: any}} props */
export function Finder({ view }) {
  const [words, setWords] = useState("");
  const active = useSignal(/** @type {string|undefined} */ (undefined));
  const box = useRef(/** @type {HTMLDialogElement|null} */ (null));
  const keys = useRef(/** @type {((event: KeyboardEvent) => void)|null} */ (null));
  useLayoutEffect(() => { box.current?.showModal(); }, []); // before the next key
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Escape") { // in a search field it would only remove the words
      event.preventDefault();
      box.current?.close();
    } else if (!event.isComposing) keys.current?.(event);
  };
  return html`<dialog id="finder" ref=${box} aria-label="Find" onClose=${() => { closeFinder(); giveFocusBack(); }}
      onClick=${(/** @type {Event} */ event) => { if (event.target === box.current) closeFinder(); }}>
    <input type="search" role="combobox" aria-label="Find sessions, turns and commands" aria-expanded="true" aria-controls="finder-rows"
      aria-activedescendant=${active.value} placeholder="Sessions, turns, commands" autocomplete="off" spellcheck=${false}
      value=${words} onKeyDown=${onKeyDown} onInput=${(/** @type {any} */ event) => setWords(event.target.value)} />
    <div id="finder-rows" role="listbox" aria-label="Found"><${FinderRows} words=${words} view=${view} keys=${keys} active=${active} /></div>
  </dialog>`;
}
