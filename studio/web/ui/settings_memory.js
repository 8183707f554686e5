// What the person agreed to have remembered, across sessions.

import { html, useEffect, useSignal } from "../vendor/preact.js";
import { api } from "../net/api.js";
import { ask } from "../state/asked.js";
import { escapeHiddenText } from "../text/hidden_characters.js";
import { useAction } from "./use_action.js";
import { useLimit } from "./use_limit.js";

const ROWS = 100; // at first

export function MemorySettings() {
  const entries = useSignal(/** @type {any} */ (null));
  const [run, error] = useAction();
  const load = async () => { entries.value = (await api("api/memory")).entries; };
  useEffect(() => { run(load, { repeats: true }); }, []);
  const forget = async (id, text) => {
    const forgotten = await ask({
      title: "Forget this entry?",
      text: `“${escapeHiddenText(text)}” No session gets it any more. It cannot be brought back.`,
      action: "Forget entry",
      isDangerous: true,
      act: () => api(`api/memory/${encodeURIComponent(id)}`, { method: "DELETE" }),
    });
    if (forgotten !== null) await run(load);
  };
  const [shown, more] = useLimit(entries.value ?? [], ROWS, "entries");
  return html`<h2>Memory</h2>
    <p class="note">What you agreed to have remembered; each session gets it.</p>
    ${error}
    <ul class="rows" aria-label="Remembered">
      ${shown.map(({ id, text, saved_at }) => html`<li key=${id}><p>${escapeHiddenText(text)}</p>
        <p class="note">since ${new Date(saved_at).toLocaleDateString()}</p>
        <button type="button" aria-label=${`Forget: ${text.slice(0, 80)}`} onClick=${() => forget(id, text)}>Forget</button></li>`)}
      ${entries.value?.length === 0 && html`<li class="note">Nothing is remembered.</li>`}
    </ul>
    ${more}`;
}
