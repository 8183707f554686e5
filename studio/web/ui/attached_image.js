// @ts-check
// An image that was sent or read, small, in a link that opens it whole in a tab of its own.

import { html, useEffect, useState } from "../vendor/preact.js";
import { blob } from "../net/api.js";
import { escapeHidden } from "../text/hidden_characters.js";

/** @param {{sessionId: string, file: import("../state/types.js").Attachment}} props */
export function AttachedImage({ sessionId, file: { name, media_type: type, sha256 } }) {
  const [address, setAddress] = useState(/** @type {string | null} */ (""));
  useEffect(() => {
    const ended = new AbortController();
    let made = "";
    blob(`api/sessions/${sessionId}/attachments/${sha256}`).then((content) => {
      if (ended.signal.aborted) return;
      made = URL.createObjectURL(new Blob([content], { type })); // an image, whatever is in it
      setAddress(made);
    }, () => { if (!ended.signal.aborted) setAddress(null); }); // its name stands below
    return () => {
      ended.abort();
      URL.revokeObjectURL(made);
    };
  }, [sessionId, sha256]);
  if (address === null) return null;
  if (!address) return html`<span class="attached-image"></span>`;
  return html`<a class="attached-image" href=${address} target="_blank" rel="noopener" title="Open in a new tab"><img src=${address} alt=${escapeHidden(name)} /></a>`;
}
