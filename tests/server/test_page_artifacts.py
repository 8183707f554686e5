"""The pane of a session's files on the page, in a real browser."""

from __future__ import annotations

import asyncio
import csv
import io
import zipfile
from pathlib import Path
from typing import Any

import pytest

from agenticx import builtin_tools
from agenticx.errors import ModelError
from agenticx.llms import ScriptedModel
from agenticx.testing import call, fail, hang, stall_after
from tests.support.server.chromium import CHROMIUM, Tab
from tests.support.server.page import (
    SHOWN,
    STOPPED,
    click,
    enter,
    field,
    fill,
    press_button,
    send_message,
    text_of,
    wait_for_focus,
)
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
CODE = f"{PANE}?.querySelector('.code')?.textContent"
SIZE = f"{PANE}?.querySelector('.size')?.textContent"
BLOCKED = f"({PANE}?.querySelector('.blocked')?.innerText ?? '')"
HELD = f"Boolean({PANE}.querySelector('.held'))"
FILES = f"[...{PANE}.querySelectorAll('.files button')]"
RUN = f"{PANE}?.querySelector('.run')"
SPY = "window.messages = []; addEventListener('message', ({data}) => messages.push(data))"


def create(content: str, path: str = "index.html") -> Any:
    return call("create_file", {"path": path, "content": content}, pieces=40)


def tab_of(name: str) -> str:
    return f"[...{PANE}.querySelectorAll('[role=tab]')].find((tab) => tab.textContent === {name!r})"


PREVIEW = tab_of("Preview")


async def test_a_page_grows_in_the_pane_runs_when_asked_and_stands_again_if_the_next_is_dropped(
    make_studio: StudioMaker, tab: Tab
) -> None:
    growing = [create(PAGE.replace("Bakery", "Butcher") + "x" * 400), stall_after(30)]
    async with make_studio(ScriptedModel([create(PAGE), "done", growing]), tools=builtin_tools()) as studio:
        await enter(tab, studio)
        assert await tab.evaluate(PANE) is None
        await tab.evaluate(SPY)
        await send_message(tab, "Make a page")
        await tab.wait_for(f"{SIZE} === '{len(PAGE.encode())} bytes'")
        listed = await tab.wait_for(f"{BLOCKED}.includes('bread') && {BLOCKED}")
        assert "image https://cdn.example/bread.png" in listed
        assert "AGX_PREVIEW_HOSTS" in listed
        await tab.wait_for(f"{BLOCKED}.includes('A script of the page has not run.')")
        for view in ("Code", "Preview"):
            await tab.evaluate(f"{tab_of(view)}.click()")
            await tab.wait_for(f"Boolean({PANE}.querySelector('.blocked')) === {str(view == 'Preview').lower()}")
        assert "WebRTC" in await tab.evaluate(f"{PANE}.querySelector('.run-note').textContent")
        assert await tab.evaluate("messages.filter(({ran}) => ran).length") == 0

        await tab.evaluate(f"{RUN}.click()")
        await tab.wait_for("messages.find(({ran}) => ran)?.ran === 'Bakery 🥐'")
        assert await tab.evaluate(f"{RUN}.textContent") == "Stop"
        assert not await tab.evaluate(HELD)  # the page is not the shell

        widths = f"[...{PANE}.querySelectorAll('.frame iframe')].map((one) => one.offsetWidth)"
        whole = await tab.evaluate(widths)
        for width, shown in (
            ("768", [768]),
            ("390", [390]),
            ("", whole),
        ):  # also one wider than the pane, which scrolls
            await fill(tab, "Width of the preview", width)
            await tab.wait_for(f"{widths}.join() === {','.join(map(str, shown))!r}")

        await tab.evaluate("messages.length = 0")
        await send_message(tab, "Make another")
        await tab.wait_for(f"{SIZE}.startsWith('being written, ')")
        assert await tab.evaluate(f"[{RUN}.textContent, {RUN}.disabled]") == ["Run", True]
        types = "messages.map(({type}) => type)"
        await tab.wait_for(f"{types}.includes('ready') && {types}.lastIndexOf('shown') > {types}.indexOf('ready')")
        async with asyncio.timeout(PATIENCE):
            while not await tab.evaluate(HELD):  # a frame that is replaced sees no click
                await tab.click(f"{PANE}.querySelector('.frame')")
        await tab.evaluate(f"{tab_of('Code')}.click()")
        assert "Butcher" in await tab.wait_for(f"{CODE}.includes('Butcher') && {CODE}")
        await click(tab, "Stop", "document.getElementById('composer')")
        await tab.wait_for(f"{CODE} === {PAGE!r}")
        await tab.wait_for("[...document.querySelectorAll('.outcome')].at(-1)?.innerText === ' · not run: stopped'")
        assert await tab.evaluate(f"{SIZE} === '{len(PAGE.encode())} bytes' && !{RUN}.disabled")

        await tab.reload()
        await tab.wait_for(f"{SIZE} === '{len(PAGE.encode())} bytes'")
        await tab.evaluate(f"{tab_of('Code')}.click()")
        await tab.wait_for(f"{CODE} === {PAGE!r}")
        assert await tab.evaluate(f"{PANE}.querySelector('[aria-label=Revision]')") is None
        assert [entry for entry in tab.errors if "bread.png" not in entry] == []


