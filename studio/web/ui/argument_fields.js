// @ts-check
// Fields in which the arguments of a call are edited, made from the JSON Schema of the tool.

import { html, signal } from "../vendor/preact.js";
import { MANY_MARKS, escapeHidden, hasHidden } from "../text/hidden_characters.js";
import { grow } from "./grow.js";
import { WithCode } from "./reasons.js";
import { useLimit } from "./use_limit.js";

const MAX_SHOWN = 100_000; // characters of a value whose field is there at once: a browser takes long to lay out more
const MAX_EXACT = 10_000; // characters of a value that is shown whole where some are hidden, of others only those lines
const MAX_LINES = 400;
const MAX_REFERENCES = 10;
const NOT_GIVEN = "not given";
const BOOLEANS = [true, false];

/** @typedef {"text" | "number" | "integer" | "choice" | "json"} Kind */

/**
 * Return the fields of arguments and of those that the tool takes besides; `schema` is null if it is not known. `read()`
 * returns the arguments, the unchanged ones as they were; it throws for a text that is no value of its field.
 *
 * @param {Record<string, any>} args @param {any} schema
 */
export function argumentFields(args, schema) {
  const properties = schema?.properties ?? {};
  const names = new Set([...Object.keys(args), ...Object.keys(properties)]);
  const fields = [...names].map((name) => {
    const isGiven = Object.hasOwn(args, name);
    const own = Object.hasOwn(properties, name) ? resolved(properties[name], schema) : null;
    return newField(name, args[name], own, { isGiven, isRequired: schema?.required?.includes(name) ?? isGiven });
  });
  const read = () => {
    const read = fields.map((field) => /** @type {const} */ ([field.name, readField(field)]));
    return Object.fromEntries(read.filter(([, value]) => value !== undefined));
  };
  return { fields, read };
}

/** Return the texts of the fields that were changed, by name. @param {ReturnType<typeof argumentFields>} fields */
export const changedTexts = ({ fields }) =>
  Object.fromEntries(fields.map((field) => [field.name, changedText(field)]).filter(([, text]) => text !== null));

/** Give fields the texts that `changedTexts` returned. @param {ReturnType<typeof argumentFields>} fields @param {Record<string, string>} texts */
export function changeTexts({ fields }, texts) {
  for (const field of fields) {
    if (!Object.hasOwn(texts, field.name)) continue;
    field.text.value = texts[field.name];
    field.isShown.value = true;
  }
}

/** @param {string} name @param {any} value @param {any} schema @param {{isGiven: boolean, isRequired: boolean}} options */
function newField(name, value, schema, { isGiven, isRequired }) {
  const [kind, choices] = kindOf(schema, value);
  const given = givenText(kind, choices, value);
  return {
    name, value, kind, choices, isGiven, isRequired, given, description: String(schema?.description ?? ""),
    text: signal(given), isShown: signal(given.length <= MAX_SHOWN && given.search(MANY_MARKS) < 0), unchanged: /** @type {string | null} */ (null),
  };
}

/** @param {Kind} kind @param {any[]} choices @param {any} value @returns {string} */
function givenText(kind, choices, value) {
  if (value === undefined || (value === null && kind !== "json")) return "";
  if (kind === "choice") return String(choices.indexOf(value));
  return kind === "text" ? value : JSON.stringify(value, null, 2);
}

/** Return a part of a schema without references, and without the null that it may also be. @param {any} part @param {any} schema */
function resolved(part, schema) {
  let found = part ?? {};
  for (let step = 0; typeof found.$ref === "string" && step < MAX_REFERENCES; step += 1) {
    const { $ref, ...rest } = found;
    found = { ...schema.$defs?.[$ref.replace("#/$defs/", "")], ...rest };
  }
  const { anyOf, ...rest } = found;
  const others = anyOf?.filter((/** @type {any} */ each) => each.type !== "null") ?? [];
  return others.length === 1 ? { ...resolved(others[0], schema), ...rest } : found;
}

/**
 * Return how a value is edited, and the values of a choice: as the schema says if the value is of that type, else by
 * the type of the value.
 * @param {any} schema @param {any} value @returns {[Kind, any[]]}
 */
function kindOf(schema, value) {
  const isOpen = schema !== null && (value ?? null) === null;
  const type = schema === null ? typeof value : schema.type;
  const choices = schema?.enum ?? (type === "boolean" ? BOOLEANS : []);
  if (choices.length && (isOpen || choices.includes(value))) return ["choice", choices];
  if ((type === "number" || type === "integer") && (isOpen || typeof value === "number")) return [type, []];
  return [typeof value === "string" || (isOpen && type === "string") ? "text" : "json", []];
}

/** @typedef {ReturnType<typeof newField>} Field */

/** Return the text of a field that was changed, null for others. */
function changedText(/** @type {Field} */ { text, unchanged }) {
  const { value } = text; // read always, as a signal is followed by those who have read it
  return unchanged === null || value === unchanged ? null : value;
}

