// @ts-check
// The text of a table as a table: its first rows, more of them on request. Values are shown as text, whatever they are.

import { html, useMemo, useState } from "../vendor/preact.js";
import { readCsv } from "../text/csv.js";
import { escapeHiddenText } from "../text/hidden_characters.js";

const ROWS = 200; // at first, and by each click more
const MAX_COLUMNS = 100;
const MAX_CHARACTERS = 300; // of a value

/** @param {{text: string, label: string}} props */
export function CsvView({ text, label }) {
  const [limit, setLimit] = useState(ROWS);
  const { rows: [head, ...rows], isWhole } = useMemo(() => readCsv(text, limit + 1), [text, limit]);
  if (!head) return html`<p class="note">The table is empty.</p>`;
  const columns = Math.max(head.length, ...rows.map((row) => row.length));
  const places = Array.from({ length: Math.min(columns, MAX_COLUMNS) }, (_, place) => place);
  return html`<table class="csv" aria-label=${label}>
      <thead><tr><th class="number"><span class="hidden-text">Row</span></th>${places.map((place) => html`<th key=${place} scope="col">${shown(head[place])}</th>`)}</tr></thead>
      <tbody>${rows.map((row, index) => html`<tr key=${index}><th scope="row" class="number">${index + 1}</th>${places.map((place) => html`<td key=${place}>${shown(row[place])}</td>`)}</tr>`)}</tbody>
    </table>
    ${columns > MAX_COLUMNS && html`<p class="note">${(columns - MAX_COLUMNS).toLocaleString("en")} columns are not shown. Code has all of them.</p>`}
    ${!isWhole && html`<button type="button" class="quiet" onClick=${() => setLimit(limit + ROWS)}>Show more rows</button>`}`;
}

const shown = (value = "") => escapeHiddenText(value.length > MAX_CHARACTERS ? `${value.slice(0, MAX_CHARACTERS)}…` : value);
