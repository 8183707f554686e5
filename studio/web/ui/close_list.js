// @ts-check
// Closing the list of sessions that is shown in place of its rail: by a button, Escape, or a click beside it.

import { html, useLayoutEffect } from "../vendor/preact.js";
import { go, sessionPath } from "../state/route.js";
import { current, words } from "../state/studio.js";

export function CloseList() {
  useLayoutEffect(() => { // before the next key
    const onKey = (/** @type {KeyboardEvent} */ event) => {
      if (event.key !== "Escape" || event.defaultPrevented || event.isComposing || document.querySelector("dialog[open]")) return;
      if (/** @type {Element} */ (event.target).id === "find" && words.value) return; // the browser removes the words
      event.preventDefault();
      close();
    };
    const onClick = (/** @type {Event} */ { target }) => {
      const isBeside = /** @type {Element} */ (target).closest("main");
      if (isBeside && location.hash === "#/sessions") close(); // unless the click went elsewhere
    };
    document.addEventListener("keydown", onKey);
    document.addEventListener("click", onClick); // not sooner: what is clicked would move away
    return () => {
      document.removeEventListener("keydown", onKey);
      document.removeEventListener("click", onClick);
    };
  }, []);
  return html`<button type="button" class="quiet collapse" aria-label="Hide the sessions" onClick=${close}>☰</button>`;
}

/** Show the session again that was shown before the list. */
const close = () => go(current.value ? sessionPath(current.value.id) : "#/new", { replace: true });
