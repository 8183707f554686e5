// The frame of a preview: the shell of GET /preview, to which a page's text is posted, and what it reports.
//
// A page whose scripts run can call focus() at any time, and no browser prevents that yet (the permission
// "focus-without-user-activation" is asked for, and known to few). It would get what the person types into the message
// box. So from Run on the person is in the page, until the focus goes anywhere else. Then a button lies over the page:
// only that leads back, and a page that has the focus without it has taken the keyboard, and is removed.
//
// Such a page can also flood this one with messages. What is in them is looked at only if they come from the shell: to
// read `data` of a message can take seconds. A page that sends too many is removed as well.

import { url as addressOf } from "../net/api.js";

const REDRAW_MS = 250; // between two drawings
const INPUTS = ["focusin", "pointerdown", "keydown"];
const WATCH_MS = 250; // for a page that takes the focus while another window has it, of which no event tells
const PING_MS = 2000; // a page that hangs answers no more
const MAX_TEXT_CHARS = 400; // of a message from the frame
const MAX_MESSAGES = 2000; // that are not from the shell, between two pings

export class PreviewFrame {
  /**
   * Show texts in a frame inside `box`, an element. `onDraw()` is called before each drawing,
   * `onBlocked({kind, url, canBeAllowed})` for what it did not load, `onScripts(count)` for scripts that did not run,
   * `onLeft(url)` if a page whose scripts ran tried to go elsewhere and was drawn again without scripts, `onHeld()` if the
   * person moves a growing page, `onHang(isHanging)` when a page does not answer any more, or does again or is removed,
   * `onRemoved(what)` if a page whose scripts ran was removed because of `what` it did.
   */
  constructor(box, { onDraw, onBlocked, onScripts, onLeft, onHeld, onHang, onRemoved }) {
    this.box = box;
    this.onBlocked = onBlocked;
    this.onDraw = onDraw;
    this.onScripts = onScripts;
    this.onLeft = onLeft;
    this.onHeld = onHeld;
    this.onHang = onHang;
    this.onRemoved = onRemoved;
    this.lastId = 0;
    this.isHanging = false;
    this.unanswered = 0;
    /** @type {HTMLIFrameElement|null} */
    this.frame = null;
    /** @type {any} */
    this.next = null; // what is to be shown
    /** @type {any} */
    this.sent = null; // what is shown, or is being drawn
    this.isReady = false;
    this.isDrawing = false;
    /** @type {ReturnType<typeof setTimeout>|null} */
    this.timer = null;
    this.listener = (event) => this.receive(event);
    window.addEventListener("message", this.listener);
    this.pinging = setInterval(() => this.ping(), PING_MS);
    this.foreign = 0; // messages since the last ping
    /** @type {HTMLElement|null} */
    this.place = null; // where the person is; null in the page
    this.cover = document.createElement("button");
    Object.assign(this.cover, { type: "button", className: "cover", onclick: () => this.enter() });
    this.cover.append(Object.assign(document.createElement("span"), { textContent: "Use the page" }));
    this.onInput = ({ target }) => this.noteInput(target);
    this.onBlur = () => this.checkFocus();
    for (const type of INPUTS) document.addEventListener(type, this.onInput, true);
    window.addEventListener("blur", this.onBlur);
    this.watching = setInterval(this.onBlur, WATCH_MS);
  }

  /** End it for good. */
  dispose() {
    this.clear();
    window.removeEventListener("message", this.listener);
    for (const type of INPUTS) document.removeEventListener(type, this.onInput, true);
    window.removeEventListener("blur", this.onBlur);
    clearInterval(this.watching);
    clearInterval(this.pinging);
  }

  /** Remove the frame with all that runs in it. */
  clear() {
    this.frame?.remove();
    this.frame = null;
    this.isReady = false;
    this.next = null;
    this.sent = null;
    this.isDrawing = false;
    clearTimeout(this.timer ?? undefined);
    this.timer = null;
    this.setUnanswered(0);
    this.drawCover();
  }

