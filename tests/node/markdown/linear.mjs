// Print the texts for which Markdown or colours of code take more than 80 times as long when they are 16 times as long:
// `node linear.mjs SIZE`.

import { highlight } from "../../../studio/web/text/highlight.js";
import { parseInline } from "../../../studio/web/text/markdown_inline.js";
import { parseMarkdown } from "../../../studio/web/text/markdown.js";
import { hostileTexts } from "./hostile.mjs";

const TIMES = 16, MOST = 5 * TIMES, LEAST_MS = 0.5;
const LANGUAGES =
  ["bash", "c", "css", "diff", "go", "java", "javascript", "json", "markdown", "python", "rust", "sql", "typescript", "xml", "yaml"];

/** Parse all that a page shows of a text. */
function parseAll(text) {
  const { blocks, references } = parseMarkdown(text);
  const todo = [...blocks];
  for (let block; (block = todo.pop()); ) {
    if (block.text && block.type !== "code" && block.type !== "html") parseInline(block.text, references);
    for (const cell of [block.header, ...(block.rows ?? [])].flat()) if (cell) parseInline(cell, references);
    todo.push(...[block, ...(block.items ?? [])].flatMap(({ children }) => children ?? []));
  }
}

const functions = { Markdown: parseAll };
for (const language of LANGUAGES) functions[language] = (text) => highlight(text, language);

function cpuMs(run, text) {
  const before = process.cpuUsage();
  run(text);
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000;
}

const size = Number(process.argv[2]);
const short = hostileTexts(size / TIMES), long = hostileTexts(size);
for (const [name, run] of Object.entries(functions)) {
  for (const text of short) run(text); // compiled
  for (const [index, text] of short.entries()) {
    const quickest = Math.max(Math.min(cpuMs(run, text), cpuMs(run, text)), LEAST_MS);
    const isLinear = [1, 2, 3].some(() => cpuMs(run, long[index]) < MOST * quickest);
    if (!isLinear) process.stdout.write(`${name}: ${JSON.stringify(text.slice(0, 80))}\n`);
  }
}
