// @ts-check
// The log of a session: its turns, of which those far from what is seen are spacers. The newest are shown first.
//
// It follows what is added while the person is at its end. Turning the wheel up, dragging, paging, selecting or going to
// another place ends that at once; reaching the end again, the button or sending a message resumes it. Nothing reads the
// layout when an event arrives: observers report heights after the browser has laid out anyway.

import { html, signal, useLayoutEffect, useMemo, useReducer, useRef } from "../vendor/preact.js";
import { FindBar } from "./find_bar.js";
import { openFold } from "./fold.js";
import { conversationText } from "./row_text.js";
import { rowsBefore, rowsOfTurn } from "./rows.js";
import { RowView, turnLabel } from "./turn.js";
import { Heights, rowsAtEnd, rowsNear } from "./window.js";

/** @typedef {import("./rows.js").Row} Row */

const END_PIXELS = 24; // from the end, which count as the end
const SHOWN_BELOW = 90; // pixels from the top, below the find bar, where a row is shown that was sought
const FIRST_SCREEN = 800; // pixels, before the height of the log is known
const OPENING = "summary, [data-fold], .show-more"; // what opens or closes a part, or shows more of one
const KEYS_UP = new Set(["PageUp", "Home", "ArrowUp"]);
const KEYS_DOWN = new Set(["PageDown", "End", "ArrowDown"]);

const POSITIONS = "log positions"; // in the storage of the tab, for a reload

/** @type {Map<string, {key: string, offset: number}>} */
const positions = storedPositions(); // by session, the row at the top and the pixels above; none while the end is followed

function storedPositions() {
  addEventListener("pagehide", () => sessionStorage.setItem(POSITIONS, JSON.stringify([...positions])));
  try {
    return new Map(JSON.parse(sessionStorage.getItem(POSITIONS) ?? "[]"));
  } catch (error) {
    if (!(error instanceof SyntaxError || error instanceof TypeError)) throw error;
    return new Map();
  }
}

