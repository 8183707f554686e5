// Rules of the user: what a yes to a confirmation can store, and the list in which they are revoked.

import { make } from "./elements.js";
import { escapeHidden } from "./hidden_characters.js";

const MAX_LABEL_CHARS = 120; // of the kinds in the label of a button; the list above it has them whole
const SCOPES = { session: "this session", user: "all folders" };

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

/** Return what an answer has stored, "" if it counts once. */
export function rememberedText({ approved, remember, rules = [] }) {
  if (!approved || !rules.length) return "";
  const until = remember === "session" ? "for the session" : "always";
  return ` Remembered ${until}: ${rules.map(ruleText).join("; ")}`;
}

export class Rules {
  /** Show the rules that hold in the current session in `list` while `box` is open. */
  constructor({ box, list, error }, { api, sessionId }) {
    Object.assign(this, { box, list, error, api, sessionId });
    box.addEventListener("toggle", () => this.refresh());
  }

  /** Load and show the rules, if the list is open. */
  async refresh() {
    if (!this.box.open) return;
    await this.attempt(async () => {
      const id = this.sessionId();
      const { rules } = await this.api(id ? `api/permissions?session_id=${id}` : "api/permissions");
      if (id === this.sessionId()) this.list.replaceChildren(...rules.map((rule) => this.row(rule)));
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

  row(rule) {
    const row = make("li", "rule");
    row.append(make("code", "", ruleText(rule)));
    const where = SCOPES[rule.scope] ?? escapeHidden(rule.workspace ?? "");
    const since = rule.created_at ? `, since ${new Date(rule.created_at).toLocaleDateString()}` : "";
    row.append(make("p", "note", `in ${where}${since}`));
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