USED = """<!doctype html><input id="name"><button style="position: fixed; inset: 3rem 0 0">Draw</button><script>
const tell = (message) => top.postMessage(message, "*");
addEventListener("keydown", ({ key }) => tell({ key }));
addEventListener("focus", () => tell({ focused: true }));
document.querySelector("button").onclick = () => tell({ clicked: true });
tell({ ran: true });
const steal = () => setInterval(() => document.getElementById("name").focus(), 10);
</script>"""
COVER = f"{PANE}.querySelector('.cover')"


async def test_a_page_that_runs_is_used_and_is_removed_if_it_takes_the_keyboard_or_floods(
    make_studio: StudioMaker, tab: Tab
) -> None:
    stealing = USED.replace("</script>", "steal()</script>")
    large = "<script>const all = Array.from({length: 200000}, () => ({}));"
    large += "setInterval(() => top.postMessage(all, '*'), 5)</script>"
    many = "<script>setInterval(() => { for (let n = 0; n < 5000; n += 1) top.postMessage(n, '*'); }, 1)</script>"
    replies = [create(USED), "done", create(stealing), "done", create(large), "done", create(many), "done"]
    async with make_studio(ScriptedModel(replies), tools=builtin_tools()) as studio:
        await enter(tab, studio)
        await tab.evaluate(SPY)
        await send_message(tab, "Make a page")
        await tab.wait_for(f"{STOPPED} && {RUN} && !{RUN}.disabled")
        await tab.evaluate(f"{RUN}.focus()")
        await tab.press("Enter")
        ran = "messages.findIndex(({ran}) => ran)"
        await tab.wait_for(f"{ran} >= 0 && messages.findLastIndex(({{type}}) => type === 'shown') > {ran}")
        await tab.click(f"{PANE}.querySelector('iframe')")  # nothing else was done since Run, so nothing lies over it
        await tab.wait_for("messages.some(({clicked}) => clicked)")
        await tab.press("k")
        await tab.wait_for("messages.some(({key}) => key === 'k')")

        await tab.click("document.getElementById('input')")
        await tab.evaluate("messages.length = 0")
        await tab.click(COVER)
        await tab.wait_for(f"{COVER}.hidden && messages.some(({{focused}}) => focused)")
        await tab.press("j")
        await tab.wait_for("messages.some(({key}) => key === 'j')")

        await send_message(tab, "Make another")
        await tab.wait_for(f"{SIZE} === '{len(stealing.encode())} bytes' && {STOPPED} && !{RUN}.disabled")
        await tab.evaluate("messages.length = 0")
        await tab.evaluate(f"{RUN}.focus()")
        await tab.press("Enter")
        await tab.wait_for("document.activeElement.tagName === 'IFRAME'")
        await tab.evaluate("document.getElementById('input').focus()")
        await tab.wait_for(f"{PANE}.innerText.includes('The page took the keyboard while you')")
        await tab.type("a secret")
        assert await tab.evaluate("[document.activeElement.id, document.activeElement.value]") == ["input", "a secret"]
        assert await tab.evaluate(f"{RUN}.textContent") == "Run"
        assert await tab.evaluate("messages.some(({key}) => key)") is False

        await tab.evaluate(f"{RUN}.focus()")
        await tab.press("Enter")
        await tab.wait_for("document.activeElement.tagName === 'IFRAME'")
        await tab.evaluate("document.getElementById('log').focus()")  # what is typed there is meant for the message box
        await tab.wait_for(f"document.activeElement.id === 'log' && {RUN}.textContent === 'Run'")

        await tab.reload()  # without the spy, which would read what the next page sends
        await tab.wait_for(f"{STOPPED} && {SIZE} === '{len(stealing.encode())} bytes'")
        await tab.evaluate("window.seen = 0; addEventListener('message', () => { seen += 1; })")
        for page, end in (
            (large, f"seen > 30 && ({RUN}.click(), true)"),
            (many, f"{PANE}.innerText.includes('messages without end')"),
        ):
            await send_message(tab, "Make another")
            await tab.wait_for(f"{SIZE} === '{len(page.encode())} bytes' && {STOPPED} && !{RUN}.disabled")
            await tab.evaluate(f"{RUN}.click()")
            await tab.wait_for(f"{RUN}.textContent === 'Stop'")
            await tab.wait_for(end)
            await tab.wait_for(f"{RUN}.textContent === 'Run'")
        assert tab.errors == []


