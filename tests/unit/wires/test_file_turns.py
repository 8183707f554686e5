"""Turns that make a file over each wire: the order of their events, and the requests that continue."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agenticx import builtin_tools
from agenticx.testing import outline
from tests.support.turn_player import PlayedTurn, Player
from tests.support.wires.file_replies import FILE_WIRES, FileCall, FileWire, pieces_of
from tests.support.wires.wires import WIRES

pytestmark = pytest.mark.anyio

PAGE, CHANGED = "<h1>Rye 🍞</h1>", "<h1>Spelt 🍞</h1>"
CREATE = FileCall("call_create", "create_file", {"path": "index.html", "content": PAGE})
EDIT = FileCall("call_edit", "edit_file", {"path": "index.html", "old_text": "Rye", "new_text": "Spelt"})
FILE_TOOLS = [tool for tool in builtin_tools() if tool.schema.name in ("create_file", "edit_file")]


async def play_file_turn(wire: FileWire, folder: Path) -> tuple[PlayedTurn, list[dict[str, Any]]]:
    """Play a turn that makes a file, changes it and answers; return it, and the bodies of its requests.

    The pieces of the first call are further apart than two previews have to be.
    """
    replies = iter([wire.reply(CREATE).chunks, [b"".join(wire.reply(EDIT).chunks)], [wire.answer("Done.")]])
    workspace = folder / "workspace"
    workspace.mkdir()
    async with wire.serve(lambda: next(replies), seconds_between=0.2) as server:
        model = wire.model(server.base_url)
        turn = await Player(folder / "home", workspace)(model, tools=FILE_TOOLS, user="a page")
        await model.aclose()
        return turn, [json.loads(sent.partition(b"\r\n\r\n")[2], object_hook=uncached) for sent in server.requests]


def uncached(fields: dict[str, Any]) -> dict[str, Any]:
    """Return an object of a request without the mark that the provider may cache the text up to it."""
    return {name: value for name, value in fields.items() if name != "cache_control"}


@pytest.mark.cases(quick=6)
@pytest.mark.parametrize("wire", FILE_WIRES, ids=lambda wire: wire.name)
async def test_a_file_is_shown_while_it_is_written_and_the_next_request_has_the_call(
    wire: FileWire, tmp_path: Path
) -> None:
    turn, bodies = await play_file_turn(wire, tmp_path)
    replied = ["state:planning", "thinking", "state:responding", "token"]
    shown = pieces_of(PAGE) if wire.streams_arguments else [PAGE]
    assert outline(turn.events, state=True, usage=True, detail=True) == [
        *("turn_started", "round_start", *replied, *["tool_call_delta", "artifact"] * len(shown)),
        *("usage", "state:executing", "tool_call:create_file", "artifact", "tool_result:ok", "state:observing"),
        *("round_start", *replied, "tool_call_delta"),
        *("usage", "state:executing", "tool_call:edit_file", "artifact", "tool_result:ok", "state:observing"),
        *("round_start", "state:planning", "state:responding", "token", "usage", "state:done", "final:answer"),
    ]
    artifacts = [event.data for event in turn.events_of("artifact")]
    assert [(data["offset"], data["delta"]) for data in artifacts[:-2]] == list(zip((0, 5, 10), shown, strict=False))
    assert [(data["tool_call_id"], data["final"], data["revision"]) for data in artifacts] == [
        *[(CREATE.id, False, 1)] * len(shown),
        *((CREATE.id, True, 1), (EDIT.id, True, 2)),
    ]
    assert ("content" not in artifacts[-2], artifacts[-1]["content"]) == (True, CHANGED)

    (created, _, created_text), (edited, _, edited_text) = turn.results
    assert (created, edited) == (CREATE.id, EDIT.id)
    first, second, third = bodies
    assert second[wire.rows] == [*first[wire.rows], *wire.call_rows(CREATE, created_text)]
    assert third[wire.rows] == [*second[wire.rows], *wire.call_rows(EDIT, edited_text)]
    assert [WIRES[wire.wire].violations(body) for body in bodies] == [[], [], []]
