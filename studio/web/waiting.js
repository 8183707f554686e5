// What a person says while a turn runs: shown until something became of it, and given back where nothing did.

import { describe } from "/assets/attachments.js";
import { visible } from "/assets/conversation.js";

/** What the button says that sends while a turn runs. */
export const SENDING = { queue: "Queue", steer: "Add", interrupt: "Interrupt" };

export class Waiting {
  /** Shows messages in `list`; `giveBack(text, files)` takes those that this page sent and that came to nothing. */
  constructor(list, giveBack) {
    this.list = list;
    this.giveBack = giveBack;
    this.sent = new Map(); // by client_turn_id: {input, files} of what this page sent and does not know to be said
    this.clear();
  }

  clear() {
    this.rows = new Map(); // by message_id
    this.turn = null; // the last that began
    this.show();
  }

  /** The page is about to send this. */
  sending(client_turn_id, input, files) { this.sent.set(client_turn_id, { input, files }); }

  /** The server refused it, or cannot be reached: whether it was not said after all. */
  refused(client_turn_id) { return this.sent.delete(client_turn_id); }

  /** Follow the log; says whether this page takes a message back that came to nothing. */
  take({ type, turn_id, data }) {
    if (type === "turn_started") this.turn = turn_id;
    if (type === "queued") this.add(data.turn_id === this.turn ? "into this turn" : "next", data);
    if (!["turn_started", "steered", "handed_back"].includes(type)) return false;
    const id = data.client_turn_id ?? this.rows.get(data.message_id)?.dataset.clientTurnId;
    const mine = this.sent.get(id);
    this.sent.delete(id);
    this.rows.delete(data.message_id);
    this.show();
    if (type !== "handed_back" || !mine) return false;
    this.giveBack(mine.input, mine.files);
    return true;
  }

  add(when, { message_id, client_turn_id, input, attachments: files = [] }) {
    const row = document.createElement("li");
    const told = [visible(input.replace(/\s+/g, " ").slice(0, 120)), ...files.map((file) => visible(describe(file)))];
    row.append(Object.assign(document.createElement("b"), { textContent: when }), ` ${told.join(" · ")}`);
    if (client_turn_id) row.dataset.clientTurnId = client_turn_id;
    this.rows.set(message_id, row);
    this.show();
  }

  show() {
    this.list.hidden = !this.rows.size;
    this.list.replaceChildren(...this.rows.values());
  }
}
