// @ts-check
// A turn: the user's message, what the agent says and does, and how it ends.

import { Component, html } from "../vendor/preact.js";
import { dismissed, notSent } from "../state/dismissed.js";
import { pathsOf } from "../state/files.js";
import { optionOf, precedes, turnById } from "../state/reducer.js";
import { fileText, rewoundFiles } from "../state/rewinds.js";
import { SHORTLY, attempt } from "../state/studio.js";
import { escapeHidden, escapeHiddenText } from "../text/hidden_characters.js";
import { endWord, senderName } from "../text/agent_words.js";
import { sentence } from "../text/tool_words.js";
import { Doing } from "./activity.js";
import { AgentCard } from "./agent_card.js";
import { AttachedFiles } from "./attached_files.js";
import { CitationMarker, markCitations } from "./citations.js";
import { Seconds, timeOfDay, useRedrawAt } from "./clock.js";
import { Fold } from "./fold.js";
import { BlocksView, MarkdownView, plainText } from "./markdown_view.js";
import { RequestLine } from "./request_line.js";
import { rowsOfTurn } from "./rows.js";
import { Thinking } from "./steps.js";
import { ReadingCard, ToolCard } from "./tool_card.js";
import { Failure, TurnEnd, failureText } from "./turn_end.js";
import { UnsentButtons } from "./unsent_buttons.js";
import { useLimit } from "./use_limit.js";

/** @typedef {import("../state/types.js").Turn} Turn */
/** @typedef {import("./rows.js").Row} Row */

const NAMES = new Map([["vault", "notes"]]);
const SHOWN_ROWS = 80; // in a pane
const RESULT_CHARACTERS = 200; // of an option, the line of which is cut where it ends
const REWOUND_FILES = 20; // at first
const FALLBACK_CHARACTERS = 200; // shown of a reply that was to name a speaker

/** A turn as panes show it, at most its last part. @param {{turn: Turn, state: any, actions: any}} props */
export function Turn({ turn, state, actions }) {
  const rows = rowsOfTurn(state.value, turn, false);
  const shown = rows.slice(-SHOWN_ROWS);
  return html`<article class="turn" aria-label=${turnLabel(turn)}>
    ${rows.length > shown.length && html`<p class="note">${rows.length - shown.length} earlier parts are not shown.</p>`}
    ${shown.map((row) => html`<${RowView} key=${row.key} row=${row} state=${state} actions=${actions} />`)}
  </article>`;
}

/** Return what a turn is called where its message is not shown. */
export const turnLabel = (/** @type {Turn} */ turn) => escapeHidden(turn.message.text.replace(/\s+/g, " ").slice(0, 80)) || "Message";

/** One row; it is drawn again if a part of it is another one. @extends {Component<any, any>} */
export class RowView extends Component {
  shouldComponentUpdate({ row }) { return row !== this.props.row && !isSame(this.props.row, row); }

  render({ row, state, actions }) {
    const View = VIEWS.get(row.kind);
    return View ? html`<${View} ...${row} id=${row.key} state=${state} actions=${actions} />` : null;
  }
}

function isSame(before, row) {
  for (const field in row) {
    if (field === "owner" || field === "ids" || before[field] === row[field]) continue;
    if ((field !== "calls" && field !== "running") || row[field].length !== before[field]?.length) return false;
    if (row[field].some((part, place) => part !== before[field][place])) return false;
  }
  return before.kind === row.kind;
}

function UserMessage({ owner, message, actions }) {
  const isTask = owner.parentTurnId !== null; // of an agent below, which no one can edit
  const from = isTask && message.senders.length === 0 ? "Task" : sendersText(message.senders);
  return html`<div class="user">
    <div class="row-head">
      <h2 tabindex="-1">${from}<span class="hidden-text">: ${turnLabel(owner)}</span></h2>
      <span class="note">${timeOfDay(owner.startedAt)}</span>
      <span class="row-actions">
        ${!isTask && html`<button type="button" class="quiet" onClick=${() => attempt(() => actions.editEarlier(message))}>Edit</button>`}
      </span>
    </div>
    ${isModeNews(owner) && html`<p class="mode note">${modeText(owner)}</p>`}
    <${Sent} text=${message.text} files=${message.attachments} />
  </div>`;
}

