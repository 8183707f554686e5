// Reasoning steps: the events of a turn as short sentences, the same as those of agenticx/core/reasoning.py.
// A pure fold, without elements and without a clock: `envelopes.reduce(addEvent, NO_REASONING)`.

import { escapeHidden, oneLine } from "../text/hidden_characters.js";

const SHOWN_STEPS = 4;
const MAX_STEPS = 500;
const THOUGHT_CHARS = 400;
const SENTENCE_CHARS = 120;
const VALUE_CHARS = 40;
const FIRST_STEPS = [
  "Reading your message",
  "Thinking about it",
  "Looking at what you ask",
  "Working out where to begin",
  "Taking it step by step",
  "Considering the question",
  "Making a plan",
  "Sorting out what is needed",
  "Getting an overview",
  "Looking for a way in",
  "Weighing what to do first",
  "Beginning with the question",
];
/** The beginning of the sentence by `form` of `callSentence`, and the argument that ends it. */
const TOOLS = new Map([
  ["note_search", ["Searching notes for", "Searched notes for", "Search notes for", "query"]],
  ["note_read", ["Reading the note", "Read the note", "Read the note", "path"]],
  ["note_links", ["Following links of", "Followed links of", "Follow links of", "path"]],
  ["note_list", ["Listing notes", "Listed notes", "List notes", "path"]],
  ["note_write", ["Writing the note", "Wrote the note", "Write the note", "path"]],
  ["note_append", ["Adding to the note", "Added to the note", "Add to the note", "path"]],
  ["file_search", ["Searching files for", "Searched files for", "Search files for", "pattern"]],
  ["file_read", ["Reading the file", "Read the file", "Read the file", "path"]],
  ["file_write", ["Writing the file", "Wrote the file", "Write the file", "path"]],
  ["file_edit", ["Editing the file", "Edited the file", "Edit the file", "path"]],
  ["list_files", ["Listing files", "Listed files", "List files", "path"]],
  ["bash_exec", ["Running", "Ran", "Run", "command"]],
  ["web_search", ["Searching the web for", "Searched the web for", "Search the web for", "query"]],
  ["web_fetch", ["Fetching", "Fetched", "Fetch", "url"]],
  ["ask_user", ["Asking you", "Asked you", "Ask you", ""]],
  ["todo_write", ["Updating the list of tasks", "Updated the list of tasks", "Update the list of tasks", ""]],
  ["spawn_subagent", ["Beginning a sub-agent", "Began a sub-agent", "Begin a sub-agent", "name"]],
  ["wait_subagents", ["Waiting for sub-agents", "Waited for sub-agents", "Wait for sub-agents", ""]],
  ["query_subagent_status", ["Looking after the sub-agent", "Looked after the sub-agent", "Look after the sub-agent", "agent_id"]],
  ["cancel_subagent", ["Stopping the sub-agent", "Stopped the sub-agent", "Stop the sub-agent", "agent_id"]],
  ["message_subagent", ["Writing to the sub-agent", "Wrote to the sub-agent", "Write to the sub-agent", "agent_id"]],
  ["memory_save", ["Remembering", "Remembered something", "Remember something", ""]],
  ["create_file", ["Writing the file", "Wrote the file", "Write the file", "path"]],
  ["edit_file", ["Editing the file", "Edited the file", "Edit the file", "path"]],
  ["artifact_read", ["Reading the file", "Read the file", "Read the file", "path"]],
  ["artifact_save", ["Saving the file", "Saved the file", "Save the file", "path"]],
  ["scratchpad_write", ["Writing to the scratchpad", "Wrote to the scratchpad", "Write to the scratchpad", ""]],
  ["scratchpad_read", ["Reading the scratchpad", "Read the scratchpad", "Read the scratchpad", ""]],
  ["list_subagents", ["Listing sub-agents", "Listed sub-agents", "List sub-agents", ""]],
  ["retry_subagent", ["Retrying the sub-agent", "Retried the sub-agent", "Retry the sub-agent", "agent_id"]],
  ["check_resources", ["Looking at what the sub-agents use", "Looked at what the sub-agents use", "Look at what the sub-agents use", ""]],
  ["memory_search", ["Searching the memory for", "Searched the memory for", "Search the memory for", "query"]],
  ["conversation_search", ["Searching earlier sessions for", "Searched earlier sessions for", "Search earlier sessions for", "query"]],
  ["run_variants", ["Making options", "Made options", "Make options", ""]],
  ["generate_images", ["Making images", "Made images", "Make images", ""]],
  ["remove_background", ["Removing the background", "Removed the background", "Remove the background", ""]],
  ["retrieve_option", ["Looking at an option", "Looked at an option", "Look at an option", ""]],
]);
/** Tools of which several calls side by side run at the same time. */
export const CONCURRENT = new Set([
  "list_files", "file_read", "file_search", "artifact_read", "note_search", "note_read", "note_links", "note_list",
  "scratchpad_read", "memory_search", "conversation_search", "retrieve_option", "spawn_subagent", "ask_user",
]);
const [RUNNING, DONE, NOT_DONE, WAITING] = [0, 1, 2, 3];
const OUTCOMES = new Map([
  ["ok", ""], ["denied", ": not allowed"], ["cancelled", ": stopped"], ["timed_out", ": took too long"],
]);
const BLANKS = /[ \t\n\r\v\f]+/g; // other ones are shown as what they are
const SPACES = / {2,}/g;
const PASSAGE = /(?:^|\n)\[passage [0-9]{1,9}: /g;
const SENTENCE_END = /[.!?…](?=\s|$)|[。！？]/;

/**
 * The reasoning of a turn that has not begun: its seconds up to the last event, a sentence for each thinking block and
 * each call, and whether it has ended. While a call is asked about, or has not begun as one before it has not ended, its
 * sentence says that it waits. It becomes that of its result.
 */
export const NO_REASONING = Object.freeze({
  elapsed_seconds: 0,
  steps: [],
  done: false,
  turn_id: null,
  began_at: 0, // seconds
  thought: null, // the beginning of the thinking block that is open
  openCalls: new Map(), // tool_call_id → {index of its step, name, args, approved}
  askingCalls: new Map(), // id of an open confirmation or question → tool_call_id
});

/** Return the steps to show: the last four while the turn runs, afterwards all. */
export const shownSteps = ({ steps, done }) => done ? steps : steps.slice(-SHOWN_STEPS);

/** Return the places between which the steps stand that are shown while the turn runs: others may wait behind its open call. */
export function shownRange({ steps, openCalls }) {
  const open = openCalls.values().next().value?.index ?? -1, last = steps.length - SHOWN_STEPS;
  const from = Math.max(0, open < 0 ? last : Math.min(last, open));
  return [from, from + SHOWN_STEPS];
}

/**
 * Return the reasoning with one more event of a session's log.
 * Events before the first `turn_started`, of other turns, and after the turn's end change nothing.
 */
export function addEvent(reasoning, /** @type {any} */ { type, data, turn_id, ts }) {
  const at = Date.parse(ts) / 1000;
  if (reasoning.turn_id === null) {
    if (type !== "turn_started" || turn_id === null) return reasoning;
    return { ...NO_REASONING, steps: [firstStep(turn_id)], turn_id, began_at: at };
  }
  if (turn_id !== reasoning.turn_id || reasoning.done) return reasoning;
  const elapsed_seconds = Math.max(0, Math.round((at - reasoning.began_at) * 1000) / 1000);
  return withEvent({ ...reasoning, elapsed_seconds }, type, data);
}

function withEvent(reasoning, type, data) {
  switch (type) {
    case "thinking": return withThought(reasoning, data.text);
    case "tool_call": return withCall(reasoning, data);
    case "confirm_required": return withRequest(reasoning, data.id, data.context?.tool_call_id);
    case "question_asked": return withRequest(reasoning, data.id, data.tool_call_id);
    case "confirm_response":
    case "question_answered": return withAnswer(reasoning, data);
    case "tool_result": return withResult(reasoning, data);
    case "token": return data.text ? { ...reasoning, thought: null } : reasoning;
    case "final":
    case "subagent_paused": return { ...reasoning, done: true };
    case "error": {
      if (!data.fatal) return reasoning;
      return { ...(data.code === "stopped" ? withStep(reasoning, "Stopped") : reasoning), done: true };
    }
    default: return reasoning;
  }
}

/** Return the reasoning with more text of a thinking block, whose first sentence is its step. */
function withThought(reasoning, text) {
  if (reasoning.thought === null) {
    const thought = beginning(text, THOUGHT_CHARS);
    return { ...withStep(reasoning, firstSentence(thought) || "Thinking"), thought };
  }
  if (count(reasoning.thought) >= THOUGHT_CHARS) return reasoning;
  const thought = beginning(reasoning.thought + text, THOUGHT_CHARS);
  return { ...reasoning, steps: [...reasoning.steps.slice(0, -1), firstSentence(thought) || "Thinking"], thought };
}

function withCall(reasoning, { tool_call_id, name, arguments: given }) {
  const args = isObject(given) ? given : {};
  const added = withStep(reasoning, callSentence(name, args, RUNNING));
  const openCalls = new Map(reasoning.openCalls);
  if (openCalls.size < MAX_STEPS) openCalls.set(tool_call_id, { index: added.steps.length - 1, name, args, approved: null });
  return withOpenCalls({ ...added, thought: null }, reasoning.askingCalls, openCalls);
}

function withRequest(reasoning, id, callId) {
  if (reasoning.askingCalls.size >= MAX_STEPS) return reasoning;
  return withOpenCalls(reasoning, new Map(reasoning.askingCalls).set(id, callId), reasoning.openCalls);
}

/** Return the reasoning with the answer to a request; other arguments replace those of the call. */
function withAnswer(reasoning, { id, approved, arguments: given }) {
  const askingCalls = new Map(reasoning.askingCalls), openCalls = new Map(reasoning.openCalls);
  const callId = askingCalls.get(id), call = openCalls.get(callId);
  askingCalls.delete(id);
  if (call) openCalls.set(callId, { ...call, args: isObject(given) ? given : call.args, approved: approved ?? null });
  return withOpenCalls(reasoning, askingCalls, openCalls);
}

/**
 * Return the reasoning with these open requests and calls, and the sentences of these calls. A call waits behind one that
 * asks, and behind any other one unless both run at the same time.
 */
function withOpenCalls(reasoning, askingCalls, openCalls) {
  const asked = new Set(askingCalls.values());
  let { steps } = reasoning, isFirst = true, waits = false;
  for (const [id, { index, name, args, approved }] of openCalls) {
    const isAlone = !CONCURRENT.has(name), asks = asked.has(id);
    waits ||= isAlone && !isFirst;
    const form = asks ? (name === "ask_user" ? RUNNING : WAITING) : approved === null ? (waits ? WAITING : RUNNING) : approved ? RUNNING : NOT_DONE;
    const sentence = callSentence(name, args, form);
    if (sentence !== steps[index]) steps = steps.with(index, sentence); // otherwise they are the same ones
    isFirst = false;
    waits ||= isAlone || asks;
  }
  return { ...reasoning, steps, askingCalls, openCalls };
}

/** Return the reasoning with the result of a call, in place of the call's sentence. */
function withResult(reasoning, { tool_call_id, name, result, is_error, outcome = is_error ? "error" : "ok", duration_ms }) {
  const { index, args } = reasoning.openCalls.get(tool_call_id) ?? { index: reasoning.steps.length, args: {} };
  let end = OUTCOMES.get(outcome) ?? ": failed";
  if (outcome === "cancelled" && duration_ms === undefined) end = ": not run";
  const isError = end !== "";
  if (name === "note_search" && !isError) end = `: ${result.match(PASSAGE)?.length ?? 0} found`;
  const steps = [...reasoning.steps];
  steps[index] = callSentence(name, args, isError ? NOT_DONE : DONE) + end;
  const openCalls = new Map(reasoning.openCalls);
  openCalls.delete(tool_call_id);
  return withOpenCalls({ ...reasoning, steps: steps.slice(0, MAX_STEPS), thought: null }, reasoning.askingCalls, openCalls);
}

const withStep = (reasoning, sentence) =>
  ({ ...reasoning, steps: [...reasoning.steps.slice(0, MAX_STEPS - 1), sentence] });

/** Return the sentence of a call; `form` is NOT_DONE for one that was denied or failed, WAITING until it begins. */
function callSentence(name, args, form) {
  if (form === WAITING) return callSentence(name, args, NOT_DONE).replace(/^./, (first) => `Wants to ${first.toLowerCase()}`);
  const tool = TOOLS.get(name);
  if (!tool) return `${["Calling", "Called", "Call"][form]} ${short(name)}`;
  const key = tool[3];
  const value = typeof args[key] === "string" ? short(key === "command" ? args[key] : withSpaces(args[key])) : "";
  return tool[form] + (value && ` '${value}'`);
}

/** Return the beginning of a name, in which spaces side by side are told by their number: they are part of it. */
function withSpaces(name) {
  const begin = beginning(name, 4 * VALUE_CHARS);
  let end = begin.length;
  while (begin[end - 1] === " ") end -= 1;
  const told = begin.slice(0, end).replace(SPACES, ({ length }) => `⟨${length} spaces⟩`);
  return begin === name ? told : `${told}…`;
}

function short(text) {
  const line = escapeHidden(beginning(text, 4 * VALUE_CHARS).replace(BLANKS, " ").replace(/^ | $/g, ""));
  return count(line) <= VALUE_CHARS ? line : `${beginning(line, VALUE_CHARS - 1)}…`;
}

function firstSentence(text) {
  const line = words(oneLine(text).replaceAll("*", ""));
  const end = SENTENCE_END.exec(beginning(line, SENTENCE_CHARS));
  if (end) return line.slice(0, end.index + 1).replace(/\.+$/, "");
  return count(line) <= SENTENCE_CHARS ? line : `${beginning(line, SENTENCE_CHARS - 1)}…`;
}

function firstStep(turn_id) {
  const sum = [...turn_id].reduce((total, character) => total + character.codePointAt(0), 0);
  return FIRST_STEPS[sum % FIRST_STEPS.length];
}

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const words = (text) => text.split(/\s+/).filter(Boolean).join(" ");

// Characters are code points, as in Python; each has at most two of a string's units.
const count = (text) => [...text].length;
const beginning = (text, limit) => [...text.slice(0, 2 * limit)].slice(0, limit).join("");
