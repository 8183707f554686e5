// @ts-check
// The rows of a log: what is shown of a turn, one below the other, so that far ones can be left out one by one.

import { hasOtherOption, isOption, lastOptions, optionsOf, pickedOptions } from "../state/files.js";
import { optionOf } from "../state/revisions.js";
import { isTeamTurn } from "../state/team_turns.js";
import { isReading } from "../text/tool_words.js";
import { dividedText } from "./text_parts.js";

/** @typedef {import("../state/types.js").SessionState} SessionState */
/** @typedef {import("../state/types.js").Turn} Turn */
/** @typedef {import("../state/types.js").Item} Item */
/** @typedef {import("../state/types.js").CallItem} CallItem */
/** @typedef {import("../state/types.js").TextItem} TextItem */

/**
 * A row: `owner` is the turn that has it, as of a participant within the turn of the user's message. Of the other fields
 * each kind has those that it shows; `key` is unique in the session.
 * @typedef {{key: string, kind: string, owner: Turn | null, ids: string[], [field: string]: any}} Row
 */

/** A part of the state that rows were made from, besides their turn. @typedef {{of: "childTurns" | "agents" | "requests" | "picked" | "canPick" | "hasOther" | "isHead", id: string, value: any}} Part */

/** @type {WeakMap<Turn, {rows: Row[], parts: Part[], isLast: boolean}>} */
const made = new WeakMap();

/**
 * Return the rows of a turn; as long as nothing of it changes, the same ones.
 * @param {SessionState} state @param {Turn} turn @param {boolean} isLast whether no turn follows
 * @returns {Row[]}
 */
export function rowsOfTurn(state, turn, isLast) {
  const before = made.get(turn);
  if (before?.isLast === isLast && before.parts.every(({ of, id, value }) => PARTS[of](state, id) === value)) return before.rows;
  const maker = new Maker(state);
  const rows = [
    { key: turn.id, kind: "user", owner: turn, ids: [turn.id, turn.message.id], message: turn.message },
    ...maker.itemRows(turn),
    maker.endRow(turn, isLast),
    ...turn.notes.filter(isShown).filter(isLatest).map((note) => noteRow(turn, note)),
  ];
  made.set(turn, { rows, parts: maker.parts, isLast });
  return rows;
}

/** Return the rows of what happened before the first message. */
export function rowsBefore(/** @type {SessionState} */ state) {
  return state.notesBefore.filter(isShown).filter(isLatest).map((note) => noteRow(null, note));
}

/** @type {Record<Part["of"], (state: SessionState, id: string) => any>} */
const PARTS = {
  childTurns: (state, id) => state.childTurns[id],
  agents: (state, id) => state.agents[id],
  requests: (state, id) => requestOf(state.requests, id),
  picked: (state, id) => pickedOf(state).includes(id),
  canPick: (state, id) => lastOptions(state).numbers.includes(id) && pickedOf(state).at(-1) !== id,
  hasOther: hasOtherOption,
  isHead: (state, id) => state.lastMessageId === id,
};

/** Makes the rows of a turn, and notes the parts of the state that they are made from. */
class Maker {
  /** @param {SessionState} state */
  constructor(state) {
    this.state = state;
    /** @type {Part[]} */
    this.parts = [];
  }

  /** @param {Part["of"]} of @param {string} id */
  part(of, id) {
    const value = PARTS[of](this.state, id);
    this.parts.push({ of, id, value });
    return value;
  }

  /** @param {Turn} turn @param {boolean} isLast @returns {Row} */
  endRow(turn, isLast) {
    const isRunning = turn.status === "running";
    const running = isRunning ? this.parts.flatMap(({ of, value }) => of === "childTurns" && value?.status === "running" ? [value] : []) : [];
    const isHead = this.part("isHead", turn.end?.messageId ?? "");
    return { key: `${turn.id}/end`, kind: "end", owner: turn, ids: [], turn, isLast, isHead, running };
  }

  /** @param {Turn} turn */
  itemRows(turn) {
    /** @type {Row[]} */
    const rows = [];
    const below = this.requestsBelow(turn);
    const placed = new Set([...below.values()].flat());
    for (const item of turn.items) {
      if (!item.onPath || placed.has(item)) continue;
      if (item.kind === "turn") rows.push(...this.childRows(item));
      else if (item.kind === "text") {
        if (!isListOfOptions(turn, item)) rows.push(...textRows(turn, item));
      }
      else if (item.kind === "call") {
        this.addCall(turn, item, rows);
        const requests = (below.get(item.id) ?? []).map((request) => this.itemRow(turn, request));
        rows.push(...requests.filter(({ request }) => request?.answer)); // of an open one the card says that it waits
      }
      else {
        if (item.kind === "note" && item.type === "handoff" && isDone(rows.at(-1), turn)) rows.pop(); // the call says the same
        rows.push(this.itemRow(turn, item));
      }
    }
    return rows;
  }

  /**
   * Return the requests that stand below their calls, by the ids of these: several if a question was asked anew. A
   * question of the agent stands where it was asked, without a call.
   * @param {Turn} turn
   */
  requestsBelow({ items }) {
    const below = new Map(/** @type {[string, Item[]][]} */ ([]));
    for (const item of items) if (item.kind === "call" && item.onPath && item.name !== "ask_user") below.set(item.id, []);
    for (const item of items) {
      if (item.kind === "request" && item.onPath) below.get(requestOf(this.state.requests, item.id)?.toolCallId ?? "")?.push(item);
    }
    return below;
  }

