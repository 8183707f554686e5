// The pane beside the conversation: the files that live in the session, with code, preview and revisions. The options of
// a message have files of their own; of these there is a tab for each option.

import { make } from "./elements.js";
import { escapeHidden, escapeHiddenText } from "./hidden_characters.js";
import { PreviewFrame } from "./preview_frame.js";
import { SessionFiles } from "./session_files.js";

const RENDER_MS = 250; // between two renderings of files that grow
const NARROW = "(max-width: 44rem)"; // where the pane covers the conversation, so that it does not open by itself
const OPTION = /^option-(\d+)$/; // the agent of an option
const SESSION = 0; // the number of the session's own files among those of options
const STATES = { running: "is being written", done: "done", failed: "failed", stopped: "stopped", interrupted: "interrupted" };
const IMAGES = new Set(["image/gif", "image/jpeg", "image/png", "image/webp"]);
const PAGES = new Set(["text/html", "image/svg+xml"]);
const RUN_NOTE =
  "Scripts run only after Run, and requests are blocked. Two things browsers cannot block: a script that runs could send " +
  "what the page contains over WebRTC, and a frame in the page opens a connection, without a request, to its address.";
const HOSTS_NOTE = "To let previews load scripts, styles, images and fonts of a host, name it in AGX_PREVIEW_HOSTS.";

export class Artifacts {
  /**
   * Show the files of a session in `pane`, which `toggle` opens and closes. `api` returns the JSON of a path, `blob`
   * its bytes, `json(method, body)` the options of a request.
   */
  constructor({ pane, toggle }, { api, blob, json, showStatus }) {
    Object.assign(this, { pane, toggle, api, blob, json, showStatus });
    this.isOpen = new Map(); // by session, where the person opened or closed the pane
    this.build();
    this.preview = new PreviewFrame(this.frameBox, {
      onBlocked: (item) => this.addBlocked(item),
      onScripts: (count) => { this.waitingScripts = count; this.renderBlocked(); },
      onLeft: (url) => this.stopAfterLeaving(url),
      onHeld: () => { this.isHeld = true; this.render(); },
      onHang: () => { if (this.revision()) this.showRun(this.revision()); },
    });
    matchMedia(NARROW).addEventListener("change", () => { if (this.session) this.render(); });
    this.open(null);
  }

  /** Show the files of another session. */
  open(session) {
    this.session = session;
    this.clear();
    if (session) this.refresh();
  }

  clear() {
    this.groups = new Map([[SESSION, new SessionFiles()]]); // files by the number of their option
    this.option = SESSION;
    this.options = []; // as the server lists them
    this.picked = null;
    this.isPicking = false; // until the files are loaded that an option has given to the session
    this.optionChanges = 0;
    this.selected = null; // {path, number}; without a number the latest revision
    this.isChosen = false; // whether the person selected the file
    this.running = null; // the revision whose scripts run
    this.stopped = null; // the revision that is not drawn, as it did not answer
    this.isHeld = false; // whether the person moved the preview of a growing file
    this.drawn = null; // {revision, text, files, isGrowing, scripts} of the preview
    this.written = null; // {revision, length, isGrowing} of the code
    this.changes = 0; // of the list, as far as events say
    this.loading = new Map(); // revisions to the errors of loading them, or null
    this.contents = new Map(); // of files that a page names: blobs by SHA-256, null while they are loaded
    this.clearBlocked();
    this.preview.clear();
    this.showImage(null);
    this.render();
  }

  /** The files of the option that is shown, or of the session. */
  get files() { return this.groups.get(this.option); }

