// @ts-check
// The citations of an answer: where its markers stand, and what a marker opens.

import { html, useEffect, useLayoutEffect, useRef, useState } from "../vendor/preact.js";
import { readNote } from "../net/notes.js";
import { escapeHidden } from "../text/hidden_characters.js";

/** What the comparison of a citation with its note found, by status. */
const STATUSES = new Map(Object.entries({
  verified: "Verified: the passage has every number, date, quotation and code of the sentence.",
  located: "Located: the passage is there; the sentence has nothing that can be compared.",
  unsupported: "Unsupported: the passage lacks a number, date, quotation or code of the sentence.",
  changed: "The note has changed since. It no longer has the passage that the model read, or cannot be read.",
}));
const MAX_LINES = 400; // shown of a passage
const MAX_PLACES = 50; // of the quote, at which the passage is looked for
const LONG_LINE = 24_000; // characters; of a longer one a passage has only a part
const EDGE_PX = 8; // between what a marker opens and the edge of the log
const MARKER = /\[\^(\d{1,9})\]/g;
const FENCE = /^ {0,3}(?:(?:[-*+]|\d{1,9}[.)]) {1,4})?(`{3,}|~{3,})/;
const MAX_QUOTATIONS = 9; // within one another
const DEFINITION = /^ {0,3}\[\^[^\]\s]{1,100}\]:/;
const CODE_SPAN = /(?<!`)(`{1,3})(?!`)[^`\n]{1,1000}\1(?!`)/g;
// As `agenticx.knowledge.citations` divides a text: with the markers behind it, and at blocks and cells of tables.
const ABBREVIATED = "(?<!(?<!\\p{L})(?:[A-Za-z]|Dr|Mr|Mrs|Ms|Prof|St|No|Nr|Abs|Fig|Vol|ca|approx|resp|bzw|vgl|usw|etc|vs|cf))";
const BEHIND = `[)\\]"'”’»]{0,9}(?=\\s|\\[\\^)`;
const MARKERS = "(?:\\s{0,9}\\[\\^\\d{1,9}\\])*(?!\\s{0,9}\\p{Ll})";
const BLOCK = "\\n(?=[ \\t]{0,9}(?:\\n|[-*+•]\\s|\\d{1,9}[.)]\\s|#{1,6}\\s|>|\\|))";
const SENTENCE_END = new RegExp(
  `(?:(?:${ABBREVIATED}\\.|[!?…]){1,9}${BEHIND}|[。！？]{1,9}[」』）”]{0,9})${MARKERS}|\\||${BLOCK}`,
  "gu",
);
const QUOTE_PAIRS = ['""', "“”", "„“", "„”", "«»", "»«", "‹›", "「」", "『』", "‘’", "《》"];
const QUOTED = new RegExp(QUOTE_PAIRS.map(([begin, end]) => `${begin}[^${begin}${end}\\n]{1,2000}${end}`).join("|"), "g");

/**
 * Return the text with U+E000, an index into `citations` and U+E001 in place of each marker that has a citation, for
 * `mark` of `MarkdownView`.
 */
export function markCitations(/** @type {string} */ text, /** @type {any[]} */ citations) {
  if (!citations.length) return text;
  const indexes = new Map(citations.map((citation, index) => [citation, index]));
  const parts = [];
  let shown = 0;
  for (const { start, end, citation } of placeCitations(text, citations)) {
    parts.push(text.slice(shown, start), `\ue000${indexes.get(citation)}\ue001`);
    shown = end;
  }
  return [...parts, text.slice(shown)].join("");
}

/** A marker in an answer: a button that opens what it cites. */
export function CitationMarker({ citation, actions }) {
  const [isOpen, setOpen] = useState(false);
  const [hasChanged, setChanged] = useState(false); // since the answer, as the note showed when it was read last
  const button = useRef(/** @type {HTMLElement | null} */ (null));
  const status = hasChanged ? "changed" : STATUSES.has(citation.status) ? citation.status : "located";
  const label = `Citation ${citation.marker}, ${status}: ${placeText(citation)}`;
  const close = () => { setOpen(false); button.current?.focus(); };
  return html`<span class="cite" onKeyDown=${(event) => {
    if (event.key !== "Escape" || !isOpen) return;
    event.stopPropagation();
    close();
  }}>
    <button type="button" class=${`citation ${status}`} ref=${button} aria-label=${label} title=${label}
      aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}><span>${citation.marker}</span></button>
    ${isOpen && html`<${Cited} citation=${citation} status=${status} setChanged=${setChanged} actions=${actions} close=${close}
      leave=${() => setOpen(false)} />`}
  </span>`;
}

