// The files of the workspace that calls have changed or are about to write, as far as there is something to look at.
// @ts-check

import { dictionary } from "./draft.js";
import { FOLDER, SESSION, isViewed, mediaTypeOf } from "./files.js";

/** @typedef {import("./types.js").SessionState} SessionState */
/** @typedef {import("./types.js").CallItem} CallItem */
/** @typedef {import("./types.js").Turn} Turn */

const CUT = 6; // characters: what may be missing of "\\u00e4"

/** @type {WeakMap<Turn, ReturnType<typeof find>>} */
const found = new WeakMap(); // a turn that is as before is not searched again: a session may have thousands

/**
 * Return the calls in the conversation that changed files, ran a command or are to change a file, each with the turn of
 * the user's message that it belongs to.
 * @param {SessionState} state @returns {{call: CallItem, turn: Turn}[]}
 */
export function changesOf(state) {
  return changingTurns(state).flatMap(({ turn, root }) => foundIn(turn).calls.map((call) => ({ call, turn: root })));
}

/**
 * Return whether calls have changed files, and whether one of these is to be looked at.
 * @param {SessionState} state
 */
export function editsIn(state) {
  const turns = changingTurns(state).map(({ turn }) => foundIn(turn));
  return { hasEdits: turns.some(({ hasEdits }) => hasEdits), hasViewed: turns.some(({ views }) => views.length > 0) };
}

/**
 * Return the turns of the conversation with such calls, each with the turn of the user's message that it belongs to.
 * @param {SessionState} state @returns {{turn: Turn, root: Turn}[]}
 */
function changingTurns({ turns, childTurns }) {
  const own = turns.filter((turn) => turn.onPath && foundIn(turn).calls.length > 0).map((turn) => ({ turn, root: turn }));
  const children = Object.values(childTurns).filter((turn) => foundIn(turn).calls.length > 0);
  if (!children.length) return own;
  const roots = new Map(turns.map((turn) => [turn.id, turn]));
  return [...own, ...children.flatMap((turn) => {
    const root = rootOf(turn, roots, childTurns);
    return root?.onPath ? [{ turn, root }] : [];
  })];
}

/**
 * Return the revisions of the session's own files in the conversation, which are none of the workspace, each with the turn
 * of the user's message that it belongs to.
 * @param {SessionState} state @returns {{path: string, turn: Turn}[]}
 */
export function madeFilesOf({ turns, childTurns, artifacts }) {
  const roots = new Map(turns.map((turn) => [turn.id, turn]));
  return Object.values(artifacts[SESSION] ?? {}).flat().filter(({ onPath }) => onPath).flatMap(({ path, turnId }) => {
    const turn = childTurns[turnId ?? ""] ?? roots.get(turnId ?? "");
    const root = turn && rootOf(turn, roots, childTurns);
    return root ? [{ path, turn: root }] : [];
  });
}

/** Return whether a call has changed a file. */
export const isEdit = (/** @type {CallItem} */ { data }) => data?.kind === "edit" && typeof data.path === "string";

function foundIn(/** @type {Turn} */ turn) {
  let one = found.get(turn);
  if (!one) found.set(turn, one = find(turn));
  return one;
}

/** Find the calls of a turn: all, how many are done, those that are not, and the changed files that are to be looked at. */
function find(/** @type {Turn} */ turn) {
  const calls = /** @type {CallItem[]} */ (turn.items.filter((item) => item.kind === "call" && item.onPath && isChange(item)));
  const done = calls.filter(({ phase }) => phase === "done");
  const edits = done.filter(isEdit);
  const views = edits.filter(({ data }) => isViewed(data.path)).map((call) => revisionOf(call.data.path, call));
  return { calls, done: done.length, open: calls.filter(({ phase }) => phase !== "done"), hasEdits: edits.length > 0, views };
}

const isChange = (/** @type {CallItem} */ call) =>
  call.phase === "done" ? isEdit(call) || call.data?.kind === "command" : call.name === "file_write" || isAskedEdit(call);

/** Return whether a call replaces a text in a file, and the person is asked or has allowed it. */
const isAskedEdit = ({ name, phase, requestId }) =>
  name === "file_edit" && requestId !== null && (phase === "waiting" || phase === "running");

/**
 * Return a file as a call has changed it, or is to change it: to the `text`, or by the `edit` of the text that it has now.
 * @param {string} path @param {CallItem | null} call @param {{text?: string, edit?: Record<string, any>}} [proposed]
 */
function revisionOf(path, call, proposed) {
  return { path, number: call?.id ?? "", text: proposed?.text ?? null, edit: proposed?.edit ?? null, growing: proposed !== undefined,
    mediaType: mediaTypeOf(path), size: null, sha256: null, onPath: true, startedAt: call?.startedAt ?? "",
    isProposed: proposed !== undefined && call?.phase !== "written", isAllowed: proposed === undefined || call?.phase === "running" };
}

