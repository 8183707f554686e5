"""Values that the store cannot encode: they end their turn, and the session goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from agenticx import open_hub
from agenticx.errors import SessionNotFound
from agenticx.llms import Delta, Finished, ModelRequest, TextDelta, Usage, UsageDelta
from agenticx.settings import load_settings
from agenticx.testing import ScriptedModel, call, collect
from agenticx.tools import ToolContext, tool

pytestmark = [pytest.mark.anyio, pytest.mark.promise("B7")]

FAILED = {"text": "The turn failed because of an error in AgenticX.", "code": "internal", "fatal": True}


class _NoNumber:
    """A model that reports a token count that is no number, in its first reply only."""

    name = "odd"
    context_window = None

    def __init__(self) -> None:
        self.counts = [float("nan"), 1]

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        count: Any = self.counts.pop(0)
        yield [UsageDelta(Usage(input_tokens=count)), TextDelta("Hi"), Finished("end", "stop")]


@tool(risk="read")
def remember(context: ToolContext) -> str:
    """Keep an object in the state that the session stores."""
    todo: Any = object()
    context.state.todos.append(todo)
    return "kept"


MODELS = {"an event": _NoNumber, "the tool state": lambda: ScriptedModel([call("remember"), "Hi", "Hi"])}


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("url", ["memory://", "sqlite:///{folder}/chat.db"])
async def test_a_value_that_cannot_be_encoded_ends_its_turn_only(tmp_path: Path, url: str, kind: str) -> None:
    settings = load_settings({"home": tmp_path / "home"}, environ={})
    opened = open_hub(
        url.format(folder=tmp_path),
        model=MODELS[kind](),
        tools=[remember],
        workspace=tmp_path,
        settings=settings,
    )
    async with opened as hub:
        session = await hub.create(name="Named")
        failed = await collect(hub.run_turn(session.id, "one"))
        following = await collect(hub.run_turn(session.id, "two"))
        await hub.stop(session.id)
        await hub.delete(session.id)
        with pytest.raises(SessionNotFound):
            await hub.messages(session.id)

    assert failed[-1].data == FAILED
    assert following[-1].data["text"] == "Hi"


@pytest.mark.parametrize("url", ["memory://", "sqlite:///{folder}/chat.db"])
async def test_half_a_surrogate_pair_in_the_name_of_a_call_is_replaced(tmp_path: Path, url: str) -> None:
    settings = load_settings({"home": tmp_path / "home"}, environ={})
    model = ScriptedModel([call("\ud800", {}), "Hi"])
    async with open_hub(url.format(folder=tmp_path), model=model, workspace=tmp_path, settings=settings) as hub:
        session = await hub.create(name="Named")
        events = await collect(hub.run_turn(session.id, "go"))
        messages = await hub.messages(session.id)

    names = [event.data["name"] for event in events if event.type in ("tool_call_delta", "tool_call", "tool_result")]
    assert names == ["\ufffd"] * 3
    assert [row["role"] for row in messages] == ["user", "assistant", "tool", "assistant"]
    assert events[-1].data["text"] == "Hi"