@pytest.mark.ci_lane
async def test_files_are_chosen_with_their_revisions_loaded_and_gone_after_a_rewind(
    make_studio: StudioMaker, tab: Tab
) -> None:
    large = "<p>" + "y" * 300_000  # more than an event carries
    replies = [create(PAGE), create(large), create("a {}", "css/a.css"), "done"]
    async with make_studio(ScriptedModel(replies), tools=builtin_tools()) as studio:
        await enter(tab, studio)
        await send_message(tab, "Make pages")
        files = f"[...({PANE}?.querySelectorAll('.files button') ?? [])].map((one) => one.textContent)"
        await tab.wait_for(f"{files}.join() === 'css/a.css,index.html'")
        await tab.wait_for(STOPPED)
        await tab.reload()
        await tab.wait_for(f"{files}.join() === 'css/a.css,index.html'")
        choose = f"[...{PANE}.querySelectorAll('.files button')].find((one) => one.textContent === {{!r}}).click()"
        await tab.evaluate(choose.format("css/a.css"))
        await tab.wait_for(f"{CODE} === 'a {{}}'")
        assert await tab.evaluate(f"[{PREVIEW}.disabled, {RUN} ?? null]") == [True, None]
        await tab.evaluate(choose.format("index.html"))
        await tab.evaluate(f"{tab_of('Code')}.click()")
        await tab.wait_for(f"{CODE}.length === {len(large)}")
        await tab.evaluate(f"{tab_of('Diff')}.click()")
        signs = f"[...{PANE}.querySelectorAll('.diff .sign')].map((one) => one.firstChild.data).join('')"
        await tab.wait_for(f"{signs} === '{'−' * PAGE.count(chr(10))}+'")
        await fill(tab, "Revision", "1", PANE)  # has none before it
        await tab.evaluate(f"{tab_of('Code')}.click()")
        await tab.wait_for(f"{CODE} === {PAGE!r} && {tab_of('Diff')}.disabled")
        assert await tab.evaluate(f"{PANE}.querySelector('.code-tag').textContent") == "<!doctype"

        await click(tab, "Changes")
        await tab.wait_for(f"{text_of('.changes-pane')}.startsWith('No file of the folder')")
        made = "document.querySelector('.changes-pane .made')"
        assert "2 files of the session, not in the folder css/a.css Preview" in await tab.evaluate(text_of(".made"))
        await click(tab, "Preview css/a.css", made)
        await tab.wait_for(f"{CODE} === 'a {{}}'")
        await click(tab, "Close preview")
        await tab.wait_for(f"!{PANE}")
        await click(tab, "Show files (2)")
        await tab.wait_for(f"{PANE} && true")
        (session,) = (await studio.client.get("/api/sessions")).json()["sessions"]
        await studio.client.post(f"/api/sessions/{session['id']}/rewind", json={"message_id": None})
        await tab.wait_for(f"{text_of('#artifacts')}.includes('no files yet')")
        assert tab.errors == []


