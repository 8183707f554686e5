// @ts-check
// Markdown as elements: what a model wrote is text in them, never markup.

import { html, memo, useEffect, useMemo, useRef, useState } from "../vendor/preact.js";
import { escapeHidden, escapeHiddenText } from "../text/hidden_characters.js";
import { highlight } from "../text/highlight.js";
import { parseInline } from "../text/markdown_inline.js";
import { parseMarkdown } from "../text/markdown.js";
import { divideText, MOST, sizeOfBlock, sizeOfRow } from "../text/markdown_size.js";
import { copyText } from "./clipboard.js";
import { useLimit } from "./use_limit.js";

const MAX_COLOURED = 100_000; // characters of a block of code; a longer one has no colours
const MAX_COLOURS = 6000; // elements for them; what follows has none
const MAX_OPEN = 10_000; // characters of a block that is still written, which is read anew each time; a longer one is plain
const OPEN_PART = 200; // size of the parts of a plain one, of which only the last is laid out again; they have fewer characters
const DOCUMENT = 2 * MOST; // size of what is shown at first of a text
const LEAST = 20; // size of what is shown at first of a list or quote deep in others
const MAX_ROWS = 200; // of a table at first
const MAX_COLUMNS = 100; // likewise
const MAX_LINES = 400; // of a block of code at first
const LINE_CHARACTERS = 250; // on average, of as many lines; a very long one is shown in parts
const LINE = /[^\n]{0,50000}\n|[^\n]{1,50000}/gu;
const COPIED_MS = 2000;
const LINKED = /^(?:https?:|mailto:)/i;

const MARK = /\ue000(\d{1,6})\ue001/;

/**
 * Show a text. While it is written (`complete` false), only what changes is rendered again. `mark(number)` returns the
 * element for a number that stands between the characters U+E000 and U+E001.
 *
 * @param {{text: string, complete?: boolean, mark?: (number: number) => any}} props
 */
export function MarkdownView({ text, complete = true, mark = undefined }) {
  const parsed = useRef(/** @type {import("../text/markdown.js").Markdown | null} */ (null));
  const { blocks, references } = (parsed.current = parseMarkdown(text, parsed.current));
  return html`<${BlocksView} blocks=${blocks} references=${references} complete=${complete} mark=${mark} />`;
}

/** Show blocks of a text, of which the last one is still written unless they are `complete`. */
export function BlocksView({ blocks, references, complete, mark = undefined }) {
  return html`<div class="markdown"><${ChildrenView} blocks=${blocks} most=${DOCUMENT} references=${references} mark=${mark} isOpen=${!complete} /></div>`;
}

/** Show blocks that follow each other, of at most about `most` elements at first; a list or quote in them has at most half as many. */
function ChildrenView({ blocks, isOpen, most, ...context }) {
  const [shown, more] = useLimit(blocks, most, "paragraphs", blocks, sizeOfBlock);
  const inner = Math.max(LEAST, Math.min(most, MOST) / 2);
  return html`${shown.map((block, index) => html`
    <${BlockView} key=${index} block=${block} isOpen=${isOpen && index === blocks.length - 1} most=${inner} ...${context} />`)}${more}`;
}

const BlockView = memo(({ block, ...context }) => {
  const text = (part) => html`<${InlineView} text=${part} owner=${block} ...${context} most=${MOST} />`;
  switch (block.type) {
    case "paragraph": return html`<p>${text(block.text)}</p>`;
    case "heading": return html`<${`h${Math.min(6, block.level + 1)}`}>${text(block.text)}<//>`;
    case "code": return html`<${CodeBlock} ...${block} owner=${block} />`;
    case "quote": return html`<blockquote><${ChildrenView} blocks=${block.children} ...${context} /></blockquote>`;
    case "list": return html`<${ListView} list=${block} ...${context} />`;
    case "table": return html`<${TableView} table=${block} ...${context} />`;
    case "rule": return html`<hr />`;
    case "html": return html`<${HtmlText} text=${block.text} owner=${block} />`;
    default: return null;
  }
});

function HtmlText({ text, owner }) {
  const [shown, more] = useLimit(useParts(text, MOST), 1, "parts", owner);
  return html`<pre class="html">${escapeHiddenText(shown.join(""))}</pre>${more}`;
}

function ListView({ list, isOpen, ...context }) {
  const [shown, more] = useLimit(list.items, context.most, "items", list, sizeOfBlock);
  const items = shown.map((item, index) => html`
    <${ItemView} key=${index} item=${item} tight=${list.tight} isOpen=${isOpen && index === list.items.length - 1} ...${context} />`);
  if (!list.ordered) return html`<ul>${items}</ul>${more}`;
  const { length } = String(list.start + items.length - 1); // of the longest number: the style sheet has room for two digits
  return html`<ol start=${list.start} style=${length > 2 ? { paddingLeft: `calc(${length}ch + .8em)` } : null}>${items}</ol>${more}`;
}

