// @ts-check
// Markdown as elements: what a model wrote is text in them, never markup.

import { html, memo, useEffect, useMemo, useRef, useState } from "../vendor/preact.js";
import { escapeHidden, escapeHiddenText } from "../text/hidden_characters.js";
import { highlight } from "../text/highlight.js";
import { parseInline } from "../text/markdown_inline.js";
import { parseMarkdown } from "../text/markdown.js";
import { copyText } from "./clipboard.js";
import { useLimit } from "./use_limit.js";

const MAX_COLOURED = 100_000; // characters of a block of code; a longer one has no colours
const MAX_OPEN = 10_000; // characters of a block that is still written, which is read anew each time; a longer one is plain
const MAX_ROWS = 200; // of a table at first
const MAX_COLUMNS = 100; // likewise
const MAX_LINES = 400; // of a block of code at first
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
  const last = complete ? -1 : blocks.length - 1;
  return html`<div class="markdown">
    ${blocks.map((block, index) => html`
      <${BlockView} key=${index} block=${block} references=${references} mark=${mark} isOpen=${index === last} />`)}
  </div>`;
}

const BlockView = memo(({ block, ...context }) => {
  const text = (part) => html`<${InlineView} text=${part} ...${context} />`;
  switch (block.type) {
    case "paragraph": return html`<p>${text(block.text)}</p>`;
    case "heading": return html`<${`h${Math.min(6, block.level + 1)}`}>${text(block.text)}<//>`;
    case "code": return html`<${CodeBlock} ...${block} owner=${block} />`;
    case "quote": return html`<blockquote>${blockViews(block.children, context)}</blockquote>`;
    case "list": return html`<${ListView} list=${block} ...${context} />`;
    case "table": return html`<${TableView} table=${block} ...${context} />`;
    case "rule": return html`<hr />`;
    case "html": return html`<pre class="html">${escapeHiddenText(block.text)}</pre>`;
    default: return null;
  }
});

function blockViews(blocks, { isOpen, ...context }) {
  return blocks.map((block, index) => html`
    <${BlockView} key=${index} block=${block} isOpen=${isOpen && index === blocks.length - 1} ...${context} />`);
}

function ListView({ list, isOpen, ...context }) {
  const items = list.items.map((item, index) => html`
    <${ItemView} key=${index} item=${item} tight=${list.tight} isOpen=${isOpen && index === list.items.length - 1} ...${context} />`);
  if (!list.ordered) return html`<ul>${items}</ul>`;
  const { length } = String(list.start + items.length - 1); // of the longest number: the style sheet has room for two digits
  return html`<ol start=${list.start} style=${length > 2 ? { paddingLeft: `calc(${length}ch + .8em)` } : null}>${items}</ol>`;
}

const ItemView = memo(({ item, tight, ...context }) => {
  const isTask = item.checked !== null;
  const box = isTask && html`<input type="checkbox" disabled checked=${item.checked} aria-label=${item.checked ? "Done" : "To do"} /> `;
  return html`<li class=${[isTask && "task", tight && "tight"].filter(Boolean).join(" ") || null}>${box}${blockViews(item.children, context)}</li>`;
});

function TableView({ table, ...context }) {
  const { align, header, rows } = table;
  const [{ length: columns }, moreColumns] = useLimit(header, MAX_COLUMNS, "columns");
  const row = (cells, index, tag) => html`<${TableRow} key=${index} cells=${cells} columns=${columns} tag=${tag} align=${align.join()}
    isOpen=${context.isOpen && index === rows.length - 1} references=${context.references} mark=${context.mark} />`;
  const [shown, more] = useLimit(rows, MAX_ROWS, "rows", table);
  return html`<div class="table" role="region" aria-label="Table" tabindex="0"><table>
    <thead>${row(header, -1, "th")}</thead>
    <tbody>${shown.map((cells, index) => row(cells, index, "td"))}</tbody>
  </table></div>${moreColumns}${more}`;
}

const TableRow = memo(({ cells, columns, tag, align, ...context }) => {
  const sides = align.split(",");
  return html`<tr>${cells.slice(0, columns).map((cell, index) => html`
    <${tag} key=${index} class=${sides[index] ? `align-${sides[index]}` : null}><${InlineView} text=${cell} ...${context} /><//>`)}</tr>`;
});

const InlineView = memo(({ text, references, mark, isOpen }) => {
  const isPlain = isOpen && text.length > MAX_OPEN;
  const tokens = useMemo(() => (isPlain ? null : parseInline(text, references)), [text, references, isPlain]);
  return tokens ? inlineViews(tokens, mark, false) : escapeHiddenText(text);
});

/**
 * Return what a person reads in blocks, without the signs of Markdown; `mark` returns the text for a number.
 * @param {import("../text/markdown.js").Block[]} blocks @param {import("../text/markdown.js").References} references
 * @param {(number: number) => string} mark @returns {string}
 */
export function textOfBlocks(blocks, references, mark) {
  const inline = (text) => inlineText(parseInline(text, references), mark, false);
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
  const lines = useMemo(() => text.split("\n"), [text]);
  const [shown, more] = useLimit(lines, MAX_LINES, "lines", owner);
  return html`<div class="code">
    <div class="code-head"><span>${escapeHidden(language) || "Code"}</span><${CopyButton} text=${text} /></div>
    <pre tabindex="0" aria-label=${language ? `Code, ${escapeHidden(language)}` : "Code"}><${CodeText} text=${more ? shown.join("\n") : text} language=${language} closed=${closed} /></pre>
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
  const parts = segments?.map(({ text: part, scope }) =>
    scope ? html`<span class=${`code-${scope}`}>${escapeHidden(part)}</span>` : escapeHidden(part));
  return html`<code>${parts ?? escapeHidden(text)}</code>`;
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
