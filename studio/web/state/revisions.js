// The files that live in a session, from its `artifact` events: each revision while it grows, and as it is stored.
// @ts-check

import { dictionary } from "./draft.js";

/** @typedef {import("./types.js").Revision} Revision */
/** @typedef {import("./types.js").SessionState} SessionState */
/** @typedef {import("./types.js").Turn} Turn */
/** @typedef {import("./draft.js").Draft} Draft */

const OPTION = /^option-(\d{1,9})$/; // the agent of an option
const TYPES = new Map([["html", "text/html"], ["htm", "text/html"], ["svg", "image/svg+xml"]]);
const encoder = new TextEncoder();

/** Return the number of the option that an agent writes, "0" for the session itself. @param {string} agentId */
export const optionOf = (agentId) => OPTION.exec(agentId)?.[1] ?? "0";

/**
 * Apply an `artifact` event of a turn, which is changeable.
 * @param {Draft} draft @param {SessionState} state @param {Turn} turn @param {Record<string, any>} data
 */
export function applyArtifact(draft, state, turn, data) {
  const { path, revision: number = 1 } = data;
  if (typeof path !== "string") return;
  const option = optionOf(turn.agentId);
  let at = (state.artifacts[option]?.[path] ?? []).findLastIndex((one) => one.number === number);
  if (data.dropped) {
    if (at >= 0) remove(draft, state, option, path, at);
    return;
  }
  const revisions = revisionsOf(draft, state, option, path);
  if (at < 0) {
    at = revisions.push(draft.made(newRevision(state, path, number, turn.id))) - 1;
    draft.part(turn, "_paths").push(path);
  }
  const revision = draft.part(revisions, at);
  if (typeof data.tool_call_id === "string") revision.toolCallId = data.tool_call_id;
  if (typeof data.delta === "string") addDelta(revision, data.delta, data.offset);
  if (typeof data.content === "string") revision.text = data.content;
  if (data.final) finish(revision, data);
}

/** Remove what a turn that ends has begun and not finished: it was not stored. @param {Draft} draft @param {SessionState} state */
export function dropUnfinished(draft, state, /** @type {Turn} */ turn) {
  const option = optionOf(turn.agentId);
  for (const path of new Set(turn._paths)) {
    const at = (state.artifacts[option][path] ?? []).findLastIndex((one) => one.growing && one.turnId === turn.id);
    if (at >= 0) remove(draft, state, option, path, at);
  }
  if (turn._paths.length) turn._paths = [];
}

/** Give the session the files of an option that was picked. @param {Draft} draft @param {SessionState} state */
export function adoptOption(draft, state, option) {
  for (const [path, revisions] of Object.entries(state.artifacts[option] ?? {})) {
    const own = revisionsOf(draft, state, "0", path);
    const known = new Set(revisions.map((one) => one.number));
    const kept = own.filter((one) => !known.has(one.number));
    const adopted = revisions.map((one) => draft.made({ ...one, after: state.lastMessageId, onPath: true }));
    own.splice(0, own.length, ...kept, ...adopted);
  }
}

/** Return the changeable revisions of a path. @param {Draft} draft @param {SessionState} state @returns {Revision[]} */
function revisionsOf(draft, state, option, path) {
  const artifacts = draft.part(state, "artifacts");
  artifacts[option] ??= draft.made(dictionary());
  const files = draft.part(artifacts, option);
  files[path] ??= draft.made([]);
  return draft.part(files, path);
}

/** @param {Draft} draft @param {SessionState} state */
function remove(draft, state, option, path, at) {
  const revisions = revisionsOf(draft, state, option, path);
  revisions.splice(at, 1);
  if (!revisions.length) delete state.artifacts[option][path];
}

/** @param {SessionState} state @returns {Revision} */
function newRevision(state, path, number, turnId) {
  return {
    path, number, text: null, mediaType: TYPES.get(/\.(\w+)$/.exec(path)?.[1].toLowerCase() ?? "") ?? "text/plain",
    size: null, sha256: null, growing: true, turnId, toolCallId: null,
    after: state.lastMessageId, onPath: true, _characters: 0,
  };
}

/** @param {Revision} revision @param {string} delta @param {number} offset */
function addDelta(revision, delta, offset) {
  if (offset !== revision._characters) {
    revision.text = null; // the stored file is loaded in its place
    revision._characters = -1;
    return;
  }
  revision.text = (revision.text ?? "") + delta;
  for (const _ of delta) revision._characters += 1; // offsets count code points
}

/** @param {Revision} revision @param {Record<string, any>} data */
function finish(revision, { sha256, size, media_type }) {
  revision.growing = false;
  revision.sha256 = sha256 ?? null;
  revision.size = size ?? null;
  revision.mediaType = media_type ?? revision.mediaType;
  if (revision.text !== null && encoder.encode(revision.text).length !== size) revision.text = null;
}
