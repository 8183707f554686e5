// The conversation on the page: one element for each message, tool call, confirmation and note of a session's events.

import { fileLabel } from "./attachments.js";
import { Branches } from "./branches.js";
import { showCitations } from "./citations.js";
import { make } from "./elements.js";
import { escapeHidden, escapeHiddenText } from "./hidden_characters.js";
import { argumentFields, rememberChoices, rememberedText } from "./permissions.js";
import { ReasoningPanel } from "./reasoning_panel.js";

const MAX_REASON_CHARS = 2000; // of a denial; the server accepts twice as many
const FALLBACK_CHARS = 200; // shown of a reply that was to name a speaker

/** Status texts of stalls, by phase; " for N s" is appended. */
const STALL_TEXTS = {
  first_chunk: "no output from the model",
  heartbeat: "no further output from the model",
  hard: "no complete reply",
  tool: "no result from the tool",
  confirm: "no answer to the question",
};

export class Conversation {
  /** Show a session in `log`; the other arguments are the actions of its buttons. */
  constructor(log, { answerRequest, insertDraft, rewind, fork, readNote }) {
    this.log = log;
    this.answerRequest = answerRequest;
    this.insertDraft = insertDraft;
    this.rewind = rewind;
    this.fork = fork;
    this.readNote = readNote;
    this.clear();
  }

  clear() {
    this.running = false;
    this.state = "";
    this.elements = new Map();
    this.turnsBelow = new Set();
    this.citations = new Map(); // by message_id, those of the answer, which arrive before it is complete
    this.speech = null; // the text element of the last speech of this turn's team, which the answer repeats
    this.isTalk = false; // whether the team has chosen a speaker; what it says before is the task
    this.branches = new Branches();
    this.reasoning = null; // the steps of the running turn: at the end of the log, and after it at the turn's
    this.pendingRewind = null; // {rewound_to, lines} of a rewind whose event is still to arrive
    this.log.replaceChildren();
  }

  /** Show one event; unknown types are ignored. */
  handle(event) {
    const { type, data, agent_id, turn_id } = event;
    if (data.parent_turn_id) this.turnsBelow.add(turn_id);
    if (this.turnsBelow.has(turn_id) && !/^(confirm|question)_/.test(type)) return; // other agents' work
    this.keepEnd(() => {
      this[`on_${type}`]?.(data, agent_id);
      this.showReasoning(event);
    });
  }

  /** Change the log; if its end was shown, show the new one. */
  keepEnd(change) {
    const isAtEnd = this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < 80;
    change();
    if (isAtEnd) this.log.scrollTop = this.log.scrollHeight;
  }

  /** Begin the steps of a turn, or show those after one more event of it. */
  showReasoning(event) {
    if (event.type === "turn_started") {
      const panel = new ReasoningPanel(event, (draw) => this.keepEnd(draw));
      this.add(null, panel.box);
      this.reasoning = panel;
    } else this.reasoning?.handle(event);
    if (this.reasoning?.reasoning.done) this.reasoning = null;
  }

  add(key, element) {
    if (key) this.elements.set(key, element);
    this.branches.addElement(element);
    this.log.insertBefore(element, this.reasoning?.box ?? null);
    return element;
  }

  addNote(text, className = "note") {
    return this.add(null, make("p", className, text));
  }

  // --- events -------------------------------------------------------------------------------------------------------

  on_turn_started(data) {
    this.running = true;
    this.state = "starting";
    this.speech = null;
    this.isTalk = false;
    this.branches.append(data.message_id);
    this.addUserMessage(data.message_id, data.input, data.attachments);
    const row = this.addButtons({ "Edit": () => this.edit(data.message_id, data.input) });
    if (data.mode) row.append(make("span", "mode", modeText(data)));
  }

  on_steered({ message_id, text, attachments }) {
    this.isTalk = false;
    this.branches.append(message_id);
    this.addUserMessage(message_id, text, attachments);
  }

  on_round_start() { this.branches.acceptsCalls = false; }

  on_session_changed({ rewound_to, picked }) {
    if (picked) this.addNote(`Option ${picked} goes on.`);
    if (rewound_to === undefined) return;
    const oldLastId = this.branches.rewind(rewound_to);
    const note = this.addNote("The conversation was rewound to here. ");
    const undo = note.appendChild(make("button", "undo", "Undo"));
    undo.type = "button";
    undo.addEventListener("click", () => this.rewind(oldLastId));
    if (this.pendingRewind?.rewound_to === rewound_to) this.addRewindNotes(this.pendingRewind);
  }

  /**
   * Add notes on restored files, always after the note of the rewind itself.
   * If the response to the request arrives before the event of the rewind, the notes are stored until the event.
   */
  addRewindNotes({ rewound_to, lines }) {
    const eventArrived = this.branches.lastId === rewound_to;
    this.pendingRewind = eventArrived ? null : { rewound_to, lines };
    if (eventArrived) for (const line of lines) this.addNote(line);
  }

