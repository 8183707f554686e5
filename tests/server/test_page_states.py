"""The states of the page, wide and narrow, light and dark: what each says, what axe finds, and what a reload keeps."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from agenticx import builtin_tools
from agenticx.errors import ModelError
from agenticx.llms import ScriptedModel
from agenticx.subagents import session_tools
from agenticx.testing import call, fail, finish, hang, say, usage
from tests.support.server.agx_processes import agx_serve
from tests.support.server.axe import AXE, NARROW, look_at
from tests.support.server.chromium import CHROMIUM, Tab
from tests.support.server.conversations import run_turn
from tests.support.server.page import (
    DECISION,
    INPUT,
    LOG,
    PARTS_LOADED,
    SHOWN,
    STOPPED,
    TITLE,
    button,
    click,
    enter,
    press_button,
    send_and_be_asked,
    send_message,
    stop_by_keys,
    text_of,
    write,
)
from tests.support.server.running_studio import IN_A_FILE, StudioMaker
from tests.support.teams.configured import DESK, PAIR, team_file
from tests.support.timeouts import PATIENCE

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.ci_lane,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
    pytest.mark.skipif(not AXE.exists(), reason=f"run `npm ci` in {AXE.parents[2]}"),
]

STATE = f"""JSON.stringify([
    {SHOWN}, {TITLE}, document.querySelector('[aria-label=Decision] h2')?.innerText,
    document.querySelector('.dock-place span')?.innerText, {text_of("#log .end:last-child .ending")}, {STOPPED},
]).replace(/[0-9:]+(?= ?(s|min))|[0-9]+:[0-9:]+/g, '…')"""
"""A JavaScript expression for what a session shows, without times."""

MARKDOWN = """A **first** [answer](https://example.com).

```python
import os  # a comment
x = 'text' + str(1)
```

| a | b |
|---|---|
| 1 | 2 |

- [x] done

> quoted"""

BACKGROUNDS = """[
    [document.body], [document.querySelector('.streaming .markdown > :last-child'), '::after'],
    [document.getElementById('send')],
].map((part) => getComputedStyle(...part).backgroundColor)"""
"""A JavaScript expression for the colours of the page, of the caret in a text, and of the button that sends."""

STATUS = text_of("#status")
COMPOSER = "document.getElementById('composer')"
PANE = "document.getElementById('pane')"


async def look_and_reload(tab: Tab) -> None:
    """Look at a state of a session, which a reload must not change."""
    await look_at(tab)
    before = await tab.evaluate(STATE)
    await tab.reload()
    await tab.wait_for("document.getElementById('log')?.tabIndex === 0")
    await tab.wait_for(f"{STATE} === {before!r}")


async def show(tab: Tab, session_id: str) -> None:
    await tab.evaluate(f"location.hash = '#/s/{session_id}'")
    await tab.wait_for(f"document.querySelector('main[data-session={session_id}] #log')?.tabIndex === 0")


@IN_A_FILE
async def test_a_first_run_without_a_key_offers_prompts_that_the_demo_model_answers(
    make_studio: StudioMaker, tab: Tab
) -> None:
    async with make_studio(tools=builtin_tools(), model="demo") as studio:
        await enter(tab, studio)
        notice = await tab.wait_for(text_of("#demo-notice"))
        assert notice == "Running the demo model, a script. Add a key to use a real one."
        await look_at(tab)
        prompts = await tab.evaluate("[...document.querySelectorAll('.prompts button')].map((one) => one.innerText)")
        assert len(prompts) == 3
        assert (await studio.client.get("/api/sessions")).json()["sessions"] == []
        ended = f"({STOPPED} && document.querySelector('.answer') || {DECISION})"
        for prompt in prompts:
            await tab.evaluate("location.hash = '#/new'")
            await click(tab, prompt)
            await tab.wait_for(f"{INPUT} === {prompt!r} && document.activeElement.id === 'input'")
            await tab.press("Enter")
            await tab.wait_for(f"{TITLE} === {prompt!r} && {ended} && true")
            if await tab.evaluate(f"Boolean({DECISION})"):
                await click(tab, "Allow once", DECISION)
                await tab.wait_for(f"{STOPPED} && true")
            assert await tab.evaluate("document.querySelector('#log .ending:not(.done)')") is None
        assert tab.errors == []
        await write(tab, "a draft")
        await tab.evaluate("sessionStorage.clear()")
        await tab.reload()
        await tab.wait_for("document.getElementById('locked') && true")
        await look_at(tab)
        await tab.evaluate(f"location.hash = '#ticket={await studio.services.tickets.issue()}'")
        await tab.wait_for(f"{INPUT} === 'a draft'")


@IN_A_FILE
async def test_a_turn_streams_waits_asks_stops_ends_early_and_fails(make_studio: StudioMaker, tab: Tab) -> None:
    limited = ModelError("slow down", code="provider.rate_limited", retryable=True, retry_after=3600)
    asking = call("ask_user", {"text": "Which colour?", "options": ["red", "blue"]})
    script: list[Any] = [
        [say(MARKDOWN), hang()],
        call("file_write", {"path": "a.py", "content": "x = 1\n"}),
        "Written.",
        asking,
        "Blue.",
        *([fail(ModelError("no", code=code))] for code in ("provider.auth", "provider.bad_request")),  # type: ignore[arg-type]
        [fail(limited)],
        [say("Half an"), finish("length")],
        "",
    ]
    async with make_studio(ScriptedModel(script), tools=builtin_tools()) as studio:
        session_id = await studio.session()
        await enter(tab, studio, f"#/s/{session_id}")
        await send_message(tab, "go")
        await tab.wait_for("document.querySelector('.streaming blockquote') && true")
        await tab.wait_for(f"/^(Waiting for the model|Writing), \\d+ s/.test({STATUS})")
        assert await tab.evaluate("document.querySelectorAll('.streaming').length") == 1
        live = (
            "[role=status], [role=alert], [aria-live]:not([aria-live=off])"  # what screen readers read at each change
        )
        assert (
            await tab.evaluate(f"[...document.querySelectorAll({live!r})].map((one) => one.textContent).join('')") == ""
        )
        await tab.emulate(forced_colors="active")
        assert len(set(await tab.evaluate(BACKGROUNDS))) == 3
        await tab.emulate()
        await write(tab, "after this turn")
        await tab.evaluate(f"{button('Send')}.click()")
        await tab.wait_for(f"{text_of('#queued')}.startsWith('Queued after this turn')")
        await look_and_reload(tab)
        await click(tab, "Stop", COMPOSER)
        await tab.wait_for(f"{text_of('.ending.stopped')}.startsWith('Stopped by you after ')")
        await tab.wait_for(f"{text_of('#queued')}.startsWith('Not sent')")
        await look_and_reload(tab)
        assert await tab.evaluate(f"{button('Continue')} && {button('Copy')} && !{button('Fork here')}")
        await click(tab, "Remove this message")

        await send_message(tab, "write")
        await tab.wait_for(f"document.title === '(1) Waiting – Named' && {DECISION} && true")
        await tab.wait_for("document.querySelector('#sessions .mark.waiting') && true")
        await look_and_reload(tab)
        await click(tab, "Allow once", DECISION)
        await tab.wait_for(f"{STOPPED} && document.title === 'Named' && {SHOWN}.includes('Written.')")
        await look_and_reload(tab)
        await send_message(tab, "ask")
        await tab.wait_for(f"{DECISION}?.innerText.includes('Which colour?')")
        await look_and_reload(tab)
        await click(tab, "“blue”", DECISION)
        await tab.wait_for(f"{STOPPED} && {SHOWN}.includes('Blue.')")
        for said, offered in [
            ("The provider did not accept the key.", "Change key"),
            ("The provider refused the request.", "Change model"),
            ("The provider allows no more requests for now.", "Try again"),
        ]:
            await send_message(tab, "again")
            await tab.wait_for(f"{text_of('#log .ending.failed')} && {SHOWN}.includes({said!r}) && {STOPPED}")
            assert await tab.evaluate(f"{button(offered)} && true")
            await look_and_reload(tab)
        counted = text_of("#log .ending .buttons .note")
        assert (await tab.evaluate(counted)).startswith("It may succeed in ")
        await send_message(tab, "more")
        await tab.wait_for(f"{text_of('.ending.partial')}.startsWith('Incomplete: the answer was cut.')")
        assert await tab.evaluate(f"{button('Continue')} && true")
        await look_and_reload(tab)
        await send_message(tab, "nothing")
        await tab.wait_for(f"{SHOWN}.includes('The agent ended without an answer.') && {STOPPED}")
        assert tab.errors == []


@IN_A_FILE
async def test_a_turn_that_meets_a_limit_names_it_and_offers_what_fits(make_studio: StudioMaker, tab: Tab) -> None:
    note = call("scratchpad_write", {"key": "a", "content": "b"})
    full = ModelError("no room", code="context_overflow")
    script = [
        [note, usage(99_000, 999)],
        "Done.",
        [fail(full)],
        *[[note, usage(9, 9)]] * 8,
        "Answered otherwise.",
    ]
    async with make_studio(ScriptedModel(script), tools=builtin_tools(), turn_budget_tokens=100_000) as studio:
        await enter(tab, studio, f"#/s/{await studio.session()}")
        last = "#log article:last-of-type .ending"
        ending, within = text_of(last), f"document.querySelector('{last}')"
        await send_message(tab, "spend")
        said = await tab.wait_for(f"{STOPPED} && {ending}")
        assert said.startswith("The budget of 100000 tokens is exceeded: 99999 are used and ")
        assert said.endswith(
            " The settings turn_budget_tokens and turn_budget_usd limit each turn. "
            "Continue begins another turn, with the same limits. Continue Change model"
        )
        await look_and_reload(tab)
        await click(tab, "Continue", within)
        await tab.wait_for(f"{SHOWN}.includes('Done.') && {STOPPED}")

        await send_message(tab, "fill")
        said = await tab.wait_for(f"{STOPPED} && {ending}.startsWith('The conversation') && {ending}")
        assert said == (
            "The conversation is too long for this model. Choose one with a larger window, then try again. "
            "No room Change model Try again"
        )
        await look_and_reload(tab)

        await send_message(tab, "repeat")
        said = await tab.wait_for(f"{STOPPED} && {ending}.startsWith('The agent') && {ending}")
        assert said == (
            "The agent did the same again and again, so it was stopped. "
            "The turn was ended because the same call gave the same result 8 times in a row. Continue"
        )
        await look_and_reload(tab)
        await click(tab, "Continue", within)
        await tab.wait_for(f"{SHOWN}.endsWith('Answered otherwise.') && {STOPPED}")

        path = team_file(studio.services.settings.home, PAIR)
        created = await studio.client.post("/api/sessions", json={"name": "Team", "team": "pair"})
        path.unlink()
        await show(tab, created.json()["id"])
        await send_message(tab, "go")
        said = await tab.wait_for(f"{STOPPED} && {ending}")
        assert said.startswith("The team of this session cannot run. Unknown team 'pair'; known teams: ")
        assert said.endswith(" Show teams Try again")
        await click(tab, "Show teams", within)
        await tab.wait_for("location.hash === '#/settings/teams'")
        assert tab.errors == []


@IN_A_FILE
async def test_decisions_of_subagents_wait_here_and_elsewhere_and_panes_show_their_work(
    make_studio: StudioMaker, tab: Tab
) -> None:
    spawn = call("spawn_subagent", {"task": "Find it", "name": "helper"})
    write_file = call("file_write", {"path": "a.py", "content": "x = 1\n"})
    script: list[Any] = [
        [spawn, spawn, spawn, call("wait_subagents")],
        *[write_file] * 3,
        *["So not."] * 3,
        "All done.",
    ]
    async with make_studio(ScriptedModel(script), tools=[*builtin_tools(), *session_tools()]) as studio:
        session_id, other = [await studio.session(name=name) for name in ("Here", "There")]
        await enter(tab, studio, f"#/s/{session_id}")
        await send_message(tab, "go")
        await tab.wait_for(f"{text_of('.dock-place span')} === '1 of 3'")
        asks = await tab.evaluate(text_of("[aria-label=Decision] h2"))  # the first to ask
        assert asks in [f"helper-{number} wants to write a.py" for number in (1, 2, 3)]
        said = "document.querySelector('[aria-live=assertive]')?.textContent"  # of the last to ask
        await tab.wait_for(f"/^A decision is needed: helper-[123]: Create a\\.py\\?$/.test({said})")
        labels = await tab.evaluate(f"[...{DECISION}.querySelectorAll('button')].map((one) => one.innerText)")
        assert [label for label in labels if label.endswith(" all")] == ["Deny all"]
        card = text_of("#log [data-agent=helper-1]")
        await tab.wait_for(f"{card}.startsWith('helper-1 waits for you · ')")
        assert " · 1 round Find it Wants to write a.py " in await tab.evaluate(card)
        await look_and_reload(tab)

        await tab.evaluate(f"location.hash = '#/s/{other}'")
        waiting = text_of("[aria-label='Waiting for you in other sessions']")
        await tab.wait_for(f"{TITLE} === 'There' && {waiting}.startsWith('Waiting (3)')")
        names = "[...document.querySelectorAll('.waiting-list .name')].map((one) => one.innerText.trim())"
        assert await tab.evaluate(names) == ["● Here"]  # of the three
        await look_and_reload(tab)
        await tab.evaluate("location.hash = '#/sessions'")
        await tab.resize(NARROW, 844)
        await tab.wait_for("document.querySelector('h1')?.innerText === 'AgenticX'")
        await look_at(tab, NARROW)
        await look_at(tab)

        await show(tab, session_id)
        is_ready = f"{DECISION}.dataset.ready === ''"
        for label in ("Deny all", "Deny all 3 now"):  # the second is wider, so that the button moves
            await tab.wait_for(f"{button(label, DECISION)} && {is_ready}")
            await tab.click(button(label, DECISION))
        await tab.wait_for(f"{STOPPED} && {SHOWN}.includes('All done.')")
        await look_and_reload(tab)
        await tab.wait_for(f"{card}.includes('Denied by you')")
        await click(tab, "Show", "document.querySelector('#log [data-agent=helper-1]')")
        shown = text_of("#pane-content .agent-work")
        assert "Denied by you" in await tab.wait_for(f"{shown}.includes('So not.') && {shown}")
        for name in ("Agents", "Preview", "Changes", "Notes"):
            await click(tab, name, PANE)
            await tab.wait_for(f"!{text_of('#pane-content')}.startsWith('Loading')")
            await look_at(tab)
        for width in (NARROW, 900):
            await tab.resize(width, 844)
            await tab.wait_for(f"innerWidth === {width}")
            focused = "#pane" if width == NARROW else "#pane [aria-selected=true]"
            for close in ("Escape", "Close preview"):
                await tab.evaluate(f"{PANE}.focus()")
                if close == "Escape":
                    await tab.press(close)
                else:
                    await tab.click(button(close))
                await tab.wait_for(f"!{PANE} && document.activeElement.id === 'show-artifacts'")
                await tab.press("Enter")
                await tab.wait_for(f"{PANE} && document.activeElement.matches({focused!r})")
                await tab.wait_for("!document.querySelector('main:not(#pane, [inert])')")  # what is covered
        focused = "document.activeElement.matches('{}') && document.activeElement.checkVisibility()"
        for way in ("Escape", ".collapse", "#title"):  # to close the list of sessions, which was opened beside the pane
            await tab.click("document.querySelector('.expand')")
            await tab.wait_for(focused.format(".collapse"))
            if way == "Escape":
                await tab.press(way)
            else:
                await tab.click(f"document.querySelector({way!r})")
            await tab.wait_for(f"location.hash === '#/s/{session_id}'")
            if way != "#title":  # a click on a text takes the focus away
                await tab.wait_for(focused.format(".expand"))
        assert tab.errors == []


HOLD_STREAMS = """{
    const { fetch } = window, held = new Promise((resolve) => { window.releaseStreams = resolve; });
    window.fetch = async (...given) => (/sessions\\/.*\\/events/.test(given[0]) && await held, fetch(...given));
}"""


@IN_A_FILE
async def test_a_team_speaks_a_long_session_loads_and_the_studio_closes(make_studio: StudioMaker, tab: Tab) -> None:
    script: list[Any] = [
        "One.",
        [say("Two"), hang()],
        "Three.",
        "Four.",
        [say("I look."), call("handoff_to_clerk", {"reason": "They want a refund."})],
        [say("And now?"), call("handoff_to_customer", {"reason": "How much?"})],
        *("Fine.\n\n" * 5 for _ in range(30)),
        [say("so"), hang()],
    ]
    async with make_studio(ScriptedModel(script)) as studio:
        team_file(studio.services.settings.home, PAIR)
        created = await studio.client.post("/api/sessions", json={"name": "Team", "team": "pair"})
        await enter(tab, studio, f"#/s/{created.json()['id']}")
        assert not await tab.evaluate("document.getElementById('variants')")  # a team makes no options
        await send_message(tab, "Write.")
        await tab.wait_for("document.querySelector('#log .streaming')?.innerText === 'Two'")
        assert (await tab.evaluate(SHOWN)).splitlines() == ["Write.", "writer", "One.", "critic", "Two"]
        for width in (1280, 390):  # where the line has no room for the participants, the menu has them
            await tab.resize(width, 800)
            await press_button(tab, "Session menu")
            await tab.wait_for(f"{text_of('#session-team')} === 'Team pair: writer, critic'")
            await tab.press("Escape")
            await tab.wait_for(f"document.activeElement === {button('Session menu')}")
        await tab.resize(1280, 800)
        await look_and_reload(tab)
        await click(tab, "Stop", COMPOSER)
        await tab.wait_for(STOPPED)
        await send_message(tab, "Again.")
        await tab.wait_for(f"{SHOWN}.endsWith('The team stopped: Maximum number of turns 2 reached.')")
        await look_and_reload(tab)

        team_file(studio.services.settings.home, DESK, "desk")
        created = await studio.client.post("/api/sessions", json={"name": "Desk", "team": "desk"})
        await show(tab, created.json()["id"])
        await tab.wait_for(f"{text_of('.session-header .team')} === 'Team desk: desk, clerk'")
        await send_message(tab, "My ticket.")
        await tab.wait_for(f"{SHOWN}.includes('The team stopped') && {STOPPED}")
        assert (await tab.evaluate(SHOWN)).splitlines() == [
            *("My ticket.", "desk", "I look.", "desk hands over to clerk: They want a refund."),
            *("clerk", "And now?", "clerk hands over to customer: How much?"),
            "The team stopped: Handoff to customer from clerk detected.",
        ]
        await look_and_reload(tab)

        long = await studio.session(name="Long")
        await run_turn(studio, long, "about kittens", *(f"message {number}" for number in range(1, 30)))
        await tab.evaluate(HOLD_STREAMS)
        await tab.evaluate(f"location.hash = '#/s/{long}'")
        await tab.wait_for(f"{TITLE} === 'Long' && {LOG} === 'Loading…'")
        await look_at(tab)
        await tab.evaluate("releaseStreams()")
        await tab.wait_for(f"{SHOWN}.includes('message 29')")
        await look_at(tab)
        await tab.reload()
        await tab.wait_for(f"{SHOWN}.includes('message 29')")  # more or fewer of those before are mounted
        await tab.press("k", held=["Control"])
        await tab.wait_for("document.activeElement.closest('#finder') && true")
        await tab.type("kitten")
        await tab.wait_for(f"{button('about kittens')} && true")
        await look_at(tab)
        await click(tab, "about kittens")
        shown = "document.elementFromPoint(770, 160)?.closest('article')?.getAttribute('aria-label')"
        await tab.wait_for(f"{shown} === 'about kittens'")

        for name in ("rules", "models", "notes", "usage", "teams", "page"):
            await tab.evaluate(f"location.hash = '#/settings/{name}'")
            await tab.wait_for("document.querySelector('main h2')")
            await look_at(tab)
            if name == "teams":
                shown = await tab.evaluate(text_of("[aria-label=Teams]"))
                assert "pair writer, critic; speak in turn Start a session" in shown
        await show(tab, long)
        await send_message(tab, "last")
        await tab.wait_for(f"{SHOWN}.endsWith('so')")
        await write(tab, "kept")
        await studio.close()
        ended = "Reconnecting… The studio has ended: start it with agx serve. Your text is kept."
        await tab.wait_for(f"{text_of('.connection')} === '{ended}'")
        await look_at(tab)
        assert await tab.evaluate(INPUT) == "kept"
        ending = text_of("#log .ending.stopped")
        await tab.wait_for(f"{ending}.startsWith('Stopped because the studio closed, after ')")
        assert [error for error in tab.errors if "ERR_CONNECTION_REFUSED" not in error] == []


async def test_a_studio_that_is_killed_while_it_waits_is_reconnected_and_goes_on(tab: Tab, tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with agx_serve(home) as studio:
        await tab.open(f"{studio.url}/#{studio.ticket}")
        await tab.resize(1280, 844)
        await send_and_be_asked(tab, "Write hello.txt with the text Hello")
        await write(tab, "half a sentence")
        studio.process.kill()
        await tab.wait_for(f"{text_of('.connection')} === 'Reconnecting…'")
        await look_at(tab)
        await click(tab, "Allow once", DECISION)
        alerts = "[...document.querySelectorAll('[role=alert]:not(.hidden-text *)')].map((one) => one.innerText)"
        await tab.wait_for(f"{alerts}.join() === 'The studio does not answer.'")
        await tab.evaluate("document.getElementById('send').click()")
        await tab.wait_for(f"{alerts}.length === 2 && {INPUT} === 'half a sentence'")
    ask = "window.asking.postMessage('ask')"  # as a page of the other program would
    await tab.evaluate(
        "window.heard = []; window.asking = new BroadcastChannel('agenticx.token');"
        f"asking.onmessage = ({{data}}) => heard.push(typeof data.token); {ask}"
    )
    await another_program_gets_no_token(studio, "text/html", "<p>another program</p>")
    key = {"AGX_MODEL": "demo", "ANTHROPIC_API_KEY": "canary-key"}
    async with agx_serve(home, "--port", str(studio.port), **key):
        await tab.wait_for(f"!document.querySelector('.connection') && !{alerts}.length")
        listed = "[...document.getElementById('session-model').options].map((one) => one.value)"
        await tab.wait_for(f"{listed}.some((model) => model.startsWith('anthropic:'))")
        assert await tab.evaluate(f"[{INPUT}, {text_of('#message')}]") == ["half a sentence", ""]
        assert not await tab.evaluate("heard.includes('string')")
        await tab.evaluate(ask)
        await tab.wait_for("heard.includes('string')")
        assert not (tmp_path / "hello.txt").exists()
        await click(tab, "Allow once", DECISION)
        await tab.wait_for(f"{STOPPED} && {SHOWN}.includes('Allowed once by you')")
        assert (tmp_path / "hello.txt").read_text() == "Hello"
    assert [error for error in tab.errors if "ERR_" not in error] == []  # of connections


WRITING = """
from agenticx.testing import ScriptedModel, hang, say
from studio import create_app

app = create_app(models={"mine": ScriptedModel([[say("So it begins. "), hang()]])})
"""


async def test_while_the_studio_is_dead_no_time_goes_on_and_the_page_says_what_it_knew(
    tab: Tab, tmp_path: Path
) -> None:
    (tmp_path / "writing.py").write_text(WRITING)
    async with agx_serve(tmp_path / "home", "--app", "writing:app", AGX_MODEL="") as studio:
        await tab.open(f"{studio.url}/#{studio.ticket}")
        await tab.resize(1280, 844)
        await send_message(tab, "go")
        caret = "getComputedStyle(document.querySelector('.streaming .markdown > :last-child'), '::after').display"
        clocks = "[...document.querySelectorAll('.clock')].map((one) => one.textContent).join()"
        await tab.wait_for(f"{text_of('#status')}.startsWith('Writing') && {caret} === 'inline-block'")
        await tab.wait_for("document.querySelector('.mark.running .clock')?.textContent")
        await tab.wait_for(PARTS_LOADED)
        studio.process.kill()
        await tab.wait_for(f"{text_of('#status')}.startsWith('Connection lost while writing, ')")
        stopped = await tab.evaluate(f"[{clocks}, Date.now()]")
        assert len(stopped[0].split(",")) == 2, stopped  # of the header and of the turn
        assert await tab.evaluate(caret) == "none"
        assert (await tab.evaluate(text_of(".mark.running"))) == "◐ was running"
        turn = await tab.evaluate(text_of("#log .activity"))
        assert turn.startswith("The turn until the connection was lost"), turn
        await look_at(tab)
        line = text_of(".connection")
        for screen in ("#/new", "#/settings/page"):
            await tab.evaluate(f"location.hash = '{screen}'")
            await tab.wait_for(f"{line}.startsWith('Reconnecting…') && !document.querySelector('main[data-session]')")
            await tab.wait_for(f"{line}.includes('agx serve')")
            await look_at(tab)
            assert await tab.evaluate("document.querySelectorAll('.connection').length") == 1
        await tab.evaluate("history.go(-2)")
        await tab.wait_for(f"Date.now() > {stopped[1] + 2000} && {text_of('#status')}.startsWith('Connection lost')")
        assert await tab.evaluate(clocks) == stopped[0]
    async with agx_serve(tmp_path / "home", "--port", str(studio.port)):
        await tab.wait_for(f"!document.querySelector('.connection') && {STOPPED}")
        await tab.wait_for("!document.querySelector('.mark.running')")
    assert [error for error in tab.errors if "ERR_" not in error] == []  # of connections


async def test_a_program_that_pretends_to_be_the_studio_gets_no_token(tab: Tab, tmp_path: Path) -> None:
    async with agx_serve(tmp_path / "home") as studio:
        await tab.open(f"{studio.url}/#{studio.ticket}")
        await tab.wait_for("document.getElementById('input') && true")
        await send_message(tab, "say hello")
        await tab.wait_for(f"{STOPPED} && {SHOWN}.includes('hello')")
        await write(tab, "half a sentence")
        await tab.wait_for(PARTS_LOADED)  # of which one says that the tab is signed out
        await tab.evaluate(
            "window.asked = []; const load = fetch; fetch = (url, options) => (asked.push(url), load(url, options))"
        )
        studio.process.kill()
        await tab.wait_for("asked.some((url) => url.includes('/api/identity'))")
        assert not await tab.evaluate("asked.some((url) => url.includes('/events'))")  # no stream begins before that
    await another_program_gets_no_token(studio, "application/json", json.dumps({"proof": "0" * 64}))
    await tab.wait_for(
        "document.body.innerText.includes('has not this tab') && sessionStorage['agenticx.token'] === undefined"
    )


async def another_program_gets_no_token(studio: Any, media_type: str, body: str) -> None:
    """Listen on the port of a studio that has ended, and answer a request of the page."""
    requests, is_asked = list[bytes](), asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            requests.append(await reader.readuntil(b"\r\n\r\n"))
        except asyncio.IncompleteReadError:  # a connection that the browser held in reserve
            writer.close()
            return
        head = (
            f"HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        writer.write(f"{head}{body}".encode())
        await writer.drain()
        writer.close()
        is_asked.set()

    async with (
        await asyncio.start_server(answer, "127.0.0.1", studio.port, reuse_address=True),
        asyncio.timeout(PATIENCE),
    ):
        await is_asked.wait()
    assert all(request.startswith(b"GET /api/identity?challenge=") for request in requests)
    assert not any(b"authorization" in request.lower() for request in requests)


@IN_A_FILE
async def test_the_keyboard_alone_asks_allows_and_stops(make_studio: StudioMaker, tab: Tab) -> None:
    script: list[Any] = [call("file_write", {"path": "a.py", "content": "x = 1\n"}), [say("so"), hang()]]
    async with make_studio(ScriptedModel(script), tools=builtin_tools()) as studio:
        await enter(tab, studio)
        await tab.wait_for("document.activeElement.id === 'input'")
        await tab.type("go")
        await tab.press("Enter")
        await tab.wait_for(f"{DECISION}?.dataset.ready === ''")
        await tab.press("F2")
        await tab.wait_for(f"document.activeElement === {DECISION}.querySelector('h2')")
        await tab.press("a")
        await tab.wait_for(f"{SHOWN}.includes('so') && document.activeElement.id === 'input'")
        await stop_by_keys(tab)
        await tab.wait_for(f"{text_of('.ending')}.startsWith('Stopped by you after ')")
        assert (studio.workspace / "a.py").read_text() == "x = 1\n"
        assert tab.errors == []
