// The state of a session from its events: `events.reduce` by batches, without elements, without a clock, without requests.
//
// Any client can show a session from this state, and the rules are the same for every client:
//
// - Events that have a `parent_turn_id` in their `turn_started` are of agents below: sub-agents (`agents` knows them),
//   participants of a team, and options of a message. They never change the conversation.
// - The messages form a tree. Each follows the one that was last when it came; a rewind makes another one the last, and
//   what is not between it and the beginning is no part of the conversation (`onPath`) until another rewind.
// - In a team each speech is a child turn, or a text with `speaker`; the answer at the end repeats the last one.
// - A message for a sub-agent waits (`subagent_message`) until its turn takes it (`steered`), or its next turn begins with it
//   (`message_ids` of `subagent_started`).
// - A text, a call and a turn can stay open: a `final`, a fatal `error` or a `subagent_paused` closes what its turn left.
// - Events that are unknown, malformed or of an unknown turn change nothing.
//
// The old state is never changed, and what an event leaves as it was keeps its identity, so that a view can compare nodes
// with `===`. However a log is divided into batches, the same state comes of it.
// @ts-check

import { Draft, dictionary, placeOf } from "./draft.js";
import { CONCURRENT, NO_REASONING, addEvent } from "./reasoning.js";
import { adoptOption, applyArtifact, dropUnfinished, optionOf } from "./revisions.js";

/** @typedef {import("./types.js").SessionState} SessionState */
/** @typedef {import("./types.js").Turn} Turn */
/** @typedef {import("./types.js").Item} Item */
/** @typedef {import("./types.js").CallItem} CallItem */
/** @typedef {import("./types.js").Envelope} Envelope */
/** @typedef {Envelope & {data: Record<string, any>, turn: Turn, isRoot: boolean, at: string | null}} TurnEvent */

/** @type {any} */
const NONE = Object.freeze([]);
const OUTPUT_CHARACTERS = 16384; // that are kept of what a running tool reports
const FINAL_STATUSES = new Map([["stopped", "stopped"], ["interrupted", "interrupted"]]);

/** @returns {SessionState} */
export function initialState() {
  return {
    session: {}, turns: [], childTurns: dictionary(), agents: dictionary(), requests: [], queue: [], handedBack: [],
    artifacts: dictionary(), runningTurnId: null, notesBefore: [], messages: [], lastMessageId: null,
    lastEventTs: null, lastSeq: 0, _acceptsCalls: false,
  };
}

/**
 * Return the state after more events of the session's log, in their order.
 * @param {SessionState} state @param {Iterable<Envelope>} events @returns {SessionState}
 */
export function applyEvents(state, events) {
  const fold = new Fold(state);
  for (const event of events) fold.apply(event);
  return fold.finish();
}

/** Return the message that precedes one, null for the first: rewinding to it lets the message be written anew. */
function previousMessageId(/** @type {SessionState} */ state, messageId) {
  return state.messages[placeOf(state.messages, messageId)]?.previousId ?? null;
}

/** Return whether a message is before another one or is it itself. @param {SessionState} state @param {string} id @param {string|null} last */
export function precedes(state, id, last) {
  let at = last;
  while (at !== null && at !== id) at = previousMessageId(state, at);
  return at === id;
}

/** Return a turn by its id, wherever it is; undefined if there is none. @returns {Turn | undefined} */
export function turnById(/** @type {SessionState} */ state, id) {
  return state.childTurns[id] ?? state.turns[placeOf(state.turns, id)];
}

/** Return an item of a turn by its key; undefined if there is none. @returns {Item | undefined} */
export function itemByKey(/** @type {Turn} */ turn, key) {
  return turn.items[placeOf(turn.items, key)];
}

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const textOf = (value) => (typeof value === "string" ? value : "");
const textOrNull = (value) => (typeof value === "string" ? value : null);
const numberOf = (value) => (typeof value === "number" ? value : 0);
const numberOrNull = (value) => (typeof value === "number" ? value : null);
const listOf = (value) => (Array.isArray(value) && value.length ? value : NONE);
const objectOf = (value) => (isObject(value) ? value : {});

class Fold {
  /** @param {SessionState} state */
  constructor(state) {
    this.draft = new Draft();
    this.state = this.draft.own(state);
    /** @type {Map<string, Turn>} */
    this.changed = new Map(); // turns of this batch
    this.isRewound = false;
  }

  /** @param {Envelope} event */
  apply(event) {
    if (!isObject(event)) return;
    if (typeof event.seq === "number") {
      if (event.seq <= this.state.lastSeq) return;
      this.state.lastSeq = event.seq;
    }
    const at = textOrNull(event.ts), id = event.session_id;
    this.state.lastEventTs = at ?? this.state.lastEventTs;
    if (typeof id === "string" && id !== this.state.session.id) this.state.session = { ...this.state.session, id };
    const data = objectOf(event.data);
    const ofSession = SESSION_EVENTS.get(event.type);
    if (ofSession) ofSession(this, { ...event, data, at });
    const ofTurn = TURN_EVENTS.get(event.type);
    if (!ofTurn) return;
    const turn = this.peek(event.turn_id)?.status === "running" ? this.turn(event.turn_id) : null;
    if (!turn) return;
    const isRoot = turn.parentTurnId === null;
    this.reason(turn, event, data);
    ofTurn(this, { ...event, data, turn, isRoot, at });
  }

