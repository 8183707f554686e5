// @ts-check
// The permission modes as sentences: what the agent does with calls that change something.

/** Their names, sentences and short ones. @type {[string, string, string][]} */
export const MODES = [
  ["default", "Asks before changes", "Asks first"],
  ["accept_edits", "Edits files and runs sandboxed commands without asking", "Asks less: edits, sandbox"],
  ["plan", "Plans only", "Plans only"],
  ["auto", "Runs everything without asking", "Runs everything"],
];
