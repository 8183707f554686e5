// Rules of the user: what a yes to a confirmation can store, and the list in which they are revoked and explained.

import { make } from "./elements.js";
import { escapeHidden } from "./hidden_characters.js";

const MAX_LABEL_CHARS = 120; // of the kinds in the label of a button; the list above it has them whole
const SCOPES = { session: "this session", user: "all folders" };
const ORIGINS = { answer: "from an answer", command: "added by agx", http: "added by a program" };
const VERDICTS = {
  allow: "It would run without a question",
  ask: "You would be asked",
  deny: "It would be denied",
};
const MAX_ROWS = 12; // of a field for an argument

/** Return a rule in words, as the command line takes it. */
export function ruleText(rule) {
  const parts = [rule.decision, rule.tool];
  for (const name of ["path", "command", "host", "server"]) if (rule[name] !== undefined) parts.push(`${name}=${rule[name]}`);
  if (rule.network) parts.push(`network=${rule.network}`);
  if (rule.arguments) parts.push("with exactly these arguments");
  else if (rule.exact) parts.push("exactly");
  return escapeHidden(parts.join(" "));
}

/**
 * Return what a yes to a confirmation can store, null where it counts once: `box` shows the kinds, and has a choice of
 * exactly this call; `label(text)` is that of a button, `fields()` are those of the answer.
 */
export function rememberChoices({ rules = [], kinds = [], exact_rule }) {
  if (!rules.length) return null;
  const box = make("div", "remember");
  box.append(make("p", "note", "Remembered for the session or this folder, it allows:"));
  const list = box.appendChild(make("ul", "kinds"));
  for (const [index, rule] of rules.entries()) list.append(make("li", "", escapeHidden(kinds[index] ?? ruleText(rule))));
  const exactly = exact_rule && !exact_rule.exact ? "this file, whatever is written to it" : "exactly this call";
  const exact = make("input");
  exact.type = "checkbox";
  const hasChoice = exact_rule && !(rules.length === 1 && JSON.stringify(rules[0]) === JSON.stringify(exact_rule));
  if (hasChoice) {
    const choice = box.appendChild(make("label", "exact"));
    choice.append(exact, ` only ${exactly}`);
  }
  const buttons = [];
  const kindsText = () => {
    const text = exact.checked ? exactly : escapeHidden(kinds.join("; "));
    return text.length > MAX_LABEL_CHARS ? `${text.slice(0, MAX_LABEL_CHARS)}…` : text;
  };
  exact.addEventListener("change", () => {
    for (const [button, text] of buttons) button.textContent = `${text}: ${kindsText()}`;
  });
  return {
    box,
    label: (text) => `${text}: ${kindsText()}`,
    follow: (button, text) => buttons.push([button, text]),
    fields: () => (exact.checked ? { rule: exact_rule } : {}),
  };
}

/**
 * Return fields in which the arguments of a call are edited, each labelled by its name: `box` has them, and `read()`
 * returns the arguments. Texts are edited as they are, other values as JSON, for which `read` may throw.
 */
export function argumentFields(args) {
  const box = make("div", "fields");
  const readers = Object.entries(args).map(([name, value]) => {
    const isText = typeof value === "string";
    const label = box.appendChild(make("label", "", escapeHidden(isText ? name : `${name} (JSON)`)));
    const field = label.appendChild(make("textarea"));
    field.value = isText ? value : JSON.stringify(value, null, 2);
    field.rows = Math.min(MAX_ROWS, field.value.split("\n").length + 1);
    field.spellcheck = false;
    const shown = field.value; // a text field changes line ends
    const read = () => (isText ? field.value : parseJson(field.value, name));
    return () => [name, field.value === shown ? value : read()];
  });
  return { box, read: () => Object.fromEntries(readers.map((read) => read())) };
}

function parseJson(text, name) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`${name} is no JSON: ${error.message}`);
  }
}

/** Return what an answer has stored, "" if it counts once. */
export function rememberedText({ approved, remember, rules = [] }) {
  if (!approved || !rules.length) return "";
  const until = remember === "session" ? "for the session" : "always";
  return ` Remembered ${until}: ${rules.map(ruleText).join("; ")}`;
}

export class Rules {
  /**
   * Show the rules that hold in the current session in `list` while `box` is open; `form` asks for the verdict about a
   * call, which `explained` shows.
   */
  constructor({ box, list, form, explained, error }, { api, json, sessionId }) {
    Object.assign(this, { box, list, form, explained, error, api, json, sessionId });
    box.addEventListener("toggle", () => { this.refresh(); this.loadTools(); });
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.attempt(() => this.explain());
    });
  }

  /** Suggest the names of the tools, once the list is open. */
  async loadTools() {
    if (!this.box.open) return;
    await this.attempt(async () => {
      const { tools } = await this.api("api/tools");
      const options = tools.map(({ name }) => Object.assign(make("option"), { value: name }));
      this.form.querySelector("datalist").replaceChildren(...options);
    });
  }

  /** Show the verdict about the call in the form, as it would be in the current session. */
  async explain() {
    this.explained.hidden = true;
    const tool = this.form.elements.tool.value.trim(), text = this.form.elements.arguments.value;
    const isCommand = tool === "bash_exec" && !text.trimStart().startsWith("{");
    const body = { tool, arguments: isCommand ? { command: text } : parseJson(text.trim() || "{}", "The text") };
    if (this.sessionId()) body.session_id = this.sessionId();
    const { decision, rule, reasons } = await this.api("api/permissions/explain", this.json("POST", body));
    const decider = typeof rule === "string" ? rule : [rule].flat().map(ruleText).join("; ");
    const list = make("ul");
    for (const reason of reasons) list.append(make("li", "", escapeHidden(reason)));
    this.explained.replaceChildren(make("strong", "", `${VERDICTS[decision]} (rule: ${decider}).`), list);
    this.explained.hidden = false;
  }

  /** Load and show the rules, if the list is open. */
  async refresh() {
    if (!this.box.open) return;
    await this.attempt(async () => {
      const id = this.sessionId();
      const { rules, warnings } = await this.api(id ? `api/permissions?session_id=${id}` : "api/permissions");
      if (id === this.sessionId()) this.list.replaceChildren(...rules.map((rule) => this.row(rule, warnings[rule.id])));
      if (!rules.length) this.list.append(make("li", "note", "No rules hold in this session."));
    });
  }

  /** Run an action; show the sentence of its error. */
  async attempt(action) {
    this.error.hidden = true;
    try {
      await action();
    } catch (error) {
      this.error.textContent = error.message;
      this.error.hidden = false;
    }
  }

  row(rule, warnings = []) {
    const row = make("li", "rule");
    row.append(make("code", "", ruleText(rule)));
    const where = SCOPES[rule.scope] ?? escapeHidden(rule.workspace ?? "");
    const since = rule.created_at ? `, since ${new Date(rule.created_at).toLocaleDateString()}` : "";
    const origin = rule.scope === "session" ? ORIGINS.answer : ORIGINS[rule.origin] ?? "written in the file";
    row.append(make("p", "note", `in ${where}${since}, ${origin}`));
    for (const warning of warnings) row.append(make("p", "note", `But ${escapeHidden(warning)}.`));
    const revoke = row.appendChild(make("button", "revoke", "Revoke"));
    revoke.type = "button";
    revoke.addEventListener("click", () => this.attempt(async () => {
      revoke.disabled = true;
      try {
        await this.api(`api/permissions/${encodeURIComponent(rule.id)}`, { method: "DELETE" });
      } finally {
        revoke.disabled = false;
      }
      await this.refresh();
    }));
    return row;
  }
}
