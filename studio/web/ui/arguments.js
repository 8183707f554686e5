// @ts-check
// The arguments of a call, each with its name: texts as they are, several below each other, other values as JSON.

import { html } from "../vendor/preact.js";
import { escapeHidden } from "../text/hidden_characters.js";
import { argumentTexts } from "../text/tool_words.js";

/** @param {{args: Record<string, any>}} props */
export function Arguments({ args }) {
  return html`<dl class="arguments">${argumentTexts(args).map(([name, ...texts]) => html`
    <dt key=${`${name} name`}>${escapeHidden(name)}</dt>
    ${texts.map((text, place) => html`<dd key=${`${name} ${place}`}><pre>${escapeHidden(text)}</pre></dd>`)}`)}</dl>`;
}
