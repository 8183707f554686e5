// The models: those that can be used first, the others with the reason; the keys of their providers.

import { html, useEffect, useLayoutEffect, useSignal } from "../vendor/preact.js";
import { api } from "../net/api.js";
import { ask } from "../state/asked.js";
import { SHORTLY, models, refreshModels, showStatus } from "../state/studio.js";
import { wantedKey } from "../state/wanted_key.js";
import { escapeHidden } from "../text/hidden_characters.js";
import { abilitiesText, priceOf } from "../text/model_words.js";
import { useAction } from "./use_action.js";
import { useLimit } from "./use_limit.js";

const ROWS = 100; // of a table, at first
const SOURCES = { env: "from the environment: to change it, set the variable and start the studio again", keyring: "in the keyring", file: "in a private file", database: "in the database" };

export function ModelSettings() {
  const words = useSignal("");
  const keys = useSignal(/** @type {any[]|null} */ (null));
  const changed = useSignal(""); // the provider whose key was stored, until its row is drawn
  const [run, error] = useAction();
  const loadKeys = async () => { keys.value = (await api("api/keys")).keys; };
  const load = () => Promise.all([loadKeys(), refreshModels()]);
  useEffect(() => { run(load, { repeats: true }); }, []);
  const { default: defaultModel, models: all } = models.value;
  const found = all.filter(({ id }) => id.toLowerCase().includes(words.value.trim().toLowerCase()));
  const rows = keyRows(keys.value ?? []);
  const namesOf = (provider) => escapeHidden(rows.find(({ providers }) => providers.includes(provider))?.providers.join(", ") ?? provider);
  const withKey = new Map((keys.value ?? []).map(({ provider, source }) => [provider, source]));
  /** Ask for the key of a provider, or of one of several. @param {string[]} providers */
  const storeKey = async (providers, verb = "Add") => {
    const [provider] = providers.length === 1 ? providers : [null];
    let stored = "";
    const store = (test) => async (key, chosen) => {
      const name = provider ?? chosen;
      await api(`api/keys/${encodeURIComponent(name)}`, { method: "PUT", body: { key, test } });
      stored = name;
      showStatus(`The key of ${escapeHidden(name)} is stored.`, SHORTLY);
    };
    const key = await ask({
      title: provider === null ? "Add the key of a provider" : `${verb} the key of ${namesOf(provider)}`,
      text: `It is sent to ${provider === null ? "the provider" : escapeHidden(provider)} for a test that costs nothing, then stored on the machine of the studio.`,
      action: "Store key",
      choice: provider === null ? { label: "Provider", options: providers } : undefined,
      field: { label: provider === null ? "Key" : `Key of ${provider}`, value: "", type: "password" },
      act: store(true),
      otherwise: { code: "provider_unreachable", action: "Store without testing", act: store(false) },
    });
    if (key !== null) await run(async () => {
      await loadKeys();
      changed.value = stored; // before the button that was pressed goes
      await refreshModels();
    });
  };
  /** @param {string} provider */
  const removeKey = async (provider) => {
    const name = namesOf(provider);
    const removed = await ask({
      title: `Remove the key of ${name}?`,
      text: `It cannot be brought back: the studio shows no key that it stores. Without a key the models of ${name} cannot be used.`,
      action: "Remove key",
      isDangerous: true,
      act: () => api(`api/keys/${encodeURIComponent(provider)}`, { method: "DELETE" }),
    });
    if (removed === null) return;
    showStatus(`The key of ${name} is removed.`, SHORTLY);
    await run(load);
  };
  const addKey = (provider) => storeKey([provider]);
  useLayoutEffect(() => {
    if (!changed.value) return;
    changeButton(changed.value)?.focus(); // in the row of the key, wherever that is
    changed.value = "";
  }, [changed.value]);
  const isLoaded = keys.value !== null && all.length > 0;
  const keyOf = wantedKey.value;
  useEffect(() => {
    if (keyOf === null || !isLoaded) return;
    wantedKey.value = null;
    const keyless = [...new Set(all.filter((model) => !model.available && needsKey(model)).map(({ provider }) => provider))];
    const isKnown = all.some(({ provider }) => provider === keyOf);
    if (isKnown && withKey.get(keyOf) === "env") showStatus(`The key of ${escapeHidden(keyOf)} is ${SOURCES.env}.`);
    else if (isKnown) storeKey([keyOf], withKey.has(keyOf) ? "Change" : "Add");
    else if (keyless.length) storeKey(keyless);
  }, [keyOf, isLoaded]);
  return html`<h2>Models</h2>
    <p class="note">New sessions use <strong>${escapeHidden(defaultModel)}</strong>.</p>
    ${error}
    <h3>Keys</h3>
    <ul class="rows" aria-label="Keys of providers">
      ${rows.map(({ variable, source, providers: [provider], providers }) => html`<li key=${variable}><strong>${namesOf(provider)}</strong> <span class="note">${SOURCES[source] ?? ""}</span>
        ${source !== "env" && html`<button type="button" data-providers=${providers.join(" ")} aria-label=${`Change key of ${namesOf(provider)}`} onClick=${() => storeKey([provider], "Change")}>Change key</button>
          <button type="button" aria-label=${`Remove key of ${namesOf(provider)}`}
          onClick=${() => removeKey(provider)}>Remove key</button>`}</li>`)}
      ${keys.value?.length === 0 && html`<li class="note">No provider has a key.</li>`}
    </ul>
    <label>Find a model <input type="search" spellcheck=${false} autocomplete="off" value=${words.value} onInput=${({ target }) => { words.value = target.value; }} /></label>
    <h3>Can be used now</h3>
    <${Table} models=${found.filter(({ available }) => available)} withKey=${withKey} addKey=${addKey} />
    <h3>Cannot be used now</h3>
    <${Table} models=${found.filter(({ available }) => !available)} withKey=${withKey} addKey=${addKey} />`;
}

/** Return each key with the providers that share it. @param {{provider: string, source: string, variable: string}[]} keys */
const keyRows = (keys) => [...Map.groupBy(keys, ({ variable }) => variable)].map(([variable, shared]) =>
  ({ variable, source: shared[0].source, providers: shared.map(({ provider }) => provider) }));

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

/** Return the button that changes the key of a provider. @param {string} provider */
const changeButton = (provider) => /** @type {HTMLElement|null} */ (document.querySelector(`[data-providers~=${CSS.escape(provider)}]`));

const needsKey = ({ why }) => /key/i.test(why) || /_KEY\b/.test(why);