  async edit(message_id, text) {
    if (await this.rewind(this.branches.previousId(message_id))) this.insertDraft(text);
  }

  /** Add a row of small buttons after a message; `actions` maps labels to click handlers. */
  addButtons(actions) {
    const row = this.add(null, make("p", "message-actions"));
    for (const [label, action] of Object.entries(actions)) {
      const button = row.appendChild(make("button", "", label));
      button.type = "button";
      button.addEventListener("click", action);
    }
    return row;
  }

  addUserMessage(message_id, text, files = []) {
    const shown = text || files.length ? text : "(without a message)"; // a team also runs without one
    const message = this.add(message_id, make("div", "text user", shown));
    for (const file of files) message.append(make("p", "note", `Attached: ${escapeHidden(fileLabel(file))}`));
    return message;
  }

  on_handed_back({ message_id, input, attachments }) {
    const message = this.addUserMessage(message_id, input, attachments);
    message.classList.add("unsent");
    const edit = message.appendChild(make("p", "note", "Not sent. ")).appendChild(make("button", "", "Edit"));
    edit.type = "button";
    edit.addEventListener("click", () => this.insertDraft(input));
  }

  on_state({ state }) { this.state = state === "done" ? "" : state === "compacting" ? "summarising earlier messages" : state; }

  on_token({ text, message_id, waiting, elapsed_seconds }) {
    if (waiting) { this.state = `waiting for the model (${Math.round(elapsed_seconds ?? 0)} s)`; return; }
    const element = this.assistantText(message_id);
    if (element !== this.speech) element.append(escapeHiddenText(text));
  }

  on_speaker_selected({ speakers, fallback }) {
    this.isTalk = true;
    const names = escapeHidden(speakers.join(", "));
    this.state = `${names} speaks`;
    if (fallback === undefined) return;
    const said = fallback.length > FALLBACK_CHARS ? `${fallback.slice(0, FALLBACK_CHARS)}…` : fallback;
    this.addNote(`The model named no one speaker, so ${names} speaks. It said: ${escapeHidden(said)}`);
  }

  on_team_message({ message }) {
    if (!this.isTalk || message.type.endsWith("Event")) return; // a task, or the work on a speech
    this.branches.append(message.id);
    this.addNote(escapeHidden(message.source), "note speaker");
    let text = speechText(message);
    if (message.type === "HandoffMessage" && message.metadata?.reason) text += `\nReason: ${message.metadata.reason}`;
    this.speech = this.add(message.id, make("div", "text assistant", text));
  }

  on_thinking({ text, message_id }) {
    const key = `thinking ${message_id}`;
    if (!this.elements.has(key)) {
      const box = this.add(null, make("details", "thinking"));
      box.append(make("summary", "", "Thinking"));
      this.elements.set(key, box.appendChild(make("div", "text")));
    }
    this.elements.get(key).append(text);
  }

  on_tool_call({ tool_call_id, name, arguments: args }) {
    if (!this.branches.acceptsCalls) this.branches.append(`calls_${tool_call_id}`, true);
    const card = this.add(`call ${tool_call_id}`, make("details", "card"));
    const summary = card.appendChild(make("summary", "", `${escapeHidden(name)} ${shortArguments(args)}`));
    summary.append(make("span", "outcome", "…"));
    card.append(make("pre", "", escapeHidden(typeof args === "string" ? args : JSON.stringify(args, null, 2))));
  }

  on_tool_progress({ tool_call_id, output, elapsed_seconds }) {
    const card = this.elements.get(`call ${tool_call_id}`);
    if (!card) return;
    card.querySelector(".outcome").textContent = `${Math.round(elapsed_seconds)} s`;
    if (!output) return;
    card.open = true;
    (card.querySelector("pre.result") ?? card.appendChild(make("pre", "result"))).append(escapeHidden(output));
  }

  on_tool_result({ tool_call_id, result, is_error, outcome, attachments = [] }) {
    this.branches.append(`result_${tool_call_id}`);
    const card = this.elements.get(`call ${tool_call_id}`);
    if (!card) return;
    const label = card.querySelector(".outcome");
    label.textContent = outcome ?? (is_error ? "error" : "ok");
    label.className = `outcome ${is_error ? "bad" : "ok"}`;
    if (is_error) card.open = true;
    const output = card.querySelector("pre.result") ?? card.appendChild(make("pre", "result"));
    output.textContent = escapeHidden(result);
    for (const file of attachments) card.append(make("p", "note", `Attached: ${escapeHidden(fileLabel(file))}`));
  }

