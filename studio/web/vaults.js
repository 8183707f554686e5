// The vaults of notes: listed in the settings, where they are added, scanned again and forgotten.

import { make } from "./elements.js";
import { escapeHidden } from "./hidden_characters.js";

const POLL_MS = 1000; // while an index is behind
const STATES = { indexing: "being indexed", ready: "up to date", missing: "the folder cannot be read" };
const PROBLEMS = {
  binary: "no text; not indexed",
  control_characters: "has control characters; indexed",
  frontmatter: "its frontmatter is not closed or no valid YAML; indexed without its values",
  name: "its name has control characters or is not valid Unicode; not indexed",
  not_a_file: "no regular file; not indexed",
  not_utf8: "not UTF-8; indexed with replacement characters",
  symlink: "a symbolic link; not followed",
  too_large: "over 8 MB; not indexed",
  unreadable: "cannot be read; not indexed",
};
const count = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
const urlPart = encodeURIComponent;

/** Return whether passages get their vectors now. */
function isBeingEmbedded(embeddings) {
  const { consent, embedded, passages, problem } = embeddings ?? {};
  return (consent === "given" || consent === "not_needed") && embedded < passages && !problem;
}

/** A sentence about the search by meaning in a vault. */
function meaning({ consent, host, model, embedded, passages, problem }) {
  if (consent === "needed") return `To find notes by meaning, their text and questions would be sent to ${host}.`;
  if (consent === "refused") return `Found by words alone: nothing is sent to ${host}.`;
  return problem ?? `${embedded} of ${count(passages, "passage")} also found by meaning, with ${model}.`;
}

export class Vaults {
  /** Show the vaults in `list` while `box` is open; `form` has the fields `path` and `name`. */
  constructor({ box, list, form, error }, { api, json }) {
    Object.assign(this, { box, list, form, error, api, json });
    box.addEventListener("toggle", () => { if (box.open) this.attempt(() => this.refresh()); });
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.attempt(() => this.add());
    });
  }

  /** Return whether one of the vaults with these ids is there; null stands for all vaults. */
  async has(ids) {
    const { vaults } = await this.api("api/vaults");
    return vaults.some(({ id }) => ids === null || ids.includes(id));
  }

  /** Return a note of the vault with that name. */
  async readNote(name, path) {
    const { vaults } = await this.api("api/vaults"); // a name may have characters that a route cannot
    const vault = vaults.find((each) => each.name === name);
    if (!vault) throw new Error(`There is no vault ${escapeHidden(name)} any more.`);
    return this.api(`api/vaults/${vault.id}/notes/${path.split("/").map(urlPart).join("/")}`);
  }

  /** Run an action; show the sentence of its error. */
  async attempt(action) {
    this.error.hidden = true;
    try {
      await action();
    } catch (error) {
      this.error.textContent = error.message;
      this.error.hidden = false;
    }
  }

  async refresh() {
    clearTimeout(this.timer);
    const { vaults } = await this.api("api/vaults");
    this.update(vaults);
    const isBehind = vaults.some(({ state, embeddings }) => state === "indexing" || isBeingEmbedded(embeddings));
    if (isBehind && this.box.open) this.timer = setTimeout(() => this.attempt(() => this.refresh()), POLL_MS);
  }

  async add() {
    const { path, name } = this.form.elements;
    const body = { path: path.value.trim() };
    if (!body.path) return;
    if (name.value.trim()) body.name = name.value.trim();
    await this.api("api/vaults", this.json("POST", body));
    this.form.reset();
    await this.refresh();
  }

  /** Render the vaults; a list that is the same as before is left as it is, for the focus of the keyboard. */
  update(vaults) {
    const content = JSON.stringify(vaults);
    if (content === this.content) return;
    this.content = content;
    const focused = this.list.contains(document.activeElement) ? document.activeElement.dataset.action : null;
    this.list.replaceChildren(...vaults.map((vault) => this.row(vault)));
    if (!vaults.length) this.list.append(make("li", "note", "No vault yet. Add a folder of Markdown or text files."));
    if (focused) this.list.querySelector(`[data-action="${CSS.escape(focused)}"]`)?.focus();
  }

  row(vault) {
    const row = make("li");
    row.append(make("strong", "", escapeHidden(vault.name)));
    row.append(make("span", "note path", escapeHidden(vault.path)));
    row.append(make("span", `note state-${vault.state}`, `${count(vault.notes, "note")}, ${STATES[vault.state]}`));
    const buttons = row.appendChild(make("span", "vault-actions"));
    this.embeddings(row, buttons, vault);
    if (vault.problems) {
      const label = count(vault.problems, "problem");
      const button = this.button(buttons, label, `Show the problems of ${vault.name}`, vault, () => this.showProblems(row, button, vault));
      button.setAttribute("aria-expanded", "false");
    }
    this.button(buttons, "Rescan", `Rescan ${vault.name}`, vault, () => this.rescan(vault));
    this.button(buttons, "Remove", `Remove ${vault.name}`, vault, () => this.remove(vault));
    return row;
  }

  /** Show how far search by meaning is, and let the person say whether the text may be sent to its model. */
  embeddings(row, buttons, { embeddings, embedding_problem: problem, ...vault }) {
    if (problem) row.insertBefore(make("span", "note", escapeHidden(problem)), buttons);
    if (!embeddings) return;
    const { consent, host } = embeddings;
    row.insertBefore(make("span", "note", escapeHidden(meaning(embeddings))), buttons);
    if (consent !== "given" && consent !== "not_needed") {
      this.button(buttons, "Allow", `Allow sending the text of ${vault.name} to ${host}`, vault, () => this.allow(vault, true));
    }
    if (consent === "needed" || consent === "given") {
      const label = consent === "needed" ? "Refuse" : "Revoke";
      this.button(buttons, label, `Do not send the text of ${vault.name} to ${host}`, vault, () => this.allow(vault, false));
    }
  }

  async allow(vault, embeddings) {
    await this.api(`api/vaults/${vault.id}`, this.json("PATCH", { embeddings }));
    await this.refresh();
  }

  button(row, label, description, vault, action) {
    const button = row.appendChild(make("button", "", label));
    button.type = "button";
    button.setAttribute("aria-label", escapeHidden(description));
    button.dataset.action = `${label.split(" ").at(-1)} ${vault.id}`;
    button.addEventListener("click", () => this.attempt(action));
    return button;
  }

  async rescan(vault) {
    await this.api(`api/vaults/${vault.id}/rescan`, this.json("POST", {}));
    await this.refresh();
  }

  async remove(vault) {
    const name = escapeHidden(vault.name);
    if (!confirm(`Forget the vault “${name}”? Its index is deleted; its notes stay as they are.`)) return;
    await this.api(`api/vaults/${vault.id}`, { method: "DELETE" });
    await this.refresh();
  }

  async showProblems(row, button, vault) {
    const open = row.querySelector(".problems");
    button.setAttribute("aria-expanded", String(!open));
    if (open) { open.remove(); return; }
    const { problems } = await this.api(`api/vaults/${vault.id}/problems`);
    const list = row.appendChild(make("ul", "problems"));
    for (const { path, problem } of problems) {
      list.append(make("li", "note", `${escapeHidden(path)}: ${PROBLEMS[problem] ?? problem}`));
    }
  }
}
