// The citations of an answer: its markers as buttons, and the lines of a note below the sentence that cites them.

import { make } from "./elements.js";
import { escapeHidden } from "./hidden_characters.js";

/** What the comparison of a citation with its note found, by status. */
const STATUSES = {
  verified: "Verified: the passage has every number, date, quotation and code of the sentence.",
  located: "Located: the passage is there; the sentence has nothing that can be compared.",
  unsupported: "Unsupported: the passage lacks a number, date, quotation or code of the sentence.",
  changed: "Changed: the note no longer has the passage that the model read, or cannot be read.",
};
const MARKER = /\[\^(\d{1,9})\](?!:)/g;
const FENCE = /^ {0,3}(`{3,}|~{3,})/;
const DEFINITION = /^ {0,3}\[\^[^\]\s]{1,100}\]:/;
const CODE_SPAN = /(?<!`)(`{1,3})(?!`)[^`\n]{1,1000}\1(?!`)/g;
// As `agenticx.knowledge.citations` divides a text: with the markers behind it, and at blocks and cells of tables.
const ABBREVIATED = "(?<!(?<!\\p{L})(?:[A-Za-z]|Dr|Mr|Mrs|Ms|Prof|St|No|Nr|Abs|Fig|Vol|ca|approx|resp|bzw|vgl|usw|etc|vs|cf))";
const BEHIND = `[)\\]"'”’»]{0,9}(?=\\s|\\[\\^)`;
const MARKERS = "(?:\\s{0,9}\\[\\^\\d{1,9}\\](?!:))*(?!\\s{0,9}\\p{Ll})";
const BLOCK = "\\n(?=[ \\t]{0,9}(?:\\n|[-*+•]\\s|\\d{1,9}[.)]\\s|#{1,6}\\s|>|\\|))";
const SENTENCE_END = new RegExp(
  `(?:(?:${ABBREVIATED}\\.|[!?…]){1,9}${BEHIND}|[。！？]{1,9}[」』）”]{0,9})${MARKERS}|\\||${BLOCK}`,
  "gu",
);
const QUOTE_PAIRS = ['""', "“”", "„“", "„”", "«»", "»«", "‹›", "「」", "『』", "‘’", "《》"];
const QUOTED = new RegExp(QUOTE_PAIRS.map(([begin, end]) => `${begin}[^${begin}${end}\\n]{1,2000}${end}`).join("|"), "g");
const MAX_LINES = 400; // shown of a passage

/**
 * Replace the markers in the text of `element` by buttons, for those that `citations` has; `readNote(vault, path)`
 * returns a note.
 */
export function showCitations(element, citations, readNote) {
  const text = element.textContent;
  const parts = [];
  let shown = 0;
  for (const { start, end, citation } of placeCitations(text, citations)) {
    parts.push(text.slice(shown, start), markerButton(element, citation, readNote));
    shown = end;
  }
  element.replaceChildren(...parts, text.slice(shown));
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

/** Return the text with code and definitions as blanks, in the same length: markers there are no citations. */
function maskCode(text) {
  const blank = (part) => " ".repeat(part.length);
  let fence = null;
  let isDefinition = false;
  return text.split("\n").map((line) => {
    const sign = FENCE.exec(line)?.[1];
    const isInFence = fence !== null || sign !== undefined;
    if (fence === null) fence = sign ?? null;
    else if (sign?.startsWith(fence) && !line.trim().replaceAll(fence[0], "")) fence = null;
    isDefinition = DEFINITION.test(line) || (isDefinition && /^( {4}|\t)/.test(line));
    return isInFence || isDefinition ? blank(line) : line.replace(CODE_SPAN, blank);
  }).join("\n");
}

function markerButton(element, citation, readNote) {
  const status = citation.status ?? "located";
  const button = make("button", `citation ${status in STATUSES ? status : ""}`, `[${citation.marker}]`);
  button.type = "button";
  button.title = `${status}: ${placeOf(citation)}`;
  button.setAttribute("aria-label", `Citation ${citation.marker}, ${button.title}`);
  button.setAttribute("aria-expanded", "false");
  button.addEventListener("click", () => {
    const isOpen = button.getAttribute("aria-expanded") === "true";
    closeCitation(element);
    if (!isOpen) openCitation(button, citation, readNote);
  });
  return button;
}

function closeCitation(element) {
  element.querySelector(".cited")?.remove();
  element.querySelector(".citation[aria-expanded=true]")?.setAttribute("aria-expanded", "false");
}

/** Show what a citation names, below the line of its marker. */
function openCitation(button, citation, readNote) {
  const element = button.parentElement;
  const box = make("section", "cited");
  box.setAttribute("aria-label", `Citation ${citation.marker}`);
  const close = () => { closeCitation(element); button.focus(); };
  const heading = box.appendChild(make("p", "place", placeOf(citation)));
  const closing = heading.appendChild(make("button", "", "Close"));
  closing.type = "button";
  closing.addEventListener("click", close);
  if (citation.heading) box.append(make("p", "note", `Under “${escapeHidden(citation.heading)}”`));
  box.append(make("p", `status ${citation.status}`, STATUSES[citation.status] ?? citation.status ?? ""));
  box.append(make("blockquote", "", escapeHidden(citation.quote)));
  box.addEventListener("keydown", (event) => { if (event.key === "Escape") close(); });
  button.onkeydown = (event) => { if (event.key === "Escape") closeCitation(element); };
  button.setAttribute("aria-expanded", "true");
  insertBelow(button, box);
  if (citation.path === undefined) return;
  showPassage(box, citation, readNote).finally(() => box.scrollIntoView({ block: "nearest" }));
}

/** Insert the box after the line of text in which the button stands. */
function insertBelow(button, box) {
  let node = button.nextSibling;
  while (node && !(node.nodeType === Node.TEXT_NODE && node.data.includes("\n"))) node = node.nextSibling;
  if (!node) { button.parentElement.append(box); return; }
  button.parentElement.insertBefore(box, node.splitText(node.data.indexOf("\n") + 1));
}

/** Add the lines of the note as it is now, the quoted one marked. */
async function showPassage(box, citation, readNote) {
  const { vault, path, line_start, line_end, quote, quote_line, status } = citation;
  try {
    const lines = (await readNote(vault, path)).text.split(/\r\n|\n|\r/).slice(line_start - 1, line_end);
    const passage = make("ol", "passage");
    passage.start = line_start;
    passage.setAttribute("aria-label", `Lines ${line_start} to ${line_end} of ${escapeHidden(path)}`);
    for (const [index, line] of lines.slice(0, MAX_LINES).entries()) {
      const isQuoted = line === quote && (quote_line ?? line_start + index) === line_start + index;
      passage.appendChild(make("li")).append(make(isQuoted ? "mark" : "span", "", escapeHidden(line)));
    }
    if (status === "changed") box.append(make("p", "note", "These lines of the note as it is now:"));
    box.append(passage);
    if (lines.length > MAX_LINES) box.append(make("p", "note", `… and ${lines.length - MAX_LINES} more lines.`));
    if (!lines.length) passage.replaceWith(make("p", "note", "The note has no such lines any more."));
  } catch (error) {
    box.append(make("p", "error", `The note cannot be shown. ${error.message}`));
  }
}

/** Return where a citation leads: the note with its lines, or the address of a page, as text. */
function placeOf({ vault, path, url, line_start, line_end }) {
  if (path === undefined) return escapeHidden(url ?? "");
  const lines = line_start === line_end ? `line ${line_start}` : `lines ${line_start}–${line_end}`;
  return `${escapeHidden(`${vault}: ${path}`)}, ${lines}`;
}
