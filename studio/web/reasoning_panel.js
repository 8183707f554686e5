// The reasoning steps of a turn: while it runs the last ones below a clock, afterwards one line that opens to all.

import { make } from "./elements.js";
import { escapeHiddenText } from "./hidden_characters.js";
import { NO_REASONING, addEvent, shownSteps } from "./reasoning.js";

const REDRAW_MS = 100;

export class ReasoningPanel {
  /** Make `box` for the turn that this event starts; `keepEnd(draw)` draws and keeps the log at its end. */
  constructor(started, keepEnd) {
    this.keepEnd = keepEnd;
    this.reasoning = addEvent(NO_REASONING, started);
    this.box = make("details", "reasoning");
    this.box.open = true;
    this.box.setAttribute("aria-live", "off"); // the log says what happens; a clock must not be read aloud
    const summary = this.box.appendChild(make("summary"));
    this.label = summary.appendChild(make("span", "", "Working, "));
    this.clock = summary.appendChild(make("span", "clock"));
    this.clock.setAttribute("aria-hidden", "true");
    this.list = this.box.appendChild(make("ol"));
    this.box.addEventListener("toggle", () => this.draw());
    this.timer = setInterval(() => this.redraw(), REDRAW_MS);
    this.draw();
  }

  /** Draw what the clock and the events have changed; without a new step the layout of the log need not be read. */
  redraw() {
    if (!this.box.isConnected) clearInterval(this.timer); // another session is shown
    else if (this.shown === this.stepsToShow()) this.draw();
    else this.keepEnd(() => this.draw());
  }

  /** Take one more event; once the turn has ended, fold the steps, or remove them if there was only the first one. */
  handle(event) {
    this.reasoning = addEvent(this.reasoning, event);
    if (!this.reasoning.done) return; // the timer draws, however fast events come
    clearInterval(this.timer);
    if (this.reasoning.steps.length < 2) { // the first one only says that work goes on
      this.box.remove();
      return;
    }
    this.box.open = false;
    this.clock.removeAttribute("aria-hidden");
    this.draw();
  }

  /** Return the steps, which are other ones after a change, or null while they are folded. */
  stepsToShow() { return this.box.open ? this.reasoning.steps : null; }

  draw() {
    const { steps, done, elapsed_seconds, began_at } = this.reasoning;
    if (done) this.label.textContent = `${steps.length} steps, `;
    this.clock.textContent = secondsText(done ? elapsed_seconds : Math.max(elapsed_seconds, Date.now() / 1000 - began_at));
    if (this.shown === this.stepsToShow()) return;
    this.shown = this.stepsToShow();
    const rows = this.shown ? shownSteps(this.reasoning) : [];
    this.list.replaceChildren(...rows.map((step) => make("li", "", escapeHiddenText(step))));
  }
}

/** Return a time as "3.2 s" or "2 min 5 s". */
function secondsText(seconds) {
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  return `${Math.floor(Math.round(seconds) / 60)} min ${Math.round(seconds) % 60} s`;
}
