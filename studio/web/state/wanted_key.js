// @ts-check
// The provider whose key is to be typed in the settings.

import { effect, signal } from "../vendor/preact.js";
import { go, route } from "./route.js";

/**
 * The provider, "" for one that the person chooses there, null for none. It is in no address, so that only the page itself
 * asks for a key, never a link to it.
 * @type {import("../vendor/preact.js").Signal<string|null>}
 */
export const wantedKey = signal(null);

effect(() => { // the person left before the keys were known
  const at = route.value;
  if (at.name !== "settings" || at.tab !== "models") wantedKey.value = null;
});

/** Show the field for the key of a provider, or of one that is chosen there. */
export function openKeyField(provider = "") {
  wantedKey.value = provider;
  go("#/settings/models");
}

/** Return the properties of a link to that field. */
export const keyLink = (provider = "") => ({
  href: "#/settings/models",
  onClick: (/** @type {Event} */ event) => {
    event.preventDefault();
    openKeyField(provider);
  },
});
