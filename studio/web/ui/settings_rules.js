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
/** What calls of a tool can do at most. */
const RISKS = { read: "Read", write: "Change files or other state", execute: "Run any code" };
const VERDICTS = {
  allow: "It would run without a question",
  ask: "You would be asked",
  deny: "It would be denied",
};

const HERE = "here", ALL = "all"; // instead of a folder: the session that is shown, and all folders

export function RuleSettings() {
  const found = useSignal(/** @type {any} */ (null));
  const [run, error] = useAction();
  const session = current.value, id = session?.id;
  const chosen = useSignal(HERE);
  const place = chosen.value === HERE && !id ? ALL : chosen.value;
  const load = async () => {
    const [all, here] = await Promise.all([api("api/permissions"), id && api(`api/permissions?session_id=${id}`)]);
    found.value = { all, here, tools: found.value?.tools ?? (await api("api/tools")).tools };
  };
  useEffect(() => { run(load, { repeats: true }); }, [id]);
  const revoke = (rule) => run(async () => {
    await api(`api/permissions/${encodeURIComponent(rule.id)}`, { method: "DELETE" });
    await load();
  });
  const { all, here, tools } = found.value ?? {};
  const held = useMemo(() => heldIn(place, all, here), [place, found.value]);
  const [shown, more] = useLimit(held?.rules ?? [], ROWS, "rules");
  const ofFolders = (all?.rules ?? []).flatMap(({ workspace }) => workspace ?? []);
  const folders = [...new Set(place === HERE || place === ALL ? ofFolders : [...ofFolders, place])].sort(); // also without a rule by now
  return html`<h2>Rules</h2>
    <label>Show <select id="rule-place" value=${place} onChange=${({ target }) => { chosen.value = target.value; }}>
      ${session && html`<option value=${HERE}>rules that hold in “${escapeHiddenText(titleOf(session))}”</option>`}
      <option value=${ALL}>all rules, of each folder</option>
      ${folders.map((path) => html`<option key=${path} value=${path}>rules that hold in ${escapeHidden(path)}</option>`)}
    </select></label>
    ${error}
    <ul id="rule-list" class="rows" aria-label="Rules about calls">
      ${shown.map((rule) => html`<${Rule} key=${rule.id} rule=${rule} warnings=${held.warnings[rule.id] ?? []} revoke=${revoke} />`)}
      ${held?.rules.length === 0 && html`<li class="note">${place === ALL ? "There are no rules." : "No rules hold here."} “Allow for this session…” and “Always in this folder: …” make some.</li>`}
    </ul>
    ${more}
    ${tools && html`<${Explain} key=${place} tools=${tools} where=${whereOf(place, id)} />`}`;
}

/** Return the rules of a place with the warnings about them; undefined if they are not loaded. @param {string} place */
function heldIn(place, all, here) {
  if (place === HERE || place === ALL) return place === HERE ? here : all;
  return all && { ...all, rules: all.rules.filter(({ workspace }) => workspace === undefined || workspace === place) };
}

/** Return the fields of a request about a place: without one it is the usual folder. @param {string} place @param {string | undefined} id */
function whereOf(place, id) {
  if (place === HERE) return { session_id: id };
  return place === ALL ? {} : { workspace: place };
}

function Rule({ rule, warnings, revoke }) {
  const where = SCOPES[rule.scope] ?? escapeHidden(rule.workspace ?? "");
  const since = rule.created_at ? `, since ${new Date(rule.created_at).toLocaleDateString()}` : "";
  const origin = rule.scope === "session" ? ORIGINS.answer : ORIGINS[rule.origin] ?? "written in the file";
  const said = `${DECISIONS[rule.decision]} ${ruleSentence(rule)}`;
  return html`<li class="rule">
    <p>${said}</p>
    <p class="note">in ${where}${since}, ${origin}</p>
    <details class="note"><summary>As on the command line</summary><code>${ruleText(rule)}</code></details>
    ${warnings.map((warning) => html`<p class="note">But ${escapeHidden(warning)}.</p>`)}
    <button type="button" class="revoke" aria-label=${`Revoke: ${said}`} onClick=${() => revoke(rule)}>Revoke</button>
  </li>`;
}

/** What would happen with a call in a place. */
function Explain({ tools, where }) {
  const name = useSignal("bash_exec");
  const explained = useSignal(/** @type {any} */ (null));
  const [run, error] = useAction();
  const tool = tools.find((each) => each.name === name.value) ?? tools[0];
  const fields = useMemo(() => argumentFields(neededTexts(tool?.parameters), tool?.parameters ?? null), [tool]);
  if (!tool) return null;
  const explain = (event) => {
    event.preventDefault();
    explained.value = null;
    run(async () => {
      const body = { tool: tool.name, arguments: fields.read(), ...where };
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
      ${Object.entries(RISKS).map(([risk, label]) => [label, tools.filter((each) => each.risk === risk)]).map(([label, some]) => some.length > 0 && html`<optgroup key=${label} label=${label}>
        ${some.map((each) => html`<option key=${each.name} value=${each.name}>${toolLabel(each)}</option>`)}
      </optgroup>`)}
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
