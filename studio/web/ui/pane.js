// @ts-check
// Whether the pane beside the log is open, and what it shows; the pane itself is in pane_tabs.js.

import { signal } from "../vendor/preact.js";
import { go, route, sessionPath } from "../state/route.js";
import { current } from "../state/studio.js";

/** The tab that is open, null while the pane is closed. @type {import("../vendor/preact.js").Signal<string|null>} */
export const openTab = signal(null);
/** What is to be shown in the tab, as `openPane` was told. @type {import("../vendor/preact.js").Signal<any>} */
export const detail = signal(null);

/** Open the pane; on a narrow page the browser's Back closes it again. @param {string} name @param {any} [shown] */
export function openPane(name, shown = null) {
  isKept = true;
  if (!openTab.value && isNarrow.peek()) history.pushState({ pane: true }, "");
  detail.value = shown;
  openTab.value = name;
}

/** Whether a person has opened the pane or used it: it stays open until they close it. */
let isKept = true;

/** Open the pane without being asked to. @param {string} name */
export function openByItself(name) {
  openPane(name);
  isKept = false;
}

/** Keep the pane open that has opened by itself. */
export function keepPane() { isKept = true; }

/** Close the pane if it has opened by itself and nobody has used it; return whether it was open so. */
export function closeUnused() {
  if (isKept || !openTab.peek()) return false;
  closePane();
  return true;
}

export function closePane() {
  if (!openTab.value) return;
  openTab.value = null;
  if (history.state?.pane) history.back();
}

/** Whether the pane stands beside the log and covers nothing. */
export const isBeside = () => isWide.value;

/** Whether the pane is open above the log and what is below it. */
export const isOnTop = () => Boolean(openTab.value) && route.value.name === "session" && !isWide.value;

/** Return a signal of whether a media query matches. @param {string} query */
function mediaSignal(query) {
  const media = matchMedia(query);
  const matches = signal(media.matches);
  media.addEventListener("change", () => { matches.value = media.matches; });
  return matches;
}

const isWide = mediaSignal("(min-width: 1100px)");
/** Whether the page shows one part at a time. */
export const isNarrow = mediaSignal("(max-width: 699px)");
/** Whether the page is so low that a decision needs all of it, as in css/dock.css. */
export const isLow = mediaSignal("(max-height: 700px)");
/** Whether a decision takes most of the page, as in css/dock.css. */
export const hasLittleRoom = mediaSignal("(max-width: 699px), (max-height: 700px)");

/** Whether the list of sessions is shown in place of its rail, as in css/layout.css. */
export const isListOpen = () => route.value.name === "sessions" && !isNarrow.value && !isWide.value;

/**
 * Focus the decision that waits in the session that is shown, in front of all else, or show the next one there if it has the
 * focus; return whether there is one.
 */
export function showDecision() {
  const heading = /** @type {HTMLElement|null} */ (document.querySelector("[role=region][aria-label=Decision] h2"));
  if (!heading) return false;
  const dock = heading.closest("section");
  if (dock?.contains(document.activeElement)) {
    const next = /** @type {HTMLElement|null} */ (dock.querySelector(".next-decision"));
    if (next) next.click();
    else {
      heading.blur(); // the page may have moved the focus there
      heading.focus();
    }
    return true;
  }
  if (!isBeside()) closePane();
  if (route.value.name !== "session" && current.value) go(sessionPath(current.value.id));
  heading.focus(); // before the next key
  if (document.activeElement !== heading) requestAnimationFrame(() => heading.focus()); // once it is seen
  return true;
}

addEventListener("popstate", () => { if (!history.state?.pane) openTab.value = null; });
