// @ts-check
// Copying a text.

/** Copy a text; a browser lets no page do that which comes over plain http from another machine. @param {string} text */
export async function copyText(text) {
  if (!navigator.clipboard) throw new Error("The browser lets no page copy that was loaded over plain http. Select the text and copy it.");
  await navigator.clipboard.writeText(text);
}
