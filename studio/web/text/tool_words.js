// @ts-check
// Tool calls in words: what is asked for, what goes on, what was done, and how it ended.

import { escapeHidden } from "./hidden_characters.js";

/** @typedef {import("../state/types.js").CallItem} CallItem */
/** @typedef {import("../state/types.js").Request} Request */

const TITLE_CHARACTERS = 120;
const STATUS_CHARACTERS = 40;
const MOST_READ = 10_000; // characters of a text that is shortened

/** For each tool what is wanted, goes on and was done, and the argument that is named. */
const TOOLS = new Map(Object.entries({
  list_files: ["list", "Listing", "Listed", "path"],
  file_read: ["read", "Reading", "Read", "path"],
  file_search: ["search files for", "Searching files for", "Searched files for", "pattern"],
  file_write: ["write", "Writing", "Wrote", "path"],
  file_edit: ["edit", "Editing", "Edited", "path"],
  create_file: ["write", "Writing", "Wrote", "path"],
  edit_file: ["edit", "Editing", "Edited", "path"],
  artifact_read: ["read", "Reading", "Read", "path"],
  artifact_save: ["save", "Saving", "Saved", "path"],
  note_search: ["search notes for", "Searching notes for", "Searched notes for", "query"],
  note_read: ["read the note", "Reading the note", "Read the note", "path"],
  note_links: ["follow the links of", "Following the links of", "Followed the links of", "path"],
  note_list: ["list notes", "Listing notes", "Listed notes", "path"],
  note_write: ["write the note", "Writing the note", "Wrote the note", "path"],
  note_append: ["add to the note", "Adding to the note", "Added to the note", "path"],
  web_fetch: ["fetch", "Fetching", "Fetched", "url"],
  web_search: ["search the web for", "Searching the web for", "Searched the web for", "query"],
  todo_write: ["update its list of tasks", "Updating the list of tasks", "Updated the list of tasks", ""],
  scratchpad_write: ["write to its scratchpad", "Writing to the scratchpad", "Wrote to the scratchpad", ""],
  scratchpad_read: ["read its scratchpad", "Reading the scratchpad", "Read the scratchpad", ""],
  memory_save: ["remember something", "Remembering", "Remembered something", ""],
  memory_search: ["search its memory for", "Searching its memory for", "Searched its memory for", "query"],
  conversation_search: ["search earlier sessions for", "Searching earlier sessions for", "Searched earlier sessions for", "query"],
  ask_user: ["ask you", "Asking you", "Asked you", ""],
  tool_search: ["look for tools", "Looking for tools", "Looked for tools", "query"],
  spawn_subagent: ["begin a sub-agent", "Beginning a sub-agent", "Began a sub-agent", "name"],
  cancel_subagent: ["stop the sub-agent", "Stopping the sub-agent", "Stopped the sub-agent", "agent_id"],
  retry_subagent: ["retry the sub-agent", "Retrying the sub-agent", "Retried the sub-agent", "agent_id"],
  message_subagent: ["write to the sub-agent", "Writing to the sub-agent", "Wrote to the sub-agent", "agent_id"],
  query_subagent_status: ["look after the sub-agent", "Looking after the sub-agent", "Looked after the sub-agent", "agent_id"],
  list_subagents: ["list sub-agents", "Listing sub-agents", "Listed sub-agents", ""],
  check_resources: ["look at what its sub-agents use", "Looking at what the sub-agents use", "Looked at what the sub-agents use", ""],
  wait_subagents: ["wait for sub-agents", "Waiting for sub-agents", "Waited for sub-agents", ""],
  run_variants: ["make options", "Making options", "Made options", ""],
  generate_images: ["make images", "Making images", "Made images", ""],
  remove_background: ["remove the background", "Removing the background", "Removed the background", ""],
  retrieve_option: ["look at option", "Looking at option", "Looked at option", "option_number"],
}));

/** What reads without changing anything, in a word for several calls. */
const READING = new Map(Object.entries({
  file_read: ["read", "file", "files"], artifact_read: ["read", "file", "files"],
  note_read: ["read", "note", "notes"], note_links: ["followed the links of", "note", "notes"],
  file_search: ["searched files", "", ""], note_search: ["searched notes", "", ""],
  list_files: ["listed", "folder", "folders"], note_list: ["listed notes", "", ""],
  web_fetch: ["fetched", "page", "pages"], web_search: ["searched the web", "", ""],
  query_subagent_status: ["looked after sub-agents", "", ""], list_subagents: ["listed sub-agents", "", ""],
  scratchpad_read: ["read the scratchpad", "", ""], tool_search: ["looked for tools", "", ""],
}));

