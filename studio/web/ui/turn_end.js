// @ts-check
// The last row of a turn: while it runs what is waited for and the steps, afterwards how it ended and what can follow.

import { html } from "../vendor/preact.js";
import { openOptionTurns, optionItems } from "../state/files.js";
import { optionOf, turnById } from "../state/reducer.js";
import { SHORTLY, attempt, models } from "../state/studio.js";
import { keyLink } from "../state/wanted_key.js";
import { escapeHidden, escapeHiddenText } from "../text/hidden_characters.js";
import { sentence } from "../text/tool_words.js";
import { copyText } from "./clipboard.js";
import { Seconds, spanText, useRedrawAt } from "./clock.js";
import { Steps } from "./steps.js";

/** @typedef {import("../state/types.js").Turn} Turn */

const CLOSED = "the program that ran the turn was closed"; // the text of the event of a turn that nobody stopped

/** Why a turn failed in a sentence, and what fits. @type {Map<string, [string, "again" | "keys" | "model" | "continue" | "budget" | "team"]>} */
const FAILURES = new Map(Object.entries({
  "timeout.first_chunk": ["The model did not begin to answer in time.", "again"],
  "timeout.heartbeat": ["The model stopped in the middle of its answer.", "again"],
  "timeout.hard": ["The model did not complete its answer in time.", "again"],
  "timeout.turn": ["The time for this turn is over.", "continue"],
  "provider.auth": ["The provider did not accept the key.", "keys"],
  "provider.rate_limited": ["The provider allows no more requests for now.", "again"],
  "provider.bad_request": ["The provider refused the request.", "model"],
  "provider.bad_reply": ["The model's answer could not be used.", "again"],
  "provider.overloaded": ["The provider is overloaded, or has a fault.", "again"],
  "provider.truncated": ["The answer ended too early; nothing of its last part was run.", "again"],
  "provider.content_filter": ["The provider's content filter ended the answer.", "model"],
  "provider.transport": ["The connection to the provider failed.", "again"],
  "context_overflow": ["The conversation is too long for this model. Choose one with a larger window, then try again.", "model"],
  "loop_detected": ["The agent did the same again and again, so it was stopped.", "continue"],
  "max_rounds": ["Incomplete: out of rounds.", "continue"],
  "budget_exceeded": ["The budget of the turn allows no further call.", "budget"],
  "hook_failed": ["Code of the application, a hook, failed.", "again"],
  "team_unavailable": ["The team of this session cannot run.", "team"],
  "storage": ["The studio could not store what happened.", "again"],
  "internal": ["Something went wrong in the studio.", "again"],
}));

/** Where a budget comes from, and how one goes on. */
const BUDGETS = "The settings turn_budget_tokens and turn_budget_usd limit each turn. Continue begins another turn, with the same limits.";

/**
 * `isHead`: the conversation ends with it, so that no rewind leads there.
 * @param {{turn: Turn, isLast: boolean, isHead: boolean, running: Turn[], state: any, actions: any}} props
 */
export function TurnEnd({ turn, isLast, isHead, running, state, actions }) {
  if (turn.status === "running") return html`<${Running} turn=${turn} running=${running} />`;
  return html`<div class="end">
    <${Steps} turn=${turn} />
    <${Ending} turn=${turn} isLast=${isLast} state=${state} actions=${actions} />
    ${isLast && html`<${FailedOptions} turn=${turn} state=${state} actions=${actions} />`}
    <${EndActions} turn=${turn} isHead=${isHead} actions=${actions} />
  </div>`;
}

/** What the turn does now is said by the header and its last row. */
const Running = ({ turn, running }) => html`<div class="end running"><${Steps} turn=${running.at(-1) ?? turn} /></div>`;

/** How the turn ended, with what can follow; after an answer nothing needs to be said. */
function Ending({ turn, isLast, state, actions }) {
  const { text, detail, action } = endingOf(turn);
  if (!text) return null;
  const isBad = turn.status === "failed";
  return html`<div class=${`ending ${turn.status}`}>
    <p class=${isBad ? "error" : "note"}>${text}</p>
    ${detail && html`<p class="note detail">${escapeHiddenText(detail)}</p>`}
    ${isLast && action && html`<${Action} action=${action} model=${turn.model} retryAt=${turn.end?.retryAt ?? null} state=${state} actions=${actions} />`}
  </div>`;
}

/** What can follow if all options of a turn failed, of which each says why. */
function FailedOptions({ turn, state, actions }) {
  const options = optionItems(turn);
  if (!options.length || !options.every(({ id }) => turnById(state.peek(), id)?.status === "failed")) return null;
  const retry = () => attempt(() => actions.retry({ variants: options.length, when_busy: "reject" }));
  return html`<div class="ending failed"><p class="error">No option could be made.</p>
    <p class="buttons"><button type="button" onClick=${retry}>Try again</button></p></div>`;
}

/** Why an option failed, and what fits besides trying all of them again. @param {{turn: {status: string, end: any, model?: string}, hasOther?: boolean}} props */
export function Failure({ turn: { status, end, model = "" }, hasOther = false }) {
  if (status !== "failed") return null;
  const { text, detail, action } = failureOf(end);
  return html`<p class="error">${text} ${action === "keys" ? html`<${KeyLink} model=${model} />` : action === "model" && changeModel}</p>
    ${detail && html`<p class="note detail">${escapeHiddenText(detail)}</p>`}
    ${hasOther && html`<p class="note">An option cannot be tried again alone. Use another one, or edit the message and send it again.</p>`}`;
}