/** Return the value of a field, undefined for an argument that is not given. */
function readField(/** @type {Field} */ field) {
  const { name, value, kind, choices, isRequired, isGiven } = field;
  const text = changedText(field);
  if (text === null) return value;
  if (kind === "text") return text === "" && !isGiven ? undefined : text;
  if (!text.trim() && !isRequired) return undefined;
  if (kind === "choice") return choices[Number(text)];
  if (kind === "json") return readJson(name, text);
  const number = text.trim() ? Number(text) : NaN;
  if (!Number.isFinite(number)) throw new Error(`${name} has to be a number, not “${text}”.`);
  if (kind === "integer" && !Number.isSafeInteger(number)) throw new Error(`${name} has to be a whole number, not “${text}”.`);
  return number;
}

function readJson(/** @type {string} */ name, /** @type {string} */ text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`${name} is no JSON: ${/** @type {Error} */ (error).message}`);
  }
}

/** Those that are not given are folded below `folded`, if that is a text. @param {{fields: ReturnType<typeof argumentFields>, folded?: string}} props */
export function ArgumentFields({ fields: { fields }, folded = "" }) {
  const others = fields.filter(({ isGiven }) => !isGiven);
  const views = (/** @type {Field[]} */ some) => some.map((field) => html`<${FieldView} key=${field.name} field=${field} />`);
  return html`<div class="fields">${views(fields.filter(({ isGiven }) => isGiven))}
    ${others.length > 0 && (folded ? html`<details><summary>${folded}</summary>${views(others)}</details>`
      : html`<p class="note">The agent has not given:</p>${views(others)}`)}</div>`;
}

/** @param {{field: Field}} props */
function FieldView({ field }) {
  const label = escapeHidden(field.kind === "json" ? `${field.name} (JSON)` : field.name);
  const hidden = field.kind !== "choice" && html`<${Hidden} name=${label} text=${changedText(field) ?? field.given} />`;
  if (!field.isShown.value) {
    return html`<p class="note">${label}: ${field.given.length.toLocaleString("en")} characters, as they were.
      <button type="button" onClick=${() => { field.isShown.value = true; }}>Edit ${label}</button></p>${hidden}`;
  }
  return html`<label>
      ${label}
      <${Input} field=${field} />
      ${field.description && html`<span class="note"><${WithCode} text=${field.description} /></span>`}
    </label>
    ${hidden}`;
}

/** @param {{field: Field}} props */
function Input({ field }) {
  const { kind, choices, isGiven, isRequired } = field;
  const prepared = (/** @type {any} */ element) => prepare(element, field);
  const write = (/** @type {any} */ event) => { field.text.value = event.currentTarget.value; };
  const writeText = (/** @type {any} */ event) => {
    write(event);
    grow(event.currentTarget);
  };
  const placeholder = isGiven ? undefined : NOT_GIVEN;
  if (kind === "choice") {
    return html`<select ref=${prepared} onChange=${write}>
      ${!(isRequired && isGiven) && html`<option value="">${NOT_GIVEN}</option>`}
      ${choices.map((choice, index) => html`<option key=${index} value=${String(index)}>${escapeHidden(String(choice))}</option>`)}
    </select>`;
  }
  if (kind === "number" || kind === "integer") {
    return html`<input ref=${prepared} inputmode=${kind === "integer" ? "numeric" : "decimal"} autocomplete="off" placeholder=${placeholder} onInput=${write} />`;
  }
  return html`<textarea spellcheck=${false} rows="1" ref=${prepared} placeholder=${placeholder} onInput=${writeText}></textarea>`;
}

/** A text as it is sent, if the field does not show all of its characters. */
function Hidden({ name, text }) {
  const isHidden = hasHidden(text);
  const isWhole = text.length <= MAX_EXACT;
  const lines = !isHidden ? [] : isWhole ? text.split("\n") : text.split("\n").filter(hasHidden);
  const [shown, more] = useLimit(lines, MAX_LINES, "lines");
  if (!isHidden) return null;
  return html`<div class="hidden-characters">
    <p class="error">${name} has characters that a field does not show as they are. ${isWhole ? "This is it exactly:" : "These are its lines that have them:"}</p>
    <pre tabindex="0" aria-label=${`${name}, exactly`}>${escapeHidden(shown.join("\n"))}</pre>
    ${more}
  </div>`;
}

/**
 * Give a field its text; what it has at first is the unchanged text, as fields change line ends.
 * @param {HTMLTextAreaElement | HTMLInputElement | HTMLSelectElement | null} element @param {Field} field
 */
function prepare(element, field) {
  if (!element || element.dataset.isPrepared) return;
  element.dataset.isPrepared = "true";
  const text = field.text.peek();
  if (field.unchanged === null) {
    element.value = field.given;
    field.unchanged = element.value;
  }
  element.value = text;
  if (element instanceof HTMLTextAreaElement) {
    element.setSelectionRange(0, 0); // long ones are read from their beginning
    grow(element);
  }
  field.text.value = element.value;
}
