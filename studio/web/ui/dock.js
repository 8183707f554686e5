// @ts-check
// The decision that waits for the person: what exactly is asked, and the answers. It stands above the composer.

import { effect, html, signal, useEffect, useLayoutEffect, useRef, useSignal } from "../vendor/preact.js";
import { api, ApiError, encodedPath } from "../net/api.js";
import { forgetText, storedText, storeSoon } from "../state/drafts.js";
import { isField, lastInput, moveFocus } from "../state/input.js";
import { sends } from "../state/preferences.js";
import { openRequests } from "../state/requests.js";
import { askedText, isTeamTurn } from "../state/team_turns.js";
import { SHORTLY } from "../state/studio.js";
import { agentName } from "../text/agent_words.js";
import { escapeHidden, escapeHiddenText } from "../text/hidden_characters.js";
import { rememberedText } from "../text/rules.js";
import { countLines, wantedText } from "../text/tool_words.js";
import { argumentFields, ArgumentFields, changedTexts, changeTexts } from "./argument_fields.js";
import { Arguments } from "./arguments.js";
import { timeOfDay } from "./clock.js";
import { DiffView } from "./diff_view.js";
import { noteLeft, takeKey, useFocus, useGuard } from "./dock_input.js";
import { grow } from "./grow.js";
import { MarkdownView } from "./markdown_view.js";
import { isLow, isOnTop } from "./pane.js";
import { Reasons } from "./reasons.js";
import { useAction, useReconnected } from "./use_action.js";

/** @typedef {import("../state/types.js").Request} Request */

const MAX_LABEL_CHARS = 60; // of the rules in the label of a button; longer ones are listed
const LONG_LINES = 12, LONG_ARGUMENTS_CHARS = 800; // from which on a decision can be shown larger
const SIZE = /^The command has [\d,]+ characters? in [\d,]+ lines?\.$/;
const MAX_REASON_CHARS = 2000; // the server accepts twice as many

/** @typedef {ReturnType<typeof newDraft>} Draft */

/** @type {Map<string, Draft>} */
const drafts = new Map(); // by id of the request: its components go when another decision or session is shown

/**
 * What the person has typed and chosen for a request, and not sent; `fields` are those of its arguments, while they are
 * edited, `edited` the texts of some that were before a reload or Escape, which `isLeft` tells. The texts are stored under
 * `key`.
 * @param {string} key @param {string | null} digest
 * @param {{digest?: string | null, reason?: string, text?: string, edited?: Record<string, string> | null, isLeft?: boolean}} typed
 */
function newDraft(key, digest, typed) {
  const draft = {
    key, digest, isSent: false, reason: signal(typed.reason ?? ""), text: signal(typed.text ?? ""), isExact: signal(false),
    fields: signal(/** @type {ReturnType<typeof argumentFields> | null} */ (null)),
    edited: typed.digest === digest ? typed.edited ?? null : null, isLeft: typed.isLeft ?? false,
    end: () => {},
  };
  let isNew = true;
  draft.end = effect(() => {
    for (const { value } of [draft.reason, draft.text, ...(draft.fields.value?.fields ?? []).map(({ text }) => text)]) void value;
    if (!isNew) storeSoon(key, () => typedText(draft));
    isNew = false;
  });
  return draft;
}

/** Return the texts of a draft as they are stored, "" if there are none. */
function typedText({ digest, reason: { value: reason }, text: { value: text }, fields: { value: fields }, edited: before, isLeft }) {
  const edited = fields ? changedTexts(fields) : before;
  return reason || text || Object.keys(edited ?? {}).length ? JSON.stringify({ digest, reason, text, edited, isLeft }) : "";
}

/** Return the draft for a request; of another content only the texts are kept. @param {Request} request @param {string} sessionId */
function draftOf({ id, digest }, sessionId) {
  const before = drafts.get(id);
  if (before?.digest === digest) return before;
  before?.end();
  const key = `${sessionId}.${id}`;
  const typed = before ? { reason: before.reason.peek(), text: before.text.peek() } : JSON.parse(storedText(key) || "{}");
  const draft = newDraft(key, digest, typed);
  drafts.set(id, draft);
  return draft;
}

