// The models: those that can be used first, the others with the reason; the keys of their providers.

import { html, useEffect, useSignal } from "../vendor/preact.js";
import { api } from "../net/api.js";
import { ask } from "../state/asked.js";
import { models, refreshModels } from "../state/studio.js";
import { escapeHidden } from "../text/hidden_characters.js";
import { abilitiesText, priceOf } from "../text/model_words.js";
import { useAction } from "./use_action.js";
import { useLimit } from "./use_limit.js";

const ROWS = 100; // of a table, at first
const SOURCES = { env: "from the environment: to change it, set the variable and start the studio again", keyring: "in the keyring", file: "in a private file", database: "in the database" };

export function ModelSettings() {
  const words = useSignal("");
  const keys = useSignal(/** @type {any[]|null} */ (null));
  const [run, error] = useAction();
  const loadKeys = async () => { keys.value = (await api("api/keys")).keys; };
  const load = () => Promise.all([loadKeys(), refreshModels()]);
  useEffect(() => { run(load, { repeats: true }); }, []);
  const { default: defaultModel, models: all } = models.value;
  const found = all.filter(({ id }) => id.toLowerCase().includes(words.value.trim().toLowerCase()));
  const withKey = new Map((keys.value ?? []).map(({ provider, source }) => [provider, source]));
  const change = (action) => run(async () => {
    await action();
    await load();
  });
  const addKey = async (provider, verb = "Add") => {
    const store = (test) => (key) => api(`api/keys/${encodeURIComponent(provider)}`, { method: "PUT", body: { key, test } });
    const key = await ask({
      title: `${verb} the key of ${provider}`,
      text: "It is stored on the machine of the studio, after a test that costs nothing.",
      action: "Store key",
      field: { label: `Key of ${provider}`, value: "", type: "password" },
      act: store(true),
      otherwise: { code: "provider_unreachable", action: "Store without testing", act: store(false) },
    });
    if (key !== null) await change(() => {});
  };
  return html`<h2>Models</h2>
    <p class="note">New sessions use <strong>${escapeHidden(defaultModel)}</strong>.</p>
    ${error}
    <h3>Keys</h3>
    <ul class="rows" aria-label="Keys of providers">
      ${keys.value?.map(({ provider, source }) => html`<li key=${provider}><strong>${escapeHidden(provider)}</strong> <span class="note">${SOURCES[source] ?? ""}</span>
        ${source !== "env" && html`<button type="button" aria-label=${`Change key of ${provider}`} onClick=${() => addKey(provider, "Change")}>Change key</button>
          <button type="button" aria-label=${`Remove key of ${provider}`}
          onClick=${() => change(() => api(`api/keys/${encodeURIComponent(provider)}`, { method: "DELETE" }))}>Remove key</button>`}</li>`)}
      ${keys.value?.length === 0 && html`<li class="note">No provider has a key.</li>`}
    </ul>
    <label>Find a model <input type="search" spellcheck=${false} autocomplete="off" value=${words.value} onInput=${({ target }) => { words.value = target.value; }} /></label>
    <h3>Can be used now</h3>
    <${Table} models=${found.filter(({ available }) => available)} withKey=${withKey} addKey=${addKey} />
    <h3>Cannot be used now</h3>
    <${Table} models=${found.filter(({ available }) => !available)} withKey=${withKey} addKey=${addKey} />`;
}

function Table({ models: all, withKey, addKey }) {
  const [rows, more] = useLimit(all, ROWS, "models");
  if (!rows.length) return html`<p class="note">None.</p>`;
  return html`<div class="scrolled"><table class="models">
    <thead><tr><th>Model</th><th>Window</th><th>$ per million, in / out</th><th>Takes</th><th>Why</th></tr></thead>
    <tbody>${rows.map((model) => html`<tr key=${model.id}>
      <th scope="row">${escapeHidden(model.id)}</th>
      <td data-label="Window">${model.context_window === null ? "not known" : model.context_window.toLocaleString("en")}</td>
      <td data-label="$ per million">${model.price ? priceOf(model.price) : "not known"}</td>
      <td data-label="Takes">${abilitiesText(model)}</td>
      <td data-label="Why">${escapeHidden(model.why)}${!model.available && !withKey.has(model.provider) && needsKey(model) && html` <button type="button" class="quiet"
        aria-label=${`Add key of ${model.provider}`} onClick=${() => addKey(model.provider)}>Add key</button>`}</td>
    </tr>`)}</tbody>
  </table></div>
  ${more}`;
}

const needsKey = ({ why }) => /key/i.test(why) || /_KEY\b/.test(why);
