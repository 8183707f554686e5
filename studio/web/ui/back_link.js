// @ts-check
// The way from a session to the list, where only one of them is shown.

import { html } from "../vendor/preact.js";
import { waitingElsewhere } from "../state/studio.js";

/** The link; it says how many questions wait in other sessions. */
export function BackLink() {
  const count = waitingElsewhere.value.length;
  return html`<a class="back quiet" href="#/sessions" aria-label=${count ? `Sessions, ${count} waiting` : "Sessions"}>‹${count > 0
    && html`<span class="badge">${count}</span>`}</a>`;
}