  /** Return the new state; only here, as a rewind can change what was already looked at. */
  finish() {
    if (this.isRewound) this.markPath();
    return this.state;
  }

  // --- turns and items ------------------------------------------------------------------------------------------------

  /** Return a turn that is not to be changed; undefined if it is unknown. @param {any} id */
  peek(id) {
    return this.changed.get(id) ?? (typeof id === "string" ? turnById(this.state, id) : undefined);
  }

  /** Return a turn to be changed, null if it is unknown. @param {any} id @returns {Turn | null} */
  turn(id) {
    const known = this.changed.get(id);
    if (known || typeof id !== "string") return known ?? null;
    const { draft, state } = this;
    const place = id in state.childTurns ? -1 : placeOf(state.turns, id);
    if (place < 0 && !(id in state.childTurns)) return null;
    const turn = place < 0 ? draft.part(draft.part(state, "childTurns"), id) : draft.part(draft.part(state, "turns"), place);
    this.changed.set(id, turn);
    return turn;
  }

  /** @param {Turn} turn @param {any} item */
  add(turn, item) {
    const after = turn.parentTurnId === null ? this.state.lastMessageId : null;
    const added = this.draft.made({ ...item, after, onPath: true });
    this.draft.part(turn, "items").push(added);
    return added;
  }

  /** Return an item to be changed, null if it is unknown. @param {Turn} turn @param {string | null} key @returns {any} */
  item(turn, key) {
    const last = turn.items.length - 1;
    const place = key === null ? -1 : turn.items[last]?.key === key ? last : placeOf(turn.items, key);
    return place < 0 ? null : this.draft.part(this.draft.part(turn, "items"), place);
  }

  /** @param {Turn} turn @param {any} id @returns {CallItem | null} */
  call(turn, id) { return this.item(turn, `call:${id}`); }

  /** Add what happened after the last message; before the first one there is no turn to add it to. */
  note(type, data, at) {
    const { lastMessageId: after, messages } = this.state;
    const turn = after === null ? null : this.turn(messages[placeOf(messages, after)]?.turnId);
    const notes = turn ? this.draft.part(turn, "notes") : this.draft.part(this.state, "notesBefore");
    notes.push(this.draft.made({ kind: "note", key: `note:${notes.length}`, type, data, at, after, onPath: true }));
  }

  // --- the tree of messages -------------------------------------------------------------------------------------------

  /** Append a message to the conversation, unless it is known. */
  append(id, turnId, acceptsCalls = false) {
    const { state } = this;
    state._acceptsCalls = acceptsCalls;
    if (typeof id !== "string" || id === state.lastMessageId || placeOf(state.messages, id) >= 0) return;
    const messages = this.draft.part(state, "messages");
    messages.push(this.draft.made({ key: id, previousId: state.lastMessageId, turnId }));
    state.lastMessageId = id;
  }

  /** Make a message the last one, and return the one that was. @param {any} id */
  rewind(id) {
    const { state } = this;
    const before = state.lastMessageId;
    state.lastMessageId = placeOf(state.messages, id) >= 0 ? id : null;
    state._acceptsCalls = false;
    this.isRewound = true;
    return before;
  }

  markPath() {
    const { state } = this;
    /** @type {Set<string | null>} */
    const path = new Set([null]);
    for (let id = state.lastMessageId; id !== null && !path.has(id); id = previousMessageId(state, id)) path.add(id);
    /** @type {Map<string | null, number>} */
    const latest = new Map(); // rewinds, by the message that each went to
    for (const { notes } of [{ notes: state.notesBefore }, ...state.turns]) {
      for (const { type, data } of notes) if (type === "rewound") latest.set(data.rewound_to, Math.max(latest.get(data.rewound_to) ?? 0, data.seq));
    }
    /** A rewind is shown as long as its undo brings something back, and until that is done. */
    const isOn = ({ after, type, data }) => path.has(after)
      && (type !== "rewound" || (!path.has(data.undo) && !(Number(latest.get(data.undo)) > data.seq)));
    const mark = (list, /** @type {() => any} */ owner, /** @type {string} */ key) => list.forEach((one, place) => {
      const onPath = isOn(one);
      if (one.onPath !== onPath) this.draft.part(this.draft.part(owner(), key), place).onPath = onPath;
    });
    mark(state.notesBefore, () => state, "notesBefore");
    state.turns.forEach(({ id, message, items, notes, onPath }) => {
      const turn = () => /** @type {any} */ (this.turn(id));
      if (onPath !== path.has(message.id)) turn().onPath = !onPath;
      mark(items, turn, "items");
      mark(notes, turn, "notes");
    });
    for (const option of Object.keys(state.artifacts)) this.markFiles(option, path);
  }

  markFiles(option, /** @type {Set<any>} */ path) {
    const { draft, state } = this;
    for (const [name, revisions] of Object.entries(state.artifacts[option])) {
      revisions.forEach((one, place) => {
        if (one.onPath === path.has(one.after)) return;
        const files = draft.part(draft.part(state, "artifacts"), option);
        draft.part(draft.part(files, name), place).onPath = path.has(one.after);
      });
    }
  }

  // --- parts that several events change -------------------------------------------------------------------------------

