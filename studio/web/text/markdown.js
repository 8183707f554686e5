// @ts-check
// Markdown to blocks and inline tokens: CommonMark with tables, task lists, struck text and bare links of GFM.
//
// The text is a model's and may be hostile or very long, so both phases read each character a bounded number of times:
// blocks are made line by line as in the algorithm of the CommonMark specification (https://spec.commonmark.org/0.31.2/,
// appendix A), containers nest at most MAX_DEPTH deep, and each search ahead has a bound or starts behind the last one.
// Differences: HTML is text (of block-level elements in a block of its own, `<br>` breaks the line); of the names of
// characters only common ones are known; a definition stands on one line; one tilde strikes nothing.

import { normalizeLabel, TAG } from "./markdown_inline.js";

const MAX_DEPTH = 40; // of quotes, lists and their items in each other; what is deeper is text

const HEADING = /^(#{1,6})(?:[ \t]+|$)/;
const CLOSING_SIGNS = /(?:^|[ \t])#{1,1000}[ \t]{0,1000}$/;
const FENCE = /^(`{3,}|~{3,})/;
const RULE = /^(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const UNDERLINE = /^(=+|-+)[ \t]*$/;
const ITEM = /^(?:([-+*])|(\d{1,9})([.)]))(?=[ \t]|$)/;
const ALIGNMENT = /^:?-+:?$/;
const TASK = /^\[([ xX])\](?=\s)/;
const DEFINITION =
  /^\[((?:[^[\]\\]|\\.){1,999})\]:[ \t]*(?:<([^<>]*)>|([^\s<]\S*))(?:[ \t]+(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|\(((?:[^()\\]|\\.)*)\)))?[ \t]*$/;
const LONGEST_DEFINITION = 4000; // a line that is longer is text
const LONGEST_TAG = 4000; // likewise
const HTML_TEXT = /^<(script|pre|style|textarea)(?=[\s>]|$)/i; // until its end tag
const HTML_ENDS = [["<!--", "-->"], ["<?", "?>"], ["<![CDATA[", "]]>"]];
const HTML_BLOCK = new RegExp(
  "^</?(?:address|article|aside|base|basefont|blockquote|body|caption|center|col|colgroup|dd|details|dialog|dir|div|dl|dt" +
    "|fieldset|figcaption|figure|footer|form|frame|frameset|h[1-6]|head|header|hr|html|iframe|legend|li|link|main|menu" +
    "|menuitem|nav|noframes|ol|optgroup|option|p|param|search|section|summary|svg|table|tbody|td|tfoot|th|thead|title|tr" +
    "|track|ul)(?=\\s|/?>|$)",
  "i",
);

const HTML_TAG = new RegExp(`^${TAG.source}[ \t]*$`, "i"); // alone on its line

/**
 * @typedef {{type: "paragraph", text: string}} Paragraph
 * @typedef {{type: "heading", level: number, text: string}} Heading
 * @typedef {{type: "code", text: string, language: string, closed: boolean}} Code
 * @typedef {{type: "quote", children: Block[]}} Quote
 * @typedef {{checked: boolean | null, children: Block[]}} Item
 * @typedef {{type: "list", ordered: boolean, start: number, tight: boolean, items: Item[]}} List
 * @typedef {{type: "table", align: ("left" | "center" | "right" | null)[], header: string[], rows: string[][]}} Table
 * @typedef {{type: "rule"} | {type: "html", text: string} | {type: "definitions"}} Other
 * @typedef {Paragraph | Heading | Code | Quote | List | Table | Other} Block
 * @typedef {Map<string, {href: string, title: string}>} References by their labels in lower case
 * @typedef {{label: string, href: string, title: string}} Definition
 * @typedef {{text: string, blocks: Block[], references: References, parser: BlockParser}} Markdown `parser` for the next one
 */

/**
 * Return the blocks of a text, and the references that its inline text may name. With the result for a beginning of the
 * text only what follows it is read; blocks that did not change are the same objects, and the outcome is that of the
 * whole text.
 *
 * @param {string} text
 * @param {Markdown | null} [previous]
 * @returns {Markdown}
 */
export function parseMarkdown(text, previous = null) {
  if (previous && previous.text === text) return previous;
  const parser = previous && text.startsWith(previous.text) ? previous.parser.fork() : new BlockParser();
  parser.addLines(text);
  const all = parser.fork();
  if (parser.end < text.length) all.addLine(text.slice(parser.end)); // it may mean something else when it is complete
  all.closeTo(1);
  const references = collectReferences(all.definitions, previous?.references);
  return { text, blocks: all.root.children, references, parser };
}

/**
 * Return the definitions by label, the first of each; the map of before if it has the same.
 *
 * @param {Definition[]} definitions
 * @param {References} [previous]
 * @returns {References}
 */
function collectReferences(definitions, previous = new Map()) {
  const references = new Map();
  for (const { label, href, title } of definitions) if (!references.has(label)) references.set(label, { href, title });
  const isSame = references.size === previous.size && [...references].every(([label, { href, title }]) => {
    const before = previous.get(label);
    return before !== undefined && before.href === href && before.title === title;
  });
  return isSame ? previous : references;
}

class Line {
  /** The rest of a line that starts at a column of the page; tabs go to multiples of four. */
  constructor(text) {
    this.text = text;
    this.column = 0;
    this.indent = 0; // columns of white space at its begin
    this.spaces = 0; // and characters
    this.isBlank = false;
    this.measure();
  }

  measure() {
    let at = 0, column = this.column;
    for (; at < this.text.length; at += 1) {
      if (this.text[at] === " ") column += 1;
      else if (this.text[at] === "\t") column = (column | 3) + 1;
      else break;
    }
    this.indent = column - this.column;
    this.spaces = at;
    this.isBlank = at === this.text.length;
  }

  /** What follows the white space. */
  get content() {
    return this.text.slice(this.spaces);
  }

  /** Remove signs that are not white space. */
  skip(count) {
    this.text = this.text.slice(this.spaces + count);
    this.column += this.indent + count;
    this.measure();
  }

  /** Remove white space up to a number of columns; the rest of a tab remains as spaces. */
  strip(columns) {
    const left = this.indent - Math.min(columns, this.indent);
    const isSplit = left > 0 && this.text.slice(0, this.spaces).includes("\t");
    if (isSplit) this.text = " ".repeat(left) + this.content;
    else this.text = this.text.slice(this.spaces - left);
    this.column += this.indent - left;
    this.measure();
  }
}

class BlockParser {
  constructor() {
    this.root = { type: "document", children: [] };
    /** @type {any[]} containers that are open, outermost first; all of them are the last child of the one before */
    this.open = [this.root];
    /** @type {any} the open block that takes lines, the last child of the last container */
    this.leaf = null;
    this.isAfterBlank = false;
    /** @type {any} the quote that the blank line was in, null if it was in none */
    this.blankQuote = null;
    /** @type {Definition[]} */
    this.definitions = [];
    this.end = 0; // of the lines that were added, in the text
  }

  /** Return a parser that goes on from here; what is closed is shared by both. */
  fork() {
    const copy = new BlockParser();
    copy.root.children = [...this.root.children];
    for (const container of this.open.slice(1)) copy.open.push(copyContainer(container, copy.open[copy.open.length - 1]));
    if (this.leaf) copy.leaf = copyLeaf(this.leaf, copy.open[copy.open.length - 1]);
    copy.isAfterBlank = this.isAfterBlank;
    copy.blankQuote = copy.open[this.open.indexOf(this.blankQuote)] ?? null;
    copy.definitions = [...this.definitions];
    copy.end = this.end;
    return copy;
  }

  /** Add the complete lines of a text that follow those added before. */
  addLines(text) {
    for (let end; (end = text.indexOf("\n", this.end)) >= 0; this.end = end + 1) this.addLine(text.slice(this.end, end));
  }

  addLine(text) {
    const line = new Line(text.endsWith("\r") ? text.slice(0, -1) : text);
    const matched = this.matchContainers(line);
    const isInside = matched === this.open.length;
    if (isInside && this.leaf && this.continueVerbatim(line)) return;
    if (line.isBlank) this.addBlank(matched);
    else if (!this.startBlocks(line, matched)) this.addText(line);
  }

  /** Remove what continues the open containers from the line; return how many it continues. */
  matchContainers(line) {
    let matched = 1;
    for (; matched < this.open.length; matched += 1) {
      const container = this.open[matched];
      if (container.type === "quote") {
        if (line.indent > 3 || line.text[line.spaces] !== ">") break;
        skipQuoteSign(line);
      } else if (container.type === "item") {
        if (line.isBlank ? !container.children.length : line.indent < container.indent) break;
        line.strip(container.indent);
      }
    }
    // A list whose item does not go on is itself still open: for the next item.
    return matched;
  }

  /** Add the line to a block of code or HTML; return false if the block does not take it. */
  continueVerbatim(line) {
    const { leaf } = this;
    if (leaf.type === "code" && leaf.fence) {
      if (isClosingFence(line, leaf.fence)) this.closeFence();
      else { line.strip(leaf.indent); leaf.lines.push(line.text); }
    } else if (leaf.type === "code") {
      if (!line.isBlank && line.indent < 4) return false;
      line.strip(4);
      leaf.lines.push(line.text);
    } else if (leaf.type === "html") {
      if (!leaf.until && line.isBlank) return false;
      leaf.lines.push(line.text);
      if (leaf.until && line.text.toLowerCase().includes(leaf.until)) this.closeLeaf();
    } else return false;
    this.isAfterBlank = line.isBlank && leaf.type === "code" && !leaf.fence;
    this.blankQuote = null;
    return true;
  }

  /** Open the containers and the block that start in the line; return false if text is left of it. */
  startBlocks(line, matchedCount) {
    let matched = matchedCount;
    for (;;) {
      const isInside = matched === this.open.length;
      const paragraph = this.leaf?.type === "paragraph" ? this.leaf : null;
      if (line.indent > 3) {
        if (paragraph) return false; // also a lazy one
        this.closeTo(matched);
        this.startCode(line);
        return true;
      }
      if (paragraph && isInside && this.underline(line, paragraph)) return true;
      const container = this.open.length < MAX_DEPTH ? this.startContainer(line, matched, paragraph !== null && isInside) : null;
      if (!container) {
        if (this.startLeaf(line, matched)) return true;
        if (this.leaf?.type !== "paragraph" && !isInside) this.closeTo(matched);
        return false;
      }
      if (line.isBlank) return true;
      matched = this.open.length;
    }
  }

  /** Open a quote or an item of a list; return it, null if the line starts none. */
  startContainer(line, matched, isInParagraph) {
    if (line.text[line.spaces] === ">") {
      this.closeTo(matched);
      skipQuoteSign(line);
      return this.push({ type: "quote", children: [] });
    }
    const marker = ITEM.exec(line.content);
    if (!marker || RULE.test(line.content)) return null;
    return this.startItem(line, matched, marker, isInParagraph);
  }

  startItem(line, matched, marker, isInParagraph) {
    const [sign, bullet, number, delimiter] = marker;
    const isEmptyItem = line.content.length === sign.length || !line.content.slice(sign.length).trim();
    if (isInParagraph && (isEmptyItem || (number && Number(number) !== 1))) return null;
    const before = line.indent;
    line.skip(sign.length);
    const isCode = line.indent > 4;
    const gap = isEmptyItem || isCode ? 1 : line.indent;
    const indent = before + sign.length + gap;
    line.strip(gap);
    this.closeTo(matched);
    const kind = bullet ?? delimiter;
    const parent = this.open.at(-1);
    if (parent.type !== "list" || parent.kind !== kind) {
      const block = { type: "list", ordered: bullet === undefined, start: Number(number ?? 0), tight: true, items: [] };
      this.push({ type: "list", kind, block });
    } else if (this.followsBlank) parent.block.tight = false;
    this.isAfterBlank = false;
    const list = this.open.at(-1).block;
    const item = { checked: null, children: [] };
    list.items.push(item);
    const container = { type: "item", indent, list, item, children: item.children };
    this.open.push(container);
    return container;
  }

  /** Start a block without children; return false if the line is text. */
  startLeaf(line, matched) {
    const { content } = line;
    const start = content[0];
    const heading = start === "#" && HEADING.exec(content);
    if (heading) {
      const text = content.slice(heading[0].length).trimEnd().replace(CLOSING_SIGNS, "").trimEnd();
      return this.addWhole(matched, { type: "heading", level: heading[1].length, text });
    }
    const fence = (start === "`" || start === "~") && FENCE.exec(content);
    if (fence) {
      const language = content.slice(fence[1].length).trim();
      if (start === "~" || !language.includes("`")) return this.startFence(line, matched, fence[1], language);
    }
    if ((start === "*" || start === "-" || start === "_") && RULE.test(content)) return this.addWhole(matched, { type: "rule" });
    return start === "<" && content.length <= LONGEST_TAG && this.startHtml(line, matched);
  }

  addWhole(matched, block) {
    this.closeTo(matched);
    this.addChild(block);
    return true;
  }

  startFence(line, matched, fence, language) {
    this.closeTo(matched);
    const block = this.addChild({ type: "code", text: "", language: language.split(/\s/)[0], closed: false });
    this.leaf = { type: "code", block, fence, indent: line.indent, lines: [] };
    return true;
  }

  startHtml(line, matched) {
    const { content } = line;
    const until = endOfHtml(content);
    const isTag = !this.leaf && HTML_TAG.test(content); // such a line is text in a paragraph
    if (!until && !isTag && !HTML_BLOCK.test(content)) return false;
    this.closeTo(matched);
    const block = this.addChild({ type: "html", text: "" });
    this.leaf = { type: "html", block, until, lines: [line.text] };
    if (until && content.toLowerCase().includes(until)) this.closeLeaf();
    return true;
  }

  startCode(line) {
    const block = this.addChild({ type: "code", text: "", language: "", closed: true });
    line.strip(4);
    this.leaf = { type: "code", block, fence: null, lines: [line.text] };
  }

  /** Take a line below a paragraph that makes it a heading, or its last line the header of a table. */
  underline(line, paragraph) {
    const { content } = line;
    const sign = UNDERLINE.exec(content)?.[1];
    const { lines, block } = paragraph;
    if (sign && !lines.every(isDefinition)) {
      const text = takeDefinitions(lines, this.definitions).join("\n").trim();
      Object.assign(block, { type: "heading", level: sign[0] === "=" ? 1 : 2, text });
      this.leaf = null;
      return true;
    }
    const align = content.includes("|") || lines.at(-1).includes("|") ? readAlignment(content) : null;
    const header = align && splitRow(lines.at(-1));
    if (!header || header.length !== align.length) return false;
    lines.pop();
    const table = { type: "table", align, header, rows: [] };
    if (!lines.length) this.leaf = { type: "table", block: replace(block, table) };
    else {
      this.closeLeaf();
      this.leaf = { type: "table", block: this.addChild(table) };
    }
    return true;
  }

  addBlank(matched) {
    if (matched < this.open.length) this.closeTo(matched);
    else this.closeLeaf();
    const innermost = this.open[matched - 1];
    this.blankQuote = innermost.type === "quote" ? innermost : null;
    this.isAfterBlank = true;
  }

  /** Whether a blank line stands before what is added now; one in a quote that has ended is none. */
  get followsBlank() {
    return this.isAfterBlank && (this.blankQuote === null || this.open.includes(this.blankQuote));
  }

  addText(line) {
    const { leaf } = this;
    if (leaf?.type === "paragraph") leaf.lines.push(line.content); // lazily in containers that the line does not continue
    else if (leaf?.type === "table") leaf.block.rows.push(splitRow(line.content).slice(0, leaf.block.align.length));
    else {
      this.closeLeaf();
      this.leaf = { type: "paragraph", block: this.addChild({ type: "paragraph", text: "" }), lines: [line.content] };
    }
    this.isAfterBlank = false;
  }

  /** Add a block to the innermost container that takes blocks. */
  addChild(block) {
    while (this.open.at(-1).type === "list") this.open.pop();
    const parent = this.open.at(-1);
    if (parent.type === "item" && this.followsBlank && parent.children.length) parent.list.tight = false;
    this.isAfterBlank = false;
    parent.children.push(block);
    return block;
  }

  push(container) {
    const block = container.block ?? container;
    this.addChild(block);
    this.open.push(container);
    return container;
  }

  /** Close the containers behind the first `count`, and the leaf in them. */
  closeTo(count) {
    this.closeLeaf();
    if (this.open.length > count) this.open.length = count;
  }

  closeFence() {
    this.leaf.block.closed = true;
    this.closeLeaf();
  }

  closeLeaf() {
    const { leaf } = this;
    this.leaf = null;
    if (leaf?.type === "code") {
      if (!leaf.fence) while (leaf.lines.length && !leaf.lines.at(-1).trim()) leaf.lines.pop();
      leaf.block.text = leaf.lines.join("\n");
    } else if (leaf?.type === "html") leaf.block.text = leaf.lines.join("\n");
    else if (leaf?.type === "paragraph") this.closeParagraph(leaf);
  }

  closeParagraph({ block, lines }) {
    const rest = takeDefinitions(lines, this.definitions);
    if (!rest.length) { replace(block, { type: "definitions" }); return; }
    block.text = rest.join("\n").trim();
    const parent = this.open.at(-1);
    const task = parent.type === "item" && parent.children.length === 1 ? TASK.exec(block.text) : null;
    if (!task) return;
    parent.item.checked = task[1] !== " ";
    block.text = block.text.slice(task[0].length).trimStart();
  }
}