  /** Take note of one event of the session. */
  handle({ type, data, agent_id, turn_id }) {
    const option = Number(OPTION.exec(agent_id)?.[1] ?? SESSION);
    if (!this.groups.has(option)) this.groups.set(option, new SessionFiles());
    const isEnd = type === "final" || (type === "error" && data.fatal);
    const isOfOptions = option !== SESSION ? isEnd || type === "turn_started" : isEnd && this.groups.size > 1;
    if (isOfOptions) this.refreshOptions();
    if (type === "artifact") {
      this.changes += 1;
      const revision = this.groups.get(option).apply(data, turn_id);
      if (revision) this.follow(option, revision);
      this.renderSoon();
    } else if (isEnd) {
      if (this.groups.get(option).endTurn(turn_id)) this.renderSoon();
    } else if (type === "session_changed" && ("rewound_to" in data || "picked" in data)) {
      this.refresh();
      this.refreshOptions();
      this.isPicking ||= "picked" in data;
      this.picked = data.picked ?? null;
      if (this.picked) this.groups.get(SESSION).adopt(this.groups.get(this.picked) ?? new SessionFiles());
    }
  }

  /** Select a file that is written, unless the person has chosen another. */
  follow(option, { path, isGrowing, mediaType }) {
    if (option !== this.option) {
      if (this.isChosen || this.option !== SESSION || !isGrowing) return;
      this.showOption(option);
    }
    if (!this.selected) this.selected = { path, number: null };
    else if (!this.isChosen && isGrowing && PAGES.has(mediaType)) this.selected = { path, number: null };
  }

  /** Load the list of files; an older answer than the last event is not shown. */
  async refresh() {
    const { id } = this.session;
    const changes = ++this.changes;
    await new Promise((resolve) => setTimeout(resolve));
    if (changes !== this.changes || id !== this.session?.id) return;
    try {
      const { artifacts } = await this.api(`api/sessions/${id}/artifacts`);
      if (id !== this.session?.id) return;
      if (changes !== this.changes) { this.refresh(); return; }
      this.groups.get(SESSION).setListed(artifacts);
      if (this.isPicking) this.showOption(SESSION);
      this.isPicking = false;
      this.render();
    } catch (error) {
      this.showStatus(error.message);
    }
  }

  /** Load the list of options, once for all events that arrive meanwhile. */
  async refreshOptions() {
    const { id } = this.session;
    const changes = ++this.optionChanges;
    await new Promise((resolve) => setTimeout(resolve, RENDER_MS));
    if (changes !== this.optionChanges || id !== this.session?.id) return;
    try {
      const { options } = await this.api(`api/sessions/${id}/options`);
      if (changes !== this.optionChanges || id !== this.session?.id) return;
      this.options = options;
      this.render();
    } catch (error) {
      this.showStatus(error.message);
    }
  }

  // --- the elements ---------------------------------------------------------------------------------------------------