/** What a citation names: the quote, and where it stands. */
function Cited({ citation, status, setChanged, actions, close, leave }) {
  const { vault, path, url, heading, quote } = citation;
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const found = useNote(citation, setChanged);
  const first = found.first ?? citation.line_start, last = first + citation.line_end - citation.line_start;
  useLayoutEffect(() => { // before the next key
    const { current } = box, log = current?.closest("#log");
    if (!current || !log) return undefined;
    keepInLog(current, log);
    current.focus({ preventScroll: true });
    const sizes = new ResizeObserver(() => keepInLog(current, log));
    sizes.observe(log);
    return () => sizes.disconnect();
  }, []);
  useLayoutEffect(() => { if (found.lines) box.current?.scrollIntoView({ block: "nearest" }); }, [found]);
  const open = () => {
    close();
    const quoted = quotedLine(citation, found, first);
    actions.openNote(vault, path, quoted === null ? [first, last] : [quoted, quoted], status === "changed");
  };
  useEffect(() => {
    const leaveIfOutside = (/** @type {any} */ event) => {
      if (!box.current?.parentElement?.contains(event.target)) leave();
    };
    document.addEventListener("pointerdown", leaveIfOutside);
    return () => document.removeEventListener("pointerdown", leaveIfOutside);
  }, []);
  return html`<span class="cited" role="dialog" aria-label=${`Citation ${citation.marker}`} tabindex="-1" ref=${box}>
    <span class="place">${placeText({ ...citation, line_start: first, line_end: last })}</span>
    ${heading && html`<span class="heading">Under “${escapeHidden(heading)}”</span>`}
    <span class=${`status ${status}`}>${STATUSES.get(status) ?? escapeHidden(String(status ?? ""))}</span>
    <span class="quote">${escapeHidden(String(quote ?? ""))}</span>
    ${path !== undefined && html`<${Passage} citation=${citation} status=${status} found=${found} first=${first} last=${last} />`}
    <span class="buttons">
      ${path !== undefined && html`<button type="button" onClick=${open}>Open note</button>`}
      ${path === undefined && /^https?:\/\//.test(url ?? "") && html`<a href=${url} target="_blank" rel="noreferrer">Open page</a>`}
      <button type="button" class="quiet" onClick=${close}>Close</button>
    </span>
  </span>`;
}

/** Move what a marker opens to the left, if it would not be seen whole. */
function keepInLog(/** @type {HTMLElement} */ box, /** @type {Element} */ log) {
  box.style.insetInlineStart = "";
  const edges = log.getBoundingClientRect();
  const { left, right } = box.getBoundingClientRect();
  const shift = Math.min(Math.max(0, right - edges.right + EDGE_PX), left - edges.left - EDGE_PX);
  if (shift > 0) box.style.insetInlineStart = `${-shift}px`;
}

/**
 * Read the note of a citation: its lines, and the first one of the passage. `setChanged` is told whether the passage is
 * still in it.
 * @returns {{lines?: string[], first?: number, error?: string}}
 */
function useNote(/** @type {any} */ citation, setChanged) {
  const { vault, path } = citation;
  const [found, setFound] = useState(/** @type {{lines?: string[], first?: number, error?: string}} */ ({}));
  useEffect(() => {
    if (path === undefined) return;
    const read = async () => {
      const { text } = await readNote(vault, path);
      const lines = text.split(/\r\n|\n|\r/);
      const first = await findPassage(lines, citation);
      setChanged(first === null);
      return { lines, first: first ?? undefined };
    };
    read().then(setFound, (error) => setFound({ error: error.message }));
  }, []);
  return found;
}

/**
 * Return the line at which the passage of a citation begins, null if the note has it no more: by the hash of its lines, where
 * it is a part of a long line or no hash can be made by its quote.
 */
async function findPassage(lines, { line_start, line_end, sha256: hash, quote, quote_line = line_start }) {
  const offset = quote_line - line_start;
  const moved = lines.flatMap((line, index) => line === quote ? [index + 1 - offset] : []);
  const isByQuote = !globalThis.crypto?.subtle || lines[line_start - 1]?.length > LONG_LINE;
  if (isByQuote && moved.length) return moved.includes(line_start) ? line_start : moved[0];
  for (const first of isByQuote ? [] : [line_start, ...moved.slice(0, MAX_PLACES)]) {
    const text = lines.slice(first - 1, first + line_end - line_start).join("\n");
    if (first > 0 && await sha256(text) === hash) return first;
  }
  const line = lines[quote_line - 1] ?? "";
  return line !== quote && quote && line.includes(quote) ? line_start : null;
}

