// How this browser shows the page.

import { html, useSignal } from "../vendor/preact.js";
import { preferences, setPreferences } from "../state/preferences.js";
import { allowNotifications } from "./notifications.js";

export function PageSettings() {
  const refused = useSignal(false);
  const { enterSends, notify } = preferences.value;
  const setNotify = async ({ target }) => {
    const isWanted = target.checked;
    const isAllowed = !isWanted || await allowNotifications();
    refused.value = !isAllowed;
    target.checked = isWanted && isAllowed;
    setPreferences({ notify: isWanted && isAllowed });
  };
  return html`<h2>Page</h2>
    <label class="inline"><input type="checkbox" checked=${enterSends} onChange=${({ target }) => setPreferences({ enterSends: target.checked })} />
      Enter sends, Shift+Enter breaks the line</label>
    <label class="inline"><input type="checkbox" checked=${notify} onChange=${setNotify} />
      Notify me when a decision is needed and this tab is hidden (with the tool and the session's name)</label>
    ${refused.value && html`<p class="error" role="alert">The browser does not let this page notify you; its settings for this address can.</p>`}`;
}