  build() {
    const button = (parent, label, className, action) => {
      const element = parent.appendChild(make("button", className, label));
      element.type = "button";
      element.addEventListener("click", () => Promise.resolve(action()).catch((error) => this.showStatus(error.message)));
      return element;
    };
    const header = this.pane.appendChild(make("header"));
    header.append(make("h2", "", "Files"));
    button(header, "Download all", "zip", () => this.downloadAll());
    button(header, "Close", "close", () => this.setOpen(false));
    this.optionTabs = this.pane.appendChild(make("div", "options"));
    this.optionTabs.setAttribute("role", "tablist");
    this.optionTabs.setAttribute("aria-label", "Options");
    this.optionState = this.pane.appendChild(make("p", "note option-state"));
    this.optionText = this.optionState.appendChild(make("span"));
    this.pick = button(this.optionState, "Use this one", "pick", () => this.askOf("pick"));
    this.stopOption = button(this.optionState, "Stop this one", "stop-option", () => this.askOf("stop"));
    this.list = this.pane.appendChild(make("ul", "files"));
    this.list.setAttribute("aria-label", "Files of the session");

    const bar = this.bar = this.pane.appendChild(make("div", "bar"));
    const tabs = bar.appendChild(make("span", "tabs"));
    tabs.setAttribute("role", "tablist");
    this.tabs = {
      preview: button(tabs, "Preview", "", () => this.showTab("preview")),
      code: button(tabs, "Code", "", () => this.showTab("code")),
    };
    for (const tab of Object.values(this.tabs)) tab.setAttribute("role", "tab");
    this.revisions = bar.appendChild(make("select", "revisions"));
    this.revisions.setAttribute("aria-label", "Revision");
    this.revisions.addEventListener("change", () => this.select(this.selected.path, Number(this.revisions.value)));
    this.run = button(bar, "Run", "run", () => this.canStop() ? this.stop() : this.setRunning(true));
    this.copy = button(bar, "Copy", "copy", () => this.copyText());
    this.download = button(bar, "Download", "download", () => this.downloadFile());
    this.size = bar.appendChild(make("span", "note size"));
    this.size.setAttribute("role", "status");

    this.runNote = this.pane.appendChild(make("p", "note run-note", RUN_NOTE));
    this.hangNote = this.pane.appendChild(make("p", "error"));
    this.heldNote = this.pane.appendChild(make("p", "note held"));
    this.heldText = this.heldNote.appendChild(make("span"));
    button(this.heldNote, "Show the newest", "", () => { this.isHeld = false; this.render(); });
    this.error = this.pane.appendChild(make("p", "error"));
    this.error.setAttribute("role", "alert");

    this.views = {
      preview: this.pane.appendChild(make("section", "preview")),
      code: this.pane.appendChild(make("pre", "code")),
    };
    this.frameBox = this.views.preview.appendChild(make("div", "frame"));
    this.image = this.views.preview.appendChild(make("img"));
    this.views.code.tabIndex = 0; // so that it can be scrolled with keys
    this.blockedBox = this.pane.appendChild(make("section", "blocked"));
    this.blockedBox.setAttribute("aria-label", "What the preview did not load");
    this.tab = "preview";
    this.toggle.addEventListener("click", () => this.setOpen(this.pane.hidden));
  }

  // --- what the person does -------------------------------------------------------------------------------------------

  setOpen(isOpen) {
    this.isOpen.set(this.session.id, isOpen);
    if (!isOpen) this.setRunning(false);
    this.render();
    if (!isOpen) this.toggle.focus();
  }

  showOption(option) {
    if (option === this.option) return;
    this.option = option;
    this.selected = null;
    this.isHeld = false;
    this.render();
  }

  /** Pick or stop the option that is shown. */
  async askOf(action) {
    await this.api(`api/sessions/${this.session.id}/options/${this.option}/${action}`, this.json("POST", {}));
  }

  select(path, number = null) {
    const isLatest = number === this.files.latest(path)?.number;
    this.selected = { path, number: isLatest ? null : number };
    this.isChosen = true;
    this.isHeld = false;
    this.stopped = null;
    this.render();
  }

  showTab(tab) {
    this.tab = tab;
    this.render();
  }

  /** Let the scripts of the revision that is shown run, or end them with their frame. */
  setRunning(isRunning) {
    this.running = isRunning ? this.revision() : null;
    if (!isRunning) this.removePreview();
    this.drawn = null;
    this.tab = isRunning ? "preview" : this.tab;
    this.render();
  }

  canStop() { return this.running !== null || this.preview.isHanging; }

  /** End the scripts that run; a page that hangs without any is not drawn again until the person selects its file. */
  stop() {
    if (!this.running) this.stopped = this.revision();
    this.setRunning(false);
  }

  removePreview() {
    this.drawn = null;
    this.preview.clear();
  }

  stopAfterLeaving(url) {
    this.running = null;
    this.drawn.scripts = false;
    this.addBlocked({ kind: "link", url, canBeAllowed: false });
    this.error.textContent = "The page tried to go to another address, so its scripts were stopped.";
    this.error.hidden = false;
    this.showRun(this.revision());
  }

  async copyText() {
    await navigator.clipboard.writeText(this.revision().text);
    this.showStatus("copied");
  }

  async downloadFile() {
    const revision = this.revision();
    save(await this.blob(this.addressOf(revision)), revision.path.split("/").pop());
  }

  async downloadAll() {
    save(await this.blob(`api/sessions/${this.session.id}/artifacts?format=zip${this.optionQuery()}`), "artifacts.zip");
  }