/** Return whether the person wants to know how a message was taken: they chose it, or it is about notes. @param {import("../state/types.js").Turn} turn */
const isModeNews = ({ mode, modeReason }) => mode === "vault" || /^the user chose it\b| but the notes of /.test(modeReason ?? "");

/** Return who sent the messages with which a turn begins, none for a message of the person. @param {(string | null)[]} senders */
const sendersText = (senders) => [...new Set(senders)].map(senderName).join(", ") || "You";

function Sent({ text, files }) {
  return html`<div class="text">${escapeHiddenText(text || (files.length ? "" : "(without a message)"))}</div>
    <${AttachedFiles} files=${files} />`;
}

/** Say how the engine took a message. */
const modeText = ({ mode, modeReason }) =>
  escapeHidden(`mode ${NAMES.get(mode) ?? mode}${modeReason ? `: ${modeReason.replace(/^the user chose it/, "you chose it")}` : ""}`);

function Steered({ item }) {
  return html`<div class="user">
    <div class="row-head"><h3>${senderName(item.fromAgentId)}, into this turn</h3></div>
    <${Sent} text=${item.text} files=${item.attachments} />
  </div>`;
}

/** A text, or a part of a long one. */
function Text({ text, part, place, references, speaker, citations, isStreaming, actions }) {
  const markOf = (number) => citations[number]
    ? html`<${CitationMarker} citation=${citations[number]} actions=${actions} />` : null;
  const mark = citations.length ? markOf : undefined;
  return html`${speaker !== null && html`<${Speaker} name=${speaker} />`}
    <div class=${["answer", isStreaming && "streaming", place > 0 && "continued"].filter(Boolean).join(" ")}>
      ${part ? html`<${BlocksView} blocks=${part.blocks} references=${references} complete=${!isStreaming} mark=${mark} />`
        : html`<${MarkdownView} text=${markCitations(text, citations)} mark=${mark} />`}
    </div>`;
}

const Speaker = ({ name }) => html`<h3 class="speaker">${escapeHidden(name)}</h3>`;

/** An option of an answer: what it says and does is in the card, its files are in the pane. */
function Option({ id, turn, isPicked, canPick, hasOther, state: session, actions }) {
  const number = optionOf(turn.agentId);
  const state = turn.status === "running" ? html`<${Doing} turn=${turn} />` : `${endWord(turn.status)}${isPicked ? " · picked" : ""}`;
  const summary = html`<span class="call-title">Option ${number} · ${escapeHidden(turn.model)}</span>
    <span class="meta"> · ${state}</span>`;
  return html`<div class="card option">
    <${Fold} id=${id} summary=${summary}>${() => html`<${Turn} turn=${turn} state=${session} actions=${actions} />`}<//>
    <button type="button" class="quiet" onClick=${() => actions.openPane("preview", { option: Number(number) })}>Show</button>
    ${canPick && turn.status === "done" && html`<button type="button" onClick=${() => attempt(() => actions.pickOption(number))}>Use this one</button>`}
    ${turn.status === "failed" ? html`<div class="said"><${Failure} turn=${turn} hasOther=${hasOther} /></div>` : html`<p class="said note">${resultOf(turn, pathsOf(session.peek(), number))}</p>`}
  </div>`;
}

/** Return what an option that has ended came to, on a line: its files, else the beginning of what it says. */
function resultOf({ status, items }, paths) {
  if (status === "running") return "";
  const text = items.findLast(({ kind }) => kind === "text")?.text ?? "";
  return escapeHidden((paths.length ? `Made ${paths.join(", ")}` : plainText(text)).replace(/\s+/g, " ").trim().slice(0, RESULT_CHARACTERS));
}

function Note({ item, owner, state, actions }) {
  const view = NOTES.get(item.type);
  return view ? view(item, actions, state, owner) : null;
}

/** Why a model is asked again, or another one, and when; below it what the provider said. */
function Retry({ data, turnId, state }) {
  const { code, reason, model, retry_at: at } = data;
  const turn = turnById(state.value, turnId);
  const isAhead = turn?.status === "running" && Date.parse(at) > Date.now();
  useRedrawAt(isAhead ? at : null);
  const cause = failureText(code).replace(/\.$/, "") || escapeHidden(String(reason));
  const whom = !model || model === turn?.model ? "" : ` ${escapeHidden(model)}`;
  const wasStopped = turn && !isAhead && Date.parse(turn.endedAt ?? "") < Date.parse(at);
  const next = isAhead ? html`; asks${whom || " again"} in <${Seconds} until=${at} />` : wasStopped ? "" : whom ? `; asked${whom} instead` : "; asked again";
  const isSaidAtEnd = turn?.status === "failed" && sentence(turn.end?.text ?? "") === sentence(String(reason));
  return html`<p class="note">${cause}${next}.</p>
    ${failureText(code) && !isSaidAtEnd && html`<p class="note detail">${escapeHiddenText(sentence(String(reason)))}</p>`}`;
}

