// Messages sent while a turn runs: listed while they are queued, and restored as a draft if they are not delivered.

import { fileLabel } from "./attachments.js";
import { escapeHidden } from "./hidden_characters.js";

/** Labels of the send button while a turn runs, by `when_busy`. */
export const SEND_LABELS = { queue: "Queue", steer: "Add", interrupt: "Interrupt" };

export class QueuedMessages {
  /** List queued messages in `list`; call `restoreDraft(text, files)` for those that this page sent in vain. */
  constructor(list, restoreDraft) {
    this.list = list;
    this.restoreDraft = restoreDraft;
    this.sent = new Map(); // client_turn_id → {input, files}: sent by this page, not known to be in the conversation
    this.clear();
  }

  clear() {
    this.rows = new Map(); // message_id → list item
    this.lastTurnId = null; // of the last turn that started
    this.render();
  }

  /** Store a message that the page is about to send. */
  addSent(client_turn_id, input, files) { this.sent.set(client_turn_id, { input, files }); }

  /**
   * Remove a message after its request failed; return false if it is not stored any more.
   * That happens if the server accepted it and only the response was lost: then its event arrived already.
   */
  removeSent(client_turn_id) { return this.sent.delete(client_turn_id); }

  /** Update the list from one event; return true if the event handed a message back and its draft was restored. */
  handle({ type, turn_id, data }) {
    if (type === "turn_started") this.lastTurnId = turn_id;
    if (type === "queued") this.add(data.turn_id === this.lastTurnId ? "into this turn" : "after this turn", data);
    if (!["turn_started", "steered", "handed_back"].includes(type)) return false;
    const id = data.client_turn_id ?? this.rows.get(data.message_id)?.dataset.clientTurnId;
    const message = this.sent.get(id);
    this.sent.delete(id);
    this.rows.delete(data.message_id);
    this.render();
    if (type !== "handed_back" || !message) return false;
    this.restoreDraft(message.input, message.files);
    return true;
  }

  add(position, { message_id, client_turn_id, input, attachments: files = [] }) {
    const row = document.createElement("li");
    const texts = [input.replace(/\s+/g, " ").slice(0, 120), ...files.map(fileLabel)].map(escapeHidden);
    row.append(Object.assign(document.createElement("b"), { textContent: position }), ` ${texts.join(" · ")}`);
    if (client_turn_id) row.dataset.clientTurnId = client_turn_id;
    this.rows.set(message_id, row);
    this.render();
  }

  render() {
    this.list.hidden = !this.rows.size;
    this.list.replaceChildren(...this.rows.values());
  }
}
