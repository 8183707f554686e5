// @ts-check
// What happens in a session now, in a few words, for its header.

import { html } from "../vendor/preact.js";
import { isLost } from "../net/lost_connection.js";
import { activityOfSession } from "./activity.js";
import { Seconds, useRedrawAt } from "./clock.js";

/** @param {{state: any}} props */
export function ActivityText({ state }) {
  const doing = activityOfSession(state.value);
  useRedrawAt(doing?.until ?? null);
  if (!doing) return null;
  const { since, until } = doing, text = isLost.value ? lostText(doing.text) : doing.text;
  const isYours = /^Waiting for your /.test(text);
  const short = isLost.value ? "Connection lost" : isYours ? "Waiting for you" : until ? "" : /^[A-Z][a-z]+ing(?= )/.exec(text)?.[0]; // where there is little room
  return html`<span class=${isYours ? "doing yours" : "doing"}><span class="long">${text}</span>${short && html`<span class="short">${short}</span>`}${(since || until) && html`<span aria-hidden="true">${until ? " " : ", "}<${Seconds} since=${since} until=${until} /></span>`}</span>`;
}

/** Return what went on when the connection was lost. */
const lostText = (/** @type {string} */ text) => /^[A-Z][a-z]+ing\b/.test(text)
  ? `Connection lost while ${text[0].toLowerCase()}${text.slice(1)}` : `Connection lost. Before: ${text}`;
