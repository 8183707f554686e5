// @ts-check
// Notes of the vaults, read from the studio.

import { escapeHidden } from "../text/hidden_characters.js";
import { api, encodedPath } from "./api.js";

/** Return a note of the vault with that id or name. */
export async function readNote(/** @type {string} */ name, /** @type {string} */ path) {
  const { vaults } = await api("api/vaults"); // a name may have characters that a route cannot
  const vault = vaults.find((each) => each.id === name || each.name === name);
  if (!vault) throw new Error(`There is no vault ${escapeHidden(name)} any more.`);
  return api(`api/vaults/${vault.id}/notes/${encodedPath(path)}`);
}
