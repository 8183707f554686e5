// @ts-check
// Notifications of requests to the person, if they agreed to them.

import { go, sessionPath } from "../state/route.js";
import { waitingTitle } from "../state/studio.js";
import { oneLine } from "../text/hidden_characters.js";
import { wantedKind } from "../text/tool_words.js";

/** Say that an agent wants to use which tool, and in which session: what a model wrote, also its name, stays in the page. */
export function notify(/** @type {import("../state/studio.js").Waiting} */ request) {
  if (!("Notification" in globalThis) || Notification.permission !== "granted") return;
  const { id, kind, sessionId, tool, agentPath } = request;
  const agent = agentPath?.length ? "Another agent" : "The agent";
  const title = kind === "question" ? `${agent} asks you something` : `${agent} wants to ${wantedKind(tool)}`;
  // All tabs notify; those of one request have one tag, so that one is shown.
  const notification = new Notification(title, { body: oneLine(waitingTitle(request) || "A session"), tag: id });
  notification.onclick = () => { window.focus(); go(sessionPath(sessionId)); notification.close(); };
}

/** Ask the browser for the person's consent; return whether it was given. */
export async function allowNotifications() {
  return "Notification" in globalThis && await Notification.requestPermission() === "granted";
}
