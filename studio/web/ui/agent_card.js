// @ts-check
// A sub-agent in short: what it is to do, how far it is, and what it does now.

import { html, useLayoutEffect, useRef, useState } from "../vendor/preact.js";
import { isLost } from "../net/lost_connection.js";
import { newId } from "../state/outbox.js";
import { turnById } from "../state/reducer.js";
import { sends } from "../state/preferences.js";
import { attempt } from "../state/studio.js";
import { keepUnsent, unsentOf } from "../state/unsent.js";
import { escapeHidden, escapeHiddenText } from "../text/hidden_characters.js";
import { senderName } from "../text/agent_words.js";
import { shortened } from "../text/tool_words.js";
import { Doing } from "./activity.js";
import { Seconds, spanText } from "./clock.js";
import { Fold, hasSought } from "./fold.js";
import { grow } from "./grow.js";
import { RequestLine } from "./request_line.js";
import { Failure } from "./turn_end.js";
import { useLimit } from "./use_limit.js";

/** @typedef {import("../state/types.js").Agent} Agent */

const MESSAGES = 10; // that wait, shown at first

const STATUSES = new Map([
  ["running", "works"], ["paused", "paused: out of rounds"], ["completed", "done"], ["failed", "failed"], ["cancelled", "stopped"],
]);

