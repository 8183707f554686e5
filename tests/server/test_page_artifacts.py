"""The pane of a session's files on the page, in a real browser."""

from __future__ import annotations

import asyncio
import io
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agenticx import builtin_tools
from agenticx.llms import ScriptedModel
from agenticx.testing import call, stall_after
from tests.support.server.chromium import CHROMIUM, Tab, browser_tab
from tests.support.server.page import SHOWN, enter, send_message
from tests.support.server.running_studio import StudioMaker
from tests.support.timeouts import PATIENCE

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]

PAGE = """<!doctype html>
<title>Bakery 🥐</title>
<img src="https://cdn.example/bread.png">
<script>top.postMessage({ran: document.title}, "*"); top.postMessage({type: "held", id: 1, url: ""}, "*")</script>
"""
PANE = "document.getElementById('artifacts')"
CODE = f"{PANE}.querySelector('.code').textContent"
SIZE = f"{PANE}.querySelector('.size').textContent"
FILES = f"[...{PANE}.querySelectorAll('.files button')]"
RUN = f"{PANE}.querySelector('.run')"
SPY = "window.messages = []; addEventListener('message', ({data}) => messages.push(data))"


def create(content: str, path: str = "index.html") -> Any:
    return call("create_file", {"path": path, "content": content}, pieces=40)


def tab_of(name: str) -> str:
    return f"[...{PANE}.querySelectorAll('[role=tab]')].find((tab) => tab.textContent === {name!r})"


@pytest.fixture
async def tab() -> AsyncIterator[Tab]:
    async with browser_tab() as tab:
        yield tab


async def test_a_page_grows_in_the_pane_runs_when_asked_and_stands_again_if_the_next_is_dropped(
    make_studio: StudioMaker, tab: Tab
) -> None:
    growing = [create(PAGE.replace("Bakery", "Butcher") + "x" * 400), stall_after(30)]
    async with make_studio(ScriptedModel([create(PAGE), "done", growing]), tools=builtin_tools()) as studio:
        await enter(tab, studio)
        assert await tab.evaluate(f"{PANE}.hidden")
        await tab.evaluate(SPY)
        await send_message(tab, "Make a page")
        await tab.wait_for(f"{SIZE} === '{len(PAGE.encode())} bytes'")
        blocked = f"{PANE}.querySelector('.blocked').innerText"
        listed = await tab.wait_for(f"{blocked}.includes('bread') && {blocked}")
        assert "image https://cdn.example/bread.png" in listed
        assert "AGX_PREVIEW_HOSTS" in listed
        await tab.wait_for(f"{blocked}.includes('A script of the page has not run.')")
        assert "WebRTC" in await tab.evaluate(f"{PANE}.querySelector('.run-note').textContent")
        assert await tab.evaluate("messages.filter(({ran}) => ran).length") == 0

        await tab.evaluate(f"{RUN}.click()")
        await tab.wait_for("messages.find(({ran}) => ran)?.ran === 'Bakery 🥐'")
        assert await tab.evaluate(f"{RUN}.textContent") == "Stop"
        assert await tab.evaluate(f"{PANE}.querySelector('.held').hidden")  # the page is not the shell

        await tab.evaluate("messages.length = 0")
        await send_message(tab, "Make another")
        await tab.wait_for(f"{SIZE}.startsWith('being written, ')")
        assert await tab.evaluate(f"[{RUN}.textContent, {RUN}.disabled]") == ["Run", True]
        types = "messages.map(({type}) => type)"
        await tab.wait_for(f"{types}.includes('ready') && {types}.lastIndexOf('shown') > {types}.indexOf('ready')")
        async with asyncio.timeout(PATIENCE):
            while await tab.evaluate(f"{PANE}.querySelector('.held').hidden"):  # a frame that is replaced sees no click
                await tab.click(f"{PANE}.querySelector('.frame')")
        await tab.evaluate(f"{tab_of('Code')}.click()")
        assert "Butcher" in await tab.wait_for(f"{CODE}.includes('Butcher') && {CODE}")
        await tab.evaluate("document.getElementById('stop').click()")
        await tab.wait_for(f"{CODE} === {PAGE!r}")
        assert await tab.evaluate(f"{SIZE} === '{len(PAGE.encode())} bytes' && !{RUN}.disabled")

        await tab.reload()
        await tab.wait_for(f"{SIZE} === '{len(PAGE.encode())} bytes'")
        await tab.evaluate(f"{tab_of('Code')}.click()")
        await tab.wait_for(f"{CODE} === {PAGE!r}")
        assert await tab.evaluate(f"{PANE}.querySelector('.revisions').hidden")
        assert [entry for entry in tab.errors if "bread.png" not in entry] == []


