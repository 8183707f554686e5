// @ts-check
// When the person last typed or pointed, since the page was opened.

/**
 * `isTouch` is of the last key or pointer: a touch screen shows its keyboard when a field gets the focus. `isByPage` while
 * the focus moves without the person.
 */
export const lastInput = { at: -Infinity, isTouch: false, isByPage: false };

/** Move the focus as the person did not ask for. */
export function moveFocus(/** @type {HTMLElement} */ element) {
  lastInput.isByPage = true;
  element.focus({ preventScroll: true });
  lastInput.isByPage = false;
}

/** The session whose decision gets the focus when it is shown, as the person went there for it. @type {{sessionId: string|null}} */
export const wantedDecision = { sessionId: null };

for (const type of ["keydown", "input", "pointerdown"]) {
  addEventListener(type, (event) => {
    lastInput.at = performance.now();
    if (type !== "input") lastInput.isTouch = event instanceof PointerEvent && event.pointerType === "touch";
  }, { capture: true, passive: true });
}

/** Whether a key writes something, for example by an input method; a space alone scrolls. */
export function isTyped(/** @type {KeyboardEvent} */ event) {
  const { key } = event;
  if (key === "Dead" || key === "Process" || event.getModifierState("AltGraph")) return true;
  return (event.ctrlKey || event.metaKey) ? key.toLowerCase() === "v" : key !== " " && [...key].length === 1;
}

/** Whether what is typed there is for it: a key has no other meaning then. */
export const isField = (/** @type {EventTarget | null} */ target) => target instanceof HTMLElement
  && (target.isContentEditable || target.matches("input:not([type=checkbox], [type=radio]), textarea, select"));
