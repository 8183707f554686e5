// What a tab shows that is not signed in.

import { html, useRef, useSignal } from "../vendor/preact.js";
import { askOtherTabs, isOpenedElsewhere, signedIn, signedOutReason, token } from "../net/api.js";
import { useGuard } from "./dock_input.js";

export function Locked() {
  const isAlone = useSignal(false); // no other tab answered
  if (isOpenedElsewhere() && !signedOutReason.value && !isAlone.value) return html`<${OpenedElsewhere} isAlone=${isAlone} />`;
  return html`<main id="locked">
    <h1>This tab is not signed in</h1>
    <p id="locked-reason">${signedOutReason.value || (isAlone.value ? "No other tab is signed in." : "This page is opened with a ticket, which is valid once.")}</p>
    <p>Run <code>agx open</code> in a terminal on this machine: it opens the page with a new ticket. What you typed is kept.</p>
  </main>`;
}

/** Asks before another site has sessions shown; a click that was meant for that site is no answer. */
function OpenedElsewhere({ isAlone }) {
  const box = useRef(/** @type {HTMLElement|null} */ (null));
  const isReady = useSignal(false);
  useGuard(box, isReady, () => {});
  const showSessions = async () => {
    await askOtherTabs();
    if (token()) signedIn.value = "in";
    else isAlone.value = true;
  };
  return html`<main id="locked" ref=${box}>
    <h1>This tab is not signed in</h1>
    <p id="locked-reason">Another site opened this page. Your sessions are shown only if you want that.</p>
    <p><button type="button" class="main" disabled=${!isReady.value} onClick=${showSessions}>Show my sessions</button></p>
  </main>`;
}
