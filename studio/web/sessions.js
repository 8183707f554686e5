// The list of sessions: searched by their text, pinned ones first, archived ones on request.

const SEARCH_DELAY_MS = 250; // from the last keystroke to the search

export const titleOf = (session) =>
  session.name ?? new Date(session.created_at).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });

export class SessionList {
  constructor({ list, find, archived }, { api, openSession, currentId, showStatus }) {
    Object.assign(this, { list, find, archived, api, openSession, currentId });
    const refresh = () => this.refresh().catch((error) => showStatus(error.message));
    find.addEventListener("input", () => {
      clearTimeout(this.searchTimer);
      this.searchTimer = setTimeout(refresh, SEARCH_DELAY_MS);
    });
    archived.addEventListener("change", refresh);
  }

  /** Load and render the list; return the sessions. */
  async refresh() {
    const query = new URLSearchParams({ archived: this.archived.checked, q: this.find.value.trim() });
    const request = (this.latestRequest = {}); // an older response that arrives later is not rendered
    const { sessions } = await this.api(`api/sessions?${query}`);
    if (request === this.latestRequest) this.list.replaceChildren(...sessions.map((session) => this.row(session)));
    return sessions;
  }

  row(session) {
    const row = document.createElement("li");
    const button = row.appendChild(document.createElement("button"));
    button.type = "button";
    button.textContent = `${session.pinned ? "★ " : ""}${titleOf(session)}`;
    if (session.id === this.currentId()) button.setAttribute("aria-current", "true");
    button.addEventListener("click", () => this.openSession(session));
    for (const match of session.matches ?? []) {
      if (match.role !== "name") row.append(matchExcerpt(match));
    }
    return row;
  }
}

function matchExcerpt({ before, found, after }) {
  const excerpt = document.createElement("p");
  excerpt.className = "match";
  const mark = Object.assign(document.createElement("mark"), { textContent: found });
  excerpt.append(before.slice(-20), mark, after);
  return excerpt;
}

/** Connect the buttons of `row` with the actions on the session that is shown. */
export function bindSessionActions(row, { api, json, session, onChanged, onDeleted, showStatus }) {
  const path = () => `api/sessions/${session().id}`;
  const change = async (fields) => onChanged(await api(path(), json("PATCH", fields)));
  const actions = {
    rename: async () => {
      const name = prompt("Name of the session (empty: none)", session().name ?? "");
      if (name !== null) await change({ name: name.trim().slice(0, 200) || null });
    },
    pin: () => change({ pinned: !session().pinned }),
    archive: () => change({ archived: !session().archived }),
    export: async () => download(await api(`${path()}/export?format=markdown`), `${session().id}.md`),
    delete: async () => {
      if (!confirm(`Delete “${titleOf(session())}” permanently? Files that it changed are kept.`)) return;
      await api(path(), { method: "DELETE" });
      onDeleted();
    },
  };
  for (const button of row.querySelectorAll("button")) {
    button.addEventListener("click", () => actions[button.name]().catch((error) => showStatus(error.message)));
  }
}

function download(text, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/markdown" }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}