/** @param {{agent: Agent, state: any, actions: any, isInPane?: boolean}} props */
export function AgentCard({ agent, state, actions, isInPane = false }) {
  const { id, status, rounds, tokens, task } = agent;
  const waits = status === "running" && state.value.requests.some((request) => !request.answer && request.agentId === id);
  const work = workOf(agent, state.value);
  const decided = state.value.requests.filter((request) => request.answer && request.answer.by !== "policy" && request.agentId === id);
  const isAgain = agent.turnIds.length > 1; // then the time is that of the last run, and the rest of all
  const facts = [rounds > 0 && `${rounds} ${rounds === 1 ? "round" : "rounds"}${isAgain ? " in all" : ""}`, tokens > 0 && `${tokens.toLocaleString()} tokens`]
    .filter(Boolean); // none are known before the first reply has ended
  return html`<div class=${`card agent ${status}`} data-agent=${id}>
    <p class="agent-head"><b>${escapeHidden(id)}</b>${" "}
      <span class="meta outcome">${waits ? "waits for you" : status === "running" && isLost.value ? "worked when the connection was lost" : STATUSES.get(status)}</span>
      <span class="meta"> · ${isAgain && "last run "}${status === "running" ? html`<${Seconds} since=${agent.startedAt} />` : spanText(agent.startedAt, agent.endedAt)}</span>
      ${facts.map((fact) => html`<span class="meta"> · ${fact}</span>`)}
    </p>
    <p class="task">${shortened(task, 300, escapeHiddenText)}</p>
    ${status === "running" && work && html`<p class="note">${work}</p>`}
    <${WaitingMessages} agent=${agent} />
    ${agent.error && status !== "cancelled" && html`<${Failure} turn=${{ status: "failed", end: agent.error, model: turnById(state.value, agent.turnIds.at(-1))?.model }} />`}
    ${decided.map((request) => html`<${RequestLine} key=${request.id} id=${`agent/${id}/${request.id}`} request=${request} />`)}
    ${agent.result && html`<${Fold} id=${`agent/${id}/result`} open=${hasSought(agent.result)} summary="Result">${() => html`<div class="text">${escapeHiddenText(agent.result)}</div>`}<//>`}
    <${AgentActions} agent=${agent} actions=${actions} isInPane=${isInPane} />
  </div>`;
}

/** The messages that the sub-agent has not read. @param {{agent: Agent}} props */
function WaitingMessages({ agent: { waiting, status } }) {
  const [shown, more] = useLimit(waiting, MESSAGES, "messages");
  if (!waiting.length) return null;
  const isRunning = status === "running";
  return html`<ul class="unread" aria-label="Messages that are not read yet">
    ${shown.map(({ id, text, fromAgentId }) => html`<li key=${id}><b>${isRunning ? "Will be read in this turn" : "Not read"}</b>${" "}
      ${fromAgentId !== null && `${senderName(fromAgentId)}: `}${shortened(text, 300, escapeHiddenText)}</li>`)}
  </ul>${more}
  ${!isRunning && html`<p class="note">A retry reads ${waiting.length === 1 ? "it" : "them"}, and so does the next message.</p>`}`;
}

/** Return what a sub-agent does, else what it reported last, unless that is its task. @param {Agent} agent @param {any} state */
function workOf({ turnIds, activity, task }, { childTurns }) {
  const turn = childTurns[turnIds.at(-1) ?? ""];
  if (turn?.status === "running") return html`<${Doing} turn=${turn} isTimed=${false} />`; // the time is that of the agent
  return /^round \d+: /.test(activity) || task.startsWith(activity.replace(/…$/, "")) ? "" : shortened(activity, 200, escapeHiddenText);
}

function AgentActions({ agent: { id, status }, actions, isInPane }) {
  const key = `${actions.sessionId}.agent.${id}`; // a card goes when it is scrolled away
  const [isWriting, setWriting] = useState(unsentOf(key) !== null);
  const field = useRef(/** @type {any} */ (null));
  const opener = useRef(/** @type {any} */ (null));
  const isOpened = useRef(false); // by the person
  useLayoutEffect(() => {
    grow(field.current);
    if (!isWriting || !isOpened.current) return;
    field.current.focus();
    field.current.setSelectionRange(field.current.value.length, field.current.value.length);
  }, [isWriting]);
  const button = (label, action) => html`<button key=${label} type="button" class="quiet" onClick=${() => attempt(action)}>${label}</button>`;
  /** Keep a text with an id, so that it is one message however often it is sent. */
  const keepTyped = (/** @type {string} */ text) => {
    const before = unsentOf(key);
    const typed = before?.text === text ? before : { text, messageId: newId() };
    keepUnsent(key, typed);
    return typed;
  };
  const write = ({ target }) => {
    keepTyped(target.value);
    grow(target);
  };
  const send = (event) => {
    event.preventDefault();
    const typed = keepTyped(field.current.value);
    if (!typed.text.trim()) return;
    attempt(async () => {
      await actions.messageAgent(id, typed.text, typed.messageId);
      if (unsentOf(key) !== typed) return; // it was sent twice, or more is typed meanwhile
      const hadFocus = document.activeElement === field.current;
      keepUnsent(key, null);
      setWriting(false);
      if (hadFocus) opener.current?.focus();
    });
  };
  const open = () => {
    isOpened.current = true;
    setWriting(!isWriting);
  };
  const onKeyDown = (event) => {
    if (sends(event) && event.target === field.current) send(event);
    if (event.key !== "Escape") return;
    event.preventDefault(); // otherwise it closes the pane, or begins to stop the turn
    setWriting(false);
    opener.current?.focus();
  };
  return html`<p class="buttons">
    ${!isInPane && button("Show", async () => actions.openPane("agents", { agentId: id }))}
    ${status === "running" ? button("Cancel", () => actions.cancelAgent(id)) : button("Retry", () => actions.retryAgent(id))}
    <button type="button" class="quiet" ref=${opener} aria-expanded=${isWriting} onClick=${open}>Message</button>
  </p>
  ${isWriting && html`<form class="agent-message" onSubmit=${send} onKeyDown=${onKeyDown}>
    <textarea name="text" rows="1" ref=${field} defaultValue=${unsentOf(key)?.text ?? ""} onInput=${write} aria-label=${`Text for ${escapeHidden(id)}`} autocomplete="off"></textarea>
    <button>Send to ${escapeHidden(id)}</button>
  </form>`}`;
}
