// What reaches a person who looks elsewhere: the title of the tab, and notifications if they agreed to them.

import { useEffect, useRef } from "../vendor/preact.js";
import { preferences } from "../state/preferences.js";
import { route } from "../state/route.js";
import { attempt, current, titleOf, waiting, waitingTitle } from "../state/studio.js";
import { oneLine } from "../text/hidden_characters.js";
import { loadWhenIdle } from "./lazy.js";

const load = () => import("./notifications.js");
loadWhenIdle(load);

/** Return the name of the session that is shown if it waits, else of the first one that does. @param {string|undefined} shownId */
function waitingName(shownId) {
  const all = [...waiting.value.values()];
  return oneLine(waitingTitle(all.find(({ sessionId }) => sessionId === shownId) ?? all[0]) || "A session");
}

/** Keep the title of the tab, and notify of requests that arrive while the tab is hidden. */
export function useNotices() {
  const requests = waiting.value;
  const session = current.value;
  const name = session && route.value.name === "session" ? oneLine(titleOf(session)) : "AgenticX";
  const title = requests.size ? `(${requests.size}) Waiting – ${waitingName(session?.id)}` : name;
  useEffect(() => { document.title = title; }, [title]);
  const known = useRef(/** @type {any} */ (null));
  useEffect(() => {
    const before = known.current;
    known.current = new Set(requests.keys());
    if (before === null || !document.hidden || !preferences.value.notify) return;
    const added = [...requests.values()].filter(({ id }) => !before.has(id));
    if (added.length) attempt(async () => { added.forEach((await load()).notify); });
  }, [requests]);
}