  /** Add to the reasoning steps; most tokens add none. */
  reason(/** @type {Turn} */ turn, /** @type {Envelope} */ event, data) {
    if (!REASONING_EVENTS.has(event.type)) return;
    if (event.type === "token" && (turn._reasoning.thought === null || !data.text)) return;
    const text = textOf(data.text), result = textOf(data.result), name = textOf(data.name);
    turn._reasoning = addEvent(turn._reasoning, { ...event, data: { ...data, text, result, name } });
    turn.steps = turn._reasoning.steps;
  }

  /** Return the text item of a message, which is added if it is new; null if it would repeat the last speech. */
  text(/** @type {TurnEvent} */ { turn, isRoot }, id) {
    if (isRoot) this.append(id, turn.id, true);
    if (turn._speech !== null) return null;
    const key = `text:${id}`;
    if (turn._openText !== key) this.completeText(turn);
    if (turn._openText !== key && this.peek(turn.parentTurnId)?._isTalk) {
      const parent = /** @type {Turn} */ (this.turn(turn.parentTurnId));
      this.draft.part(parent, "_spoken")[id] = turn.id;
    }
    turn._openText = key;
    return this.item(turn, key)
      ?? this.add(turn, { kind: "text", key, id, text: "", complete: false, speaker: null, citations: [] });
  }

  /**
   * Of the calls of a round, have those wait that have not begun: they stand behind one that waits for the person, or
   * behind one that has not ended, unless both run at the same time, which is only known of some tools before they
   * report. A call whose turn has come begins `at` that time.
   */
  queueCalls(/** @type {Turn} */ turn, /** @type {string | null} */ at) {
    const { items } = turn;
    let place = items.length;
    for (; place > 0; place -= 1) {
      const { kind, phase } = /** @type {any} */ (items[place - 1]);
      if (kind === "text" || kind === "thinking" || phase === "done") break;
    }
    for (let isFirst = true, waits = false; place < items.length; place += 1) {
      const { kind, key, name, args, phase, requestId } = /** @type {any} */ (items[place]);
      if (kind !== "call") continue;
      const isAlone = !CONCURRENT.has(name);
      waits ||= isAlone && !isFirst;
      if (waits && phase === "requested") this.item(turn, key).phase = "queued";
      else if (!waits && phase === "queued" && requestId === null && args !== null) {
        Object.assign(this.item(turn, key), { phase: "requested", startedAt: at });
      }
      waits ||= isAlone || phase === "waiting";
      isFirst = false;
    }
  }

  completeText(/** @type {Turn} */ turn) {
    if (turn._openText === null) return;
    const item = this.item(turn, turn._openText);
    if (item) item.complete = true;
    turn._openText = null;
  }

  endThinking(/** @type {Turn} */ turn, at) {
    if (turn._openThinking === null) return;
    this.item(turn, turn._openThinking).endedAt = at;
    turn._openThinking = null;
  }

  /** The model says something, or a tool: nothing is waited for any more. */
  outputArrived(/** @type {Turn} */ turn) {
    if (turn.waiting) turn.waiting = null;
  }

  /** @param {TurnEvent} event @param {Turn["status"]} status @param {Partial<import("./types.js").End>} end */
  endTurn({ turn, isRoot, at }, status, end) {
    turn.status = status;
    turn.endedAt = at;
    turn.waiting = null;
    turn.speakers = NONE;
    turn.end = {
      reason: null, code: null, text: "", messageId: null, retryable: false, retryAt: null, output: null, stopReason: null,
      ...end,
    };
    this.completeText(turn);
    this.endThinking(turn, at);
    turn.items.forEach((one, place) => {
      if (one.kind !== "call" || one.phase === "done") return;
      const call = /** @type {CallItem} */ (this.draft.part(this.draft.part(turn, "items"), place));
      const isCut = call.args === null;
      call.outcome = !isCut ? "unknown" : status === "stopped" ? "stopped" : "dropped";
      call.phase = "done";
      call.isError = true;
    });
    dropUnfinished(this.draft, this.state, turn);
    if (isRoot && this.state.runningTurnId === turn.id) this.state.runningTurnId = null;
  }

  /** Return a sub-agent that is not to be changed; undefined if it is none. @param {any} id */
  peekAgent(id) { return typeof id === "string" && id in this.state.agents ? this.state.agents[id] : undefined; }

  /** Return a sub-agent to be changed, null if it is none. @param {any} id */
  agent(id) {
    if (typeof id !== "string" || !(id in this.state.agents)) return null;
    return this.draft.part(this.draft.part(this.state, "agents"), id);
  }
}

const REASONING_EVENTS = new Set([
  "thinking", "tool_call", "tool_result", "token", "final", "subagent_paused", "error", "confirm_required", "confirm_response",
  "question_asked", "question_answered",
]);

// --- turns ------------------------------------------------------------------------------------------------------------

