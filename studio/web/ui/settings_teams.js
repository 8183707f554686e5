// The configured teams: who takes part, and a session with one.

import { html, useEffect } from "../vendor/preact.js";
import { attempt, refreshTeams, teams } from "../state/studio.js";
import { participantNames } from "../text/agent_words.js";
import { escapeHidden } from "../text/hidden_characters.js";
import { startWithTeam } from "./new_session.js";

const KINDS = { round_robin: "speak in turn", selector: "a model chooses who speaks", swarm: "they hand over to each other" };

export function TeamSettings() {
  useEffect(() => { attempt(refreshTeams); }, []);
  return html`<h2>Teams</h2>
    <ul class="rows" aria-label="Teams">
      ${teams.value.map(({ name, kind, description, participants, problem }) => html`<li key=${name}>
        <strong>${escapeHidden(name)}</strong>
        ${description && html`<p>${escapeHidden(description)}</p>`}
        <p class="note">${participantNames(participants)}${kind ? `; ${KINDS[kind]}` : ""}</p>
        ${problem && html`<p class="error">${escapeHidden(problem)}</p>`}
        <button type="button" disabled=${Boolean(problem)} aria-label=${`Start a session with ${name}`} onClick=${() => startWithTeam(name)}>Start a session</button>
      </li>`)}
      ${!teams.value.length && html`<li class="note">No team is configured.</li>`}
    </ul>`;
}
