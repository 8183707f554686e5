// The files of a session in its state: those of the conversation as it is now, and those that grow.

import { optionOf } from "./revisions.js";

export const SESSION = "0"; // the number of the session's own files among those of options
export const FOLDER = "folder"; // instead of a number: files of the workspace
export const IMAGES = new Set(["image/gif", "image/jpeg", "image/png", "image/webp"]);
export const PAGES = new Set(["text/html", "image/svg+xml"]);
export const MARKDOWN = "text/markdown";
export const CSV = "text/csv";

const TYPES = new Map(Object.entries({
  html: "text/html", htm: "text/html", svg: "image/svg+xml", md: MARKDOWN, csv: CSV, css: "text/css", js: "text/javascript",
  mjs: "text/javascript", gif: "image/gif", jpeg: "image/jpeg", jpg: "image/jpeg", png: "image/png", webp: "image/webp",
}));

/** Return the media type of a file by the end of its name. */
export const mediaTypeOf = (path) => TYPES.get(/\.(\w+)$/.exec(path)?.[1].toLowerCase() ?? "") ?? "text/plain";

const isViewedType = (type) => PAGES.has(type) || IMAGES.has(type) || type === MARKDOWN || type === CSV;

/** Return whether a file of the workspace is to be looked at, and not read as code; one outside cannot be. */
export const isViewed = (path) => !path.startsWith("/") && isViewedType(mediaTypeOf(path));

/** Return the numbers of the options that are picked, one of a turn at most, in the order in which they were. */
export function pickedOptions({ notesBefore, turns, childTurns }) {
  const byTurn = new Map();
  for (const { type, onPath, data } of [...notesBefore, ...turns.flatMap(({ notes }) => notes)]) {
    if (type !== "picked" || !onPath) continue;
    const option = Object.values(childTurns).find(({ agentId }) => agentId === `option-${data.picked}`);
    const turnId = option?.parentTurnId ?? data.picked;
    byTurn.delete(turnId); // picking another one of the turn takes this one's place
    byTurn.set(turnId, String(data.picked));
  }
  return [...byTurn.values()];
}

/** Return whether the id of an agent is that of an option. */
export const isOption = (/** @type {string} */ agentId) => /^option-\d+$/.test(agentId);

/** Return the items of a turn that are options. */
export const optionItems = ({ items }) => items.filter(({ kind, agentId }) => kind === "turn" && isOption(agentId));

/** Return the numbers of the options of a turn. */
export const optionsOf = (turn) => optionItems(turn).map(({ agentId }) => optionOf(agentId));

/** Return the last turn of the conversation and its options. */
export function lastOptions({ turns }) {
  const turn = turns.findLast(({ onPath }) => onPath);
  return { turn, numbers: turn ? optionsOf(turn) : [] };
}

/** Return the last turn of the conversation and its options, none if one of them was picked. */
export function openOptions(state) {
  const { turn, numbers } = lastOptions(state);
  const isPicked = numbers.length > 0 && turn.notes.some(({ type, onPath, data }) => type === "picked" && onPath && numbers.includes(String(data.picked)));
  return { turn, numbers: isPicked ? [] : numbers };
}

/** Return the turns of the options of the last turn of the conversation, none if one of them was picked. */
export function openOptionTurns(state) {
  const { turn, numbers } = openOptions(state);
  return numbers.length ? optionItems(turn).map(({ id }) => state.childTurns[id]) : [];
}

/** Return whether another option can be used, now or later, in place of the one of this number. */
export function hasOtherOption(state, number) {
  const turns = openOptionTurns(state);
  const isThis = ({ agentId }) => optionOf(agentId) === number;
  return turns.some(isThis) && turns.some((turn) => !isThis(turn) && (turn.status === "done" || turn.status === "running"));
}

/** Return the paths of a session's files, or of an option's, in order. */
export const pathsOf = (state, option = SESSION) =>
  Object.keys(state.artifacts[option] ?? {}).filter((path) => latest(state, option, path)).sort();

/** Return the revision of a file that is the session's now, or that grows; undefined if the path is no file any more. */
export const latest = (state, option, path) =>
  state.artifacts[option]?.[path]?.findLast(({ onPath, growing }) => onPath || growing);

/** Return whether a session or its options have a file that is to be looked at, and not read as code, and that is `wanted`. */
export const hasView = (state, wanted) => Object.keys(state.artifacts).some((option) => pathsOf(state, option).some((path) => {
  const file = latest(state, option, path);
  return isViewedType(file.mediaType) && wanted(file);
}));
