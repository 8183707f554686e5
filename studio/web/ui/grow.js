// @ts-check
// Fields that are as high as their text, in browsers without `field-sizing`.

const DOES_IT = CSS.supports("field-sizing", "content"); // the browser, as the styles say

/** Let a field be as high as its text; its styles say how high at most. */
export function grow(/** @type {HTMLTextAreaElement|null} */ box) {
  if (!box || DOES_IT) return;
  box.style.height = "auto";
  box.style.height = `${box.scrollHeight + 2}px`;
}
