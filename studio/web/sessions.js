// The list of sessions: found by what was said, pinned ones first, archived ones when asked for.

const TYPING = 250; // a search begins when nothing was typed for so long

export const titleOf = (session) =>
  session.name ?? new Date(session.created_at).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });

export class Sessions {
  constructor({ list, find, archived }, { api, open, current, say }) {
    Object.assign(this, { list, find, archived, api, open, current, say });
    const again = () => this.show().catch((error) => say(error.message));
    find.addEventListener("input", () => {
      clearTimeout(this.alarm);
      this.alarm = setTimeout(again, TYPING);
    });
    archived.addEventListener("change", again);
  }

  /** Read the list and show it; returns the sessions. */
  async show() {
    const asked = new URLSearchParams({ archived: this.archived.checked, q: this.find.value.trim() });
    const mine = (this.newest = {});
    const { sessions } = await this.api(`/api/sessions?${asked}`);
    if (mine === this.newest) this.list.replaceChildren(...sessions.map((session) => this.row(session)));
    return sessions;
  }

  row(session) {
    const row = document.createElement("li");
    const button = row.appendChild(document.createElement("button"));
    button.type = "button";
    button.textContent = `${session.pinned ? "★ " : ""}${titleOf(session)}`;
    if (session.id === this.current()) button.setAttribute("aria-current", "true");
    button.addEventListener("click", () => this.open(session));
    for (const match of session.matches ?? []) {
      if (match.role !== "name") row.append(placeOf(match));
    }
    return row;
  }
}

function placeOf({ before, found, after }) {
  const place = document.createElement("p");
  place.className = "match";
  const mark = Object.assign(document.createElement("mark"), { textContent: found });
  place.append(before.slice(-20), mark, after);
  return place;
}

/** What a person can do to the session that is shown, each a button of `row`. */
export function sessionActions(row, { api, json, session, changed, gone, say }) {
  const path = () => `/api/sessions/${session().id}`;
  const change = async (fields) => changed(await api(path(), json("PATCH", fields)));
  const actions = {
    rename: async () => {
      const name = prompt("What is this session called?", session().name ?? "");
      if (name !== null) await change({ name: name.trim().slice(0, 200) || null });
    },
    pin: () => change({ pinned: !session().pinned }),
    archive: () => change({ archived: !session().archived }),
    export: async () => save(await api(`${path()}/export?format=markdown`), `${session().id}.md`),
    delete: async () => {
      if (!confirm(`Delete “${titleOf(session())}” for good? Files that it changed stay as they are.`)) return;
      await api(path(), { method: "DELETE" });
      gone();
    },
  };
  for (const button of row.querySelectorAll("button")) {
    button.addEventListener("click", () => actions[button.name]().catch((error) => say(error.message)));
  }
}

function save(text, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/markdown" }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}