/** @param {Fold} fold @param {any} event */
function startTurn(fold, { data, turn_id, agent_id, at, ...event }) {
  if (typeof turn_id !== "string" || fold.peek(turn_id)) return;
  const { draft, state } = fold;
  const parentTurnId = textOrNull(data.parent_turn_id);
  const isRoot = parentTurnId === null;
  const agentId = textOf(agent_id);
  const message = {
    id: textOf(data.message_id), text: textOf(data.input), attachments: listOf(data.attachments),
    clientTurnId: textOrNull(data.client_turn_id), senders: isRoot ? NONE : sendersOf(fold, agentId),
  };
  const reasoning = addEvent(NO_REASONING, { ...event, type: "turn_started", data, turn_id });
  /** @type {Turn} */
  const turn = draft.made({
    key: turn_id, id: turn_id, agentId, parentTurnId, message, model: textOf(data.model), mode: textOrNull(data.mode),
    modeReason: textOrNull(data.mode_reason), permissionMode: textOrNull(data.permission_mode), startedAt: at,
    endedAt: null, status: "running", state: null, round: 0, maxRounds: 0, speakers: NONE, waiting: null, items: [],
    notes: [], usage: { inputTokens: null, outputTokens: null, cachedTokens: null, reasoningTokens: null, costUsd: null },
    steps: reasoning.steps, end: null, onPath: true, _reasoning: reasoning, _openText: null, _openThinking: null,
    _isTalk: false, _spoken: dictionary(), _paths: [], _speech: null,
  });
  fold.changed.set(turn_id, turn);
  if (!isRoot) {
    draft.part(state, "childTurns")[turn_id] = turn;
    placeChild(fold, turn);
    return;
  }
  draft.part(state, "turns").push(turn);
  state.runningTurnId = turn_id;
  leaveQueue(fold, message.id);
  fold.append(message.id, turn_id);
}

/** Return who sent the messages with which a turn of a sub-agent begins. @returns {(string | null)[]} */
function sendersOf(/** @type {Fold} */ fold, agentId) {
  const agent = fold.agent(agentId), senders = agent?._senders ?? NONE;
  if (agent) agent._senders = NONE;
  return senders;
}

/** A sub-agent lists its turns; one of a participant or an option is an item of the turn above. */
function placeChild(/** @type {Fold} */ fold, /** @type {Turn} */ turn) {
  const agent = fold.agent(turn.agentId);
  if (agent) fold.draft.part(agent, "turnIds").push(turn.id);
  const parent = agent ? null : fold.turn(turn.parentTurnId);
  if (parent) fold.add(parent, { kind: "turn", key: `turn:${turn.id}`, id: turn.id, agentId: turn.agentId });
}

/** @param {Fold} fold @param {TurnEvent} event */
function onRoundStart(fold, { turn, isRoot, agent_id, data }) {
  turn.round = numberOf(data.round);
  turn.maxRounds = numberOf(data.max_rounds);
  fold.completeText(turn);
  if (isRoot) fold.state._acceptsCalls = false;
  const agent = fold.agent(agent_id);
  if (agent) Object.assign(agent, { rounds: agent.rounds + 1, round: turn.round, maxRounds: turn.maxRounds });
}

/** @param {Fold} fold @param {TurnEvent} event */
function onState(fold, { turn, data, at }) {
  turn.state = textOf(data.state);
  if (turn.state === "planning") turn.waiting = fold.draft.made(waitingFor("model", at));
  if (turn.state === "compacting") turn.waiting = fold.draft.made(waitingFor("compaction", at));
}

/** @returns {import("./types.js").Waiting} */
function waitingFor(phase, at, data = {}) {
  return {
    phase, since: before(at, numberOf(data.elapsed_seconds)), elapsedSeconds: numberOf(data.elapsed_seconds),
    limitSeconds: numberOrNull(data.limit_seconds), action: textOf(data.action) || "waiting",
    retryAt: textOrNull(data.retry_at), model: textOrNull(data.model),
  };
}

/** Return the time so many seconds before another. */
function before(at, /** @type {number} */ seconds) {
  const time = at === null ? NaN : Date.parse(at) - 1000 * seconds;
  return Math.abs(time) < 8e15 ? new Date(time).toISOString() : at;
}

const isBefore = (at, /** @type {string} */ time) => Date.parse(at ?? "") < Date.parse(time);

/** @param {Fold} fold @param {TurnEvent} event */
function onStall(fold, { turn, data, at }) {
  turn.waiting = fold.draft.made(waitingFor(textOf(data.phase), at, data));
  if (data.action === "retrying" && data.reason) addTurnNote(fold, turn, "retrying", data, at);
}

/** Add a note among the items of a turn, where it happened. */
function addTurnNote(
  /** @type {Fold} */ fold, /** @type {Turn} */ turn, type, data,
  at,
) {
  fold.add(turn, { kind: "note", key: `note:${turn.items.length}`, type, data, at });
}

/** @param {string} type @returns {(fold: Fold, event: TurnEvent) => void} */
const noteOf = (type) => (fold, { turn, data, at }) => addTurnNote(fold, turn, type, data, at);

/** @param {Fold} fold @param {TurnEvent} event */
function onToken(fold, event) {
  const { turn, data, at } = event;
  const added = textOf(data.text);
  if (!added) {
    if (data.waiting && !(turn.waiting?.retryAt && isBefore(at, turn.waiting.retryAt))) {
      turn.waiting = fold.draft.made(waitingFor("model", at, data));
    }
    return;
  }
  fold.outputArrived(turn);
  fold.endThinking(turn, at);
  const item = fold.text(event, textOf(data.message_id));
  if (!item) return;
  item.text += added;
  item.complete = false;
}

/** @param {Fold} fold @param {TurnEvent} event */
function onThinking(fold, { turn, data, at }) {
  fold.outputArrived(turn);
  const id = textOf(data.message_id);
  let item = fold.item(turn, turn._openThinking);
  if (item?.id !== id) {
    fold.endThinking(turn, at);
    const key = `thinking:${turn.items.length}`;
    item = fold.add(turn, { kind: "thinking", key, id, text: "", startedAt: at, endedAt: null });
    turn._openThinking = key;
  }
  item.text += textOf(data.text);
}