/** @param {Turn} turn @param {Map<string, Turn>} roots @param {Record<string, Turn>} childTurns */
function rootOf(turn, roots, childTurns) {
  /** @type {Turn | undefined} */
  let above = turn;
  while (above && !roots.has(above.id)) above = childTurns[above.parentTurnId ?? ""] ?? roots.get(above.parentTurnId ?? "");
  return above;
}

/**
 * Return the state with the files of the workspace as those of the option `FOLDER`: of each the last revision, whose text
 * only the studio has unless it is being written. `version` is another one whenever the files may have changed.
 * @param {SessionState} state @param {string} workspace @param {string | null} [asked] the path of a file that is there too
 */
export function withFolder(state, workspace, asked = null) {
  const turns = changingTurns(state).map(({ turn }) => foundIn(turn));
  /** @type {Record<string, ReturnType<typeof revisionOf>[]>} */
  const files = dictionary();
  if (asked !== null && isViewed(asked)) files[asked] = [revisionOf(asked, null)];
  for (const { views } of turns) for (const file of views) files[file.path] = [file];
  for (const call of turns.flatMap(({ open }) => open)) {
    const file = isOther(call, workspace) ? null : writtenFile(call);
    const path = pathIn(workspace, file?.path ?? "");
    const isNext = !file?.edit || !files[path]?.[0].growing; // of several edits, the first is asked about first
    const isThere = files[path]?.[0].isAllowed; // as a call before has written it
    if (file && isViewed(path) && isNext) files[path] = [{ ...revisionOf(path, call, file), ...(isThere && { isAllowed: true }) }];
  }
  const artifacts = Object.keys(files).length ? Object.assign(dictionary(), state.artifacts, { [FOLDER]: files }) : state.artifacts;
  return { ...state, artifacts, version: turns.reduce((sum, { done }) => sum + done, 0) };
}

/** Return a path relative to the workspace, as results have it. @param {string} workspace @param {string} path */
const pathIn = (workspace, path) =>
  (path.startsWith(`${workspace}/`) ? path.slice(workspace.length + 1) : path).replace(/^(?:\.\/)+/, "");

/** Return whether it is plain at the beginning of a call that its file is none to look at; others are read to the end. */
function isOther(/** @type {CallItem} */ { argsText }, /** @type {string} */ workspace) {
  const path = /^\{\s*"path":\s*"([^"\\]*)"/.exec(argsText.slice(0, 1000))?.[1];
  return path !== undefined && !isViewed(pathIn(workspace, path));
}

/** Return the path of a file and the text or the edit that a call is to write, null before they have begun. @param {CallItem} call */
function writtenFile({ name, args, argsText }) {
  const { path, content, ...edit } = /** @type {any} */ (args ?? beginningOf(argsText));
  if (typeof path !== "string") return null;
  if (name === "file_edit") return typeof edit.old_text === "string" && typeof edit.new_text === "string" ? { path, edit } : null;
  return typeof content === "string" ? { path, text: content } : null;
}

/** Return the arguments of which a text is the beginning, without their path while that may be incomplete. */
function beginningOf(/** @type {string} */ text) {
  for (let cut = 0; cut <= CUT; cut += 1) {
    try {
      const args = JSON.parse(`${text.slice(0, text.length - cut)}"}`);
      return Object.keys(args).at(-1) === "path" ? {} : args;
    } catch { /* the text ends in the middle of a character, or between two arguments */ }
  }
  return {};
}

/**
 * Return a text after an edit as `file_edit` does it, or an error if it would fail. Line ends of the old and the new text
 * do not matter: they become those of the text, or LF where it has several.
 * @param {string} text @param {{old_text?: string, new_text?: string, replace_all?: boolean}} edit
 * @returns {{text: string, error?: undefined} | {text: null, error: string}}
 */
export function editedText(text, { old_text: old = "", new_text: replacement = "", replace_all: all = false }) {
  const isExact = !all && text.split(old).length === 2; // then it is the only place, whatever line ends others have
  const [content, wanted, given] = isExact ? [text, old, replacement] : [text, old, replacement].map(withLf);
  const parts = wanted ? content.split(wanted) : [content];
  if (parts.length === 1) return { text: null, error: "The text to replace is not in the file as it is now, so the edit would fail." };
  if (parts.length > 2 && !all) {
    const count = (parts.length - 1).toLocaleString("en");
    return { text: null, error: `The text to replace is in the file ${count} times and not once, so the edit would fail.` };
  }
  const [end, ...others] = new Set(text.match(LINE_END));
  return { text: withLf(parts.join(given)).replaceAll("\n", others.length ? "\n" : end ?? "\n") };
}

const LINE_END = /\r\n?|\n/g;
const withLf = (/** @type {string} */ text) => text.replace(LINE_END, "\n");
