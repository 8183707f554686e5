// @ts-check
// The pane beside the log: what a session has made, as tabs; closed until it is needed.

import { html, useLayoutEffect, useRef } from "../vendor/preact.js";
import { isField } from "../state/input.js";
import { openRequests } from "../state/requests.js";
import { lazy } from "./lazy.js";
import { Message } from "./message.js";
import { closePane, detail, isNarrow, isOnTop, keepPane, openPane, openTab, showDecision } from "./pane.js";
import { moveBetweenTabs } from "./tab_keys.js";

const loading = html`<p class="note">Loading…</p>`;
/** @type {Record<string, {label: string, Content: any}>} */
const TABS = {
  preview: { label: "Preview", Content: lazy(() => import("./preview_pane.js"), "PreviewPane", loading) },
  changes: { label: "Changes", Content: lazy(() => import("./changes_pane.js"), "ChangesPane", loading) },
  agents: { label: "Agents", Content: lazy(() => import("./agents_pane.js"), "AgentsPane", loading) },
  notes: { label: "Notes", Content: lazy(() => import("./notes_pane.js"), "NotesPane", loading) },
};

/** @param {{session: any, state: any, actions: any}} props */
export function Pane({ session, state, actions }) {
  const name = openTab.value;
  const box = useRef(/** @type {HTMLElement|null} */ (null));
  const opener = useRef(/** @type {Element|null} */ (null));
  const wasOpen = useRef(false);
  const covers = isOnTop();
  useLayoutEffect(() => { // before the next key
    const { activeElement: active, body } = document;
    if (covers && !box.current?.contains(active)) {
      opener.current = active;
      /** @type {HTMLElement|null|undefined} */ (isNarrow.peek() ? box.current : box.current?.querySelector("[aria-selected=true]"))?.focus();
    } else if (!name && wasOpen.current && active === body) {
      const places = [opener.current, document.getElementById("show-artifacts")];
      /** @type {HTMLElement|null|undefined} */ (places.find((place) => place?.isConnected && place !== body && !isField(place)))?.focus();
      opener.current = null;
    }
    wasOpen.current = Boolean(name);
  }, [name, covers]);
  if (!name) return null;
  const { label: shown, Content } = TABS[name];
  const role = isNarrow.value ? "main" : "complementary";
  return html`<div id="pane" role=${role} aria-label="Preview, changes, agents, notes" tabindex="-1" ref=${box} data-region="Pane"
      onPointerDown=${keepPane} onKeyDown=${keepPane} onWheel=${keepPane}>
    <div class="pane-tabs">
      ${isNarrow.value && html`<h1 class="hidden-text">${shown}</h1>`}
      <div role="tablist" aria-label="What is shown">
        ${Object.entries(TABS).map(([key, { label }]) => html`<button key=${key} type="button" role="tab" class="tab"
          id=${`tab-${key}`} aria-selected=${key === name} aria-controls="pane-content" tabindex=${key === name ? 0 : -1}
          onClick=${() => openPane(key, null)} onKeyDown=${moveBetweenTabs}>${label}</button>`)}
      </div>
      <button type="button" class="quiet" aria-label=${`Close ${shown.toLowerCase()}`} onClick=${closePane}>✕</button>
    </div>
    <div><${DecisionBar} state=${state} /><${Message} place="pane" /></div>
    <div id="pane-content" role="tabpanel" aria-labelledby=${`tab-${name}`}>
      <${Content} key=${name} session=${session} state=${state} actions=${actions} detail=${detail} />
    </div>
  </div>`;
}

/** Says that a decision waits, where the pane covers it. @param {{state: any}} props */
function DecisionBar({ state }) {
  if (!openRequests(state.value).length) return null;
  return html`<p class="strip pane-decision" role="status">A decision waits.
    <button type="button" class="quiet" onClick=${showDecision}>Show the decision</button></p>`;
}
