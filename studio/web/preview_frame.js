// The frame of a preview: the shell of GET /preview, to which a page's text is posted, and what it reports.

const REDRAW_MS = 250; // between two drawings
const PING_MS = 2000; // a page that hangs answers no more
const MAX_TEXT_CHARS = 400; // of a message from the frame

export class PreviewFrame {
  /**
   * Show texts in a frame inside `box`. `onBlocked({kind, url, canBeAllowed})` is called for what was not loaded,
   * `onScripts(count)` for scripts that did not run, `onLeft(url)` if a page whose scripts ran tried to go elsewhere and was drawn again without scripts, `onHeld()` if
   * the person moves a growing page, `onHang(isHanging)` when a page does not answer any more, or does again or is removed.
   */
  constructor(box, { onBlocked, onScripts, onLeft, onHeld, onHang }) {
    Object.assign(this, { box, onBlocked, onScripts, onLeft, onHeld, onHang });
    this.lastId = 0;
    this.isHanging = false;
    this.clear();
    window.addEventListener("message", (event) => this.receive(event));
    setInterval(() => this.ping(), PING_MS);
  }

  /** Remove the frame with all that runs in it. */
  clear() {
    this.frame?.remove();
    this.frame = null;
    this.isReady = false;
    this.next = null; // what is to be shown
    this.sent = null; // what is shown, or is being drawn
    this.isDrawing = false;
    clearTimeout(this.timer);
    this.timer = null;
    this.setUnanswered(0);
  }

  /**
   * Show the text of the file `path`, the last one given, at most four times a second; a frame whose scripts ran is
   * replaced, and one that does not answer as soon as the text is complete. `files` are those that the text may name:
   * {path, sha256, content}, the content a blob with its type.
   */
  show({ path, html, files, scripts, isGrowing }) {
    if (this.sent?.scripts || (this.isHanging && !isGrowing)) this.clear();
    this.next = { path, html, files, scripts, isGrowing };
    if (!this.frame) this.addFrame();
    this.draw();
  }

  addFrame() {
    this.frame = document.createElement("iframe");
    this.frame.title = "Preview";
    this.frame.setAttribute("sandbox", "allow-scripts");
    this.frame.src = "preview";
    this.box.replaceChildren(this.frame);
  }

  draw() {
    if (!this.next || !this.isReady || this.isDrawing || this.timer) return;
    this.lastId += 1;
    this.sent = { ...this.next, id: this.lastId };
    this.next = null;
    this.isDrawing = true;
    this.post({ type: "show", ...this.sent });
    this.timer = setTimeout(() => { this.timer = null; this.draw(); }, REDRAW_MS);
  }

  /** Ask whether the frame is alive; scripts that do not end keep it from answering, and what takes long to draw. */
  ping() {
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
    this.frame.contentWindow.postMessage(message, "*"); // the frame has an opaque origin, which no string names
  }

  receive({ source, data }) {
    if (!this.frame || source !== this.frame.contentWindow || typeof data !== "object" || data === null) return;
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