@pytest.mark.ci_lane
async def test_a_table_is_shown_as_rows_of_text_the_first_ones_at_once(make_studio: StudioMaker, tab: Tab) -> None:
    rows = [["name", "note"], ["<b>x</b>", 'a "quoted", long\nvalue'], ["=1+1", "\u202eright"], ["", "y" * 400]]
    rows += [[f"row {number}", "z"] for number in range(300)]
    text = written(rows, ",")
    async with make_studio(ScriptedModel([create(text, "people.csv"), "done"]), tools=builtin_tools()) as studio:
        await enter(tab, studio)
        await send_message(tab, "Make a table")
        table_rows = f"[...({PANE}?.querySelectorAll('.csv tbody tr') ?? [])]"
        cells = f"{table_rows}.map((row) => [...row.cells].map((cell) => cell.innerText))"
        shown = await tab.wait_for(f"{STOPPED} && {cells}.length === 200 && {cells}")
        assert await tab.evaluate(f"[...{PANE}.querySelectorAll('thead th')].map((e) => e.innerText)") == [
            "Row",
            *rows[0],
        ]
        assert shown[:2] == [["1", "<b>x</b>", 'a "quoted", long\nvalue'], ["2", "=1+1", "⟨U+202E⟩right"]]
        assert shown[2] == ["3", "", "y" * 300 + "…"]
        await click(tab, "Show more rows", PANE)
        await tab.wait_for(f"{cells}.length === 303 && !{PANE}.innerText.includes('Show more rows')")
        odd = ["", "\ufeffa\tb\r\n", 'a;"b', ",\n,", '""', 'a"b,c"d', *(written(rows[:4], each) for each in ";\t")]
        read = f"""import('/assets/text/csv.js').then(({{ readCsv }}) => {odd}.map((text) => readCsv(text, 9).rows))"""
        assert await tab.evaluate(read) == [
            [],
            [["a", "b"]],
            [["a", "b"]],
            [["", ""], ["", ""]],
            [[""]],
            [['a"b', 'c"d']],
            rows[:4],
            rows[:4],
        ]
        assert tab.errors == []


def written(rows: list[list[str]], separator: str) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=separator).writerows(rows)
    return text.getvalue()


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
        await tab.wait_for(STOPPED)
        await tab.wait_for(f"{PANE}?.querySelectorAll('.files li').length === 6 && !{RUN}.disabled")
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
        await fill(tab, "Number of answers", "2")
        await send_message(tab, "a page")
        tabs = f"[...({PANE}?.querySelectorAll('.options button') ?? [])].map((one) => one.textContent).join()"
        await tab.wait_for(f"{tabs} === 'All,Option 1,Option 2'")
        grid = f"[...{PANE}.querySelectorAll('.grid-item h2')].map((one) => one.innerText.split(' · ').at(-1))"
        await tab.wait_for(f"{grid}.join() === 'done,done'")
        await tab.evaluate(f"{PANE}.querySelectorAll('.options button')[1].click()")
        state = f"({PANE}?.querySelector('.option-state span')?.textContent.trim() ?? '')"
        await tab.wait_for(f"{state}.endsWith(': done.')")
        await tab.evaluate(f"{tab_of('Code')}.click()")
        await tab.wait_for(STOPPED)
        texts: list[str] = []
        for number in (1, 2):
            await tab.evaluate(f"{PANE}.querySelectorAll('.options button')[{number}].click()")
            texts.append(await tab.wait_for(CODE))
        assert sorted(texts) == ["<h1>one", "<h1>two"]
        await tab.reload()
        await tab.wait_for(f"{tabs} === 'All,Option 1,Option 2'")
        await click(tab, "Use this one", f"{PANE}.querySelectorAll('.grid-item')[1]")
        await tab.wait_for(f"{tabs} === 'All,Session,Option 1,Option 2 · picked'")
        await tab.evaluate(f"{tab_of('Code')}.click()")
        await tab.wait_for(f"{CODE} === {texts[1]!r}")
        await tab.evaluate(f"{PANE}.querySelectorAll('.options button')[3].click()")
        await tab.wait_for(f"{state}.endsWith(': done, picked.')")
        assert tab.errors == []