const OUTCOMES = new Map(Object.entries({
  ok: "", error: "failed", denied: "not allowed", blocked: "blocked", unknown_tool: "no such tool",
  invalid_arguments: "arguments do not fit", cancelled: "stopped", timed_out: "took too long",
  unknown: "may or may not have run", dropped: "not run: the reply was cut", stopped: "not run: stopped",
}));

const isText = (value) => typeof value === "string" && value !== "";
const argumentsOf = (/** @type {CallItem} */ { args }) => (args !== null && typeof args === "object" ? args : {});

/**
 * Return a text on one line, which ends in "…" if anything but blanks is left out. `escape` is that of the kind of text:
 * exact, or `escapeHiddenText` for prose.
 *
 * @param {string} text
 */
export function shortened(text, characters = TITLE_CHARACTERS, escape = escapeHidden) {
  const line = escape(text.slice(0, MOST_READ)).replace(/\s+/g, " ").trim();
  const isWhole = line.length <= characters && !/\S/.test(text.slice(MOST_READ));
  return isWhole ? line : `${line.slice(0, characters - 1).replace(/[\ud800-\udbff]$/, "")}…`;
}

/** Return the command of a call that runs one, "" for others. */
export function commandOf(/** @type {CallItem} */ call) {
  const { command } = argumentsOf(call);
  return call.name === "bash_exec" && isText(command) ? command : "";
}

/** Return the names of arguments, each with its text or texts; other values as JSON. @returns {string[][]} */
export const argumentTexts = (/** @type {Record<string, any>} */ args) => Object.entries(args).map(([name, value]) => {
  const texts = Array.isArray(value) ? value : [value];
  return [name, ...(texts.length && texts.every((text) => typeof text === "string") ? texts : [JSON.stringify(value, null, 2)])];
});

/** Return the arguments of a call as its card shows them, "" for none. */
export function argumentsText(/** @type {Pick<CallItem, "args" | "argsText">} */ { args, argsText }) {
  if (args !== null && typeof args === "object") return argumentTexts(args).flat().join("\n");
  const text = args ?? argsText;
  return text === "{}" ? "" : text;
}

/** Return what a call is about, as a title: "Read src/app.py", "$ pytest -q". */
export function callTitle(/** @type {CallItem} */ call) {
  const command = commandOf(call);
  if (command) return `$ ${shortened(command, TITLE_CHARACTERS, withLines)}`;
  const [wanted, doing, done] = wordsOf(call.name);
  const isDone = call.phase === "done" && call.outcome === "ok";
  const verb = isDone ? done : call.phase === "done" || isWaiting(call) ? capital(wanted) : doing;
  const about = aboutOf(call) || (call.name === "list_files" && call.args ? "the folder" : "");
  return about ? `${verb} ${about}` : verb;
}

const isWaiting = (/** @type {CallItem} */ { phase }) => phase === "waiting" || phase === "queued";

/** Return what a call does now in few words, without a command: "Running a command", "Writing app.py". */
export function doingText(/** @type {CallItem} */ call) {
  const [wanted, doing, , key] = wordsOf(call.name);
  const about = shortened(key === "path" ? aboutOf(call).replace(/^.*\/(?=.)/, "") : aboutOf(call), STATUS_CHARACTERS, String);
  const verb = isWaiting(call) ? `Wants to ${wanted}` : call.name === "bash_exec" && call.phase !== "written" ? "Running a command" : doing;
  return about ? `${verb} ${about}` : verb;
}

/** Return what a call would do, for "wants to …". */
export function wantedText(/** @type {string} */ name, /** @type {Record<string, any>} */ args) {
  const about = aboutOf(/** @type {any} */ ({ name, args }));
  return name === "bash_exec" ? "run a command" : [wordsOf(name)[0], about].filter(Boolean).join(" ");
}

/** Return what a call of a tool would do, whatever its arguments are: "run a command", "write a file". */
export function wantedKind(/** @type {string} */ name) {
  if (KINDS.has(name)) return String(KINDS.get(name));
  const wanted = wordsOf(name)[0].replace(/ for$/, "").replace("the note", "a note");
  const about = { path: "a file", url: "a page" }[TOOLS.get(name)?.[3] ?? ""];
  return about && !/ notes?$/.test(wanted) ? `${wanted} ${about}` : wanted;
}

