// The model and the permission mode of the session that is shown: in its header, where they can be changed.

export class SessionOptions {
  /** Show the options in two selects, and `warning` in mode auto; `change(fields)` changes the session. */
  constructor({ model, mode, warning }, { change, showStatus }) {
    Object.assign(this, { model, mode, warning, change, showStatus });
    this.shown = null; // the session
    model.addEventListener("change", () => this.save({ model: model.value || null }));
    mode.addEventListener("change", () => this.saveMode());
  }

  /** Set the models that can be selected; the default one is that of sessions without a model of their own. */
  setModels(ids, defaultId) {
    this.model.replaceChildren(modelOption("", `${defaultId} (from settings)`), ...ids.map((id) => modelOption(id)));
    if (this.shown) this.show(this.shown);
  }

  show(session) {
    this.shown = session;
    const model = session.model ?? "";
    const isListed = [...this.model.options].some(({ value }) => value === model);
    if (!isListed) this.model.append(modelOption(model)); // its server is not running, or its key is missing
    this.model.value = model;
    this.mode.value = session.permission_mode;
    this.warning.hidden = session.permission_mode !== "auto";
  }

  /** Save the mode; a select changes with one key, so ask before the one in which nothing else is asked. */
  async saveMode() {
    const isMeant = this.mode.value !== "auto" || confirm("Let all calls of this session run without a question?");
    if (isMeant) await this.save({ permission_mode: this.mode.value });
    else this.show(this.shown);
  }

  async save(fields) {
    try {
      await this.change(fields);
    } catch (error) {
      this.show(this.shown);
      this.showStatus(error.message);
    }
  }
}

export function modelOption(value, label = value) {
  return Object.assign(document.createElement("option"), { value, textContent: label });
}
