// The AGENTS.md files of a session whose content the user has not trusted: in its header, where they can be.

import { make } from "./elements.js";
import { escapeHidden } from "./hidden_characters.js";

const SHOWN_DIGITS = 12; // of a digest

export class TrustNotice {
  /** Show the files of the current session that are not trusted in `list`. */
  constructor(list, { api, json, sessionId, showStatus }) {
    Object.assign(this, { list, api, json, sessionId, showStatus });
  }

  /** Load the files of the current session and show those that are not trusted. */
  async refresh() {
    const id = this.sessionId();
    this.show(id, await this.api(`api/sessions/${id}/trust`));
  }

  show(id, { files }) {
    if (id !== this.sessionId()) return;
    const untrusted = files.filter(({ trusted }) => !trusted);
    this.list.replaceChildren(...untrusted.map((file) => this.row(id, file)));
    this.list.hidden = !untrusted.length;
  }

  row(id, { path, sha256 }) {
    const row = make("li"), name = escapeHidden(path);
    row.append(`${name} (sha256 ${sha256.slice(0, SHOWN_DIGITS)}…) is not trusted: while it is in the prompt, `
      + "calls that run code outside of a sandbox or send data are asked about. ");
    const button = row.appendChild(make("button", "", `Trust ${name}`));
    button.type = "button";
    button.title = "Read the file first. Its content is trusted, in all sessions, until it changes.";
    button.addEventListener("click", async () => {
      button.disabled = true;
      try {
        this.show(id, await this.api(`api/sessions/${id}/trust`, this.json("POST", { sha256 })));
      } catch (error) { // for example, the file has changed
        this.showStatus(error.message);
        await this.refresh().catch(() => {});
      }
    });
    return row;
  }
}
