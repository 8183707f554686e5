// @ts-check
// A question to the person, in the log: while it is open a line that leads to the dock, afterwards how it was answered.

import { html } from "../vendor/preact.js";
import { agentName } from "../text/agent_words.js";
import { isTeamTurn } from "../state/team_turns.js";
import { escapeHidden, escapeHiddenText } from "../text/hidden_characters.js";
import { ruleSentence } from "../text/rules.js";
import { Arguments } from "./arguments.js";
import { quoted } from "./request_in_line.js";
import { timeOfDay } from "./clock.js";
import { DiffView } from "./diff_view.js";
import { Fold } from "./fold.js";
import { plainText } from "./markdown_view.js";

const BY = new Map([
  ["policy", "by the mode or a rule"], ["timeout", "as nobody answered in time"], ["stop", "as the turn was stopped"],
  ["restart", "as the studio was restarted"],
]);

/** @param {{id: string, request?: import("../state/types.js").Request}} props */
export function RequestLine({ id, request }) {
  if (!request) return null;
  return request.kind === "confirm" ? html`<${ConfirmLine} id=${id} request=${request} />` : html`<${QuestionLine} id=${id} request=${request} />`;
}

function ConfirmLine({ id, request: { question, agentPath, answer, context, isAskedAnew } }) {
  const asking = agentPath.length > 1 ? `${agentName(agentPath.at(-1) ?? "")}: ` : "";
  if (!answer) return html`<p class="request open">${asking}${escapeHidden(question)} <span class="note">Waits for your answer below.</span></p>`;
  return html`<${Fold} id=${id} className="request" summary=${`${asking}${isAskedAnew ? anewText(answer) : decisionText(answer, asking !== "")}`}>${() => html`
    <p>${escapeHidden(question)}</p>
    <${Asked} context=${context} />
    ${answer.arguments && html`<p class="note">Allowed with other arguments:</p><${Arguments} args=${answer.arguments} />`}`}
  <//>`;
}

/** What was asked about: the command, the change or the arguments. */
function Asked({ context: { command, diff, diff_cut: isCut = false, unchanged_below: below = 0, arguments: args = {} } }) {
  if (command !== undefined) return html`<pre>${escapeHidden(command)}</pre>`;
  return diff ? html`<${DiffView} diff=${diff} below=${below} cut=${isCut} />` : html`<${Arguments} args=${args} />`;
}

/** A question of the agent, in quotation marks: it must not look like a line that the studio writes. */
function QuestionLine({ id, request }) {
  const { question, agentPath, answer: given } = request;
  if (isTeamTurn(request)) return given ? null : html`<p class="request open">The team waits for you. <span class="note">Answer below.</span></p>`;
  const isOfAgent = agentPath.length > 1;
  const agent = isOfAgent ? agentName(agentPath.at(-1) ?? "") : "The agent";
  if (!given) return html`<p class="request open">${agent} asks: ${quoted(plainText(question))} <span class="note">Waits for your answer below.</span></p>`;
  const { answer, by, at } = given;
  const whoAnswered = by === "user" ? "you answered" : by === "policy" ? "answered without you" : `answered ${who(by, isOfAgent)}`;
  const why = by === "user" ? "" : `, ${by === "policy" ? "as nobody could be asked" : who(by, isOfAgent)}`;
  const outcome = answer ? `${whoAnswered}: ${quoted(answer)}` : `no answer${why}`;
  const summary = [`${agent} asked: ${quoted(plainText(question))} – ${outcome}`, timeOfDay(at)].filter(Boolean).join(" · ");
  return html`<${Fold} id=${id} className="request" summary=${summary}>${() => html`
    <p class="note">${agent} asked:</p>
    <pre>${escapeHiddenText(question)}</pre>
    ${answer && html`<p class="note">The answer:</p>
      <pre>${escapeHiddenText(answer)}</pre>`}`}
  <//>`;
}

/** Return why another question about the call stands below. */
const anewText = ({ at }) => ["Asked anew, as the reasons for the question had changed", timeOfDay(at)].filter(Boolean).join(" · ");

/** Return the answer to a confirmation in a line: "Allowed once by you · 12:03". The mode and rules give their reasons for a no. */
function decisionText(answer, isOfAgent) {
  const { approved, arguments: changed, remember, reason, rules, by, at } = answer;
  const scope = !approved ? "" : changed ? " with changes" : remember === "session" ? " for this session" : remember === "always" ? " always in this folder" : by === "user" ? " once" : "";
  const rule = approved && rules.length ? `: ${rules.map(ruleSentence).join("; ")}` : "";
  const why = reason ? `: ${escapeHidden(reason)}` : "";
  const decided = by === "policy" && reason ? "" : ` ${who(by, isOfAgent)}`;
  return [`${approved ? "Allowed" : "Denied"}${scope}${decided}${rule}${why}`, timeOfDay(at)].filter(Boolean).join(" · ");
}

/** Say who decided, or why nobody did; a sub-agent can be stopped alone. @param {string} by @param {boolean} isOfAgent */
const who = (by, isOfAgent) => by === "stop" && isOfAgent ? "as its agent was stopped" : BY.get(by) ?? (by === "user" ? "by you" : escapeHidden(`by ${by}`));
