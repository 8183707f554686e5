// @ts-check
// One sentence on what was done, or why it could not be: it stands where it is seen and moves no button.

import { html } from "../vendor/preact.js";
import { cutSince } from "../net/lost_connection.js";
import { route } from "../state/route.js";
import { current, showStatus, status } from "../state/studio.js";
import { Connection } from "./connection.js";
import { isNarrow, isOnTop } from "./pane.js";
import { refusalText } from "./refusal.js";

/** The sentence, in one of the places at a time. @param {{place: "main"|"pane"|"sessions"}} props */
export function Message({ place }) {
  const seen = isNarrow.value && route.value.name === "sessions" ? "sessions" : isOnTop() ? "pane" : "main";
  if (place !== seen) return null;
  const text = status.value, { name } = route.value;
  const isOfSession = name === "session" || (name === "sessions" && place === "main" && current.value); // which has a line of its own
  return html`${!isOfSession && html`<${Connection} is=${cutSince.value === null ? "live" : "reconnecting"} reason="" />`}
    <div class=${text ? "message-bar" : ""}><p id="message" role="status">${refusalText(text)}</p>${text
    && html`<button type="button" class="quiet" aria-label="Dismiss the message" onClick=${() => showStatus("")}>✕</button>`}</div>`;
}