@pytest.mark.ci_lane
async def test_options_without_files_are_shown_by_their_answers(make_studio: StudioMaker, tab: Tab) -> None:
    words = ["one", "two", "three", "four", "five", *["more"] * 8, "next", "last"]
    failing = fail(ModelError("no", code="provider.auth"))
    async with make_studio(ScriptedModel([*(f"It is **{word}**." for word in words), failing])) as studio:
        await enter(tab, studio)
        await fill(tab, "Number of answers", "2")
        await send_message(tab, "a word")
        await tab.wait_for(STOPPED)
        await tab.wait_for(f"{text_of('.next-option')}.startsWith('The next message goes on with option 1,')")
        answers = f"[...({PANE}?.querySelectorAll('.document strong') ?? [])].map((one) => one.innerText)"
        assert sorted(await tab.wait_for(f"{answers}.length === 2 && {answers}")) == ["one", "two"]
        said = await tab.evaluate(
            "[...document.querySelectorAll('#log .card.option > .said')].map((one) => one.innerText)"
        )
        assert sorted(said) == ["It is one.", "It is two."]
        await tab.evaluate("document.getElementById('pane').focus()")
        await tab.press("2")
        (word,) = await tab.wait_for(f"{answers}.length === 1 && {answers}")
        await press_button(tab, "Use this one", PANE)
        await tab.wait_for(f"{text_of('#artifacts .option-state')} === 'scripted: done, picked.'")
        await wait_for_focus(tab, "#pane .option-state")
        assert await tab.evaluate("document.querySelector('.next-option')") is None
        assert await tab.evaluate(answers) == [word]
        listed = "[...document.querySelectorAll('.card.option summary')].map((one) => one.innerText)"
        await tab.wait_for(f"{listed}.join() === 'Option 1 · scripted · done,Option 2 · scripted · done · picked'")
        await press_button(tab, "Use this one", "document.getElementById('log')")  # this takes the place of the first
        await wait_for_focus(tab, ".card.option", "Option 1")
        changed = ["Option 1 · scripted · done · picked", "Option 2 · scripted · done"]
        await tab.wait_for(f"{listed}.join() === {','.join(changed)!r}")
        tabs = f"[...({PANE}?.querySelectorAll('.options button') ?? [])].map((one) => one.innerText).join()"
        await tab.wait_for(f"{tabs} === 'All,Option 1 · picked,Option 2'")

        await fill(tab, "Number of answers", "3")
        await send_message(tab, "another word")  # of which the answers are shown in place of the one before
        await tab.wait_for(f"{answers}.toSorted().join() === 'five,four,three'")
        await tab.wait_for(STOPPED)
        boxes = f"[...{PANE}.querySelectorAll('.grid-item')]"
        for width, rows in ((1280, [2, 1]), (1920, [3])):  # without an empty place, and as high as their texts
            await tab.resize(width, 800)
            tops = f"{boxes}.map((one) => one.getBoundingClientRect().top)"
            counts = f"[...new Set({tops})].map((top) => {tops}.filter((one) => one === top).length)"
            await tab.wait_for(f"innerWidth === {width} && {counts}.join() === {','.join(map(str, rows))!r}")
            right = "(element) => Math.round(element.getBoundingClientRect().right)"
            assert await tab.evaluate(f"({right})({boxes}.at(-1)) === ({right})({PANE}.querySelector('.grid'))")
            assert await tab.evaluate(f"Math.max(...{boxes}.map((one) => one.offsetHeight))") < 160
        await tab.resize(1280, 800)
        await click(tab, "Use this one", "document.getElementById('log')")
        await tab.wait_for(f"{text_of('#artifacts .option-state')} === 'scripted: done, picked.'")
        assert not await tab.evaluate("document.querySelector('#log .answer')")  # the cards say all that the list says
        changed += ["Option 3 · scripted · done · picked", *(f"Option {number} · scripted · done" for number in (4, 5))]
        assert await tab.evaluate(listed) == changed
        await tab.reload()
        await tab.wait_for(f"{listed}.join() === {','.join(changed)!r}")

        await fill(tab, "Number of answers", "8")  # too many to be beside each other
        await send_message(tab, "more words")
        numbered = [f"Option {number}{' · picked' if number in (1, 3) else ''}" for number in range(1, 14)]
        await tab.wait_for(f"{STOPPED} && {tabs} === {','.join(numbered)!r}")
        goes_on = "The next message goes on with option 6, unless you pick another one first."
        await tab.wait_for(f"{text_of('.next-option')} === {goes_on!r}")
        await send_message(tab, "and now")
        await tab.wait_for(f"{SHOWN}.includes('Option 6 goes on.') && {STOPPED}")
        assert await tab.evaluate("document.querySelector('.next-option')") is None

        await fill(tab, "Number of answers", "2")
        await send_message(tab, "a word at last")
        advice = "An option cannot be tried again alone. Use another one, or edit the message and send it again."
        failed = f"(({{innerText}}) => innerText.includes('did not accept the key') && innerText.includes({advice!r}))"
        await tab.wait_for(f"[...document.querySelectorAll('.card.option')].some({failed})")
        await tab.wait_for(f"[...{PANE}.querySelectorAll('.grid-item')].some({failed})")
        await click(tab, "Edit", "[...document.querySelectorAll('#log .user')].at(-1)")
        await tab.wait_for(f"{field('Number of answers')}?.value === '2'")  # as many are made again
        await click(tab, "Cancel", "document.getElementById('editing')")
        await tab.wait_for(f"{field('Number of answers')}?.value === ''")
        await press_button(tab, "Use this one", PANE)
        await tab.wait_for(f"!document.body.innerText.includes({advice!r})")
        assert tab.errors == []


