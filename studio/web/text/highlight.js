// @ts-check
// Colours for code: a text to segments with a scope, for the languages that answers mostly have.
//
// The text is a model's: the patterns of a language are tried at a place in their order, and each consumes what it has
// read, also where its end is missing, so that the time is proportional to the text. Programs with a grammar per language
// are exact where this is an approximation, but were found to take seconds for some texts of 10,000 characters.

const words = (text) => new Set(text.split(" "));

const NUMBER = "(?<number>(?<![\\w$])\\d[\\w.]*)";
const NAME = "(?<name>[\\p{L}_$@][\\p{L}\\p{N}_$]*)";
const TEXT = `(?<string>"(?:[^"\\\\\\n]|\\\\[^])*"?|'(?:[^'\\\\\\n]|\\\\[^])*'?)`;
const DOUBLE = `(?<string>"(?:[^"\\\\\\n]|\\\\[^])*"?)`;
const TEMPLATE = "(?<string2>`(?:[^`\\\\]|\\\\[^])*`?)";
const SLASHES = "(?<comment>//[^\\n]*|/\\*(?:[^*]|\\*(?!/))*(?:\\*/)?)";
const HASH = "(?<comment>(?<![^\\s;(])#[^\\n]*)";
const MARKUP_COMMENT = "(?<comment><!--(?:[^-]|-(?!->))*(?:-->)?)";

/** Return one pattern that tries several in their order at a place. */
const pattern = (...parts) => new RegExp(parts.join("|"), "yu");

const C_WORDS =
  "auto bool break case char class const constexpr continue default delete do double else enum explicit extern false float " +
  "for friend goto if inline int long namespace new nullptr operator private protected public register return short signed " +
  "sizeof static struct switch template this throw true try catch typedef typename union unsigned using virtual void " +
  "volatile while NULL size_t";
const JS_WORDS =
  "async await break case catch class const continue debugger default delete do else export extends false finally for from " +
  "function if import in instanceof let new null of return static super switch this throw true try typeof undefined var " +
  "void while yield";

/** @typedef {{pattern: RegExp, keywords?: Set<string>, ignoresCase?: boolean}} Language */

/** @type {Map<string, Language>} */
const LANGUAGES = new Map(Object.entries({
  bash: {
    pattern: pattern(HASH, `(?<string>"(?:[^"\\\\]|\\\\[^])*"?|'[^']*'?)`, "(?<variable>\\$\\{?[\\w@#?*!-]+\\}?)", NUMBER, NAME),
    keywords: words("if then else elif fi for while until do done case esac in function select time return exit export local " +
      "readonly declare unset set source alias cd echo eval exec trap shift test"),
  },
  c: {
    pattern: pattern(SLASHES, "(?<meta>(?<![^\\n])[ \\t]*#[^\\n]*)", TEXT, NUMBER, NAME),
    keywords: words(C_WORDS),
  },
  css: {
    pattern: pattern("(?<comment>/\\*(?:[^*]|\\*(?!/))*(?:\\*/)?)", TEXT, "(?<keyword>@[\\w-]+|![a-z]+)",
      "(?<attribute>--[\\w-]+|[a-z-]+(?=\\s?:))", "(?<number>#[\\da-f]{3,8}\\b|(?<![\\w-])\\d[\\w.%]*)", "(?<word>[\\w-]+)"),
  },
  diff: {
    pattern: pattern("(?<meta>(?<![^\\n])(?:@@|diff |index |--- |\\+\\+\\+ )[^\\n]*)", "(?<added>(?<![^\\n])\\+[^\\n]*)",
      "(?<removed>(?<![^\\n])-[^\\n]*)", "(?<word>[^\\n]+)"),
  },
  go: {
    pattern: pattern(SLASHES, TEMPLATE, TEXT, NUMBER, NAME),
    keywords: words("break case chan const continue default defer else fallthrough for func go goto if import interface map " +
      "package range return select struct switch type var true false nil string int bool error byte rune any"),
  },
  java: {
    pattern: pattern(SLASHES, TEXT, NUMBER, NAME),
    keywords: words("abstract assert boolean break byte case catch char class const continue default do double else enum " +
      "extends false final finally float for if implements import instanceof int interface long native new null package " +
      "private protected public record return short static super switch synchronized this throw throws true try var void " +
      "volatile while fun val when object override is in suspend data companion"),
  },
  javascript: { pattern: pattern(SLASHES, TEMPLATE, TEXT, NUMBER, NAME), keywords: words(JS_WORDS) },
  json: {
    pattern: pattern(`(?<attribute>"(?:[^"\\\\\\n]|\\\\[^])*"(?=\\s?:))`, DOUBLE, "(?<number>-?\\d[\\w.+-]*)", NAME),
    keywords: words("true false null"),
  },
  markdown: {
    pattern: pattern("(?<title>(?<![^\\n])#{1,6} [^\\n]*)", "(?<string>(?<![^\\n])>[^\\n]*|`[^`\\n]*`?)",
      "(?<keyword>(?<![^\\n])[ \\t]*(?:[-*+]|\\d+\\.) )", "(?<word>[\\w ]+)"),
  },
  python: {
    pattern: pattern(HASH, `(?<string2>"""(?:[^"\\\\]|\\\\[^]|"(?!""))*(?:""")?|'''(?:[^'\\\\]|\\\\[^]|'(?!''))*(?:''')?)`,
      TEXT, NUMBER, NAME),
    keywords: words("and as assert async await break case class continue def del elif else except finally for from global if " +
      "import in is lambda match None nonlocal not or pass raise return True False try while with yield self"),
  },
  rust: {
    pattern: pattern(SLASHES, DOUBLE, "(?<string2>'(?:[^'\\\\\\n]|\\\\[^\\n])')", NUMBER, NAME),
    keywords: words("as async await break const continue crate dyn else enum extern false fn for if impl in let loop match " +
      "mod move mut pub ref return self Self static struct super trait true type unsafe use where while i32 i64 u8 u32 u64 " +
      "usize f64 bool str String Vec Option Result Some None Ok Err"),
  },
  sql: {
    pattern: pattern("(?<comment>--[^\\n]*|/\\*(?:[^*]|\\*(?!/))*(?:\\*/)?)", TEXT, NUMBER, NAME),
    keywords: words("select from where and or not null insert into values update set delete create table index view drop " +
      "alter add column primary key foreign references join left right inner outer full on as order by group having limit " +
      "offset union all distinct case when then else end exists in is like between begin commit rollback with returning " +
      "default unique check constraint if integer text varchar boolean timestamp true false asc desc"),
    ignoresCase: true,
  },
  typescript: {
    pattern: pattern(SLASHES, TEMPLATE, TEXT, NUMBER, NAME),
    keywords: words(`${JS_WORDS} abstract any as boolean declare enum implements interface is keyof namespace never number ` +
      "private protected public readonly string satisfies type unknown"),
  },
  xml: {
    pattern: pattern(MARKUP_COMMENT, "(?<tag></?[\\w:!?-]+|[/?]?>)", "(?<attribute>[\\w:@.-]+(?==))",
      `(?<string>(?<==)"[^"<]*"?|(?<==)'[^'<]*'?)`, "(?<number>&\\w{1,32};)", "(?<word>[\\w:@.-]+)"),
  },
  yaml: {
    pattern: pattern(HASH, "(?<attribute>[\\w.-]+(?=:(?:\\s|$)))", TEXT, NUMBER, "(?<name>[\\w.-]+)"),
    keywords: words("true false null yes no on off"),
  },
}));

