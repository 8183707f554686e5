// @ts-check
// Text within a block of Markdown to tokens: emphasis, code, links and breaks.

const MAX_DEPTH = 32; // of tokens in each other; what is deeper is shown without its emphasis
const MAX_PARENTHESES = 32; // in each other in an address, as CommonMark's programs have it
const MAX_ADDRESS = 4000;
const PLAIN = /[^\\`*_~[\]!<&\n]+/y;
const PUNCTUATION = /[\p{P}\p{S}\ue000\ue001]/u; // with the signs around the number of a citation
const SPACE = /\s/;
const ESCAPABLE = /[!-/:-@[-`{-~]/;
const BACKTICKS = /`+/g;
const AUTOLINK = /<([a-z][a-z\d+.-]{1,31}:[^\s<>]{0,4000})>/iy;
const MAIL = /<([\w.!#$%&'*+/=?^`{|}~-]{1,64}@[a-z\d.-]{1,255})>/iy;
const ATTRIBUTE = "[ \\t\\n]{1,99}[a-z_:][\\w.:-]{0,99}(?:[ \\t\\n]{0,99}=[ \\t\\n]{0,99}(?:\"[^\"]{0,999}\"|'[^']{0,999}'|[^\\s\"'=<>`]{1,999}))?";
export const TAG = new RegExp(`<(?:[a-z][a-z\\d-]{0,99}(?:${ATTRIBUTE}){0,99}[ \\t\\n]{0,99}/?|/[a-z][a-z\\d-]{0,99}[ \\t]{0,99})>`, "iy");
const BREAK = /<br[ \t]{0,9}\/?>/iy;
const BARE = /(?<![\p{L}\p{N}_/])(?:https?:\/\/|www\.)(?=[\p{L}\p{N}[])/giu;
const BARE_ADDRESS = /[^\s<]+/y;
const BARE_END = /[?!.,:;*_~'"”’»]/;
const ENTITY = /&(?:#(\d{1,7})|#x([\da-f]{1,6})|([a-z][a-z\d]{1,31}));/iy;
const WHITE = /[ \t\n]*/y;
const BRACKETED = /<((?:[^<>\n\\]|\\[^\n])*)>/y;
const TITLE = /"((?:[^"\\]|\\[^]){0,2000})"|'((?:[^'\\]|\\[^]){0,2000})'|\(((?:[^()\\]|\\[^]){0,2000})\)/y;
const LABEL = /\[((?:[^[\]\\]|\\[^]){0,999})\]/y;
const ENTITIES = new Map(Object.entries({
  amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0", copy: "©", reg: "®", trade: "™", deg: "°", middot: "·",
  bull: "•", hellip: "…", ndash: "–", mdash: "—", lsquo: "‘", rsquo: "’", ldquo: "“", rdquo: "”", laquo: "«", raquo: "»",
  times: "×", divide: "÷", plusmn: "±", ne: "≠", le: "≤", ge: "≥", larr: "←", rarr: "→", uarr: "↑", darr: "↓", harr: "↔",
  Auml: "Ä", Ouml: "Ö", Uuml: "Ü", auml: "ä", ouml: "ö", uuml: "ü", szlig: "ß", Eacute: "É", eacute: "é", egrave: "è",
  ecirc: "ê", agrave: "à", aacute: "á", acirc: "â", ccedil: "ç", iacute: "í", icirc: "î", ntilde: "ñ", oacute: "ó", ocirc: "ô",
  oslash: "ø", aring: "å", aelig: "æ", uacute: "ú", ucirc: "û", iexcl: "¡", iquest: "¿", sup2: "²", sup3: "³", ordm: "º",
  euro: "€", pound: "£", yen: "¥", cent: "¢", sect: "§", para: "¶", check: "✓", infin: "∞", micro: "µ", frac12: "½",
}));

/**
 * @typedef {{type: "text", text: string} | {type: "code", text: string} | {type: "break"}} Plain
 * @typedef {{type: "em" | "strong" | "del", children: Inline[]}} Emphasis
 * @typedef {{type: "link" | "image", href: string, title: string, children: Inline[]}} Link
 * @typedef {Plain | Emphasis | Link} Inline
 */

/** Return how the labels of a reference and of its definition are compared. */
export const normalizeLabel = (label) => label.trim().replace(/\s+/g, " ").toLowerCase().toUpperCase(); // ẞ is ss

/**
 * Return the tokens of the text of a paragraph, a heading or a cell.
 *
 * @param {string} text
 * @param {import("./markdown.js").References} [references]
 * @returns {Inline[]}
 */
export function parseInline(text, references = new Map()) {
  const parser = new InlineParser(text, references);
  return nest(parser.parse());
}

/** Match a sticky pattern at a place. */
function matchAt(pattern, text, at) {
  pattern.lastIndex = at;
  return pattern.exec(text);
}

