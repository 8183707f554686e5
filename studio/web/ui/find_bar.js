// @ts-check
// Finding words in a session, also in what is folded or too far away to be mounted: the browser's own search has only what
// is mounted. Pressed again in the field, its key opens that.

import { html, useEffect, useLayoutEffect, useRef, useState } from "../vendor/preact.js";
import { sought as soughtText } from "./fold.js";
import { textOfCall, textOfRow } from "./row_text.js";

/** @typedef {import("./rows.js").Row} Row */

const TYPING_MS = 120;
const [HERE, ELSEWHERE] = ["found", "found-elsewhere"]; // in css/log.css: in the place that is shown, and in others
const MAX_RANGES = 2000;
const BLOCKS = "p, li, pre, td, th, h1, h2, h3, h4, h5, h6, summary, div, dd, dt, blockquote";

/** @param {{view: any}} props `view` is that of the log. */
export function FindBar({ view }) {
  const [isOpen, setOpen] = useState(false);
  const [words, setWords] = useState("");
  const [at, setAt] = useState(-1);
  const field = useRef(/** @type {HTMLInputElement | null} */ (null));
  const [shownKey, setShownKey] = useState(/** @type {string | null} */ (null));
  const [inner, setInner] = useState({ at: 0, count: 0 }); // of the marks in the part that is shown
  useLayoutEffect(() => { // as soon as the log is there
    const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
      if (!(event.ctrlKey || event.metaKey) || event.altKey || event.key.toLowerCase() !== "f") return;
      if (document.querySelector("dialog[open]") || document.activeElement === field.current || !view.box?.checkVisibility()) return;
      event.preventDefault();
      setOpen(true);
    };
    document.addEventListener("keydown", onKeyDown);
    return () => {
      document.removeEventListener("keydown", onKeyDown);
      soughtText.value = "";
      mark(null, null, "");
    };
  }, []);
  useLayoutEffect(() => { if (isOpen) field.current?.select(); }, [isOpen]); // before the next key
  const sought = words.trim().toLowerCase();
  const found = isOpen && sought ? rowsWith(view.rows, sought) : [];
  /** Show a part, at its first mark, or at its last one for -1. */
  const show = (/** @type {number} */ place, /** @type {number} */ wanted = 0) => {
    setAt(place);
    setInner({ at: 0, count: 0 });
    const row = found[place];
    setShownKey(row?.key ?? null);
    soughtText.value = sought;
    if (row) view.show(row.key, callIn(row, sought), (/** @type {Element} */ element) => {
      const ranges = rangesOf(element, sought);
      const to = wanted < 0 ? ranges.length - 1 : 0;
      setInner({ at: to, count: ranges.length });
      if (ranges[to]) bringIntoView(ranges[to]);
    });
  };
  useEffect(() => {
    const rows = isOpen && sought ? view.box?.querySelector(".rows") : null;
    if (!rows) {
      soughtText.value = "";
      mark(null, null, "");
      return undefined;
    }
    let frame = 0;
    const draw = () => {
      frame = 0;
      mark(rows, shownKey, sought, inner.at);
    };
    const observer = new MutationObserver(() => { frame ||= requestAnimationFrame(draw); });
    observer.observe(rows, { childList: true, characterData: true, subtree: true });
    draw();
    return () => {
      observer.disconnect();
      cancelAnimationFrame(frame);
    };
  }, [isOpen, sought, shownKey, inner.at]);
  useEffect(() => {
    if (!sought) { setAt(-1); return undefined; }
    const timer = setTimeout(() => show(firstBehind(found, view)), TYPING_MS);
    return () => clearTimeout(timer);
  }, [sought]);
  if (!isOpen) return null;
  const step = (/** @type {number} */ by) => {
    if (!found.length) return;
    const element = shownKey === null ? null : view.box?.querySelector(`[data-key="${CSS.escape(shownKey)}"]`);
    const ranges = element ? rangesOf(element, sought) : [];
    const next = ranges[inner.at + by];
    if (!next) {
      show((at + by + found.length) % found.length, by);
      return;
    }
    setInner({ at: inner.at + by, count: ranges.length });
    bringIntoView(next);
  };
  const close = () => {
    setOpen(false);
    mark(null, null, "");
    view.box?.focus({ preventScroll: true });
  };
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Escape" && event.key !== "Enter") return;
    event.preventDefault();
    event.stopPropagation();
    if (event.key === "Escape") close();
    else step(event.shiftKey ? -1 : 1);
  };
  return html`<div class="find-place"><search class="find-bar" aria-label="Find in this session" onKeyDown=${onKeyDown}>
    <input type="search" ref=${field} aria-label="Find in this session" value=${words} autocomplete="off"
      onInput=${(/** @type {any} */ event) => setWords(event.target.value)} />
    <span class="note" role="status">${sought && (found.length ? placeText(Math.max(0, at), found.length, inner) : "Not found")}</span>
    <button type="button" class="quiet" aria-label="Previous match" onClick=${() => step(-1)}>↑</button>
    <button type="button" class="quiet" aria-label="Next match" onClick=${() => step(1)}>↓</button>
    <button type="button" class="quiet" onClick=${close}>Close</button>
  </search></div>`;
}