/** @param {Fold} fold @param {TurnEvent} event */
function onSteered(fold, { turn, isRoot, data }) {
  const id = textOf(data.message_id);
  leaveQueue(fold, id);
  const [fromAgentId = null] = takeMessages(fold, turn.agentId, [id]);
  turn._isTalk = false;
  turn._speech = null;
  fold.completeText(turn);
  if (isRoot) fold.append(id, turn.id);
  const attachments = listOf(data.attachments);
  fold.add(turn, { kind: "message", key: `message:${id}`, id, text: textOf(data.text), attachments, fromAgentId });
}

/** @param {Fold} fold @param {TurnEvent} event */
function onCitation(fold, event) {
  if (event.turn._speech !== null) return;
  const item = fold.text(event, textOf(event.data.message_id));
  if (item) fold.draft.part(item, "citations").push(event.data);
}

/** @param {Fold} fold @param {TurnEvent} event */
function onUsage(fold, { turn, agent_id, data }) {
  const added = usageOf(data);
  for (const key of /** @type {(keyof typeof added)[]} */ (Object.keys(added))) {
    const value = added[key];
    if (value !== null) added[key] = (turn.usage[key] ?? 0) + value;
  }
  setUsage(fold, turn, added);
  const tokens = numberOf(data.input_tokens) + numberOf(data.output_tokens);
  const agent = tokens > 0 ? fold.agent(agent_id) : null;
  if (agent) agent.tokens += tokens;
}

/** Set the counts that are known. */
function setUsage(/** @type {Fold} */ fold, /** @type {Turn} */ turn, /** @type {import("./types.js").Usage} */ counts) {
  for (const key of /** @type {(keyof typeof counts)[]} */ (Object.keys(counts))) {
    const value = counts[key];
    if (value !== null && value !== turn.usage[key]) fold.draft.part(turn, "usage")[key] = value;
  }
}

/** @returns {import("./types.js").Usage} */
function usageOf(data) {
  const cost = data.cost_usd === undefined || data.cost_usd === null ? NaN : Number(data.cost_usd);
  return {
    inputTokens: numberOrNull(data.input_tokens), outputTokens: numberOrNull(data.output_tokens),
    cachedTokens: numberOrNull(data.cached_tokens), reasoningTokens: numberOrNull(data.reasoning_tokens),
    costUsd: Number.isFinite(cost) ? cost : null,
  };
}

/** @param {Fold} fold @param {TurnEvent} event */
function onFinal(fold, event) {
  const { turn, data } = event;
  const text = textOf(data.text), messageId = textOf(data.message_id), reason = textOf(data.reason);
  if (text) {
    if (turn._speech !== null && turn._speech !== text) turn._speech = null;
    const item = fold.text(event, messageId);
    if (item && item.text !== text) item.text = text;
  }
  setUsage(fold, turn, usageOf(objectOf(data.usage)));
  fold.endTurn(event, reason === "partial" ? "partial" : "done", {
    reason, text, messageId, output: data.output ?? null, stopReason: textOrNull(data.stop_reason),
  });
}

/** @param {Fold} fold @param {TurnEvent} event */
function onError(fold, event) {
  const { turn, data, at } = event;
  if (!data.fatal) { addTurnNote(fold, turn, "error", data, at); return; }
  const code = textOf(data.code);
  fold.endTurn(event, /** @type {any} */ (FINAL_STATUSES.get(code) ?? "failed"), {
    code, text: textOf(data.text), retryable: data.retryable === true, retryAt: textOrNull(data.retry_at),
  });
  const agent = fold.agent(turn.agentId);
  if (agent?.status === "running") Object.assign(agent, failed(data, at, agent)); // in a fork no other event says so
}

// --- calls and requests -----------------------------------------------------------------------------------------------

/** Return the call with that id to be changed, which is added if it is new. @returns {CallItem} */
function callItem(/** @type {Fold} */ fold, /** @type {Turn} */ turn, data) {
  const id = textOf(data.tool_call_id);
  return fold.call(turn, id) ?? fold.add(turn, {
    kind: "call", key: `call:${id}`, id, name: textOf(data.name), args: null, argsText: "", phase: "written",
    startedAt: null, outcome: null, isError: false, result: null, output: "", elapsedSeconds: 0, durationMs: null,
    truncated: false, repaired: false, edited: false, allowedBy: NONE, data: null, attachments: NONE, requestId: null, agentId: null,
  });
}

/** @param {Fold} fold @param {TurnEvent} event */
function onToolCallDelta(fold, { turn, data, at }) {
  fold.outputArrived(turn);
  fold.endThinking(turn, at);
  fold.completeText(turn);
  const { length } = turn.items;
  const call = callItem(fold, turn, data);
  for (let place = length - 1; length < turn.items.length && place >= 0; place -= 1) { // others wait while it is written
    const { key, phase } = /** @type {any} */ (turn.items[place]);
    if (phase !== "written") break;
    fold.item(turn, key).phase = "queued";
  }
  if (call.args === null) call.phase = "written";
  call.argsText += textOf(data.arguments_delta);
}

