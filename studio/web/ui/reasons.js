// @ts-check
// The reasons for what happens with a call, as a list; texts with code in them.

import { html } from "../vendor/preact.js";
import { escapeHidden } from "../text/hidden_characters.js";
import { codePieces, reasonPieces } from "../text/reasons.js";

/** @param {{reasons: string[]}} props */
export function Reasons({ reasons }) {
  return html`<ul class="reasons">${reasonPieces(reasons).map((pieces, index) => html`<li key=${index}>${pieces.map(show)}</li>`)}</ul>`;
}

/** Show a text in which code stands between backticks. @param {{text: string}} props */
export const WithCode = ({ text }) => codePieces(text).map(show);

const show = (/** @type {import("../text/reasons.js").Piece} */ { text, isCode }) =>
  isCode ? html`<code>${escapeHidden(text)}</code>` : escapeHidden(text);
