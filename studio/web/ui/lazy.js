// @ts-check
// Parts of the page whose modules are loaded after its first paint: when they are shown first, else once it is idle.

import { html, signal, useEffect } from "../vendor/preact.js";

/** @type {(() => Promise<unknown>)[]} */
const parts = [];

/**
 * Return a component that shows an export of a module, without delay if the module is there. Until then it shows
 * `meanwhile`; if loading fails it says so and offers to try again. `load` starts loading.
 * @param {() => Promise<Record<string, any>>} importModule @param {string} name @param {any} [meanwhile]
 */
export function lazy(importModule, name, meanwhile = null) {
  const part = signal(/** @type {any} */ (null));
  const isFailed = signal(false);
  /** @type {Promise<void>|null} */
  let loading = null;
  const load = () => {
    isFailed.value = false;
    loading ??= importModule().then((module) => { part.value = module[name]; }, () => {
      loading = null;
      isFailed.value = true;
    });
    return loading;
  };
  loadWhenIdle(load);
  /** @param {any} props */
  function Lazy(props) {
    useEffect(() => { load(); }, []);
    if (part.value) return html`<${part.value} ...${props} />`;
    if (!isFailed.value) return meanwhile;
    return html`<p class="error" role="alert">This part of the page could not be loaded: the studio did not send it.
      <button type="button" class="quiet" onClick=${load}>Try again</button></p>`;
  }
  return Object.assign(Lazy, { load });
}

/** Have `load` called by `loadParts` too. */
export function loadWhenIdle(/** @type {() => Promise<unknown>} */ load) {
  parts.push(load);
}

/** Load all parts one after the other while the page is idle, so that they are there also when the studio has ended. */
export async function loadParts() {
  for (const load of parts) {
    await idle();
    await load().catch(() => {}); // the studio has ended: the part is loaded when it is needed
  }
}

/** Resolve when the browser has nothing else to do; Safari does not tell. */
const idle = () => new Promise((resolve) => {
  if ("requestIdleCallback" in globalThis) requestIdleCallback(resolve);
  else setTimeout(resolve);
});

/** What was done or could not be done, in each place in which it is told. */
export const Message = lazy(() => import("./message.js"), "Message");