  on_confirm_required(request) {
    const { id, context } = request;
    const box = this.addRequest(id, request.agent_path);
    box.append(make("h2", "", escapeHidden(request.question)));
    const reasons = box.appendChild(make("ul"));
    for (const reason of context.reasons ?? []) reasons.append(make("li", "", escapeHidden(reason)));
    if (context.path) box.append(make("p", "note", `File: ${escapeHidden(context.path)}`));
    if (context.command) {
      box.append(make("p", "note", `Command, ${context.command.length} characters:`));
      box.append(make("pre", "command", escapeHidden(context.command)));
    }
    if (context.diff) box.append(diffElement(context.diff));
    if (!context.command && !context.diff) {
      box.append(make("pre", "", escapeHidden(JSON.stringify(context.arguments, null, 2))));
    }
    if (context.sandboxed !== undefined) {
      const sandbox = context.sandboxed ? `Runs in a sandbox (${escapeHidden(context.sandboxed)}).` : "Runs outside of a sandbox.";
      box.append(make("p", "note", sandbox));
    }
    box.append(this.decisionButtons(request, box));
    this.state = "waiting for your decision";
  }

  decisionButtons(request, box) {
    const row = make("div", "buttons");
    const { id, digest } = request;
    const addButton = (label, className, decide) =>
      addAnswerButton(row, box, label, className, () => this.answerRequest("confirms", id, { ...decide(), digest }));
    addButton("Allow once", "main allow", () => ({ approved: true }));
    const choices = rememberChoices(request.context);
    if (choices) {
      box.append(choices.box);
      for (const [text, remember] of [["Allow for this session", "session"], ["Always in this folder", "always"]]) {
        const decide = () => ({ approved: true, remember, ...choices.fields() });
        choices.follow(addButton(choices.label(text), `allow-${remember}`, decide), text);
      }
    }
    const edit = row.appendChild(make("button", "edit-arguments", "Edit…"));
    edit.type = "button";
    edit.setAttribute("aria-expanded", "false");
    edit.addEventListener("click", () => toggleEdit(edit, box, row, request, this.answerRequest));
    const deny = addButton("Deny", "deny", () => ({ approved: false, reason: reason.value.trim() || null }));
    const reason = row.appendChild(make("input", "reason"));
    reason.placeholder = "Reason for the model, if you deny it";
    reason.setAttribute("aria-label", reason.placeholder);
    reason.maxLength = MAX_REASON_CHARS;
    reason.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.isComposing) deny.click();
    });
    return row;
  }

  on_confirm_response({ id, approved, by, reason, remember, rules }) {
    const answer = `${approved ? "Allowed" : "Denied"}${by === "user" ? "" : ` (${by})`}.`;
    const decision = `${answer}${rememberedText({ approved, remember, rules })}`;
    for (const part of this.elements.get(`ask ${id}`)?.querySelectorAll(".remember, .edit") ?? []) part.remove();
    this.closeRequest(id, reason ? `${decision} Reason: ${escapeHidden(reason)}` : decision);
  }

  on_question_asked({ id, text, options, agent_path }) {
    const box = this.addRequest(id, agent_path);
    box.append(make("p", "text", escapeHidden(text)));
    const row = box.appendChild(make("div", "buttons"));
    const addButton = (label, className, text) =>
      addAnswerButton(row, box, label, className, () => this.answerRequest("questions", id, { answer: text() }));
    for (const option of options ?? []) addButton(escapeHidden(option), "option", () => option);
    const answer = row.appendChild(make("textarea", "answer"));
    answer.rows = 1;
    answer.placeholder = options?.length ? "Another answer" : "Your answer";
    answer.setAttribute("aria-label", answer.placeholder);
    const send = addButton("Answer", "main", () => answer.value.trim());
    const enable = () => { send.disabled = !answer.value.trim(); };
    enable();
    answer.addEventListener("input", enable);
    answer.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      send.click();
    });
    this.state = "waiting for your answer";
  }

  on_question_answered({ id, answer, by }) {
    const text = answer ? `Answer: ${escapeHidden(answer)}` : `No answer${by === "user" ? "" : ` (${by})`}.`;
    this.closeRequest(id, text);
  }

  /** Add the box of a request to the user, and say which agent asks, unless it is the main one. */
  addRequest(id, agent_path) {
    const box = this.add(`ask ${id}`, make("section", "ask"));
    const [agent, ...above] = (agent_path ?? []).slice(1).reverse();
    if (agent) box.append(make("p", "note", escapeHidden([`${agent} asks`, ...above].join(", below "))));
    return box;
  }

  /** Show the answer to a request in place of its buttons. */
  closeRequest(id, text) {
    this.elements.get(`ask ${id}`)?.querySelector(".buttons")?.replaceChildren(make("p", "note", text));
  }

  on_citation(data) {
    if (!this.citations.has(data.message_id)) this.citations.set(data.message_id, []);
    this.citations.get(data.message_id).push(data);
  }

  on_final({ text, message_id, reason, stop_reason }) {
    this.running = false;
    if (text) this.showAnswer(text, message_id, reason);
    if (stop_reason) this.addNote(`The team stopped: ${escapeHidden(stop_reason)}`);
  }

  showAnswer(text, message_id, reason) {
    const element = this.assistantText(message_id);
    const shown = escapeHiddenText(text);
    if (element.textContent !== shown) element.textContent = shown;
    const citations = this.citations.get(message_id);
    if (citations) showCitations(element, citations, this.readNote);
    this.addButtons({ "Rewind to here": () => this.rewind(message_id), "Fork here": () => this.fork(message_id) });
    if (reason === "partial") this.addNote("This answer is incomplete.");
  }

  on_error({ text, code, fatal }) {
    this.addNote(code === "stopped" ? "Stopped." : `${text} (${code})`, code === "stopped" ? "note" : "error");
    if (fatal) this.running = false;
  }

  on_handoff({ from_agent, to_agent, reason }) {
    this.addNote(`${from_agent} hands over to ${to_agent}${reason ? `: ${escapeHidden(reason)}` : "."}`);
  }

  on_compaction({ compacted_count }) { this.addNote(`${compacted_count} older messages were summarised.`); }

  on_stall({ phase, action, elapsed_seconds, limit_seconds, reason, model }) {
    if (phase === "tool" && action === "waiting") {
      this.state = `not finished yet, asking again in ${Math.max(0, Math.round(limit_seconds - elapsed_seconds))} s`;
      return;
    }
    this.state = `${STALL_TEXTS[phase] ?? phase} for ${Math.round(elapsed_seconds)} s`;
    if (action !== "retrying" || !reason) return;
    this.addNote(escapeHidden(`${reason}; asking ${model}.`));
    this.state = `asking ${escapeHidden(model)}`;
  }

  /** Return the text element of the model's message, which is added if it is new. */
  assistantText(message_id) {
    this.branches.append(message_id, true);
    if (this.speech) this.elements.set(message_id, this.speech);
    return this.elements.get(message_id) ?? this.add(message_id, make("div", "text assistant"));
  }
}

