// @ts-check
// What Ctrl+K finds: requests that wait, sessions, the turns of the one that is shown, and commands.

import { html, signal, useEffect, useLayoutEffect, useState } from "../vendor/preact.js";
import { api } from "../net/api.js";
import { closeFinder } from "../state/finder.js";
import { go, sessionPath } from "../state/route.js";
import { wantedDecision } from "../state/input.js";
import { current, sessions, titleOf, waitingElsewhere, waitingText } from "../state/studio.js";
import { escapeHidden, escapeHiddenText } from "../text/hidden_characters.js";
import { loadWhenIdle } from "./lazy.js";
import { plainText } from "./markdown_view.js";

const SEARCH_DELAY_MS = 200;
const MAX_ROWS = 12; // of each group
const LABEL_CHARS = 120;
const EXCERPT_CHARS = 30; // before what was found

/** @typedef {{key: string, group: string, label: string, match?: any, run: () => unknown}} Choice `match` is of the messages of a session. */

/** The commands that can be done now; none until their module is loaded, and none if the studio ended before. */
const commands = signal(/** @type {(view: any) => {label: string, run: () => unknown}[]} */ (() => []));
const loadCommands = async () => {
  try {
    commands.value = (await import("./commands.js")).commands;
  } catch { /* sessions and turns can be found all the same */ }
};
loadWhenIdle(loadCommands);

/**
 * The rows for the words. `keys.current` is what the box of the words calls on a key; `active` is the id of the chosen row.
 * @param {{words: string, view: any, keys: {current: ((event: KeyboardEvent) => void)|null}, active: import("../vendor/preact.js").Signal<string|undefined>}} props
 */
export function FinderRows({ words, view, keys, active }) {
  const [at, setAt] = useState(0);
  const found = useFound(words);
  useLayoutEffect(() => setAt(0), [words]);
  useEffect(() => { loadCommands(); }, []);
  const choices = allChoices(words, found, view);
  const place = Math.min(at, choices.length - 1);
  useLayoutEffect(() => { active.value = choices.length ? `finder-${place}` : undefined; });
  const choose = (/** @type {Choice|undefined} */ choice) => {
    if (!choice) return;
    closeFinder();
    choice.run();
  };
  keys.current = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && choices.length) {
      event.preventDefault();
      setAt((place + step + choices.length) % choices.length);
    } else if (event.key === "Enter") {
      event.preventDefault();
      choose(choices[place]);
    }
  };
  let group = "";
  return html`${choices.map((choice, index) => {
      const heading = choice.group === group ? null : html`<p class="group" role="presentation">${choice.group}</p>`;
      group = choice.group;
      return html`${heading}<div key=${choice.key} id=${`finder-${index}`} role="option" aria-selected=${index === place}
        onClick=${() => choose(choice)} onMouseMove=${() => setAt(index)} ref=${index === place ? showRow : undefined}>${choice.label}${choice.match && excerpt(choice.match)}</div>`;
    })}
    ${!choices.length && html`<p class="note">Nothing has these words.</p>`}`;
}

const showRow = (/** @type {HTMLElement|null} */ row) => row?.scrollIntoView({ block: "nearest" });

/** The line of a message that has the words, below its session. */
const excerpt = (/** @type {any} */ { before, found, after }) => html`<small>${escapeHiddenText(before.slice(-EXCERPT_CHARS))}<mark>${escapeHiddenText(found)}</mark>${escapeHiddenText(after)}</small>`;

/** Return the sessions whose messages have the words. */
function useFound(/** @type {string} */ words) {
  const [found, setFound] = useState(/** @type {any[]} */ ([]));
  useEffect(() => {
    if (words.trim().length < 2) {
      setFound([]);
      return undefined;
    }
    const abort = new AbortController();
    const timer = setTimeout(async () => {
      const query = new URLSearchParams({ q: words.trim(), archived: "all", limit: String(MAX_ROWS) });
      try {
        setFound((await api(`api/sessions?${query}`, { signal: abort.signal })).sessions);
      } catch {
        // the sessions that the list has are found without
      }
    }, SEARCH_DELAY_MS);
    return () => { clearTimeout(timer); abort.abort(); };
  }, [words]);
  return found;
}

/** @param {string} words @param {any[]} found @param {any} view @returns {Choice[]} */
function allChoices(words, found, view) {
  const parts = words.toLowerCase().split(/\s+/).filter(Boolean);
  const has = (/** @type {string} */ text) => parts.every((part) => text.toLowerCase().includes(part));
  const named = sessions.value.filter((session) => has(titleOf(session)));
  const others = found.filter(({ id }) => !named.some((each) => each.id === id));
  const { turns = [], requests = [] } = view?.feed.value?.state.value ?? {};
  const inSession = [
    ...turns.filter((/** @type {any} */ { onPath, message }) => onPath && has(message.text)).map((/** @type {any} */ { id, message }) => ({ id, text: message.text })),
    ...requests.filter((/** @type {any} */ { kind, question }) => parts.length && kind === "question" && has(question))
      .map((/** @type {any} */ { id, question }) => ({ id, text: `Asked: ${plainText(question)}` })),
  ].reverse();
  const title = (/** @type {any} */ session) => escapeHiddenText(titleOf(session));
  const waiting = waitingElsewhere.value.map((request) => ({ request, ...waitingText(request, plainText) })).filter(({ title, asked }) => has(`${title} ${asked}`));
  return [
    ...waiting.slice(0, MAX_ROWS).map(({ request: { id, sessionId }, title: name, asked }) => ({
      key: `w-${id}`,
      group: "Waiting for you",
      label: `${escapeHiddenText(name)} · ${escapeHidden(asked)}`,
      run: () => {
        wantedDecision.sessionId = sessionId;
        go(sessionPath(sessionId));
      },
    })),
    ...[...named, ...others].slice(0, MAX_ROWS).map((session) => {
      const match = found.find(({ id }) => id === session.id)?.matches?.find((/** @type {any} */ { role }) => role !== "name");
      return {
        key: `s-${session.id}`,
        group: "Sessions",
        label: session.id === current.value?.id ? `${title(session)} (shown)` : title(session),
        match,
        run: () => go(sessionPath(session.id, match?.message_id)),
      };
    }),
    ...inSession.slice(0, MAX_ROWS).map(({ id, text }) => ({
      key: `t-${id}`,
      group: "Turns of this session",
      label: escapeHiddenText(text.replace(/\s+/g, " ").slice(0, LABEL_CHARS)) || "(without a message)",
      run: () => view.actions.goTo(id),
    })),
    ...commands.value(view).filter(({ label }) => has(label)).map(({ label, run }) => ({ key: `c-${label}`, group: "Commands", label, run })),
  ];
}
