// Rules of the person about calls: where each came from and holds, revoked here; and what would happen with a call.

import { html, useEffect, useMemo, useSignal } from "../vendor/preact.js";
import { api } from "../net/api.js";
import { current, titleOf } from "../state/studio.js";
import { escapeHidden, escapeHiddenText } from "../text/hidden_characters.js";
import { ruleSentence, ruleText } from "../text/rules.js";
import { toolLabel } from "../text/tool_words.js";
import { ArgumentFields, argumentFields } from "./argument_fields.js";
import { Reasons } from "./reasons.js";
import { useAction } from "./use_action.js";
import { useLimit } from "./use_limit.js";

const ROWS = 100; // at first

const SCOPES = { session: "this session", user: "all folders" };
const ORIGINS = { answer: "from an answer", command: "added by agx", http: "added by a program" };
const DECISIONS = { allow: "It is allowed to", ask: "You are asked before it may", deny: "It may not" };
const VERDICTS = {
  allow: "It would run without a question",
  ask: "You would be asked",
  deny: "It would be denied",
};

export function RuleSettings() {
  const rules = useSignal(/** @type {any} */ (null));
  const [run, error] = useAction();
  const id = current.value?.id;
  const load = async () => { rules.value = await api(id ? `api/permissions?session_id=${id}` : "api/permissions"); };
  useEffect(() => { run(load, { repeats: true }); }, [id]);
  const revoke = (rule) => run(async () => {
    await api(`api/permissions/${encodeURIComponent(rule.id)}`, { method: "DELETE" });
    await load();
  });
  const where = current.value ? `Rules that hold in “${escapeHiddenText(titleOf(current.value))}”` : "Rules";
  const [shown, more] = useLimit(rules.value?.rules ?? [], ROWS, "rules");
  return html`<h2>${where}</h2>
    ${error}
    <ul id="rule-list" class="rows" aria-label="Rules about calls">
      ${shown.map((rule) => html`<${Rule} key=${rule.id} rule=${rule} warnings=${rules.value.warnings[rule.id] ?? []} revoke=${revoke} />`)}
      ${rules.value?.rules.length === 0 && html`<li class="note">No rules hold here. “Allow for this session…” and “Always in this folder: …” make some.</li>`}
    </ul>
    ${more}
    <${Explain} id=${id} />`;
}

function Rule({ rule, warnings, revoke }) {
  const where = SCOPES[rule.scope] ?? escapeHidden(rule.workspace ?? "");
  const since = rule.created_at ? `, since ${new Date(rule.created_at).toLocaleDateString()}` : "";
  const origin = rule.scope === "session" ? ORIGINS.answer : ORIGINS[rule.origin] ?? "written in the file";
  return html`<li class="rule">
    <p>${DECISIONS[rule.decision]} ${ruleSentence(rule)}</p>
    <p class="note">in ${where}${since}, ${origin}: <code>${ruleText(rule)}</code></p>
    ${warnings.map((warning) => html`<p class="note">But ${escapeHidden(warning)}.</p>`)}
    <button type="button" class="revoke" aria-label=${`Revoke ${ruleText(rule)}`} onClick=${() => revoke(rule)}>Revoke</button>
  </li>`;
}

/** What would happen with a call, as it would be in the current session. */
function Explain({ id }) {
  const tools = useSignal(/** @type {any[]} */ ([]));
  const name = useSignal("bash_exec");
  const explained = useSignal(/** @type {any} */ (null));
  const [run, error] = useAction();
  useEffect(() => { run(async () => { tools.value = (await api("api/tools")).tools; }, { repeats: true }); }, []);
  const tool = tools.value.find((each) => each.name === name.value) ?? tools.value[0];
  const fields = useMemo(() => argumentFields(neededTexts(tool?.parameters), tool?.parameters ?? null), [tool]);
  if (!tool) return error;
  const explain = (event) => {
    event.preventDefault();
    explained.value = null;
    run(async () => {
      const body = { tool: tool.name, arguments: fields.read(), ...(id && { session_id: id }) };
      explained.value = await api("api/permissions/explain", { method: "POST", body });
    });
  };
  const choose = ({ target }) => {
    name.value = target.value;
    explained.value = null;
  };
  return html`<form id="explain" autocomplete="off" onSubmit=${explain}>
    <h2>What would happen if the agent wants to …</h2>
    <label>Call <select value=${tool.name} onChange=${choose}>
      ${tools.value.map((each) => html`<option key=${each.name} value=${each.name}>${toolLabel(each.name)}</option>`)}
    </select></label>
    <${ArgumentFields} key=${tool.name} fields=${fields} folded="Other arguments" />
    <button type="submit">Explain</button>
    ${error}
    <div id="explained" role="status">${explained.value && html`<${Verdict} verdict=${explained.value} />`}</div>
  </form>`;
}

/** Return the texts that a call needs, empty ones, by name. */
function neededTexts(parameters) {
  const { properties = {}, required = [] } = parameters ?? {};
  return Object.fromEntries(required.filter((name) => properties[name]?.type === "string" && !properties[name].enum).map((name) => [name, ""]));
}

const BY_RULE = /^The user's rule (allows|denies|asks)\b/;

/** What would happen; what decides it if no rule does, is among the reasons. */
function Verdict({ verdict: { decision, rule, reasons } }) {
  const rules = typeof rule === "string" ? "" : `, by your rule: ${[rule].flat().map(ruleSentence).join("; ")}`;
  return html`<strong>${VERDICTS[decision]}${rules}.</strong>
    <${Reasons} reasons=${rules ? reasons.filter((reason) => !BY_RULE.test(reason)) : reasons} />`;
}
