// @ts-check
// `@` in the message box: paths of the session's folder, or of that of a session to come, completed while they are typed.

import { html, useEffect, useLayoutEffect, useRef, useState } from "../vendor/preact.js";
import { api } from "../net/api.js";
import { writeDraft } from "../state/drafts.js";
import { escapeHidden } from "../text/hidden_characters.js";

const SEARCH_DELAY_MS = 120;
const MAX_FILES = 8;
const MENTION = /(?:^|\s)@(\S*)$/;

/** @typedef {{update: () => void, close: () => void, handleKey: (event: KeyboardEvent) => boolean}} Completion what the box calls */

/**
 * The list of paths. `completion.current` is what the box calls on keys and changes, `active` the id of the chosen path.
 * @param {{sessionId: string|null, workspace: string, box: {current: HTMLTextAreaElement|null}, draft: import("../state/drafts.js").Draft,
 *   completion: {current: Completion|null}, active: import("../vendor/preact.js").Signal<string|undefined>}} props
 */
export function Mentions({ sessionId, workspace, box, draft, completion, active }) {
  const [files, setFiles] = useState(/** @type {{path: string, secret: boolean}[]} */ ([]));
  const [at, setAt] = useState(0);
  const search = useRef(/** @type {{timer?: ReturnType<typeof setTimeout>, abort?: AbortController}} */ ({}));

  const close = () => {
    clearTimeout(search.current.timer);
    search.current.abort?.abort();
    setFiles([]);
  };

  /** Look for the path at the caret, if there is one. */
  const update = () => {
    const words = wordsAtCaret(box.current);
    if (words === null) return close();
    clearTimeout(search.current.timer);
    search.current.timer = setTimeout(async () => {
      search.current.abort?.abort();
      const abort = search.current.abort = new AbortController();
      const query = new URLSearchParams({ q: words, limit: String(MAX_FILES) });
      if (sessionId === null && workspace) query.set("workspace", workspace);
      const path = sessionId === null ? "api/folders/files" : `api/sessions/${sessionId}/files`;
      try {
        setFiles((await api(`${path}?${query}`, { signal: abort.signal })).files);
        setAt(0);
      } catch {
        if (!abort.signal.aborted) setFiles([]); // the path can be typed without help
      }
    }, SEARCH_DELAY_MS);
  };

  const choose = (/** @type {string} */ path) => {
    const field = box.current;
    if (!field) return;
    const caret = field.selectionStart;
    const before = draft.text.value.slice(0, caret).replace(/@\S*$/, `@${path} `);
    writeDraft(sessionId, before + draft.text.value.slice(caret));
    close();
    requestAnimationFrame(() => { field.focus(); field.setSelectionRange(before.length, before.length); });
  };

  /** Take a key while paths are shown; return whether it was one for them. */
  const handleKey = (/** @type {KeyboardEvent} */ event) => {
    if (!files.length || event.ctrlKey || event.metaKey || event.altKey) return false;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      setAt((at + (event.key === "ArrowDown" ? 1 : -1) + files.length) % files.length);
    } else if (event.key === "Enter" || event.key === "Tab") choose(files[Math.min(at, files.length - 1)].path);
    else if (event.key === "Escape") {
      event.stopPropagation();
      close();
    } else return false;
    event.preventDefault();
    return true;
  };

  completion.current = { update, close, handleKey };
  useLayoutEffect(() => { active.value = files.length ? `mention-${at}` : undefined; });
  useEffect(() => {
    if (document.activeElement === box.current) update(); // for what was typed before this module was loaded
    return () => { completion.current = null; active.value = undefined; };
  }, []);
  return files.length > 0 && html`<ul id="mentions" role="listbox" aria-label="Files">
    ${files.map(({ path, secret }, index) => html`<li key=${path} id=${`mention-${index}`} role="option" aria-selected=${index === at}
      onMouseDown=${(/** @type {Event} */ event) => { event.preventDefault(); choose(path); }}>${escapeHidden(path)}
      ${secret && html`<small> reading it asks you</small>`}</li>`)}
  </ul>`;
}

/** Return what stands between an `@` and the caret, null without one. */
function wordsAtCaret(/** @type {HTMLTextAreaElement|null} */ box) {
  if (!box || box.selectionStart !== box.selectionEnd) return null;
  return MENTION.exec(box.value.slice(0, box.selectionStart))?.[1] ?? null;
}
