// The commands of Ctrl+K.

import { canStop } from "../state/requests.js";
import { go } from "../state/route.js";
import { attempt, current } from "../state/studio.js";
import { sessionCommands } from "./header.js";
import { openPane } from "./pane.js";

/** Return what can be done, also with the session that is shown: `view` is null without one. */
export function commands(view) {
  const always = [
    { label: "New session", run: () => go("#/new") },
    ...[["rules", "Rules"], ["models", "Models and keys"], ["notes", "Vaults of notes"], ["memory", "Memory"], ["usage", "Usage and cost"],
      ["teams", "Teams"], ["page", "Page"]]
      .map(([tab, label]) => ({ label: `Settings: ${label}`, run: () => go(`#/settings/${tab}`) })),
  ];
  const session = current.value;
  if (!view || !session) return always;
  return [
    ...(view.feed.value && canStop(view.feed.value.state.value) ? [{ label: "Stop the turn", run: () => attempt(view.actions.stop) }] : []),
    ...always,
    ...["preview", "changes", "agents", "notes"].map((name) => ({ label: `Show ${name}`, run: () => openPane(name) })),
    ...sessionCommands(session, view.actions).map(({ label, run }) => ({ label: `${label} session`, run: () => attempt(async () => run()) })),
  ];
}

