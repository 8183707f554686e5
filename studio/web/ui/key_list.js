// @ts-check
// The list of keys.

import { html, useLayoutEffect, useRef } from "../vendor/preact.js";
import { preferences } from "../state/preferences.js";
import { isKeyListOpen } from "./keys.js";

const SEND_KEYS = [["Shift+Enter", "Send; Enter breaks the line"], ["Enter", "Send; Shift+Enter breaks the line"]]; // as the person chose
const KEYS = [
  ["Ctrl+Enter", "Add to the running turn"],
  ["Ctrl+Shift+Enter", "Send instead of the running turn"],
  ["↑", "In an empty box: the last message again"],
  ["@", "Complete the path of a file"],
  ["F2", "The next decision in this session"],
  ["Shift+F2", "The next decision in any session"],
  ["A, S, E, D", "In the decision, after F2, Tab or a click there: allow once, allow for the session, edit, deny"],
  ["Esc", "Close; leave the decision; twice: stop the turn"],
  ["Alt+↑, Alt+↓", "The turn before, the next turn"],
  ["1 to 9", "In the preview: the option of that number"],
  ["Ctrl+K", "Find sessions, turns and commands"],
  ["Ctrl+F", "Find in this session"],
  ["F6", "The next part of the page"],
  ["?", "This list"],
];

export function KeyList() {
  const box = useRef(/** @type {HTMLDialogElement|null} */ (null));
  useLayoutEffect(() => { box.current?.showModal(); }, []);
  const close = () => { isKeyListOpen.value = false; };
  return html`<dialog id="keys" ref=${box} aria-labelledby="keys-title" onClose=${close}>
    <h2 id="keys-title">Keys</h2>
    <dl>${[SEND_KEYS[Number(preferences.value.enterSends)], ...KEYS].map(([key, text]) => html`<div key=${key}><dt><kbd>${key}</kbd></dt><dd>${text}</dd></div>`)}</dl>
    <p class="buttons"><button type="button" onClick=${close}>Close</button></p>
  </dialog>`;
}
