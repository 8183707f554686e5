// Actions of a part of the page whose failure is shown there.

import { html, useEffect, useRef, useSignal } from "../vendor/preact.js";
import { UNREACHABLE, reconnects } from "../net/api.js";

/** @typedef {(action: () => unknown, options?: {repeats?: boolean}) => Promise<boolean>} Run */

/**
 * Return `[run, error]`: `run(action)` runs an action and resolves to whether it succeeded, `error` shows why not. An action
 * that `repeats` runs again if the studio did not answer, once it does.
 * @returns {[Run, any]}
 */
export function useAction() {
  const text = useSignal("");
  const failed = useRef(/** @type {(() => unknown) | null} */ (null));
  /** @type {Run} */
  const run = async (action, { repeats = false } = {}) => {
    text.value = "";
    try {
      await action();
      return true;
    } catch (error) {
      text.value = error.message;
      failed.current = repeats ? action : null;
      return false;
    }
  };
  useReconnected(text, () => { if (failed.current) run(failed.current, { repeats: true }); });
  return [run, text.value ? html`<p class="error" role="alert">${text.value}</p>` : null];
}

/**
 * Forget that the studio did not answer once it does; `text` says why something failed.
 * @param {{value: string, peek: () => string}} text @param {() => unknown} [then]
 */
export function useReconnected(text, then) {
  const count = reconnects.value;
  useEffect(() => {
    if (text.peek() !== UNREACHABLE) return;
    text.value = "";
    then?.();
  }, [count]);
}