const KINDS = new Map(Object.entries({
  list_files: "list a folder", note_links: "follow the links of a note", retrieve_option: "look at an option",
  create_file: "write a file of the session", edit_file: "edit a file of the session", artifact_read: "read a file of the session",
  artifact_save: "save a file of the session in the folder",
}));

/** Return what a tool does, for a list of them: "Run a command", "Read a file"; the title of one that the page does not know. */
export function toolLabel(/** @type {{name: string, title: string}} */ { name, title }) {
  const text = wantedKind(name);
  return text.startsWith("call ") ? escapeHidden(title) : capital(text);
}

/** Return what a tool does with files or pages that are named behind it: "read", "write". */
export const wantedVerb = (/** @type {string} */ name) => wordsOf(name)[0];

function wordsOf(/** @type {string} */ name) {
  const known = TOOLS.get(name);
  if (known) return known;
  if (name === "bash_exec") return ["run a command", "Writing a command", "Ran a command", ""];
  const handoff = /^handoff_to_(.+)$/.exec(name);
  if (handoff) {
    const to = escapeHidden(handoff[1]);
    return [`hand over to ${to}`, `Handing over to ${to}`, `Handed over to ${to}`, ""];
  }
  const [server, tool] = name.includes("__") ? name.split("__") : ["", name];
  const called = escapeHidden(tool) + (server ? ` of ${escapeHidden(server)}` : "");
  return [`call ${called}`, `Calling ${called}`, `Called ${called}`, ""];
}

function aboutOf(/** @type {CallItem} */ call) {
  const key = TOOLS.get(call.name)?.[3];
  const value = key ? argumentsOf(call)[key] ?? (call.argsText ? writtenArgument(call.argsText, key) : undefined) : undefined;
  if (key === "path" && call.name.endsWith("_file") && value === undefined && call.args) return "index.html";
  if (value === "." && key === "path") return "the folder";
  return isText(value) || typeof value === "number" ? shortened(String(value), TITLE_CHARACTERS, withBlanks) : "";
}

/** Escape a text in which blanks side by side are told by their number: "a.txt⟨120 spaces⟩.sh" is one name. */
const withBlanks = (/** @type {string} */ text) =>
  escapeHidden(text.replace(/ {2,}/g, ({ length }) => `⟨${length.toLocaleString("en")} spaces⟩`));

/** Escape a text whose lines are told apart on one line: two commands are not read as one. */
const withLines = (/** @type {string} */ text) => escapeHidden(text.trim().replace(/\s*\n\s*/g, " ⏎ "));

/** Return a text among the first arguments of a call that is being written, undefined until it is complete. */
function writtenArgument(/** @type {string} */ json, /** @type {string} */ key) {
  const found = new RegExp(`"${key}"\\s*:\\s*("(?:[^"\\\\]|\\\\.)*")`).exec(json.slice(0, MOST_READ));
  try {
    return found ? JSON.parse(found[1]) : undefined;
  } catch {
    return undefined; // no JSON, of which the turn will tell
  }
}

const capital = (/** @type {string} */ text) => text.charAt(0).toUpperCase() + text.slice(1);

/** Return a text that begins as a sentence, unless a name stands there, as of a model or a file. */
export const sentence = (/** @type {string} */ text) => /^[a-z]+ /.test(text) ? capital(text) : text;

/** Return whether a call was not done although the person had allowed it: its effect was another one by then. */
export const isOvertaken = (/** @type {CallItem} */ call, /** @type {Request | undefined} */ request) =>
  call.phase === "done" && call.outcome === "denied" && request?.answer?.approved === true && !request.answer.arguments;

/** Return whether a call ended before it began to run: as the turn was stopped, or as the reply was cut. */
export const hasNotRun = (/** @type {CallItem} */ { outcome, durationMs }) =>
  outcome === "dropped" || outcome === "stopped" || (outcome === "cancelled" && durationMs === null);

/** Return how a call ended in a word, "" if it went well or has not ended. */
export function outcomeWord(/** @type {CallItem} */ call, /** @type {Request | undefined} */ request) {
  if (isOvertaken(call, request)) return `not done: ${TOOLS.get(call.name)?.[3] === "path" ? "the file" : "what it would do"} changed meanwhile`;
  if (call.outcome === "cancelled" && hasNotRun(call)) return OUTCOMES.get("stopped");
  return call.phase === "done" ? OUTCOMES.get(call.outcome ?? "ok") ?? shortened(call.outcome ?? "") : "";
}

