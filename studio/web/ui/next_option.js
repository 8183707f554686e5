// The option that the next message goes on with, as the person has picked none.

import { html } from "../vendor/preact.js";
import { editedIn } from "../state/drafts.js";
import { openOptionTurns } from "../state/files.js";
import { optionOf } from "../state/revisions.js";

export function NextOption({ id, state }) {
  const { queue, runningTurnId } = state.value;
  const turns = openOptionTurns(state.value);
  if (editedIn(id)) return null; // which is sent in place of the message with the options
  const isQueued = queue.some(({ position }) => position !== "into");
  const done = turns.find(({ status }) => status === "done");
  if (!turns.length || (runningTurnId ? !isQueued : !done)) return null;
  const goesOn = runningTurnId ? "The queued message goes on with the first option that is done" : `The next message goes on with option ${optionOf(done.agentId)}`;
  return html`<p class="note next-option" role="status">${goesOn}, unless you pick another one first.</p>`;
}