async function sha256(/** @type {string} */ text) {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return [...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Return the number of the line that is quoted, of a passage whose first line is `first` now; null if none is. */
function quotedLine({ line_start, line_end, quote, quote_line }, /** @type {{lines?: string[]}} */ { lines }, first) {
  for (let number = first; number <= first + line_end - line_start; number += 1) {
    if (lines?.[number - 1] === quote && (quote_line ?? number) - line_start === number - first) return number;
  }
  return null;
}

/** The lines of the note as it is now, the quoted one marked. */
function Passage({ citation, status, found, first, last }) {
  const { path } = citation;
  if (found.error !== undefined) return html`<span class="error">The note cannot be shown. ${found.error}</span>`;
  if (!found.lines) return null;
  const lines = found.lines.slice(first - 1, last);
  if (!lines.length) return html`<span class="note">The note has no such lines any more.</span>`;
  const quoted = quotedLine(citation, found, first);
  const more = lines.length - MAX_LINES;
  return html`
    ${status === "changed" && html`<span class="note">These lines of the note as it is now:</span>`}
    <ol class="passage" start=${first} tabindex="0" aria-label=${`Lines ${first} to ${last} of ${escapeHidden(path)}`}>
      ${lines.slice(0, MAX_LINES).map((line, index) => html`<li key=${index}>${
        first + index === quoted ? html`<mark>${escapeHidden(line)}</mark>` : html`<span>${escapeHidden(line)}</span>`}</li>`)}
    </ol>
    ${more > 0 && html`<span class="note">… and ${more} more lines.</span>`}`;
}

/** Return where a citation leads: the note with its lines, or the address of a page. */
function placeText({ vault, path, url, line_start, line_end }) {
  if (path === undefined) return escapeHidden(String(url ?? ""));
  const lines = line_start === line_end ? `line ${line_start}` : `lines ${line_start}–${line_end}`;
  return `${escapeHidden(`${vault}: ${path}`)}, ${lines}`;
}

/**
 * Return the places of the markers in sentences, each with its citation. There is one citation per number and sentence;
 * a number that is repeated within one sentence has the same citation again.
 */
function placeCitations(text, citations) {
  const queues = new Map();
  for (const citation of citations) {
    const queue = queues.get(citation.marker) ?? { next: 0, sentence: null, citations: [] };
    queue.citations.push(citation);
    queues.set(citation.marker, queue);
  }
  const masked = maskCode(text);
  const ends = [...masked.matchAll(SENTENCE_END)].map((match) => match.index + match[0].length);
  const markers = [];
  let inSentence = 0;
  for (const match of masked.matchAll(MARKER)) {
    const [start, end] = [match.index, match.index + match[0].length];
    while (ends[inSentence] <= start) inSentence += 1;
    if (text[start - 1] !== "\\") markers.push({ start, end, number: Number(match[1]), sentence: inSentence });
  }
  const places = [];
  for (const { start, end, number, sentence } of withoutNoteMarkers(masked, markers, queues)) {
    const queue = queues.get(number);
    if (queue.sentence !== null && queue.sentence !== sentence && queue.next + 1 < queue.citations.length) queue.next += 1;
    queue.sentence = sentence;
    places.push({ start, end, citation: queue.citations[queue.next] });
  }
  return places;
}

/**
 * Return the markers that may be of the answer. If sentences with a number are more than its citations, those within
 * quotations are of the note.
 */
function withoutNoteMarkers(text, markers, queues) {
  const isInQuotation = finder([...text.matchAll(QUOTED)].map((match) => [match.index, match.index + match[0].length]));
  const isInBlock = finder(quotedLines(text));
  const isQuoted = ({ start }) => isInQuotation(start) || isInBlock(start);
  const sentences = new Map();
  for (const { number, sentence } of markers) sentences.set(number, (sentences.get(number) ?? new Set()).add(sentence));
  return markers.filter((marker) => {
    const count = queues.get(marker.number)?.citations.length ?? 0;
    return count > 0 && (sentences.get(marker.number).size <= count || !isQuoted(marker));
  });
}

/** Return a function that tells whether a place is in one of the spans, each given as start and end; both in their order. */
function finder(spans) {
  let next = 0;
  return (place) => {
    while (spans[next]?.[1] <= place) next += 1;
    return spans[next]?.[0] < place;
  };
}

function quotedLines(text) {
  const spans = [];
  let start = 0;
  for (const line of text.split("\n")) {
    if (line.trimStart().startsWith(">")) spans.push([start, start + line.length]);
    start += line.length + 1;
  }
  return spans;
}

/** Return how many quotations a line is in, at most so many, and what stands there. @param {string} line @param {number} most */
function quotedContent(line, most) {
  let depth = 0, at = 0;
  for (let found; depth < most && (found = /^ {0,3}> ?/.exec(line.slice(at))); depth += 1) at += found[0].length;
  return { depth, content: line.slice(at) };
}

/** Return the text with code and definitions as blanks, in the same length: markers there are no citations. */
function maskCode(text) {
  const blank = (part) => " ".repeat(part.length);
  let fence = null;
  let within = 0; // quotations, that the fence stands in
  let isDefinition = false;
  return text.split("\n").map((line) => {
    const { depth, content } = quotedContent(line, fence === null ? MAX_QUOTATIONS : within);
    if (depth < within) fence = null; // with the quotation
    const sign = FENCE.exec(content)?.[1];
    const isInFence = fence !== null || sign !== undefined;
    if (fence === null) [fence, within] = [sign ?? null, sign === undefined ? 0 : depth];
    else if (sign?.startsWith(fence) && !content.trim().replaceAll(fence[0], "")) [fence, within] = [null, 0];
    isDefinition = DEFINITION.test(content) || (isDefinition && /^( {4}|\t|\s*$)/.test(content));
    return isInFence || isDefinition ? blank(line) : line.replace(CODE_SPAN, blank);
  }).join("\n");
}
