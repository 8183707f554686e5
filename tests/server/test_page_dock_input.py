"""Keys and clicks that answer a decision: those that were meant for it, and none that were on their way elsewhere."""

from __future__ import annotations

import pytest

from agenticx import builtin_tools
from agenticx.llms import ScriptedModel
from agenticx.testing import call
from agenticx.tools.builtin import ask_user
from tests.support.server.chromium import CHROMIUM, Tab
from tests.support.server.page import DECISION, INPUT, SLOW_CLOCK, STOPPED, click, enter, field, write
from tests.support.server.running_studio import StudioMaker

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]

READY = f"{DECISION}?.dataset.ready === ''"
FOCUSED = f"document.activeElement === {DECISION}?.querySelector('h2')"
HEADING = f"({DECISION}?.querySelector('h2').innerText ?? '')"
NO_DECISION = f"!{DECISION} && {STOPPED}"


AT_ONCE = f"addEventListener('keydown', () => {{ window.focusedAtOnce = {FOCUSED}; }})"


async def type_keys(tab: Tab, text: str) -> None:
    for key in text:
        await tab.press(key)


async def send_by_keys(tab: Tab, text: str) -> None:
    """Send a message and wait until the page has moved the focus to the decision that it needs."""
    await tab.evaluate("document.getElementById('input').focus()")
    await type_keys(tab, text)
    await tab.press("Enter")
    await tab.wait_for(f"{FOCUSED} && {READY}")


async def test_what_is_typed_answers_no_decision_that_the_focus_was_moved_to(
    make_studio: StudioMaker, tab: Tab
) -> None:
    writes = [call("file_write", {"path": f"{name}.txt", "content": name}) for name in "ab"]
    async with make_studio(ScriptedModel([writes, "done"]), tools=builtin_tools()) as studio:
        await enter(tab, studio)
        await send_by_keys(tab, "Write")
        await type_keys(tab, "add, do not stop?")
        assert await tab.evaluate(f"[{HEADING}, {INPUT}]") == ["The agent wants to write a.txt", "add, do not stop?"]
        assert await tab.evaluate("document.querySelector('dialog[open]')") is None

        await tab.evaluate(SLOW_CLOCK)  # the next question comes soon after the answer to the one before
        await tab.press("F2")
        await tab.wait_for(FOCUSED)
        await tab.press("a")
        await tab.wait_for(f"{HEADING}.endsWith('b.txt') && {FOCUSED} && {READY}")
        await type_keys(tab, "das")  # the focus is at the next decision, to which nobody went
        assert await tab.evaluate(f"[{HEADING}, {INPUT}]") == [
            "The agent wants to write b.txt",
            "add, do not stop?das",
        ]
        await tab.evaluate("document.getElementById('input').focus()")
        await tab.evaluate(AT_ONCE)
        await tab.press("F2")
        assert await tab.evaluate("window.focusedAtOnce") is True
        await tab.press("x")  # no answer: what was meant for the box
        assert await tab.evaluate(INPUT) == "add, do not stop?dasx"
        await tab.block("*/api/confirms/*")
        await tab.evaluate(f"{DECISION}.querySelector('.deny').focus()")
        await tab.press("Enter")
        await tab.wait_for(
            f"{DECISION}.querySelector('[role=alert]') && {FOCUSED}"
        )  # the button was disabled meanwhile
        await tab.block()
        await tab.press("F2")
        await tab.press("d")
        await tab.wait_for(NO_DECISION)
        assert [(studio.workspace / f"{name}.txt").exists() for name in "ab"] == [True, False]
        assert tab.errors == []


