// @ts-check
// The request for a new session that was not answered: the studio may have made the session or not.

import { KEY, storedText } from "../state/drafts.js";

/** @typedef {{typed: string, fields: Record<string, unknown>, id: string, isRepeated?: true}} Request */

/**
 * Return the request that is stored for a key if it is of this tab, or of a closed tab whose message this one shows; with
 * `fields` only if it has the same team, which a session keeps.
 * @param {string} key @param {string} typed @param {Record<string, unknown>} [fields] @returns {Request|undefined}
 */
export function unanswered(key, typed, fields) {
  /** @type {Request} */
  const request = JSON.parse(storedText(key));
  const isOurs = sessionStorage.getItem(KEY + key) !== null || (request.typed && typed.includes(request.typed));
  const isSame = !fields || fields.team === request.fields.team;
  return isOurs && isSame ? { ...request, isRepeated: true } : undefined;
}