const ItemView = memo(({ item, tight, ...context }) => {
  const isTask = item.checked !== null;
  const box = isTask && html`<input type="checkbox" disabled checked=${item.checked} aria-label=${item.checked ? "Done" : "To do"} /> `;
  return html`<li class=${[isTask && "task", tight && "tight"].filter(Boolean).join(" ") || null}>${box}<${ChildrenView} blocks=${item.children} ...${context} /></li>`;
});

function TableView({ table, ...context }) {
  const { align, header, rows } = table;
  const [{ length: columns }, moreColumns] = useLimit(header, MAX_COLUMNS, "columns");
  const row = (cells, index, tag) => html`<${TableRow} key=${index} cells=${cells} columns=${columns} tag=${tag} align=${align.join()}
    isOpen=${context.isOpen && index === rows.length - 1} references=${context.references} mark=${context.mark} />`;
  const sizeOf = (cells) => Math.max(MOST / MAX_ROWS, sizeOfRow(cells.slice(0, columns)));
  const [shown, more] = useLimit(rows, MOST, "rows", table, sizeOf);
  return html`<div class="table" role="region" aria-label="Table" tabindex="0"><table>
    <thead>${row(header, -1, "th")}</thead>
    <tbody>${shown.map((cells, index) => row(cells, index, "td"))}</tbody>
  </table></div>${moreColumns}${more}`;
}

const TableRow = memo(({ cells, columns, tag, align, ...context }) => {
  const sides = align.split(",");
  const most = MOST / columns;
  return html`<tr>${cells.slice(0, columns).map((cell, index) => html`
    <${tag} key=${index} class=${sides[index] ? `align-${sides[index]}` : null}><${InlineView} text=${cell} most=${most} ...${context} /><//>`)}</tr>`;
});

const InlineView = memo(({ text, owner, most, isOpen, ...context }) => {
  const parts = useParts(text, isOpen && text.length > MAX_OPEN ? OPEN_PART : most);
  const [shown, more] = useLimit(parts, 1, "parts", owner);
  if (parts.length === 1) return html`<${InlinePart} text=${text} ...${context} />`;
  if (isOpen) return parts.map((part, index) => html`<${PlainPart} key=${index} text=${part} />`);
  return html`${shown.map((part, index) => html`<span key=${index}><${InlinePart} text=${part} ...${context} /></span>`)}${more}`;
});

/** Return the parts of a text; as it grows only its end is divided again. */
function useParts(text, most) {
  const before = useRef({ text: "", most, parts: /** @type {string[]} */ ([]) });
  return useMemo(() => {
    const { current } = before;
    const isLonger = current.most === most && text.startsWith(current.text);
    before.current = { text, most, parts: divideText(text, most, isLonger ? current.parts : []) };
    return before.current.parts;
  }, [text, most]);
}

const PlainPart = memo(({ text }) => html`<span class="part">${escapeHiddenText(text)}</span>`);

const InlinePart = memo(({ text, references, mark }) => {
  const tokens = useMemo(() => parseInline(text, references), [text, references]);
  return inlineViews(tokens, mark, false);
});

/**
 * Return what a person reads in blocks, without the signs of Markdown; `mark` returns the text for a number.
 * @param {import("../text/markdown.js").Block[]} blocks @param {import("../text/markdown.js").References} references
 * @param {(number: number) => string} mark @returns {string}
 */
export function textOfBlocks(blocks, references, mark) {
  const inline = (text) => divideText(text).map((part) => inlineText(parseInline(part, references), mark, false)).join("");
  const inner = (children) => textOfBlocks(children, references, mark);
  return blocks.map((block) => {
    switch (block.type) {
      case "paragraph": case "heading": return inline(block.text);
      case "code": return escapeHidden(`${block.language}\n${block.text}`);
      case "quote": return inner(block.children);
      case "list": return block.items.map(({ children }) => inner(children)).join("\n");
      case "table": return [block.header, ...block.rows].map((cells) => cells.map(inline).join("\t")).join("\n");
      case "html": return escapeHiddenText(block.text);
      default: return "";
    }
  }).join("\n");
}

/** Return what a person reads in a text with Markdown. @param {string} text */
export function plainText(text) {
  const { blocks, references } = parseMarkdown(text);
  return textOfBlocks(blocks, references, () => "");
}

