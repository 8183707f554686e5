"""The log of the page in a real browser: what is mounted, what it follows, and what a turn says in words."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agenticx import builtin_tools
from agenticx.errors import ModelError
from agenticx.knowledge import VaultRegistry
from agenticx.llms import ScriptedModel
from agenticx.subagents import session_tools
from agenticx.testing import call, fail, hang, say, think
from tests.support.server.chromium import CHROMIUM, Tab
from tests.support.server.conversations import run_turn
from tests.support.server.page import FIND_STATUS, fill, find_words, open_session, press_button, text_of, wait_for_focus
from tests.support.server.running_studio import RunningStudio, StudioMaker, note
from tests.support.teams.configured import PAIR, team_file
from tests.support.timeouts import PATIENCE

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]

LOG = "document.getElementById('log')"
TEXT = f"{LOG}.innerText"
CARDS = f"[...{LOG}.querySelectorAll('.card summary')].map((one) => one.innerText)"
ENDING = f"({LOG}.querySelector('article:last-of-type .ending')?.innerText ?? '')"
MOUNTED = f"[...{LOG}.querySelectorAll('article')].map((one) => one.getAttribute('aria-label'))"
FROM_END = f"Math.round({LOG}.scrollHeight - {LOG}.scrollTop - {LOG}.clientHeight)"
PILL = f"{LOG}.querySelector('.pill')"
LINES = "\n\n".join(f"Line {number} of an answer." for number in range(12))


async def answer(studio: RunningStudio, approved: bool = True, **fields: Any) -> None:
    """Answer the next confirmation."""
    async with asyncio.timeout(PATIENCE):
        while not (waiting := (await studio.client.get("/api/confirms")).json()["confirms"]):
            await asyncio.sleep(0.01)
    body = {"approved": approved, "digest": waiting[0]["digest"], **fields}
    assert (await studio.client.post(f"/api/confirms/{waiting[0]['id']}", json=body)).status_code == 200


@pytest.mark.ci_lane
async def test_a_long_log_opens_at_its_end_and_follows_only_while_the_person_is_there(
    make_studio: StudioMaker, tab: Tab
) -> None:
    model = ScriptedModel([*(LINES for _ in range(30)), "The end.", [say("So\n\n" * 40), hang()], LINES, LINES, LINES])
    async with make_studio(model) as studio:
        session_id = await studio.session()
        await run_turn(studio, session_id, *(f"message {number}" for number in range(31)))
        await open_session(tab, studio, session_id)
        await tab.wait_for(f"{TEXT}.includes('The end.')")
        await tab.wait_for(f"{FROM_END} <= 1")
        mounted = await tab.evaluate(MOUNTED)
        assert mounted[-1] == "message 30"
        assert 1 < len(mounted) < 15

        await tab.turn_wheel(LOG, -3000)
        await tab.wait_for(f"{PILL} && !{MOUNTED}.includes('message 30')")
        middle = f"document.elementFromPoint({LOG}.clientWidth / 2, 300).closest('.row')"
        await tab.wait_for(middle)  # rows are mounted wherever the log is looked at
        place = f"[{middle}.dataset.key, Math.round({middle}.getBoundingClientRect().top)]"
        before = await tab.evaluate(place)
        await studio.turn(session_id, "on")
        await tab.wait_for("document.getElementById('stop') && !document.getElementById('stop').hidden")
        assert await tab.evaluate(place) == before  # nothing moves below the eyes

        await tab.evaluate(f"{PILL}.click()")
        await tab.wait_for(f"{FROM_END} <= 1 && {TEXT}.includes('So') && !{PILL}")
        await studio.client.post(f"/api/sessions/{session_id}/stop")
        await tab.wait_for(f"{ENDING}.startsWith('Stopped by you after ')")
        await tab.wait_for(f"{FROM_END} <= 1")  # what was added is followed again

        await tab.evaluate(f"{LOG}.focus()")
        select = f"getSelection().selectAllChildren({LOG}.querySelector('article:last-of-type .row'))"
        leaving = (tab.drag(LOG, 200), tab.press("Home"), tab.evaluate(select))
        for leave in leaving:
            await leave
            await run_turn(studio, session_id, "more")
            await tab.wait_for(f"{PILL} && {FROM_END} > 24")
            await tab.evaluate(f"{PILL}.click()")
            await tab.wait_for(f"{FROM_END} <= 1 && !{PILL}")
        assert tab.errors == []


async def test_a_log_that_fits_is_followed_whatever_is_turned_or_pressed(make_studio: StudioMaker, tab: Tab) -> None:
    async with make_studio(ScriptedModel(["Short.", LINES, LINES])) as studio:
        session_id = await studio.session()
        await run_turn(studio, session_id, "one")
        await open_session(tab, studio, session_id)
        await tab.wait_for(f"{TEXT}.includes('Short.') && {LOG}.scrollHeight === {LOG}.clientHeight")
        await tab.turn_wheel(LOG, -100)
        await tab.evaluate(f"{LOG}.focus()")
        await tab.press("PageUp")
        await run_turn(studio, session_id, "two", "three")
        await tab.wait_for(f"{LOG}.scrollTop > 0 && {FROM_END} <= 1")
        await tab.resize(1280, 3000)
        await tab.wait_for(f"{LOG}.scrollHeight === {LOG}.clientHeight")
        await find_words(tab, "short")
        await tab.wait_for(f"{FIND_STATUS} === '1 of 1' && CSS.highlights.has('found')")
        assert await tab.evaluate(PILL) is None  # nothing is below
        await tab.resize(390, 500)
        await tab.wait_for(f"innerWidth === 390 && {PILL}")
        boxes = f"[...{LOG}.querySelectorAll('.find-bar *')].map((part) => part.getBoundingClientRect())"
        assert await tab.evaluate(f"{boxes}.every(({{left, right}}) => left >= 0 && right <= 390)")
        assert await tab.evaluate(f"{LOG}.querySelector('.find-bar input').offsetWidth > 100")
        await tab.press("Escape")
        await tab.press("PageUp")
        await tab.evaluate(f"{PILL}.click()")
        await tab.wait_for(f"!{PILL} && {FROM_END} <= 1")
        assert tab.errors == []


@pytest.mark.ci_lane
async def test_the_place_in_a_log_is_kept_over_other_sessions_and_a_reload(make_studio: StudioMaker, tab: Tab) -> None:
    async with make_studio(ScriptedModel([LINES for _ in range(30)])) as studio:
        session_id, other = await studio.session(), await studio.session(name="Other")
        await run_turn(studio, session_id, *(f"message {number}" for number in range(30)))
        await open_session(tab, studio, session_id)
        await tab.wait_for(f"{FROM_END} <= 1 && {MOUNTED}.includes('message 29')")
        await tab.turn_wheel(LOG, -2500)
        await tab.wait_for(f"{PILL} && {FROM_END} > 2000")
        label = "document.elementFromPoint(x + 400, y + 5).closest('article')?.ariaLabel"
        top = f"{LOG} && (({{x, y}}) => {label})({LOG}.getBoundingClientRect())"
        before = await tab.wait_for(top)
        await tab.evaluate(f"location.hash = '#/s/{other}'")
        await tab.wait_for(f"{LOG} && !{MOUNTED}.length")
        await tab.evaluate(f"location.hash = '#/s/{session_id}'")
        await tab.wait_for(f"{top} === {before!r}")
        await tab.reload()
        await tab.wait_for(f"{top} === {before!r}")

        await tab.evaluate(f"location.hash = '#/s/{session_id}/m/{await message_of(studio, session_id, 3)}'")
        await tab.wait_for("document.activeElement.closest('article')?.ariaLabel === 'message 3'")
        for key, label in [("ArrowUp", "message 2"), ("ArrowUp", "message 1"), ("ArrowDown", "message 2")]:
            event = f"new KeyboardEvent('keydown', {{key: {key!r}, altKey: true, bubbles: true, cancelable: true}})"
            await tab.evaluate(f"document.activeElement.dispatchEvent({event})")
            await tab.wait_for(f"document.activeElement.closest('article')?.ariaLabel === {label!r}")
        assert tab.errors == []


async def message_of(studio: RunningStudio, session_id: str, number: int) -> str:
    """Return the id of a message of the user, by its number."""
    listed = (await studio.client.get(f"/api/sessions/{session_id}/messages")).json()["messages"]
    return [row["message_id"] for row in listed if row["role"] == "user"][number]


async def test_calls_are_told_in_words_and_those_that_only_read_fold(make_studio: StudioMaker, tab: Tab) -> None:
    reading = [
        call("list_files", {"path": "."}),
        call("file_read", {"path": "a.txt"}),
        call("file_read", {"path": "a.txt"}),
    ]
    script = [
        [think("Let me look."), *reading, call("bash_exec", {"command": "exit 3"})],
        call("file_edit", {"path": "a.txt", "old_text": "one", "new_text": "two\nthree"}),
        call("file_write", {"path": "b\u202e.txt", "content": "x"}),
        call("file_write", {"path": "c.txt", "content": "x"}),
        [call("file_read", {"path": "none.txt"}), call("look", {"at": 'a\n"b"', "for": [1]})],
        "That is **all**.",
        [call("file_write", {"path": "d.txt", "content": "x"}), call("file_read", {"path": "a.txt"})],
    ]
    async with make_studio(ScriptedModel(script), tools=builtin_tools()) as studio:
        (studio.workspace / "a.txt").write_text("one\n")
        session_id = await studio.session()
        await open_session(tab, studio, session_id)
        await tab.resize(1280, 1000)  # rows below a decision are not mounted where it covers the log
        await studio.turn(session_id, "Do it")
        await tab.wait_for(f"{CARDS}.some((one) => one.includes('waits for you'))")
        assert (
            await tab.evaluate(f"{LOG}.querySelector('.request') ?? {text_of('#log .activity span')}")
            == "The turn so far"
        )
        await answer(studio)
        await tab.wait_for(f"{CARDS}.some((one) => one.startsWith('Edit a.txt'))")
        await answer(studio)
        await tab.wait_for(f"{CARDS}.some((one) => one.startsWith('Write b'))")
        await answer(studio, approved=False, reason="Not now")
        await tab.wait_for(f"{CARDS}.some((one) => one.startsWith('Write c') && one.includes('waits for you'))")
        (studio.workspace / "c.txt").write_text("by another program")
        await answer(studio)
        await tab.wait_for(f"{TEXT}.includes('That is all.')")
        cards = [card.split(" ·")[0] for card in await tab.evaluate(CARDS)]
        assert cards == [
            "Listed 1 folder, read 2 files",
            "$ exit 3",
            "Edited a.txt",
            "Write b⟨U+202E⟩.txt",
            "Write c.txt",
            "Read none.txt",
            "Call look",
        ]
        told = await tab.evaluate(f"{CARDS}.join('\\n')")
        for part in (
            "exit 3 · exit 3",
            "a.txt · +2 −1",
            ".txt · not allowed",
            "c.txt · not done: the file changed meanwhile",
            "none.txt · failed",
            "look · no such tool",
        ):
            assert part in told
        lines = await tab.evaluate(
            f"[...{LOG}.querySelectorAll('details.request > summary')].map((one) => one.innerText)"
        )
        assert [line.split(" ·")[0] for line in lines] == [
            *["Allowed once by you"] * 2,
            "Denied by you: Not now",
            "Allowed once by you",
        ]
        opened = (
            f"[...{LOG}.querySelectorAll('.card > details[open] > summary')].map((one) => one.innerText.split(' ·')[0])"
        )
        failed = ["$ exit 3", "Write c.txt", "Read none.txt", "Call look"]
        assert await tab.evaluate(opened) == failed  # what failed opens by itself
        arguments = f"[...{LOG}.querySelectorAll('.card .arguments :is(dt, dd)')].map((part) => part.innerText)"
        shown = ["path", "none.txt", "at", 'a\n"b"', "for", "[\n  1\n]"]
        assert await tab.evaluate(arguments) == shown  # texts as they are
        assert await tab.evaluate(f"{LOG}.querySelector('.answer strong').textContent") == "all"

        await tab.wait_for(f"{FROM_END} <= 1 && {LOG}.scrollTop > 0")
        line = f"[...{LOG}.querySelectorAll('details.request > summary')].at(-1)"
        before = await tab.evaluate(f"Math.round({line}.getBoundingClientRect().top)")
        await tab.evaluate(f"{line}.click()")
        await tab.wait_for(f"{line}.parentElement.open && {line}.parentElement.querySelector('.diff .added') && {PILL}")
        assert await tab.evaluate(f"Math.round({line}.getBoundingClientRect().top)") == before  # it stays where it was
        await tab.evaluate(f"{LOG}.querySelector('.card.reading summary').click()")
        await tab.wait_for(f"{LOG}.querySelectorAll('.card.reading .card').length === 3")
        assert await tab.evaluate(f"{LOG}.querySelectorAll('article h2').length") == 1
        roles = f"['role', 'aria-live'].map((name) => {LOG}.getAttribute(name))"
        assert await tab.evaluate(roles) == ["log", "off"]

        await tab.evaluate(f"{PILL}.click()")
        await studio.turn(session_id, "More")
        await tab.wait_for(f"{CARDS}.at(-1) === 'Read a.txt · waits'")
        await studio.client.post(f"/api/sessions/{session_id}/stop")
        await tab.wait_for(
            f"{CARDS}.slice(-2).join() === 'Write d.txt · not run: stopped,Read a.txt · not run: stopped'"
        )
        bad = f"[...{LOG}.querySelectorAll('.card.call')].slice(-2).map((card) => card.classList.contains('bad'))"
        assert await tab.evaluate(bad) == [False, False]
        assert tab.errors == []


@pytest.mark.ci_lane
async def test_a_long_line_of_code_makes_nothing_wider_than_the_log(make_studio: StudioMaker, tab: Tab) -> None:
    async with make_studio(ScriptedModel([f"So:\n\n```sh\necho {'x' * 400}\n```\n"])) as studio:
        session_id = await studio.session()
        await run_turn(studio, session_id, "Show it")
        await open_session(tab, studio, session_id)
        copy = f"{LOG}?.querySelector('.code button, pre button')"
        for width in (1280, 390):
            await tab.resize(width, 800)
            await tab.wait_for(f"{LOG}?.clientWidth > 0 && innerWidth === {width} && {copy}")
            assert await tab.evaluate(f"{LOG}.scrollWidth - {LOG}.clientWidth") <= 0
            assert await tab.evaluate(f"{copy}.getBoundingClientRect().right <= innerWidth")
        assert tab.errors == []


@pytest.mark.ci_lane
async def test_a_turn_that_failed_says_why_and_offers_what_fits(make_studio: StudioMaker, tab: Tab) -> None:
    script = [[fail(ModelError("too many", code="provider.auth"))], [say("one"), hang()], "And on."]
    rounds = [call("note", {"text": f"step {number}"}) for number in range(10)]
    model = ScriptedModel([*script, *rounds, "And further."])
    async with make_studio(model, tools=[note], max_tool_rounds=10) as studio:
        session_id = await studio.session(permission_mode="auto")
        await open_session(tab, studio, session_id)
        await studio.turn(session_id, "one")
        ending = await tab.wait_for(f"{ENDING}.includes('key') && {ENDING}")
        assert ending.startswith("The provider did not accept the key.")
        buttons = f"[...{LOG}.querySelectorAll('.ending :is(a, button)')].map((one) => one.textContent)"
        assert await tab.evaluate(buttons) == ["Change key", "Try again"]
        mark = "document.querySelector('#sessions .mark')?.innerText.trim()"
        await tab.wait_for(f"{mark} === '✗ failed'")
        await studio.turn(session_id, "two")
        await tab.wait_for(f"{LOG}.querySelector('.streaming')?.innerText === 'one'")
        await studio.client.post(f"/api/sessions/{session_id}/stop")
        await tab.wait_for(f"{ENDING}.startsWith('Stopped by you after ')")
        assert await tab.evaluate(buttons) == ["Continue"]  # of the last turn alone
        await tab.wait_for(f"{mark} === undefined")  # stopped is not failed
        await tab.evaluate(f"{LOG}.querySelector('.ending button').click()")
        await tab.wait_for(f"{TEXT}.includes('And on.')")
        await studio.turn(session_id, "three")
        await tab.wait_for(f"{ENDING}.startsWith('Incomplete: out of rounds.')")
        await tab.reload()
        await tab.wait_for(f"{LOG} && {ENDING}.startsWith('Incomplete: out of rounds.')")
        assert await tab.evaluate(buttons) == ["Continue"]
        await tab.evaluate(f"{LOG}.querySelector('.ending button').click()")
        await tab.wait_for(f"{TEXT}.includes('And further.')")
        assert tab.errors == []


@pytest.mark.ci_lane
async def test_the_speeches_of_a_team_stream_below_their_names(make_studio: StudioMaker, tab: Tab) -> None:
    script = [[say("I look. "), call("list_files", {"path": "."})], "One.", [say("Two"), hang()]]
    async with make_studio(ScriptedModel(script), tools=builtin_tools()) as studio:
        team_file(studio.services.settings.home, PAIR.replace('"Write."', '"Write."\ntools = ["list_files"]'))
        session_id = (await studio.client.post("/api/sessions", json={"name": "Team", "team": "pair"})).json()["id"]
        await open_session(tab, studio, session_id)
        await studio.turn(session_id, "Write.")
        await tab.wait_for(f"{LOG}.querySelector('.streaming')?.innerText === 'Two'")
        text = await tab.evaluate(f"{TEXT}.replace(/ · [0-9.]+ s/g, '')")  # how long the call took
        shown = [line for line in text.splitlines() if line]
        start = shown.index("writer")
        assert shown[start : start + 6] == ["writer", "I look.", "Listed the folder", "One.", "critic", "Two"]
        assert (await tab.evaluate(text_of("#status"))).startswith("critic: Writing")
        assert tab.errors == []


@pytest.mark.ci_lane
async def test_a_subagent_has_a_card_at_its_call_and_can_be_cancelled_and_retried(
    make_studio: StudioMaker, tab: Tab
) -> None:
    spawn = call("spawn_subagent", {"task": "Find <b>it</b>", "name": "searcher"})
    script = [[spawn, call("wait_subagents")], [say("so"), hang()], "Later.", "Found.", "Welcome."]
    async with make_studio(ScriptedModel(script), tools=[*session_tools(), note]) as studio:
        session_id = await studio.session()
        await open_session(tab, studio, session_id)
        await tab.resize(1280, 800)  # the pane stands beside the log, and covers no card
        await studio.turn(session_id, "Where is it?")
        card = f"{LOG}.querySelector('[data-agent]')"
        shown = await tab.wait_for(f"{card}?.innerText.includes('Writing') && {card}.innerText.split(/\\s*\\n\\s*/)")
        assert (shown[0].startswith("searcher-1 works · "), "tokens" in shown[0]) == (True, False)
        assert shown[1:3] == ["Find <b>it</b>", "Writing"]
        press = "[...{}.querySelectorAll('button')].find((one) => one.textContent === '{}').click()"
        await tab.evaluate(press.format(card, "Show"))
        pane = "document.querySelector('.agents')"
        await tab.wait_for(f"{pane}?.querySelector('[data-agent]')")
        await tab.evaluate(press.format(pane, "Cancel"))
        await tab.wait_for(f"{card}.innerText.includes('stopped')")
        await tab.wait_for(f"{TEXT}.includes('Later.')")
        await tab.evaluate(press.format(card, "Retry"))
        await tab.wait_for(f"{card}.innerText.includes('done')")
        await tab.wait_for(f"{pane}.querySelectorAll('.agent-work article').length === 2")  # both of its runs
        buttons = f"[...{pane}.querySelectorAll('.agent-work button')].map((one) => one.textContent)"
        assert await tab.evaluate(buttons) == ["Copy", "Copy"]  # nothing below can be edited, rewound or forked
        await tab.evaluate(press.format(card, "Message"))
        field = await tab.evaluate(f"{card}.querySelector('form textarea').getAttribute('aria-label')")
        assert field == "Text for searcher-1"
        titles = f"[...{pane}.querySelectorAll('.agent-work h2')].map((one) => one.innerText.split(':')[0].trim())"
        assert await tab.evaluate(titles) == ["Task", "Task"]
        await tab.type("Thank")
        for key in ("Escape", "Enter"):  # closes and opens it again
            await tab.press(key)
        await tab.type("s")
        assert await tab.evaluate(f"{card}.querySelector('form textarea').value") == "Thanks"
        await press_button(tab, "Send to searcher-1", card)
        await wait_for_focus(tab, ".card.agent", "searcher-1")
        await tab.wait_for(f"{pane}.querySelectorAll('.agent-work article').length === 3")
        await tab.wait_for(f"{pane}.innerText.includes('Welcome.')")
        await tab.wait_for(f"{titles}.join() === 'Task,Task,You'")
        assert tab.errors == []


@pytest.mark.ci_lane
async def test_an_option_is_a_card_that_opens_to_what_it_says(make_studio: StudioMaker, tab: Tab) -> None:
    create = [call("create_file", {"content": f"<h1>{number}"}) for number in (1, 2)]
    async with make_studio(
        ScriptedModel([*create, "It is **made**.", "It is **made**."]), tools=builtin_tools()
    ) as studio:
        session_id = await studio.session()
        await open_session(tab, studio, session_id)
        await studio.turn(session_id, "a page", variants=2)
        await tab.wait_for(f"{LOG}.querySelector('.message-actions')")
        assert await tab.evaluate(f"{LOG}.querySelector('.message-actions').innerText") == "Fork here"
        cards = f"[...{LOG}.querySelectorAll('.card.option > details > summary')]"
        assert await tab.evaluate(f"{cards}.map((one) => one.innerText)") == [
            f"Option {number} · scripted · done" for number in (1, 2)
        ]
        await tab.evaluate(f"{cards}[1].click()")
        opened = f"{cards}[1].parentElement"
        await tab.wait_for(f"{opened}.querySelector('strong')?.textContent === 'made'")
        assert await tab.evaluate(f"{opened}.querySelector('.card.call summary').innerText") == "Wrote index.html"
        assert tab.errors == []


@pytest.mark.ci_lane
async def test_words_are_found_also_where_nothing_is_mounted_or_all_is_folded(
    make_studio: StudioMaker, tab: Tab
) -> None:
    reading = [call("list_files", {"path": "."}), call("file_read", {"path": "a.txt"})]
    script = [LINES, [think("A Needle in a thought."), *reading], *(LINES for _ in range(20)), "No needle here."]
    async with make_studio(ScriptedModel(script), tools=builtin_tools()) as studio:
        (studio.workspace / "a.txt").write_text("hay\n" * 50 + "the needle\n")
        session_id = await studio.session()
        await run_turn(studio, session_id, *(f"message {number}" for number in range(22)))
        await open_session(tab, studio, session_id)
        await tab.wait_for(f"{TEXT}.includes('No needle here.')")
        await find_words(tab, "needle")
        await tab.wait_for(f"{FIND_STATUS} === 'Result 3 of 3'")  # the one that is seen
        marked = "[...(CSS.highlights.get('found') ?? [])].map((range) => range.startContainer.parentElement.innerText)"
        assert await tab.wait_for(f"{marked}.length && {marked}[0]") == "No needle here."
        await tab.press("Enter")
        await tab.wait_for(f"{FIND_STATUS} === 'Result 1 of 3' && {marked}[0]?.includes('A Needle in a thought.')")
        await tab.press("Enter")
        await tab.wait_for(f"{FIND_STATUS} === 'Result 2 of 3' && {marked}[0]?.includes('the needle')")
        seen = "[...CSS.highlights.get('found')][0].getBoundingClientRect()"
        box = f"{LOG}.getBoundingClientRect()"
        assert await tab.evaluate(f"{seen}.top > {box}.top && {seen}.bottom < {box}.bottom")
        await tab.press("Escape")
        await tab.wait_for(f"!{LOG}.querySelector('.find-bar') && document.activeElement === {LOG}")
        await tab.wait_for("!CSS.highlights.has('found')")
        assert tab.errors == []


@pytest.mark.ci_lane
async def test_words_are_found_and_marked_in_parts_of_a_row_that_are_cut_or_folded(
    make_studio: StudioMaker, tab: Tab
) -> None:
    calls = [call("bash_exec", {"command": "seq 7000; echo a zeb''ra"}), call("file_read", {"path": "a.txt"})]
    async with make_studio(ScriptedModel([calls, "```js\nconst zebra = 1;\n```\n"]), tools=builtin_tools()) as studio:
        (studio.workspace / "a.txt").write_text("hay\n" * 20 + "a zebra\n")
        session_id = await studio.session(permission_mode="auto")
        await run_turn(studio, session_id, "look")
        await open_session(tab, studio, session_id)
        await tab.wait_for(f"{TEXT}.includes('const zebra')")
        await find_words(tab, "zebra")
        marked = "(name) => [...(CSS.highlights.get(name) ?? [])].map((range) => range.startContainer.data)"
        for place, text in ((1, "7000"), (2, "hay"), (3, "zebra")):
            await tab.wait_for(
                f"{FIND_STATUS} === 'Result {place} of 3' && ({marked})('found').some((e) => e.includes({text!r}))"
            )
            await tab.press("Enter")
        await tab.wait_for(f"({marked})('found-elsewhere').length > 0")
        await fill(tab, "Find in this session", "hay")
        here = "[...(CSS.highlights.get('found') ?? [])].map((range) => range.startOffset)"
        for number, offset in ((1, 0), (2, 4), (3, 8), (2, 4)):
            await tab.wait_for(f"{FIND_STATUS}.startsWith('{number} of 20') && {here}.join() === '{offset}'")
            await tab.press("Enter", held=["Shift"] if number == 3 else [])
        await fill(tab, "Find in this session", "const zeb")
        first = "[...(CSS.highlights.get('found') ?? [])][0]?.toString()"
        await tab.wait_for(f"{FIND_STATUS} === '1 of 1' && {first} === 'const zeb'")
        await tab.press("Escape")
        await tab.wait_for("![...CSS.highlights.keys()].length")
        assert tab.errors == []


@pytest.mark.ci_lane
async def test_a_long_conversation_is_copied_whole_once_all_is_selected(make_studio: StudioMaker, tab: Tab) -> None:
    script = [[think("Hm."), call("file_read", {"path": "a.txt"})], "**One**.", *(LINES for _ in range(20)), "Last."]
    async with make_studio(ScriptedModel(script), tools=builtin_tools()) as studio:
        (studio.workspace / "a.txt").write_text("secret")
        session_id = await studio.session()
        await run_turn(studio, session_id, *(f"message {number}" for number in range(22)))
        await open_session(tab, studio, session_id)
        await tab.wait_for(f"{TEXT}.includes('Last.')")
        await tab.evaluate("getSelection().selectAllChildren(document.body)")
        copied = await tab.evaluate(COPIED)
        assert copied.startswith("You:\nmessage 0\n\nRead a.txt · line 1\n\nOne.\n\nYou:\nmessage 1\n\nLine 0 of")
        assert copied.endswith("You:\nmessage 21\n\nLast.")
        assert await tab.evaluate(COPIED.replace("document.body", "document.getElementById('input')")) is None
        await tab.evaluate(f"getSelection().selectAllChildren({LOG}.querySelector('article:last-of-type'))")
        assert await tab.evaluate(COPIED) is None  # the browser copies what is selected


COPIED = """(() => {
    const clipboardData = new DataTransfer();
    const event = new ClipboardEvent('copy', { clipboardData, bubbles: true, cancelable: true });
    document.body.dispatchEvent(event);
    return event.defaultPrevented ? clipboardData.getData('text/plain') : null;
})()"""


@pytest.mark.ci_lane
async def test_words_are_found_as_they_are_shown(make_studio: StudioMaker, tab: Tab) -> None:
    content = "".join(f"line {number} of a long file\n" for number in range(2000)) + "hidden\n"
    answer = "A **bo**ld\nword in `co`de of [a *li*nk](no:where)."
    model = ScriptedModel([call("file_write", {"path": "a.txt", "content": content}), answer])
    async with make_studio(model, tools=builtin_tools()) as studio:
        session_id = await studio.session(permission_mode="auto")
        await run_turn(studio, session_id, "Please write")
        await open_session(tab, studio, session_id)
        await tab.wait_for(f"{TEXT}.includes('word in')")
        first = "[...(CSS.highlights.get('found') ?? [])][0]?.toString().replace('\\n', ' ')"
        await find_words(tab, "bold word")
        await tab.wait_for(f"{FIND_STATUS} === '1 of 1' && {first} === 'bold word'")
        for words in ("code of a link (no:where)", "line 30 of"):
            await fill(tab, "Find in this session", words)
            await tab.wait_for(f"{FIND_STATUS} === '1 of 1' && {first} === {words!r}")
        await fill(tab, "Find in this session", "please")  # also in the heading of the message, which is not seen
        await tab.wait_for(f"{FIND_STATUS} === '1 of 1' && {first} === 'Please'")
        for words in ("hidden", "**"):  # in what the change was cut by, and signs that are not shown
            await fill(tab, "Find in this session", words)
            await tab.wait_for(f"{FIND_STATUS} === 'Not found'")
        assert tab.errors == []


LEASE = "# Lease\n\nIt ends in May 2027. See [^1].\n\nThe rent is 900 EUR, and <b>not</b> more.\u200b\n"
CITING = """The note says “See [^1]”. It ends in **May** 2027. [^1] It is a nice flat, e.g. [^1] for Dr. Who [^1].
The rent is 950 EUR [^1].
Neither `[^1]` nor [^9] is a citation."""
MARKERS = f"[...{LOG}.querySelectorAll('.citation')]"
CITED = f"{LOG}.querySelector('.cited')"


@pytest.mark.ci_lane
async def test_markers_of_an_answer_open_what_they_cite(make_studio: StudioMaker, tab: Tab, tmp_path: Path) -> None:
    notes = tmp_path / "My & notes"
    notes.mkdir()
    (notes / "Lease.md").write_text(LEASE)
    async with make_studio(ScriptedModel([CITING])) as studio:
        VaultRegistry(studio.services.settings.home).add(notes)
        session_id = await studio.session()
        await open_session(tab, studio, session_id)
        await studio.turn(session_id, "What do my notes say about the lease?")
        await tab.wait_for(f"{LOG}.querySelector('.message-actions') && {MARKERS}.length")
        place = "My & notes: Lease.md, lines 1–5"
        labels = await tab.evaluate(f"{MARKERS}.map((one) => one.getAttribute('aria-label'))")
        statuses = ["verified", "located", "located", "unsupported"]
        assert labels == [f"Citation 1, {status}: {place}" for status in statuses]
        assert "Neither [^1] nor [^9] is a citation." in await tab.evaluate(TEXT)
        assert "mode notes: it asks about" in await tab.evaluate(f"{LOG}.querySelector('.mode').innerText")

        await tab.evaluate(f"{MARKERS}[3].click()")
        lines = f"[...{CITED}?.querySelectorAll('li') ?? []].map((line) => line.textContent)"
        await tab.wait_for(f"{lines}.length === 5")
        assert await tab.evaluate(lines) == LEASE.replace("\u200b", "⟨U+200B⟩").rstrip("\n").split("\n")
        told = f"[...{CITED}.children].map((part) => part.innerText)"
        assert (await tab.evaluate(told))[:3] == [
            place,
            "Under “Lease”",
            "Unsupported: the passage lacks a number, date, quotation or code of the sentence.",
        ]
        escape = "new KeyboardEvent('keydown', {key: 'Escape', bubbles: true})"
        await tab.evaluate(f"document.activeElement.dispatchEvent({escape})")
        assert await tab.evaluate(f"[{CITED}, document.activeElement === {MARKERS}[3]]") == [None, True]
        await tab.evaluate(f"{MARKERS}[0].click()")
        await tab.evaluate(
            f"[...{CITED}.querySelectorAll('button')].find((one) => one.innerText === 'Open note').click()"
        )
        await tab.wait_for("document.getElementById('pane')?.innerText.includes('Lease.md')")
        assert tab.errors == []
