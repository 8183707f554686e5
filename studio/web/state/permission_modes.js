// @ts-check
// The permission modes as sentences: what the agent does with calls that change something.

/** Their names, sentences and short ones, from the one that allows least. @type {[string, string, string][]} */
export const MODES = [
  ["plan", "Plans only", "Plans only"],
  ["default", "Asks before changes", "Asks first"],
  ["accept_edits", "Edits files and runs sandboxed commands without asking", "Asks less: edits, sandbox"],
  ["auto", "Runs everything without asking, except harmful calls", "Runs everything"],
];
