// @ts-check
// What can be done with a message that was not sent, above the message box and in the log.

import { html } from "../vendor/preact.js";
import { dismiss } from "../state/dismissed.js";
import { attempt } from "../state/studio.js";

/** @param {{message: import("../state/types.js").Queued, actions: any}} props */
export function UnsentButtons({ message, actions }) {
  const edit = () => attempt(async () => {
    await actions.editMessage(message);
    dismiss(message);
  });
  const send = () => attempt(() => actions.sendMessage(message, () => dismiss(message)));
  return html`
    <button type="button" class="quiet" onClick=${edit}>Edit</button>
    <button type="button" class="quiet" onClick=${send}>Send</button>
    <button type="button" class="quiet" aria-label="Remove this message" onClick=${() => dismiss(message)}>×</button>`;
}
