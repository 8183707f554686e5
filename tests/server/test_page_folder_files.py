"""Files of the workspace in the pane of the page, in a real browser: while they are written, and as they are then."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agenticx.assembly import default_tools
from agenticx.llms import ScriptedModel
from agenticx.testing import call, stall_after
from tests.support.server.chromium import CHROMIUM, Tab
from tests.support.server.page import (
    DECISION,
    SHOWN,
    STOPPED,
    button,
    click,
    enter,
    send_and_be_asked,
    send_message,
    text_of,
)
from tests.support.server.running_studio import StudioMaker

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]

PAGE = """<!doctype html>
<title>Bakery 🥐</title>
<link rel="stylesheet" href="css/style.css">
<script>top.postMessage({ran: document.title + getComputedStyle(document.documentElement).order}, "*")</script>
"""
PANE = "document.getElementById('artifacts')"
CODE = f"{PANE}?.querySelector('.code')?.textContent"
SIZE = text_of("#artifacts .size")
BLOCKED = text_of("#artifacts .blocked")
CHOSEN = text_of("#artifacts .files [aria-current]")
RUN = f"{PANE}?.querySelector('.run')"
HEADER = """[...document.querySelectorAll('.session-header .line > *')].filter((one) => one.getClientRects().length)
    .map((one) => [one.id, one.offsetLeft, one.offsetLeft + one.offsetWidth, one.scrollWidth > one.clientWidth])"""
"""A JavaScript expression for the parts of the header: their ids, where each begins and ends, and whether it is cut."""

EDITS: list[tuple[str, str, str, bool, str]] = [  # a text, what is replaced by what, also often, and what comes of it
    ("a\r\nb\r\n", "a\nb", "$&\nc", False, "$&\r\nc\r\n"),
    ("a a", "a", "b", True, "b b"),
    ("a\rb\nb", "\nb", "", False, "a\nb"),  # of mixed line ends
    ("a a", "a", "b", False, "The text to replace is in the file 2 times and not once, so the edit would fail."),
    ("ab", "c", "b", True, "The text to replace is not in the file as it is now, so the edit would fail."),
    ("ab", "", "b", False, "The text to replace is not in the file as it is now, so the edit would fail."),
]
EDITED = f"""import('/assets/state/folder_files.js').then(({{ editedText }}) =>
    {json.dumps([edit[:4] for edit in EDITS])}.map(([text, old_text, new_text, replace_all]) => {{
        const {{ text: after, error }} = editedText(text, {{ old_text, new_text, replace_all }});
        return error ?? after;
    }}))"""


def write(content: str, path: str = "page.html") -> Any:
    return call("file_write", {"path": path, "content": content}, pieces=40)


async def test_a_page_that_a_file_tool_writes_is_seen_before_it_is_allowed_and_as_it_is_then(
    make_studio: StudioMaker, tab: Tab
) -> None:
    cut = [write("<p>never" + "x" * 400), stall_after(30)]
    sheet = write("html { order: 7 }", "css/style.css")
    edit = call("file_edit", {"path": "page.html", "old_text": "Bakery", "new_text": "Butcher"})
    model = ScriptedModel([write(PAGE, "./page.html"), "done", sheet, edit, "done", cut])
    async with make_studio(model, tools=default_tools()) as studio:
        await enter(tab, studio)
        await tab.evaluate("window.messages = []; addEventListener('message', ({data}) => messages.push(data))")
        await send_and_be_asked(tab, "Make a page about a bakery, with its name and no more than that")
        await click(tab, "Show preview")
        await tab.wait_for(f"{SIZE} === 'not written yet, {len(PAGE) + 1} characters'")  # of UTF-16
        for width in (1100, 1280):  # beside the pane
            await tab.resize(width, 800)
            await tab.wait_for(f"innerWidth === {width}")
            ids, starts, ends, cuts = zip(*await tab.evaluate(HEADER), strict=True)
            assert ids == ("title", "session-mode-text", "status", "show-artifacts", "more")
            assert list(ends[:-1]) <= list(starts[1:])
            assert (ends[0] - starts[0] > 80, cuts) == (True, (True, False, False, False, False))
            assert await tab.evaluate(f"{RUN}.parentElement.offsetHeight < 2 * {RUN}.offsetHeight")  # one row
        assert await tab.evaluate(f"[{RUN}.textContent, {RUN}.disabled, {CHOSEN}]") == ["Run", True, "page.html …"]
        assert not (studio.workspace / "page.html").exists()
        await click(tab, "Allow once", DECISION)
        await tab.wait_for(f"{SIZE} === '{len(PAGE.encode())} bytes' && {STOPPED}")
        await tab.wait_for(f"{BLOCKED}.includes('style css/style.css')")
        await tab.evaluate(f"{RUN}.click()")
        await tab.wait_for("messages.find(({ran}) => ran)?.ran === 'Bakery 🥐0'")

        await send_and_be_asked(tab, "Make it nice")
        await click(tab, "Allow once", DECISION)  # the sheet
        await tab.wait_for(f"{DECISION}?.innerText.includes('page.html')")
        written = PAGE.replace("Bakery", "Butcher")
        await tab.wait_for(f"{SIZE} === 'not written yet, {len(written) + 1} characters' && {RUN}.disabled")
        await click(tab, "Code", PANE)
        await tab.wait_for(f"{CODE} === {written!r}")
        await click(tab, "Preview", PANE)
        assert (studio.workspace / "page.html").read_text() == PAGE
        await click(tab, "Allow once", DECISION)
        await tab.wait_for(STOPPED)
        await tab.wait_for(f"!{BLOCKED}.includes('style.css') && {RUN}.textContent === 'Run' && !{RUN}.disabled")
        await tab.evaluate("messages.length = 0")
        await tab.evaluate(f"{RUN}.click()")
        await tab.wait_for("messages.find(({ran}) => ran)?.ran === 'Butcher 🥐7'")

        await click(tab, "Diff", PANE)
        await tab.wait_for(f"{text_of('#artifacts .diff')}.includes('Butcher')")
        await click(tab, "Code", PANE)
        await tab.wait_for(f"{CODE} === {written!r}")
        await send_message(tab, "Make another")
        await tab.wait_for(f"{SIZE}.startsWith('being written, ') && {CODE}.startsWith('<p>never')")
        await click(tab, "Stop", "document.getElementById('composer')")
        await tab.wait_for(f"{CODE} === {written!r}")
        assert [entry for entry in tab.errors if "404" not in entry] == []
        assert await tab.evaluate(EDITED) == [edit[4] for edit in EDITS]


@pytest.mark.ci_lane
async def test_the_pane_opens_by_itself_for_a_file_that_is_allowed_and_closes_if_there_is_none_after_all(
    make_studio: StudioMaker, tab: Tab
) -> None:
    cut = [write("<p>never" + "x" * 400), stall_after(30)]
    model = ScriptedModel([cut, write(PAGE), "not written", write(PAGE), "written", write("<p>other")])
    async with make_studio(model, tools=default_tools()) as studio:
        session_id = await studio.session(permission_mode="accept_edits")
        await enter(tab, studio, f"#/s/{session_id}")
        await send_message(tab, "Make a page")
        await tab.wait_for(f"{SIZE}.startsWith('being written, ')")
        await click(tab, "Stop", "document.getElementById('composer')")
        await tab.wait_for(f"{STOPPED} && !{PANE}")
        await studio.client.patch(f"/api/sessions/{session_id}", json={"permission_mode": "default"})
        await tab.wait_for(f"{text_of('#session-mode-text')}.startsWith('Asks before changes')")
        for answer, ends in (("Deny", "not written"), ("Allow once", "written")):
            await send_and_be_asked(tab, "Make a page")
            assert await tab.evaluate(PANE) is None
            await click(tab, answer, DECISION)
            await tab.wait_for(f"{STOPPED} && {SHOWN}.endsWith({ends!r})")
        await tab.wait_for(f"{SIZE} === '{len(PAGE.encode())} bytes'")
        await send_and_be_asked(tab, "Make another")  # the file is there, whatever is answered
        await tab.wait_for(f"{SIZE} === 'not written yet, 8 characters'")
        assert [entry for entry in tab.errors if "404" not in entry] == []  # the page's style sheet is none


@pytest.mark.ci_lane
async def test_cards_and_changes_show_a_file_in_the_pane_and_secret_ones_are_refused(
    make_studio: StudioMaker, tab: Tab
) -> None:
    names = {"a.md": "# Plan", "b.csv": "x,y\n1,2\n", "c.py": "pass\n"}
    model = ScriptedModel([[write(text, name) for name, text in names.items()], "done"])
    async with make_studio(model, tools=default_tools(), permission_mode="accept_edits") as studio:
        session_id = await studio.session()
        turn = (await studio.turn(session_id)).json()
        await studio.events_until(session_id, "final", cursor=turn["cursor"])
        await enter(tab, studio, f"#/s/{session_id}")
        await tab.reload()  # now that the pane has its place beside the log
        await tab.wait_for(f"{CHOSEN} === 'b.csv' && {text_of('#artifacts table')}.includes('1 1 2')")
        shown = f"[...{PANE}.querySelectorAll('.files button')].map((one) => one.textContent)"
        assert await tab.evaluate(shown) == ["a.md", "b.csv"]
        previews = "[...document.querySelectorAll('#log .card button')].map((one) => one.getAttribute('aria-label'))"
        assert await tab.evaluate(previews) == ["Preview a.md", "Preview b.csv"]
        await tab.block("*/files/*")
        await click(tab, "Preview a.md")
        await tab.wait_for(f"{text_of('#artifacts [role=alert]')} === 'The studio does not answer.'")
        await tab.block()
        await tab.evaluate("dispatchEvent(new Event('focus'))")  # the page asks for the sessions, and is answered
        await tab.wait_for(f"{text_of('#artifacts .document')} === 'Plan'")

        (studio.workspace / ".env").hardlink_to(studio.workspace / "b.csv")
        await tab.evaluate("document.getElementById('tab-changes').click()")
        await tab.wait_for("document.querySelectorAll('.changes-pane details').length === 3")
        opened = "document.querySelectorAll('.changes-pane details').forEach((one) => { one.open = true; })"
        await tab.evaluate(opened)
        await tab.wait_for("document.querySelectorAll('.changes-pane .diff').length === 3")
        assert await tab.evaluate(f"Boolean({button('Preview', 'document.querySelector(`.changes-pane`)')})")
        preview = (
            "[...document.querySelectorAll('.changes-pane details')].find((one) => one.innerText.includes('b.csv'))"
        )
        await click(tab, "Preview", preview)
        await tab.wait_for(f"{text_of('#artifacts [role=alert]')}.includes('usually holds keys or passwords')")
