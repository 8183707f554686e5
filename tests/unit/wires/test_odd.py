"""Tests of malformed streams: through each wire's parser, and through turns over a socket."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agenticx import UserMessage
from agenticx.llms import close_model
from agenticx.runtime import AgentRuntime, AutoApproveConfirmGate, Session, sanitize
from agenticx.runtime.sanitizing import is_valid
from agenticx.settings import load_settings
from agenticx.testing import check_grammar, outline
from tests.support.timeouts import PATIENCE
from tests.support.wires.chunk_server import chunk_server
from tests.support.wires.corpus import MALFORMED_STREAMS, MalformedStream, outcome
from tests.support.wires.recorded import CHUNKINGS, Chunking, split_body
from tests.support.wires.wires import WIRES, read, refusals

ALL = [pytest.param(oddity, id=f"{oddity.wire.name}-{oddity.name}") for oddity in MALFORMED_STREAMS]


def test_each_malformed_stream_has_an_outcome_and_each_wire_has_a_folder() -> None:
    folders = sorted(Path(__file__).with_name("odd").iterdir())
    assert [folder.name for folder in folders if folder.is_dir()] == sorted(WIRES)
    for folder in folders:
        if folder.is_dir():
            stems = [file.stem for file in folder.iterdir()]
            assert {stem: stems.count(stem) for stem in stems} == dict.fromkeys(stems, 2), folder


@pytest.mark.promise("C1", "C2")
@pytest.mark.parametrize("chunking", CHUNKINGS)
@pytest.mark.parametrize("oddity", ALL)
@pytest.mark.cases(quick=100)
def test_a_malformed_stream_has_the_expected_outcome(oddity: MalformedStream, chunking: Chunking) -> None:
    assert outcome(*read(oddity.wire.parser("m"), split_body(oddity.body, chunking))) == oddity.expected


@pytest.mark.promise("C1")
@pytest.mark.anyio
@pytest.mark.parametrize("oddity", ALL)
@pytest.mark.cases(quick=30)
async def test_a_turn_with_a_malformed_stream_ends_once_and_the_session_can_continue(
    oddity: MalformedStream, tmp_path: Path
) -> None:
    """The server sends the malformed stream to every request, so also to the one with the results of its calls.

    Only calls of a complete reply run, and none whose arguments are ambiguous.
    """
    arguments_seen: list[Any] = []

    def look(at: int) -> str:
        """Look."""
        arguments_seen.append(at)
        return f"{at} is there"

    head = f"HTTP/1.1 200 OK\r\nContent-Type: {oddity.wire.content_type}\r\n".encode()
    settings = load_settings({}, environ={"AGX_HOME": str(tmp_path)})
    async with chunk_server(lambda: split_body(oddity.body, "random"), head=head) as server:
        model = oddity.wire.model(server.base_url)
        runtime = AgentRuntime(model, AutoApproveConfirmGate(), max_tool_rounds=2, settings=settings)
        session = Session(id="s")
        async with asyncio.timeout(PATIENCE):
            events = [event async for event in runtime.run_turn("hello", session, tools=[look])]
        await close_model(model)

    check_grammar(events)
    assert outline(events, detail=True)[-1].partition(":")[0] in ("final", "error")
    may_run = oddity.expected.get("stop") in ("end", "tool_calls") and "key_twice" not in oddity.name
    assert set(arguments_seen) <= ({1, 2} if may_run else set[Any]())
    history = sanitize([*session.messages, UserMessage(content="go on")])
    assert is_valid(history)
    assert refusals(history) == {}
