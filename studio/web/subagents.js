// The sub-agents of a session: a line for each, with its state, rounds, tokens and task.

import { escapeHidden } from "./hidden_characters.js";

const STATES = {
  subagent_started: "running",
  subagent_paused: "paused",
  subagent_completed: "completed",
  subagent_error: "error",
};

export class Subagents {
  /** List sub-agents in `list`, which is hidden while there are none. */
  constructor(list) {
    this.list = list;
    this.clear();
  }

  clear() {
    this.agents = new Map(); // agent_id → {row, state, task, rounds, tokens}
    this.list.replaceChildren();
    this.list.hidden = true;
  }

  /** Update the list from one event; rounds and tokens are those of all runs of a sub-agent. */
  handle({ type, data, agent_id }) {
    if (type === "subagent_started" && !this.agents.has(agent_id)) {
      const row = this.list.appendChild(document.createElement("li"));
      this.agents.set(agent_id, { row, rounds: 0, tokens: 0 });
      this.list.hidden = false;
    }
    const agent = this.agents.get(agent_id);
    if (!agent) return;
    if (type in STATES) agent.state = data.code ? `${STATES[type]} ${data.code}` : STATES[type];
    if (type === "subagent_started") agent.task = data.task;
    if (type === "round_start") agent.rounds += 1;
    if (type === "usage") agent.tokens += (data.input_tokens ?? 0) + (data.output_tokens ?? 0);
    const rounds = `${agent.rounds} round${agent.rounds === 1 ? "" : "s"}`;
    agent.row.textContent = escapeHidden(`${agent_id}: ${agent.state}, ${rounds}, ${agent.tokens} tokens: ${agent.task}`);
  }
}
