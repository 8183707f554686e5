// What stands above the message box of a session: the decision that waits, and messages that are not read yet.

import { html } from "../vendor/preact.js";
import { Dock } from "./dock.js";
import { NextOption } from "./next_option.js";
import { Queue } from "./queue.js";

export function Below({ id, feed: { state, isCaughtUp }, actions }) {
  return html`
    <${Dock} state=${state} actions=${actions} />
    <${NextOption} id=${id} state=${state} />
    <${Queue} sessionId=${id} state=${state} isRead=${isCaughtUp.value} actions=${actions} />`;
}
