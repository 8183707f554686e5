// @ts-check
// The files of a message before it is sent: read, and checked against the limits of the server, which also checks what
// the page cannot and says so in its error.

import { escapeHidden } from "../text/hidden_characters.js";

/** @typedef {import("./drafts.js").File} Attachment */

const MiB = 1024 * 1024;
const MAX_FILES = 20;
const MAX_TOTAL_BYTES = 16 * MiB;
/** @type {Record<string, {maxBytes: number, label: string}>} */
const KINDS = {
  image: { maxBytes: 5 * MiB, label: "an image" },
  document: { maxBytes: 12 * MiB, label: "a PDF" },
  text: { maxBytes: 512 * 1024, label: "a text file" },
};
/** @type {[string, RegExp][]} */
const SIGNATURES = [["image", /^\x89PNG\r\n|^\xff\xd8\xff|^GIF8[79]a|^RIFF[^]{4}WEBP/], ["document", /^%PDF-/]];

const MAX_NAME_CHARS = 255;
const REFUSED_IN_NAMES = /[\0-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]/u; // as in agenticx/attachments.py

/** @type {Promise<void>} */
let reading = Promise.resolve();

/** Resolves when all files are read that were attached before. */
export const allRead = () => reading;

/** Attach files to a draft, one after the other; those that cannot be are left out and the first error is shown. */
export function attachFiles(/** @type {import("./drafts.js").Draft} */ draft, /** @type {globalThis.File[]} */ files) {
  const read = draft.files; // those of the message that is written now
  reading = reading.then(async () => {
    draft.error.value = "";
    for (const file of files) {
      try {
        read.value = [...read.value, await readOne(file, read.value)];
      } catch (error) {
        draft.error.value ||= error instanceof Error ? error.message : String(error);
      }
    }
  });
  return reading;
}

/** @param {globalThis.File} file @param {Attachment[]} others @returns {Promise<Attachment>} */
async function readOne(file, others) {
  const { name, size } = file;
  const shown = escapeHidden(name);
  if (REFUSED_IN_NAMES.test(name)) {
    throw new Error(`${shown} cannot be attached: its name has control characters or marks that reverse text. Rename the file.`);
  }
  if ([...name].length > MAX_NAME_CHARS) throw new Error(`${shown} cannot be attached: its name has more than ${MAX_NAME_CHARS} characters.`);
  const { maxBytes, label } = KINDS[await kindOf(file)];
  if (size > maxBytes) throw new Error(`${shown} has ${formatSize(size)}; ${label} may have ${formatSize(maxBytes)}.`);
  if (others.length >= MAX_FILES) throw new Error(`${shown} is one too many: a message may have ${MAX_FILES} files.`);
  if (others.reduce((sum, other) => sum + other.size, size) > MAX_TOTAL_BYTES) {
    throw new Error(`${shown} does not fit: the files of a message may have ${formatSize(MAX_TOTAL_BYTES)} in total.`);
  }
  return { name, media_type: file.type || null, size, data: await base64(file) };
}

/** The name and size of a file, on one line. */
export const fileLabel = (/** @type {{name: string, size: number}} */ { name, size }) => `${name} (${formatSize(size)})`;

/** Return the files of a paste, none for rich text: office programs add a picture of the text. */
export function pastedFiles(/** @type {DataTransfer} */ clipboard) {
  const isText = ["text/plain", "text/html"].every((type) => clipboard.types.includes(type));
  return isText ? [] : [...clipboard.files];
}

/** Return the address of an image that was attached, to be revoked; null for another file. */
export function imageAddress(/** @type {Attachment} */ { data, media_type: type }) {
  if (!/^image\/(png|jpeg|gif|webp)$/.test(type ?? "")) return null;
  const bytes = Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
  return URL.createObjectURL(new Blob([bytes], { type: type ?? "" }));
}

export function formatSize(/** @type {number} */ bytes) {
  if (bytes < 1024) return `${bytes} byte${bytes === 1 ? "" : "s"}`;
  const [unit, size] = bytes < MiB ? ["KiB", bytes / 1024] : ["MiB", bytes / MiB];
  return `${Number.isInteger(size) ? size : (Math.ceil(size * 100) / 100).toFixed(2)} ${unit}`;
}

async function kindOf(/** @type {globalThis.File} */ file) {
  try {
    const start = String.fromCharCode(...new Uint8Array(await file.slice(0, 12).arrayBuffer()));
    return SIGNATURES.find(([, pattern]) => pattern.test(start))?.[0] ?? "text";
  } catch {
    throw new Error(`${escapeHidden(file.name)} cannot be read; folders cannot be attached.`);
  }
}

/** Return the bytes of a file in base64. @param {globalThis.File|Blob} file @returns {Promise<string>} */
export function base64(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => {
      const address = String(reader.result);
      resolve(address.slice(address.indexOf(",") + 1));
    };
    reader.onerror = () => reject(new Error(`${"name" in file ? escapeHidden(file.name) : "The file"} cannot be read.`));
    reader.readAsDataURL(file);
  });
}
