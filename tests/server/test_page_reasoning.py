"""Reasoning steps on the page: the last ones and a clock while a turn runs, then all of them."""

from __future__ import annotations

import pytest

from agenticx import builtin_tools
from agenticx.llms import ScriptedModel
from agenticx.testing import call, say, think
from tests.support.javascript import NODE, run_module
from tests.support.server.chromium import CHROMIUM, Tab
from tests.support.server.page import DECISION, STOPPED, click, enter, send_message
from tests.support.server.running_studio import StudioMaker

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]

STEPS = "[...document.querySelectorAll('.reasoning li')].map((step) => step.textContent)"
LINE = "document.querySelector('.reasoning summary')?.innerText"
CLOCK = "document.querySelector('.reasoning .activity')?.innerText"
LAST = "Wants to write the file '<b>a.txt'"
WORK = [
    [think("First <img src=x onerror=alert(1)> I\u202e look. Then I write."), call("list_files", {"path": "."})],
    [call("look\u200b", {}), call("bash_exec", {"command": "\x1b[1mtrue"})],
    [think("Now the file"), call("file_write", {"path": "<b>a.txt", "content": "x"})],
    [say("It is"), say(" written.")],
]


RANGES = """
    const callsAt = (places) => new Map(places.map((index) => [`call ${index}`, { index }]));
    const turns = given.map(([count, open]) => ({ steps: Array(count), openCalls: callsAt(open) }));
    return turns.map(module.shownRange);
"""


@pytest.mark.skipif(NODE is None, reason="needs node")
def test_the_steps_of_a_running_turn_are_the_last_ones_from_the_call_on_that_runs() -> None:
    given = [[9, []], [9, [2, 3]], [9, [7]], [3, []], [3, [1]]]
    assert run_module("state/reasoning.js", RANGES, given) == [[5, 9], [2, 6], [5, 9], [0, 4], [0, 4]]


@pytest.mark.ci_lane
async def test_a_turn_shows_its_last_steps_beside_a_clock_and_afterwards_all_on_demand(
    make_studio: StudioMaker, tab: Tab
) -> None:
    model = ScriptedModel([*WORK, "Hello."])
    async with make_studio(model, tools=builtin_tools(), permission_mode="default") as studio:
        await enter(tab, studio)
        await send_message(tab, "Write it")
        await click(tab, "Allow once", DECISION)  # of the command
        await tab.wait_for(f"{STEPS}.includes({LAST!r})")
        steps = ["Call look⟨U+200B⟩: failed", "Ran '⟨U+001B⟩[1mtrue'", "Now the file", LAST]
        assert await tab.evaluate(STEPS) == steps
        assert await tab.evaluate("document.querySelector('.reasoning').getAttribute('aria-live')") == "off"

        await tab.reload()  # while it runs: the steps and the time of its begin are in the log
        await tab.wait_for(f"{STEPS}.includes({LAST!r})")
        assert await tab.evaluate(STEPS) == steps
        assert await tab.evaluate("[...document.querySelectorAll('.reasoning > ol')].map(({start}) => start)") == [4]
        await click(tab, "3 earlier steps")
        await tab.wait_for(f"{STEPS}.length === 7 && {STEPS}[2] === \"Listed files '.'\"")
        await click(tab, "3 earlier steps")
        before = await tab.evaluate(CLOCK)
        assert before.startswith("The turn so far")
        assert before.endswith(" s")
        await tab.wait_for(f"{CLOCK} !== {before!r}")  # the turn waits, so no event moves it

        await click(tab, "Allow once", DECISION)
        await tab.wait_for(f"{STOPPED} && document.querySelector('.reasoning:not([open])') && true")
        line = await tab.evaluate(LINE)
        assert line.startswith("7 steps, ")
        assert await tab.evaluate(STEPS) == []
        for _ in range(2):
            await tab.evaluate("document.querySelector('.reasoning summary').click()")
            shown = await tab.wait_for(f"{STEPS}.length === 7 && {STEPS}")
            assert shown[1:3] == ["First <img src=x onerror=alert(1)> I look", "Listed files '.'"]
            assert shown[3:6] == steps[:3]
            assert shown[6] == "Wrote the file '<b>a.txt'"
            await tab.reload()
            await tab.wait_for("document.querySelector('.reasoning:not([open])') && true")
            assert await tab.evaluate(f"[{LINE}, {STEPS}.length]") == [line, 0]

        await send_message(tab, "Hello")
        await tab.wait_for(f"document.querySelectorAll('#log .answer').length === 2 && {STOPPED}")
        assert await tab.evaluate("document.querySelectorAll('.reasoning').length") == 1  # no work, no steps
        assert await tab.evaluate("document.querySelector('#log :is(img, b)')") is None
        assert tab.errors == []
