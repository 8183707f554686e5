"""`open_hub`: stored sessions and their turns as a library."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from agenticx import QuestionAnswer, open_hub
from agenticx.errors import SessionBusy, SessionNotFound, SettingsError, StoreError, ToolError
from agenticx.llms import ScriptedModel
from agenticx.runtime import ConfirmAnswer, UnknownConfirm, UnknownQuestion
from agenticx.runtime.events import TokenEvent
from agenticx.sessions import Hub, HubClosed, OwnedElsewhere, TurnFailed, TurnRequest
from agenticx.settings import load_settings
from agenticx.testing import call, collect, hang, outline, say
from agenticx.tools import tool
from tests.support.sessions import wait_for_event

pytestmark = pytest.mark.anyio

YES = ConfirmAnswer(approved=True)
NOTE = call("note", {"text": "x"})
ASKED = ["tool_call_delta", "tool_call", "confirm_required", "confirm_response", "tool_result"]


@tool(risk="write")
def note(text: str) -> str:
    """Write a note."""
    return f"noted {text}"


def opened(folder: Path, *script: Any, url: str = "memory://") -> AbstractAsyncContextManager[Hub]:
    """Open a hub with a scripted model and one tool that asks."""
    settings = load_settings({"home": folder / "home"}, environ={})
    return open_hub(url, model=ScriptedModel(script), tools=[note], workspace=folder, settings=settings)


async def test_a_turn_yields_its_stored_events_and_takes_answers_meanwhile(tmp_path: Path) -> None:
    async with opened(tmp_path, NOTE, "Noted.", url=f"sqlite:///{tmp_path}/chat.db") as hub:
        session, events = await hub.create(name="Notes"), list[Any]()
        async for event in hub.run_turn(session.id, "Note x"):
            events.append(event)
            assert await hub.store.log.head(session.id) >= len(events)
            if event.type == "confirm_required":
                with pytest.raises(
                    SessionBusy, match=r"already runs turn .* waits for an answer \(`hub.open_requests`"
                ):
                    await collect(hub.run_turn(session.id, "More"))
                await hub.answer(event.data["id"], YES, digest=event.data["digest"])
        assert outline(events) == ["turn_started", "round_start", *ASKED, "round_start", "token", "final"]
        assert [event.data["text"] for event in events if isinstance(event, TokenEvent)] == ["Noted."]
        messages = await hub.messages(session.id)
        assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]


async def test_a_turn_runs_on_after_the_loop_is_left_until_it_is_stopped_or_interrupted(tmp_path: Path) -> None:
    async with opened(tmp_path, [say("a"), hang()], [say("b"), hang()], "third") as hub:
        session = await hub.create(name="Named")
        for text in ("one", "two"):
            async for event in hub.run_turn(session.id, text, when_busy="interrupt"):
                if event.type == "token":
                    break
        with pytest.raises(SessionBusy, match="already runs turn"):
            await collect(hub.run_turn(session.id, "refused"))
        waiting = asyncio.create_task(collect(hub.run_turn(session.id, "returned", when_busy="queue")))
        async for item in hub.follow(session.id):
            if item.event.type == "queued" and item.event.data["input"] == "returned":
                await hub.stop(session.id)
                break
        with pytest.raises(TurnFailed, match="handed back"):
            await waiting
        events = await collect(hub.run_turn(session.id, "three"))
        assert outline(events) == ["turn_started", "round_start", "token", "final"]
        assert events[0].data["input"] == "three"


@pytest.mark.promise("B7")
async def test_an_iteration_ends_with_the_terminal_event_when_the_hub_is_closed(tmp_path: Path) -> None:
    async with opened(tmp_path, [say("a"), hang()], [say("a"), hang()], url=f"sqlite:///{tmp_path}/chat.db") as hub:
        sessions = [await hub.create(name="Named") for _ in range(2)]
        reading = asyncio.create_task(collect(hub.run_turn(sessions[0].id, "one")))
        paused = hub.run_turn(sessions[1].id, "two")
        events = [await anext(paused)]
        for session in sessions:
            await wait_for_event(hub.store, session.id, "token")
        following = asyncio.create_task(collect(hub.follow(sessions[0].id)))
    events += await collect(paused)
    for ended in (await reading, events, [item.event for item in await following]):
        assert outline(ended) == ["turn_started", "round_start", "token", "error"]
        assert ended[-1].terminal


@pytest.mark.promise("B1", "E3")
async def test_a_session_goes_on_in_a_hub_that_is_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with opened(tmp_path, NOTE, url="sqlite:///chat.db") as hub:
        session = await hub.create(name="Notes", system_prompt="Be brief.")
        async for event in hub.run_turn(session.id, "Note x"):
            if event.type == "confirm_required":
                break
        cursor = await hub.store.log.head(session.id)
    assert (tmp_path / "chat.db").is_file()

    async with opened(tmp_path, "Noted.", "Hello again.", url="sqlite:///chat.db") as hub:
        assert await hub.store.catalog.get(session.id) == session
        (question,) = await hub.open_requests(session.id)
        await hub.answer(question.id, YES, digest=question.digest)
        missed = list[Any]()
        async for item in hub.follow(session.id, after=cursor):
            missed.append(item)
            if item.event.terminal:
                break
        assert [item.seq for item in missed] == list(range(cursor + 1, cursor + 1 + len(missed)))
        assert outline(item.event for item in missed) == [*ASKED[3:], "round_start", "token", "final"]
        again = await collect(hub.run_turn(session.id, "hello", client_turn_id="c1"))
        assert await collect(hub.run_turn(session.id, "hello", client_turn_id="c1")) == again
        said = [message["content"] for message in await hub.messages(session.id) if message["role"] == "user"]
        assert said == ["Note x", "hello"]


async def test_a_loop_over_a_session_that_is_deleted_raises(tmp_path: Path) -> None:
    async with opened(tmp_path, [say("a"), hang()]) as hub:
        session = await hub.create(name="Named")
        running = hub.run_turn(session.id, "one")
        await anext(running)
        await hub.delete(session.id)
        with pytest.raises(SessionNotFound):
            await collect(running)
        with pytest.raises(SessionNotFound):
            await collect(hub.run_turn(session.id, "one"))


@pytest.mark.parametrize("url", ["memory://", "sqlite:///chat.db"])
async def test_a_closed_hub_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.chdir(tmp_path)
    async with opened(tmp_path, url=url) as hub:
        session = await hub.create(name="Named")
    with pytest.raises(HubClosed):
        await collect(hub.run_turn(session.id, "hi"))
    with pytest.raises(HubClosed):
        await hub.create()
    if url != "memory://":
        events = collect(hub.follow(session.id))
        for operation in (hub.change(session.id, {"name": "other"}), hub.messages(session.id), events):
            with pytest.raises(StoreError, match="the store is closed"):
                await operation


@pytest.mark.parametrize("name", ["chat.db", "chat.db.owner"])
async def test_tools_may_not_touch_the_store_in_the_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    calls = [call("file_read", {"path": name}), call("file_write", {"path": name, "content": "x"})]
    settings = load_settings({"home": tmp_path / "home", "permission_mode": "auto"}, environ={})
    async with open_hub("sqlite:///chat.db", model=ScriptedModel([calls, "No."]), settings=settings) as hub:
        session = await hub.create()
        events = await collect(hub.run_turn(session.id, "Read and write it"))
        results = [event.data["result"] for event in events if event.type == "tool_result"]
        assert ["which no tool reads or changes" in result for result in results] == [True, True]


@pytest.mark.promise("A5")
async def test_a_message_may_be_a_dict_row_and_nothing_else(tmp_path: Path) -> None:
    async with opened(tmp_path, "Hi.") as hub:
        session = await hub.create()
        wrong: Any
        for wrong in (5, None, {"role": "assistant", "content": "hi"}):
            with pytest.raises(TypeError, match="user_input must be a str, a UserMessage or a dict row"):
                await anext(hub.run_turn(session.id, wrong))
        events = await collect(hub.run_turn(session.id, {"role": "user", "content": "hello"}))
        assert events[-1].type == "final"


async def test_a_store_has_one_hub(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/chat.db"
    for _ in range(2):
        async with opened(tmp_path, url=url):
            with pytest.raises(OwnedElsewhere, match=f"process {os.getpid()}") as refused:
                async with opened(tmp_path, url=url):
                    pass
            assert refused.value.pid == os.getpid()


@pytest.mark.parametrize(
    ("part", "error", "words"),
    [
        (
            {"url": "mysql://me:hunter22@db/agx"},
            SettingsError,
            "sqlite:///PATH, postgresql://USER:PASSWORD@HOST/DATABASE or memory://, not one of 'mysql'$",
        ),
        (
            {"url": "postgres://me:hunter22@db@/agx"},
            SettingsError,
            r"^the URL of a store must be postgresql://.*a space in a name %20\)$",
        ),
        ({"url": "sqlite:///"}, SettingsError, "sqlite:///PATH, such as sqlite:///chat.db: the path is missing$"),
        ({"url": "sqlite://x.db"}, SettingsError, "sqlite:///PATH, .*: three slashes are before the path$"),
        ({"url": "sqlite:////nowhere/at/all/x.db"}, SettingsError, "'/nowhere/at/all', .* is not there; create it"),
        ({"url": "sqlite:///x?mode=ro"}, SettingsError, r"takes no options, such as the one after '\?'"),
        ({"url": "chat.db"}, SettingsError, "DATABASE or memory://, not a path alone"),
        ({"model": "nonsense"}, SettingsError, "'nonsense' is not provider:name"),
        ({"model": object()}, TypeError, "is not a model"),
        ({"tools": [1]}, TypeError, "neither a tool nor a function"),
        ({"hooks": [1]}, TypeError, "is no hook"),
        ({"system_prompt": 5}, TypeError, "system_prompt must be a text, not int"),
    ],
)
async def test_a_part_that_cannot_be_used_is_named(
    tmp_path: Path, part: dict[str, Any], error: type[Exception], words: str
) -> None:
    settings = load_settings({"home": tmp_path / "home"}, environ={})
    with pytest.raises(error, match=words):
        async with open_hub(**{"url": "memory://", "settings": settings, **part}):
            pass
    async with open_hub(model=ScriptedModel(), settings=settings):  # nothing was left open
        assert (tmp_path / "home" / "sessions.db").is_file()


@pytest.mark.parametrize(
    ("field", "value", "error", "words"),
    [
        ("tools", ["nope"], ToolError, "unknown tool 'nope'; known tools: note"),
        ("model", "nonsense", SettingsError, "'nonsense' is not provider:name"),
        ("permission_mode", "bold", ValueError, "known modes: default, accept_edits, plan, auto"),
        ("system_prompt", "", ValueError, "1 to 65536 bytes"),
        ("system_prompt", "\ud800 hi", ValueError, "half of a surrogate pair"),
        ("system_prompt", 5, TypeError, "must be a text, not int"),
        ("name", "a\0", ValueError, "one line without control characters"),
        ("name", "a\nb", ValueError, "one line"),
        ("name", True, TypeError, "must be a text, not bool"),
        ("model", 5, TypeError, "must be a text, not int"),
        ("tools", "note", TypeError, "a list of names"),
    ],
)
async def test_a_field_of_a_session_that_cannot_be_used_is_named(
    tmp_path: Path, field: str, value: Any, error: type[Exception], words: str
) -> None:
    async with opened(tmp_path) as hub:
        session = await hub.create(name="Named")
        with pytest.raises(error, match=words):
            await hub.create(**{field: value})
        with pytest.raises(error, match=words):
            await hub.change(session.id, {field: value})
        with pytest.raises(SettingsError, match="is not a folder"):
            await hub.create(workspace=tmp_path / "missing")
        with pytest.raises(ValueError, match="'id' of a session cannot be changed"):
            await hub.change(session.id, {"id": "other"})
        assert [one.record for one in await hub.store.catalog.sessions()] == [session]


async def test_an_id_that_no_store_can_have_is_unknown(tmp_path: Path) -> None:
    async with opened(tmp_path, url=f"sqlite:///{tmp_path}/s.db") as hub:
        calls: list[Callable[[str], Awaitable[object]]] = [
            *(lambda id_: hub.submit(id_, TurnRequest(input="hi")), lambda id_: hub.change(id_, {"pinned": True})),
            *(hub.stop, lambda id_: hub.rewind(id_, None), hub.messages, hub.subagents, hub.delete),
            lambda id_: anext(hub.follow(id_)),
        ]
        for id_ in ("\ud800", "a\0", "a" * 5000, "../a", ""):
            for attempt in calls:
                with pytest.raises(SessionNotFound):
                    await attempt(id_)
            with pytest.raises(UnknownConfirm):
                await hub.answer(id_, YES, digest="")
            with pytest.raises(UnknownQuestion):
                await hub.answer(id_, QuestionAnswer(answer="yes"))