/** Where the key of a model's provider is typed. @param {{model: string}} props */
function KeyLink({ model }) {
  const { provider = "", available = false } = models.value.models.find(({ id }) => id === model) ?? {};
  return html`<a class="button" ...${keyLink(provider)}>${available ? "Change key" : "Add key"}</a>`;
}

const changeModel = html`<button type="button" onClick=${chooseModel}>Change model</button>`;

function endingOf(/** @type {Turn} */ turn) {
  const { status, end, startedAt, endedAt, round, maxRounds } = turn;
  const after = spanText(startedAt, endedAt, true) || spanText(startedAt, endedAt);
  switch (status) {
    case "done": return { text: end?.stopReason ? `The team stopped: ${escapeHidden(end.stopReason)}` : saysNothing(turn) ? "The agent ended without an answer." : "" };
    case "partial": return { text: maxRounds && round >= maxRounds ? "Incomplete: out of rounds." : "Incomplete: the answer was cut.", action: "continue" };
    case "stopped": return { text: `${end?.text === CLOSED ? "Stopped because the studio closed," : "Stopped by you"}${after && ` after ${after}`}.`, action: "continue" };
    case "interrupted": return { text: "The studio ended while this ran. What was done until then is kept.", action: "continue" };
    case "paused": return { text: "Paused: out of rounds." };
    default: return failureOf(end);
  }
}

/** Return whether a turn ended without a text, an output, an option and a child turn that could have one. @param {Turn} turn */
const saysNothing = ({ end, items }) => !end?.text.trim() && end?.output === null && !items.some((item) =>
  item.kind === "turn" || (item.kind === "text" && item.text.trim()));

/** Return in a sentence why a call of a model failed, "" if its code is not known. @param {string} code */
export const failureText = (code) => FAILURES.get(code)?.[0] ?? "";

function failureOf(end) {
  const known = FAILURES.get(end?.code ?? "");
  if (!known) return { text: escapeHiddenText(end?.text || "It failed."), action: end?.retryable ? "again" : "" };
  const [text, action] = known;
  if (action === "budget") {
    return { text: end.text ? `${escapeHiddenText(sentence(String(end.text)))}.` : text, detail: BUDGETS, action };
  }
  const detail = sentence(String(end.text ?? ""));
  return { text, detail: `${detail}.` === text ? "" : detail, action: action === "model" && end.retryable ? "again" : action };
}

function Action({ action, model, retryAt, state, actions }) {
  if (action === "continue") return html`<${Continue} state=${state} actions=${actions} />`;
  if (action === "again") return html`<${TryAgain} retryAt=${retryAt} actions=${actions} />`;
  if (action === "budget") return html`<${Continue} state=${state} actions=${actions}>${changeModel}<//>`;
  return html`<p class="buttons">
    ${action === "keys" ? html`<${KeyLink} model=${model} />` : action === "team" ? html`<a class="button" href="#/settings/teams">Show teams</a>` : changeModel}
    <button type="button" onClick=${() => attempt(actions.retry)}>Try again</button>
  </p>`;
}

/** A message to go on; with an option, if some of the turn are done and none was picked. */
function Continue({ state, actions, children = null }) {
  const done = openOptionTurns(state.value).filter(({ status }) => status === "done").map(({ agentId }) => optionOf(agentId));
  const goOn = (number) => attempt(async () => {
    await actions.pickOption(number);
    await actions.cont();
  });
  return html`<p class="buttons">${done.map((number) => html`<button key=${number} type="button" onClick=${() => goOn(number)}>Continue with option ${number}</button>`)}
    ${!done.length && html`<button type="button" onClick=${() => attempt(actions.cont)}>Continue</button>`}${children}</p>`;
}

/** Open the list of models below the message. */
function chooseModel() {
  const list = /** @type {HTMLSelectElement|null} */ (document.getElementById("session-model"));
  list?.focus();
  list?.showPicker?.();
}

/** Another try, from the time on at which it may succeed. */
function TryAgain({ retryAt, actions }) {
  const isEarly = Date.parse(retryAt ?? "") > Date.now();
  useRedrawAt(retryAt);
  return html`<p class="buttons">
    <button type="button" onClick=${() => attempt(actions.retry)}>Try again</button>
    ${isEarly && html`<span class="note">It may succeed in <${Seconds} until=${retryAt} />.</span>`}
  </p>`;
}

/** What can be done with an answer; one that was cut or is empty, or that of an agent below, is no place in the conversation. */
function EndActions({ turn, isHead, actions }) {
  const messageId = turn.end?.text ? turn.end.messageId : null;
  const text = messageId === null ? turn.items.findLast(({ kind }) => kind === "text")?.text ?? "" : turn.end?.text;
  if (messageId === null && !text.trim()) return null;
  const hasOptions = optionItems(turn).length > 0; // each has its own answer
  const copy = () => attempt(async () => {
    await copyText(text);
    actions.showStatus("Copied", SHORTLY);
  });
  return html`<p class="message-actions">
    ${!hasOptions && html`<button type="button" class="quiet" onClick=${copy}>Copy</button>`}
    ${messageId !== null && turn.parentTurnId === null && html`
      ${!isHead && html`<button type="button" class="quiet" onClick=${() => attempt(() => actions.rewind(messageId))}>Rewind to here</button>`}
      <button type="button" class="quiet" onClick=${() => attempt(() => actions.fork(messageId))}>Fork here</button>`}
  </p>`;
}