async def test_the_keys_answer_once_the_person_went_to_the_decision_that_has_the_focus(
    make_studio: StudioMaker, tab: Tab
) -> None:
    async def by_f2() -> None:
        await tab.press("F2")

    async def by_tab() -> None:
        await tab.press("Tab")

    async def by_click() -> None:
        await tab.click(f"{DECISION}.querySelector('h2')")

    ways = [by_f2, by_tab, by_click]
    writes = [call("file_write", {"path": f"{number}.txt", "content": ""}) for number in range(len(ways))]
    async with make_studio(ScriptedModel([writes, "done"]), tools=builtin_tools()) as studio:
        await enter(tab, studio)
        await send_by_keys(tab, "Write")
        for number, go_there in enumerate(ways):
            await tab.wait_for(f"{HEADING}.endsWith('{number}.txt') && {FOCUSED} && {READY}")
            await go_there()
            await tab.press("a")
        await tab.wait_for(NO_DECISION)
        assert all((studio.workspace / f"{number}.txt").exists() for number in range(len(ways)))
        assert await tab.evaluate(INPUT) == ""
        assert tab.errors == []


@pytest.mark.ci_lane
async def test_a_decision_that_the_window_gives_the_focus_back_to_takes_no_keys(
    make_studio: StudioMaker, tab: Tab
) -> None:
    write_file = call("file_write", {"path": "a.txt", "content": ""})
    async with make_studio(ScriptedModel([write_file, "done"]), tools=builtin_tools()) as studio:
        await enter(tab, studio)
        await send_by_keys(tab, "Write")
        for place in ("h2", ".allow"):
            await tab.press("F2")
            await tab.wait_for(f"{FOCUSED} && {READY}")
            await tab.evaluate(f"{DECISION}.querySelector({place!r}).focus()")
            await tab.open_beside("about:blank")
            await tab.wait_for("!document.hasFocus()")
            await tab.show()
            await tab.wait_for(f"document.hasFocus() && {READY}")
            await type_keys(tab, "a d")
            where = "[document.activeElement.id, document.activeElement.value]"
            assert await tab.evaluate(f"{DECISION} && {where}") == ["input", "a d"]
            await write(tab, "")
        assert tab.errors == []


HELD = f"""
    window.held = 0;
    new MutationObserver(() => {{ if (!({READY})) window.held += 1; }}).observe({DECISION}, {{attributes: true}});
"""


@pytest.mark.ci_lane
async def test_a_click_on_a_button_that_moves_or_has_just_moved_is_no_answer(
    make_studio: StudioMaker, tab: Tab
) -> None:
    write_file = call("file_write", {"path": "a.txt", "content": ""})
    async with make_studio(ScriptedModel([write_file, "done", "done"]), tools=builtin_tools()) as studio:
        session_id = await studio.session()
        await enter(tab, studio, f"#/s/{session_id}")
        await studio.turn(session_id)
        await tab.wait_for(READY)
        await tab.evaluate(HELD)
        other = {"input": "from another window", "when_busy": "queue"}
        await studio.client.post(f"/api/sessions/{session_id}/turns", json=other)
        await tab.wait_for("window.held && document.getElementById('queued') && true")
        await tab.wait_for(READY)

        await tab.evaluate("""
            window.pressed = 0;
            addEventListener('pointerdown', () => { window.pressed += 1; }, true);
            const below = document.querySelector('.below');
            let count = 0; // each place differs from the one before, whenever the page looks
            window.moving = setInterval(() => { below.style.margin = `${(count += 1) % 40}px`; }, 50);
        """)
        await tab.wait_for(f"!({READY})")
        await tab.evaluate(f"{DECISION}.querySelector('h2').focus()")
        for name in ("allow", "deny"):
            await tab.click(f"{DECISION}.querySelector('.{name}')")
        assert await tab.evaluate(f"window.pressed === 2 && {DECISION} !== null")
        assert await tab.evaluate("document.activeElement.localName") == "h2"
        await tab.evaluate("clearInterval(window.moving)")
        await tab.wait_for(READY)
        await tab.click(f"{DECISION}.querySelector('.allow')")
        await tab.wait_for(NO_DECISION)
        assert (studio.workspace / "a.txt").exists()
        assert tab.errors == []


