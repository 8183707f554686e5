// @ts-check
// Whether the dialog of Ctrl+K is open, and where the focus was before.

import { signal } from "../vendor/preact.js";

export const isFinderOpen = signal(false);

/** @type {HTMLElement|null} */
let before = null;

export function openFinder() {
  before = /** @type {HTMLElement|null} */ (document.activeElement);
  isFinderOpen.value = true;
}

export function closeFinder() {
  isFinderOpen.value = false;
}

export const giveFocusBack = () => before?.focus?.();