class InlineParser {
  constructor(text, references) {
    this.text = text;
    this.references = references;
    this.at = 0;
    /** Text, code and so on, runs of delimiters, and the begins and ends of links. */
    this.nodes = [];
    this.delimiters = []; // runs that are not matched yet
    this.brackets = []; // each that may begin a link or an image
    this.inactive = 0; // of the brackets the first ones, which begin no link: a link has no link in it
    this.backticks = null;
    this.addresses = [...text.matchAll(BARE)].map(({ index }) => index).reverse(); // those ahead, the next one last
  }

  /** Return the nodes; emphasis is written into the runs. */
  parse() {
    while (this.at < this.text.length) this.step();
    this.matchDelimiters(0);
    return this.nodes;
  }

  step() {
    const { text, at } = this;
    while (this.addresses.at(-1) < at) this.addresses.pop();
    if (this.addresses.at(-1) === at && !this.brackets.length) { this.addBareLink(); return; }
    const plain = matchAt(PLAIN, text, at)?.[0];
    if (plain) {
      const address = this.addresses.at(-1) ?? Infinity;
      const end = address > at ? Math.min(address, at + plain.length) : at + plain.length;
      this.addText(text.slice(at, end));
      this.at = end;
      return;
    }
    switch (text[at]) {
      case "\\": this.addEscaped(); break;
      case "`": this.addCode(); break;
      case "*": case "_": case "~": this.addDelimiters(); break;
      case "[": this.openBracket(false); break;
      case "!": this.openImage(); break;
      case "]": this.closeBracket(); break;
      case "<": this.addTag(); break;
      case "&": this.addEntity(); break;
      case "\n": this.addLineEnd(); break;
    }
  }

  /** Add a text of its own: to append to the one before would read that one again. */
  addText(text) {
    this.nodes.push({ type: "text", text });
  }

  /** Add a token and go behind its characters. */
  add(node, length) {
    this.nodes.push(node);
    this.at += length;
  }

  addSign() {
    this.addText(this.text[this.at]);
    this.at += 1;
  }

  addEscaped() {
    const next = this.text[this.at + 1] ?? "";
    if (next === "\n") { this.add({ type: "break" }, 2); return; }
    if (!ESCAPABLE.test(next)) { this.addSign(); return; }
    this.addText(next);
    this.at += 2;
  }

  addCode() {
    this.backticks ??= new BacktickRuns(this.text);
    const { size, end } = this.backticks.closing(this.at);
    if (end === null) {
      this.addText("`".repeat(size));
      this.at += size;
      return;
    }
    const inner = this.text.slice(this.at + size, end).replaceAll("\n", " ");
    const isPadded = inner.startsWith(" ") && inner.endsWith(" ") && inner.trim() !== "";
    this.add({ type: "code", text: isPadded ? inner.slice(1, -1) : inner }, end + size - this.at);
  }

  addDelimiters() {
    const { text, at } = this;
    const sign = text[at];
    let end = at + 1;
    while (text[end] === sign) end += 1;
    const count = end - at;
    if (sign === "~" && count !== 2) { this.addText(text.slice(at, end)); this.at = end; return; }
    const before = at === 0 ? "\n" : characterBefore(text, at);
    const after = end === text.length ? "\n" : String.fromCodePoint(/** @type {number} */ (text.codePointAt(end)));
    const isLeft = isFlanking(after, before), isRight = isFlanking(before, after);
    const canOpen = sign === "_" ? isLeft && (!isRight || PUNCTUATION.test(before)) : isLeft;
    const canClose = sign === "_" ? isRight && (!isLeft || PUNCTUATION.test(after)) : isRight;
    const run = { type: "run", sign, count, size: count, canOpen, canClose, opens: [], closes: [], number: this.nodes.length };
    this.delimiters.push(run);
    this.add(run, count);
  }

  openImage() {
    if (this.text[this.at + 1] !== "[") { this.addSign(); return; }
    this.openBracket(true);
  }

  openBracket(isImage) {
    const outer = this.brackets.at(-1);
    if (outer) outer.hasBrackets = true;
    const sign = isImage ? "![" : "[";
    this.brackets.push({
      isImage, node: this.nodes.length, start: this.at + sign.length, delimiters: this.delimiters.length, hasBrackets: false,
    });
    this.add({ type: "bracket", text: sign }, sign.length);
  }

  closeBracket() {
    const opener = this.brackets.pop();
    if (!opener) { this.addSign(); return; }
    const isActive = opener.isImage || this.brackets.length >= this.inactive;
    this.inactive = Math.min(this.inactive, this.brackets.length);
    const target = isActive ? this.readTarget(opener) : null;
    if (!target) { this.addSign(); return; }
    const { href, title, end } = target;
    this.nodes[opener.node] = { type: "begin", token: { type: opener.isImage ? "image" : "link", href, title } };
    this.matchDelimiters(opener.delimiters);
    if (!opener.isImage) this.inactive = this.brackets.length;
    this.add({ type: "end" }, end - this.at);
  }

