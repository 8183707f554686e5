// The entry of the page: signs the tab in and shows the studio.

import { html, render } from "./vendor/preact.js";
import { shareToken, signIn } from "./net/api.js";
import { saveDrafts } from "./state/drafts.js";
import "./state/input.js"; // listens from the beginning
import { readLocation } from "./state/route.js";
import { App } from "./ui/app.js";
import { loadParts } from "./ui/lazy.js";

async function begin() {
  const ticket = readLocation();
  render(html`<${App} />`, /** @type {HTMLElement} */ (document.getElementById("app")));
  await signIn(ticket);
  shareToken();
  await loadParts();
}

addEventListener("hashchange", async () => {
  const ticket = readLocation();
  if (ticket !== null) await signIn(ticket);
});
addEventListener("pagehide", saveDrafts);

begin().catch(reportError);