/** @param {Fold} fold @param {TurnEvent} event */
function onToolCall(fold, { turn, isRoot, data, at }) {
  fold.outputArrived(turn);
  fold.endThinking(turn, at);
  fold.completeText(turn);
  if (isRoot && !fold.state._acceptsCalls) fold.append(`calls_${data.tool_call_id}`, turn.id, true);
  const call = callItem(fold, turn, data);
  call.name = textOf(data.name) || call.name;
  if (call.args === null && call.phase !== "done") call.phase = "requested";
  call.args = isObject(data.arguments) ? data.arguments : textOf(data.arguments);
  call.argsText = "";
  call.startedAt = at;
  fold.queueCalls(turn, at);
}

/** @param {Fold} fold @param {TurnEvent} event */
function onToolProgress(fold, { turn, data, at }) {
  fold.outputArrived(turn);
  const call = fold.call(turn, data.tool_call_id);
  if (!call || call.phase === "done") return;
  call.elapsedSeconds = numberOf(data.elapsed_seconds);
  if (call.phase !== "running") Object.assign(call, { phase: "running", startedAt: before(at, call.elapsedSeconds) });
  if (typeof data.output === "string") call.output = endOf(call.output + data.output);
}

/** Return the last characters of a text, no half one at their beginning. */
function endOf(text) {
  if (text.length <= OUTPUT_CHARACTERS) return text;
  const end = text.slice(-OUTPUT_CHARACTERS);
  return /^[\udc00-\udfff]/.test(end) ? end.slice(1) : end;
}

/** @param {Fold} fold @param {TurnEvent} event */
function onToolResult(fold, { turn, isRoot, data, at }) {
  fold.outputArrived(turn);
  if (isRoot) fold.append(`result_${data.tool_call_id}`, turn.id);
  const call = fold.call(turn, data.tool_call_id);
  if (!call) return;
  call.phase = "done";
  call.isError = data.is_error === true;
  call.outcome = textOf(data.outcome) || (call.isError ? "error" : "ok");
  call.result = typeof data.result === "string" ? data.result : JSON.stringify(data.result ?? null);
  call.durationMs = numberOrNull(data.duration_ms);
  call.truncated = data.truncated === true;
  call.repaired = data.repaired === true;
  call.allowedBy = listOf(data.allowed_by);
  call.attachments = listOf(data.attachments);
  call.data = data.data ?? null;
  fold.queueCalls(turn, at);
  if (call.name === "spawn_subagent" && !call.isError) linkAgent(fold, call);
}

/** Note which sub-agent a call began, as its result says; the event of the start need not name the call. */
function linkAgent(/** @type {Fold} */ fold, /** @type {CallItem} */ call) {
  const id = /^\{"agent_id": ?"([^"\\]{1,200})"/.exec(call.result ?? "")?.[1];
  const agent = fold.agent(id);
  if (!agent) return;
  call.agentId = agent.id;
  agent.spawnCallId = call.id;
}

/** @param {"confirm" | "question"} kind @returns {(fold: Fold, event: TurnEvent) => void} */
const ask = (kind) => (fold, { turn, agent_id, data, at }) => {
  const id = textOf(data.id);
  if (placeOf(fold.state.requests, id) >= 0) return;
  const context = objectOf(data.context);
  const toolCallId = textOrNull(kind === "confirm" ? context.tool_call_id : data.tool_call_id);
  const requests = fold.draft.part(fold.state, "requests");
  const before = toolCallId === null ? -1 : requests.findLastIndex((one) => one.toolCallId === toolCallId && one.turnId === turn.id);
  if (requests[before]?.answer?.by === "policy") fold.draft.part(requests, before).isAskedAnew = true;
  requests.push(fold.draft.made({
    key: id, id, kind, turnId: turn.id, agentId: textOf(agent_id), agentPath: listOf(data.agent_path), toolCallId,
    tool: textOrNull(context.tool), question: textOf(kind === "confirm" ? data.question : data.text),
    options: listOf(data.options), context, digest: textOrNull(data.digest), askedAt: at,
    expiresAt: textOrNull(data.expires_at), answer: null, isAskedAnew: false,
  }));
  fold.add(turn, { kind: "request", key: `request:${id}`, id });
  const call = toolCallId === null ? null : fold.call(turn, toolCallId);
  if (!call || call.phase === "done") return;
  call.phase = "waiting";
  call.requestId = id;
  fold.queueCalls(turn, at);
};

/** @param {Fold} fold @param {any} event */
function answer(fold, { data, at, ...event }) {
  const place = placeOf(fold.state.requests, textOf(data.id));
  if (place < 0 || fold.state.requests[place].answer) return;
  const request = fold.draft.part(fold.draft.part(fold.state, "requests"), place);
  request.answer = fold.draft.made({
    approved: typeof data.approved === "boolean" ? data.approved : null, answer: textOrNull(data.answer),
    by: textOf(data.by), reason: textOrNull(data.reason), remember: textOrNull(data.remember), rules: listOf(data.rules),
    arguments: isObject(data.arguments) ? data.arguments : null, at,
  });
  const turn = request.toolCallId === null ? null : fold.turn(request.turnId);
  if (turn) fold.reason(turn, { ...event, ts: at, turn_id: turn.id }, data);
  const call = turn && fold.call(turn, request.toolCallId);
  if (!call || call.phase !== "waiting") return;
  call.phase = data.approved === true ? "running" : data.approved === false ? "queued" : "requested";
  call.startedAt = at;
  fold.queueCalls(turn, at);
  if (data.approved && request.answer.arguments) Object.assign(call, { args: request.answer.arguments, edited: true });
}

