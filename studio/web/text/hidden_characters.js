// Characters that are invisible or reorder others, shown as code points.

// Those that are escaped in an exact text, as in agenticx/tools/visible.py: what has no glyph, and blanks but the space.
const HIDDEN_CHARACTERS = new RegExp("[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u00a0\\u1680\\u2000-\\u200a\\u202f\\u205f\\u3000" +
  "\\u034f\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f\\u2800\\u3164\\uffa0\\ufe00-\\ufe0f\\u{e0100}-\\u{e01ef}" +
  "\\p{Cf}\\p{Cn}\\p{Co}\\p{Cs}\\p{Zl}\\p{Zp}]", "gu");

// In prose single ones are part of many scripts and of emoji; a run hides a text, unless it is of a flag or joins two
// emoji. What takes no room has no use between ASCII characters; soft hyphens and marks of direction have.
const HIDDEN = "\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f" +
  "\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u2800\\u3164\\ufe00-\\ufe0f\\ufeff\\uffa0\\ufff9-\\ufffb" +
  "\\u{1d173}-\\u{1d17a}\\u{e0000}-\\u{e01ef}";
const USELESS = "\\u0000-\\u0008\\u000e-\\u001f\\u007f-\\u009f\\u034f\\u115f\\u1160\\u180e\\u200b-\\u200d\\u2060-\\u2064\\u2800\\u3164" +
  "\\ufe00-\\ufe0f\\ufeff\\uffa0\\ufff9-\\ufffb";
const FLAG = "\\u{1f3f4}[\\u{e0030}-\\u{e0039}\\u{e0061}-\\u{e007a}]{3,6}\\u{e007f}";
const JOINED = "(?<=\\p{Emoji})\\ufe0f\\u200d(?=\\p{Extended_Pictographic})";
const HIDDEN_TEXT = new RegExp(`(${FLAG}|${JOINED})|[${HIDDEN}]{2,}|(?<![^\\0-\\x7f])[${USELESS}](?![^\\0-\\x7f])|[\\u202a-\\u202e\\u2066-\\u2069\\u{e0000}-\\u{e007f}]`, "gu");

// Long runs of marks, or of letters without blanks, take minutes to lay out.
const LETTERS = "[\\u0600-\\u1fff\\u{10800}-\\u{1efff}]";
export const MANY_MARKS = new RegExp(`[\\p{M}\\p{EMod}\\u0e33\\u0eb3\\u200c\\u200d]{31,}|(?<=${LETTERS}{999})(${LETTERS}+)`, "gu");

const codePoint = (found) => `⟨U+${found.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`;
const counted = (found, letters) => `⟨${[...found].length.toLocaleString("en")} ${letters ? "more letters" : "combining characters"}⟩`;

/** Return whether `escapeHidden` changes a text. */
export const hasHidden = (text) => escapeHidden(text) !== text;

/** Escape each of them: a user must see exactly what they allow. */
export const escapeHidden = (text) => text.replace(HIDDEN_CHARACTERS, codePoint).replace(MANY_MARKS, counted);

/** Escape those that hide text in prose or reorder it. */
export const escapeHiddenText = (text) =>
  text.replace(HIDDEN_TEXT, (found, kept) => kept ?? [...found].map(codePoint).join("")).replace(MANY_MARKS, counted);

// Those that `oneLine` removes, as agenticx/untrusted_text.py does; joiners stay where they join letters that are not
// ASCII, and the selector of colored emoji after one.
const LINE_BREAKS = /\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]/g;
const UNSEEN = new RegExp("[\\x00-\\x08\\x0e-\\x1f\\x7f-\\x9f\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180e" +
  "\\u200b\\u200e\\u200f\\u202a-\\u202e\\u2060-\\u206f\\u3164\\ufe00-\\ufe0e\\ufeff\\uffa0\\ufff9-\\ufffb" +
  "\\u{e0000}-\\u{e0fff}\\ud800-\\udfff]", "gu");
const USELESS_JOINER = new RegExp("(?<![^\\x00-\\x7f\\u200c\\u200d])[\\u200c\\u200d]" +
  "|[\\u200c\\u200d](?![^\\x00-\\x7f\\u200c\\u200d\\ufe0f])" +
  "|(?<![^\\x00-\\x7f\\u200c\\u200d\\ufe0f])(?<![0-9#*])\\ufe0f", "gu");

/** Return a text on one line. */
export const oneLine = (text) => text.replace(LINE_BREAKS, " ").replace(UNSEEN, "").replace(USELESS_JOINER, "");