/** Copy an open container into the copy of the one around it. */
function copyContainer(container, parent) {
  if (container.type === "quote") {
    const copy = { ...container, children: [...container.children] };
    parent.children[parent.children.length - 1] = copy;
    return copy;
  }
  if (container.type === "list") {
    const block = { ...container.block, items: [...container.block.items] };
    parent.children[parent.children.length - 1] = block;
    return { ...container, block };
  }
  const { items } = parent.block;
  const item = { ...container.item, children: [...container.item.children] };
  items[items.length - 1] = item;
  return { ...container, list: parent.block, item, children: item.children };
}

function copyLeaf(leaf, parent) {
  const block = { ...leaf.block };
  if (block.rows) block.rows = [...block.rows];
  parent.children[parent.children.length - 1] = block;
  return { ...leaf, block, lines: leaf.lines && [...leaf.lines] };
}

/** Make a block another one in its place. */
function replace(block, other) {
  for (const key of Object.keys(block)) delete block[key];
  return Object.assign(block, other);
}

/** Return what ends a block of HTML that a blank line does not end, null if the line starts none. */
function endOfHtml(content) {
  const name = HTML_TEXT.exec(content)?.[1].toLowerCase();
  if (name) return `</${name}>`;
  return HTML_ENDS.find(([start]) => content.startsWith(start))?.[1] ?? (/^<![a-z]/i.test(content) ? ">" : null);
}