// --- teams ------------------------------------------------------------------------------------------------------------

/** @param {Fold} fold @param {TurnEvent} event */
function onSpeakerSelected(fold, { turn, data, at }) {
  turn._isTalk = true;
  turn._spoken = fold.draft.made(dictionary());
  turn.speakers = listOf(data.speakers).map(textOf);
  if (data.fallback !== undefined) addTurnNote(fold, turn, "speaker_selected", data, at);
}

/** @param {Fold} fold @param {TurnEvent} event */
function onTeamMessage(fold, { turn, isRoot, data }) {
  const message = objectOf(data.message);
  if (!turn._isTalk || !("content" in message) || textOf(message.type).endsWith("Event")) return; // no speech
  const id = textOf(message.id);
  if (isRoot) fold.append(id, turn.id);
  fold.completeText(turn);
  const text = speechText(message);
  turn._speech = [...saidBeside(message), text].join("\n");
  const shown = id in turn._spoken ? fold.item(turn, `turn:${turn._spoken[id]}`) : handedOver(fold, turn, message);
  if (shown) { // by the turn of the participant, which becomes this message
    shown.after = id;
    return;
  }
  fold.add(turn, { kind: "text", key: `text:${id}`, id, text, complete: true, speaker: textOf(message.source), citations: [] });
}

/** Return the turn of the participant that hands over by this message, null if the message says more than the turn shows. */
function handedOver(/** @type {Fold} */ fold, /** @type {Turn} */ turn, { type, source, target, content }) {
  if (type !== "HandoffMessage" || content !== `Transferred to ${target}, adopting the role of ${target} immediately.`) return null;
  const item = turn.items.findLast((one) => one.kind === "turn" && one.agentId === source);
  const isShown = item?.kind === "turn" && fold.peek(item.id)?.items.some(isHandoff);
  return isShown ? fold.item(turn, item.key) : null;
}

const isHandoff = (/** @type {Item} */ item) => item.kind === "note" && item.type === "handoff";

/** Return what was said beside the call that hands over, which the answer repeats. @returns {string[]} */
function saidBeside({ type, source, context }) {
  const said = type === "HandoffMessage" ? listOf(context).map(objectOf) : [];
  return said.filter(({ role, sender, content }) => role === "assistant" && sender === source && content).map(({ content }) => textOf(content));
}

/** Return the text of a speech; of an attachment it has the name. */
function speechText({ type, content, metadata }) {
  let text = typeof content === "string" ? content : JSON.stringify(content);
  if (type === "MultiModalMessage" && Array.isArray(content)) {
    text = content.map((part) => (isObject(part) ? `[${textOf(part.name)}]` : String(part))).join("\n");
  }
  const reason = type === "HandoffMessage" ? textOf(objectOf(metadata).reason) : "";
  return reason ? `${text}\nReason: ${reason}` : text;
}

// --- sub-agents -------------------------------------------------------------------------------------------------------

/** @param {Fold} fold @param {any} event */
function startAgent(fold, { data, agent_id, turn_id, at }) {
  if (typeof agent_id !== "string") return;
  const known = fold.agent(agent_id);
  const task = textOf(data.task), spawnCallId = textOrNull(data.tool_call_id);
  if (known) {
    const senders = takeMessages(fold, agent_id, listOf(data.message_ids));
    Object.assign(known, { status: "running", task, result: null, error: null, startedAt: at, endedAt: null });
    known._senders = data.anew ? NONE : senders; // a retry begins with the task
    return;
  }
  fold.draft.part(fold.state, "agents")[agent_id] = fold.draft.made({
    id: agent_id, parentId: textOrNull(data.parent_agent_id), depth: numberOf(data.depth), task, status: "running",
    rounds: 0, round: 0, maxRounds: 0, result: null, error: null, spawnCallId, turnIds: [], waiting: NONE, tokens: 0, activity: "",
    startedAt: at, endedAt: null, _senders: NONE,
  });
  const turn = spawnCallId === null ? null : fold.turn(turn_id);
  const call = turn && fold.call(turn, spawnCallId);
  if (call) call.agentId = agent_id;
}

/** @param {Fold} fold @param {any} event */
function messageAgent(fold, { data, agent_id, at }) {
  const agent = fold.agent(agent_id), id = textOf(data.message_id);
  if (!agent || agent.waiting.some((one) => one.id === id)) return;
  const message = { id, text: textOf(data.text), fromAgentId: textOrNull(data.from_agent_id), at };
  fold.draft.part(agent, "waiting").push(fold.draft.made(message));
}

/** Take messages from those that wait for a sub-agent, and return who sent each. @returns {(string | null)[]} */
function takeMessages(/** @type {Fold} */ fold, agentId, /** @type {any[]} */ ids) {
  const taken = fold.peekAgent(agentId)?.waiting.filter(({ id }) => ids.includes(id)) ?? NONE;
  if (!taken.length) return NONE;
  const agent = /** @type {any} */ (fold.agent(agentId));
  agent.waiting = fold.draft.made(agent.waiting.filter((one) => !taken.includes(one)));
  return taken.map(({ fromAgentId }) => fromAgentId);
}

/** @param {(data: Record<string, any>, at: string | null, agent: import("./types.js").Agent) => object} change @returns {(fold: Fold, event: any) => void} */
const changeAgent = (change) => (fold, { data, agent_id, at }) => {
  const agent = fold.agent(agent_id);
  if (agent) Object.assign(agent, change(data, at, agent));
};

