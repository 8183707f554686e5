// @ts-check
// Keeps the focus near the place where it was when what has it is removed, hidden or disabled, so that no key is lost. It moves
// to a text, a heading or the message box, and to no button that a key still held down would press. An Enter that was meant
// for what is gone does not send the message either. It listens when imported.

import { isField, lastInput, moveFocus } from "../state/input.js";

const ITEMS = "li, tr, .card, .grid-item, .option-state"; // texts with buttons
const OPENERS = ".collapse, .expand, #sessions [aria-current]"; // in the list of sessions: they show it, hide it, or lead back
const MEANT_MS = 800; // in which an Enter is meant for what had the focus before: longer than it takes to see that it is gone

/** What has the focus, or had it last. @type {Element|null} */
let last = document.activeElement;

/** Return whether an element can have the focus. */
const isUsable = (/** @type {Element} */ element) => element.checkVisibility() && !element.matches(":disabled, [inert], [inert] *");

new MutationObserver((records) => {
  const { activeElement: active } = document;
  if (!last || last === document.body || (active !== last && active !== document.body)) return;
  const element = last;
  const isKept = !records.some(({ type }) => type === "attributes") || isUsable(element);
  if (isKept && active === element) return;
  const removal = records.findLast(({ removedNodes }) => [...removedNodes].some((node) => node.contains(element)));
  if (isKept && !removal) return;
  const place = element.isConnected && isUsable(element) ? element : placeNear(element, removal); // it was moved in its list
  last = null;
  if (place && !(isField(place) && lastInput.isTouch)) focusPlace(place); // on a touch screen a field shows the keyboard
}).observe(document.body, { subtree: true, childList: true, attributeFilter: ["hidden", "disabled", "data-screen"] });

function focusPlace(/** @type {Element} */ place) {
  const isText = !place.matches("[tabindex], textarea, button, a");
  if (isText) place.setAttribute("tabindex", "-1");
  moveFocus(/** @type {HTMLElement} */ (place));
  if (isText) place.addEventListener("blur", () => place.removeAttribute("tabindex"), { once: true });
}

/** Return what takes the focus: an item beside it, what it was in, else the main part of the page. @param {Element} element @param {MutationRecord} [removal] */
function placeNear(element, removal) {
  const parent = /** @type {Element|null} */ (removal?.target ?? element.parentElement);
  const { nextSibling = null, previousSibling = null } = removal ?? {};
  const beside = [nextSibling, previousSibling, parent?.lastElementChild].filter((node) => node instanceof Element && node.matches("li, tr"));
  const list = element.matches(".show-more") && previousSibling instanceof Element ? [previousSibling] : []; // which is complete now
  const part = parent?.closest(".dock")?.querySelector("h2") ?? parent?.closest("#pane");
  const main = [document.getElementById("input"), document.querySelector("main h1[tabindex]")], openers = [...document.querySelectorAll(OPENERS)];
  const screen = parent?.closest("nav[data-region]") ? [...openers, ...main] : [...main, ...openers];
  const places = [...list, ...beside, parent?.closest(ITEMS), part, ...screen];
  return /** @type {Element|undefined} */ (places.find((place) => place instanceof Element && place.isConnected && isUsable(place)));
}

const note = () => { last = document.activeElement; };
for (const type of ["focusin", "pointerup", "click"]) document.addEventListener(type, note, { capture: true }); // a click beside it takes the focus away
addEventListener("blur", () => { if (document.activeElement?.localName === "iframe") note(); });

let meantUntil = -Infinity, isHeldElsewhere = false;
const isBox = (/** @type {EventTarget|null} */ target) => target === document.getElementById("input");
document.addEventListener("focusin", ({ target }) => {
  if (isBox(target) && lastInput.isByPage) meantUntil = performance.now() + MEANT_MS;
});
const use = () => { meantUntil = -Infinity; }; // something is done after the focus has moved
document.addEventListener("input", ({ target }) => { if (isBox(target)) use(); });
for (const type of ["pointerdown", "click"]) document.addEventListener(type, use, { capture: true });
document.addEventListener("keydown", (event) => {
  const { key, repeat, target, timeStamp } = event;
  if (!repeat) isHeldElsewhere = !isBox(target);
  if (key !== "Enter" || !isBox(target) || (timeStamp >= meantUntil && !(repeat && isHeldElsewhere))) return;
  event.preventDefault();
  event.stopPropagation();
  if (timeStamp < meantUntil) meantUntil = timeStamp + MEANT_MS; // one of many
}, { capture: true });
