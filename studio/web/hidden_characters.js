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
