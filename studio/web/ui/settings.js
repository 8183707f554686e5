// The settings: rules, models and keys, vaults of notes, usage, teams, and how this browser shows the page.

import { html, useLayoutEffect } from "../vendor/preact.js";
import { isField } from "../state/input.js";
import { go, lastSession, sessionPath } from "../state/route.js";
import { Message } from "./message.js";
import { MemorySettings } from "./settings_memory.js";
import { ModelSettings } from "./settings_models.js";
import { NoteSettings } from "./settings_notes.js";
import { PageSettings } from "./settings_page.js";
import { RuleSettings } from "./settings_rules.js";
import { TeamSettings } from "./settings_teams.js";
import { UsageSettings } from "./settings_usage.js";

const TABS = {
  rules: ["Rules", RuleSettings],
  models: ["Models", ModelSettings],
  notes: ["Notes", NoteSettings],
  memory: ["Memory", MemorySettings],
  usage: ["Usage", UsageSettings],
  teams: ["Teams", TeamSettings],
  page: ["Page", PageSettings],
};

export function Settings({ tab }) {
  const name = Object.hasOwn(TABS, tab) ? tab : "rules";
  const [label, Content] = TABS[name];
  const close = () => {
    const last = lastSession();
    go(last ? sessionPath(last) : "#/new");
  };
  useLayoutEffect(() => {
    document.getElementById("settings-title")?.focus();
    const onKey = (/** @type {KeyboardEvent} */ event) => {
      if (event.key !== "Escape" || event.defaultPrevented || isField(event.target) || document.querySelector("dialog[open]")) return;
      event.preventDefault();
      close();
    };
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, []);
  return html`<main id="settings" data-region="Settings">
    <header class="session-header"><div class="line">
      <h1 id="settings-title" tabindex="-1">Settings</h1>
      <button type="button" onClick=${close}>Close settings</button>
    </div></header>
    <${Message} place="main" />
    <nav class="tabs" aria-label="Settings">
      ${Object.entries(TABS).map(([key, [text]]) => html`<a key=${key} href=${`#/settings/${key}`} aria-current=${key === name ? "page" : undefined}>${text}</a>`)}
    </nav>
    <section class="settings-content" aria-label=${label}><${Content} key=${name} /></section>
  </main>`;
}
