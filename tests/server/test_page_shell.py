"""The page around the conversation: drafts, addresses, tabs that share connections, keys and settings."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from agenticx import UserMessage, builtin_tools
from agenticx.errors import ModelError
from agenticx.llms import ChatModel, ScriptedModel
from agenticx.runtime import EventType, RuntimeEvent
from agenticx.subagents import session_tools
from agenticx.testing import call, fail, hang, say
from agenticx.tools.builtin import ask_user
from tests.support.commits import append
from tests.support.server.chromium import CHROMIUM, Tab
from tests.support.server.conversations import ByAgent, messages, run_turn
from tests.support.server.page import (
    DECISION,
    INPUT,
    LOG,
    PARTS_LOADED,
    STOPPED,
    TITLE,
    add_files,
    button,
    click,
    enter,
    enter_beside,
    field,
    file_parts,
    fill,
    press_button,
    send_message,
    stop_by_keys,
    text_of,
    wait_for_focus,
    write,
)
from tests.support.server.running_studio import RunningStudio, StudioMaker
from tests.support.server.small_windows import SMALL_TARGETS
from tests.support.timeouts import PATIENCE, wait_until

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]

RED = "rgb(179, 38, 30)"  # of what is dangerous, in light colours
SEND_KEY = text_of("#keys dl > div")
SAVED = "localStorage.getItem('agenticx.draft.{}')"


async def test_the_first_message_makes_the_session_and_a_reload_shows_it_again(
    make_studio: StudioMaker, tab: Tab
) -> None:
    async with make_studio(ScriptedModel(["Hello there."])) as studio:
        await enter(tab, studio)
        assert await tab.evaluate(TITLE) == "New session"
        await tab.wait_for(f"{field('Folder')}?.placeholder === {json.dumps(str(studio.workspace))}")
        await fill(tab, "Folder", "/gone")
        await fill(tab, "Permissions", "plan")
        await fill(tab, "Number of answers", "3")
        await write(tab, "Good morning")
        await tab.reload()
        chosen = "[...document.querySelectorAll('main :is(input:not([hidden]), select, textarea)')].map((e) => e.value)"
        await tab.wait_for(f"{chosen}.join() === '/gone,,Good morning,,plan,3'")
        await click(tab, "Send")
        assert (await tab.wait_for(text_of("#attachment-error"))).startswith("'/gone' is not a folder;")
        await tab.evaluate(
            'sessionStorage.setItem(\'agenticx.new-session\', \'{"permission_mode":"plan","team":"old"}\')'
        )
        await tab.reload()  # the team is gone
        await tab.wait_for(f"{chosen}.join() === ',old,Good morning,,plan'")
        await click(tab, "Send")
        assert (await tab.wait_for(text_of("#attachment-error"))).startswith("unknown team 'old'; known teams: ")
        assert (await studio.client.get("/api/sessions")).json()["sessions"] == []
        await tab.evaluate("location.hash = '#/s/new'")  # which is no session, and has no draft
        await tab.wait_for(f"{text_of('main.gone')} && !document.querySelector('.unsent')")
        await tab.evaluate("history.back()")
        await tab.wait_for(f"{chosen}.join() === ',old,Good morning,,plan'")
        await fill(tab, "Answered by", "")
        await tab.wait_for(f"{chosen}.join() === ',,Good morning,,plan,3'")  # it was not sent
        await fill(tab, "Number of answers", "")
        await click(tab, "Send")
        await tab.wait_for(f"{TITLE} === 'Good morning'")  # before the session has a name
        await tab.wait_for(f"{STOPPED} && {LOG}.includes('Hello there.')")
        (session,) = (await studio.client.get("/api/sessions")).json()["sessions"]
        assert session["permission_mode"] == "plan"
        await tab.wait_for(f"{TITLE} === 'Good morning' && document.title === 'Good morning'")
        assert await tab.evaluate("location.hash") == f"#/s/{session['id']}"
        assert await tab.evaluate(INPUT) == ""
        assert await tab.evaluate(SAVED.format("new session")) is None
        await tab.reload()
        await tab.wait_for(f"{LOG}.includes('Hello there.')")
        assert await tab.evaluate("sessionStorage.getItem('agenticx.new-session')") == "{}"
        assert [error for error in tab.errors if "422" not in error and "404" not in error] == []


@pytest.mark.ci_lane
async def test_a_draft_stays_in_its_session_and_is_kept_until_its_message_is_accepted(
    make_studio: StudioMaker, tab: Tab
) -> None:
    async with make_studio(ScriptedModel(["One.", "Two."])) as studio:
        first, second = [await studio.session(name=name) for name in ("First", "Second")]
        await enter(tab, studio, f"#/s/{first}")
        await tab.wait_for(f"{TITLE} === 'First'")
        await write(tab, "half a sentence")
        await tab.evaluate(f"location.hash = '#/s/{second}'")
        await tab.wait_for(f"{TITLE} === 'Second' && {INPUT} === ''")
        await write(tab, "another")
        await fill(tab, "Number of answers", "2")
        await tab.wait_for(f"{SAVED.format(second)} === 'another'")
        await tab.reload()
        answers = f"{field('Number of answers')}.value"
        await tab.wait_for(f"{TITLE} === 'Second' && {INPUT} === 'another' && {answers} === '2'")
        await tab.evaluate(f"location.hash = '#/s/{first}'")
        await tab.wait_for(f"{INPUT} === 'half a sentence' && {answers} === ''")
        await tab.evaluate("document.getElementById('send').click()")
        await tab.wait_for(f"{INPUT} === '' && {LOG}.includes('One.') && {SAVED.format(first)} === null")
        assert await tab.evaluate(SAVED.format(second)) == "another"
        assert tab.errors == []

        await write(tab, "the other half")
        await click(tab, "Show preview")
        await tab.wait_for("document.getElementById('pane') && true")
        await studio.client.delete(f"/api/sessions/{first}")
        text = text_of(".gone [role=group] p")
        assert await tab.wait_for(f"!document.getElementById('pane') && {text}") == "Your text: the other half"
        await tab.wait_for("document.title === 'AgenticX'")
        await click(tab, "Use it in a new session")
        await tab.wait_for(f"{TITLE} === 'New session' && {INPUT} === 'the other half'")
        assert await tab.evaluate(f"{field('Message')} === document.activeElement")
        assert await tab.evaluate(SAVED.format(first)) is None


@pytest.mark.ci_lane
async def test_each_of_two_tabs_keeps_what_was_typed_in_it(make_studio: StudioMaker, tab: Tab) -> None:
    async with make_studio(ScriptedModel(["One.", "Two."])) as studio:
        session_id = await studio.session(name="Mine")
        saved, shown = SAVED.format(session_id), f"{TITLE} === 'Mine' && {INPUT}"
        await enter(tab, studio, f"#/s/{session_id}")
        other = await enter_beside(tab, studio, f"#/s/{session_id}")
        await other.wait_for(f"{shown} === ''")
        await write(tab, "a long message")
        await tab.wait_for(f"{saved} === 'a long message'")
        await write(other, "hi")
        await other.wait_for(f"{saved} === 'hi'")
        await tab.reload()
        await tab.wait_for(f"{shown} === 'a long message'")
        await other.reload()
        await other.wait_for(f"{shown} === 'hi'")
        await other.evaluate("document.getElementById('send').click()")
        await other.wait_for(f"{LOG}.includes('One.') && {saved} === 'a long message'")  # as a new tab shows it
        await tab.reload()
        await tab.wait_for(f"{shown} === 'a long message'")
        await write(tab, "x" * 6_000_000)
        await tab.wait_for("document.body.innerText.includes('too long for the browser to store')")
        assert await tab.evaluate(saved) is None
        await write(tab, "short")
        await tab.wait_for(f"{saved} === 'short' && !document.body.innerText.includes('too long for the browser')")
        await other.reload()
        await other.wait_for(f"{shown} === 'short'")
        await other.evaluate("document.getElementById('send').click()")
        await tab.wait_for(f"{INPUT} === '' && {saved} === null")  # it is not sent again
        assert tab.errors == other.errors == []


@pytest.mark.ci_lane
async def test_a_page_that_another_site_opened_asks_before_it_shows_sessions(
    make_studio: StudioMaker, tab: Tab
) -> None:
    async with make_studio(ScriptedModel(["Hello there."])) as studio:
        await enter(tab, studio)
        page = f"http://127.0.0.1:{studio.port}/"
        site = page.replace("127.0.0.1", "localhost") + "guide"
        other = await tab.open_beside(site)
        for _ in range(2):  # the second time the tab has the token of its own
            await other.go(f"{page}#/s/ses_none")
            await other.wait_for(f"{text_of('#locked-reason')}.startsWith('Another site opened this page.')")
            assert await other.evaluate("sessionStorage.getItem('agenticx.token')") is None
            await click(other, "Show my sessions")
            await other.wait_for(f"{text_of('main')}.includes('does not exist')")
            assert await other.evaluate("localStorage.getItem('agenticx.last-session')") is None
            await other.go(site)
        assert tab.errors == []


@pytest.mark.ci_lane
async def test_files_of_a_draft_outlast_a_reload_until_the_message_is_accepted(
    make_studio: StudioMaker, tab: Tab
) -> None:
    model = ScriptedModel(["Seen."])
    async with make_studio(model) as studio:
        first, second = [await studio.session(name=name) for name in ("First", "Second")]
        await enter(tab, studio, f"#/s/{first}")
        await add_files(tab, "picked", ("a.txt", "['a']"), ("b.txt", "['b']"))
        attached = text_of("#attached")
        await tab.wait_for(f"{attached} === 'a.txt (1 byte) × b.txt (1 byte) ×'")
        await click(tab, "Remove b.txt")
        await tab.wait_for(f"{attached} === 'a.txt (1 byte) ×'")
        await wait_until_stored(tab, [["a.txt"]])
        await tab.reload()
        await tab.wait_for(f"{TITLE} === 'First' && {attached} === 'a.txt (1 byte) ×'")
        await tab.evaluate(f"location.hash = '#/s/{second}'")
        await tab.wait_for(f"{TITLE} === 'Second' && {attached} === ''")
        await tab.evaluate("history.back()")
        await tab.wait_for(f"{TITLE} === 'First' && {attached} === 'a.txt (1 byte) ×'")
        await tab.reload()
        await tab.wait_for(f"{TITLE} === 'First' && document.activeElement.id === 'input'")
        await send_message(tab, "look")  # also before the files are there
        await tab.wait_for(f"{STOPPED} && {LOG}.includes('Seen.') && {SAVED.format(first)} === null")
        await tab.reload()
        await tab.wait_for(f"{LOG}.includes('Seen.')")
        await add_files(tab, "picked", ("c.txt", "['c']"))
        await tab.wait_for(f"{attached} === 'c.txt (1 byte) ×'")
        await wait_until_stored(tab, [["c.txt"]])
        await click(tab, "Session menu")
        await click(tab, "Delete")
        await click(tab, "Delete session", "document.querySelector('dialog')")
        await tab.wait_for(f"{TITLE} === 'Second'")
        await wait_until_stored(tab, [])
        assert [error for error in tab.errors if "404" not in error] == []
    (request,) = model.requests
    sent = [row for row in request.messages if isinstance(row, UserMessage)]
    assert [file.name for row in sent for file in row.attachments] == ["a.txt"]


async def wait_until_stored(tab: Tab, names: list[list[str]]) -> None:
    """Wait until the browser has stored files of these names for the drafts, and no others."""
    async with asyncio.timeout(PATIENCE):
        while await tab.evaluate(STORED_FILES) != names:
            pass


STORED_FILES = """new Promise((resolve) => {
    indexedDB.open("agenticx").onsuccess = ({target: {result}}) => {
        const asked = result.transaction("draft files").objectStore("draft files").getAll();
        asked.onsuccess = () => {
            result.close();
            resolve(asked.result.map((files) => files.map(({name}) => name)));
        };
    };
})"""


@pytest.mark.ci_lane
async def test_eight_tabs_show_what_happens_with_four_streams_at_most(make_studio: StudioMaker, tab: Tab) -> None:
    async with make_studio(ScriptedModel([f"Answer {number}." for number in range(8)])) as studio:
        ids = [await studio.session(name=f"Session {number}") for number in range(8)]
        await enter(tab, studio, f"#/s/{ids[0]}")
        tabs = [tab]
        for session_id in ids[1:]:
            await tabs[-1].wait_for(f"{TITLE} && document.getElementById('log')?.tabIndex === 0")  # before it is hidden
            tabs.append(await enter_beside(tab, studio, f"#/s/{session_id}"))
        for number, one in enumerate(tabs):
            await one.wait_for(f"{TITLE} === 'Session {number}'")
            await one.evaluate(ALWAYS_VISIBLE)
        for session_id in ids:
            await studio.turn(session_id)
        answers = [await one.wait_for(f"/Answer \\d\\./.exec({LOG})?.[0]") for one in tabs]
        assert sorted(answers) == [f"Answer {number}." for number in range(8)]
        held = await tab.evaluate("navigator.locks.query().then(({held}) => held.map(({name}) => name).sort())")
        assert held == ["agenticx.leader", *(f"agenticx.stream.{number}" for number in range(4))]
        assert [error for one in tabs for error in one.errors] == []


ALWAYS_VISIBLE = """
    Object.defineProperty(document, 'hidden', {get: () => false});
    window.requestAnimationFrame = (callback) => setTimeout(callback, 16); // a hidden page draws no frames
    document.dispatchEvent(new Event('visibilitychange'));