async def test_an_option_is_picked_while_another_is_written(make_studio: StudioMaker, tab: Tab) -> None:
    growing = ["\n\n".join(f"Line {number}." for number in range(200)), hang()]
    async with make_studio(ScriptedModel([growing, "It is short.", "And this is next."])) as studio:
        await enter(tab, studio)
        await fill(tab, "Number of answers", "2")
        await send_message(tab, "a word")
        states = f"[...({PANE}?.querySelectorAll('.grid-item h2') ?? [])].map((one) => one.innerText.split(' · ')[2])"
        found = await tab.wait_for(
            f"{states}.includes('done') && {states}.some((one) => /^Writing, \\d+ s$/.test(one)) && {states}"
        )
        done = found.index("done")
        box = f"{PANE}.querySelectorAll('.grid-item')[{1 - done}].querySelector('.document')"
        await tab.wait_for(f"{box}?.innerText.includes('Line 198.')")
        await tab.wait_for(f"{box}.scrollTop > 0 && {box}.scrollHeight - {box}.scrollTop - {box}.clientHeight <= 24")
        labels = await tab.evaluate(f"[...{PANE}.querySelectorAll('.document')].map((one) => one.ariaLabel)")
        assert labels == ["Answer of Option 1", "Answer of Option 2"]
        assert await tab.evaluate("document.querySelector('.next-option')") is None
        await send_message(tab, "and then")
        goes_on = "The queued message goes on with the first option that is done, unless you pick another one first."
        await tab.wait_for(f"{text_of('.next-option')} === {goes_on!r}")
        await press_button(tab, "Use this one", f"{PANE}.querySelectorAll('.grid-item')[{done}]")
        await tab.wait_for(f"{SHOWN}.includes('Option {done + 1} goes on.') && {SHOWN}.includes('next.') && {STOPPED}")
        await wait_for_focus(tab, "#pane")
        await tab.wait_for(f"{text_of('#artifacts')}.includes('done, picked')")
        await tab.evaluate(f"{PANE}.querySelector('.options button').click()")  # all of them again
        await tab.wait_for(f"{states}[{done}] === 'done, picked' && {states}[{1 - done}] === 'stopped'")
        assert tab.errors == []


