// @ts-check
// The warning of a folder for a new session that has more than a project.

import { escapeHidden } from "../text/hidden_characters.js";

/** A warning if the folder is the home folder or contains it. @param {{given: string, home: string}} props */
export function WideFolder({ given, home }) {
  const folder = given.replace(/^~(?=\/|$)/, home).replace(/\/+$/, "");
  if (!home || !(given.startsWith("/") || given.startsWith("~")) || !`${home}/`.startsWith(`${folder}/`)) return null;
  const all = folder === home ? "in your home folder" : `in ${escapeHidden(folder || "/")}, your home folder included`;
  return `The agent could read and change everything ${all}. Better choose the folder of one project.`;
}