/** Return the text of what `inlineViews` shows. */
function inlineText(tokens, mark, isInLink) {
  return tokens.map((token) => {
    switch (token.type) {
      case "text": return [textViews(token.text, mark)].flat().join("").replaceAll("\n", " ");
      case "code": return escapeHidden(token.text);
      case "break": return "\n";
      case "em": case "strong": case "del": return inlineText(token.children, mark, isInLink);
      default: return linkText(token, inlineText(token.children, mark, true), isInLink);
    }
  }).join("");
}

function linkText({ type, href, children }, text, isInLink) {
  const shownHref = escapeHidden(href);
  const label = type === "image" ? `Image: ${children.length ? text : shownHref}` : text;
  return isInLink || !href || LINKED.test(href) ? label : `${label} (${shownHref})`;
}

/** Return the views of tokens; a link in a link is shown by its text. */
function inlineViews(tokens, mark, isInLink) {
  const inner = (token) => inlineViews(token.children, mark, isInLink);
  return tokens.map((token, index) => {
    switch (token.type) {
      case "text": return textViews(token.text, mark);
      case "code": return html`<code key=${index}>${escapeHidden(token.text)}</code>`;
      case "break": return html`<br key=${index} />`;
      case "em": case "strong": case "del": return html`<${token.type} key=${index}>${inner(token)}<//>`;
      default: return html`<${LinkView} key=${index} token=${token} mark=${mark} isInLink=${isInLink} />`;
    }
  });
}

/** Return a text with the elements of its marks. */
function textViews(text, mark) {
  if (!text.includes("\ue000")) return escapeHiddenText(text);
  return text.split(MARK).map((part, index) => (index % 2 ? mark?.(Number(part)) : escapeHiddenText(part)));
}

/** Show a link, or an image as a link to it: nothing is loaded that a text names. */
function LinkView({ token: { type, href, title, children }, mark, isInLink }) {
  const text = inlineViews(children, mark, true);
  const label = type === "image" ? [`Image: `, ...(text.length ? text : [escapeHidden(href)])] : text;
  const shownHref = escapeHidden(href);
  if (isInLink) return html`<span>${label}</span>`;
  if (!LINKED.test(href)) return html`<span class="no-link" title=${shownHref}>${label}${href && ` (${shownHref})`}</span>`;
  const hint = title ? `${escapeHidden(title)}\n${shownHref}` : shownHref;
  return html`<a href=${href} title=${hint} rel="noreferrer" target="_blank">${label}</a>`;
}

/**
 * Show code with its language and a button that copies it.
 *
 * @param {{text: string, language?: string, closed?: boolean, owner?: object}} props
 */
export function CodeBlock({ text, language = "", closed = true, owner = undefined }) {
  const lines = useMemo(() => text.match(LINE) ?? [], [text]);
  const [shown, more] = useLimit(lines, MAX_LINES, "lines", owner, (line) => Math.max(1, line.length / LINE_CHARACTERS));
  return html`<div class="code">
    <div class="code-head"><span>${escapeHidden(language) || "Code"}</span><${CopyButton} text=${text} /></div>
    <pre tabindex="0" aria-label=${language ? `Code, ${escapeHidden(language)}` : "Code"}><${CodeText} text=${more ? shown.join("").replace(/\n$/, "") : text} language=${language} closed=${closed} /></pre>
    ${more}
  </div>`;
}

/**
 * Code with its colours, which come when its last line is written.
 *
 * @param {{text: string, language: string, closed?: boolean}} props
 */
export function CodeText({ text, language, closed = true }) {
  const isColoured = closed && text.length <= MAX_COLOURED;
  const segments = useMemo(() => (isColoured ? highlight(text, language) : null), [text, language, isColoured]);
  const coloured = segments?.slice(0, MAX_COLOURS) ?? [];
  const plain = segments ? segments.slice(MAX_COLOURS).map(({ text: part }) => part).join("") : text;
  return html`<code>${coloured.map(({ text: part, scope }) =>
    scope ? html`<span class=${`code-${scope}`}>${escapeHidden(part)}</span>` : escapeHidden(part))}${escapeHidden(plain)}</code>`;
}

/** @param {{text: string}} props */
export function CopyButton({ text }) {
  const [label, setLabel] = useState("Copy");
  useEffect(() => {
    if (label === "Copy") return undefined;
    const timer = setTimeout(() => setLabel("Copy"), COPIED_MS);
    return () => clearTimeout(timer);
  }, [label]);
  const copy = () => copyText(text).then(() => setLabel("Copied"), () => setLabel("Not copied"));
  return html`<button type="button" class="copy" onClick=${copy}>${label}</button>`;
}