  /**
   * Show the text of the file `path`, the last one given, at most four times a second; a frame whose scripts ran is
   * replaced, and one that does not answer as soon as the text is complete. `files` are those that the text may name:
   * {path, sha256, content}, the content a blob with its type.
   */
  show({ path, html, files, scripts, isGrowing }) {
    if (this.sent?.scripts || (this.isHanging && !isGrowing)) this.clear();
    if (scripts) this.place = null; // the person has pressed Run
    this.next = { path, html, files, scripts, isGrowing };
    if (!this.frame) this.addFrame();
    this.draw();
  }

  addFrame() {
    this.frame = document.createElement("iframe");
    this.frame.title = "Preview";
    this.frame.setAttribute("sandbox", "allow-scripts");
    this.frame.allow = "focus-without-user-activation 'none'";
    this.frame.src = addressOf("preview");
    this.box.replaceChildren(this.frame, this.cover);
    this.drawCover();
  }

  /** Keep that the person does something else than use the page. */
  noteInput(/** @type {EventTarget|null} */ target) {
    if (target === this.cover || target === this.frame) return;
    this.place = target instanceof HTMLElement ? target : document.body;
    this.drawCover();
  }

  drawCover() {
    const isCovered = this.place !== null && Boolean(this.sent?.scripts);
    this.cover.hidden = !isCovered;
    if (this.frame) this.frame.tabIndex = isCovered ? -1 : 0;
  }

  /** Lead the person into the page. */
  enter() {
    this.place = null;
    this.drawCover();
    this.frame?.focus();
    this.post({ type: "enter", id: this.lastId });
  }

  /** Remove a page that has taken the focus, and give it back. */
  checkFocus() {
    const place = this.place;
    if (!place || !this.sent?.scripts || document.activeElement !== this.frame) return;
    this.clear();
    place.focus();
    this.onRemoved("took the keyboard while you did something else");
  }

  draw() {
    if (!this.next || !this.isReady || this.isDrawing || this.timer) return;
    this.lastId += 1;
    this.sent = { ...this.next, id: this.lastId };
    this.next = null;
    this.isDrawing = true;
    this.drawCover();
    this.onDraw();
    this.post({ type: "show", ...this.sent });
    this.timer = setTimeout(() => { this.timer = null; this.draw(); }, REDRAW_MS);
  }

  /** Ask whether the frame is alive; scripts that do not end keep it from answering, and what takes long to draw. */
  ping() {
    this.foreign = 0;
    if (!this.sent) return;
    this.setUnanswered(this.unanswered + 1);
    this.post({ type: "ping", id: this.unanswered });
  }

  /** Take the number of pings without an answer; at the second the frame counts as hanging. */
  setUnanswered(count) {
    this.unanswered = count;
    if (this.isHanging === count > 1) return;
    this.isHanging = count > 1;
    this.onHang(this.isHanging);
  }

  post(message) {
    this.frame?.contentWindow?.postMessage(message, "*"); // the frame has an opaque origin, which no string names
  }

  receive(event) {
    if (!this.frame) return;
    if (event.source !== this.frame.contentWindow) {
      this.foreign += 1;
      if (this.foreign <= MAX_MESSAGES || !this.sent?.scripts) return;
      this.clear();
      this.onRemoved("sent messages without end");
      return;
    }
    const { data } = event;
    if (typeof data !== "object" || data === null) return;
    const { type, id, kind, url, canBeAllowed, count } = data;
    if (type === "ready") { this.isReady = true; this.draw(); return; }
    if (type === "pong") { this.setUnanswered(0); return; }
    if (type === "held") { if (this.sent?.isGrowing) this.onHeld(); return; } // also while the next text is on its way
    if (id !== this.sent?.id) return;
    if (type === "shown") { this.isDrawing = false; this.draw(); }
    else if (type === "scripts") { if (Number.isInteger(count)) this.onScripts(count); }
    else if (![kind ?? "", url].every((text) => typeof text === "string" && text.length <= MAX_TEXT_CHARS)) return;
    else if (type === "blocked") this.onBlocked({ kind, url, canBeAllowed: canBeAllowed === true });
    else if (type === "left") { this.sent.scripts = false; this.onLeft(url); }
  }
}