  addressOf({ path, number }) {
    const parts = path.split("/").map(encodeURIComponent).join("/");
    return `api/sessions/${this.session.id}/artifacts/${parts}?revision=${number}${this.optionQuery()}`;
  }

  optionQuery() { return this.option === SESSION ? "" : `&option=${this.option}`; }

  // --- what is shown --------------------------------------------------------------------------------------------------

  /** Return the revision that is selected, null if there is none. */
  revision() {
    if (!this.selected) return null;
    const { path, number } = this.selected;
    return this.files.files.get(path)?.get(number) ?? this.files.latest(path);
  }

  /** Return the path that is shown if none is selected: a page, rather than what it names. */
  firstPath(paths) {
    const pages = paths.filter((path) => PAGES.has(this.files.latest(path).mediaType));
    return pages.includes("index.html") ? "index.html" : (pages[0] ?? paths[0]);
  }

  renderSoon() {
    this.timer ??= setTimeout(() => { this.timer = null; this.render(); }, RENDER_MS);
  }

  render() {
    const withFiles = [...this.groups].filter(([, files]) => files.paths().length).map(([option]) => option);
    const isKnown = withFiles.includes(this.option) || this.options.some(({ number }) => number === this.option);
    if (withFiles.length && !isKnown) [this.option] = withFiles;
    const paths = this.files.paths();
    if (paths.length && !this.revision()) this.selected = { path: this.firstPath(paths), number: null };
    const revision = paths.length ? this.revision() : null;
    this.toggle.hidden = !withFiles.length;
    this.toggle.textContent = `Files (${paths.length})`;
    this.pane.hidden = !withFiles.length || !(this.isOpen.get(this.session.id) ?? !matchMedia(NARROW).matches);
    this.toggle.setAttribute("aria-expanded", String(!this.pane.hidden));
    if (this.running !== revision && this.running) this.setRunning(false);
    else if (!this.pane.hidden) {
      this.renderOptions();
      for (const part of [this.list, this.bar, ...Object.values(this.views)]) part.hidden = !revision;
      for (const part of [this.runNote, this.hangNote, this.heldNote, this.error, this.blockedBox]) part.hidden ||= !revision;
      if (revision) this.renderFile(paths, revision);
    }
  }

  /** Show a tab for the session's files and one for each option, and how the option stands that is shown. */
  renderOptions() {
    const numbers = [...new Set([...this.groups.keys(), ...this.options.map(({ number }) => number)])];
    numbers.sort((one, other) => one - other);
    const isEmpty = !this.groups.get(SESSION).paths().length;
    const shown = numbers.filter((number) => number !== SESSION || !isEmpty);
    this.optionTabs.hidden = numbers.length < 2;
    const labels = shown.map((number) => number === SESSION ? "Session" : `Option ${number}`);
    if ([...this.optionTabs.children].map(({ textContent }) => textContent).join() !== labels.join()) {
      this.optionTabs.replaceChildren(...shown.map((number, index) => this.optionTab(number, labels[index])));
    }
    for (const tab of this.optionTabs.children) {
      tab.setAttribute("aria-selected", String(Number(tab.dataset.option) === this.option));
    }
    const option = this.options.find(({ number }) => number === this.option);
    this.optionState.hidden = !option;
    if (!option) return;
    const { state, model, reason, number } = option;
    const picked = number === this.picked ? ", in use" : "";
    this.optionText.textContent = escapeHidden(`${model}: ${STATES[state] ?? state}${picked}. ${reason ? `${reason} ` : ""}`);
    this.pick.hidden = state !== "done" || number === this.picked;
    this.stopOption.hidden = state !== "running";
  }

  optionTab(number, label) {
    const tab = make("button", "", label);
    tab.type = "button";
    tab.dataset.option = number;
    tab.setAttribute("role", "tab");
    tab.addEventListener("click", () => {
      if (!this.groups.has(number)) this.groups.set(number, new SessionFiles());
      this.isChosen = true;
      this.showOption(number);
    });
    return tab;
  }