  /** @param {Turn} turn @param {any} item @returns {Row} */
  itemRow(turn, item) {
    const ids = item.id && item.kind !== "thinking" ? [item.id] : []; // a thought has the id of the answer
    const row = { key: `${turn.id}/${item.key}`, kind: item.kind, owner: turn, ids, item };
    if (item.kind !== "request") return row;
    const request = this.part("requests", item.id);
    return { ...row, ids: [...ids, request?.toolCallId ?? ""], request };
  }

  /** Add a call; after one that only read, another one joins its row. @param {Turn} turn @param {CallItem} item @param {Row[]} rows */
  addCall(turn, item, rows) {
    const last = rows.at(-1);
    if (isReading(item) && last?.owner === turn && (last.kind === "reading" || (last.kind === "call" && isReading(last.item)))) {
      const row = last.kind === "reading" ? last : { ...last, kind: "reading", ids: [last.item.id], calls: [last.item] };
      row.calls.push(item);
      row.ids.push(item.id);
      rows[rows.length - 1] = row;
      return;
    }
    const request = item.requestId === null ? undefined : this.part("requests", item.requestId);
    if (item.name === "ask_user" && request) return; // the question stands below
    const agent = item.agentId === null ? undefined : this.part("agents", item.agentId);
    rows.push({ key: `${turn.id}/${item.key}`, kind: agent ? "agent" : "call", owner: turn, ids: [item.id], item, request, agent });
  }

  /** @param {string} number of an option */
  optionFields(number) {
    return { isPicked: this.part("picked", number), canPick: this.part("canPick", number), hasOther: this.part("hasOther", number) };
  }

  /** Return whether a turn of a participant is the person's. @param {Turn} turn */
  isPerson({ items }) {
    return items.some((item) => {
      const request = item.kind === "request" ? this.part("requests", item.id) : null;
      return request && isTeamTurn(request);
    });
  }

  /** An option is one row; a participant's speech has its rows below the name. @param {any} item @returns {Row[]} */
  childRows(item) {
    const child = this.part("childTurns", item.id);
    if (!child) return [];
    if (isOption(item.agentId)) {
      return [{ key: child.id, kind: "option", owner: child, ids: [child.id], turn: child, ...this.optionFields(optionOf(item.agentId)) }];
    }
    return [
      { key: child.id, kind: "speaker", owner: child, ids: [child.id, item.after], name: this.isPerson(child) ? "You" : item.agentId },
      ...this.itemRows(child),
    ];
  }
}

/** Return whether a text only lists the options of its turn, each of which has a row. @param {Turn} turn @param {TextItem} item */
const isListOfOptions = (turn, { text }) =>
  text.startsWith("- Option ") && optionsOf(turn).length > 0 && text.split("\n").every((line) => /^- Option \d+ \(/.test(line));

/** Return whether a row is that of a call in this turn that has succeeded. @param {Row | undefined} row @param {Turn} turn */
const isDone = (row, turn) => row?.kind === "call" && row.owner === turn && row.item.outcome === "ok";

/** Return the rows of a text: those of its parts, which have in `whole` the key of the first one. @param {Turn} turn @param {TextItem} item @returns {Row[]} */
function textRows(turn, item) {
  const { id, text, speaker, citations } = item;
  const whole = `${turn.id}/${item.key}`, isStreaming = !item.complete && turn.status === "running";
  const first = { key: whole, kind: "text", owner: turn, ids: [id], whole, place: 0, speaker, citations };
  const divided = dividedText(turn, item);
  if (!divided) return [{ ...first, text, isStreaming }];
  const { parts, references } = divided;
  return parts.map((part, place) => ({
    ...first, ...(place > 0 && { key: `${whole}/${place}`, ids: [], speaker: null }), place, part, references,
    isStreaming: isStreaming && place === parts.length - 1,
  }));
}

const noteRow = (turn, note) => ({ key: `${turn?.id ?? "before"}/after/${note.key}`, kind: "note", owner: turn, ids: [], item: note });
const isShown = ({ onPath }) => onPath;

/** Of several rewinds to one place the last is shown. */
const isLatest = (note, place, notes) => note.type !== "rewound" || notes[place + 1]?.type !== "rewound";

/** @type {WeakMap<SessionState, string[]>} */
const picked = new WeakMap();

/** Return the options that are picked. @param {SessionState} state */
function pickedOf(state) {
  let numbers = picked.get(state);
  if (!numbers) picked.set(state, numbers = pickedOptions(state));
  return numbers;
}

/** @typedef {import("../state/types.js").Request} Request */

/** @type {WeakMap<readonly Request[], Map<string, Request>>} */
const requestsById = new WeakMap();

/** @param {readonly Request[]} requests @param {string} id */
function requestOf(requests, id) {
  let byId = requestsById.get(requests);
  if (!byId) requestsById.set(requests, byId = new Map(requests.map((request) => [request.id, request])));
  return byId.get(id);
}
