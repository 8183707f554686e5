// @ts-check
// Why the studio refused something, for people: what a terminal would be told, with what the page can do about it.

import { html, useEffect, useState } from "../vendor/preact.js";
import { models, refreshModels } from "../state/studio.js";
import { keyLink } from "../state/wanted_key.js";
import { escapeHidden } from "../text/hidden_characters.js";

const NEEDS_KEY = /^model (['"])(.+?)\1 needs a key \((.*?)\): /; // agenticx/llms/providers/resolve.py

/** Return what to show for the text of an error. @param {string} text */
export function refusalText(text) {
  const [, , model, why] = NEEDS_KEY.exec(text) ?? [];
  return model ? html`<${MissingKey} model=${model} isUnreadable=${why.includes("cannot be read")} />` : text;
}

/** `isUnreadable`: a key is stored, but cannot be read. @param {{model: string, isUnreadable: boolean}} props */
function MissingKey({ model, isUnreadable }) {
  const name = escapeHidden(model);
  const [isRead, setRead] = useState(false); // the list of models may be older than the refusal
  useEffect(() => { refreshModels().then(() => setRead(true), () => {}); }, []); // without it nothing else is said
  if (isRead && models.value.models.some(({ id, available }) => id === model && available)) return `The model ${name} has a key now. Send the message again.`;
  const cause = isUnreadable ? `The key of the model ${name} cannot be read from the keyring.` : `The model ${name} needs a key.`;
  return html`${cause} <a ...${keyLink(model.split(":")[0])}>${isUnreadable ? "Change key" : "Add key"}</a>`;
}