  /** Return where the link that ends here leads, and where its text goes on; null if it is none. */
  readTarget(opener) {
    const after = this.at + 1;
    const inline = this.text[after] === "(" ? this.readInlineTarget(after + 1) : null;
    if (inline || !this.references.size) return inline;
    const label = matchAt(LABEL, this.text, after);
    const own = opener.hasBrackets ? "" : this.text.slice(opener.start, Math.min(this.at, opener.start + 1000));
    const found = this.references.get(normalizeLabel(label?.[1] || own));
    return found ? { ...found, href: unescape(found.href), title: unescape(found.title), end: label ? LABEL.lastIndex : after } : null;
  }

  readInlineTarget(start) {
    const { text } = this;
    let at = skipWhite(text, start);
    const bracketed = matchAt(BRACKETED, text, at);
    const href = bracketed ? bracketed[1] : readAddress(text, at);
    if (href === null) return null;
    at += bracketed ? bracketed[0].length : href.length;
    const gap = skipWhite(text, at);
    const title = gap > at ? matchAt(TITLE, text, gap) : null;
    const end = title ? skipWhite(text, gap + title[0].length) : gap;
    if (text[end] !== ")") return null;
    return { href: unescape(href), title: unescape(title ? title[1] ?? title[2] ?? title[3] : ""), end: end + 1 };
  }

  addTag() {
    const { text, at } = this;
    const address = matchAt(AUTOLINK, text, at);
    const mail = address ? null : matchAt(MAIL, text, at);
    if (address) this.addLink(address[1], address[1], address[0].length);
    else if (mail) this.addLink(`mailto:${mail[1]}`, mail[1], mail[0].length);
    else if (matchAt(BREAK, text, at)) this.add({ type: "break" }, BREAK.lastIndex - at);
    else this.addHtml();
  }

  /** Add a tag as text, in which signs of Markdown mean nothing. */
  addHtml() {
    const tag = matchAt(TAG, this.text, this.at)?.[0] ?? this.text[this.at];
    this.addText(tag);
    this.at += tag.length;
  }

  addLink(href, text, length) {
    this.nodes.push({ type: "begin", token: { type: "link", href, title: "" } }, { type: "text", text });
    this.add({ type: "end" }, length);
  }

  /** Add an address that stands in the text; signs at its end belong to the sentence. */
  addBareLink() {
    const found = /** @type {RegExpExecArray} */ (matchAt(BARE_ADDRESS, this.text, this.at))[0];
    const count = (sign) => found.split(sign).length - 1;
    let surplus = count(")") - count("(");
    let end = found.length;
    for (; end > 0; end -= 1) {
      if (found[end - 1] === ")" && surplus > 0) surplus -= 1;
      else if (!BARE_END.test(found[end - 1])) break;
    }
    const text = found.slice(0, end);
    this.addresses.pop();
    this.addLink(/^www\./i.test(text) ? `https://${text}` : text, text, end);
  }

  addEntity() {
    const entity = matchAt(ENTITY, this.text, this.at);
    const character = entity && decodeEntity(entity);
    if (!character) { this.addSign(); return; }
    this.addText(character);
    this.at += entity[0].length;
  }

  addLineEnd() {
    const last = this.nodes.at(-1);
    const isHard = last?.type === "text" && last.text.endsWith("  ");
    if (last?.type === "text") last.text = last.text.trimEnd();
    if (isHard) this.add({ type: "break" }, 1);
    else this.addSign();
  }

  /** Match the runs of delimiters from a place of their list on, which ends there afterwards. */
  matchDelimiters(bottom) {
    const openers = [];
    const floors = new Map(); // for a kind of closing run the number of the run from which on openers are to be tried
    for (const run of this.delimiters.splice(bottom)) {
      if (run.canClose) closeRun(run, openers, floors);
      if (run.canOpen && run.count) openers.push(run);
    }
  }
}

/** Match a closing run with the open ones, the last ones first; those between two that match stay text. */
function closeRun(run, openers, floors) {
  const kind = `${run.sign}${run.canOpen}${run.size % 3}`;
  while (run.count) {
    const floor = floors.get(kind) ?? 0;
    let at = openers.length - 1;
    while (at >= 0 && openers[at].number >= floor && !canMatch(openers[at], run)) at -= 1;
    if (at < 0 || openers[at].number < floor) { floors.set(kind, run.number); return; }
    const opener = openers[at];
    openers.length = at + 1;
    const size = opener.count > 1 && run.count > 1 ? 2 : 1;
    const type = run.sign === "~" ? "del" : size === 2 ? "strong" : "em";
    opener.opens.push(type);
    run.closes.push(type);
    opener.count -= size;
    run.count -= size;
    if (!opener.count) openers.pop();
  }
}