/** @param {{state: any, session?: any, actions: any}} props */
export function Dock({ state, actions }) {
  const open = openRequests(state.value);
  const chosen = useSignal("");
  const hadFocus = useRef(false);
  const isCalled = useRef(false);
  const at = Math.max(0, open.findIndex(({ id }) => id === chosen.value));
  const request = open[at];
  useLayoutEffect(() => { // before the next key
    if (request || !hadFocus.current) return;
    hadFocus.current = false;
    noteLeft();
    const input = document.getElementById("input");
    if (!lastInput.isTouch && input) moveFocus(input);
    else document.getElementById("log")?.focus({ preventScroll: true });
  });
  useEffect(() => {
    for (const request of state.value.requests) if (request.answer) keepTyped(request, actions);
  }, [open.map(({ id }) => id).join()]);
  if (!request) return null;
  const choose = (index) => {
    chosen.value = open[(index + open.length) % open.length].id;
    isCalled.current = true;
  };
  const confirms = open.filter(({ kind }) => kind === "confirm");
  return html`<${Decision} key=${`${request.id} ${request.digest}`} request=${request} actions=${actions} hadFocus=${hadFocus} isCalled=${isCalled}
    place=${open.length > 1 && html`<div class="dock-place">
      <span>${at + 1} of ${open.length}</span>
      <button type="button" class="quiet" aria-label="The decision before" onClick=${() => choose(at - 1)}>‹</button>
      <button type="button" class="quiet next-decision" aria-label="The next decision" onClick=${() => choose(at + 1)}>›</button>
      ${confirms.length > 1 && html`<${DenyAll} confirms=${confirms} actions=${actions} />`}
    </div>`} />`;
}

/** Put what was typed for a request that something else has answered into the box for messages, and say what has. */
function keepTyped(request, actions) {
  const { id, answer: { by, reason, answer } } = request;
  if (!drafts.has(id) && !storedText(`${actions.sessionId}.${id}`)) return;
  const draft = draftOf(request, actions.sessionId);
  drafts.delete(id);
  draft.end();
  forgetText(draft.key);
  if (draft.isSent) return;
  const typed = [draft.reason.peek(), draft.text.peek()].filter((text) => text.trim()).join("\n\n");
  if (typed && [reason, answer].includes(typed)) return; // it was sent before a reload
  const parts = [by === "user" && "Answered in another window.", typed && "What you typed is in the box below."].filter(Boolean);
  if (typed) actions.insertDraft(typed);
  if (parts.length) actions.showStatus(parts.join(" "), SHORTLY);
}

/** A button that denies all calls that wait; a second click does it. There is none that allows them all. */
function DenyAll({ confirms, actions }) {
  const isSure = useSignal(false);
  const isSent = useSignal(false);
  const deny = async () => {
    if (!isSure.value) { isSure.value = true; return; }
    isSent.value = true;
    for (const request of confirms) draftOf(request, actions.sessionId).isSent = true;
    try { await actions.denyAll(confirms); }
    catch (error) { actions.showStatus(error.message); }
    finally { isSent.value = false; }
  };
  const label = isSure.value ? `Deny all ${confirms.length} now` : "Deny all";
  return html`<button type="button" class="quiet deny-all" disabled=${isSent.value} onClick=${deny}>${label}</button>`;
}

/** One request; mounted anew for each, also if its content changes. */
function Decision({ request, actions, place, hadFocus, isCalled }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const isReady = useSignal(false);
  const error = useSignal("");
  const isSent = useSignal(false);
  const { isArmed, disarm } = useFocus(box, hadFocus, isCalled);
  useGuard(box, isReady, disarm);
  useFieldInSight(box);
  useReconnected(error);
  const isLarge = useSignal(false);
  useEscape(isLarge);
  /** Send an answer, at most once at a time. */
  const answer = async (send) => {
    if (!isReady.value || isSent.value) return;
    isSent.value = true;
    draftOf(request, actions.sessionId).isSent = true;
    error.value = "";
    try {
      await send();
    } catch (reason) {
      isSent.value = false;
      draftOf(request, actions.sessionId).isSent = false;
      if (reason instanceof ApiError && reason.status === 410) actions.showStatus("Answered in another window.", SHORTLY);
      else error.value = reason.message;
    }
  };
  const onKey = (event) => {
    if (event.key === "Escape") {
      event.preventDefault();
      event.stopPropagation();
      if (isLarge.value) isLarge.value = false;
      else actions.leaveDock();
      return;
    }
    takeKey(event, isArmed.current);
  };
  const Part = request.kind === "confirm" ? Confirm : Question;
  return html`<section class=${isLarge.value ? "dock larger" : "dock"} role="region" aria-label="Decision" data-region="Decision" ref=${box}
      inert=${isOnTop() /* what is asked is covered */} onKeyDown=${onKey}
      onPointerDown=${() => { isArmed.current = true; }}>
    <${Part} request=${request} actions=${actions} answer=${answer} isBusy=${isSent.value || !isReady.value} place=${place} isLarge=${isLarge}
      error=${error.value && html`<p class="error" role="alert">${error.value}</p>`} />
  </section>`;
}

