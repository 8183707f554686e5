// @ts-check
// What a model thinks and does, in short: its thoughts folded, and the reasoning steps of a turn.

import { html } from "../vendor/preact.js";
import { isLost } from "../net/lost_connection.js";
import { shownRange } from "../state/reasoning.js";
import { escapeHiddenText } from "../text/hidden_characters.js";
import { Seconds, spanText } from "./clock.js";
import { Fold } from "./fold.js";

/** A thought, folded, with the time that it took. */
export function Thinking({ id, item: { text, startedAt, endedAt } }) {
  const took = spanText(startedAt, endedAt, true);
  const summary = endedAt !== null ? took ? `Thought for ${took}` : "Thought"
    : html`Thinking, <${Seconds} since=${startedAt} tenths />`;
  return html`<${Fold} id=${id} className="thinking" summary=${summary}>
    ${() => html`<div class="text">${escapeHiddenText(text)}</div>`}
  <//>`;
}

/**
 * The reasoning steps of a turn: while it runs the last ones below a clock, from the call on that runs, between lines that
 * open to the others; then one line that opens to all.
 */
export function Steps({ turn }) {
  const { steps } = turn;
  if (turn.status === "running") {
    const [from, to] = shownRange(turn._reasoning);
    return html`<section class="reasoning" aria-label="Steps" aria-live="off">
      <p class="activity"><span>${isLost.value ? "The turn until the connection was lost" : "The turn so far"}</span><${Seconds} since=${turn.startedAt} /></p>
      <${OtherSteps} id=${`${turn.id}/earlier`} word="earlier" steps=${steps.slice(0, from)} first=${1} />
      <${List} steps=${steps.slice(from, to)} first=${from + 1} />
      <${OtherSteps} id=${`${turn.id}/later`} word="later" steps=${steps.slice(to)} first=${to + 1} />
    </section>`;
  }
  if (steps.length < 2) return null; // the first one only says that work goes on
  const took = spanText(turn.startedAt, turn.endedAt, true);
  const summary = `${steps.length} steps${took && `, ${took}`}`;
  return html`<${Fold} id=${`${turn.id}/steps`} className="reasoning" summary=${summary}>
    ${() => html`<${List} steps=${steps} first=${1} />`}
  <//>`;
}

const OtherSteps = ({ id, word, steps, first }) => steps.length > 0 && html`
  <${Fold} id=${id} className="other-steps" summary=${`${steps.length} ${word} ${steps.length === 1 ? "step" : "steps"}`}>
    ${() => html`<${List} steps=${steps} first=${first} />`}
  <//>`;

/** Steps, numbered from the `first` on. */
const List = ({ steps, first }) => html`<ol start=${first}>${steps.map((step, place) =>
  html`<li key=${place}>${escapeHiddenText(step)}</li>`)}</ol>`;