function canMatch(opener, closer) {
  if (opener.sign !== closer.sign) return false;
  const isAmbiguous = opener.canClose || closer.canOpen;
  return !isAmbiguous || (opener.size + closer.size) % 3 !== 0 || (opener.size % 3 === 0 && closer.size % 3 === 0);
}

/** Return true if a run of delimiters belongs to the character on its inner side. */
function isFlanking(inner, outer) {
  if (SPACE.test(inner)) return false;
  return !PUNCTUATION.test(inner) || SPACE.test(outer) || PUNCTUATION.test(outer);
}

function characterBefore(text, at) {
  const code = text.charCodeAt(at - 1);
  const isSecondHalf = code >= 0xdc00 && code <= 0xdfff;
  return text.slice(isSecondHalf ? at - 2 : at - 1, at);
}

class BacktickRuns {
  /** The runs of backticks in a text, by their size. */
  constructor(text) {
    this.bySize = new Map(); // size → places of the runs, the last one first
    const runs = [...text.matchAll(BACKTICKS)].map((match) => ({ place: match.index, size: match[0].length }));
    this.sizes = new Map(runs.map(({ place, size }) => [place, size]));
    this.text = text;
    for (const { place, size } of runs.reverse()) {
      if (!this.bySize.has(size)) this.bySize.set(size, []);
      this.bySize.get(size).push(place);
    }
  }

  /** Return the size of the run at a place, and where the next one of this size is, else null. */
  closing(place) {
    const size = this.sizes.get(place) ?? this.measure(place);
    const places = this.bySize.get(size) ?? [];
    while (places.at(-1) <= place) places.pop();
    return { size, end: places.at(-1) ?? null };
  }

  /** Return the size of what is left of a run, whose first sign is escaped. */
  measure(place) {
    return /** @type {RegExpExecArray} */ (matchAt(/`+/y, this.text, place))[0].length;
  }
}

function skipWhite(text, at) {
  matchAt(WHITE, text, at);
  return WHITE.lastIndex;
}

/** Return the address of a link that stands without brackets, null if there is none. */
function readAddress(text, start) {
  let depth = 0;
  let at = start;
  for (; at < text.length && at - start <= MAX_ADDRESS; at += 1) {
    const sign = text[at];
    if (sign === "\\" && ESCAPABLE.test(text[at + 1] ?? "")) at += 1;
    else if (sign === "(") { depth += 1; if (depth > MAX_PARENTHESES) return null; }
    else if (sign === ")") { if (!depth) break; depth -= 1; }
    else if (sign <= " ") break;
  }
  if (depth || at - start > MAX_ADDRESS || text[start] === "<") return null;
  return text.slice(start, at);
}

function unescape(text) {
  if (!/[\\&]/.test(text)) return text;
  return text.replace(/\\([!-/:-@[-`{-~])|&(?:#(\d{1,7})|#x([\da-f]{1,6})|([a-z][a-z\d]{1,31}));/gi, (found, sign, ...parts) =>
    sign ?? decodeEntity([found, ...parts]) ?? found);
}

/** @param {string[]} match */
function decodeEntity([, decimal, hexadecimal, name]) {
  if (name !== undefined) return ENTITIES.get(name) ?? null;
  const code = decimal === undefined ? parseInt(hexadecimal, 16) : Number(decimal);
  const isCharacter = code > 0 && code <= 0x10ffff && !(code >= 0xd800 && code <= 0xdfff);
  return isCharacter ? String.fromCodePoint(code) : "\ufffd";
}

/** Return the nodes as tokens in each other. */
function nest(nodes) {
  const root = [];
  const open = [root]; // the children of the tokens that are open; of those that are too deep, the children of the last
  const begin = (token) => {
    const parent = open[open.length - 1];
    if (open.length > MAX_DEPTH) { open.push(parent); return; }
    parent.push(token);
    open.push(token.children);
  };
  const addText = (text) => {
    const siblings = open[open.length - 1];
    const last = siblings[siblings.length - 1];
    if (last?.type === "text") last.text += text;
    else if (text) siblings.push({ type: "text", text });
  };
  for (const node of nodes) {
    if (node.type === "text" || node.type === "bracket") addText(node.text);
    else if (node.type === "begin") begin({ ...node.token, children: [] });
    else if (node.type === "end") open.pop();
    else if (node.type === "run") {
      for (const _ of node.closes) open.pop();
      if (node.count) addText(node.sign.repeat(node.count));
      for (const type of node.opens.reverse()) begin({ type, children: [] });
    } else open[open.length - 1].push(node);
  }
  return root;
}