/** Say how the engine took a message, and why. */
function modeText({ mode, mode_reason }) {
  const name = { vault: "notes" }[mode] ?? mode;
  return escapeHidden(mode_reason ? `mode ${name}: ${mode_reason}` : `mode ${name}`);
}

/** Show fields for the arguments of a call and a button that allows it with them, or remove them again. */
function toggleEdit(button, box, row, { id, digest, context }, answerRequest) {
  const shown = box.querySelector(".edit");
  button.setAttribute("aria-expanded", String(!shown));
  if (shown) {
    shown.remove();
    return;
  }
  const edit = box.insertBefore(make("div", "edit"), row);
  const { box: fields, read } = argumentFields(context.arguments ?? {});
  edit.append(fields);
  const allow = async () => answerRequest("confirms", id, { approved: true, arguments: read(), digest });
  addAnswerButton(edit.appendChild(make("p")), box, "Allow edited", "main allow-edited", allow);
  edit.querySelector("textarea")?.focus();
  row.scrollIntoView({ block: "nearest" });
}

/** Add a button that answers a request; while the answer is sent, and once it is, all fields of the row are disabled. */
function addAnswerButton(row, box, label, className, answer) {
  const button = row.appendChild(make("button", className, label));
  button.type = "button";
  button.addEventListener("click", async () => {
    box.querySelector(":scope > .error")?.remove();
    for (const field of row.children) field.disabled = true;
    try {
      await answer();
    } catch (error) {
      box.append(make("p", "error", error.message));
      // 410: the request is closed, so no other answer is possible either.
      if (error.status !== 410) for (const field of row.children) field.disabled = false;
    }
  });
  return button;
}

/** Return a call's arguments on one short line; they are a string if they are not valid JSON. */
function shortArguments(args) {
  const text = typeof args === "string" ? args : Object.values(args).map(String).join(" ");
  return escapeHidden(text.replace(/\s+/g, " ").slice(0, 80));
}

/** Return the text of a speech; of an attachment it has the name. */
function speechText({ type, content }) {
  if (type === "MultiModalMessage") return content.map((part) => part.name ? `[${part.name}]` : part).join("\n");
  return typeof content === "string" ? content : JSON.stringify(content);
}

function diffElement(diff) {
  const element = make("pre", "diff");
  for (const line of diff.split("\n")) {
    const kind = /^\+(?!\+\+)/.test(line) ? "added" : /^-(?!--)/.test(line) ? "removed" : "";
    element.append(make("span", kind, `${escapeHidden(line)}\n`));
  }
  return element;
}
