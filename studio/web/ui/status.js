// @ts-check
// What happens in a session now, in a few words: for its header and for screen readers.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { isLost } from "../net/lost_connection.js";
import { openRequests } from "../state/requests.js";
import { agentName } from "../text/agent_words.js";
import { lastTurn } from "./actions.js";
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

const ENDS = {
  done: "Answer complete.",
  partial: "The answer is incomplete.",
  stopped: "Stopped.",
  failed: "The turn failed.",
  interrupted: "The turn was interrupted.",
};

/** The two live regions: one says that an answer has ended, the other that a decision is needed. @param {{state: any}} props */
export function Announcements({ state }) {
  const { requests, runningTurnId } = state.value;
  const [polite, setPolite] = useState("");
  const ran = useRef(/** @type {string|null} */ (null));
  const open = openRequests(state.value);
  useEffect(() => {
    if (ran.current && !runningTurnId) {
      const status = lastTurn(state.value)?.status;
      setPolite(ENDS[/** @type {keyof ENDS} */ (status)] ?? "");
    } else if (runningTurnId) setPolite("");
    ran.current = runningTurnId;
  }, [runningTurnId]);
  const newest = open.at(-1);
  const asking = (newest?.agentPath.length ?? 0) > 1 ? `${agentName(newest?.agentPath.at(-1) ?? "")}: ` : "";
  const text = newest ? `A decision is needed: ${asking}${newest.question}` : "";
  return html`<div class="hidden-text">
    <p role="status" aria-live="polite">${polite}</p>
    <p role="alert" aria-live="assertive" data-requests=${requests.length}>${text}</p>
  </div>`;
}