/** Keep the field in sight that is written in, when the keyboard of a phone takes half of the page. */
function useFieldInSight(box) {
  useLayoutEffect(() => {
    const onResize = () => {
      const { activeElement: active } = document;
      if (active && box.current.contains(active) && isField(active)) active.scrollIntoView({ block: "nearest" });
    };
    addEventListener("resize", onResize);
    return () => removeEventListener("resize", onResize);
  }, []);
}

/** Have Escape end that a decision is shown large, also where the focus is elsewhere. */
function useEscape(isLarge) {
  useLayoutEffect(() => {
    if (!isLarge.value) return undefined;
    const onKey = (event) => {
      if (event.key !== "Escape" || event.defaultPrevented || event.isComposing || document.querySelector("dialog[open]")) return;
      event.preventDefault();
      isLarge.value = false;
    };
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, [isLarge.value]);
}

/** @param {{request: Request, actions: any, answer: any, isBusy: boolean, place: any, error: any, isLarge: import("../vendor/preact.js").Signal<boolean>}} props */
function Confirm({ request, actions, answer, isBusy, place, error, isLarge }) {
  const { id, digest, context } = request;
  const draft = draftOf(request, actions.sessionId);
  const { fields, isExact, reason } = draft;
  const isEdited = fields.value !== null;
  const choice = rememberChoice(context);
  const send = (given) => answer(() => actions.answerConfirm(id, { ...given, digest }));
  const allow = (remember) => send({ approved: true, ...(remember && { remember, ...(isExact.value && { rule: context.exact_rule }) }) });
  const deny = () => send({ approved: false, reason: reason.value.trim() || null });
  const [run, problem] = useAction();
  const openFields = async () => {
    const opened = argumentFields(context.arguments ?? {}, await actions.toolSchema(request.tool ?? context.tool));
    changeTexts(opened, draft.edited ?? {});
    Object.assign(draft, { edited: null, isLeft: false });
    fields.value = opened;
  };
  useEffect(() => { if (draft.edited && !draft.isLeft) run(openFields); }, []);
  const edit = ({ currentTarget }) => run(async () => {
    const dock = currentTarget.closest("section");
    await openFields();
    focusSoon(dock, ".fields :is(textarea, input, select)");
  });
  const rememberButton = (remember, text) => choice && html`<button type="button" class=${`allow-${remember}`} disabled=${isBusy}
    onClick=${() => allow(remember)}>${text}: ${choice.label(isExact.value)}</button>`;
  const why = html`
    <p class="note">${escapeHidden(request.question)}${request.expiresAt && ` Denied at ${timeOfDay(request.expiresAt)} if nobody answers.`}</p>
    <${RequestReasons} context=${context} />`;
  const isWhyFirst = context.diff && !isLow.value && !isEdited; // where there is room for it above the change
  const list = choice && !choice.isWhole && !isExact.value && !isEdited && html`<${RuleList} choice=${choice} />`;
  const wanted = wantedText(request.tool ?? context.tool, context.arguments ?? {});
  const enlarge = isLong(context) && html`<button type="button" class="quiet enlarge" aria-pressed=${isLarge.value}
    onClick=${() => { isLarge.value = !isLarge.value; }}>${isLarge.value ? "Show smaller" : "Show larger"}</button>`;
  return html`
    <${Heading} place=${html`${place}${enlarge}`}>${askingAgent(request)} wants to ${wanted}<//>
    <div class="dock-text"><div class="dock-content">
      ${isEdited && html`<p class="note">What runs instead${context.diff !== undefined && " (the change below is what the agent asked for)"}:</p><${ArgumentFields} fields=${fields.value} />`}
      ${isWhyFirst && html`${why}${list}`}
      <${Exactly} id=${id} context=${context} wanted=${wanted} isEdited=${isEdited} sessionId=${actions.sessionId} />
      ${!isWhyFirst && html`${list}${why}`}
      ${choice && !isEdited && html`<p class="note">Remembered rules are listed and revoked in Settings, Rules.</p>`}
    </div>
    ${choice?.hasChoice && !isEdited && html`<label class="inline exact"><input type="checkbox" checked=${isExact.value}
      onChange=${(event) => { isExact.value = event.currentTarget.checked; }} /> only ${choice.exactly}</label>`}</div>
    ${error}${problem}
    ${isEdited ? html`<${EditButtons} draft=${draft} send=${send} isBusy=${isBusy}><${Denial} reason=${reason} deny=${deny} isBusy=${isBusy} /><//>` : html`<div class="dock-buttons">
      <div class="allowing">
        <button type="button" class="main allow" disabled=${isBusy} onClick=${() => allow(null)}>Allow once</button>
        ${rememberButton("session", "Allow for this session")}
        ${rememberButton("always", "Always in this folder")}
        <button type="button" class="edit-arguments" disabled=${isBusy} onClick=${edit}>Edit…</button>
      </div>
      <${Denial} reason=${reason} deny=${deny} isBusy=${isBusy} />
    </div>`}`;
}

/** @param {{reason: import("../vendor/preact.js").Signal<string>, deny: () => unknown, isBusy: boolean}} props */
function Denial({ reason, deny, isBusy }) {
  return html`<div class="denial">
    <button type="button" class="deny" disabled=${isBusy} onClick=${deny}>Deny</button>
    <input class="reason" aria-label="Tell the agent why, if you deny it" placeholder="Tell the agent why" maxlength=${MAX_REASON_CHARS}
      value=${reason.value} onInput=${(event) => { reason.value = event.currentTarget.value; }}
      onKeyDown=${(event) => { if (event.key === "Enter" && !event.isComposing) { event.preventDefault(); deny(); } }} />
  </div>`;
}

/** Return whether so much is asked that it is read better with more room. @param {Record<string, any>} context */
const isLong = ({ diff, command, arguments: args = {} }) =>
  [diff, command].some((text) => text?.split("\n", LONG_LINES).length === LONG_LINES) || JSON.stringify(args).length >= LONG_ARGUMENTS_CHARS;

/** Move the focus to a part of the dock once it is there, and show what stands above it, too. */
function focusSoon(dock, selector) {
  requestAnimationFrame(() => {
    for (const scroller of dock.querySelectorAll(".dock-text, .dock-content")) scroller.scrollTop = 0;
    /** @type {HTMLElement | null} */ (dock.querySelector(selector))?.focus();
  });
}

function Heading({ place, children }) {
  return html`<header><h2 tabindex="-1">${children}</h2><div class="dock-controls">${place}</div></header>`;
}

/** Return who asks: the agent, or a sub-agent and those above it. */
function askingAgent({ agentPath }) {
  const [agent, ...above] = agentPath.slice(1).reverse();
  return agent === undefined ? "The agent" : [agent, ...above].map(agentName).join(", below ");
}

/**
 * Why the person is asked, without what stands beside the command: its size and folder, and that it runs in a sandbox; and
 * without the beginnings of prompts, which are whole among the arguments.
 */
function RequestReasons({ context: { reasons = [], command, cwd, sandboxed, arguments: args } }) {
  const hasPrompts = Array.isArray(args?.prompts);
  const texts = command === undefined ? reasons.filter((text) => !hasPrompts || !text.startsWith("It sends: ")) : reasons
    .filter((text) => text !== `It runs in ${cwd}.` && !SIZE.test(text))
    .map((text) => text.replace(sandboxed ? /^It runs in a sandbox \([\w ]+\): it/ : /^It runs without a sandbox, with/, sandboxed ? "It" : "It has"));
  if (!texts.length) return null;
  return html`<${Reasons} reasons=${texts} />`;
}

/** What would run or change, exactly, besides a file that the heading has; the other arguments stand in fields while they are edited. */
function Exactly({ id, context, wanted, isEdited, sessionId }) {
  const { command, cwd, diff, diff_cut: isCut = false, unchanged_below: below = 0, path, sandboxed, arguments: args = {} } = context;
  const { command: _, ...rest } = args;
  const others = command === undefined ? args : rest;
  const written = typeof args.command === "string" ? args.command : command; // `command` has hidden characters escaped
  const sandbox = sandboxed ? `in a sandbox (${escapeHidden(sandboxed)})` : html`<strong>outside of a sandbox</strong>`;
  const name = path !== undefined && !wanted.endsWith(` ${escapeHidden(path)}`) && html`File: <code>${escapeHidden(path)}</code>`;
  const counts = path !== undefined && diff && !isCut && html`<${LineCounts} diff=${diff} />`;
  const file = name && counts ? html`${name}, ${counts}` : name || (counts && html`Change: ${counts}`);
  const isKnown = [command, diff, path, sandboxed].some((one) => one !== undefined);
  return html`
    ${isEdited && isKnown && html`<p class="note">As the agent asked:</p>`}
    ${file && html`<p class="note">${file}</p>`}
    ${command !== undefined && html`
      <p class="note">Command, ${sizeText(written)}${cwd && html`, in <code>${escapeHidden(cwd)}</code>`}${sandboxed !== undefined && html`, ${sandbox}`}:</p>
      <pre class="command" tabindex="0" aria-label="Command">${escapeHidden(command)}</pre>`}
    ${diff !== undefined && html`<${FileChange} id=${id} sessionId=${sessionId} path=${path} diff=${diff} below=${below} isCut=${isCut} label=${`Change of ${path ?? "the file"}`} isEmpty=${args.content === ""} />`}
    ${diff === undefined && !isEdited && Object.keys(others).length > 0 && html`<${Arguments} args=${others} />`}
    ${command === undefined && sandboxed !== undefined && html`<p class="note">Runs ${sandbox}.</p>`}`;
}

/** Return how long a command is: "1,279 characters in 20 lines". @param {string} command */
function sizeText(command) {
  const { length: lines } = command.split("\n"), { length } = [...command];
  return `${length.toLocaleString("en")} ${length === 1 ? "character" : "characters"}${lines > 1 ? ` in ${lines.toLocaleString("en")} lines` : ""}`;
}

/** How many lines a diff adds and removes. */
function LineCounts({ diff }) {
  const { added, removed } = countLines(diff);
  return html`<span class="counts"><span class="added">+${added.toLocaleString("en")}</span> <span class="removed">−${removed.toLocaleString("en")}</span></span>`;
}

/** The change of a file; all of it on demand where the question has only its beginning. */
function FileChange({ id, sessionId, path, diff, below, isCut, label, isEmpty }) {
  const whole = useSignal(/** @type {{diff: string, diff_cut: boolean} | null} */ (null));
  const [run, error] = useAction();
  const load = () => run(async () => {
    const found = await api(`api/confirms/${encodeURIComponent(id)}/diff`);
    if (found.diff !== null) whole.value = found;
  });
  const readBefore = path && (() => api(`api/sessions/${sessionId}/files/${encodedPath(path)}`));
  if (!diff) return html`<p class="note">${isEmpty ? "The file will be empty." : "Nothing changes: the file has exactly this content."}</p>`;
  return html`${error}<${DiffView} diff=${whole.value?.diff ?? diff} below=${below} cut=${whole.value?.diff_cut ?? isCut} label=${label}
    showWhole=${isCut && !whole.value && load} readBefore=${readBefore} />`;
}

/**
 * Return what a yes can store besides the answer, null if it counts once. `label` returns the text for its buttons; with
 * `isWhole` false it only refers to a list of the rules, as they are long.
 * @param {Record<string, any>} context
 */
function rememberChoice({ rules = [], kinds = [], exact_rule: exact, command }) {
  if (!rules.length) return null;
  const exactly = exact && !exact.exact ? "this file, whatever is written to it" : `exactly this ${command === undefined ? "call" : "command"}`;
  const hasChoice = Boolean(exact) && !(rules.length === 1 && JSON.stringify(rules[0]) === JSON.stringify(exact));
  const words = rules.map((rule, index) => rememberedText(rule, kinds[index]));
  const text = words.join("; ");
  const isWhole = text.length <= MAX_LABEL_CHARS;
  const above = rules.length === 1 ? "the rule above" : `the ${rules.length} rules above`;
  const label = (isExact) => (isExact ? exactly : isWhole ? text : above);
  return { rules, words, exactly, hasChoice, isWhole, label };
}

/** The rules that do not fit on the buttons. */
function RuleList({ choice: { rules, words } }) {
  const views = words.map((text, index) => html`<li key=${index}>${text}</li>`);
  return html`<p class="note">If remembered, ${rules.length === 1 ? "the rule allows" : "the rules allow"}:</p><ul class="kinds">${views}</ul>`;
}

/** The answer that replaces the arguments by those of the fields, or leaves them as they were; after Escape, Edit shows them again. */
function EditButtons({ draft, send, isBusy, children }) {
  const { fields } = draft;
  const error = useSignal("");
  const row = useRef(/** @type {HTMLElement | null} */ (null));
  const leave = (edited = {}) => {
    const dock = row.current?.closest("section");
    Object.assign(draft, { edited, isLeft: true });
    fields.value = null;
    focusSoon(dock, ".edit-arguments");
  };
  useLayoutEffect(() => {
    const dock = row.current?.closest("section");
    const onKey = (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      event.preventDefault();
      leave(changedTexts(fields.value));
    };
    dock?.addEventListener("keydown", onKey, true);
    return () => dock?.removeEventListener("keydown", onKey, true);
  }, []);
  const allow = () => {
    try {
      send({ approved: true, arguments: fields.value.read() });
    } catch (reason) {
      error.value = reason.message;
    }
  };
  return html`
    ${error.value && html`<p class="error" role="alert">${error.value}</p>`}
    <div class="dock-buttons" ref=${row}>
      <div class="allowing">
        <button type="button" class="main allow-edited" disabled=${isBusy} onClick=${allow}>Allow edited</button>
        <button type="button" disabled=${isBusy} onClick=${() => leave()}>Cancel</button>
      </div>
      ${children}
    </div>`;
}

/**
 * A question of the agent. Its options are quoted: they must not look like the buttons of a decision.
 *
 * @param {{request: Request, actions: any, answer: any, isBusy: boolean, place: any, error: any}} props
 */
function Question({ request, actions, answer, isBusy, place, error }) {
  const { text } = draftOf(request, actions.sessionId);
  const send = (given) => answer(() => actions.answerQuestion(request.id, given));
  const label = request.options.length ? "Another answer" : "Your answer";
  const submit = () => { if (text.value.trim()) send(text.value.trim()); };
  const onKey = (event) => {
    if (!sends(event)) return;
    event.preventDefault();
    submit();
  };
  const field = useRef(/** @type {HTMLTextAreaElement | null} */ (null));
  useLayoutEffect(() => grow(field.current), [text.value]);
  return html`
    <${Heading} place=${place}>${isTeamTurn(request) ? "The team waits for you" : `${askingAgent(request)} asks`}<//>
    <div class="dock-text"><div class="dock-content">
      <${MarkdownView} text=${askedText(request)} />
    </div>
    ${request.options.length > 0 && html`<div class="options">${request.options.map((option, index) => html`<button key=${index} type="button"
        class="option" disabled=${isBusy} onClick=${() => send(option)}>“${escapeHiddenText(option)}”</button>`)}</div>`}</div>
    ${error}
    <div class="dock-buttons">
      <textarea class="answer" rows="1" ref=${field} aria-label=${label} placeholder=${label} value=${text.value}
        onInput=${(event) => { text.value = event.currentTarget.value; }} onKeyDown=${onKey}></textarea>
      <button type="button" class="main" disabled=${isBusy || !text.value.trim()} onClick=${submit}>Answer</button>
    </div>`;
}
