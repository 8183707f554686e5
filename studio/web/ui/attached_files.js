// @ts-check
// The files of a message or of a result: their names, and what images show.

import { html } from "../vendor/preact.js";
import { fileLabel } from "../state/attachments.js";
import { IMAGES } from "../state/files.js";
import { current } from "../state/studio.js";
import { escapeHidden } from "../text/hidden_characters.js";
import { lazy } from "./lazy.js";

const AttachedImage = lazy(() => import("./attached_image.js"), "AttachedImage", html`<span class="attached-image"></span>`);

/** @param {{files: import("../state/types.js").Attachment[]}} props */
export function AttachedFiles({ files }) {
  const id = current.value?.id;
  return html`${files.map((file) => html`<div class="attached">
    ${id && file.sha256 && IMAGES.has(file.media_type) && html`<${AttachedImage} key=${file.sha256} sessionId=${id} file=${file} />`}
    <p class="note">Attached: ${escapeHidden(fileLabel(file))}</p>
  </div>`)}`;
}
