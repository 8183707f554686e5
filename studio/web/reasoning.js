// Reasoning steps: the events of a turn as short sentences, the same as those of agenticx/core/reasoning.py.
// A pure fold, without elements and without a clock: `envelopes.reduce(addEvent, NO_REASONING)`.

import { oneLine } from "./hidden_characters.js";

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
/** For a call and its result the beginning of their sentences, and the argument that ends these. */
const TOOLS = new Map([
  ["note_search", ["Searching notes for", "Searched notes for", "query"]],
  ["note_read", ["Reading the note", "Read the note", "path"]],
  ["note_links", ["Following links of", "Followed links of", "path"]],
  ["note_list", ["Listing notes", "Listed notes", "path"]],
  ["note_write", ["Writing the note", "Wrote the note", "path"]],
  ["note_append", ["Adding to the note", "Added to the note", "path"]],
  ["file_search", ["Searching files for", "Searched files for", "pattern"]],
  ["file_read", ["Reading the file", "Read the file", "path"]],
  ["file_write", ["Writing the file", "Wrote the file", "path"]],
  ["file_edit", ["Editing the file", "Edited the file", "path"]],
  ["list_files", ["Listing files", "Listed files", "path"]],
  ["bash_exec", ["Running", "Ran", "command"]],
]);
const OUTCOMES = new Map([
  ["ok", ""], ["denied", ": not allowed"], ["cancelled", ": stopped"], ["timed_out", ": took too long"],
]);
const PASSAGE = /(?:^|\n)\[passage [0-9]{1,9}: /g;
const SENTENCE_END = /[.!?…](?=\s|$)|[。！？]/;

/**
 * The reasoning of a turn that has not begun: its seconds up to the last event, a sentence for each thinking block and
 * each call, and whether it has ended. The sentence of a call becomes that of its result.
 */
export const NO_REASONING = Object.freeze({
  elapsed_seconds: 0,
  steps: [],
  done: false,
  turn_id: null,
  began_at: 0, // seconds
  thought: null, // the beginning of the thinking block that is open
  openCalls: new Map(), // tool_call_id → [index of its step, arguments]
});

/** Return the steps to show: the last four while the turn runs, afterwards all. */
export const shownSteps = ({ steps, done }) => done ? steps : steps.slice(-SHOWN_STEPS);

/**
 * Return the reasoning with one more event of a session's log.
 * Events before the first `turn_started`, of other turns, and after the turn's end change nothing.
 */
export function addEvent(reasoning, { type, data, turn_id, ts }) {
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
  const args = given !== null && typeof given === "object" && !Array.isArray(given) ? given : {};
  const added = withStep(reasoning, callSentence(name, args, false));
  const openCalls = new Map(reasoning.openCalls);
  if (openCalls.size < MAX_STEPS) openCalls.set(tool_call_id, [added.steps.length - 1, args]);
  return { ...added, openCalls, thought: null };
}

/** Return the reasoning with the result of a call, in place of the call's sentence. */
function withResult(reasoning, { tool_call_id, name, result, is_error, outcome = is_error ? "error" : "ok" }) {
  const [index, args] = reasoning.openCalls.get(tool_call_id) ?? [reasoning.steps.length, {}];
  let end = OUTCOMES.get(outcome) ?? ": failed";
  if (name === "note_search" && !end) end = `: ${result.match(PASSAGE)?.length ?? 0} found`;
  const steps = [...reasoning.steps];
  steps[index] = callSentence(name, args, true) + end;
  const openCalls = new Map(reasoning.openCalls);
  openCalls.delete(tool_call_id);
  return { ...reasoning, steps: steps.slice(0, MAX_STEPS), openCalls, thought: null };
}

const withStep = (reasoning, sentence) =>
  ({ ...reasoning, steps: [...reasoning.steps.slice(0, MAX_STEPS - 1), sentence] });

function callSentence(name, args, isDone) {
  if (!TOOLS.has(name)) return `${isDone ? "Called" : "Calling"} ${short(name)}`;
  const [doing, done, key] = TOOLS.get(name);
  const value = typeof args[key] === "string" ? short(args[key]) : "";
  return (isDone ? done : doing) + (value && ` '${value}'`);
}

function short(text) {
  const line = words(oneLine(beginning(text, 4 * VALUE_CHARS)));
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

const words = (text) => text.split(/\s+/).filter(Boolean).join(" ");

// Characters are code points, as in Python; each has at most two of a string's units.
const count = (text) => [...text].length;
const beginning = (text, limit) => [...text.slice(0, 2 * limit)].slice(0, limit).join("");