@pytest.mark.ci_lane
async def test_files_are_chosen_with_their_revisions_loaded_and_gone_after_a_rewind(
    make_studio: StudioMaker, tab: Tab
) -> None:
    large = "<p>" + "y" * 300_000  # more than an event carries
    replies = [create(PAGE), create(large), create("a {}", "css/a.css"), "done"]
    async with make_studio(ScriptedModel(replies), tools=builtin_tools()) as studio:
        await enter(tab, studio)
        await send_message(tab, "Make pages")
        files = f"[...{PANE}.querySelectorAll('.files button')].map((one) => one.textContent)"
        await tab.wait_for(f"{files}.join() === 'css/a.css,index.html'")
        await tab.wait_for("document.getElementById('stop').hidden")
        await tab.reload()
        await tab.wait_for(f"{files}.join() === 'css/a.css,index.html'")
        choose = f"[...{PANE}.querySelectorAll('.files button')].find((one) => one.textContent === {{!r}}).click()"
        await tab.evaluate(choose.format("css/a.css"))
        await tab.wait_for(f"{CODE} === 'a {{}}'")
        assert await tab.evaluate(f"[{tab_of('Preview')}.disabled, {RUN}.hidden]") == [True, True]
        await tab.evaluate(choose.format("index.html"))
        await tab.evaluate(f"{tab_of('Code')}.click()")
        await tab.wait_for(f"{CODE}.length === {len(large)}")
        revision = f"{PANE}.querySelector('.revisions')"
        await tab.evaluate(f"{revision}.value = '1', {revision}.dispatchEvent(new Event('change'))")
        await tab.wait_for(f"{CODE} === {PAGE!r}")

        await tab.evaluate(f"{PANE}.querySelector('.close').click()")
        assert await tab.evaluate(f"[{PANE}.hidden, document.getElementById('show-artifacts').textContent]") == [
            True,
            "Files (2)",
        ]
        await tab.evaluate("document.getElementById('show-artifacts').click()")
        assert not await tab.evaluate(f"{PANE}.hidden")
        (session,) = (await studio.client.get("/api/sessions")).json()["sessions"]
        await studio.client.post(f"/api/sessions/{session['id']}/rewind", json={"message_id": None})
        await tab.wait_for(f"{PANE}.hidden && document.getElementById('show-artifacts').hidden")
        assert tab.errors == []


LINKED = """<!doctype html>
<head><link href="css/a.css?v=1" media="screen" rel=stylesheet><script src="code.js" defer></script>
<style>@import "css/b.css" layer(base) screen; @import url(https://cdn.example/c.css); b { color: red }</style></head>
<body><img src="images/dot.svg?v=2"><img srcset="images/none.png 2x, images/dot.svg"><img src="images/none.png">
<b style="background: url('images/dot.svg')">b</b><script>window.text = '<img src="images/dot.svg">'</script>
"""
DOT = '<svg xmlns="http://www.w3.org/2000/svg" width="7" height="7"></svg>'
SHEETS = {
    "css/a.css": "@import url('deep/c.css'); body { background: url(../images/dot.svg) }",
    "css/b.css": "/* @import 'no.css' */ @import \"b.css\"; b { color: blue; font-size: 31px }",
    "css/deep/c.css": "p::before, b { content: '</style>'; list-style: url(../../images/dot.svg); margin-left: 37px }",
}


@pytest.mark.ci_lane
async def test_a_page_is_shown_with_the_files_of_the_session_that_it_names(make_studio: StudioMaker, tab: Tab) -> None:
    b = "getComputedStyle(document.querySelector('b'))"
    tell = "[...document.images].map((one) => one.naturalWidth), "
    tell += "getComputedStyle(document.body).backgroundImage.slice(0, 23), "
    tell += f"{b}.marginLeft, {b}.fontSize, {b}.color, {b}.backgroundImage.length > 99, window.text"
    code = "const end = '</script>', p = document.querySelector('b').tagName; addEventListener('load', "
    code += f"() => top.postMessage({{told: [{tell}, end, p]}}, '*'))"
    made = [create(DOT, "images/dot.svg"), *(create(text, path) for path, text in SHEETS.items())]
    replies = [*made, create(code, "code.js"), create(LINKED), "done"]
    async with make_studio(ScriptedModel(replies), tools=builtin_tools()) as studio:
        await enter(tab, studio)
        await tab.evaluate(SPY)
        await send_message(tab, "Make pages")
        await tab.wait_for("document.getElementById('stop').hidden")
        await tab.wait_for(f"{PANE}.querySelectorAll('.files li').length === 6 && !{RUN}.disabled")
        choose = f"[...{PANE}.querySelectorAll('.files button')].find((one) => one.textContent === 'index.html')"
        await tab.evaluate(f"{choose}.click()")
        blocked = f"[...{PANE}.querySelectorAll('.blocked li')].map((one) => one.textContent).sort()"
        await tab.wait_for(f"{blocked}.join() === 'image images/none.png,style https://cdn.example/c.css'")
        await tab.evaluate(f"{RUN}.click()")
        told = await tab.wait_for("messages.find(({told}) => told)?.told")
        style = ["37px", "31px", "rgb(255, 0, 0)", True, '<img src="images/dot.svg">']
        assert told == [[7, 7, 0], 'url("data:image/svg+xml', *style, "</script>", "B"]
        assert [entry for entry in tab.errors if "none.png" not in entry and "cdn.example" not in entry] == []


