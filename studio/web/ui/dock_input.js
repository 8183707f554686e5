// The input that a decision takes: what was meant for it. Nobody answers by a click or a key that was on its way elsewhere.

import { useLayoutEffect, useRef } from "../vendor/preact.js";
import { isField, isTyped, lastInput, moveFocus, wantedDecision } from "../state/input.js";
import { current } from "../state/studio.js";

const GUARD_MS = 500; // in which a new question takes no input: it was meant for what stood there before
const AWAY_MS = 250; // between two looks at whether the person is in another window
const IDLE_MS = 2000; // without input, before the focus moves to a new question
const ROWS = ".dock-buttons, .options"; // of buttons that let a press through while they take none, see the styles
const PRESSED = `button, ${ROWS}`;
const ANSWERING = "button:is(.option, :not(.dock-text *))";
const SHOWING = ".enlarge, .dock-text button:not(.option), .dock-place button:not(.deny-all)"; // buttons that show something
const KEYS = { a: ".allow", s: ".allow-session", e: ".edit-arguments", d: ".deny" };

/** When the focus left the dock, since what it asked was answered there. */
let leftAt = -Infinity;
export const noteLeft = () => { leftAt = performance.now(); };

/**
 * Set the signal once the question has been seen for a moment, also after the person was in another window; `onReturn()` is
 * called then. A click on a button that has just come to its place is no answer either. `data-ready` says that one would be.
 */
export function useGuard(box, isReady, onReturn) {
  useLayoutEffect(() => {
    const dock = /** @type {HTMLElement} */ (box.current);
    let [until, isEarly, isAway] = [Infinity, true, !document.hasFocus()];
    let timer, frame, places = placesOf(dock);
    const waitFrom = (now) => {
      until = now + GUARD_MS;
      clearTimeout(timer);
      dock.removeAttribute("data-ready");
      timer = setTimeout(() => {
        isReady.value = true;
        dock.setAttribute("data-ready", "");
      }, GUARD_MS);
    };
    const hold = () => {
      until = Infinity;
      isReady.value = false;
      dock.removeAttribute("data-ready");
      clearTimeout(timer);
      cancelAnimationFrame(frame);
      frame = requestAnimationFrame(() => waitFrom(performance.now())); // before that nothing is seen
    };
    const look = () => {
      const before = places;
      places = placesOf(dock);
      if (places !== before && until < Infinity) waitFrom(performance.now());
    };
    const goOn = ({ type }) => {
      if (type === "focus" ? !isAway : document.hidden) return; // from a frame of this page; on the way out
      isAway = !document.hasFocus();
      hold();
      onReturn();
    };
    const press = ({ timeStamp, target }) => {
      look();
      isEarly = timeStamp < until;
      if (isEarly && until < Infinity && target.closest(PRESSED)) waitFrom(performance.now()); // one of many clicks at this place
    };
    const keepFocus = (event) => { if (isEarly && event.target.closest(ROWS) && !isField(event.target)) event.preventDefault(); };
    const click = (event) => {
      if (!event.detail || event.target.closest(SHOWING)) return; // a key; or it answers nothing
      if (!isEarly && event.timeStamp >= until) return;
      event.preventDefault();
      event.stopPropagation();
    };
    const sizes = new ResizeObserver(look);
    const column = dock.closest("main") ?? document.body; // what is above and below moves the buttons, too
    for (const each of [...column.children, dock.parentElement, dock, ...dock.children]) if (each) sizes.observe(each);
    const labels = new MutationObserver(look);
    labels.observe(dock, { subtree: true, childList: true, characterData: true });
    const note = () => { isAway ||= !document.hasFocus(); };
    const watching = setInterval(note, AWAY_MS); // a frame of this page loses the focus without an event here
    const ended = new AbortController(), { signal } = ended;
    addEventListener("blur", note, { signal });
    for (const type of ["focus", "pageshow"]) addEventListener(type, goOn, { signal });
    for (const type of ["visibilitychange", "resume"]) document.addEventListener(type, goOn, { signal });
    dock.addEventListener("pointerdown", press, { signal, capture: true });
    dock.addEventListener("mousedown", keepFocus, { signal, capture: true });
    dock.addEventListener("click", click, { signal, capture: true });
    hold();
    return () => {
      ended.abort();
      sizes.disconnect();
      labels.disconnect();
      clearInterval(watching);
      clearTimeout(timer);
      cancelAnimationFrame(frame);
    };
  }, []);
}

