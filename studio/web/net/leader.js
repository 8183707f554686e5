// @ts-check
// What the tabs of a browser share: the stream of all sessions, which one tab reads for all, and the few connections.
// A browser keeps six connections to a server open, and each stream takes one as long as it lasts.

import { isCut, noteStream } from "./lost_connection.js";
import { followEvents } from "./stream.js";

const LEADER_LOCK = "agenticx.leader";
const SESSION_LOCKS = ["0", "1", "2", "3"].map((number) => `agenticx.stream.${number}`);
const CHANNEL = "agenticx.events";
const TURN_TAKING_MS = 2000; // how often a stream looks if other tabs wait for its place
const IN_USE_MS = 10000; // after the last key or pointer a tab gives its place to one that waits
const TYPES = [
  "turn_started", "final", "error", "confirm_required", "confirm_response", "question_asked", "question_answered",
  "session_changed", "subagent_started", "subagent_completed", "subagent_error",
].join(",");

const ALL = "all"; // sessions: the name of their stream

/**
 * Call `onEvent(envelope)` for the events that change the list of sessions, in each tab of the browser; `onGap()` says
 * that some were missed, `onReconnect()` that the stream goes on after it was cut: the studio may be another one. Runs until
 * `signal` is aborted.
 * @param {{signal: AbortSignal, onEvent: (envelope: any) => void, onGap: () => void, onReconnect: () => void}} options
 */
export async function followAll({ signal, onEvent, onGap, onReconnect }) {
  /** @type {string|null} */
  let cursor = null; // of the last event that this tab was told of, by itself or the leader
  const channel = new BroadcastChannel(CHANNEL);
  channel.onmessage = ({ data }) => {
    cursor = data.cursor ?? cursor;
    noteStream(ALL, !data.cut);
    if (data.gap) onGap();
    if (data.reconnected) onReconnect();
    for (const envelope of data.envelopes ?? []) onEvent(envelope);
  };
  signal.addEventListener("abort", () => channel.close());
  await withLock(LEADER_LOCK, signal, () => {
    const tell = (/** @type {any} */ message) => { if (!signal.aborted) channel.postMessage(message); };
    let wasCut = isCut(ALL); // as the leader before said
    return followEvents(`api/events?types=${TYPES}`, {
      cursor,
      signal,
      onEvents: (envelopes, after) => {
        cursor = after;
        for (const envelope of envelopes) onEvent(envelope);
        tell({ envelopes, cursor });
      },
      onReset: () => { onGap(); tell({ gap: true }); },
      onOpen: () => {
        if (cursor === null) onGap(); // the stream has nothing from before
        cursor ??= "";
        noteStream(ALL, true);
        if (!wasCut) return;
        wasCut = false;
        onReconnect();
        tell({ reconnected: true });
      },
      onDown: () => {
        wasCut = true;
        noteStream(ALL, false);
        tell({ cut: true });
      },
      onClosing: () => {},
      onGone: () => {},
    });
  });
}

/**
 * Run `read(signal)` while this tab is visible and one of the browser's places for streams is free; again whenever it
 * becomes so. Where more tabs are visible than there are places, they take turns, the one that is used first.
 * @param {AbortSignal} signal @param {(signal: AbortSignal) => Promise<void>} read
 */
export async function whileVisible(signal, read) {
  while (!signal.aborted) {
    await visible(signal);
    if (signal.aborted) return;
    const turn = new AbortController();
    const end = () => turn.abort();
    const endIfHidden = () => { if (document.hidden) end(); };
    signal.addEventListener("abort", end);
    document.addEventListener("visibilitychange", endIfHidden);
    try {
      await withOneOf(SESSION_LOCKS, turn.signal, async () => {
        const sharing = setInterval(() => giveWay(end), TURN_TAKING_MS);
        try {
          await read(turn.signal);
        } finally {
          clearInterval(sharing);
        }
      });
      if (!turn.signal.aborted) return; // the stream has ended by itself: there is no such session
    } finally {
      signal.removeEventListener("abort", end);
      document.removeEventListener("visibilitychange", endIfHidden);
    }
  }
}

let lastUse = performance.now();
for (const type of ["pointerdown", "keydown"]) {
  addEventListener(type, () => { lastUse = performance.now(); }, { capture: true, passive: true });
}

async function giveWay(/** @type {() => void} */ end) {
  if (!navigator.locks || (document.hasFocus() && performance.now() - lastUse < IN_USE_MS)) return;
  const { pending = [] } = await navigator.locks.query();
  if (pending.some(({ name }) => name && SESSION_LOCKS.includes(name))) end();
}

function visible(/** @type {AbortSignal} */ signal) {
  return new Promise((resolve) => {
    const check = () => {
      if (document.hidden && !signal.aborted) return;
      document.removeEventListener("visibilitychange", check);
      signal.removeEventListener("abort", check);
      resolve(undefined);
    };
    document.addEventListener("visibilitychange", check);
    signal.addEventListener("abort", check);
    check();
  });
}

/** @param {string} name @param {AbortSignal} signal @param {() => Promise<void>} action */
async function withLock(name, signal, action) {
  if (!navigator.locks) return action(); // only pages over https or of this machine have them
  try {
    await navigator.locks.request(name, { signal }, action);
  } catch (error) {
    if (!signal.aborted) throw error;
  }
}

/** Run the action with the first of some locks that becomes free. @param {string[]} names @param {AbortSignal} signal @param {() => Promise<void>} action */
async function withOneOf(names, signal, action) {
  if (!navigator.locks) return action();
  const waiting = new AbortController();
  const stopWaiting = () => waiting.abort();
  signal.addEventListener("abort", stopWaiting);
  let isTaken = false;
  const requests = names.map(async (name) => {
    try {
      await navigator.locks.request(name, { signal: waiting.signal }, async () => {
        if (isTaken || signal.aborted) return; // two became free at once
        isTaken = true;
        stopWaiting();
        await action();
      });
    } catch (error) {
      if (!waiting.signal.aborted) throw error;
    }
  });
  try {
    await Promise.all(requests);
  } finally {
    signal.removeEventListener("abort", stopWaiting);
  }
}
