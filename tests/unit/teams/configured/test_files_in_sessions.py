"""Attachments of the messages of teams in sessions, after a restart."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from agenticx import UserMessage, open_hub
from agenticx.attachments import Attachment, make_attachment
from agenticx.llms import ScriptedModel
from agenticx.sessions import Hub, TurnRequest
from agenticx.settings import load_settings
from agenticx.teams import (
    AssistantAgent,
    BaseChatMessage,
    CancellationToken,
    HandoffMessage,
    MultiModalMessage,
    Response,
    RoundRobinGroupChat,
    TextMessage,
)
from agenticx.testing import hang
from tests.support.teams.configured import PAIR, log_of, open_team_hub, team_file
from tests.support.teams.sessions import open_session
from tests.support.timeouts import wait_until
from tests.support.wires.files import PNG
from tests.unit.teams.chat_agents import Saying

pytestmark = pytest.mark.anyio

SMALL = make_attachment("small.txt", b"Roses are red.")
LARGE = make_attachment("large.txt", os.urandom(40_000).hex().encode())
PICTURE = PNG.model_copy(update={"name": "p.png"})


def files_shown(model: ScriptedModel) -> list[Attachment]:
    """Return the attachments of all messages of the last request."""
    messages = (message for message in model.requests[-1].messages if isinstance(message, UserMessage))
    return [file for message in messages for file in message.attachments]


def texts_shown(model: ScriptedModel) -> list[str]:
    return [message.content for message in model.requests[-1].messages if message.role != "system"]


def reopened(folder: Path) -> Any:
    settings = load_settings({"home": folder / "home"}, environ={})
    url = f"sqlite:///{folder}/sessions.db"
    return open_hub(url, model=ScriptedModel([]), tools=[], workspace=folder, settings=settings)


def pair(first: Any, second: Any, session_id: str | None, *, nested: bool = False) -> RoundRobinGroupChat:
    """Return a team of an agent `a` and an agent `b`, which is in a team of its own if `nested`."""
    a, b = AssistantAgent("a", first, system_message=None), AssistantAgent("b", second, system_message=None)
    inner = RoundRobinGroupChat([b], name="inner", max_turns=1) if nested else b
    return RoundRobinGroupChat([a, inner], max_turns=1, session=session_id)


async def contents_in_log(hub: Hub, session_id: str) -> int:
    """Return the number of events that have a part of the contents."""
    frames = [event.frame_json for event in await hub.store.log.read(session_id, 0, 1000)]
    return sum(file.data[:12].encode() in frame for frame in frames for file in (SMALL, LARGE, PICTURE))


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(
    "task",
    [
        [MultiModalMessage(content=["Look:", SMALL, LARGE]), MultiModalMessage(content=[PICTURE, "Well?"])],
        HandoffMessage(
            content="Go on.", target="a", context=[UserMessage(content="These:", attachments=(SMALL, LARGE, PICTURE))]
        ),
    ],
    ids=["message", "context"],
)
@pytest.mark.cases(quick=2)
async def test_participants_of_a_later_process_get_the_files_of_the_task(
    tmp_path: Path, task: Any, nested: bool
) -> None:
    async with open_session(tmp_path) as (hub, session_id):
        await pair(ScriptedModel(["One."]), ScriptedModel([]), session_id).run(task=task)
        assert await contents_in_log(hub, session_id) == 0
    async with reopened(tmp_path):
        with ScriptedModel(["Three."]) as first, ScriptedModel(["Two."]) as second:
            team = pair(first, second, session_id, nested=nested)
            await team.run()
            await team.run()
    assert files_shown(first) == files_shown(second) == [SMALL, LARGE, PICTURE]
    assert not any("attached" in text for text in texts_shown(first))


async def test_a_first_speech_that_was_interrupted_is_made_again_with_the_files_of_the_task(tmp_path: Path) -> None:
    task, token = MultiModalMessage(content=["Look:", PICTURE]), CancellationToken()
    async with open_session(tmp_path) as (_, session_id):
        with ScriptedModel([hang()]) as model:
            team = pair(model, ScriptedModel([]), session_id)
            running = asyncio.create_task(team.run(task=task, cancellation_token=token))
            await wait_until(lambda: model.requests)
            token.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
    async with reopened(tmp_path):
        with ScriptedModel(["One."]) as model:
            await pair(model, ScriptedModel([]), session_id).run()
    assert (files_shown(model), texts_shown(model)) == ([PICTURE], ["Look:\n[p.png]", "Continue."])


class Drawn(MultiModalMessage, frozen=True):
    """A message of an application's own."""

    type: Literal["Drawn"] = "Drawn"  # pyright: ignore[reportIncompatibleVariableOverride]