/** A message that was not sent, once a later turn has begun: before, it stands above the box for messages. */
function Unsent({ data, actions, state }) {
  const message = state.peek().handedBack.find(({ messageId }) => messageId === data.message_id);
  if (!message || dismissed.value.includes(message.messageId) || notSent(state.value).includes(message)) return null;
  return html`<div class="user unsent">
    <div class="row-head"><h3>Not sent</h3><span class="row-actions"><${UnsentButtons} message=${message} actions=${actions} /></span></div>
    <${Sent} text=${String(data.input ?? "")} files=${data.attachments ?? []} />
  </div>`;
}

/** Where the conversation was rewound to, with what happened to files; or that this was undone, which left what came after it. */
function Rewound({ data, actions, state }) {
  const files = rewoundFiles(actions.sessionId, data);
  const [shown, more] = useLimit(files, REWOUND_FILES, "files", data);
  const isUndo = data.rewound_to !== null && !precedes(state.peek(), data.rewound_to, data.undo);
  const undo = () => attempt(async () => { // which leaves no line in the log
    const undone = await actions.rewind(data.undo);
    actions.showStatus(undone.map((file) => escapeHiddenText(fileText(file))).join(" "), undone.some(({ reason }) => reason) ? undefined : SHORTLY);
  });
  return html`<p class="note">${isUndo ? "The rewind was undone, which left what was written after it." : "The conversation was rewound to here."} <button type="button"
    class="undo" onClick=${undo}>${isUndo ? "Bring it back" : "Undo"}</button></p>
    ${shown.length > 0 && html`<ul class="note rewound" tabindex="-1" role="status">${shown.map((file) => html`<li key=${file.path}>${escapeHiddenText(fileText(file))}</li>`)}</ul>${more}`}`;
}

const note = (text) => html`<p class="note">${text}</p>`;

/** @type {Map<string, (item: any, actions: any, state: any, turn: any) => any>} */
const NOTES = new Map(Object.entries({
  compaction: ({ data }) => note(data.compacted_count
    ? `${data.compacted_count} older messages were summarised.` : "Long texts were shortened."),
  handoff: ({ data }) => note(escapeHidden(`${data.from_agent} hands over to ${data.to_agent}${data.reason ? `: ${data.reason}` : "."}`)),
  retrying: ({ data }, actions, state, turn) => html`<${Retry} data=${data} turnId=${turn.id} state=${state} />`,
  error: ({ data }) => note(escapeHiddenText(`${data.text ?? data.code}`)),
  team_reset: () => note("The team begins anew."),
  picked: ({ data }) => note(`Option ${data.picked} goes on.`),
  speaker_selected: ({ data }) => {
    const said = String(data.fallback), names = escapeHidden(String((data.speakers ?? []).join(", ")));
    const shown = said.length > FALLBACK_CHARACTERS ? `${said.slice(0, FALLBACK_CHARACTERS)}…` : said;
    return note(`The model named no one speaker, so ${names} speaks. It said: ${escapeHidden(shown)}`);
  },
  rewound: ({ data }, actions, state) => html`<${Rewound} data=${data} actions=${actions} state=${state} />`,
  handed_back: ({ data }, actions, state) => html`<${Unsent} data=${data} actions=${actions} state=${state} />`,
}));

/** @type {Map<string, any>} */
const VIEWS = new Map(Object.entries({
  user: UserMessage,
  message: Steered,
  text: Text,
  thinking: Thinking,
  call: ({ id, item, request, actions }) => html`<${ToolCard} id=${id} call=${item} request=${request} actions=${actions} />`,
  reading: ReadingCard,
  agent: ({ agent, state, actions }) => html`<${AgentCard} agent=${agent} state=${state} actions=${actions} />`,
  request: RequestLine,
  speaker: Speaker,
  option: Option,
  note: Note,
  end: TurnEnd,
}));