/** Say which result is shown, and which of the matches in it if it has several; of one result only the matches. @param {number} at @param {number} count @param {{at: number, count: number}} inner */
const placeText = (at, count, inner) =>
  count === 1 ? `${inner.at + 1} of ${Math.max(1, inner.count)}`
    : `Result ${at + 1} of ${count}${inner.count > 1 ? `, match ${inner.at + 1} of ${inner.count} in it` : ""}`;

/** Return the index of the first place that is not above what is seen, 0 if there is none. */
function firstBehind(/** @type {Row[]} */ found, /** @type {any} */ view) {
  const top = view.rowAtTop();
  const places = new Map(view.rows.map((/** @type {Row} */ row, /** @type {number} */ place) => [row.key, place]));
  return Math.max(0, found.findIndex(({ key }) => places.get(key) >= top));
}

/** @type {WeakMap<Row, string>} */
const texts = new WeakMap();

/** Return the rows whose text has the words. @param {Row[]} rows @param {string} sought in small letters */
function rowsWith(rows, sought) {
  return rows.filter((row) => {
    const text = texts.get(row) ?? textOfRow(row).toLowerCase();
    texts.set(row, text);
    return text.includes(sought);
  });
}

/** Return the key of the call in a folded row that has the words, null for other rows. */
function callIn(/** @type {Row} */ row, /** @type {string} */ sought) {
  const calls = row.calls ?? row.turn?.items.filter((/** @type {any} */ { kind }) => kind === "call");
  const call = calls?.find((/** @type {any} */ one) => textOfCall(one).toLowerCase().includes(sought));
  return call ? `${row.key}/${call.key}` : null;
}

/** Mark the words in all rows that are mounted, one of those in a part as the one that is shown; without an element mark nothing. @param {Element | null} rows @param {string | null} key @param {string} sought @param {number} [at] */
function mark(rows, key, sought, at = 0) {
  const { highlights } = CSS;
  if (!highlights) return;
  const shown = key === null ? null : rows?.querySelector(`[data-key="${CSS.escape(key)}"]`);
  const ranges = rows ? rangesOf(rows, sought) : [];
  const here = ranges.filter((range) => shown?.contains(range.startContainer))[at];
  const isHere = (/** @type {Range} */ range) => range === here;
  for (const [name, some] of /** @type {[string, Range[]][]} */ ([[HERE, ranges.filter(isHere)], [ELSEWHERE, ranges.filter((range) => !isHere(range))]])) {
    if (some.length) highlights.set(name, new Highlight(...some));
    else highlights.delete(name);
  }
}

/** Scroll a range into view, in every element around it that scrolls. */
function bringIntoView(/** @type {Range} */ range) {
  for (let around = range.startContainer.parentElement; around; around = around.parentElement) {
    if (around.scrollHeight <= around.clientHeight) continue;
    const { top, bottom } = range.getBoundingClientRect(), box = around.getBoundingClientRect();
    if (top < box.top || bottom > box.bottom) around.scrollTop += top - box.top - around.clientHeight / 3;
  }
}

/** Return where the words stand, also those of which parts have a style of their own. */
function rangesOf(/** @type {Element} */ element, /** @type {string} */ sought) {
  /** @type {Range[]} */
  const ranges = [];
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT, ({ parentElement }) =>
    parentElement?.closest(".hidden-text") ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT);
  /** @type {Text[]} */
  const nodes = [];
  let block = null;
  for (let node = walker.nextNode(); node && ranges.length < MAX_RANGES; node = walker.nextNode()) {
    const around = node.parentElement?.closest(BLOCKS) ?? null;
    if (around !== block) addRanges(ranges, nodes.splice(0), sought);
    block = around;
    nodes.push(/** @type {Text} */ (node));
  }
  addRanges(ranges, nodes, sought);
  return ranges;
}

/** Add the places of the words in texts that stand behind each other. @param {Range[]} ranges @param {Text[]} nodes @param {string} sought */
function addRanges(ranges, nodes, sought) {
  const text = nodes.map(({ data }) => data.toLowerCase().length === data.length ? data.toLowerCase() : data).join("").replace(/\s/g, " ");
  for (let at = text.indexOf(sought), place = 0, before = 0; at >= 0; at = text.indexOf(sought, at + sought.length)) {
    const range = document.createRange();
    for (const [index, isStart] of /** @type {[number, boolean][]} */ ([[at, true], [at + sought.length, false]])) {
      while (index > before + nodes[place].length || (isStart && index === before + nodes[place].length)) before += nodes[place++].length;
      if (isStart) range.setStart(nodes[place], index - before);
      else range.setEnd(nodes[place], index - before);
    }
    ranges.push(range);
  }
}
