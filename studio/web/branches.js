// Which messages are the conversation now: a session that was rewound has said more than is still part of it.
// Messages are named as GET …/messages names them; each holds the elements that were added while it was the last one.

export class Branches {
  constructor() {
    this.messages = new Map([[null, { follows: null, elements: [] }]]); // null: before any message
    this.head = null;
    this.speaking = false; // whether the calls that come belong to the last message
  }

  begin(id, speaking = false) {
    if (!this.messages.has(id)) {
      this.messages.set(id, { follows: this.head, elements: [] });
      this.head = id;
    }
    this.speaking = speaking;
  }

  add(element) { this.messages.get(this.head).elements.push(element); }

  before(id) { return this.messages.get(id).follows; }

  /** Let the conversation end with that message; returns the one that it ended with. */
  rewind(id) {
    const last = this.head;
    this.head = this.messages.has(id) ? id : null;
    this.speaking = false;
    const path = new Set([null]);
    for (let place = this.head; place !== null; place = this.before(place)) path.add(place);
    for (const [name, { elements }] of this.messages) {
      for (const element of elements) element.hidden = !path.has(name);
    }
    return last;
  }
}
