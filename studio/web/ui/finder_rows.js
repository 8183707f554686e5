// @ts-check
// What Ctrl+K finds: requests that wait, sessions, the turns of the one that is shown, and commands.

import { html, signal, useEffect, useLayoutEffect, useState } from "../vendor/preact.js";
import { closeFinder } from "../state/finder.js";
import { go, sessionPath } from "../state/route.js";
import { wantedDecision } from "../state/input.js";
import { attempt, current, hasMore, readSessions, sessions, showMore, titleOf, waitingElsewhere, waitingTitle } from "../state/studio.js";
import { escapeHiddenText } from "../text/hidden_characters.js";
import { requestInLine } from "./request_in_line.js";
import { loadWhenIdle } from "./lazy.js";
import { plainText } from "./markdown_view.js";

const SEARCH_DELAY_MS = 200;
const ROWS = 12; // of each group, at first
const MORE_ROWS = 50; // of a group, each time that more are wanted
const LABEL_CHARS = 120;
const EXCERPT_CHARS = 30; // before what was found
const SESSIONS = "Sessions";

/**
 * `match` is of the messages of a session; `staysOpen` is of a row that lists more rows.
 * @typedef {{key: string, group: string, label: string, match?: any, staysOpen?: boolean, run: () => unknown}} Choice
 */

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
  const [counts, setCounts] = useState(/** @type {Record<string, number>} */ ({}));
  const countOf = (/** @type {string} */ group) => counts[group] ?? ROWS;
  const found = useFound(words, countOf(SESSIONS));
  useLayoutEffect(() => {
    setAt(0);
    setCounts({});
  }, [words]);
  useEffect(() => { loadCommands(); }, []);
  const lengthen = (/** @type {string} */ group) => setCounts({ ...counts, [group]: countOf(group) + MORE_ROWS });
  const choices = allChoices(words, found, view).flatMap((group) => shownOf(group, countOf(group.name), () => lengthen(group.name)));
  const place = Math.min(at, choices.length - 1);
  useLayoutEffect(() => { active.value = choices.length ? `finder-${place}` : undefined; });
  const choose = (/** @type {Choice|undefined} */ choice) => {
    if (!choice) return;
    if (!choice.staysOpen) closeFinder();
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
        onMouseDown=${keepFocus} onClick=${() => choose(choice)} onMouseMove=${() => setAt(index)} ref=${index === place ? showRow : undefined}>${choice.label}${choice.match && excerpt(choice.match)}</div>`;
    })}
    ${!choices.length && html`<p class="note">Nothing has these words.</p>`}`;
}

const showRow = (/** @type {HTMLElement|null} */ row) => row?.scrollIntoView({ block: "nearest" });

/** The focus stays in the box for the words. */
const keepFocus = (/** @type {Event} */ event) => event.preventDefault();

/** The line of a message that has the words, below its session. */
const excerpt = (/** @type {any} */ { before, found, after }) => html`<small>${escapeHiddenText(before.slice(-EXCERPT_CHARS))}<mark>${escapeHiddenText(found)}</mark>${escapeHiddenText(after)}</small>`;

/** Return the sessions whose messages have the words: one more than are shown, if there are more. @param {string} words @param {number} count */
function useFound(words, count) {
  const [found, setFound] = useState(/** @type {any[]} */ ([]));
  useEffect(() => {
    if (words.trim().length < 2) {
      setFound([]);
      return undefined;
    }
    const abort = new AbortController();
    const timer = setTimeout(async () => {
      try {
        setFound(await readSessions({ q: words.trim(), archived: "all" }, count + 1, abort.signal));
      } catch {
        // the sessions that the list has are found without
      }
    }, SEARCH_DELAY_MS);
    return () => { clearTimeout(timer); abort.abort(); };
  }, [words, count]);
  return found;
}

/** @typedef {{name: string, choices: Omit<Choice, "group">[], loadMore?: (() => unknown) | null}} Group `loadMore` is null where all are there. */

/** Return the rows of a group that are shown, with one that shows more of them. @param {Group} group @param {number} count @param {() => void} lengthen @returns {Choice[]} */
function shownOf({ name, choices, loadMore }, count, lengthen) {
  const shown = choices.slice(0, count).map((choice) => ({ ...choice, group: name }));
  const left = choices.length - shown.length;
  if (!left && !loadMore) return shown;
  const label = left && !loadMore ? `Show ${Math.min(left, MORE_ROWS)} more${left > MORE_ROWS ? ` (${left.toLocaleString("en")} left)` : ""}` : "Show more";
  const run = () => {
    lengthen();
    if (left < MORE_ROWS) loadMore?.();
  };
  return [...shown, { key: `more-${name}`, group: name, label, staysOpen: true, run }];
}

/** Return all that can be chosen, of which the first are shown. @param {string} words @param {any[]} found @param {any} view @returns {Group[]} */
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
  const waiting = waitingElsewhere.value
    .map((request) => ({ request, title: waitingTitle(request), asked: requestInLine(request.kind, request.text, request.agentPath?.at(-1)) }))
    .filter(({ title, asked }) => has(`${title} ${asked}`));
  return [
    {
      name: "Waiting for you",
      choices: waiting.map(({ request: { id, sessionId }, title: name, asked }) => ({
        key: `w-${id}`,
        label: `${escapeHiddenText(name)} · ${asked}`,
        run: () => {
          wantedDecision.sessionId = sessionId;
          go(sessionPath(sessionId));
        },
      })),
    },
    {
      name: SESSIONS,
      choices: [...named, ...others].map((session) => {
        const match = found.find(({ id }) => id === session.id)?.matches?.find((/** @type {any} */ { role }) => role !== "name");
        return {
          key: `s-${session.id}`,
          label: session.id === current.value?.id ? `${title(session)} (shown)` : title(session),
          match,
          run: () => go(sessionPath(session.id, match?.message_id)),
        };
      }),
      loadMore: !parts.length && hasMore.value ? () => attempt(showMore) : null,
    },
    {
      name: "Turns of this session",
      choices: inSession.map(({ id, text }) => ({
        key: `t-${id}`,
        label: escapeHiddenText(text.replace(/\s+/g, " ").slice(0, LABEL_CHARS)) || "(without a message)",
        run: () => view.actions.goTo(id),
      })),
    },
    {
      name: "Commands",
      choices: commands.value(view).filter(({ label }) => has(label)).map(({ label, run }) => ({ key: `c-${label}`, label, run })),
    },
  ];
}
