// @ts-check
// The commands /vault, /chat and /agent before a message: they choose the mode of its turn, as in `agx chat`.

const MODES = {
  vault: "Answered from your notes, whatever its words are.",
  chat: "Answered from general knowledge.",
  agent: "Work with tools.",
};
const COMMAND = /^\/(vault|chat|agent)\s+(\S[^]*)$/;
const WITHOUT_MESSAGE = /^\/(vault|chat|agent)\s*$/;
const ESCAPE = /^\/(?=\/+(?:vault|chat|agent)\s)/; // before a message that begins with such a word itself
const USAGE = "/vault, /chat or /agent before a message chooses its mode: from your notes, from general knowledge, with tools.";

export const NO_VAULT = "This session has no vault of notes from which /vault could answer. Add one under Notes.";

/** Return the mode that a text chooses, else null, and its message without the command; null for a command alone. */
export function parseMode(text) {
  const [, mode = null, input = text.replace(ESCAPE, "")] = COMMAND.exec(text) ?? [];
  return { mode, input: WITHOUT_MESSAGE.test(text) ? null : input };
}

/** Return what to type for a message: a slash before one that would be taken for a command. */
export const asTyped = (message) => COMMAND.test(message) || ESCAPE.test(message) ? `/${message}` : message;

/** Say what the command does with which a text begins, or how one is used if it is typed now; else return "". */
export function explainMode(text, joinsTurn) {
  const { mode } = parseMode(text);
  if (mode) return joinsTurn ? "The running turn keeps its mode; only a new one gets another." : MODES[mode];
  const isBegun = text.startsWith("/") && Object.keys(MODES).some((name) => `/${name}`.startsWith(text.trimEnd()));
  return isBegun ? USAGE : "";
}