/** The end of its turn says so, and then the report of it. @returns {Partial<import("./types.js").Agent>} */
function failed(data, /** @type {string | null} */ endedAt, /** @type {import("./types.js").Agent} */ { error }) {
  const code = textOf(data.code), text = textOf(data.text);
  const isKnown = error?.code === code && error.text === text;
  return { status: code === "stopped" ? "cancelled" : "failed", error: isKnown ? error : { code, text }, endedAt };
}

// --- the session ------------------------------------------------------------------------------------------------------

/** @param {Fold} fold @param {any} event */
function queued(fold, { data, at }) {
  const { draft, state } = fold;
  const message = draft.made({
    messageId: textOf(data.message_id), turnId: textOrNull(data.turn_id), clientTurnId: textOrNull(data.client_turn_id),
    input: textOf(data.input), attachments: listOf(data.attachments),
    position: /** @type {"into" | "after"} */ (data.turn_id === state.runningTurnId ? "into" : "after"), at,
  });
  const place = state.queue.findIndex((one) => one.messageId === message.messageId);
  const queue = draft.part(state, "queue");
  if (place < 0) queue.push(message);
  else queue[place] = message; // the turn that was to receive it ended first
}

/** @param {Fold} fold @param {any} event */
function handedBack(fold, event) {
  const { data, at } = event;
  const known = fold.state.queue.find((one) => one.messageId === data.message_id);
  leaveQueue(fold, data.message_id);
  if (data.removed) return; // a person has taken it back
  const clientTurnId = textOrNull(data.client_turn_id) ?? known?.clientTurnId ?? null;
  fold.draft.part(fold.state, "handedBack").push(fold.draft.made({
    messageId: textOf(data.message_id), turnId: textOrNull(data.turn_id), clientTurnId, input: textOf(data.input),
    attachments: listOf(data.attachments), position: known?.position ?? "after", at,
  }));
  fold.note("handed_back", data, at);
}

function leaveQueue(/** @type {Fold} */ fold, /** @type {any} */ messageId) {
  const { queue } = fold.state;
  if (queue.some((one) => one.messageId === messageId)) {
    fold.state.queue = fold.draft.made(queue.filter((one) => one.messageId !== messageId));
  }
}

/** @param {Fold} fold @param {any} event */
function changeSession(fold, { data, at }) {
  const { rewound_to, picked, message_id, text, team_reset, rule_removed, ...fields } = data;
  if (Object.keys(fields).length) fold.state.session = { ...fold.state.session, ...fields };
  if (rewound_to !== undefined) {
    const undo = fold.rewind(rewound_to);
    fold.note("rewound", { rewound_to, undo, seq: fold.state.lastSeq }, at);
  }
  if (picked !== undefined) {
    if (textOf(message_id) && textOf(text)) fold.append(message_id, turnOfLast(fold.state));
    adoptOption(fold.draft, fold.state, String(picked));
    fold.note("picked", { picked }, at);
  }
  if (team_reset !== undefined) fold.note("team_reset", { team_reset }, at);
}

/** Return the turn of the last message, which a message without a turn follows. */
const turnOfLast = (/** @type {SessionState} */ { messages, lastMessageId }) =>
  lastMessageId === null ? null : messages[placeOf(messages, lastMessageId)]?.turnId ?? null;

/** @type {Map<string, (fold: Fold, event: any) => void>} */
const SESSION_EVENTS = new Map([
  ["turn_started", startTurn],
  ["session_changed", changeSession],
  ["queued", queued],
  ["handed_back", handedBack],
  ["confirm_response", answer],
  ["question_answered", answer],
  ["subagent_started", startAgent],
  ["subagent_progress", changeAgent((data) => ({ activity: textOf(data.text) }))],
  ["subagent_message", messageAgent],
  ["subagent_checkpoint", changeAgent((data) => ({ round: numberOf(data.round), maxRounds: numberOf(data.max_rounds) }))],
  ["subagent_paused", changeAgent((data) => ({
    status: "paused", round: numberOf(data.round), maxRounds: numberOf(data.max_rounds),
  }))],
  ["subagent_completed", changeAgent((data, endedAt) => ({ status: "completed", result: textOf(data.result), endedAt }))],
  ["subagent_error", changeAgent(failed)],
]);

/** @type {Map<string, (fold: Fold, event: TurnEvent) => void>} */
const TURN_EVENTS = new Map([
  ["round_start", onRoundStart],
  ["state", onState],
  ["token", onToken],
  ["thinking", onThinking],
  ["tool_call_delta", onToolCallDelta],
  ["tool_call", onToolCall],
  ["tool_progress", onToolProgress],
  ["tool_result", onToolResult],
  ["confirm_required", ask("confirm")],
  ["question_asked", ask("question")],
  ["compaction", noteOf("compaction")],
  ["handoff", noteOf("handoff")],
  ["usage", onUsage],
  ["stall", onStall],
  ["steered", onSteered],
  ["artifact", (fold, { turn, data }) => applyArtifact(fold.draft, fold.state, turn, data)],
  ["citation", onCitation],
  ["speaker_selected", onSpeakerSelected],
  ["team_message", onTeamMessage],
  ["final", onFinal],
  ["error", onError],
  ["subagent_paused", (fold, event) => fold.endTurn(event, "paused", { reason: "paused" })],
]);

export { optionOf };