const ALIASES = new Map(Object.entries({
  sh: "bash", shell: "bash", zsh: "bash", console: "bash", "c++": "c", cc: "c", cpp: "c", h: "c", hpp: "c", cs: "java",
  csharp: "java", kotlin: "java", kt: "java", swift: "java", scala: "java", patch: "diff", golang: "go", js: "javascript",
  jsx: "javascript", mjs: "javascript", cjs: "javascript", jsonc: "json", json5: "json", jsonl: "json", md: "markdown",
  py: "python", python3: "python", pyi: "python", rs: "rust", scss: "css", less: "css", ts: "typescript", tsx: "typescript",
  mts: "typescript", html: "xml", svg: "xml", vue: "xml", svelte: "xml", xhtml: "xml", yml: "yaml", toml: "yaml", ini: "yaml",
  dockerfile: "bash", makefile: "bash",
}));

/**
 * @typedef {{text: string, scope: string}} Segment the scope is "" for text without colour, else one of: comment, string,
 *   number, keyword, function, variable, attribute, tag, title, meta, added, removed
 */

/**
 * Return the segments of a code in a language, named as after the fence of a block or by the suffix of a file; null if the
 * language is not known.
 *
 * @param {string} text
 * @param {string} language
 * @returns {Segment[] | null}
 */
export function highlight(text, language) {
  const name = language.toLowerCase();
  const found = LANGUAGES.get(ALIASES.get(name) ?? name);
  if (!found) return null;
  /** @type {Segment[]} */
  const segments = [];
  let plain = 0; // where text without colour starts
  let at = 0;
  while (at < text.length) {
    found.pattern.lastIndex = at;
    const match = found.pattern.exec(text);
    const scope = match ? scopeOf(match, found, text) : "";
    const end = at + (match ? match[0].length : 1);
    if (scope) {
      if (plain < at) segments.push({ text: text.slice(plain, at), scope: "" });
      segments.push({ text: text.slice(at, end), scope });
      plain = end;
    }
    at = end;
  }
  if (plain < at) segments.push({ text: text.slice(plain, at), scope: "" });
  return segments;
}

/**
 * @param {RegExpExecArray} match
 * @param {Language} language
 * @param {string} text
 */
function scopeOf(match, { keywords, ignoresCase }, text) {
  const [scope] = Object.entries(match.groups ?? {}).find(([, value]) => value !== undefined) ?? [""];
  if (scope === "string2") return "string";
  if (scope === "word") return "";
  if (scope !== "name") return scope;
  const name = ignoresCase ? match[0].toLowerCase() : match[0];
  if (keywords?.has(name)) return "keyword";
  if (name.startsWith("@")) return "meta";
  return text[match.index + match[0].length] === "(" ? "function" : "";
}
