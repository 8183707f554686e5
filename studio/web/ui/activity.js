// @ts-check
// What happens in a session now, in a few words, and since when or until when: for its header and the end of its log.

import { html } from "../vendor/preact.js";
import { isOption } from "../state/files.js";
import { openRequests, workingAgents } from "../state/requests.js";
import { agentName } from "../text/agent_words.js";
import { escapeHidden } from "../text/hidden_characters.js";
import { doingText } from "../text/tool_words.js";
import { Seconds, useRedrawAt } from "./clock.js";

/** @typedef {import("../state/types.js").SessionState} SessionState */
/** @typedef {import("../state/types.js").Turn} Turn */
/** @typedef {import("../state/types.js").CallItem} CallItem */
/** @typedef {import("../state/types.js").Request} Request */
/** @typedef {{text: string, since?: string | null, until?: string | null}} Activity `text` has no hidden characters. */

/** What is waited for, by phase. */
const WAITS = new Map([
  ["model", "Waiting for the model"], ["first_chunk", "Waiting for the model"],
  ["heartbeat", "Waiting for more of the model's reply"], ["hard", "Waiting for the end of the model's reply"],
  ["compaction", "Summarising earlier messages"], ["tool", "Waiting for a tool"], ["confirm", "Waiting for your decision"],
]);

/** Return what happens in a session, null if nothing does. @returns {Activity | null} */
export function activityOfSession(/** @type {SessionState} */ state) {
  const [request] = openRequests(state); // also of sub-agents that work on after their turn
  if (request) return { text: requestText(request), since: request.askedAt };
  const turn = state.runningTurnId === null ? undefined : state.turns.findLast(({ id }) => id === state.runningTurnId);
  if (!turn) return workOfAgents(workingAgents(state));
  const doing = activityOf(turn, runningChildren(state, turn));
  return { ...doing, since: doing.since ?? (doing.until ? null : turn.startedAt) };
}

/** Return what sub-agents do after the turn that began them, since when the first of them works. @returns {Activity | null} */
function workOfAgents(/** @type {import("../state/types.js").Agent[]} */ agents) {
  if (!agents.length) return null;
  const since = agents.map(({ startedAt }) => startedAt).sort()[0];
  return { text: agents.length === 1 ? "1 agent works" : `${agents.length} agents work`, since };
}

/** Return the turns of participants and options that run within a turn. @returns {Turn[]} */
function runningChildren(/** @type {SessionState} */ { childTurns }, /** @type {Turn} */ { items }) {
  return items.flatMap((item) => item.kind === "turn" && childTurns[item.id]?.status === "running" ? [childTurns[item.id]] : []);
}

/**
 * Return what goes on in a turn that runs, in the last of `running` if these do within it.
 * @param {Turn} turn @param {Turn[]} running @returns {Activity}
 */
export function activityOf(turn, running) {
  if (turn.waiting) return waitingFor(turn.waiting, turn.model);
  const child = running.at(-1);
  if (!child) return workOf(turn);
  if (isOption(child.agentId) && running.length > 1) return { text: `Writing ${running.length} options`, since: child.startedAt };
  const doing = activityOf(child, []);
  return { ...doing, text: `${agentName(child.agentId)}: ${doing.text}` };
}

/** What a turn does, and until when, else since when if `isTimed`. @param {{turn: Turn, isTimed?: boolean}} props */
export function Doing({ turn, isTimed = true }) {
  const { text, since, until } = activityOf(turn, []);
  useRedrawAt(until ?? null);
  return html`${text}${until ? html` <${Seconds} until=${until} />` : isTimed && html`, <${Seconds} since=${since ?? turn.startedAt} />`}`;
}

const requestText = (/** @type {Request} */ { kind }) => kind === "question" ? "Waiting for your answer" : "Waiting for your decision";

/** @param {import("../state/types.js").Waiting} waiting @param {string} usual the model of the turn @returns {Activity} */
function waitingFor({ phase, since, action, retryAt, model, elapsedSeconds, limitSeconds }, usual) {
  if (action === "retrying" && retryAt) {
    const text = `Trying again${model && model !== usual ? ` with ${escapeHidden(model)}` : ""}`;
    return Date.parse(retryAt) > Date.now() ? { text: `${text} in`, until: retryAt } : { text, since: retryAt };
  }
  if (phase === "tool" && action === "waiting" && limitSeconds !== null && since) {
    const until = new Date(Date.parse(since) + 1000 * Math.max(elapsedSeconds, limitSeconds)).toISOString();
    return { text: "Not finished yet, asking again in", until };
  }
  return { text: WAITS.get(phase) ?? "Waiting", since };
}

/** Return what a turn does that waits for nothing. @returns {Activity} */
function workOf(/** @type {Turn} */ { items, speakers, state }) {
  const calls = /** @type {CallItem[]} */ (items.slice(-50).filter((item) => item.kind === "call" && item.phase !== "done"));
  const begun = calls.filter(({ phase }) => phase !== "queued");
  const call = begun.find(({ phase }) => phase === "written") ?? begun[0] ?? calls[0];
  if (call?.phase === "written") return { text: doingText(call) };
  if (begun.length > 1) return { text: `Running ${begun.length} tools`, since: call.startedAt };
  if (call) return { text: doingText(call), since: call.startedAt };
  const last = items.at(-1);
  if (last?.kind === "thinking" && last.endedAt === null) return { text: "Thinking", since: last.startedAt };
  if (last?.kind === "text" && !last.complete) return { text: "Writing" };
  if (speakers.length) return { text: `${speakers.map(escapeHidden).join(", ")} speaks` };
  return { text: state === "responding" ? "Writing" : state === "observing" ? "Reading the result" : "Working" };
}