@pytest.mark.ci_lane
async def test_each_option_has_a_tab_and_the_one_that_is_picked_becomes_the_session(
    make_studio: StudioMaker, tab: Tab
) -> None:
    replies = [create("<h1>one"), create("<h1>two"), "made it", "made it"]
    async with make_studio(ScriptedModel(replies), tools=builtin_tools()) as studio:
        await enter(tab, studio)
        await tab.evaluate("document.getElementById('variants').value = '2'")
        await send_message(tab, "a page")
        tabs = f"[...{PANE}.querySelectorAll('.options button')].map((one) => one.textContent).join()"
        await tab.wait_for(f"{tabs} === 'Option 1,Option 2'")
        state = f"{PANE}.querySelector('.option-state span').textContent"
        await tab.wait_for(f"{state}.endsWith(': done. ')")
        await tab.evaluate(f"{tab_of('Code')}.click()")
        await tab.wait_for("document.getElementById('stop').hidden")
        texts: list[str] = []
        for number in (1, 2):
            await tab.evaluate(f"{PANE}.querySelectorAll('.options button')[{number - 1}].click()")
            texts.append(await tab.wait_for(CODE))
        assert sorted(texts) == ["<h1>one", "<h1>two"]
        await tab.reload()
        await tab.wait_for(f"{tabs} === 'Option 1,Option 2'")
        await tab.evaluate(f"{PANE}.querySelectorAll('.options button')[1].click()")
        pick = f"{PANE}.querySelector('.pick')"
        await tab.wait_for(f"!{pick}.hidden && {state}.endsWith(': done. ')")
        await tab.evaluate(f"{pick}.click()")
        await tab.wait_for(f"{tabs} === 'Session,Option 1,Option 2'")
        await tab.evaluate(f"{tab_of('Code')}.click()")
        await tab.wait_for(f"{CODE} === {texts[1]!r}")
        await tab.evaluate(f"{PANE}.querySelectorAll('.options button')[2].click()")
        assert "in use" in await tab.wait_for(f"{state}.includes('in use') && {state}")
        assert tab.errors == []


async def downloaded(tab: Tab, folder: Path, name: str, button: str) -> bytes:
    """Click a button and return the file that the browser stores."""
    await tab.click(f"{PANE}.querySelector({button!r})")
    file = folder / name
    async with asyncio.timeout(PATIENCE):
        while not (file.exists() and file.stat().st_size):  # Chromium reserves the name with an empty file
            await tab.evaluate("null")
    content = file.read_bytes()
    file.unlink()
    return content