function skipQuoteSign(line) {
  line.skip(1);
  if (line.indent) line.strip(1);
}

function isClosingFence(line, fence) {
  if (line.indent > 3 || line.text[line.spaces] !== fence[0]) return false;
  const { content } = line;
  const count = content.match(FENCE)?.[1].length ?? 0;
  return count >= fence.length && !content.slice(count).trim();
}

const isDefinition = (line) => line.length <= LONGEST_DEFINITION && DEFINITION.test(line) && !line.startsWith("[^");

/** Add the definitions at the begin of a paragraph to a list; return the lines behind them. */
function takeDefinitions(lines, definitions) {
  let count = 0;
  while (count < lines.length && isDefinition(lines[count])) {
    const [, label, bracketed, plain, ...titles] = DEFINITION.exec(lines[count]) ?? [];
    const title = titles.find((each) => each !== undefined) ?? "";
    definitions.push({ label: normalizeLabel(label), href: bracketed ?? plain, title });
    count += 1;
  }
  return lines.slice(count);
}

/** Return the alignments in the second line of a table, null if the line is another one. */
function readAlignment(line) {
  const cells = splitRow(line);
  if (!cells.every((cell) => ALIGNMENT.test(cell))) return null;
  return cells.map((cell) => {
    const [left, right] = [cell.startsWith(":"), cell.endsWith(":")];
    return left && right ? "center" : left ? "left" : right ? "right" : null;
  });
}

/** Return the cells of a row, in which a sign that divides cells is escaped. */
function splitRow(line) {
  const text = line.trim();
  const cells = [];
  let start = text.startsWith("|") ? 1 : 0;
  for (let at = start; at < text.length; at += 1) {
    if (text[at] === "\\") at += 1;
    else if (text[at] === "|") { cells.push(text.slice(start, at)); start = at + 1; }
  }
  if (start < text.length) cells.push(text.slice(start));
  return cells.map((cell) => cell.trim().replaceAll("\\|", "|"));
}
