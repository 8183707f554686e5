// @ts-check
// The change between two texts, for example two revisions of a file.

import { html, useEffect, useState } from "../vendor/preact.js";
import { compareTexts } from "../text/diff.js";
import { DiffView } from "./diff_view.js";

/** @param {{before: string, after: string, label?: string}} props */
export function RevisionDiff({ before, after, label = "Change" }) {
  const [rows, setRows] = useState(/** @type {import("../text/diff.js").Row[] | null} */ (null));
  const [isFailed, setFailed] = useState(false);
  useEffect(() => {
    let isShown = true;
    import("../vendor/diff.js").then(({ diffLines }) => {
      if (isShown) setRows(compareTexts(before, after, diffLines));
    }, () => { if (isShown) setFailed(true); });
    return () => { isShown = false; };
  }, [before, after]);
  if (isFailed) return html`<p class="error">The two could not be compared: the studio did not send the program for it.</p>`;
  if (!rows) return html`<p class="note">Comparing…</p>`;
  if (rows.every(({ type }) => type === "context")) return html`<p class="note">Both are the same.</p>`;
  return html`<${DiffView} rows=${rows} label=${label} />`;
}
