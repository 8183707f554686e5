"""Tests of recorded streams through each wire's parser, without a network."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.wires.recorded import CHUNKINGS, Chunking, Recording, outcome, recordings, split_body
from tests.support.wires.replies import deltas_of, parse_reply
from tests.support.wires.wires import WIRES, WireUnderTest

ALL: list[Any] = [
    pytest.param(wire, *param.values, marks=param.marks, id=f"{wire.name}-{param.id}")
    for wire in WIRES.values()
    if wire.streams
    for param in recordings(wire.streams)
]


@pytest.mark.promise("C2")
@pytest.mark.parametrize("chunking", CHUNKINGS)
@pytest.mark.parametrize(("wire", "recording"), ALL)
@pytest.mark.cases(quick=30)
def test_a_recorded_stream_becomes_the_expected_reply(
    wire: WireUnderTest, recording: Recording, chunking: Chunking
) -> None:
    actual = outcome(*parse_reply(wire.parser("m"), split_body(recording.body, chunking)))
    assert actual == recording.closest_outcome(actual)


@pytest.mark.promise("C2")
@pytest.mark.parametrize(("wire", "recording"), ALL)
@pytest.mark.cases(quick=4)
def test_chunking_of_a_recorded_stream_makes_no_difference(wire: WireUnderTest, recording: Recording) -> None:
    replies = [repr(parse_reply(wire.parser("m"), split_body(recording.body, chunking))) for chunking in CHUNKINGS]
    assert replies == [replies[0]] * len(CHUNKINGS)


@pytest.mark.parametrize(("wire", "recording"), ALL)
@pytest.mark.cases(quick=10)
def test_a_parser_that_is_done_returns_nothing_at_the_end(wire: WireUnderTest, recording: Recording) -> None:
    parser = wire.parser("m")
    list(deltas_of(parser, [recording.body]))
    assert parser.end() == []
