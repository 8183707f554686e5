// @ts-check
// The files that are attached to the message in the box.

import { html, useEffect, useRef } from "../vendor/preact.js";
import { fileLabel, imageAddress } from "../state/attachments.js";
import { escapeHidden } from "../text/hidden_characters.js";

/** @param {{draft: import("../state/drafts.js").Draft}} props */
export function Attached({ draft }) {
  const files = draft.files.value;
  if (!files.length) return null;
  return html`<ul id="attached" aria-label="Attached files">
    ${files.map((file, index) => html`<li key=${`${index} ${file.name}`}><${Thumbnail} file=${file} />${escapeHidden(fileLabel(file))}
      <button type="button" class="quiet" aria-label=${`Remove ${file.name}`}
        onClick=${() => { draft.files.value = files.filter((other) => other !== file); }}>×</button></li>`)}
  </ul>`;
}

/** @param {{file: import("../state/drafts.js").File}} props */
function Thumbnail({ file }) {
  const image = useRef(/** @type {HTMLImageElement|null} */ (null));
  useEffect(() => {
    const address = imageAddress(file);
    if (image.current && address) image.current.src = address;
    return () => { if (address) URL.revokeObjectURL(address); };
  }, [file]);
  return /^image\/(png|jpeg|gif|webp)$/.test(file.media_type ?? "") ? html`<img ref=${image} alt="" class="thumbnail" />` : null;
}
