"""What every wire's parser makes of the recorded streams, without a network."""

from __future__ import annotations

from typing import Any

import pytest

from tests.llms.recorded import CHUNKINGS, Chunking, Recording, outcome, pieces, recordings
from tests.llms.replies import deltas_of, read_with
from tests.wires.wires import WIRES, Wire

ALL: list[Any] = [
    pytest.param(wire, *param.values, marks=param.marks, id=f"{wire.name}-{param.id}")
    for wire in WIRES.values()
    if wire.streams
    for param in recordings(wire.streams)
]


@pytest.mark.promise("C2")
@pytest.mark.parametrize("chunking", CHUNKINGS)
@pytest.mark.parametrize(("wire", "recording"), ALL)
@pytest.mark.cases(quick=60)
def test_a_recorded_stream_becomes_the_expected_reply(wire: Wire, recording: Recording, chunking: Chunking) -> None:
    said = outcome(*read_with(wire.parser("m"), pieces(recording.body, chunking)))
    assert said == recording.judge(said)


@pytest.mark.promise("C2")
@pytest.mark.parametrize(("wire", "recording"), ALL)
@pytest.mark.cases(quick=20)
def test_the_pieces_that_bytes_come_in_change_nothing(wire: Wire, recording: Recording) -> None:
    replies = [repr(read_with(wire.parser("m"), pieces(recording.body, chunking))) for chunking in CHUNKINGS]
    assert replies == [replies[0]] * len(CHUNKINGS)


@pytest.mark.parametrize(("wire", "recording"), ALL)
@pytest.mark.cases(quick=20)
def test_a_parser_that_has_ended_has_nothing_more_to_say(wire: Wire, recording: Recording) -> None:
    parser = wire.parser("m")
    list(deltas_of(parser, [recording.body]))
    assert parser.end() == []
