// @ts-check
// The change of a file: its lines with numbers and signs, side by side where there is room.

import { html, memo, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/preact.js";
import { diffLines, fillGaps, markWords, pairRows } from "../text/diff.js";
import { escapeHidden } from "../text/hidden_characters.js";
import { hasSought, sought } from "./fold.js";
import { useAction } from "./use_action.js";

/** @typedef {import("../text/diff.js").Row} Row */
/** @typedef {import("../text/diff.js").LineRow} LineRow */

const WIDE = 900; // pixels from which on both sides stand beside each other, as in the pane of a window of 1,900
const CONTEXT = 3; // equal lines around a change
const LEAST_FOLDED = 4;
const MAX_ROWS = 1000; // at first
const REGION = ".diff-scroll"; // which takes the focus of a button that is not needed any more
const SIGNS = { added: "+", removed: "−", context: " " };
const WORDS = { added: "added", removed: "removed" };

/**
 * Show a unified diff of one file, after whose last line it has `below` unchanged ones. `cut` is true if it is not the whole
 * change, which `showWhole` shows; `readBefore` reads the text before it, for its unchanged lines, null if that is not
 * known any more; `rows` are shown instead of a diff.
 *
 * @param {{diff?: string, rows?: Row[], below?: number, cut?: boolean, label?: string, showWhole?: () => unknown,
 *   readBefore?: () => Promise<string | null>}} props
 */
export const DiffView = memo(function DiffView({
  diff = "", rows: given = undefined, below = 0, cut = false, label = "Change", showWhole = undefined, readBefore = undefined,
}) {
  const parsed = useMemo(() => (given ? { rows: given, hidden: 0 } : diffLines(diff, cut ? 0 : below)), [diff, given, below, cut]);
  const [chosen, setChosen] = useState(() => new Map()); // whether unchanged lines are shown, by the key of their fold
  const [limit, setLimit] = useState(MAX_ROWS);
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const isWide = useIsWide(box);
  const marks = useWordMarks(parsed.rows);
  const [filled, setFilled] = useState({ of: parsed, rows: /** @type {Row[]} */ ([]) });
  const rows = filled.of === parsed && filled.rows.length ? filled.rows : parsed.rows;
  const folded = useMemo(() => fold(rows, chosen), [rows, chosen]);
  const unknown = useRef(/** @type {unknown} */ (null)); // the change whose unchanged lines are not known
  const focused = useRef(/** @type {string | null} */ (null)); // what takes the focus once it is drawn
  useLayoutEffect(() => {
    const isHere = document.activeElement === document.body || box.current?.contains(document.activeElement);
    if (focused.current && isHere) /** @type {HTMLElement | null | undefined} */ (box.current?.querySelector(focused.current))?.focus({ preventScroll: focused.current === REGION });
    focused.current = null;
  });
  const [run, error] = useAction();
  const lines = isWide ? pairRows(folded) : folded;
  const place = sought.value ? lines.findIndex((line) => [line].flat().some((row) => hasSought(row?.text ?? ""))) : -1;
  const shown = Math.max(limit, place + 1);
  const show = (key, isShown, before = chosen) => {
    focused.current = `[data-fold="${key}"]`; // the button may be another one, further below
    setChosen(new Map(before).set(key, isShown));
  };
  const openGap = (gap) => run(async () => {
    const before = await readBefore?.() ?? null;
    const found = before === null ? null : fillGaps(parsed.rows, before);
    if (!found) {
      unknown.current = parsed;
      focused.current = REGION;
      throw new Error(before === null ? "The unchanged lines are not stored any more." : "The file is not as it was before this change: its unchanged lines are not known.");
    }
    setFilled({ of: parsed, rows: found });
    show(equalStart(parsed.rows, gap), true, new Map());
  });
  const toggle = (row) => (row.type === "gap" ? openGap(row) : show(row.key, !row.isShown));
  const canFill = Boolean(readBefore) && unknown.current !== parsed;
  const Line = isWide ? PairView : RowView;
  const isCut = cut || parsed.hidden > 0;
  return html`<div class=${isWide ? "diff wide" : "diff"} ref=${box}>
    ${isCut && html`<p class="note cut">${hiddenText(parsed)}${showWhole && html` <button type="button" onClick=${() => { focused.current = REGION; showWhole(); }}>Show the whole change</button>`}</p>`}
    ${error}
    <div class="diff-scroll" tabindex="0" role="region" aria-label=${escapeHidden(label)}>
      <table><${Columns} rows=${rows} isWide=${isWide} /><tbody>
        ${lines.slice(0, shown).map((line, index) => html`<${Line} key=${index} line=${line} marks=${marks} toggle=${toggle} canFill=${canFill} />`)}
        ${isCut && lines.length <= shown && html`<tr class="gap"><td colspan=${isWide ? 6 : 4}>The rest is not shown</td></tr>`}
      </tbody></table>
    </div>
    ${lines.length > shown && html`<button type="button" class="quiet show-more" onClick=${() => {
      if (lines.length - shown <= MAX_ROWS) focused.current = REGION;
      setLimit(shown + MAX_ROWS);
    }}>Show more lines (${(lines.length - shown).toLocaleString("en")} left)</button>`}
  </div>`;
});

/** The widths of the columns: numbers are as wide as the longest one, the lines have the rest. */
function Columns({ rows, isWide }) {
  const widthOf = (side) => {
    const longest = rows.reduce((most, row) => Math.max(most, row[side] ?? 0), 0);
    return `calc(${longest && Math.max(2, String(longest).length)}ch + .8rem)`;
  };
  const before = html`<col style=${{ width: widthOf("old") }} />`, after = html`<col style=${{ width: widthOf("new") }} />`;
  const sign = html`<col style=${{ width: "calc(1ch + .3rem)" }} />`;
  return html`<colgroup>${isWide ? html`${before}${sign}<col />${after}${sign}<col />` : html`${before}${after}${sign}<col />`}</colgroup>`;
}

/** Say how much of a change is not shown. @param {{rows: Row[], hidden: number}} read */
function hiddenText({ rows, hidden }) {
  if (!hidden) return "More lines not shown";
  const shown = rows.filter(({ type }) => type !== "gap").length;
  return `${hidden.toLocaleString("en")} of ${(shown + hidden).toLocaleString("en")} lines not shown`;
}

function useIsWide(box) {
  const [isWide, setIsWide] = useState(false);
  useEffect(() => {
    const observer = new ResizeObserver(([{ contentRect }]) => setIsWide(contentRect.width >= WIDE));
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  return isWide;
}

/** Return the spans of changed words by row, once the program that compares them is loaded. */
function useWordMarks(rows) {
  const [marks, setMarks] = useState(() => new Map());
  useEffect(() => {
    let isShown = true;
    import("../vendor/diff.js").then(({ diffWordsWithSpace }) => {
      if (isShown) setMarks(markWords(rows, diffWordsWithSpace));
    }, () => {}); // the studio has ended: the lines are shown without marks of words
    return () => { isShown = false; };
  }, [rows]);
  return marks;
}

/**
 * Return the rows with equal lines far from a change as one row, which can be opened by its key; it stays above its lines
 * to fold them again.
 */
function fold(rows, chosen) {
  const shown = [];
  for (let start = 0, end; start < rows.length; start = end) {
    for (end = start; end < rows.length && rows[end].type === "context"; end += 1);
    if (end === start) { shown.push(rows[start]); end += 1; continue; }
    const first = start === 0 ? start : Math.min(end, start + CONTEXT);
    const last = end === rows.length ? end : Math.max(first, end - CONTEXT);
    const isShown = chosen.get(start) ?? last - first < LEAST_FOLDED;
    const hasButton = last > first && (chosen.has(start) || !isShown);
    shown.push(...rows.slice(start, first));
    if (hasButton) shown.push({ type: "fold", count: last - first, key: start, isShown });
    shown.push(...rows.slice(isShown ? first : last, end));
  }
  return shown;
}

/** Return the place, once the gaps are filled, at which the equal lines around a gap begin: the key of their fold. */
function equalStart(rows, gap) {
  let start = 0, place = 0;
  for (const row of rows) {
    if (row === gap) return start;
    place += row.type === "gap" ? row.count : 1;
    if (row.type === "added" || row.type === "removed") start = place;
  }
  return start;
}

const RowView = memo(({ line: row, marks, toggle, canFill }) => {
  if (row.type === "gap" || row.type === "fold") return html`<tr class="gap"><td colspan="4"><${GapText} row=${row} toggle=${toggle} canFill=${canFill} /></td></tr>`;
  return html`<tr class=${row.type}>
    <td class="number">${row.old}</td><td class="number">${row.new}</td><${Sign} row=${row} /><${Text} row=${row} marks=${marks} />
  </tr>`;
});

const PairView = memo(({ line: [left, right], marks, toggle, canFill }) => {
  if (left && left === right && left.type !== "context") {
    return html`<tr class="gap"><td colspan="6"><${GapText} row=${left} toggle=${toggle} canFill=${canFill} /></td></tr>`;
  }
  return html`<tr><${Side} row=${left} number=${left?.old} marks=${marks} /><${Side} row=${right} number=${right?.new} marks=${marks} /></tr>`;
});

function Side({ row, number, marks }) {
  if (!row) return html`<td class="number empty"></td><td class="sign empty"></td><td class="line empty"></td>`;
  return html`<td class=${`number ${row.type}`}>${number}</td><${Sign} row=${row} /><${Text} row=${row} marks=${marks} />`;
}

function GapText({ row, toggle, canFill }) {
  const { type, count, key, isShown = false } = row;
  const text = `${count.toLocaleString("en")} unchanged ${count === 1 ? "line" : "lines"}`;
  if (type === "gap" && !canFill) return text;
  return html`<button type="button" class="quiet" data-fold=${key ?? ""} aria-expanded=${isShown} onClick=${() => toggle(row)}>${isShown ? "Hide" : "Show"} ${text}</button>`;
}

function Sign({ row }) {
  return html`<td class=${`sign ${row.type}`}>${SIGNS[row.type]}${row.type in WORDS && html`<span class="hidden-text">${WORDS[row.type]}</span>`}</td>`;
}

function Text({ row, marks }) {
  const spans = marks.get(row) ?? [];
  const parts = [];
  let at = 0;
  for (const { start, end } of spans) {
    parts.push(escapeHidden(row.text.slice(at, start)), html`<mark>${escapeHidden(row.text.slice(start, end))}</mark>`);
    at = end;
  }
  parts.push(escapeHidden(row.text.slice(at)));
  return html`<td class=${`line ${row.type}`}><code>${parts}</code>${!row.ended && html`<span class="note"> no line break at the end</span>`}</td>`;
}
