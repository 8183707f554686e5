// The tree of messages: after a rewind, those that are no longer part of the conversation are hidden.

/** Messages by the ids of GET …/messages; each has the elements that were added while it was the last one. */
export class Branches {
  constructor() {
    this.messages = new Map([[null, { previous: null, elements: [] }]]); // null: before the first message
    this.lastId = null;
    this.acceptsCalls = false; // whether the next tool calls belong to the last message
  }

  /** Append a message to the conversation, unless it is known. */
  append(id, acceptsCalls = false) {
    if (!this.messages.has(id)) {
      this.messages.set(id, { previous: this.lastId, elements: [] });
      this.lastId = id;
    }
    this.acceptsCalls = acceptsCalls;
  }

  addElement(element) { this.messages.get(this.lastId).elements.push(element); }

  previousId(id) { return this.messages.get(id).previous; }

  /** Make this message the last one of the conversation; return the id of the one that was the last before. */
  rewind(id) {
    const oldLastId = this.lastId;
    this.lastId = this.messages.has(id) ? id : null;
    this.acceptsCalls = false;
    const path = new Set([null]);
    for (let ancestor = this.lastId; ancestor !== null; ancestor = this.previousId(ancestor)) path.add(ancestor);
    for (const [messageId, { elements }] of this.messages) {
      for (const element of elements) element.hidden = !path.has(messageId);
    }
    return oldLastId;
  }
}