@pytest.mark.ci_lane
async def test_an_option_is_stopped_and_the_files_of_the_other_are_copied_and_downloaded(
    make_studio: StudioMaker, tab: Tab, tmp_path: Path
) -> None:
    stalled = [create("<h1>never" + "x" * 400), stall_after(30)]
    edit = call("edit_file", {"path": "index.html", "old_text": "two", "new_text": "2"})
    replies = [stalled, [create("<h1>two 🥐"), create("b {}", "css/b.css")], "made it", edit, "edited it"]
    async with make_studio(ScriptedModel(replies), tools=builtin_tools()) as studio:
        await enter(tab, studio)
        await tab.save_downloads(tmp_path)
        await tab.allow_clipboard()
        await tab.evaluate("document.getElementById('variants').value = '2'")
        await send_message(tab, "a page")
        state = f"{PANE}.querySelector('.option-state span').textContent"
        show = f"{PANE}.querySelectorAll('.options button')[{{}}].click()"
        stop = f"{PANE}.querySelector('.stop-option')"
        number = 0
        await tab.wait_for(f"{PANE}.querySelectorAll('.options button').length === 2 && !{stop}.parentElement.hidden")
        await tab.evaluate(show.format(number))
        async with asyncio.timeout(PATIENCE):
            while not await tab.evaluate(f"{state}.endsWith(': done. ')"):  # either option may get the first reply
                number = 1 - number
                await tab.evaluate(show.format(number))
        assert await tab.evaluate(f"{stop}.hidden")
        await tab.evaluate(show.format(1 - number))
        await tab.wait_for(f"!{stop}.hidden")
        await tab.click(stop)
        await tab.wait_for(f"{state}.includes(': stopped') && {stop}.hidden")
        assert await tab.evaluate(f"{PANE}.querySelector('.pick').hidden")
        await tab.wait_for("document.getElementById('stop').hidden")

        await tab.evaluate(show.format(number))
        choose = (
            f"[...{PANE}.querySelectorAll('.files button')].find((one) => one.textContent === 'index.html').click()"
        )
        await tab.evaluate(choose)
        await tab.click(f"{PANE}.querySelector('.copy')")
        await tab.wait_for("document.getElementById('status').textContent === 'copied'")
        assert await tab.evaluate("navigator.clipboard.readText()") == "<h1>two 🥐"
        assert (await downloaded(tab, tmp_path, "index.html", ".download")).decode() == "<h1>two 🥐"
        await tab.click(f"{PANE}.querySelector('.pick')")
        await tab.wait_for(f"{PANE}.querySelector('.options').textContent.startsWith('Session')")
        assert f"Option {number + 1} goes on." in await tab.evaluate(SHOWN)

        await send_message(tab, "2 is shorter")
        revisions = f"[...{PANE}.querySelector('.revisions').options].map((one) => one.text)"
        await tab.wait_for(f"{revisions}.length === 2 && document.getElementById('stop').hidden")
        archive = zipfile.ZipFile(io.BytesIO(await downloaded(tab, tmp_path, "artifacts.zip", ".zip")))
        files = {name: archive.read(name).decode() for name in archive.namelist()}
        assert files == {"index.html": "<h1>2 🥐", "css/b.css": "b {}"}
        await tab.reload()
        await tab.wait_for(f"{revisions}.length === 2")
        select = f"{PANE}.querySelector('.revisions')"
        await tab.evaluate(f"{select}.selectedIndex = 0, {select}.dispatchEvent(new Event('change'))")
        await tab.wait_for(f"{SIZE} === '{len('<h1>two 🥐'.encode())} bytes'")
        assert (await downloaded(tab, tmp_path, "index.html", ".download")).decode() == "<h1>two 🥐"
        assert tab.errors == []


@pytest.mark.cases(quick=0)
async def test_a_page_that_hangs_is_named_and_stopped(make_studio: StudioMaker, tab: Tab) -> None:
    page = "<script>top.postMessage({hangs: true}, '*'); setTimeout(() => { for (;;); }, 300)</script>"
    uses = ["<g id='a{}'>{}</g>".format(n, f"<use href='#a{n - 1}'/>" * 10) for n in range(1, 9)]
    bomb = f"<svg xmlns='http://www.w3.org/2000/svg'><path id='a0' d='M0 0h9v9'/>{''.join(uses)}</svg>"
    replies = [create(page), "done", create(bomb, "bomb.svg"), "done", create("<p>next", "next.html"), "done"]
    async with make_studio(ScriptedModel(replies), tools=builtin_tools()) as studio:
        await enter(tab, studio)
        await tab.evaluate(SPY)
        await send_message(tab, "Make a page")
        await tab.wait_for(f"!{RUN}.disabled && !{PANE}.hidden")
        await tab.evaluate(f"{RUN}.click()")
        await tab.wait_for("messages.some(({hangs}) => hangs)")
        await tab.wait_for(f"{PANE}.innerText.includes('The page does not answer. Stop ends it.')")
        await tab.evaluate("messages.length = 0")
        await tab.evaluate(f"{RUN}.click()")
        await tab.wait_for("messages.some(({type}) => type === 'shown')")
        assert "does not answer" not in await tab.evaluate(f"{PANE}.innerText")

        await send_message(tab, "Make a drawing")
        await tab.wait_for(f"{PANE}.innerText.includes('The page does not answer. Stop ends it.')")
        assert await tab.evaluate(f"[{RUN}.textContent, {RUN}.disabled]") == ["Stop", False]
        await tab.evaluate("messages.length = 0")
        await send_message(tab, "Make another")
        await tab.wait_for("messages.some(({type}) => type === 'shown')")
        assert "does not answer" not in await tab.evaluate(f"{PANE}.innerText")
        await tab.evaluate(f"{FILES}.find((one) => one.textContent === 'bomb.svg').click()")
        await tab.wait_for(f"{PANE}.innerText.includes('The page does not answer. Stop ends it.')")
        await tab.evaluate(f"{RUN}.click()")
        await tab.wait_for(f"{PANE}.innerText.includes('The page was stopped, as it did not answer.')")
        assert await tab.evaluate(f"{RUN}.textContent + {PANE}.querySelectorAll('iframe').length") == "Run0"
        await tab.evaluate("messages.length = 0")
        await tab.evaluate(f"{FILES}.find((one) => one.textContent === 'next.html').click()")
        await tab.wait_for("messages.some(({type}) => type === 'shown')")
        assert "did not answer" not in await tab.evaluate(f"{PANE}.innerText")