/** Return where the buttons are that answer, as a text; what the person scrolls does not move in this sense. */
const placesOf = (dock) => [...dock.querySelectorAll(ANSWERING)].map((button) => {
  let { left, top } = button.getBoundingClientRect();
  for (let at = button.parentElement; at !== dock.parentElement; at = at.parentElement) {
    left += at.scrollLeft;
    top += at.scrollTop;
  }
  return [left, top].map(Math.round);
}).join();

/**
 * Move the focus to the heading: at once if the answer before was just given in the dock, else when nothing was typed for a
 * while and no message is begun. Return a reference to whether the person went to the dock since, as only then its keys
 * answer, and a function to call when the person comes back from another window.
 * `hadFocus` is a reference to whether it had the focus, `isCalled` to whether the person asked for this decision.
 */
export function useFocus(box, hadFocus, isCalled) {
  const isArmed = useRef(false);
  const last = useRef(/** @type {Element | null} */ (null)); // that got the focus
  const move = (isWanted = false) => {
    const heading = /** @type {HTMLElement | null} */ (box.current?.querySelector("h2"));
    if (!heading) return;
    moveFocus(heading);
    last.current = heading; // which hears of it later if the window has no focus
    isArmed.current = isWanted;
  };
  const disarm = () => {
    const { activeElement: active } = document;
    if (box.current?.contains(active) && !isField(active)) move();
    isArmed.current = false;
  };
  useLayoutEffect(() => {
    let timer;
    const look = () => {
      const active = document.activeElement;
      const composer = /** @type {HTMLTextAreaElement | null} */ (document.getElementById("input"));
      const isElsewhere = active && active !== document.body && active !== composer;
      if (isElsewhere || composer?.value || document.querySelector("dialog[open]")) return;
      const left = lastInput.at + IDLE_MS - performance.now();
      if (left > 0) timer = setTimeout(look, left);
      else move();
    };
    last.current = document.activeElement;
    const note = ({ type, target }) => {
      if (type === "focusout") { if (document.hasFocus()) last.current = null; return; } // else the window loses it, and gives it back
      if (target !== document.activeElement) return; // it was moved on meanwhile
      hadFocus.current = box.current?.contains(target) ?? false;
      if (target !== last.current) isArmed.current = hadFocus.current && !lastInput.isByPage;
      last.current = target;
    };
    const called = isCalled.current;
    isCalled.current = false;
    document.addEventListener("focusin", note);
    document.addEventListener("focusout", note);
    const follows = performance.now() - leftAt < IDLE_MS && lastInput.at < leftAt; // calls are asked about one after the other
    if (hadFocus.current || follows) move(called);
    else if (wantedDecision.sessionId !== null && wantedDecision.sessionId === current.value?.id) {
      wantedDecision.sessionId = null;
      requestAnimationFrame(() => { timer = setTimeout(() => move(true)); }); // after the message box
    } else look();
    return () => {
      clearTimeout(timer);
      document.removeEventListener("focusin", note);
      document.removeEventListener("focusout", note);
    };
  }, []);
  return { isArmed, disarm };
}

/**
 * Press the button that a key stands for. Where there is none, or the person did not go to the dock, what is typed goes into
 * a field instead; a key that answers other decisions does nothing in one that has no such button.
 */
export function takeKey(event, isArmed) {
  if (isField(event.target)) return;
  const dock = event.currentTarget, field = dock.querySelector(".answer");
  const isPlain = !event.ctrlKey && !event.metaKey && !event.altKey;
  const selector = isArmed && !field && isPlain && KEYS[event.key.toLowerCase()];
  if (selector) {
    const button = event.repeat ? null : dock.querySelector(selector);
    if (!button) return;
    event.preventDefault();
    button.click();
  } else if (isTyped(event) && !(isArmed && event.key === "?")) { // which shows the list of keys
    event.stopPropagation();
    (field ?? document.getElementById("input"))?.focus(); // the character follows
  }
}
