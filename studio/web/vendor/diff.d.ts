// Types of diff.js from its npm packages; tests/node/tsconfig.json finds them.

export { diffArrays, diffLines, diffWordsWithSpace } from "diff";