  renderFile(paths, revision) {
    this.renderList(paths);
    this.renderRevisions(revision);
    const isPage = PAGES.has(revision.mediaType);
    const isImage = IMAGES.has(revision.mediaType);
    const tab = isImage ? "preview" : isPage ? this.tab : "code";
    for (const [name, view] of Object.entries(this.views)) {
      view.hidden = name !== tab;
      this.tabs[name].setAttribute("aria-selected", String(name === tab));
    }
    this.tabs.preview.disabled = !isPage && !isImage;
    this.tabs.code.disabled = isImage;
    this.copy.hidden = isImage;
    this.copy.disabled = revision.text === null;
    this.download.disabled = revision.isGrowing;
    this.size.textContent = revision.isGrowing
      ? `being written, ${(revision.text?.length ?? 0).toLocaleString("en")} characters`
      : `${revision.size.toLocaleString("en")} bytes`;
    if (this.drawn && this.drawn.revision !== revision && (isPage || this.preview.isHanging)) this.removePreview();
    this.showRun(revision);
    this.showError(revision);
    this.frameBox.hidden = !isPage;
    if (!isImage) this.showImage(null);
    if (revision.text === null && !revision.isGrowing) this.load(revision);
    if (tab === "code") this.renderCode(revision);
    else if (isPage) this.renderPreview(revision);
    this.showHeld(revision);
  }

  showRun(revision) {
    const isPage = PAGES.has(revision.mediaType);
    const canStop = this.canStop();
    this.run.hidden = this.runNote.hidden = !isPage;
    this.run.textContent = canStop ? "Stop" : "Run";
    this.run.disabled = !canStop && (revision.isGrowing || revision.text === null);
    const isStopped = this.stopped === revision && !this.running;
    this.hangNote.hidden = !isPage || !(this.preview.isHanging || isStopped);
    this.hangNote.textContent = isStopped
      ? "The page was stopped, as it did not answer. Select its file to show it again."
      : "The page does not answer. Stop ends it.";
  }

  showError(revision) {
    const error = this.loading.get(revision);
    this.error.textContent = error?.message ?? "";
    this.error.hidden = !error;
  }

  showHeld(revision) {
    this.heldNote.hidden = !this.isHeld || this.views.preview.hidden;
    this.heldText.textContent = revision.isGrowing
      ? "The preview waits where you moved it, while the file is being written. "
      : "The file is complete; the preview waits where you moved it. ";
  }

  renderList(paths) {
    const rows = paths.map((path) => {
      const { isGrowing } = this.files.latest(path);
      const row = make("li");
      const button = row.appendChild(make("button", "", escapeHidden(path) + (isGrowing ? " …" : "")));
      button.type = "button";
      if (path === this.selected.path) button.setAttribute("aria-current", "true");
      button.addEventListener("click", () => this.select(path));
      return row;
    });
    const texts = (elements) => [...elements].map(({ outerHTML }) => outerHTML).join("");
    if (texts(rows) !== texts(this.list.children)) this.list.replaceChildren(...rows); // keeps the focus
  }

  renderRevisions(revision) {
    const numbers = this.files.revisions(revision.path).map(({ number }) => number);
    const labels = numbers.map((number) => `Revision ${number}`);
    if ([...this.revisions.options].map(({ text }) => text).join() !== labels.join()) {
      this.revisions.replaceChildren(...numbers.map((number, index) =>
        Object.assign(document.createElement("option"), { value: number, textContent: labels[index] })));
    }
    this.revisions.value = String(revision.number);
    this.revisions.hidden = numbers.length < 2;
  }

  /** Load the content of a revision that no event had, once. */
  async load(revision) {
    if (this.loading.has(revision)) return;
    const { loading } = this;
    loading.set(revision, null);
    try {
      const content = await this.blob(this.addressOf(revision));
      if (loading !== this.loading) return; // of another session
      if (IMAGES.has(revision.mediaType)) this.showImage(revision, content);
      else revision.text = await content.text();
    } catch (error) {
      loading.set(revision, error);
    }
    this.render();
  }