async def test_an_answer_that_has_ended_is_shown_from_its_beginning_unless_the_person_has_scrolled(
    make_studio: StudioMaker, tab: Tab
) -> None:
    growing = ["\n\n".join(f"Line {number}." for number in range(200)), hang()]
    async with make_studio(ScriptedModel([growing, growing])) as studio:
        await enter(tab, studio)
        await fill(tab, "Number of answers", "2")
        await send_message(tab, "a word")
        boxes = f"[...({PANE}?.querySelectorAll('.grid-item .document') ?? [])]"
        hidden = f"{boxes}.map((one) => one.scrollHeight - one.scrollTop - one.clientHeight)"  # below
        await tab.wait_for(f"{boxes}.length === 2 && {boxes}.every((one) => one.innerText.includes('Line 198.'))")
        await tab.wait_for(f"{hidden}.every((pixels) => pixels <= 24) && {boxes}.every((one) => one.scrollTop > 300)")
        await tab.turn_wheel(f"{boxes}[0]", -300)
        await tab.wait_for(f"{hidden}[0] > 250")
        for number in (1, 2):
            await click(tab, "Stop this one", f"{PANE}.querySelector('[aria-label=\"Option {number}\"]')")
        await tab.wait_for(STOPPED)
        await tab.wait_for(f"{boxes}[0].scrollTop > 300 && {boxes}[1].scrollTop === 0")
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
        await fill(tab, "Number of answers", "2")
        await send_message(tab, "a page")
        state = f"({PANE}?.querySelector('.option-state span')?.textContent.trim() ?? '')"
        show = f"{PANE}.querySelectorAll('.options button')[1 + {{}}].click()"
        stop = f"{PANE}?.querySelector('.stop-option')"
        number = 0
        await tab.wait_for(f"{PANE}?.querySelectorAll('.options button').length === 3")
        await tab.evaluate(show.format(number))
        async with asyncio.timeout(PATIENCE):
            while not await tab.evaluate(f"{state}.endsWith(': done.')"):  # either option may get the first reply
                number = 1 - number
                await tab.evaluate(show.format(number))
        assert await tab.evaluate(f"{stop} ?? null") is None
        await tab.evaluate(show.format(1 - number))
        await tab.wait_for(f"{stop} && true")
        await press_button(tab, "Stop this one", PANE)
        await tab.wait_for(f"{state}.includes(': stopped') && !{stop}")
        await wait_for_focus(tab, "#pane .option-state")
        assert await tab.evaluate(f"{PANE}.querySelector('.pick')") is None
        await tab.wait_for(STOPPED)

        await tab.evaluate(show.format(number))
        choose = (
            f"[...{PANE}.querySelectorAll('.files button')].find((one) => one.textContent === 'index.html').click()"
        )
        await tab.evaluate(choose)
        await tab.click(f"{PANE}.querySelector('.copy')")
        await tab.wait_for(f"{text_of('#message')} === 'Copied'")
        assert await tab.evaluate("navigator.clipboard.readText()") == "<h1>two 🥐"
        await tab.evaluate("""{
            window.copied = navigator.clipboard;
            Object.defineProperty(navigator, "clipboard", { value: undefined }); // as over plain http from elsewhere
        }""")
        await tab.evaluate("copied.writeText('other')")
        await tab.click(f"{PANE}.querySelector('.copy')")
        await tab.wait_for("copied.readText().then((text) => text === '<h1>two 🥐')")
        assert (await downloaded(tab, tmp_path, "index.html", ".download")).decode() == "<h1>two 🥐"
        await tab.click(f"{PANE}.querySelector('.pick')")
        await tab.wait_for(f"{PANE}.querySelector('.options').textContent.includes('Session')")
        await tab.wait_for(f"{SHOWN}.includes('Option {number + 1} goes on.')")

        await send_message(tab, "2 is shorter")
        revisions = f"[...({PANE}?.querySelector('[aria-label=Revision]')?.options ?? [])].map((one) => one.text)"
        await tab.wait_for(f"{revisions}.length === 2 && {STOPPED}")
        archive = zipfile.ZipFile(io.BytesIO(await downloaded(tab, tmp_path, "artifacts.zip", ".zip")))
        files = {name: archive.read(name).decode() for name in archive.namelist()}
        assert files == {"index.html": "<h1>2 🥐", "css/b.css": "b {}"}
        await tab.reload()
        await tab.wait_for(f"{revisions}.length === 2")
        await fill(tab, "Revision", "1", PANE)
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
        await tab.wait_for(f"{RUN} && !{RUN}.disabled")
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
        await tab.wait_for(f"{RUN}.textContent + {PANE}.querySelectorAll('iframe').length === 'Run0'")
        await click(tab, "Show it again", PANE)
        await tab.wait_for(f"{PANE}.innerText.includes('The page does not answer. Stop ends it.')")
        await tab.evaluate("messages.length = 0")
        await tab.evaluate(f"{FILES}.find((one) => one.textContent === 'next.html').click()")
        await tab.wait_for("messages.some(({type}) => type === 'shown')")
        assert "did not answer" not in await tab.evaluate(f"{PANE}.innerText")
