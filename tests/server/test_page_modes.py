"""Modes chosen on the page: /vault, /chat and /agent before a message."""

from __future__ import annotations

from pathlib import Path

import pytest

from agenticx.core.prompt_modes import detect_mode
from agenticx.knowledge import VaultRegistry
from agenticx.llms import ScriptedModel
from tests.support.javascript import NODE, run_module
from tests.support.server.chromium import CHROMIUM, Tab
from tests.support.server.page import INPUT, STOPPED, click, enter, send_message, text_of, write
from tests.support.server.running_studio import StudioMaker

MODES = "[...document.querySelectorAll('#log .mode')].map((line) => line.textContent)"
WORDS = "[...document.querySelectorAll('#log .user .text')].map((message) => message.textContent)"
HINT = text_of("#mode-hint")
ERROR = text_of("#attachment-error")
ENDED = f"{STOPPED} && document.querySelectorAll('#log .answer').length === {{}}"


@pytest.mark.skipif(NODE is None, reason="needs node")
@pytest.mark.parametrize(
    ("typed", "mode", "message"),
    [
        ("/vault what is the rent?", "vault", "what is the rent?"),
        ("/chat\nhello\nyou", "chat", "hello\nyou"),
        ("/agent  tidy", "agent", "tidy"),
        ("/vault", None, None),
        ("/chat ", None, None),
        ("/vaults of gold", None, "/vaults of gold"),
        ("/etc/hosts has what?", None, "/etc/hosts has what?"),
        (" /vault x", None, " /vault x"),
        ("say /vault x", None, "say /vault x"),
        ("//vault x", None, "/vault x"),
        ("///chat x", None, "//chat x"),
        ("// a comment", None, "// a comment"),
        ("", None, ""),
    ],
)
def test_a_command_before_a_message_chooses_its_mode(typed: str, mode: str | None, message: str | None) -> None:
    parsed = "const parsed = module.parseMode(given), {input} = parsed;"
    again = "return {...parsed, again: input === null ? null : module.parseMode(module.asTyped(input))}"

    assert run_module("text/modes.js", parsed + again, typed) == {
        "mode": mode,
        "input": message,
        "again": None if message is None else {"mode": None, "input": message},
    }


@pytest.mark.ci_lane
@pytest.mark.anyio
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
async def test_the_page_sends_the_mode_and_asks_for_a_vault_where_there_is_none(
    make_studio: StudioMaker, tab: Tab, tmp_path: Path
) -> None:
    notes = tmp_path / "Notes"
    notes.mkdir()
    (notes / "Lease.md").write_text("# Lease\n\nThe rent is 900 EUR.\n")
    async with make_studio(ScriptedModel(["It is 900 EUR [^1].", "Nothing.", "As you say.", "Paris."])) as studio:
        await enter(tab, studio)
        await write(tab, "/v")
        assert "/vault, /chat or /agent before a message" in await tab.wait_for(HINT)
        await send_message(tab, "/vault what is the rent?")
        error = await tab.wait_for(ERROR)
        assert error.startswith("This session has no vault of notes")
        assert await tab.evaluate(INPUT) == "/vault what is the rent?"
        assert await tab.evaluate(HINT) == ""

        VaultRegistry(studio.services.settings.home).add(notes)
        await tab.evaluate("document.getElementById('send').click()")
        await tab.wait_for(f"{ENDED.format(1)} && document.querySelector('.citation.verified') && true")
        assert await tab.evaluate(f"[{HINT}, {ERROR}]") == ["", ""]
        await send_message(tab, "/chat what do my notes say?")
        await tab.wait_for(ENDED.format(2))
        await send_message(tab, "//vault is a word")
        await tab.wait_for(ENDED.format(3))
        assert await tab.evaluate(WORDS) == ["what is the rent?", "what do my notes say?", "/vault is a word"]
        question = "What is the capital of France?"
        assert detect_mode(question, vaults=True, tools=["note"]).kind == "chat"
        await send_message(tab, question)
        await tab.wait_for(ENDED.format(4))
        modes = await tab.evaluate(MODES)
        assert modes == ["mode notes: you chose it", "mode chat: you chose it"]  # that it just answers is no news
        await click(tab, "Edit", "[...document.querySelectorAll('#log .user')].at(-2)")
        await tab.wait_for(f"{INPUT} === '//vault is a word'")
        await write(tab, "/agent tidy up")
        await tab.wait_for(f"{HINT} === 'Work with tools.'")
        await write(tab, "/vault ")
        await tab.evaluate("document.getElementById('send').click()")
        assert await tab.evaluate(INPUT) == "/vault "  # not sent
        assert tab.errors == []
