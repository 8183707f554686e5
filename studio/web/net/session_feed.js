// @ts-check
// The state of a session, kept up to date by its stream of events.

import { signal } from "../vendor/preact.js";
import { applyEvents, initialState } from "../state/reducer.js";
import { api } from "./api.js";
import { whileVisible } from "./leader.js";
import { noteStream } from "./lost_connection.js";
import { followEvents } from "./stream.js";

const HIDDEN_MS = 50; // between two batches where the browser draws no frames
const MAX_EVENTS = 4000; // of a batch, so that no frame takes long
const PAGE_EVENTS = 500; // of a page of stored events, which the studio allows
const END_EVENTS = 4000; // from the end of a log, among which the beginning of a turn is sought
const KEPT_SESSIONS = 6; // whose state is kept for the case that they are opened again

/** @type {Map<string, {state: any, cursor: string|null}>} */
const kept = new Map();

/**
 * Follow a session; `connection` is "live" while the stream is open, `isCaughtUp` once its stored events were read. Until
 * then the state of a long session is that of its last turns, as if they were the first ones.
 * @param {string} sessionId
 */
export function openFeed(sessionId) {
  const path = `api/sessions/${sessionId}/events`;
  const before = kept.get(sessionId);
  let whole = before?.state ?? initialState(); // the state from the first event on
  const state = signal(whole);
  /** @type {import("../vendor/preact.js").Signal<"connecting"|"live"|"reconnecting"|"closing"|"gone">} */
  const connection = signal("connecting");
  const isCaughtUp = signal(Boolean(before));
  const closingReason = signal(""); // of the studio, until it answers again: stopped, handed_over or parent_ended
  const ended = new AbortController();
  let cursor = before?.cursor ?? null; // behind the last event that is in the whole state
  let storedSeq = before ? 0 : Infinity; // the number of the last event that was stored when the session was opened
  /** @type {{envelopes: any[], cursor: string|null, isReset?: boolean}[]} */
  let waiting = [];
  let isScheduled = false;
  let hasPlace = false; // for its stream, see whileVisible

  function schedule() {
    if (isScheduled) return;
    isScheduled = true;
    if (document.hidden) setTimeout(flush, HIDDEN_MS);
    else requestAnimationFrame(flush);
  }

  function flush() {
    isScheduled = false;
    let count = 0;
    const taken = [];
    while (waiting.length && count < MAX_EVENTS) {
      const batch = /** @type {typeof waiting[0]} */ (waiting.shift());
      if (batch.isReset) {
        whole = initialState();
        taken.length = 0;
      }
      taken.push(...batch.envelopes);
      count += batch.envelopes.length;
      cursor = batch.cursor;
    }
    if (taken.length) whole = applyEvents(whole, taken);
    if (whole.lastSeq >= storedSeq) {
      state.value = whole;
      isCaughtUp.value = true;
    }
    if (waiting.length) schedule();
  }

  /** Show the end of the log, and note how far all of it is to be read before that is shown. */
  async function showEnd() {
    const end = await readEnd(path, ended.signal);
    storedSeq = end.events.at(-1)?.seq ?? 0;
    if (end.isWhole) {
      waiting.push({ envelopes: end.events, cursor: end.cursor });
      schedule();
    } else state.value = applyEvents(state.value, lastTurns(end.events));
  }

  const opening = before ? null : showEnd().catch(() => { storedSeq = 0; }); // the stream finds out what is wrong

  /** Read what was stored meanwhile, as an event of the session tells, if the tab waits for its stream. */
  async function readNews() {
    if (hasPlace || !isCaughtUp.value || document.hidden) return;
    for (let page, from = cursor; !hasPlace && (!page || page.has_more); from = page.cursor) {
      page = await api(`${path}?from=${from}`, { signal: ended.signal });
      waiting.push({ envelopes: page.events, cursor: page.cursor }); // the state takes no event twice
      schedule();
    }
  }

  whileVisible(ended.signal, async (turn) => {
    hasPlace = true;
    turn.addEventListener("abort", () => { hasPlace = false; });
    await opening;
    await followEvents(path, {
      cursor: waiting.at(-1)?.cursor ?? cursor,
      signal: turn,
      onEvents: (envelopes, after) => {
        waiting.push({ envelopes, cursor: after });
        schedule();
      },
      onReset: () => {
        waiting = [{ envelopes: [], cursor: null, isReset: true }];
        storedSeq = 0; // the log may be a shorter one
        schedule();
      },
      onOpen: () => {
        noteStream(sessionId, true);
        if (connection.value !== "live") {
          connection.value = "live";
          closingReason.value = "";
        }
        if (!waiting.length && !isCaughtUp.value) schedule();
      },
      onDown: () => {
        connection.value = "reconnecting";
        noteStream(sessionId, false);
        if (!state.value.lastSeq && whole.lastSeq) { // nothing is shown, though there is something
          storedSeq = 0;
          schedule();
        }
      },
      onClosing: (reason) => {
        closingReason.value = reason ?? "stopped";
        connection.value = "closing";
      },
      onGone,
    });
  }).catch((error) => {
    onGone();
    reportError(error);
  });

  function onGone() {
    connection.value = "gone";
    noteStream(sessionId, true);
  }

  function close() {
    ended.abort();
    noteStream(sessionId, true);
    kept.delete(sessionId);
    if (isCaughtUp.value && connection.value !== "gone") kept.set(sessionId, { state: whole, cursor });
    for (const oldest of [...kept.keys()].slice(0, -KEPT_SESSIONS)) kept.delete(oldest);
  }

  return { state, connection, closingReason, isCaughtUp, close, readNews: () => { readNews().catch(() => {}); } };
}

/**
 * Return the last events of a log, if possible from the beginning of a turn on, and the cursor behind them; `isWhole` if
 * there are no others.
 * @param {string} path @param {AbortSignal} signal
 * @returns {Promise<{events: any[], cursor: string, isWhole: boolean}>}
 */
async function readEnd(path, signal) {
  let page = await api(`${path}?limit=${PAGE_EVENTS}`, { signal });
  const { cursor } = page;
  let { events } = page;
  while (page.has_more && events.length < END_EVENTS && !events.some(beginsTurn)) {
    page = await api(`${path}?limit=${PAGE_EVENTS}&until=${page.before}`, { signal });
    events = [...page.events, ...events];
  }
  return { events, cursor, isWhole: !page.has_more };
}

/** Return the events from the first turn on; none if what is shown of them depends on those before. */
function lastTurns(/** @type {any[]} */ events) {
  const first = events.findIndex(beginsTurn);
  const isRewound = events.some(({ type, data }) => type === "session_changed" && data.rewound_to !== undefined);
  return first < 0 || isRewound ? [] : events.slice(first);
}

const beginsTurn = (/** @type {any} */ { type, data }) => type === "turn_started" && !data.parent_turn_id;

/** Forget the state of a session that was deleted. */
export const forget = (/** @type {string} */ sessionId) => kept.delete(sessionId);