@pytest.mark.ci_lane
async def test_the_buttons_wait_again_when_the_person_comes_back_to_the_window(
    make_studio: StudioMaker, tab: Tab
) -> None:
    write_file = call("file_write", {"path": "a.txt", "content": ""})
    async with make_studio(ScriptedModel([write_file, "done"]), tools=builtin_tools()) as studio:
        await enter(tab, studio)
        await send_by_keys(tab, "Write")
        await tab.evaluate(HELD)
        await tab.open_beside("about:blank")
        await tab.wait_for("!document.hasFocus()")
        assert await tab.evaluate("window.held") == 0
        await tab.show()
        await tab.wait_for(f"window.held && {READY}")
        await tab.click(f"{DECISION}.querySelector('.allow')")
        await tab.wait_for(NO_DECISION)
        assert tab.errors == []


@pytest.mark.ci_lane
async def test_an_answer_to_a_question_is_typed_where_the_focus_was_moved_to(
    make_studio: StudioMaker, tab: Tab
) -> None:
    asking = call("ask_user", {"text": "Which one?", "options": ["left", "right"]})
    async with make_studio(ScriptedModel([asking, "done"] * 2), tools=[ask_user]) as studio:
        await enter(tab, studio)
        await send_by_keys(tab, "Go")
        await type_keys(tab, "my answer")
        assert await tab.evaluate(f"{field('Another answer', DECISION)}.value") == "my answer"
        await tab.press("Enter")
        await tab.wait_for(NO_DECISION)
        assert "you answered: “my answer”" in await tab.evaluate("document.getElementById('log').innerText")

        await send_by_keys(tab, "Go")
        await tab.press("F2")
        await type_keys(tab, "as i did")  # keys of other decisions among them
        assert await tab.evaluate(f"[{field('Another answer', DECISION)}.value, {INPUT}]") == ["as i did", ""]
        await tab.press("Enter")
        await tab.wait_for(NO_DECISION)
        assert tab.errors == []


@pytest.mark.ci_lane
async def test_one_key_chooses_no_mode_that_asks_less(make_studio: StudioMaker, tab: Tab) -> None:
    async with make_studio() as studio:
        session_id = await studio.session()
        path = f"/api/sessions/{session_id}"
        await enter(tab, studio, f"#/s/{session_id}")
        for name, text in (("model", "Add a page"), ("mode", ", edit it")):  # "Add key…" is one of the models
            await tab.evaluate(f"document.getElementById('session-{name}').focus()")
            await type_keys(tab, text)
        assert await tab.evaluate(f"[{INPUT}, location.hash]") == ["Add a page, edit it", f"#/s/{session_id}"]
        await tab.evaluate("document.getElementById('session-mode').focus()")
        await tab.press("ArrowDown")
        asked = "Edit files and run sandboxed commands without asking"
        await tab.wait_for(f"document.querySelector('dialog[open]')?.innerText.startsWith('{asked}?')")
        assert await tab.evaluate("document.activeElement.innerText") == "Cancel"
        await tab.press("Enter")
        await tab.wait_for("!document.querySelector('dialog[open]')")
        assert (await studio.client.get(path)).json()["permission_mode"] == "default"
        await tab.evaluate("document.getElementById('session-mode').focus()")
        steps = ["plan", "default", "accept_edits", "auto", "accept_edits"]  # the arrows reach each of them
        keys = ["ArrowUp", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowUp"]
        questions = {2: asked, 3: "Run everything without asking, except harmful calls"}  # not on the way back
        for step, (key, mode) in enumerate(zip(keys, steps, strict=True)):
            await tab.evaluate("document.getElementById('session-mode').focus()")
            await tab.press(key)
            if step in questions:
                await click(tab, questions[step], "document.querySelector('dialog[open]')")
            await tab.wait_for(f"document.getElementById('session-mode').value === {mode!r}")
            assert (await studio.client.get(path)).json()["permission_mode"] == mode
        assert not await tab.evaluate("document.querySelector('dialog[open]')")
        assert tab.errors == []