"""


ANNOUNCED = "document.querySelector('[aria-live=assertive]')?.textContent.replace(/\\s+/g, ' ')"

CONSENT = """{
    window.told = [];
    window.Notification = class {
        static permission = 'granted';
        static requestPermission = async () => 'granted';
        constructor(title, {body}) { told.push([title, body]); }
    };
}"""


@pytest.mark.ci_lane
async def test_a_question_in_another_session_is_marked_in_each_tab_until_it_is_answered(
    make_studio: StudioMaker, tab: Tab
) -> None:
    ask = call("ask_user", {"text": "# Which **secret**\n\nin `a.py`?", "options": ["one"]})
    spawn = [call("spawn_subagent", {"task": "Hide it", "name": "helper"}), call("wait_subagents")]
    run = call("bash_exec", {"command": "touch secret\ntouch more"})
    model: ChatModel = ByAgent([spawn, ask, "Noted."], [run, "Hidden."])  # type: ignore[assignment]
    async with make_studio(model, tools=[*builtin_tools(), *session_tools()]) as studio:
        here, there = [await studio.session(name=name) for name in ("Here", "There")]
        await enter(tab, studio, "#/settings/page")
        await tab.evaluate(CONSENT)
        await tab.wait_for(f"{field('Notify me')} && {ANNOUNCED} === ''")
        await tab.evaluate(f"{field('Notify me')}.click()")
        await tab.evaluate(f"location.hash = '#/s/{here}'")
        other = await enter_beside(tab, studio, f"#/s/{here}")  # which hides the first one
        await other.wait_for(f"{TITLE} === 'Here' && {ANNOUNCED} === ''")
        await other.evaluate("window.region = document.querySelector('[aria-live=assertive]')")
        await studio.turn(there)
        assert await tab.wait_for("told.length && told") == [["Another agent wants to run a command", "There"]]
        waiting = "document.querySelector('[aria-label=\"Waiting for you in other sessions\"]')"
        for one in (tab, other):
            await one.wait_for(f"{waiting}?.innerText.includes('There') && document.title === '(1) Waiting – There'")
            asked = await one.evaluate(f"{waiting}.querySelector('small').innerText")
            assert asked == "helper-1: Run this command? touch secret…"
            await one.wait_for(f"{ANNOUNCED} === 'A decision is needed in There: {asked}'")
        await other.evaluate("window.announced = region.firstChild")
        await other.resize(900, 800)
        await other.wait_for(f"{text_of('.rail .badge')} === '1' && {button('Show the sessions, 1 waiting')} && true")
        await other.resize(1280, 800)
        await other.press("F2", held=["Shift"])
        await other.wait_for(f"{TITLE} === 'There' && !{waiting}")
        await other.wait_for(f"document.activeElement === {DECISION}?.querySelector('h2')")
        assert await other.evaluate("(region.firstChild ?? announced) === announced && region.isConnected")  # not again
        await click(other, "Allow once", DECISION)
        await other.wait_for(f"{ANNOUNCED} === 'A decision is needed: The agent asks: “Which secret in a.py?”'")
        assert await tab.wait_for("told[1]") == ["The agent asks you something", "There"]
        await tab.wait_for(f"{waiting}.querySelector('small')?.innerText === 'The agent asks: “Which secret in a.py?”'")
        await click(other, "“one”", DECISION)
        await other.wait_for(f"{LOG}.includes('Noted.')")
        assert "The agent asked: “Which secret in a.py?” – you answered: “one”" in await other.evaluate(LOG)
        await other.wait_for("document.querySelector('[aria-live=polite]').textContent === 'Answer complete.'")
        for one in (tab, other):
            await one.wait_for("!document.title.includes('Waiting')")
        await other.wait_for(f"{ANNOUNCED} === ''")
        await tab.wait_for(f"!{waiting}")
        assert tab.errors + other.errors == []


@pytest.mark.ci_lane
async def test_a_message_that_was_not_sent_can_be_edited_and_sent(make_studio: StudioMaker, tab: Tab) -> None:
    async with make_studio(ScriptedModel([[say("so"), hang()], "Sent now."])) as studio:
        await enter(tab, studio)
        await send_message(tab, "one")
        await tab.wait_for(f"{LOG}.includes('so')")
        await send_message(tab, "two")
        queued = text_of("#queued")
        await tab.wait_for(f"{queued}.includes('Queued two')")
        await write(tab, "half a sent")
        await click(tab, "Stop")
        await tab.wait_for(f"{queued}.includes('Not sent two')")
        assert await tab.evaluate(INPUT) == "half a sent"
        assert "two" not in await tab.evaluate(LOG)  # it is told once
        await tab.reload()
        await tab.wait_for(f"{queued}.includes('Not sent two')")
        await click(tab, "Edit", "document.getElementById('queued')")
        await tab.wait_for(f"{INPUT} === 'half a sent\\n\\ntwo' && !document.getElementById('queued')")
        await tab.evaluate("document.getElementById('send').click()")
        await tab.wait_for(f"{LOG}.includes('Sent now.')")
        assert "Not sent" not in await tab.evaluate("document.body.innerText")
        assert tab.errors == []


@pytest.mark.ci_lane
async def test_an_earlier_message_is_edited_and_nothing_is_taken_back_before_it_is_sent(
    make_studio: StudioMaker, tab: Tab
) -> None:
    async with make_studio(ScriptedModel(["One.", "Two.", [say("so"), hang()], "Again."])) as studio:
        session_id = await studio.session()
        await run_turn(studio, session_id, "first", "second")
        await enter(tab, studio, f"#/s/{session_id}")
        await tab.wait_for(f"{LOG}.includes('Two.')")
        await write(tab, "begun")
        first = "document.querySelector('#log .user')"
        await click(tab, "Edit", first)
        await tab.wait_for(f"{INPUT} === 'first' && {text_of('#editing')}.startsWith('Editing an earlier message.')")
        assert "Two." in await tab.evaluate(LOG)
        await tab.press("Escape")
        await tab.wait_for(f"{INPUT} === 'begun' && !document.getElementById('editing')")
        second = "document.querySelectorAll('#log .user')[1]"
        dialog = "document.querySelector('dialog[open]')"
        await click(tab, "Edit", second)
        await tab.wait_for(f"{INPUT} === 'second'")
        await click(tab, "Edit", first)  # of another one, which was not changed
        await tab.wait_for(f"{INPUT} === 'first'")
        await write(tab, "changed")
        await tab.evaluate("document.getElementById('input').focus()")
        await tab.press("Escape")
        await click(tab, "Cancel", dialog)
        await tab.wait_for(f"!{dialog} && {INPUT} === 'changed'")
        await click(tab, "Edit", second)
        await click(tab, "Cancel", dialog)
        await tab.wait_for(f"!{dialog} && document.activeElement.id === 'input'")
        assert await tab.evaluate(INPUT) == "changed"
        await click(tab, "Edit", second)
        await click(tab, "Drop the edit", dialog)
        await tab.wait_for(f"{INPUT} === 'second'")
        await click(tab, "Edit", first)
        await tab.wait_for(f"{INPUT} === 'first'")
        await write(tab, "changed")
        await tab.wait_for(f"{SAVED.format(session_id + '.edit')} === 'changed'")
        await tab.reload()
        await tab.wait_for(f"{INPUT} === 'changed' && document.getElementById('editing') && {LOG}.includes('Two.')")

        await studio.turn(session_id, "third")
        await tab.wait_for(f"{LOG}.includes('so') && {text_of('#editing')}.includes('Stop the turn first')")
        await tab.evaluate("document.getElementById('send').click()")
        error = await tab.wait_for(text_of("#attachment-error"))
        assert error.startswith("An agent works, or waits for you. Stop it first")
        await click(tab, "Rewind to here")
        await tab.wait_for(f"{text_of('#message')}.startsWith('A turn runs in this session. Stop it first')")
        await click(tab, "Stop")
        await tab.wait_for(STOPPED)
        await tab.evaluate("document.getElementById('send').click()")
        log = await tab.wait_for(f"{LOG}.includes('Again.') && {STOPPED} && {LOG}")
        assert [word for word in ("first", "One.", "second", "third") if word in log] == []
        await tab.wait_for(f"{INPUT} === 'begun' && !document.getElementById('editing')")
        assert await tab.evaluate(f"[{SAVED.format(session_id)}, {SAVED.format(session_id + '.edit')}]") == [
            "begun",
            None,
        ]
        assert [error for error in tab.errors if "409" not in error] == []  # of the rewind that was refused


SAID = text_of("#message")


async def press_escape(tab: Tab, count: int) -> None:
    for _ in range(count):
        await tab.press("Escape")


@pytest.mark.ci_lane
async def test_keys_find_sessions_and_stop_the_turn(make_studio: StudioMaker, tab: Tab) -> None:
    async with make_studio(ScriptedModel(["Plant roses and tulips.", [say("so"), hang()]])) as studio:
        await run_turn(studio, await studio.session(name="Garden"), "what")
        other = await studio.session(name="Kitchen")
        await enter(tab, studio, f"#/s/{other}")
        await send_message(tab, "cook")
        await tab.wait_for(f"{LOG}.includes('so')")
        await tab.press("k", held=["Control"])
        await tab.wait_for("document.querySelector('#finder [role=option]')")
        await tab.type("tulip")
        options = "[...document.querySelectorAll('#finder [role=option]')].map((one) => one.innerText)"
        assert await tab.wait_for(f"{options}[0]?.includes('tulip') && {options}") == [
            "Garden\nPlant roses and tulips."
        ]
        await tab.press("Enter")
        await tab.wait_for(f"{TITLE} === 'Garden' && !document.getElementById('finder')")
        assert "/m/" in await tab.evaluate("location.hash")
        await tab.evaluate("history.back()")
        runs = f"{TITLE} === 'Kitchen' && !document.getElementById('stop').hidden"
        await tab.wait_for(runs)
        await tab.evaluate("document.getElementById('find').focus()")
        await tab.type("x")
        await press_escape(tab, 3)  # which empties the field, and stops nothing
        assert await tab.wait_for(f"{runs} && [document.getElementById('find').value, {SAID}]") == ["", ""]
        await tab.evaluate("location.hash = '#/settings/models'")
        await fill(tab, "Find a model", "x")
        await tab.evaluate(f"{field('Find a model')}.focus()")
        await press_escape(tab, 3)
        assert await tab.wait_for(f"[{field('Find a model')}.value, {SAID}]") == ["", ""]
        await tab.evaluate("document.getElementById('settings-title').focus()")
        await press_escape(tab, 1)
        await tab.wait_for(f"{runs} && document.activeElement.id === 'input' && {SAID} === ''")
        await stop_by_keys(tab)
        await tab.wait_for(STOPPED)
        await tab.evaluate("document.getElementById('input').blur()")
        await tab.press("?")
        await tab.wait_for("document.getElementById('keys')?.open")
        assert await tab.evaluate(SEND_KEY) == "Enter Send; Shift+Enter breaks the line"
        assert tab.errors == []


@pytest.mark.ci_lane
@pytest.mark.shares_secrets
async def test_the_focus_moves_beside_a_button_that_goes_away(make_studio: StudioMaker, tab: Tab) -> None:
    replies = [[say("so"), hang()], [say("then"), hang()], [fail(ModelError("no", code="provider.auth"))], "Done."]
    async with make_studio(ScriptedModel(replies), tools=builtin_tools(), permission_mode="auto") as studio:
        rules = [{"decision": "deny", "tool": "edit", "path": f"{name}/**", "scope": "user"} for name in "ab"]
        assert (await studio.client.put("/api/permissions", json={"rules": rules})).is_success
        await enter(tab, studio, f"#/s/{await studio.session()}")
        await tab.wait_for(PARTS_LOADED)
        await press_button(tab, "Ask before changes again")
        await wait_for_focus(tab, "#input")
        await tab.wait_for("!document.getElementById('auto-warning')")
        await add_files(tab, "picked", ("a.txt", "['a']"), ("b.txt", "['b']"))
        await tab.wait_for("document.querySelectorAll('#attached li').length === 2")
        await press_button(tab, "Remove a.txt")
        await wait_for_focus(tab, "#attached li", "b.txt")
        await press_button(tab, "Remove b.txt")
        await wait_for_focus(tab, "#input")
        await send_message(tab, "go")
        await tab.wait_for(f"{LOG}.includes('so')")
        for number in range(3):
            await send_message(tab, f"message {number}")
            await tab.wait_for(f"{button('Remove', f'{QUEUED}[{number}]')} && true")
        await press_button(tab, "Remove", f"{QUEUED}[0]")
        await wait_for_focus(tab, "#queued li", "message 1")
        await press_button(tab, "Send now", f"{QUEUED}[0]")
        await wait_for_focus(tab, "#queued li", "Will be read in this turn")
        await press_button(tab, "Remove", f"{QUEUED}[0]")
        await wait_for_focus(tab, "#queued li", "message 2")
        await press_button(tab, "Remove", f"{QUEUED}[0]")
        await wait_for_focus(tab, "#input")
        await press_button(tab, "Stop")
        await wait_for_focus(tab, "#input")
        await press_button(tab, "Continue")
        await tab.wait_for(f"{LOG}.includes('then')")
        await wait_for_focus(tab, "#input")
        await fill(tab, "Message", "a draft")
        await press_button(tab, "Stop")
        await wait_for_focus(tab, "#input")
        await tab.press("Enter")  # at once: it was meant for the button
        await tab.wait_for(STOPPED)
        assert await tab.evaluate(INPUT) == "a draft"
        await fill(tab, "Message", "")
        await press_button(tab, "Continue")
        await tab.wait_for(f"{LOG}.includes('did not accept the key')")
        await press_button(tab, "Try again")
        await tab.wait_for(f"{LOG}.includes('Done.')")
        await wait_for_focus(tab, "#input")
        await tab.evaluate("document.getElementById('log').focus()")
        await tab.press("x")  # what is typed where it has no meaning, is a message
        await tab.wait_for(f"{INPUT} === 'x'")

        await tab.resize(390, 800)
        await press_button(tab, "Sessions")
        await wait_for_focus(tab, "[aria-current=page]")
        await tab.press("Enter")
        await wait_for_focus(tab, "#input")
        await add_files(tab, "picked", ("c.txt", "['c']"))
        await tab.wait_for("document.getElementById('attached') && true")
        await tab.tap(button("Remove c.txt"))
        await tab.wait_for("!document.getElementById('attached')")
        await wait_for_focus(tab, "body")  # in the box it would have the phone show its keyboard
        await tab.resize(900, 800)
        await press_button(tab, "Show the sessions")
        await wait_for_focus(tab, ".collapse")
        await tab.press("Escape")
        await wait_for_focus(tab, ".expand")

        await tab.evaluate("location.hash = '#/settings/rules'")
        second = await tab.wait_for(
            "document.querySelectorAll('#rule-list li')[1]?.querySelector('p').innerText"
        )  # of the same time
        await press_button(tab, "Revoke", "document.querySelector('#rule-list')")
        await wait_for_focus(tab, "#rule-list li", second)
        await press_button(tab, "Revoke", "document.querySelector('#rule-list')")
        await wait_for_focus(tab, "#rule-list li", "No rules hold here.")
        assert tab.errors == []


QUEUED = "document.querySelectorAll('#queued li')"


async def test_stop_appears_beside_send_and_f6_goes_through_all_parts(make_studio: StudioMaker, tab: Tab) -> None:
    async with make_studio(ScriptedModel([[say("so"), hang()]])) as studio:
        await enter(tab, studio, f"#/s/{await studio.session()}")
        await tab.wait_for(f"{TITLE} === 'Named' && document.getElementById('log').tabIndex === 0")
        await tab.wait_for("document.activeElement.id === 'input'")
        parts: list[str] = []
        for _ in range(4):
            await tab.press("F6")
            parts.append(await tab.evaluate("document.activeElement.closest('[data-region]').dataset.region"))
        assert parts == ["Sessions", "Header", "Conversation", "Message"]
        middle = "(({x, y, width, height}) => [x + width / 2, y + height / 2])"
        x, y = await tab.evaluate(f"{middle}(document.getElementById('send').getBoundingClientRect())")
        await send_message(tab, "go")
        await tab.wait_for(f"{LOG}.includes('so') && {button('Stop')} && true")
        assert await tab.evaluate(f"document.elementFromPoint({x}, {y}).id") == "send"  # of a second click, too
        await fill(tab, "Model", "demo")
        await tab.wait_for(f"{SAID} === 'This turn keeps its model; the next message gets the new one.'")
        assert tab.errors == []


async def test_a_message_is_sent_once_with_its_files_and_what_is_typed_meanwhile_is_another(
    make_studio: StudioMaker, tab: Tab
) -> None:
    model = ScriptedModel(["seen"])
    async with make_studio(model) as studio:
        await enter(tab, studio, f"#/s/{await studio.session()}")
        await tab.wait_for(f"{TITLE} === 'Named' && document.activeElement.id === 'input'")
        await tab.evaluate(SLOW_READER)
        await add_files(tab, "picked", ("a.txt", "['a']"))
        await tab.wait_for("window.finishReading && true")
        await tab.type("look")
        await tab.press("Enter")
        await tab.press("Enter")
        await tab.type("and more")
        await tab.wait_for(f"{text_of('#queued')} === 'Sending look'")
        await tab.evaluate("finishReading()")
        await tab.wait_for(f"{STOPPED} && {LOG}.includes('seen') && !document.getElementById('queued')")
        assert await tab.evaluate(INPUT) == "and more"
        assert tab.errors == []
    (request,) = model.requests
    sent = [row for row in request.messages if isinstance(row, UserMessage)]
    assert [(row.content, [file.name for file in row.attachments]) for row in sent] == [("look", ["a.txt"])]


@pytest.mark.ci_lane
async def test_what_is_typed_while_the_first_message_makes_the_session_is_the_session_s(
    make_studio: StudioMaker, tab: Tab
) -> None:
    async with make_studio(ScriptedModel(["Hello there."])) as studio:
        await enter(tab, studio)
        await tab.evaluate(SLOW_CREATION)
        await tab.wait_for("document.activeElement.id === 'input'")
        await tab.type("Good morning")
        await tab.wait_for(f"{INPUT} === 'Good morning'")
        await click(tab, "Send")
        await tab.wait_for("window.finishCreation && true")
        await tab.evaluate("document.getElementById('input').focus()")
        await tab.type("and")
        await add_files(tab, "picked", ("a.txt", "['a']"))
        await tab.evaluate("finishCreation()")
        await tab.wait_for("location.hash.startsWith('#/s/') && document.activeElement.id === 'input'")
        await tab.type(" more")
        await tab.wait_for(f"{STOPPED} && {LOG}.includes('Hello there.')")
        await tab.wait_for(f"{INPUT} === 'and more' && {text_of('#attached')}.startsWith('a.txt')")
        await tab.evaluate(FILES_STORED_FOR.format(await tab.evaluate("location.hash.slice(4)")))
        await tab.reload()
        await tab.wait_for(f"{INPUT} === 'and more' && {text_of('#attached')}.startsWith('a.txt')")
        await tab.evaluate("location.hash = '#/new'")
        await tab.wait_for(f"{TITLE} === 'New session' && {INPUT} === ''")
        assert await tab.evaluate(SAVED.format("new session")) is None
        assert tab.errors == []


@pytest.mark.ci_lane
async def test_a_first_message_that_a_reload_cuts_off_is_in_the_box_of_the_session_that_it_made(
    make_studio: StudioMaker, tab: Tab
) -> None:
    async with make_studio(ScriptedModel(["Hello there."])) as studio:
        await enter(tab, studio)
        await tab.evaluate(LOST_TURNS)
        await write(tab, "Good morning")
        await add_files(tab, "picked", ("a.txt", "['a']"))
        await tab.wait_for(f"{text_of('#attached')}.startsWith('a.txt')")
        await click(tab, "Send")
        await tab.wait_for("window.isSent && location.hash.startsWith('#/s/')")
        await write(tab, "and more")
        session = await tab.evaluate("location.hash.slice(4)")
        await tab.evaluate(FILES_STORED_FOR.format(session))
        await tab.reload()
        await tab.wait_for(f"{INPUT} === 'Good morning\\n\\nand more' && {text_of('#attached')}.startsWith('a.txt')")
        assert await tab.evaluate("location.hash.slice(4)") == session
        await click(tab, "Send")
        await tab.wait_for(f"{STOPPED} && {LOG}.includes('Hello there.')")
        await tab.evaluate("location.hash = '#/new'")
        await tab.wait_for(f"{TITLE} === 'New session' && {INPUT} === '' && {text_of('#attached')} === ''")
        assert tab.errors == []


@pytest.mark.ci_lane
async def test_a_first_message_whose_session_was_made_without_an_answer_makes_no_other_session(
    make_studio: StudioMaker, tab: Tab
) -> None:
    async with make_studio(ScriptedModel(["Hello there.", "Hello again.", "Hello at last."])) as studio:
        (studio.workspace / "src").mkdir()
        await enter(tab, studio)
        await tab.evaluate(LOST_CREATION)
        await fill(tab, "Folder", str(studio.workspace / "src"))
        await write(tab, "Good morning")
        await click(tab, "Send")
        await tab.wait_for("window.isMade && true")
        await tab.evaluate("document.getElementById('input').focus()")
        await tab.type("and more")
        await tab.reload()
        await tab.wait_for(f"{TITLE} === 'New session' && {INPUT} === 'Good morning\\n\\nand more'")
        await tab.wait_for(f"{field('Folder')}.value === {str(studio.workspace / 'src')!r}")
        other = await enter_beside(tab, studio, "#/new")  # as if the first one was closed
        await other.wait_for(f"{field('Folder')}?.value === {str(studio.workspace / 'src')!r}")
        await tab.show()
        await click(tab, "Send")
        await tab.wait_for(f"location.hash.startsWith('#/s/') && {STOPPED} && {LOG}.includes('Hello there.')")
        assert [one["workspace"][-4:] for one in await listed(studio)] == ["/src"]
        await tab.evaluate("location.hash = '#/new'")
        await tab.wait_for(f"{TITLE} === 'New session' && {INPUT} === ''")
        await tab.evaluate(LOST_CREATION + "window.isCut = true")
        await fill(tab, "Folder", "")
        await write(tab, "Good night")
        await click(tab, "Send")
        await tab.wait_for(f"window.isMade && {INPUT} === 'Good night'")
        await fill(tab, "Folder", str(studio.workspace / "src"))  # after a request that had the usual one
        await write(tab, "Good night!")
        await tab.evaluate("window.fetch = window.request; document.getElementById('send').click()")
        await tab.wait_for(f"location.hash.startsWith('#/s/') && {STOPPED} && {LOG}.includes('Hello again.')")
        assert [one["workspace"][-4:] for one in await listed(studio)] == ["/src", "/src"]
        await tab.evaluate("location.hash = '#/new'")
        await tab.wait_for(f"{TITLE} === 'New session' && {INPUT} === ''")
        assert await tab.evaluate(SAVED.format("new.session")) is None
        await tab.evaluate(NO_CREATION)
        await write(tab, "Good evening")
        await click(tab, "Send")
        await tab.wait_for(f"window.isLost && {INPUT} === 'Good evening'")
        await tab.evaluate("window.fetch = window.request; location.hash = '#/settings/page'")
        await tab.wait_for("!document.getElementById('input')")
        await tab.evaluate("location.hash = '#/new'")
        await tab.wait_for(f"{TITLE} === 'New session' && {INPUT} === 'Good evening'")
        await tab.reload()  # none is made before the message is sent
        await tab.wait_for(f"{field('Folder')}?.placeholder.startsWith('/') && {INPUT} === 'Good evening'")
        assert len(await listed(studio)) == 2
        await click(tab, "Send")
        await tab.wait_for(f"location.hash.startsWith('#/s/') && {STOPPED} && {LOG}.includes('Hello at last.')")
        assert tab.errors == []


async def listed(studio: RunningStudio, query: str = "") -> list[dict[str, Any]]:
    """Return the sessions as the studio lists them."""
    return (await studio.client.get(f"/api/sessions{query}")).json()["sessions"]


LOST_CREATION = """{
    window.request = window.fetch;
    window.fetch = async (url, options) => {
        const response = await window.request(url, options);
        if (options?.method !== 'POST' || !/api\\/sessions$/.test(url)) return response;
        window.isMade = true;
        if (window.isCut) throw new TypeError("the connection is lost");
        return new Promise(() => {});
    };
}"""

NO_CREATION = """{
    window.request = window.fetch;
    window.fetch = (url, options) => {
        if (options?.method !== 'POST' || !/api\\/sessions$/.test(url)) return window.request(url, options);
        window.isLost = true;
        throw new TypeError("nobody answers");
    };
}"""

FILES_STORED_FOR = """new Promise((stored) => {{
    const look = () => indexedDB.open("agenticx").onsuccess = ({{target: {{result}}}}) => {{
        const keys = result.transaction("draft files").objectStore("draft files").getAllKeys();
        keys.onsuccess = () => {{ result.close(); keys.result.join() === '{}' ? stored() : look(); }};
    }};
    look();
}})"""

LOST_TURNS = """{
    const request = window.fetch;
    window.fetch = async (url, options) => {
        if (options?.method !== 'POST' || !url.endsWith('/turns')) return request(url, options);
        window.isSent = true;
        return new Promise(() => {});
    };
}"""

SLOW_CREATION = """{
    const request = window.fetch;
    window.fetch = async (url, options) => {
        if (options?.method === 'POST' && /api\\/sessions$/.test(url)) {
            await new Promise((resolve) => { window.finishCreation = resolve; });
        }
        return request(url, options);
    };
}"""

SLOW_READER = """{
    const read = FileReader.prototype.readAsDataURL;
    FileReader.prototype.readAsDataURL = function (file) { window.finishReading = () => read.call(this, file); };
}"""


@pytest.mark.ci_lane
async def test_keys_of_the_message_box_send_steer_and_bring_the_last_message_back(
    make_studio: StudioMaker, tab: Tab
) -> None:
    script = [call("ask_user", {"text": "Which?"}), "One.", [say("so"), hang()]]
    async with make_studio(ScriptedModel(script), tools=[ask_user]) as studio:
        session_id = await studio.session()
        await enter(tab, studio, "#/settings/page")
        await tab.wait_for(f"{field('Enter sends')} && true")
        await tab.evaluate(f"{field('Enter sends')}.click()")
        await tab.evaluate(f"location.hash = '#/s/{session_id}'")
        await tab.wait_for(f"{TITLE} === 'Named' && document.activeElement.id === 'input'")
        await tab.type("a")
        await tab.press("Enter")
        await tab.type("b")
        assert await tab.evaluate(INPUT) == "a\nb"
        await tab.press("Enter", held=["Shift"])
        await tab.wait_for(f"{DECISION}?.dataset.ready === ''")
        await tab.evaluate(f"{field('Your answer', DECISION)}.focus()")
        await tab.type("left")
        await tab.press("Enter")
        assert await tab.evaluate(f"{field('Your answer', DECISION)}.value") == "left\n"
        await tab.press("Enter", held=["Shift"])
        await tab.wait_for(f"{STOPPED} && {LOG}.includes('One.') && {INPUT} === ''")
        await tab.press("ArrowUp")
        await tab.wait_for(f"{INPUT} === 'a\\nb'")
        await tab.evaluate(PASTE_IMAGE)
        await tab.wait_for("document.querySelector('#attached img.thumbnail')?.naturalWidth === 1")
        await click(tab, "Remove dot.png")
        await tab.press("Enter", held=["Control"])
        await tab.wait_for(f"{LOG}.includes('so') && {INPUT} === ''")
        await tab.type("into it")
        await tab.press("Enter", held=["Control"])
        await tab.wait_for(f"{text_of('#queued')}.startsWith('Will be read in this turn into it')")
        assert (await tab.evaluate("document.getElementById('when-busy').title")).startswith("Shift+Enter sends")
        await click(tab, "Show preview")
        await tab.wait_for(
            "document.getElementById('pane') && document.getElementById('when-busy').innerText.includes('into turn')"
        )
        choices = "[...document.querySelectorAll('#session-model, #session-mode, #when-busy')]"
        widths = await tab.evaluate(f"{choices}.map((one) => one.offsetWidth)")
        assert (len(widths), min(widths) > 60) == (3, True)  # in short, beside the pane
        await tab.evaluate("document.getElementById('input').blur()")
        await tab.press("?")
        assert await tab.wait_for(f"{SEND_KEY}") == "Shift+Enter Send; Enter breaks the line"
        assert tab.errors == []


PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PASTE_IMAGE = f"""{{
    const clipboardData = new DataTransfer();
    clipboardData.items.add(new File({file_parts(PNG)}, "dot.png", {{type: "image/png"}}));
    const paste = new ClipboardEvent("paste", {{clipboardData, bubbles: true, cancelable: true}});
    document.getElementById("input").dispatchEvent(paste);
}}"""


@pytest.mark.ci_lane
async def test_paths_are_completed_after_an_at_sign(make_studio: StudioMaker, tab: Tab) -> None:
    async with make_studio(ScriptedModel([]), tools=builtin_tools()) as studio:
        (studio.workspace / "src").mkdir()
        (studio.workspace / "src" / "engine.py").touch()
        selected = "document.querySelector('#mentions [aria-selected=true]')?.innerText ?? ''"
        session_id = await studio.session()
        await enter(tab, studio)
        for route, title in ((f"#/s/{session_id}", "Named"), ("#/new", "New session")):
            await tab.evaluate(f"location.hash = {route!r}")
            await tab.wait_for(f"{TITLE} === {title!r}")
            await tab.evaluate("document.getElementById('input').focus()")
            await tab.type("look at @eng")
            await tab.wait_for(f"({selected}).includes('src/engine.py')")
            await tab.press("Enter")
            await tab.wait_for(f"{INPUT} === 'look at @src/engine.py '")
        await write(tab, "")
        await fill(tab, "Folder", str(studio.workspace / "src"))
        await tab.evaluate("document.getElementById('input').focus()")
        await tab.type("@eng")
        await tab.wait_for(f"({selected}).trim() === 'engine.py'")
        assert await tab.evaluate(text_of("#wide-folder")) == ""
        for folder, what in (("~/", "in your home folder."), ("/", "in /, your home folder included.")):
            await fill(tab, "Folder", folder)
            await tab.wait_for(
                f"{text_of('#wide-folder')}.startsWith('The agent could read and change everything {what}')"
            )
        assert tab.errors == []


@pytest.mark.ci_lane
@pytest.mark.shares_secrets
async def test_mode_auto_needs_a_second_click_and_a_call_is_explained(make_studio: StudioMaker, tab: Tab) -> None:
    script = [call("bash_exec", {"command": "rm -rf ."}), "So not."]
    async with make_studio(ScriptedModel(script), tools=builtin_tools()) as studio:
        session_id = await studio.session()
        await enter(tab, studio, f"#/s/{session_id}")
        await tab.wait_for(f"{TITLE} === 'Named'")
        path = f"/api/sessions/{session_id}"
        await fill(tab, "Permissions", "auto")
        await tab.wait_for("document.activeElement.innerText === 'Cancel'")  # Enter alone allows nothing
        look = "getComputedStyle(document.querySelector('dialog button.main')).backgroundColor"
        assert await tab.evaluate(f"[{look}, document.querySelector('dialog .dangerous') !== null]") == [RED, True]
        await click(tab, "Cancel", "document.querySelector('dialog')")
        assert (await studio.client.get(path)).json()["permission_mode"] == "default"
        await fill(tab, "Permissions", "auto")
        assert "You are still asked" in await tab.evaluate(text_of("dialog"))
        await click(tab, "Run everything without asking, except harmful calls", "document.querySelector('dialog')")
        await tab.wait_for(
            f"{text_of('#auto-warning')}.includes('Runs everything without asking, except harmful calls')"
        )
        assert (await studio.client.get(path)).json()["permission_mode"] == "auto"
        await tab.resize(390, 844)
        mode = "document.getElementById('session-mode').selectedOptions[0].innerText"
        await tab.wait_for(f"{mode} === 'Runs everything'")  # where there is little room, too
        await tab.resize(1280, 800)
        height = "document.getElementById('composer').offsetHeight"
        before = await tab.wait_for(f"{mode}.includes('except') && {height}")
        await send_message(tab, "Clean up")
        reason = await tab.wait_for(f"{DECISION} && {text_of('[aria-label=Decision] .reasons li')}")
        assert reason.startswith("It deletes ., which may be the workspace")
        for width in (900, 1280):  # its controls stand in one row also while a turn runs
            await tab.resize(width, 800)
            await tab.wait_for(f"innerWidth === {width} && {height} === {before}")
        await click(tab, "Deny", DECISION)
        await tab.wait_for(f"{STOPPED} && {LOG}.includes('So not.')")
        await click(tab, "Ask before changes again")
        await tab.wait_for("!document.getElementById('auto-warning')")
        await tab.evaluate("location.hash = '#/settings/rules'")
        kinds = f"[...({field('Call')}?.querySelectorAll('optgroup') ?? [])].map((one) => one.label)"
        offered = await tab.wait_for(f"{kinds}.length && {kinds}")
        assert offered == ["Read", "Change files or other state", "Run any code"]
        await fill(tab, "command", "cat .env", "document.getElementById('explain')")
        await click(tab, "Explain")
        assert (await tab.wait_for(text_of("#explained"))).startswith("You would be asked. It")
        assert tab.errors == []


CLOSE_SETTINGS = "document.querySelector('#settings header button')"
ROWS_OF_USAGE = """(() => {
    const boxes = (cell) => {
        const range = document.createRange();
        range.selectNodeContents(cell);
        const rects = [...range.getClientRects()].filter(({height}) => height < 40); // lines, without the link around
        return rects.map(({top, height}) => top + height / 2);
    };
    return [...document.querySelectorAll('#settings .by-session tbody tr')].map((row) => [...row.cells].map(boxes))
        .filter((cells) => cells.flat().some((middle) => Math.abs(middle - cells[0][0]) > 2));
})()"""
"""Rows of sessions whose name and figures are not on one line."""


@pytest.mark.ci_lane
@pytest.mark.shares_secrets
async def test_settings_show_all_tabs_on_a_phone_and_long_lists_from_their_beginning(
    make_studio: StudioMaker, tab: Tab
) -> None:
    async with make_studio(ScriptedModel(["Hello."]), tools=builtin_tools()) as studio:
        rules = [{"decision": "deny", "tool": "edit", "path": f"{name}/**", "scope": "user"} for name in range(250)]
        assert (await studio.client.put("/api/permissions", json={"rules": rules})).is_success
        free, paid = await studio.session(), await studio.session(name="Paid")
        await run_turn(studio, free, "hi")
        usage = {"input_tokens": 1, "output_tokens": 1, "model": "m", "cost_usd": "0.25"}
        await append(studio.services.store, paid, None, [RuntimeEvent(EventType.USAGE, usage)])
        await enter(tab, studio, f"#/s/{free}")
        for session_id, cost in ((paid, "Cost so far: $0.2500"), (free, "")):
            await tab.evaluate(f"location.hash = '#/s/{session_id}'")
            await tab.wait_for(f"document.querySelector('main[data-session={session_id}] #title') && true")
            await click(tab, "Session menu")
            await tab.wait_for(f"document.querySelector('[role=menu]') && {text_of('#session-cost')} === '{cost}'")
        await tab.evaluate("location.hash = '#/settings/usage'")
        await tab.resize(390, 800)
        head = f"{text_of('#settings table thead')} && {text_of('#settings table thead')}"
        assert await tab.wait_for(head) == "Model Calls Tokens in Tokens out Cost"
        links = "[...document.querySelectorAll('#settings .tabs a')]"
        inside = f"{links}.every((link) => link.getBoundingClientRect().right <= innerWidth)"
        assert await tab.evaluate(f"[{links}.length, {inside}]") == [7, True]
        assert await tab.evaluate(SMALL_TARGETS) == []
        assert await tab.evaluate(f"{CLOSE_SETTINGS}.getBoundingClientRect().right > 370")
        assert await tab.evaluate(ROWS_OF_USAGE) == []
        await tab.evaluate("location.hash = '#/settings/rules'")
        count = "document.querySelectorAll('#rule-list .revoke').length"
        await tab.wait_for(f"{count} === 100")
        await click(tab, "Show 100 more rules (150 left)")
        await click(tab, "Show 50 more rules")
        await tab.wait_for(f"{count} === 250")
        assert tab.errors == []


@pytest.mark.ci_lane
async def test_a_phone_shows_one_part_at_a_time_and_goes_back(make_studio: StudioMaker, tab: Tab) -> None:
    async with make_studio(ScriptedModel([call("note", {"text": "x"})])) as studio:
        session_id = await studio.session(name="Small")
        await enter(tab, studio)
        await tab.resize(390, 800)
        await tab.wait_for(f"{TITLE} === 'Small'")
        visible = "document.querySelector(`#studio > ${part}`)?.checkVisibility() ?? false"
        shown = f"['.side > nav', 'main', '#pane'].map((part) => {visible})"
        await tab.wait_for(f"{json.dumps([False, True, False])} + '' === {shown} + ''")
        assert await tab.evaluate(SMALL_TARGETS) == []
        await click(tab, "Show preview")
        await tab.wait_for(f"{json.dumps([False, False, True])} + '' === {shown} + ''")
        assert await tab.evaluate(SMALL_TARGETS) == []
        await tab.evaluate("history.back()")
        await tab.wait_for(f"{json.dumps([False, True, False])} + '' === {shown} + ''")
        await click(tab, "Session menu")
        await tab.wait_for("document.querySelector('[role=menu]') && true")
        await click(tab, "Sessions")
        await tab.wait_for(f"{json.dumps([True, False, False])} + '' === {shown} + ''")
        assert await tab.evaluate("document.querySelector('[role=menu]')") is None
        assert await tab.evaluate("document.querySelector('.list').clientHeight") > 600  # it has the room
        assert await tab.evaluate(SMALL_TARGETS) == []
        assert await tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
        await tab.evaluate(f"document.querySelector('a[href=\"#/s/{session_id}\"]').click()")
        await tab.wait_for(f"{json.dumps([False, True, False])} + '' === {shown} + ''")
        assert await tab.evaluate(f"{field('Message')} && {button('Send')} && true")

        await studio.turn(await studio.session(name="Other"))
        back = "document.querySelector('main .back')"
        await tab.wait_for(
            f"{back}.getAttribute('aria-label') === 'Sessions, 1 waiting' && {back}.textContent === '‹1'"
        )
        await tab.evaluate("location.hash = '#/new'")
        await tab.wait_for(f"{TITLE} === 'New session' && {back}?.textContent === '‹1'")
        assert await tab.evaluate(SMALL_TARGETS) == []
        await tab.press("k", held=["Control"])
        options = "[...document.querySelectorAll('#finder [role=option]')].map((one) => one.innerText)"
        await tab.wait_for(f"{options}[0]?.startsWith('Other · ')")
        await tab.press("Escape")
        await tab.evaluate("location.hash = '#/s/ses_unknown'")
        await tab.wait_for(f"document.querySelector('.gone')?.clientWidth > 300 && {button('New session')} && true")


@pytest.mark.ci_lane
async def test_the_address_of_a_message_shows_it_in_a_long_session(make_studio: StudioMaker, tab: Tab) -> None:
    asks = call("ask_user", {"text": "Which colour?"})
    model = ScriptedModel([asks, *("A line.\n\n" * 12 for _ in range(20))])
    async with make_studio(model, tools=builtin_tools()) as studio:
        session_id = await studio.session()
        await studio.turn(session_id, "message 0")
        await studio.events_until(session_id, "question_asked")
        (question,) = (await studio.client.get("/api/questions")).json()["questions"]
        await studio.client.post(f"/api/questions/{question['id']}", json={"answer": "violet"})
        await studio.events_until(session_id, "final")
        await run_turn(studio, session_id, *(f"message {number}" for number in range(1, 20)))
        first = (await messages(studio, session_id))[0]["message_id"]
        await enter(tab, studio, f"#/s/{session_id}")
        shown = "document.elementFromPoint(770, 120)?.closest('article')?.getAttribute('aria-label')"
        await tab.wait_for(f"/message 1[89]/.test({shown})")
        await tab.evaluate(f"location.hash = '#/s/{session_id}/m/{first}'")
        await tab.wait_for(f"{shown} === 'message 0'")
        await tab.reload()
        await tab.wait_for(f"{shown} === 'message 0'")

        await tab.press("k", held=["Control"])
        row = "document.querySelector('#finder [aria-selected=true]')?.innerText"
        await tab.wait_for(f"{row} && {button('Show 8 more')} && true")
        for _ in range(13):  # the session and twelve turns
            await tab.press("ArrowDown")
        await tab.wait_for(f"{row} === 'Show 8 more'")
        await tab.press("Enter")
        await tab.wait_for(f"{row} === 'message 7'")
        for _ in range(5):
            await tab.press("ArrowDown")
        await tab.wait_for(f"{row} === 'message 2'")
        await tab.press("Enter")
        await tab.wait_for(f"{shown} === 'message 2' && !document.getElementById('finder')")
        for word in ("colour", "violet"):
            ((match,),) = [one["matches"] for one in await listed(studio, f"?q={word}")]
            await press_button(tab, "↓ Newest")
            await wait_for_focus(tab, "#input")
            await tab.wait_for(f"/message 1[89]/.test({shown})")
            await tab.evaluate(f"location.hash = '#/s/{session_id}/m/{match['message_id']}'")
            await tab.wait_for(f"{shown} === 'message 0'")
        assert tab.errors == []


@pytest.mark.ci_lane
async def test_the_page_says_that_the_studio_closes_and_keeps_what_was_typed(
    make_studio: StudioMaker, tab: Tab
) -> None:
    async with make_studio(ScriptedModel([])) as studio:
        await enter(tab, studio, f"#/s/{await studio.session()}")
        await write(tab, "not sent yet")
        await wait_until(lambda: studio.services.relay.readers == 2)  # of this session, and of all
        await studio.close()
        ended = "Reconnecting… The studio has ended: start it with agx serve. Your text is kept."
        await tab.wait_for(f"{text_of('.connection')} === '{ended}'")
        await tab.evaluate("document.getElementById('send').click()")
        await tab.wait_for(f"{text_of('#attachment-error')} === 'The studio does not answer.'")
        assert await tab.evaluate(INPUT) == "not sent yet"


@pytest.mark.ci_lane
async def test_a_session_that_another_client_made_is_listed_once_the_person_looks(
    make_studio: StudioMaker, tab: Tab
) -> None:
    async with make_studio(ScriptedModel([])) as studio:
        await enter(tab, studio, "#/new")
        await tab.wait_for("document.querySelector('.list').innerText.includes('No session yet.')")
        session_id = await studio.session()
        await tab.evaluate("dispatchEvent(new Event('focus'))")
        await tab.wait_for(f"document.querySelector('#sessions a[href=\\'#/s/{session_id}\\']') !== null")
        assert tab.errors == []


HOLD_LISTS = """{
    const { fetch } = window, held = new Promise((resolve) => { window.releaseLists = resolve; });
    window.fetch = async (...given) => {
        const response = await fetch(...given);
        if (!/api\\/sessions\\?/.test(given[0])) return response;
        window.isHeld = true;
        await held;
        return response;
    };
}"""
MARK = "document.querySelector('#sessions .mark.waiting')"


@pytest.mark.ci_lane
async def test_a_decision_is_marked_though_an_older_list_arrives_later_and_the_stream_begins_late(
    make_studio: StudioMaker, tab: Tab
) -> None:
    asking = call("note", {"text": "x"})
    async with make_studio(ScriptedModel([asking, asking])) as studio:
        session_id = await studio.session()
        await enter(tab, studio, f"#/s/{session_id}")
        await tab.wait_for("document.querySelector('#sessions .name') && true")
        await studio.session(name="Second")
        await tab.evaluate(HOLD_LISTS)
        await tab.evaluate("dispatchEvent(new Event('focus'))")
        await tab.wait_for("window.isHeld")
        await studio.turn(session_id)
        await tab.wait_for(f"{MARK} && true")
        await tab.evaluate("releaseLists()")
        await tab.wait_for("document.getElementById('sessions').innerText.includes('Second')")
        assert await tab.evaluate(f"{MARK} !== null")
        await click(tab, "Stop")
        await tab.wait_for(f"!{MARK}")

        await tab.block("*/api/events?*")
        await tab.reload()
        await tab.wait_for("document.querySelector('#sessions .name') && true")
        await studio.turn(session_id)
        await tab.wait_for(f"{DECISION} && true")
        await tab.block()
        await tab.wait_for(f"{MARK} && true")
        assert [error for error in tab.errors if "ERR_BLOCKED" not in error] == []


@pytest.mark.ci_lane
async def test_older_sessions_are_listed_on_request(make_studio: StudioMaker, tab: Tab) -> None:
    async with make_studio(ScriptedModel([])) as studio:
        for number in range(102):
            await studio.session(name=f"Session {number}")
        await enter(tab, studio)
        await tab.wait_for("document.querySelectorAll('#sessions .name').length === 100")
        await click(tab, "Show older sessions")
        await tab.wait_for("document.querySelectorAll('#sessions .name').length === 102")
        assert not await tab.evaluate(f"{button('Show older')} && true")
        assert tab.errors == []