class Given(HandoffMessage, frozen=True):
    """A handoff of an application's own."""

    type: Literal["Given"] = "Given"  # pyright: ignore[reportIncompatibleVariableOverride]


class Sourced(TextMessage, frozen=True):
    """A text whose context is one too."""

    context: str = "abc"
    type: Literal["Sourced"] = "Sourced"  # pyright: ignore[reportIncompatibleVariableOverride]


class Drawing(Saying):
    """An agent that says one message."""

    def __init__(self, message: BaseChatMessage) -> None:
        super().__init__("a")
        self._message = message

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        return (type(self._message),)

    async def on_messages(self, messages: Any, cancellation_token: Any) -> Response:
        return Response(chat_message=self._message)


@pytest.mark.parametrize(
    "message",
    [
        *(kind(content=["Drawn:", PICTURE], source="a") for kind in (MultiModalMessage, Drawn)),
        *(
            kind(
                content="Go.",
                source="a",
                target="b",
                context=[UserMessage(content="Drawn:", attachments=(PICTURE,))],
            )
            for kind in (HandoffMessage, Given)
        ),
    ],
    ids=lambda message: type(message).__name__,
)
async def test_a_file_that_a_participant_made_reaches_the_participants_of_a_later_process(
    tmp_path: Path, message: BaseChatMessage, caplog: pytest.LogCaptureFixture
) -> None:
    def team(model: ScriptedModel, session_id: str) -> RoundRobinGroupChat:
        reader = AssistantAgent("b", model, system_message=None)
        pair = [Drawing(message), reader]
        return RoundRobinGroupChat(pair, max_turns=1, session=session_id, custom_message_types=[Drawn, Given])

    async with open_session(tmp_path) as (hub, session_id):
        await team(ScriptedModel([]), session_id).run(task="Draw.")
        (shown,) = [one["content"] for one in await hub.messages(session_id) if one.get("sender") == "a"]
        assert shown == message.to_text()
    async with reopened(tmp_path):
        with ScriptedModel(["Seen."]) as model:
            await team(model, session_id).run()
    assert files_shown(model) == [PICTURE]
    assert "Drawn:" in "\n".join(texts_shown(model))
    assert "not stored" not in caplog.text


@pytest.mark.parametrize(
    "task",
    [
        Drawn(content=["Look:", SMALL, LARGE]),
        Given(content="Go on.", target="a", context=[UserMessage(content="These:", attachments=(SMALL, LARGE))]),
        Sourced(content="Go on.", metadata={"sha256": "none"}),
    ],
    ids=lambda task: type(task).__name__,
)
async def test_a_later_process_reads_messages_of_an_applications_own_types(tmp_path: Path, task: Any) -> None:
    types: list[type[BaseChatMessage]] = [type(task)]

    def team(model: ScriptedModel, session_id: str) -> RoundRobinGroupChat:
        agent = AssistantAgent("a", model, system_message=None)
        return RoundRobinGroupChat([agent], max_turns=1, session=session_id, custom_message_types=types)

    async with open_session(tmp_path) as (hub, session_id):
        await team(ScriptedModel(["One."]), session_id).run(task=task)
        assert await contents_in_log(hub, session_id) == 0
    async with reopened(tmp_path):
        with ScriptedModel(["Two."]) as model:
            await team(model, session_id).run(task="More.")
    assert files_shown(model) == ([] if isinstance(task, Sourced) else [SMALL, LARGE])
    assert texts_shown(model)[-1] == "More."


async def test_a_configured_team_gets_the_files_of_earlier_messages_and_of_those_that_steered(tmp_path: Path) -> None:
    team_file(tmp_path / "home", PAIR)
    began, release = asyncio.Event(), asyncio.Event()

    class Blocking(ScriptedModel):
        async def stream(self, request: Any) -> AsyncGenerator[Any]:
            if not began.is_set():
                began.set()
                await release.wait()
            async for batch in super().stream(request):
                yield batch

    with Blocking(["One.", "Two.", "Three.", "Four."]) as model:
        async with open_team_hub(tmp_path, model=model) as hub:
            session = await hub.create(team="pair")
            begun = await hub.submit(session.id, TurnRequest(input="Write.", attachments=(LARGE,)))
            await began.wait()
            steered = await hub.submit(
                session.id, TurnRequest(input="Or this.", attachments=(PICTURE,), when_busy="steer")
            )
            assert steered.state == "steered"
            release.set()
            await hub.wait_for_turn(session.id, begun.turn.id)
            assert [event async for event in hub.run_turn(session.id, "Again.")][-1].type == "final"
            assert len([event for event in await log_of(hub, session.id) if event["type"] == "steered"]) == 1
    assert files_shown(model) == [LARGE, PICTURE]