  /** Show an image; without one, remove that which is shown. */
  showImage(revision, content) {
    if (this.image.src) URL.revokeObjectURL(this.image.src);
    this.image.removeAttribute("src");
    this.image.hidden = !content;
    if (!content) return;
    this.image.src = URL.createObjectURL(content);
    this.image.alt = escapeHidden(revision.path);
  }

  /** Show the text; of one that has grown only the rest is added. */
  renderCode(revision) {
    const { text, isGrowing } = revision;
    const { views: { code }, written } = this;
    if (text === null) { code.textContent = ""; this.written = null; return; }
    const hasGrown = written?.revision === revision && written.isGrowing && isGrowing;
    if (hasGrown) code.append(escapeHiddenText(text.slice(written.length)));
    else if (written?.revision !== revision || written.isGrowing) code.textContent = escapeHiddenText(text);
    this.written = { revision, length: text.length, isGrowing };
  }

  renderPreview(revision) {
    const { text, isGrowing } = revision;
    const scripts = this.running === revision;
    if (text === null || (this.stopped === revision && !scripts)) return;
    const files = this.filesNamedIn(revision);
    const next = { revision, text, isGrowing, scripts, files: files.map(({ path, sha256 }) => path + sha256).join() };
    const { drawn } = this;
    if (drawn && Object.keys(next).every((key) => next[key] === drawn[key])) return;
    if (this.isHeld && drawn?.revision === revision && !scripts) return;
    this.isHeld = false;
    this.drawn = next;
    this.clearBlocked();
    this.preview.show({ path: revision.path, html: text, files, scripts, isGrowing });
  }

  /** Return the files that a page may name, by their names, as far as they are loaded; those in style sheets too. */
  filesNamedIn({ path: page, text }) {
    const others = this.files.paths().filter((path) => path !== page).map((path) => this.files.latest(path));
    const sheets = others.filter(({ mediaType }) => mediaType === "text/css").map((sheet) => sheet.text ?? "");
    const named = others.filter(({ path, isGrowing }) => {
      const name = path.split("/").pop();
      return !isGrowing && [text, ...sheets].some((each) => each.includes(name));
    });
    return named.flatMap((file) => {
      const content = this.contentOf(file);
      return content ? [{ path: file.path, sha256: file.sha256, content }] : [];
    });
  }

  /** Return the content of a file, null until it is loaded. */
  contentOf(file) {
    const { contents } = this;
    if (!contents.has(file.sha256)) {
      contents.set(file.sha256, null);
      this.blob(this.addressOf(file)).then(async (content) => {
        contents.set(file.sha256, new Blob([content], { type: file.mediaType }));
        if (file.mediaType === "text/css") file.text ??= await content.text();
        this.renderSoon();
      }, (error) => this.showStatus(error.message));
    }
    return contents.get(file.sha256);
  }

  clearBlocked() {
    this.blocked = new Map();
    this.waitingScripts = 0;
    this.renderBlocked();
  }

  addBlocked(item) {
    this.blocked.set(`${item.kind} ${item.url}`, item);
    this.renderBlocked();
  }

  renderBlocked() {
    const items = [...this.blocked.values()];
    const count = this.waitingScripts;
    this.blockedBox.hidden = !items.length && !count;
    this.blockedBox.replaceChildren();
    if (count) {
      const scripts = count === 1 ? "A script of the page has" : `${count} scripts of the page have`;
      this.blockedBox.append(make("p", "", `${scripts} not run. Parts of it may be missing before Run.`));
    }
    if (!items.length) return;
    const rows = items.map(({ kind, url }) => make("li", "", escapeHidden(`${kind === "link" ? "link to" : kind} ${url}`)));
    const list = make("ul");
    list.append(...rows);
    this.blockedBox.append(make("p", "", `Blocked in the preview (${items.length}):`), list);
    if (items.some(({ canBeAllowed }) => canBeAllowed)) this.blockedBox.append(make("p", "note", HOSTS_NOTE));
  }
}

/** Have the browser store a file, which it does not open. */
function save(content, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}
