// @ts-check
// What screen readers say without being asked, wherever the person is: that an answer has ended, and that a decision is needed.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { openRequests } from "../state/requests.js";
import { route } from "../state/route.js";
import { isListed, waiting, waitingTitle } from "../state/studio.js";
import { escapeHiddenText } from "../text/hidden_characters.js";
import { lastTurn } from "./actions.js";
import { requestInLine } from "./request_in_line.js";
import { failureText } from "./turn_end.js";

const ENDS = {
  done: "Answer complete.",
  partial: "The answer is incomplete.",
  stopped: "Stopped.",
  failed: "The turn failed.",
  interrupted: "The turn was interrupted.",
};

/**
 * The two live regions of the page. They are empty at first: a text is read if it is put into a region that is there.
 * @param {{view: any}} props the session that is open, null without one
 */
export function Announcements({ view }) {
  const feed = view?.feed.value, at = route.value;
  const state = feed?.isCaughtUp.value ? feed.state.value : null;
  const end = useEnd(view?.id, state);
  const asked = useDecision(at.name === "session" ? at.id : null, state);
  return html`<div class="hidden-text">
    <p role="status" aria-live="polite">${end}</p>
    <p role="alert" aria-live="assertive">${asked && html`<span key=${asked.id}>${asked.text}</span>`}</p>
  </div>`;
}

/** Return how the last turn of a session has ended that ran while the session was open. @param {string|undefined} id @param {any} state */
function useEnd(id, state) {
  const [text, setText] = useState("");
  const turnId = state?.runningTurnId ?? null;
  const ran = useRef({ id, turnId });
  useEffect(() => {
    const isEnded = ran.current.turnId !== null && turnId === null && ran.current.id === id;
    ran.current = { id, turnId };
    if (isEnded) setText(endText(lastTurn(state)));
    else if (turnId !== null) setText("");
  }, [id, turnId]);
  return text;
}

/** @param {import("../state/types.js").Turn|undefined} turn */
function endText(turn) {
  const text = ENDS[/** @type {keyof ENDS} */ (turn?.status)] ?? "";
  return turn?.status === "failed" ? `${text} ${failureText(turn.end?.code ?? "")}`.trim() : text;
}

/**
 * Return the newest decision that is needed while it is, with what is said of it, null without one; each is said once. Those
 * of other sessions than the one that is shown have its name, and wait until it is loaded.
 * @param {string|null} shownId @param {any} state of the session that is shown
 */
function useDecision(shownId, state) {
  const [said, setSaid] = useState(/** @type {{id: string, text: string}|null} */ (null));
  const known = useRef(new Set());
  const here = shownId && state ? openRequests(state) : [];
  const elsewhere = !isListed.value ? [] : [...waiting.value.values()].filter((request) => request.sessionId !== shownId && waitingTitle(request));
  const open = [...elsewhere.map((request) => ({ id: request.id, text: () => textElsewhere(request) })),
    ...here.map((request) => ({ id: request.id, text: () => textHere(request) }))];
  useEffect(() => {
    const added = open.filter(({ id }) => !known.current.has(id)).at(-1);
    for (const { id } of open) known.current.add(id);
    setSaid((before) => { // which may be newer than the one that was drawn
      if (added) return { id: added.id, text: added.text() };
      return open.some(({ id }) => id === before?.id) ? before : null; // so that the others are not read again
    });
  }, [open.map(({ id }) => id).join()]);
  return said;
}

/** @param {import("../state/types.js").Request} request */
function textHere({ kind, question, agentPath }) {
  return `A decision is needed: ${requestInLine(kind, question, agentPath.length > 1 ? agentPath.at(-1) : undefined)}`;
}

/** @param {import("../state/studio.js").Waiting} request */
function textElsewhere(request) {
  const { kind, text, agentPath } = request;
  return `A decision is needed in ${escapeHiddenText(waitingTitle(request))}: ${requestInLine(kind, text, agentPath?.at(-1))}`;
}
