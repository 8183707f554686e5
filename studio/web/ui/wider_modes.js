// @ts-check
// Questions before a permission mode is chosen that asks less.

const STILL_ASKED = "You are still asked, as in every mode, about calls that could do great harm: for example, to delete the workspace or your home folder, or to change instructions for agents.";

/** What is asked before a mode is chosen that asks less. */
export const WIDER = {
  accept_edits: {
    title: "Edit files and run sandboxed commands without asking?",
    text: `Changes of files, and commands in the sandbox, run in this session without a question. ${STILL_ASKED}`,
    action: "Edit files and run sandboxed commands without asking",
  },
  auto: {
    title: "Run everything without asking, except harmful calls?",
    text: `Calls of this session run without a question: commands, changes of files, requests to the network. ${STILL_ASKED}`,
    action: "Run everything without asking, except harmful calls",
    isDangerous: true,
  },
};
