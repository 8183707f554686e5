"""The cases of the data about files, run as turns: what is shown, and what is stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Any

import pytest

from agenticx import builtin_tools
from agenticx.llms import Delta, Finished, ModelRequest, TextDelta, ToolCallDelta
from agenticx.runtime import RuntimeEvent
from agenticx.testing import call, say
from tests.support.knowledge.data import knowledge_rows
from tests.support.turn_player import PlayedTurn, Player

pytestmark = pytest.mark.anyio

FILE_TOOLS = [tool for tool in builtin_tools() if tool.schema.name in ("create_file", "edit_file")]
Row = dict[str, Any]


class CreatingModel:
    """A model that calls `create_file` with arguments in pieces, which are `pause` seconds apart, and then answers.

    `shown` is the text of the previews so far, and `marks` the path and the text that were shown after each piece.
    """

    name = "creating"
    context_window = None

    def __init__(self, pieces: Iterable[str], pause: float) -> None:
        self.pieces, self.pause = list(pieces), pause
        self.path: str | None = None
        self.shown = ""
        self.marks: list[tuple[str | None, str]] = []

    def see(self, event: RuntimeEvent) -> None:
        if event.type == "artifact" and not event.data["final"]:
            assert (event.data["path"], event.data["offset"]) == (self.path or event.data["path"], len(self.shown))
            self.path, self.shown = event.data["path"], self.shown + event.data["delta"]

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[Delta], None]:
        if request.messages[-1].role == "tool":
            yield [TextDelta("Done."), Finished("end", "stop")]
            return
        yield [ToolCallDelta(0, "call_1", "create_file")]
        for piece in self.pieces:
            yield [ToolCallDelta(0, arguments=piece)]
            if self.pause:
                await asyncio.sleep(self.pause)
            self.marks.append((self.path, self.shown))
        yield [Finished("tool_calls", "tool_calls")]


async def create(play: Player, pieces: Iterable[str], pause: float = 0.0) -> tuple[PlayedTurn, CreatingModel]:
    model = CreatingModel(pieces, pause)
    return await play(model, tools=FILE_TOOLS, on=model.see), model


def created_rows() -> list[Row]:
    rows = [row for row in knowledge_rows("argument_streams.jsonl") if row["tool"] == "create_file"]
    assert len(rows) >= 26
    return rows


def stored_texts(turn: PlayedTurn) -> dict[str, str]:
    artifacts = turn.session.artifacts
    return {file.path: (artifacts.contents.read(file.sha256) or b"").decode() for file in artifacts.listed()}


def assert_stored_as_told(turn: PlayedTurn, model: CreatingModel, row: Row) -> None:
    """Assert that what was shown in the end is all that may be, and is stored or said to be dropped."""
    last = [event.data for event in turn.events_of("artifact") if event.data["final"]]
    ((_, outcome, _),) = turn.results
    if outcome == "ok":
        assert stored_texts(turn) == {model.path: model.shown} == {last[0]["path"]: row["final"]["content"]}
        assert model.shown == row["content"]
    else:
        assert stored_texts(turn) == {}
        assert [data.get("dropped") for data in last] == [True] * bool(model.shown)
        assert (row["content"] or "").startswith(model.shown)
    fits = row["final"] is not None and row["final"].keys() <= {"path", "content"}
    assert (outcome == "ok") == (fits and bool(model.shown.strip())), row["name"]


@pytest.mark.ci_lane
async def test_every_stream_is_shown_at_every_mark_and_stored_or_dropped(play: Player) -> None:
    for row in created_rows():
        turn, model = await create(play, row["deltas"], 0.11)
        for mark in row["expect"]:
            path, shown = model.marks[mark["after"] - 1]
            assert shown == (row["content"] or "")[: mark["shown"] or 0], (row["name"], mark)
            assert not shown or path == mark["path"]
        assert_stored_as_told(turn, model, row)


@pytest.mark.parametrize("in_one_piece", [True, False])
@pytest.mark.ci_lane
async def test_every_stream_in_single_characters_and_in_one_piece_is_stored_the_same_way(
    play: Player, in_one_piece: bool
) -> None:
    for row in created_rows():
        text = "".join(row["deltas"])
        turn, model = await create(play, [text] if in_one_piece else text)
        assert_stored_as_told(turn, model, row)
        previews = [event for event in turn.events_of("artifact") if not event.data["final"]]
        assert len(previews) == bool(model.shown)


async def test_every_edit_changes_the_file_or_leaves_it_as_it_was(play: Player) -> None:
    for row in knowledge_rows("edit_cases.jsonl"):
        turn = await play(
            [call("create_file", {"content": row["before"]}), call("edit_file", row["arguments"]), "Done."],
            tools=FILE_TOOLS,
        )
        outcome = turn.results[-1][1]
        assert (outcome == "ok") == (row["error"] is None), row["name"]
        assert stored_texts(turn) == {"index.html": row["after"] or row["before"]}, row["name"]
        assert len([event for event in turn.events_of("artifact") if event.data["final"]]) == 1 + (outcome == "ok")


@pytest.mark.parametrize("in_one_piece", [True, False])
async def test_the_page_of_every_reply_becomes_a_file_before_the_turn_is_done(play: Player, in_one_piece: bool) -> None:
    for row in knowledge_rows("html_extraction.jsonl"):
        turn = await play([say(row["text"], pieces=1 if in_one_piece else max(1, len(row["text"])))], tools=FILE_TOOLS)
        texts = [event.data["content"] for event in turn.events_of("artifact")]
        assert texts == [*stored_texts(turn).values()] == ([] if row["html"] is None else [row["html"]]), row["name"]


@pytest.mark.parametrize(
    ("path", "kept_as"),
    [
        ("about.html", "about.html"),
        ("./index.html", "index.html"),
        ("/index.html", "index.html"),
        ("../a.html", "index.html"),
        ("site\\a.html", "index.html"),
    ],
)
async def test_a_page_in_a_wrapper_has_its_path_if_a_file_may_have_it(play: Player, path: str, kept_as: str) -> None:
    page = "<!doctype html>\n<html>\n<p>Rye\n</html>"
    turn = await play([f'<file path="{path}">\n{page}\n</file>'], tools=FILE_TOOLS)
    assert stored_texts(turn) == {kept_as: page}
    assert turn.outline == ["turn_started", "round_start", "token", "artifact", "final:answer"]
