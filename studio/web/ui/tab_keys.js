// @ts-check
// The arrow keys in a list of tabs.

/** Show the tab before or after the one that has the focus. */
export function moveBetweenTabs(/** @type {KeyboardEvent} */ event) {
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!step) return;
  const tab = /** @type {HTMLElement} */ (event.currentTarget);
  const tabs = /** @type {HTMLElement[]} */ ([...(tab.parentElement?.querySelectorAll("[role=tab]") ?? [])]);
  const next = tabs[(tabs.indexOf(tab) + step + tabs.length) % tabs.length];
  next.focus();
  next.click();
}
