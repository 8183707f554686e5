// @ts-check
// Copying a text.

/** Copy a text. @param {string} text */
export async function copyText(text) {
  if (navigator.clipboard) await navigator.clipboard.writeText(text);
  else if (!copyAsSelection(text)) throw new Error("The browser did not copy the text. Select it and copy it.");
}

/** Copy as the person does who selects a text: pages over plain http from another machine have no other way. @param {string} text */
function copyAsSelection(text) {
  const copy = (/** @type {ClipboardEvent} */ event) => {
    event.clipboardData?.setData("text/plain", text);
    event.preventDefault();
    event.stopPropagation();
  };
  addEventListener("copy", copy, { capture: true });
  try {
    return document.execCommand("copy");
  } finally {
    removeEventListener("copy", copy, { capture: true });
  }
}
