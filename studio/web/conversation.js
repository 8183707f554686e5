// A session's events as elements: one for each message, call, question and note.

import { describe } from "/assets/attachments.js";
import { Branches } from "/assets/branches.js";

/** Characters that hide or reorder others, written out: what is allowed must be what is read. */
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;
export const visible = (text) => text.replace(HIDDEN, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);

/** What a stall waits for. */
const MISSING = {
  first_chunk: "no word of the model",
  heartbeat: "nothing more of the model",
  hard: "no end of the answer",
  tool: "no result of the tool",
  confirm: "no answer to the question",
};

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

export class Conversation {
  constructor(log, { answer, useAgain, rewind, fork }) {
    this.log = log;
    this.answer = answer;
    this.useAgain = useAgain;
    this.rewind = rewind;
    this.fork = fork;
    this.clear();
  }

  clear() {
    this.running = false;
    this.state = "";
    this.parts = new Map();
    this.branches = new Branches();
    this.untold = null; // of a rewind whose event has not come yet
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
    this.branches.add(element);
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
    this.branches.begin(data.message_id);
    this.said(data.message_id, data.input, data.attachments);
    this.choices({ "Edit": () => this.edit(data.message_id, data.input) });
  }

  on_steered({ message_id, text, attachments }) {
    this.branches.begin(message_id);
    this.said(message_id, text, attachments);
  }

  on_round_start() { this.branches.speaking = false; }

  on_session_changed({ rewound_to }) {
    if (rewound_to === undefined) return;
    const last = this.branches.rewind(rewound_to);
    const note = this.note("The conversation was taken back to here. ");
    const undo = note.appendChild(make("button", "undo", "Undo"));
    undo.type = "button";
    undo.addEventListener("click", () => this.rewind(last));
    if (this.untold?.rewound_to === rewound_to) this.tellOfRewind(this.untold);
  }

  /** Say what became of files, behind the event of the rewind, which may come before its answer or after. */
  tellOfRewind({ rewound_to, lines }) {
    const come = this.branches.head === rewound_to;
    this.untold = come ? null : { rewound_to, lines };
    if (come) for (const line of lines) this.note(line);
  }

  async edit(message_id, text) {
    if (await this.rewind(this.branches.before(message_id))) this.useAgain(text);
  }

  /** A row of small buttons behind a message: label → what it does. */
  choices(actions) {
    const row = this.add(null, make("p", "choices"));
    for (const [label, act] of Object.entries(actions)) {
      const button = row.appendChild(make("button", "", label));
      button.type = "button";
      button.addEventListener("click", act);
    }
  }

  said(message_id, text, files = []) {
    const said = this.add(message_id, make("div", "text user", text));
    for (const file of files) said.append(make("p", "note", `Attached: ${visible(describe(file))}`));
    return said;
  }

  on_handed_back({ message_id, input, attachments }) {
    const said = this.said(message_id, input, attachments);
    said.classList.add("unsaid");
    const use = said.appendChild(make("p", "note", "Not sent. ")).appendChild(make("button", "", "Use it again"));
    use.type = "button";
    use.addEventListener("click", () => this.useAgain(input));
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
    if (!this.branches.speaking) this.branches.begin(`calls_${tool_call_id}`, true);
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
    this.branches.begin(`result_${tool_call_id}`);
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
    this.running = false;
    if (!text) return;
    const shown = this.textOf(message_id);
    if (shown.textContent !== text) shown.textContent = text;
    this.choices({ "Go back to here": () => this.rewind(message_id), "Fork here": () => this.fork(message_id) });
    if (reason === "partial") this.note("The answer is not complete.");
  }

  on_error({ text, code, fatal }) {
    this.note(code === "stopped" ? "Stopped." : `${text} (${code})`, code === "stopped" ? "note" : "error");
    if (fatal) this.running = false;
  }

  on_compaction({ compacted_count }) { this.note(`${compacted_count} older messages were summarised.`); }

  on_stall({ phase, action, elapsed_seconds, limit_seconds, reason, model }) {
    if (phase === "tool" && action === "waiting") {
      this.state = `not finished yet, asking again in ${Math.max(0, Math.round(limit_seconds - elapsed_seconds))} s`;
      return;
    }
    this.state = `${MISSING[phase] ?? phase} for ${Math.round(elapsed_seconds)} s`;
    if (action !== "retrying" || !reason) return;
    this.note(visible(`${reason}; asking ${model}.`));
    this.state = `asking ${visible(model)}`;
  }

  textOf(message_id) {
    this.branches.begin(message_id, true);
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
