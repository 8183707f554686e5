"""Changes of files on the page: rows with the numbers of their lines, marked words, and what is not shown."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from agenticx import builtin_tools
from agenticx.llms import ScriptedModel
from agenticx.testing import call
from agenticx.tools.diffs import unified_diff
from tests.support.javascript import NODE, run_module
from tests.support.lanes import Count
from tests.support.server.chromium import CHROMIUM, Tab
from tests.support.server.conversations import run_turn
from tests.support.server.page import LOG, STOPPED, button, click, enter, field, fill, send_message
from tests.support.server.running_studio import StudioMaker

READ_ALL = "return given.map(([diff, below]) => module.diffLines(diff, below))"
FILL_ALL = "return given.map(([rows, before]) => module.fillGaps(rows, before))"
BEFORE = "".join(f"line {number}\n" for number in range(1, 31))
AFTER = BEFORE.replace("line 5\n", "the line 5 <b>\n").replace("line 20\n", "") + "end\u202e"


@pytest.mark.skipif(NODE is None, reason="needs node")
def test_the_rows_of_a_diff_have_the_numbers_of_their_lines_in_both_files(count: Count, rng: Random) -> None:
    pairs = [(_text(rng), _text(rng)) for _ in range(count(100, 1_000, 20_000))]
    diffs = [unified_diff(before, after, "a") for before, after in pairs]
    read = run_module("text/diff.js", READ_ALL, [[diff.text, diff.unchanged_below] for diff in diffs])
    changed = [(*pair, result["rows"]) for pair, result in zip(pairs, read, strict=True) if pair[0] != pair[1]]
    filled = run_module("text/diff.js", FILL_ALL, [[rows, before] for before, _, rows in changed])
    for (*texts, _), rows in zip(changed, filled, strict=True):
        for side, text in zip(("old", "new"), texts, strict=True):
            lines = [row["text"] + "\n" * row["ended"] for row in rows if row[side] is not None]
            assert "".join(lines) == text  # with the equal lines
    for (before, after), result in zip(pairs, read, strict=True):
        assert result["hidden"] == 0
        if before != after:  # each line is in one row, or counted by one
            counts = [row.get("count", 1) for row in result["rows"] if row["type"] != "removed"]
            assert sum(counts) == after.count("\n") + (after[-1:] not in {"", "\n"})
        for side, text, absent in (("old", before, "added"), ("new", after, "removed")):
            lines = text.removesuffix("\n").split("\n")
            rows = [row for row in result["rows"] if row["type"] not in {"gap", absent}]
            assert [row["text"] for row in rows] == [lines[row[side] - 1] for row in rows]
            assert [row["ended"] for row in rows] == [row[side] < len(lines) or text.endswith("\n") for row in rows]


def _text(rng: Random) -> str:
    lines = [rng.choice(("a", "b", "", "+c", "-d", "@@ e", " f")) for _ in range(rng.randrange(1, 40))]
    return "\n".join(lines) + rng.choice(("", "\n"))


@pytest.mark.skipif(NODE is None, reason="needs node")
def test_the_rows_of_a_diff_that_was_cut_have_the_number_of_lines_left_out() -> None:
    after = "".join(f"{number}\n" for number in range(2_000))
    diff = unified_diff("", after, "a", max_chars=500)
    (read,) = run_module("text/diff.js", READ_ALL, [[diff.text, 5]])
    assert diff.is_cut
    assert read["hidden"] == 2_000 - len(read["rows"])


@pytest.mark.anyio
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
async def test_a_diff_is_shown_with_signs_marked_words_and_folded_lines_beside_each_other_where_there_is_room(
    make_studio: StudioMaker, tab: Tab
) -> None:
    async with make_studio() as studio:
        await tab.open(f"http://127.0.0.1:{studio.port}/")
        await tab.evaluate(
            """(async () => {
                const { html, render } = await import("/assets/vendor/preact.js");
                const { DiffView } = await import("/assets/ui/diff_view.js");
                const { compareTexts } = await import("/assets/text/diff.js");
                const { diffLines } = await import("/assets/vendor/diff.js");
                window.box = document.createElement("div");
                document.body.replaceChildren(box);
                window.show = (width, props) => {
                    box.style.width = width;
                    render(html`<${DiffView} ...${props} />`, box);
                };
                window.compare = (before, after) => compareTexts(before, after, diffLines);
            })()"""
        )
        diff = unified_diff(BEFORE, AFTER, "a.txt").text
        await tab.evaluate(f"show('600px', {{diff: {diff!r}, cut: true}})")
        await tab.wait_for("box.querySelectorAll('mark').length === 2")
        cells = "[...row.cells].map((cell) => cell.textContent.trim()).join(' ')"
        rows = f"[...box.querySelectorAll('tr')].map((row) => {cells})"
        shown = await tab.evaluate(rows)
        assert shown[:7] == [
            "1 unchanged line",
            "2 2  line 2",
            "3 3  line 3",
            "4 4  line 4",
            "5  −removed line 5",
            " 5 +added the line 5 <b>",
            "6 6  line 6",
        ]
        assert shown[-2] == " 30 +added end⟨U+202E⟩ no line break at the end"
        assert await tab.evaluate("[...box.querySelectorAll('mark')].map((mark) => mark.textContent)") == [
            "the ",
            " <b>",
        ]
        assert shown[-1] == "The rest is not shown"
        assert await tab.evaluate("box.querySelector('.cut').textContent") == "More lines not shown"

        line = "word " * 120
        await tab.evaluate(f"show('600px', {{rows: compare({line!r} + 'old', {line!r} + 'new')}})")
        marks = "[...box.querySelectorAll('mark')].map((mark) => mark.textContent).join()"
        await tab.wait_for(f"{marks} === 'old,new'")  # also of a long line

        await tab.evaluate(f"show('910px', {{diff: {diff!r}}})")
        await tab.wait_for("box.querySelector('.diff.wide')")
        assert "5 −removed line 5 5 +added the line 5 <b>" in await tab.evaluate(rows)
        widths = "[...box.querySelector('tr:nth-child(2)').cells].map((cell) => cell.offsetWidth)"
        number, sign, line, *others = await tab.evaluate(widths)
        assert number + sign < line / 5
        assert [abs(one - other) <= 2 for one, other in zip((number, sign, line), others, strict=True)] == [True] * 3
        far = "@@ -99998,3 +9998,3 @@\n a\n-b\n+c\n d"
        await tab.evaluate(f"show('300px', {{diff: {far!r}}})")
        await tab.wait_for("!box.querySelector('.diff.wide')")
        heights = "new Set([...box.querySelectorAll('tr:not(.gap)')].map((row) => row.offsetHeight)).size"
        assert await tab.wait_for(f"box.innerText.includes('100000') && {heights}") == 1  # numbers are on one line

        await tab.evaluate(f"show('600px', {{rows: compare({BEFORE!r}, {AFTER!r})}})")
        await tab.wait_for("!box.querySelector('.wide') && box.querySelector('.gap button')")
        assert await tab.evaluate("box.querySelector('.gap button').textContent") == "Show 8 unchanged lines"
        count = await tab.evaluate("box.querySelectorAll('tr').length")
        await tab.evaluate("box.querySelector('.gap button').focus()")
        for word, expanded, more in (("Hide", "true", 8), ("Show", "false", 0)):  # they fold again
            await tab.press("Enter")
            await tab.wait_for(f"box.querySelectorAll('tr').length === {count + more}")
            focused = "[document.activeElement.textContent, document.activeElement.ariaExpanded]"
            assert await tab.evaluate(focused) == [f"{word} 8 unchanged lines", expanded]
        assert tab.errors == []


TWO_FRAMES = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
PANE = "document.querySelector('.changes-pane')"
SHOWN_FILES = f"[...({PANE}?.querySelectorAll('summary') ?? [])].map((one) => one.innerText)"


@pytest.mark.anyio
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
async def test_the_pane_lists_what_became_of_each_file_in_the_session_or_in_a_turn(
    make_studio: StudioMaker, tab: Tab
) -> None:
    long = "".join(f"line {number} with some words in it\n" for number in range(1_000))
    script = [
        [
            call("file_write", {"path": "a.txt", "content": "one\n"}),
            call("file_write", {"path": "b.txt", "content": long}),
        ],
        "first",
        [
            call("file_write", {"path": "a.txt", "content": "two\n"}),
            call("file_edit", {"path": "b.txt", "old_text": "line 500 with", "new_text": "line 500 and"}),
        ],
        "second",
    ]
    model = ScriptedModel(script)
    async with make_studio(model, tools=builtin_tools(), permission_mode="accept_edits") as studio:
        await enter(tab, studio)
        for text, answer in (("Write both", "first"), ("Change a", "second")):
            await send_message(tab, text)
            await tab.wait_for(f"{LOG}.includes({answer!r}) && {STOPPED}")
        await click(tab, "Show changes")
        await tab.wait_for(f"{SHOWN_FILES}.length === 2")
        assert await tab.evaluate(SHOWN_FILES) == ["b.txt (new) +1000 −0", "a.txt (new) +1 −0"]
        await click(tab, "a.txt", PANE)
        line = f"[...{PANE}.querySelectorAll('.line')].map((one) => one.innerText).join()"
        assert await tab.wait_for(line) == "two"

        await click(tab, "b.txt", PANE)
        await tab.evaluate(f"{button('Show the whole change', PANE)}.focus()")
        await tab.press("Enter")
        await tab.wait_for(f"!{PANE}.querySelector('.cut') && {button('Show the whole change', PANE)} === undefined")
        assert await tab.evaluate("document.activeElement.className") == "diff-scroll"  # there is no button any more

        await fill(tab, "Of which turn", await tab.evaluate(f"{PANE}.querySelectorAll('option')[2].value"))
        await tab.wait_for(f"{SHOWN_FILES}.join() === 'b.txt +1 −1,a.txt +1 −1'")
        await tab.evaluate("document.querySelectorAll('#log .card.call summary')[3].click()")
        for place in (PANE, "document.querySelectorAll('#log .card.call')[3]"):  # of the lines before and after it
            await tab.wait_for(f"{button('Show 496 unchanged lines', place)} && true")
            await tab.evaluate(f"{button('Show 497 unchanged lines', place)}.focus()")
            await tab.evaluate("document.getElementById('log').scrollTop = 1e6")  # its end is followed
            await tab.evaluate(TWO_FRAMES)
            top = "Math.round(document.activeElement.getBoundingClientRect().top)"
            before = await tab.evaluate(top)
            await tab.press("Enter")
            hide = button("Hide 497 unchanged lines", place)
            await tab.wait_for(f"{place}.innerText.includes('line 100 with') && document.activeElement === {hide}")
            await tab.evaluate(TWO_FRAMES)
            assert await tab.evaluate(top) == before  # it stays where it was, also at the end of the log
        assert tab.errors == []


@pytest.mark.anyio
@pytest.mark.ci_lane
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
async def test_long_lists_of_turns_and_revisions_begin_with_the_newest(make_studio: StudioMaker, tab: Tab) -> None:
    def write(number: int) -> list[Any]:
        text = f"{number}\n"
        return [call("file_write", {"path": "a.py", "content": text}), call("create_file", {"content": text})]

    script = [part for number in range(60) for part in (write(number), f"done {number}")]
    async with make_studio(ScriptedModel(script), tools=builtin_tools(), permission_mode="accept_edits") as studio:
        session_id = await studio.session()
        await run_turn(studio, session_id, *(f"turn {number}" for number in range(60)))
        await enter(tab, studio, f"#/s/{session_id}")
        pane = "document.getElementById('pane')"
        await tab.wait_for(f"{pane} && true")  # opens by itself for a page
        for name, kind, oldest, at in (("Preview", "Revision", "1", 0), ("Changes", "Of which turn", "turn 0", 1)):
            await click(tab, name, pane)
            select = field(kind, pane)
            listed = f"[...({select}?.options ?? [])].map((one) => one.label)"
            await tab.wait_for(f"{listed}[{at}]?.startsWith('List 10 earlier ') && {listed}.length === {at} + 51")
            before = await tab.evaluate(f"{select}.value")
            await fill(tab, kind, "earlier", pane)
            await tab.wait_for(f"{listed}.length === {at} + 60 && {listed}[{at}].endsWith({oldest!r})")
            assert await tab.evaluate(f"{select}.value") == before
        await tab.wait_for(f"{button('Show 20 more turns', pane)} && true")
        assert tab.errors == []
