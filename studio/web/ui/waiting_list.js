// @ts-check
// The questions that wait in other sessions than the one that is shown.

import { html } from "../vendor/preact.js";
import { sessionPath } from "../state/route.js";
import { waitingElsewhere, waitingText } from "../state/studio.js";
import { escapeHidden, escapeHiddenText } from "../text/hidden_characters.js";
import { plainText } from "./markdown_view.js";
import { useLimit } from "./use_limit.js";

const ROWS = 20; // at first

export function WaitingList() {
  const requests = waitingElsewhere.value;
  const [shown, more] = useLimit(requests, ROWS, "questions");
  return html`<section class="waiting-list" aria-label="Waiting for you in other sessions">
    <h2>Waiting (${requests.length})</h2>
    <ul>${shown.map((request) => {
      const { title, asked } = waitingText(request, plainText);
      return html`<li key=${request.id}><a href=${sessionPath(request.sessionId)}>
        <span class="mark waiting" aria-hidden="true">●</span> ${escapeHiddenText(title)} <small>${escapeHidden(asked)}</small></a></li>`;
    })}</ul>
    ${more}
  </section>`;
}
