// Compare the page's Markdown with Marked's: prints the files in which they differ, and where they do first.
// `node oracle.mjs FILE…`

import { readFileSync } from "node:fs";
import { Lexer } from "marked";
import { parseInline } from "../../../studio/web/text/markdown_inline.js";
import { parseMarkdown } from "../../../studio/web/text/markdown.js";

const SIGNS = { strong: "**", em: "_", del: "~~" };
const CHARACTERS = { "&lt;": "<", "&gt;": ">", "&quot;": '"', "&#39;": "'", "&amp;": "&" };
const oneLine = (text) => text.replace(/\s+/g, " ").trim();
const decode = (text) => text.replace(/&(?:lt|gt|quot|#39|amp);/g, (found) => CHARACTERS[found]);
const link = (type, text, href, title) => `${type === "image" ? "!" : ""}[${text}](${href} ${title ?? ""})`;

function markedInline(tokens) {
  return tokens.map((token) => {
    if (token.type in SIGNS) return SIGNS[token.type] + markedInline(token.tokens) + SIGNS[token.type];
    if (token.type === "codespan") return `\`${decode(token.text)}\``;
    if (token.type === "br") return "<br>";
    if (token.type === "link" || token.type === "image") {
      return link(token.type, markedInline(token.tokens), decode(token.href), token.title && decode(token.title));
    }
    return token.tokens ? markedInline(token.tokens) : decode(token.text);
  }).join("");
}

function markedBlocks(tokens) {
  return tokens.flatMap((token) => {
    const inline = (part) => oneLine(markedInline(part.tokens ?? [part]));
    switch (token.type) {
      case "space": case "def": case "checkbox": return [];
      case "heading": return [`heading ${token.depth} ${inline(token)}`];
      case "paragraph": case "text": return [`paragraph ${inline(token)}`];
      case "code": return [`code ${(token.lang ?? "").split(/\s/)[0]} ${token.text.trimEnd()}`];
      case "hr": return ["rule"];
      case "html": return [`html ${oneLine(token.text)}`];
      case "blockquote": return ["quote", markedBlocks(token.tokens)];
      case "list": return [`list ${token.ordered ? token.start : ""}`, ...token.items.map((item) =>
        [item.task ? item.checked : null, markedBlocks(item.tokens)])];
      case "table": return [`table ${token.align}`, ...[token.header, ...token.rows].map((row) => row.map(inline))];
      default: throw new Error(token.type);
    }
  });
}

function pageInline(tokens) {
  return tokens.map((token) => {
    if (token.type in SIGNS) return SIGNS[token.type] + pageInline(token.children) + SIGNS[token.type];
    if (token.type === "code") return `\`${token.text}\``;
    if (token.type === "break") return "<br>";
    return token.children ? link(token.type, pageInline(token.children), token.href, token.title) : token.text;
  }).join("");
}

function pageBlocks(blocks, references) {
  const inline = (text) => oneLine(pageInline(parseInline(text, references)));
  return blocks.flatMap((block) => {
    switch (block.type) {
      case "definitions": return [];
      case "heading": return [`heading ${block.level} ${inline(block.text)}`];
      case "paragraph": return [`paragraph ${inline(block.text)}`];
      case "code": return [`code ${block.language} ${block.text.trimEnd()}`];
      case "rule": return ["rule"];
      case "html": return [`html ${oneLine(block.text)}`];
      case "quote": return ["quote", pageBlocks(block.children, references)];
      case "list": return [`list ${block.ordered ? block.start : ""}`, ...block.items.map((item) =>
        [item.checked, pageBlocks(item.children, references)])];
      default: return [`table ${block.align}`, ...[block.header, ...block.rows].map((row) =>
        block.header.map((_, index) => inline(row[index] ?? "")))];
    }
  });
}

for (const file of process.argv.slice(2)) {
  const text = readFileSync(file, "utf8");
  const { blocks, references } = parseMarkdown(text);
  const [theirs, ours] = [markedBlocks(new Lexer().lex(text)), pageBlocks(blocks, references)].map((each) => JSON.stringify(each));
  if (theirs === ours) continue;
  let at = 0;
  while (theirs[at] === ours[at]) at += 1;
  const around = (each) => each.slice(Math.max(0, at - 40), at + 80);
  process.stdout.write(`${file}\n  Marked: ${around(theirs)}\n  page:   ${around(ours)}\n`);
}
