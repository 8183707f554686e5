// Characters that are invisible or reorder others, shown as code points.

const HIDDEN = "\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u00ad\\u034f\\u061c\\u115f\\u1160\\u180e\\u200b-\\u200f" +
  "\\u2028-\\u202e\\u2060-\\u206f\\u2800\\u3164\\ufeff\\uffa0\\ufff9-\\ufffb\\u{e0000}-\\u{e01ef}";
const HIDDEN_CHARACTERS = new RegExp(`[${HIDDEN}]`, "gu");

// In prose single ones are part of many scripts and of emoji; a run of them is a hidden text, unless it is of a flag.
const FLAG = "\\u{1f3f4}[\\u{e0030}-\\u{e0039}\\u{e0061}-\\u{e007a}]{3,6}\\u{e007f}";
const HIDDEN_TEXT = new RegExp(`(${FLAG})|[${HIDDEN}]{2,}|[\\u202a-\\u202e\\u2066-\\u2069\\u{e0000}-\\u{e007f}]`, "gu");

const escape = (text) => [...text].map((c) => `\\u{${c.codePointAt(0).toString(16)}}`).join("");

/** Escape each of them: a user must see exactly what they allow. */
export const escapeHidden = (text) => text.replace(HIDDEN_CHARACTERS, escape);

/** Escape those that hide text in prose or reorder it. */
export const escapeHiddenText = (text) => text.replace(HIDDEN_TEXT, (found, flag) => flag ?? escape(found));

// Those that a text on one line is without: as in agenticx/foreign_text.py, controls, marks of direction and characters
// without a glyph; joiners stay where they join letters that are not ASCII, and the selector of colored emoji after one.
const LINE_BREAKS = /\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]/g;
const UNSEEN = new RegExp("[\\x00-\\x08\\x0e-\\x1f\\x7f-\\x9f\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180e" +
  "\\u200b\\u200e\\u200f\\u202a-\\u202e\\u2060-\\u206f\\u3164\\ufe00-\\ufe0e\\ufeff\\uffa0\\ufff9-\\ufffb" +
  "\\u{e0000}-\\u{e0fff}\\ud800-\\udfff]", "gu");
const USELESS_JOINER = new RegExp("(?<![^\\x00-\\x7f\\u200c\\u200d])[\\u200c\\u200d]" +
  "|[\\u200c\\u200d](?![^\\x00-\\x7f\\u200c\\u200d\\ufe0f])" +
  "|(?<![^\\x00-\\x7f\\u200c\\u200d\\ufe0f])(?<![0-9#*])\\ufe0f", "gu");

/** Return a text on one line, without control and invisible characters. */
export const oneLine = (text) => text.replace(LINE_BREAKS, " ").replace(UNSEEN, "").replace(USELESS_JOINER, "");