/** Return how many of the images of a call could not be made, and of how many; null if all were, or it makes none. */
export function failedImages(/** @type {CallItem} */ { name, outcome, result }) {
  if (outcome !== "ok" || !(name === "generate_images" || name === "remove_background")) return null;
  const lines = (result ?? "").split("\n").filter((line) => /^\d+\. /.test(line)); // one for each image
  const { length: failed } = lines.filter((line) => line.includes(": Error: ") && !/ \d+ × \d+ pixels\)[^()]*$/.test(line));
  return failed ? { failed, all: lines.length } : null;
}

/** Return short facts about a call that is done: "1 of 3 failed", "+3 −1", "exit 0", "2.1 s". */
export function callFacts(/** @type {CallItem} */ call, /** @type {Request | undefined} */ request) {
  if (call.phase !== "done") return [];
  const facts = [];
  const images = failedImages(call);
  if (images) facts.push(`${images.failed} of ${images.all} failed`);
  const lines = call.outcome === "ok" ? changedLines(call, request) : null;
  if (lines) facts.push(`+${lines.added} −${lines.removed}`);
  const code = exitCode(call);
  if (code !== null) facts.push(`exit ${code}`);
  if (call.data?.kind === "read") facts.push(...linesText(call.data));
  if (call.durationMs !== null && call.durationMs >= 100) facts.push(`${(call.durationMs / 1000).toFixed(1)} s`);
  return facts;
}

function linesText({ line_start: start, lines }) {
  if (typeof start !== "number" || typeof lines !== "number" || lines < 1) return [];
  return [lines === 1 ? `line ${start}` : `lines ${start}–${start + lines - 1}`];
}

/** Return the exit code of a command, null if there is none. */
export function exitCode(/** @type {CallItem} */ call) {
  return typeof call.data?.exit_code === "number" ? call.data.exit_code : null;
}

/** Return the unified diff of a call that changed a file, "" if none is known. */
export function diffOf(/** @type {CallItem} */ call, /** @type {Request | undefined} */ request) {
  if (isText(call.data?.diff)) return call.data.diff;
  return !call.edited && isText(request?.context.diff) ? request?.context.diff : "";
}

/** Return whether that diff is only the beginning of the change. */
export function isDiffCut(/** @type {CallItem} */ call, /** @type {Request | undefined} */ request) {
  return (isText(call.data?.diff) ? call.data.diff_cut : request?.context.diff_cut) === true;
}

/** Return how many unchanged lines the file has after those of the whole diff. @returns {number} */
export function unchangedBelow(/** @type {CallItem} */ call, /** @type {Request | undefined} */ request) {
  return (isText(call.data?.diff) ? call.data : request?.context)?.unchanged_below ?? 0;
}

/** Return how many lines a call added and removed, null if that is not known. */
export function changedLines(/** @type {CallItem} */ call, /** @type {Request | undefined} */ request) {
  if (typeof call.data?.added === "number") return { added: call.data.added, removed: Number(call.data.removed) || 0 };
  const diff = diffOf(call, request);
  return diff ? countLines(diff) : null;
}

/** Return how many lines a unified diff adds and removes. */
export function countLines(/** @type {string} */ diff) {
  let added = 0, removed = 0, isInHunk = false;
  for (const line of diff.split("\n")) {
    if (line.startsWith("@@ ")) isInHunk = true;
    else if (isInHunk && line[0] === "+") added += 1;
    else if (isInHunk && line[0] === "-") removed += 1;
  }
  return { added, removed };
}

/** Return whether a call that went well only read, so that several of them fold into one line. */
export function isReading(/** @type {CallItem} */ call) {
  return call.phase === "done" && call.outcome === "ok" && READING.has(call.name);
}

/** Return several such calls in a line: "Read 6 files, searched files twice". */
export function readingTitle(/** @type {CallItem[]} */ calls) {
  const counts = new Map();
  for (const { name } of calls) {
    const words = /** @type {string[]} */ (READING.get(name));
    const key = words.join(" ");
    counts.set(key, { words, count: (counts.get(key)?.count ?? 0) + 1 });
  }
  return capital([...counts.values()].map(({ words: [verb, one, many], count }) => {
    if (one) return `${verb} ${count} ${count === 1 ? one : many}`;
    return count === 1 ? verb : `${verb} ${count === 2 ? "twice" : `${count} times`}`;
  }).join(", "));
}
