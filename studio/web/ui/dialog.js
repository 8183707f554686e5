// @ts-check
// Questions of the page itself, in a dialog: to confirm what cannot be undone, or to type a name. Enter alone confirms
// nothing: without a field the focus is on Cancel. Going elsewhere, for example by the browser's Back, cancels.

import { effect, html, useLayoutEffect, useRef, useSignal } from "../vendor/preact.js";
import { asked } from "../state/asked.js";
import { route } from "../state/route.js";
import { showStatus } from "../state/studio.js";
import { escapeHidden } from "../text/hidden_characters.js";

export function Dialog() {
  const question = asked.value;
  const box = useRef(/** @type {HTMLDialogElement|null} */ (null));
  const field = useRef(/** @type {HTMLInputElement|null} */ (null));
  const choice = useRef(/** @type {HTMLSelectElement|null} */ (null));
  const failure = useSignal(/** @type {any} */ (null));
  const acting = useSignal(/** @type {object|null} */ (null)); // the question that is acted on
  const end = (/** @type {string|null} */ answer) => {
    if (asked.peek() === question) asked.value = null;
    question?.resolve(answer);
  };
  useLayoutEffect(() => {
    failure.value = null;
    if (!question) return undefined;
    if (field.current) field.current.value = question.field?.value ?? "";
    box.current?.showModal();
    field.current?.select();
    const here = route.peek();
    return effect(() => { if (route.value !== here) end(null); });
  }, [question]);
  useLayoutEffect(() => {
    const dialog = box.current;
    return () => dialog?.close(); // gives the focus back, which a removed dialog does not
  }, []);
  if (!question) return null;
  const submit = async (/** @type {import("../state/asked.js").Act} */ act) => {
    if (acting.value === question) return;
    const answer = field.current?.value ?? "";
    acting.value = question;
    failure.value = null;
    try {
      await act(answer, choice.current?.value ?? "");
      end(answer);
    } catch (error) {
      if (asked.value === question) failure.value = error;
      else showStatus(/** @type {Error} */ (error).message); // the dialog is closed already
      field.current?.focus();
    } finally {
      if (acting.value === question) acting.value = null;
    }
  };
  const { act = () => {}, otherwise } = question;
  return html`<dialog ref=${box} aria-labelledby="dialog-title" onClose=${() => end(null)}>
    <form method="dialog" onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); submit(act); }}>
      <h2 id="dialog-title">${question.title}</h2>
      ${question.text && html`<p>${question.text}</p>`}
      ${question.choice && html`<label>${question.choice.label}
        <select ref=${choice}>${question.choice.options.map((each) => html`<option key=${each} value=${each}>${escapeHidden(each)}</option>`)}</select></label>`}
      ${question.field && html`<label>${question.field.label}
        <input ref=${field} autofocus type=${question.field.type ?? "text"} maxlength=${question.field.maxLength}
          autocomplete="off" spellcheck=${false} /></label>`}
      ${failure.value && html`<p class="error" role="alert">${failure.value.message}</p>`}
      <p class="buttons">
        <button type="submit" class=${question.isDangerous ? "main dangerous" : "main"}>${question.action}</button>
        ${otherwise && failure.value?.code === otherwise.code && html`<button type="button" onClick=${() => submit(otherwise.act)}>${otherwise.action}</button>`}
        <button type="button" autofocus=${!question.field} onClick=${() => end(null)}>Cancel</button>
        ${acting.value === question && html`<span class="note" role="status">Waiting for the studio…</span>`}
      </p>
    </form>
  </dialog>`;
}
