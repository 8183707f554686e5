// @ts-check
// The sub-agents of a session as a tree: their cards, and what the selected one says and does.

import { html, useLayoutEffect, useMemo, useState } from "../vendor/preact.js";
import { escapeHidden } from "../text/hidden_characters.js";
import { AgentCard } from "./agent_card.js";
import { Turn } from "./turn.js";
import { useLimit } from "./use_limit.js";

export { AgentCard } from "./agent_card.js";

/** @typedef {import("../state/types.js").Agent} Agent */

const CARDS = 100; // at first
const SHOWN_RUNS = 3; // of a sub-agent, the last ones

/** @param {{state: any, actions: any, detail: any}} props */
export function AgentsPane({ state, actions, detail }) {
  const [selected, select] = useState(/** @type {string | null} */ (null));
  const wanted = detail.value?.agentId ?? null;
  useLayoutEffect(() => { if (wanted !== null) select(wanted); }, [detail.value]);
  const { agents } = state.value;
  const places = useMemo(() => placesOf(state.value), [Object.keys(agents).length]);
  const placeOf = (/** @type {Agent} */ { id }) => places.get(id) ?? places.size;
  const tree = agentTree(Object.values(agents).sort((one, other) => placeOf(one) - placeOf(other)));
  const [shown, more] = useLimit(tree, CARDS, "sub-agents");
  if (!tree.length) return html`<p class="note">No sub-agents. An agent can begin some for parts of its work.</p>`;
  return html`<div class="agents">
    <ul class="agent-tree" aria-label="Sub-agents">${shown.map(({ agent, depth }) => html`<li key=${agent.id} style=${{ marginInlineStart: `${Math.min(depth, 6)}rem` }}>
      <${AgentCard} agent=${agent} state=${state} actions=${actions} isInPane />
      <button type="button" class="quiet" aria-expanded=${selected === agent.id}
        onClick=${() => select(selected === agent.id ? null : agent.id)}>${selected === agent.id ? "Hide its work" : "Show its work"}</button>
      ${selected === agent.id && html`<${Work} agent=${agent} state=${state} actions=${actions} />`}
    </li>`)}</ul>
    ${more}
  </div>`;
}

/** The last runs of a sub-agent. */
function Work({ agent, state, actions }) {
  const turns = agent.turnIds.slice(-SHOWN_RUNS).map((id) => state.value.childTurns[id]).filter(Boolean);
  return html`<section class="agent-work" aria-label=${`Work of ${escapeHidden(agent.id)}`}>
    ${agent.turnIds.length > SHOWN_RUNS && html`<p class="note">${agent.turnIds.length - SHOWN_RUNS} earlier runs are not shown.</p>`}
    ${turns.map((turn) => html`<${Turn} key=${turn.id} turn=${turn} state=${state} actions=${actions} />`)}
  </section>`;
}

/** Return the places of the calls that began sub-agents, by the ids of these: the log has them in this order. */
function placesOf({ turns, childTurns }) {
  const calls = [...turns, ...Object.values(childTurns)].flatMap(({ items }) => items.filter(({ kind, agentId }) => kind === "call" && agentId));
  return new Map(calls.map(({ agentId }, place) => [agentId, place]));
}

/** Return the agents with those that each began below it. @param {Agent[]} agents */
function agentTree(agents) {
  const ids = new Set(agents.map(({ id }) => id));
  const below = Map.groupBy(agents, ({ parentId }) => (parentId !== null && ids.has(parentId) ? parentId : null));
  /** @type {{agent: Agent, depth: number}[]} */
  const tree = [];
  const waiting = (below.get(null) ?? []).map((agent) => ({ agent, depth: 0 })).reverse();
  for (let next = waiting.pop(); next; next = waiting.pop()) {
    tree.push(next);
    const { agent, depth } = next;
    waiting.push(...(below.get(agent.id) ?? []).map((child) => ({ agent: child, depth: depth + 1 })).reverse());
  }
  return tree;
}
