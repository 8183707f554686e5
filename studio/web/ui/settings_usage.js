// What the model calls have used and cost: in total, by model, by session and by day.

import { html, useEffect, useSignal } from "../vendor/preact.js";
import { api } from "../net/api.js";
import { sessionPath } from "../state/route.js";
import { current, sessions, titleOf } from "../state/studio.js";
import { escapeHidden, escapeHiddenText } from "../text/hidden_characters.js";
import { costText } from "../text/model_words.js";
import { useAction } from "./use_action.js";
import { useLimit } from "./use_limit.js";

const ROWS = 50; // of a table, at first

export function UsageSettings() {
  const report = useSignal(/** @type {any} */ (null));
  const [run, error] = useAction();
  useEffect(() => { run(async () => { report.value = await api("api/usage"); }, { repeats: true }); }, []);
  if (!report.value) return error ?? html`<p class="note" role="status">Loading…</p>`;
  const { total, models, sessions: bySession, days } = report.value;
  return html`<h2>Usage and cost</h2>
    ${error}
    <p>${total.calls.toLocaleString("en")} model ${total.calls === 1 ? "call" : "calls"}, ${tokens(total.input_tokens)} tokens in, ${tokens(total.output_tokens)} out, ${total.cost_usd === null ? "cost not known" : cost(total)}.</p>
    ${total.calls_without_cost > 0 && total.cost_usd !== null && html`<p class="note">The cost of ${total.calls_without_cost.toLocaleString("en")} ${total.calls_without_cost === 1 ? "call" : "calls"} is not known.</p>`}
    <${Table} of="Model" rows=${models} nameOf=${({ model }) => escapeHidden(model)} />
    <${Table} of="Session" rows=${[...bySession].sort(mostUsedFirst)} nameOf=${({ session_id }) => nameOf(session_id)}
      linkOf=${({ session_id }) => sessionPath(session_id)} />
    <${Table} of="Day" rows=${[...days].reverse()} nameOf=${({ day }) => day} />`;
}

function nameOf(id) {
  const session = current.value?.id === id ? current.value : sessions.value.find((each) => each.id === id);
  return session ? escapeHiddenText(titleOf(session)) : `${id} (not in the list)`;
}

const mostUsedFirst = (one, other) =>
  Number(other.cost_usd ?? 0) - Number(one.cost_usd ?? 0) || other.input_tokens + other.output_tokens - one.input_tokens - one.output_tokens;

function Table({ of, rows, nameOf: name, linkOf = /** @type {any} */ (undefined) }) {
  const [shown, more] = useLimit(rows, ROWS, "rows");
  return html`<h3>By ${of.toLowerCase()}</h3><div class="scrolled"><table class=${`by-${of.toLowerCase()}`}>
    <thead><tr><th>${of}</th><th>Calls</th><th>Tokens in</th><th>Tokens out</th><th>Cost</th></tr></thead>
    <tbody>${shown.map((row) => html`<tr key=${name(row)}><th scope="row">${linkOf ? html`<a href=${linkOf(row)}>${name(row)}</a>` : name(row)}</th><td>${row.calls.toLocaleString("en")}</td>
      <td>${tokens(row.input_tokens)}</td><td>${tokens(row.output_tokens)}</td><td>${cost(row)}</td></tr>`)}</tbody>
  </table></div>
  ${more}`;
}

const tokens = (count) => count.toLocaleString("en");
const cost = ({ cost_usd: usd }) => usd === null ? "not known" : costText(usd);
