// A session's events as elements: one for each message, call, question and note.

/** Characters that hide or reorder others, written out: what is allowed must be what is read. */
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;
const visible = (text) => text.replace(HIDDEN, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

export class Conversation {
  constructor(log, { answer }) {
    this.log = log;
    this.answer = answer;
    this.clear();
  }

  clear() {
    this.running = false;
    this.state = "";
    this.parts = new Map();
    this.log.replaceChildren();
  }

  /** Show one envelope. Types that are not known here are left out. */
  take({ type, data, agent_id }) {
    const atEnd = this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < 80;
    this[`on_${type}`]?.(data, agent_id);
    if (atEnd) this.log.scrollTop = this.log.scrollHeight;
  }

  add(key, element) {
    if (key) this.parts.set(key, element);
    this.log.append(element);
    return element;
  }

  note(text, className = "note") {
    return this.add(null, make("p", className, text));
  }

  // --- events -------------------------------------------------------------------------------------------------------

  on_turn_started(data) {
    this.running = true;
    this.state = "starting";
    this.add(data.message_id, make("div", "text user", data.input));
  }

  on_state({ state }) { this.state = state === "done" ? "" : state; }

  on_token({ text, message_id, waiting, elapsed_seconds }) {
    if (waiting) { this.state = `waiting for the model (${Math.round(elapsed_seconds ?? 0)} s)`; return; }
    this.textOf(message_id).append(text);
  }

  on_thinking({ text, message_id }) {
    const key = `thinking ${message_id}`;
    if (!this.parts.has(key)) {
      const box = this.add(null, make("details", "thinking"));
      box.append(make("summary", "", "Thinking"));
      this.parts.set(key, box.appendChild(make("div", "text")));
    }
    this.parts.get(key).append(text);
  }

  on_tool_call({ tool_call_id, name, arguments: given }) {
    const card = this.add(`call ${tool_call_id}`, make("details", "card"));
    const summary = card.appendChild(make("summary", "", `${visible(name)} ${brief(given)}`));
    summary.append(make("span", "outcome", "…"));
    card.append(make("pre", "", visible(typeof given === "string" ? given : JSON.stringify(given, null, 2))));
  }

  on_tool_progress({ tool_call_id, output, elapsed_seconds }) {
    const card = this.parts.get(`call ${tool_call_id}`);
    if (!card) return;
    card.querySelector(".outcome").textContent = `${Math.round(elapsed_seconds)} s`;
    if (!output) return;
    card.open = true;
    (card.querySelector("pre.result") ?? card.appendChild(make("pre", "result"))).append(visible(output));
  }

  on_tool_result({ tool_call_id, result, is_error, outcome }) {
    const card = this.parts.get(`call ${tool_call_id}`);
    if (!card) return;
    const label = card.querySelector(".outcome");
    label.textContent = outcome ?? (is_error ? "error" : "ok");
    label.className = `outcome ${is_error ? "bad" : "ok"}`;
    const shown = card.querySelector("pre.result") ?? card.appendChild(make("pre", "result"));
    shown.textContent = visible(result);
  }

  on_confirm_required(question) {
    const { id, context } = question;
    const box = this.add(`ask ${id}`, make("section", "ask"));
    box.append(make("h2", "", visible(question.question)));
    const reasons = box.appendChild(make("ul"));
    for (const reason of context.reasons ?? []) reasons.append(make("li", "", visible(reason)));
    if (context.path) box.append(make("p", "note", `File: ${visible(context.path)}`));
    if (context.command) {
      box.append(make("p", "note", `Command, ${context.command.length} characters:`));
      box.append(make("pre", "command", visible(context.command)));
    }
    if (context.diff) box.append(diffOf(context.diff));
    if (!context.command && !context.diff) {
      box.append(make("pre", "", visible(JSON.stringify(context.arguments, null, 2))));
    }
    box.append(this.buttons(question, box));
    this.state = "waiting for you";
  }

  buttons(question, box) {
    const row = make("div", "buttons");
    const choice = (label, className, decision) => {
      const button = row.appendChild(make("button", className, label));
      button.type = "button";
      button.addEventListener("click", async () => {
        for (const other of row.children) other.disabled = true;
        try {
          await this.answer(question, decision);
        } catch (error) {
          box.append(make("p", "error", error.message));
          if (error.status !== 410) for (const other of row.children) other.disabled = false;
        }
      });
    };
    choice("Allow", "main allow", { approved: true });
    choice("Allow this for the session", "allow-session", { approved: true, remember: "session" });
    choice("Deny", "deny", { approved: false });
    return row;
  }

  on_confirm_response({ id, approved, by }) {
    const box = this.parts.get(`ask ${id}`);
    box?.querySelector(".buttons")?.replaceChildren(
      make("p", "note", `${approved ? "Allowed" : "Denied"}${by === "user" ? "" : ` (${by})`}.`));
  }

  on_final({ text, message_id, reason }) {
    const shown = this.textOf(message_id);
    if (shown.textContent !== text) shown.textContent = text;
    if (reason === "partial") this.note("The answer is not complete.");
    this.running = false;
  }

  on_error({ text, code, fatal }) {
    this.note(code === "stopped" ? "Stopped." : `${text} (${code})`, code === "stopped" ? "note" : "error");
    if (fatal) this.running = false;
  }

  on_compaction({ compacted_count }) { this.note(`${compacted_count} older messages were summarised.`); }

  on_stall({ phase, action, elapsed_seconds }) {
    this.state = `${phase}: ${action} after ${Math.round(elapsed_seconds)} s`;
  }

  textOf(message_id) {
    return this.parts.get(message_id) ?? this.add(message_id, make("div", "text assistant"));
  }
}

function brief(given) {
  const text = typeof given === "string" ? given : Object.values(given).map(String).join(" ");
  return visible(text.replace(/\s+/g, " ").slice(0, 80));
}

function diffOf(diff) {
  const shown = make("pre", "diff");
  for (const line of diff.split("\n")) {
    const kind = /^\+(?!\+\+)/.test(line) ? "add" : /^-(?!--)/.test(line) ? "cut" : "";
    shown.append(make("span", kind, `${visible(line)}\n`));
  }
  return shown;
}