/** The log of a session; another session needs another one. @param {{sessionId: string, state: any, actions: any, command: any}} props */
export function Log({ sessionId, state, actions, command }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const [, draw] = useReducer((/** @type {number} */ count) => count + 1, 0);
  const view = useMemo(() => new LogView(sessionId, draw), [sessionId]);
  const rows = view.setRows(rowsOfLog(state.value));
  const { from, to } = view.mounted;
  useLayoutEffect(() => view.attach(box.current), []);
  useLayoutEffect(() => view.afterDraw());
  useLayoutEffect(() => { if (command?.value) view.obey(command.value); }, [command?.value]);
  return html`<section id="log" role="log" aria-label="Conversation" aria-live="off" tabindex="0" data-region="Conversation" ref=${box}>
    <${FindBar} view=${view} />
    <div class="rows">
      <div class="spacer" style=${{ height: `${view.heightAbove()}px` }}></div>
      ${articles(rows, from, to).map(({ key, owner, shown }) => html`<${Article} key=${key} owner=${owner}>
        ${shown.map((row) => html`<${Measured} key=${row.key} row=${row} view=${view} state=${state} actions=${actions} />`)}
      <//>`)}
      <div class="spacer" style=${{ height: `${view.heightBelow()}px` }}></div>
    </div>
    <${Pill} view=${view} />
  </section>`;
}

/** @type {WeakMap<object, Row[]>} */
const rowsOfState = new WeakMap();

/** Return the rows of all turns of the conversation, with the index of each turn's owner. @returns {Row[]} */
function rowsOfLog(state) {
  const known = rowsOfState.get(state);
  if (known) return known;
  const turns = state.turns.filter((/** @type {any} */ turn) => turn.onPath);
  const last = turns.length - 1;
  /** @type {Row[]} */
  const rows = rowsBefore(state);
  turns.forEach((/** @type {any} */ turn, /** @type {number} */ place) => {
    for (const row of rowsOfTurn(state, turn, place === last)) rows.push(row);
  });
  rowsOfState.set(state, rows);
  return rows;
}

/** Return the mounted rows by the turn of the user's message that they belong to. */
function articles(/** @type {Row[]} */ rows, /** @type {number} */ from, /** @type {number} */ to) {
  /** @type {{key: string, owner: any, shown: Row[]}[]} */
  const found = [];
  for (let place = from; place < to; place += 1) {
    const row = rows[place];
    const key = row.key.split("/")[0];
    const root = row.owner?.parentTurnId === null ? row.owner : null;
    const last = found.at(-1);
    if (!last || (root && root.id !== last.owner?.id)) found.push({ key: root?.id ?? key, owner: root, shown: [row] });
    else last.shown.push(row);
  }
  return found;
}

const Article = ({ owner, children }) => owner
  ? html`<article class="turn" aria-label=${turnLabel(owner)} data-turn=${owner.id}>${children}</article>`
  : html`<div class="turn">${children}</div>`;

/**
 * A row whose height is measured. The end of a turn keeps the height that it had while the turn ran, so that nothing above
 * moves when its steps fold, until another turn follows or it is too far away to be mounted.
 */
function Measured({ row, view, state, actions }) {
  const element = useRef(/** @type {HTMLElement | null} */ (null));
  const ending = useRef({ isRunning: false, height: 0 });
  useLayoutEffect(() => view.observe(element.current, row.key), [row.key]);
  if (row.kind === "end") {
    const isRunning = row.turn.status === "running";
    if (ending.current.isRunning && !isRunning) ending.current.height = view.heights.measured.get(row.key) ?? 0;
    ending.current.isRunning = isRunning;
  }
  const kept = row.kind === "end" && row.isLast && !ending.current.isRunning ? ending.current.height : 0;
  return html`<div class=${`row ${row.kind}-row`} data-key=${row.key} ref=${element} style=${{ minHeight: kept ? `${kept}px` : "" }}>
    <${RowView} row=${row} state=${state} actions=${actions} />
  </div>`;
}

function Pill({ view }) {
  if (view.isFollowing.value || !view.hasMore.value) return null;
  return html`<div class="pill-place"><button type="button" class="pill" onClick=${() => view.goToEnd()}>↓ Newest</button></div>`;
}

/** What is mounted of a log, and whether it follows what is added. */
class LogView {
  /** @param {string} id @param {(action: number) => void} draw */
  constructor(id, draw) {
    this.id = id;
    this.draw = () => draw(0);
    this.heights = new Heights();
    /** @type {Row[]} */
    this.rows = [];
    this.mounted = { from: 0, to: 0 };
    this.screen = FIRST_SCREEN;
    this.isFollowing = signal(true);
    this.hasMore = signal(false); // whether there is something below what is seen; not kept up to date while it follows
    /** @type {{key: string, offset: number, isGoal?: boolean, onShown?: (element: Element) => void} | null} */
    this.target = positions.get(id) ?? null; // to be shown once it is there
    /** @type {HTMLElement | null} */
    this.box = null;
    this.isDragging = false; // its scroll bar
    this.top = 0; // where it was scrolled to last
    this.goal = Infinity; // where the end was when the person last scrolled towards it
    /** @type {number | null} */
    this.finger = null; // its place while it touches the log
    /** @type {number | null} */
    this.draggedFrom = null; // where the log was when a drag left its end
    this.isFolding = false; // whether a part has opened or closed at the end, and was not measured yet
    this.wanted = null; // a command whose place is not there yet
    this.above = { from: -1, key: "", height: 0 };
  }

  /** Take the rows as they are now, and decide which ones are mounted. @param {Row[]} rows */
  setRows(rows) {
    if (rows !== this.rows) this.moveMounted(rows);
    this.rows = rows;
    if (this.wanted) this.obey(this.wanted, false);
    if (this.target) this.mountTarget();
    if (this.isFollowing.peek()) this.mounted = this.withSelection(rowsAtEnd(this.heights, rows, this.mounted, this.screen));
    return rows;
  }

  /** Keep the rows mounted that are, though others above them may have come or gone. */
  moveMounted(/** @type {Row[]} */ rows) {
    const { from, to } = this.mounted;
    const first = this.rows[from]?.key;
    let moved = from;
    if (rows[from]?.key !== first) {
      const found = rows.findIndex(({ key }) => key === first);
      moved = found < 0 ? Math.min(from, Math.max(0, rows.length - (to - from))) : found;
    }
    this.mounted = { from: moved, to: Math.min(rows.length, moved + to - from) };
  }

  /** Return the height of the rows above those that are mounted, which only changes with the first of these. */
  heightAbove() {
    const { from } = this.mounted;
    const key = this.rows[from]?.key ?? "";
    if (this.above.from !== from || this.above.key !== key) {
      this.above = { from, key, height: this.heights.between(this.rows, 0, from) };
    }
    return this.above.height;
  }

  heightBelow() { return this.heights.between(this.rows, this.mounted.to, this.rows.length); }

  // --- the element ----------------------------------------------------------------------------------------------------

  /** @param {HTMLElement | null} box */
  attach(box) {
    if (!box) return undefined;
    this.box = box;
    this.sizes = new ResizeObserver((entries) => this.measure(entries));
    this.sizes.observe(box);
    this.sizes.observe(/** @type {Element} */ (box.querySelector(".rows")));
    for (const element of box.querySelectorAll(".row")) this.sizes.observe(element);
    const listen = /** @type {[EventTarget, string, (event: any) => void][]} */ ([
      [box, "scroll", () => this.onScroll()],
      [box, "wheel", ({ deltaY }) => this.turn(deltaY)],
      [box, "touchstart", ({ touches }) => { this.finger = touches[0].clientY; }],
      [box, "touchmove", ({ touches }) => this.drag(touches[0].clientY)],
      [box, "touchend", () => this.endDrag()],
      [box, "touchcancel", () => this.endDrag()],
      [box, "scrollend", () => this.resumeAfterDrag()],
      [box, "keydown", (event) => this.onKeyDown(event)],
      [box, "click", (event) => { if (event.target.closest(OPENING)) this.leaveForFold(); }],
      [box, "pointerdown", (event) => {
        this.isDragging = event.target === box;
        this.goal = Infinity;
      }],
      [window, "pointerup", () => { this.isDragging = false; }],
      [window, "pointercancel", () => { this.isDragging = false; }], // a touch that scrolls
      [document, "selectionchange", () => this.onSelection()],
      [document, "copy", (event) => this.onCopy(event)],
    ]);
    for (const [target, type, handler] of listen) target.addEventListener(type, handler, { passive: !["copy", "keydown"].includes(type) });
    return () => {
      this.sizes?.disconnect();
      for (const [target, type, handler] of listen) target.removeEventListener(type, handler);
    };
  }

  /** Observe the height of a row as long as it is mounted; then the log takes its focus, so that keys still scroll. @param {HTMLElement | null} element @param {string} key */
  observe(element, key) {
    if (!element) return undefined;
    element.dataset.key = key;
    this.sizes?.observe(element);
    return () => {
      this.sizes?.unobserve(element);
      if (element.contains(document.activeElement)) this.box?.focus({ preventScroll: true });
    };
  }

  /** Note heights, which are known now without another layout; the end stays the end. @param {ResizeObserverEntry[]} entries */
  measure(entries) {
    const { screen } = this;
    for (const { target, borderBoxSize, contentRect } of entries) {
      const element = /** @type {HTMLElement} */ (target);
      if (element === this.box) this.screen = contentRect.height || this.screen;
      else if (element.dataset.key && element.isConnected) this.heights.measured.set(element.dataset.key, borderBoxSize[0].blockSize);
    }
    if (this.isFolding) {
      this.isFolding = false;
      this.isFollowing.value = this.isAtEnd();
    }
    if (!this.isFollowing.peek()) {
      this.hasMore.value = !this.isAtEnd();
      this.mountNear();
    } else {
      if (this.screen > screen) this.draw(); // more rows are seen
      this.scrollToEnd();
    }
  }

  scrollToEnd() {
    if (!this.box) return;
    this.box.scrollTop = this.box.scrollHeight;
    this.top = this.box.scrollTop;
  }

  // --- what the person does -------------------------------------------------------------------------------------------

  /** Scroll by the wheel or a finger: up leaves the end, down may reach it. @param {number} pixels */
  turn(pixels) {
    if (pixels < 0) this.leaveUpwards();
    else if (pixels > 0) this.comeDown();
  }

  /** @param {number} y */
  drag(y) {
    const from = this.isFollowing.peek() ? this.top : this.draggedFrom;
    this.turn((this.finger ?? y) - y);
    this.finger = y;
    if (!this.isFollowing.peek()) this.draggedFrom = from;
  }

  /** End a drag; if the log has moved, it may move on until its `scrollend`. */
  endDrag() {
    this.finger = null;
    if (this.box?.scrollTop === this.draggedFrom) this.resumeAfterDrag();
  }

  /** Follow on after a drag that has not led away from the end. */
  resumeAfterDrag() {
    if (this.finger === null && this.draggedFrom !== null && this.isAtEnd()) this.goToEnd();
  }

  /** @param {KeyboardEvent} event */
  onKeyDown(event) {
    const { key, shiftKey, target } = event;
    const isOn = (/** @type {string} */ selector) => /** @type {Element} */ (target).closest(selector);
    if (isOn("input, textarea, select") && !key.startsWith("Page")) return;
    this.goal = Infinity;
    const isSpace = key === " " && !isOn("button, summary");
    if (KEYS_UP.has(key) || (isSpace && shiftKey)) this.leaveUpwards();
    else if (shiftKey) return; // selects
    else if (key === "End" && !isOn("pre")) {
      event.preventDefault(); // the browser would scroll on for a while, also after the next key
      this.goToEnd();
    } else if (KEYS_DOWN.has(key) || isSpace) this.comeDown();
  }

  /** Follow at once if the end is seen, else once the log is scrolled to where the end is now: text may be added meanwhile. */
  comeDown() {
    if (this.isFollowing.peek()) return;
    const box = /** @type {HTMLElement} */ (this.box);
    if (this.isAtEnd()) this.goToEnd();
    else this.goal = box.scrollHeight - box.clientHeight;
  }

  leave() {
    if (this.isFollowing.peek()) this.isFollowing.value = false;
    this.draggedFrom = null;
    this.goal = Infinity;
    this.target = null;
    this.hasMore.value = !this.isAtEnd();
    this.top = this.box?.scrollTop ?? 0; // the event of what was scrolled before may arrive later
  }

  /** Leave the end where there is something above it: no scrolling would reach the end again. */
  leaveUpwards() {
    const box = /** @type {HTMLElement} */ (this.box);
    if (box.scrollHeight > box.clientHeight) this.leave();
  }

  /** What opens or closes stays where it is; if the end is still seen then, it is followed on. */
  leaveForFold() {
    this.isFolding = this.isFollowing.peek();
    this.leave();
  }

  isAtEnd() {
    const box = /** @type {HTMLElement} */ (this.box);
    return this.mounted.to === this.rows.length && box.scrollHeight - box.scrollTop - box.clientHeight <= END_PIXELS;
  }

  goToEnd() {
    this.target = this.wanted = null;
    positions.delete(this.id);
    this.isFollowing.value = true;
    this.mounted = rowsAtEnd(this.heights, this.rows, this.mounted, this.screen);
    this.draw();
    this.scrollToEnd(); // also if no other rows are mounted, and none are measured
  }

  onScroll() {
    const box = /** @type {HTMLElement} */ (this.box), wasFollowing = this.isFollowing.peek();
    const isDownwards = box.scrollTop > this.top;
    this.top = box.scrollTop;
    if (!wasFollowing && !this.target && !this.isFolding && isDownwards && this.top >= this.goal - END_PIXELS) {
      this.goToEnd();
      return;
    }
    if (this.isDragging || !wasFollowing) {
      const isAtEnd = this.isAtEnd();
      // One that was left is followed again once the person comes down to its end: the event of `scrollToEnd` may arrive
      // after a key or a selection has left it, and a key scrolls up in steps, of which the first are small.
      const isFollowing = !this.target && !this.isFolding && isAtEnd && (wasFollowing || isDownwards);
      this.hasMore.value = !isAtEnd;
      if (isFollowing !== wasFollowing) this.isFollowing.value = isFollowing;
    }
    if (this.isFollowing.peek()) {
      if (!this.target) positions.delete(this.id);
      return;
    }
    this.mountNear();
    this.notePosition(box.scrollTop);
  }

  onSelection() {
    const selection = getSelection();
    if (selection && !selection.isCollapsed && this.box?.contains(selection.anchorNode)) this.leave();
  }

  /** Copy the whole conversation where all of it is selected, and not only what is mounted. */
  onCopy(/** @type {ClipboardEvent} */ event) {
    const isMounted = this.mounted.from === 0 && this.mounted.to === this.rows.length;
    const isInField = event.target instanceof Element && event.target.closest("input, textarea");
    const ends = this.box?.querySelectorAll(".rows > .spacer") ?? [];
    if (isMounted || isInField || ![...ends].every((end) => getSelection()?.containsNode(end))) return;
    event.clipboardData?.setData("text/plain", conversationText(this.rows));
    event.preventDefault();
  }

  /** Keep also what is selected of a message as long as other parts of the message are mounted. @param {{from: number, to: number}} near */
  withSelection(near) {
    const selection = getSelection();
    if (!this.box || !selection || selection.isCollapsed) return near;
    let { from, to } = near;
    for (const node of [selection.anchorNode, selection.focusNode]) {
      const element = node instanceof Element ? node : node?.parentElement;
      const key = /** @type {HTMLElement | null | undefined} */ (element?.closest("#log .row"))?.dataset.key;
      const place = key === undefined ? -1 : this.rows.findIndex((row) => row.key === key);
      if (place < 0 || !this.rows.slice(near.from, near.to).some(({ whole }) => whole && whole === this.rows[place].whole)) continue;
      from = Math.min(from, place);
      to = Math.max(to, place + 1);
    }
    return { from, to };
  }

  notePosition(/** @type {number} */ top) {
    if (this.target) return;
    const place = this.heights.rowAt(this.rows, top);
    const row = this.rows[place];
    if (row) positions.set(this.id, { key: row.key, offset: top - this.heights.between(this.rows, 0, place) });
  }

  /** Mount what is near now; rows that were mounted just now are measured first, as the place depends on their heights. */
  mountNear() {
    if (!this.box || this.target || !this.heights.areMeasured(this.rows, this.mounted)) return;
    const near = this.withSelection(rowsNear(this.heights, this.rows, this.mounted, { top: this.box.scrollTop, screen: this.screen }));
    if (near.from === this.mounted.from && near.to === this.mounted.to) return;
    this.mounted = near;
    this.draw();
  }

  // --- going to a place -----------------------------------------------------------------------------------------------

  /**
   * Do what a command says: `{name: "end"}`, `{name: "goTo", id}` of a turn, message, call or request, and
   * `{name: "turn", step}`, to the turn before or behind.
   */
  obey(/** @type {any} */ command, draws = true) {
    if (command.name === "end") { this.goToEnd(); return; }
    const id = command.id?.replace(/^(calls|result)_/, ""); // a message without a text has the id of its call
    const place = command.name === "turn" ? this.turnBeside(command.step) : this.rows.findIndex(({ key, ids }) => key === id || ids.includes(id));
    this.wanted = place < 0 && command.name === "goTo" ? command : null;
    if (place < 0) return;
    if (["call", "reading", "request"].includes(this.rows[place].kind)) openFold(this.rows[place].key);
    this.isFollowing.value = false;
    this.target = { key: this.rows[place].key, offset: 0, isGoal: true };
    this.mountTarget();
    if (draws) this.draw();
  }

  /** Show a row with what is folded in it, without moving the focus; `onShown` gets its element. */
  show(/** @type {string} */ key, /** @type {string | null} */ inner, /** @type {(element: Element) => void} */ onShown) {
    openFold(key);
    if (inner !== null) openFold(inner);
    this.leave();
    requestAnimationFrame(() => { // when it has opened
      this.target = { key, offset: -SHOWN_BELOW, onShown };
      this.mountTarget();
      this.draw();
    });
  }

  /** Return the index of the first row that is seen. A row that was mounted just now is not measured yet. */
  rowAtTop(top = this.box?.scrollTop ?? 0) {
    const rows = /** @type {HTMLElement[]} */ ([...this.box?.querySelectorAll(".row") ?? []]);
    const key = rows.find(({ offsetTop, offsetHeight }) => offsetTop <= top && top < offsetTop + offsetHeight)?.dataset.key;
    return key ? this.rows.findIndex((row) => row.key === key) : this.heights.rowAt(this.rows, top);
  }

  /** Return the index of the first row of the turn before or behind the one that is seen. @param {number} step */
  turnBeside(step) {
    const at = this.rowAtTop((this.box?.scrollTop ?? 0) + 1);
    const isFirst = (/** @type {Row} */ row) => row.kind === "user";
    if (step > 0) return this.rows.findIndex((row, place) => place > at && isFirst(row));
    return this.rows.findLastIndex((row, place) => place < at && isFirst(row));
  }

  /** Mount the rows around a place; as long as the log does not have it, the end is shown. */
  mountTarget() {
    const place = this.rows.findIndex(({ key }) => key === this.target?.key);
    if (place < 0) return;
    this.isFollowing.value = false;
    this.goal = Infinity;
    const top = this.heights.between(this.rows, 0, place);
    this.mounted = rowsNear(this.heights, this.rows, { from: 0, to: 0 }, { top, screen: this.screen });
  }

  /** Scroll to the place that was mounted for it: once, so that its layout may be read. */
  afterDraw() {
    if (this.isFollowing.peek() || !this.target || !this.box) return;
    const element = /** @type {HTMLElement | null} */ (this.box.querySelector(`[data-key="${CSS.escape(this.target.key)}"]`));
    if (!element) return;
    this.box.scrollTop = element.offsetTop + this.target.offset;
    if (this.target.isGoal) /** @type {HTMLElement} */ (element.querySelector("[tabindex]") ?? this.box).focus({ preventScroll: true });
    const { onShown } = this.target;
    this.target = null;
    this.hasMore.value = !this.isAtEnd();
    onShown?.(element);
    this.notePosition(this.box.scrollTop);
  }
}
