// @ts-check
// What the last rewind of each session did with files: its event does not have it, and a reload keeps it.

import { signal } from "../vendor/preact.js";
import { saveText, storedText } from "./drafts.js";

/** @typedef {{path: string, outcome: string, reason: string|null}} RewoundFile */

const changes = signal(0); // rewinds of this page

const keyOf = (/** @type {string} */ sessionId) => `${sessionId}.rewound`;

/** Keep what a rewind has answered. @param {string} sessionId @param {{rewound_to: string|null, undo: {message_id: string|null}}} answer @param {RewoundFile[]} files */
export function keepRewind(sessionId, { rewound_to: to, undo }, files) {
  saveText(keyOf(sessionId), files.length ? JSON.stringify({ to, undo: undo.message_id, files }) : "");
  changes.value += 1;
}

/** Return the files of a rewind, none if it is not the last one. @param {string} sessionId @param {any} rewind @returns {RewoundFile[]} */
export function rewoundFiles(sessionId, { rewound_to, undo }) {
  void changes.value;
  const kept = JSON.parse(storedText(keyOf(sessionId)) || "{}");
  return kept.files && kept.to === rewound_to ? kept.files : [];
}

/** Say what happened to a file. @param {RewoundFile} file */
export const fileText = ({ path, outcome, reason }) => reason ? `${path}: ${reason}` : `${path} was ${outcome}.`;
