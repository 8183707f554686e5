// @ts-check
// The questions that wait in other sessions than the one that is shown.

import { html } from "../vendor/preact.js";
import { sessionPath } from "../state/route.js";
import { waitingElsewhere, waitingTitle } from "../state/studio.js";
import { escapeHiddenText } from "../text/hidden_characters.js";
import { requestInLine } from "./request_in_line.js";
import { useLimit } from "./use_limit.js";

const ROWS = 4; // at first: below it are the sessions

export function WaitingList() {
  const requests = waitingElsewhere.value;
  const [shown, more] = useLimit(requests, ROWS, "decisions");
  return html`<section class="waiting-list" aria-label="Waiting for you in other sessions">
    <h2>Waiting (${requests.length})</h2>
    <ul>${shown.map((request, place) => {
      const isNamed = shown[place - 1]?.sessionId === request.sessionId; // just above it
      return html`<li key=${request.id}><a href=${sessionPath(request.sessionId)}>
        <span class=${isNamed ? "hidden-text" : "name"}><span class="mark waiting" aria-hidden="true">●</span> ${escapeHiddenText(waitingTitle(request))}</span> <small>${requestInLine(request.kind, request.text, request.agentPath?.at(-1))}</small></a></li>`;
    })}</ul>
    ${more}
  </section>`;
}
