// The keys of the whole page. Those of a part are with that part; it stops the ones that it has used.

import { signal, useLayoutEffect, useRef } from "../vendor/preact.js";
import { openFinder } from "../state/finder.js";
import { isField, isTyped, wantedDecision } from "../state/input.js";
import { canStop } from "../state/requests.js";
import { go, sessionPath } from "../state/route.js";
import { SHORTLY, attempt, current, showStatus, waiting } from "../state/studio.js";
import { closePane, isOnTop, showDecision } from "./pane.js";

const STOP_MS = 2000; // in which a second Esc stops the turn
const ESC_AGAIN = "Esc again stops";

export const isKeyListOpen = signal(false);

/** Listen to the keys of the page while a session is shown, or none. */
export function useKeys(view) {
  const latest = useRef(view);
  latest.current = view;
  const lastEscape = useRef(-Infinity);
  useLayoutEffect(() => {
    const onKey = (event) => {
      if (event.defaultPrevented || event.isComposing) return;
      const action = actionOf(event, latest.current, lastEscape);
      if (!action) return;
      event.preventDefault();
      action();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
}

/** Return what a key does, undefined if nothing. */
function actionOf(event, view, lastEscape) {
  const control = event.ctrlKey || event.metaKey;
  if (control && event.key.toLowerCase() === "k") return openFinder;
  if (event.key === "F2") return event.shiftKey ? showNextWaiting : focusDecision;
  if (event.key === "F6") return () => focusNextRegion(event.shiftKey ? -1 : 1);
  if (event.key === "?" && !control && !isField(event.target)) return () => { isKeyListOpen.value = true; };
  const isEscape = event.key === "Escape" && !document.querySelector("dialog[open]");
  if (isEscape && (isOnTop() || document.activeElement?.closest("#pane"))) return leavePane;
  if (!view || !document.querySelector("main[data-session]")?.checkVisibility()) return undefined; // what is not seen takes no key
  if (event.altKey && (event.key === "ArrowUp" || event.key === "ArrowDown")) {
    return () => { view.command.value = { name: "turn", step: event.key === "ArrowUp" ? -1 : 1 }; };
  }
  if (isTyped(event) && event.target.matches?.("body, #log, main [tabindex='-1']:not(.dock *, button)")) document.getElementById("input")?.focus(); // the character follows
  return isEscape && (!isField(event.target) || event.target.closest("#composer")) ? () => stop(view, lastEscape) : undefined;
}

function leavePane() {
  const hasCovered = isOnTop();
  closePane();
  if (hasCovered) return; // the focus goes back to where the pane was opened
  requestAnimationFrame(() => document.getElementById("input")?.focus()); // once it is seen
}

/** Stop the turn at the second Esc. */
function stop(view, lastEscape) {
  if (!view.feed.value || !canStop(view.feed.value.state.value)) return;
  if (performance.now() - lastEscape.current < STOP_MS) {
    lastEscape.current = -Infinity;
    showStatus("");
    attempt(view.actions.stop);
  } else {
    lastEscape.current = performance.now();
    showStatus(ESC_AGAIN, STOP_MS);
  }
}

/** Focus the decision of the session that is shown, else show a session that has one. */
function focusDecision() {
  if (showDecision()) return;
  if (waiting.value.size) showNextWaiting();
  else showStatus("No decision is needed.", SHORTLY);
}

/** Show the session with the next open request, in the order of arrival, after the one that is shown. */
function showNextWaiting() {
  const ids = [...new Set([...waiting.value.values()].map(({ sessionId }) => sessionId))];
  if (!ids.length) return showStatus("No decision is needed.", SHORTLY);
  const next = ids[(ids.indexOf(current.value?.id ?? "") + 1) % ids.length];
  if (next !== current.value?.id) wantedDecision.sessionId = next;
  go(sessionPath(next));
  if (next === current.value?.id) focusDecision();
  return undefined;
}

function focusNextRegion(step) {
  const regions = [...document.querySelectorAll("[data-region]")].filter((region) => region.checkVisibility() && !region.closest("[inert]"));
  const at = regions.findIndex((region) => region.contains(document.activeElement));
  const next = regions[(at + step + regions.length) % regions.length];
  const targets = next?.matches("[tabindex]") ? [next] : [...next?.querySelectorAll("textarea, h2[tabindex], button:enabled, a[href], input, select") ?? []];
  const target = targets.find((element) => element.checkVisibility());
  if (target instanceof HTMLElement) target.focus();
}
