// The line and word comparisons of jsdiff.

export { diffArrays } from "diff/lib/diff/array.js";
export { diffLines } from "diff/lib/diff/line.js";
export { diffWordsWithSpace } from "diff/lib/diff/word.js";
