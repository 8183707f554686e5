"""Promise I3 on the page: hostile texts are shown as texts wherever they stand, nothing runs and no request leaves."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agenticx import builtin_tools
from agenticx.knowledge import VaultRegistry
from agenticx.llms import ScriptedModel
from agenticx.testing import call, say
from tests.support.server.chromium import CHROMIUM, Tab
from tests.support.server.conversations import run_turn
from tests.support.server.hostile_texts import hostile_texts
from tests.support.server.listener import listening
from tests.support.server.page import DECISION, SHOWN, STOPPED, click, enter, fill, send_message, text_of
from tests.support.server.running_studio import IN_A_FILE, RunningStudio, StudioMaker, note
from tests.support.teams.configured import PAIR, team_file

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.ci_lane,
    IN_A_FILE,  # the page shows the same over a database
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]

KINDS = ("html", "md", "svg", "csv")
HOSTILE_NAME = "<img src=x onerror=alert(1)>"
NAMES = [
    "__proto__",
    "constructor",
    "${alert(1)}",
    "{{alert(1)}}",
    "&lt;img src=x onerror=alert(1)&gt;",
    "');alert(1);'",
]
"""Of the characters that make markup such names may not have any."""

SPY = """(async () => {
    const { escapeHidden, escapeHiddenText } = await import('/assets/text/hidden_characters.js');
    const flat = (text) => text.replace(/\\s+/g, '');
    const loading = 'script, object, embed, style, link, meta, base, img:not([src^=blob]), svg, math, video, audio';
    const sending = 'iframe:not([src$="/preview"][sandbox=allow-scripts]), [srcdoc], [action], [formaction], [ping]';
    Object.assign(window, {
        messages: [],
        missing: (texts, selector) => {
            const shown = [...document.querySelectorAll(selector)].map((one) => flat(one.textContent));
            return texts.filter((text) => ![escapeHidden, escapeHiddenText].some((escape) =>
                shown.some((one) => one.includes(flat(escape(text))))));
        },
        markup: () => [...document.querySelectorAll('#app *')].filter((one) =>
            one.matches(loading) || one.matches(sending) || (one.href && !/^https?:$/.test(one.protocol))
            || [...one.attributes].some(({name}) => name.startsWith('on'))).map((one) => one.outerHTML.slice(0, 200)),
    });
    addEventListener('message', ({data}) => messages.push(data));
})()"""
ARTIFACTS = "document.getElementById('artifacts')"


@dataclass
class Page:
    """The page with hostile texts in it."""

    tab: Tab
    studio: RunningStudio
    texts: list[str]

    async def check(self, place: str, shown: list[str], selector: str) -> None:
        """Check that such elements show these texts, and that no text has become markup or has run."""
        left_out = await self.tab.evaluate(f"missing({json.dumps(shown)}, {selector!r})")
        assert left_out == [], place
        assert await self.tab.evaluate("markup()") == [], place
        assert "ran" not in await self.tab.evaluate("messages"), place

    async def show(self, session_id: str) -> None:
        await self.tab.evaluate(f"location.hash = '#/s/{session_id}'")
        await self.tab.wait_for(f"document.querySelector('main[data-session={session_id}] #log')?.tabIndex === 0")

    async def check_log(self, session_id: str) -> None:
        await self.tab.resize(1280, 100_000)  # so that all is mounted
        await self.show(session_id)
        await self.tab.wait_for(f"{SHOWN}.endsWith('noted') && document.querySelector('#log .user .text') && true")
        await self.check("log", self.texts, "#log .user .text")
        closed = "document.querySelectorAll('#log details:not([open]) > summary')"
        await self.tab.evaluate(f"{closed}.forEach((one) => one.click())")
        await self.tab.wait_for(f"document.querySelectorAll('#log .card details[open]').length >= {len(self.texts)}")
        await self.check("cards", [f"noted {text}" for text in self.texts], "#log .card")
        await self.tab.resize(1280, 900)

    async def check_dock(self) -> None:
        await self.show(await self.studio.session())
        await send_message(self.tab, "ask")
        for wanted in ("call note", "write a", "run a command"):
            await self.tab.wait_for(f"{text_of('[aria-label=Decision] h2')}.includes({wanted!r})")
            await self.check(wanted, self.texts if wanted == "call note" else self.texts[:5], "[aria-label=Decision]")
            await click(self.tab, "Deny", DECISION)
        await self.tab.wait_for(f"{DECISION}?.innerText.includes('asks')")
        await self.check("question", self.texts[:99], "[aria-label=Decision]")
        await click(self.tab, "Stop")
        await self.tab.wait_for(STOPPED)

    async def check_names(self, session_id: str, names: list[str]) -> None:
        await self.tab.evaluate("location.hash = '#/sessions'")
        for _ in range((len(names) + 2) // 100):
            await click(self.tab, "Show older sessions")
        await self.tab.wait_for(f"document.querySelectorAll('#sessions .name').length === {len(names) + 2}")
        await self.check("names", names, "#sessions .name")
        for name in (names[0], names[-1], "__proto__"):
            await self.studio.client.patch(f"/api/sessions/{session_id}", json={"name": name})
            await self.show(session_id)
            await self.tab.wait_for(f"!missing({json.dumps([name])}, '#title').length")
            await self.check("title", [name], "#title")

    async def check_settings(self) -> None:
        await self.tab.evaluate("location.hash = '#/settings/__proto__'")
        await self.tab.wait_for("document.querySelector('#settings .tabs [aria-current]')?.innerText === 'Rules'")
        await self.tab.evaluate("location.hash = '#/settings/rules'")
        await fill(self.tab, "command", "\n".join(self.texts))
        await click(self.tab, "Explain")
        await self.tab.wait_for("document.getElementById('explained').innerText && true")
        await self.check("rules", [], "main")
        await self.tab.evaluate("location.hash = '#/settings/notes'")
        await self.tab.wait_for("document.querySelector('#vault-list li') && true")
        await self.check("vaults", [HOSTILE_NAME], "#vault-list")
        await self.tab.evaluate("location.hash = '#/settings/teams'")
        await self.tab.wait_for("document.querySelector('[aria-label=Teams] li p') && true")
        await self.check("teams", self.texts[:5], "[aria-label=Teams]")

    async def check_files(self) -> None:
        await self.show(await self.studio.session(permission_mode="auto"))
        await send_message(self.tab, "make")
        await self.tab.wait_for(f"{STOPPED} && {SHOWN}.endsWith('made')")
        await self.check("files", NAMES, "#artifacts .files")
        for kind in KINDS:
            choose = "[...document.querySelectorAll('#artifacts .files button')].find((one) => one.textContent"
            await self.tab.evaluate(f"{choose}.endsWith('.{kind}')).click()")
            await click(self.tab, "Code", ARTIFACTS)
            await self.tab.wait_for(f"!missing({json.dumps(self.texts[:9])}, '#artifacts .code').length")
            if kind != "csv":
                await click(self.tab, "Preview", ARTIFACTS)
                await self.tab.wait_for(f"{ARTIFACTS}.querySelector('.frame, .document') && true")
            await self.check(kind, [], "#artifacts")

    async def check_notes(self) -> None:
        await send_message(self.tab, "What do my notes say about the rent?")
        await self.tab.wait_for(f"{STOPPED} && document.querySelector('.citation') && true")
        await self.tab.evaluate("document.querySelector('.citation').click()")
        await self.tab.wait_for("document.querySelector('.cited li') && true")
        await self.check("citation", self.texts[:1], ".cited")
        await click(self.tab, "Open note", "document.querySelector('.cited')")
        await self.tab.wait_for("document.querySelector('#pane .passage li') && true")
        await self.check("note", self.texts[:1], "#pane .passage")


def replies(texts: list[str]) -> list[Any]:
    """Return the replies of a model that says the texts, asks with them, and makes files and an answer of them."""
    lines = "\n".join(texts)
    parts = [texts[start : start + 10] for start in range(0, len(texts), 10)]
    return [
        *([say("\n\n".join(part)), *(call("note", {"text": text}) for text in part)] for part in parts),
        "noted",
        call("note", {"text": lines}),
        call("file_write", {"path": f"a{HOSTILE_NAME}.py", "content": lines}),
        call("bash_exec", {"command": lines}),
        call("ask_user", {"text": lines[:9000], "options": texts[:20]}),
        *([call("create_file", {"path": f"{name}.{kind}", "content": lines}) for name in NAMES] for kind in KINDS),
        "made",
        f"The rent is 900 EUR [^1].\n{texts[3]}",
    ]


@pytest.mark.promise("I3")
async def test_hostile_texts_are_shown_as_texts_wherever_they_stand(
    make_studio: StudioMaker, tab: Tab, tmp_path: Path
) -> None:
    async with listening() as listener:
        texts = [*hostile_texts(listener.url), "a" + "\u0301" * 2_000]
        assert len(texts) >= 200
        lines = "\n".join(texts)
        names = [text for text in texts if text.isprintable() and len(text) < 1000]
        (notes := tmp_path / HOSTILE_NAME).mkdir()
        (notes / f"{HOSTILE_NAME}.md").write_text(f"# {texts[0]}\n\nThe rent is 900 EUR.\n{lines}\n")
        model, tools = ScriptedModel(replies(texts)), [*builtin_tools(), note]
        async with make_studio(model, tools=tools, compaction_threshold_chars=10_000_000) as studio:
            team_file(studio.services.settings.home, f"description = {json.dumps(' '.join(names[:99]))}\n{PAIR}")
            VaultRegistry(studio.services.settings.home).add(notes)
            for name in names:
                await studio.session(name=name)
            session_id = await studio.session(permission_mode="auto")
            await run_turn(studio, session_id, lines)
            await enter(tab, studio)
            await tab.evaluate(SPY)
            page = Page(tab, studio, texts)
            await page.check_log(session_id)
            await page.check_dock()
            await page.check_names(session_id, names)
            await page.check_settings()
            assert tab.errors == []
            await page.check_files()
            await page.check_notes()
            previews = ("Content Security Policy", "sandboxed")  # what a preview was not allowed
            assert [error for error in tab.errors if not any(name in error for name in previews)] == []
            assert listener.requests == []
