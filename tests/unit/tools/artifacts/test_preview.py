"""Live previews of `create_file`: the text only grows, and starts once the path is known and allowed."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from agenticx.llms import GrowingArguments
from agenticx.llms.arguments import parse_arguments
from agenticx.tools.artifacts.preview import FilePreview, preview
from tests.support.knowledge.data import knowledge_rows

Row = dict[str, Any]


def read(*pieces: str, ended: bool = False) -> GrowingArguments:
    arguments = GrowingArguments()
    for piece in pieces:
        arguments.add(piece)
    if ended:
        arguments.end()
    return arguments


def shown_while_read(text: str) -> list[FilePreview | None]:
    """Return the previews after each character, and after the end."""
    arguments = GrowingArguments()
    shown: list[FilePreview | None] = []
    for character in text:
        arguments.add(character)
        shown.append(preview(arguments))
    arguments.end()
    return [*shown, preview(arguments)]


def marks_of(row: Row, arguments: GrowingArguments, after: int) -> dict[str, Any]:
    """Return what a mark of a row says: the closed path, and how many characters are received and shown."""
    content, shown = arguments.get("content"), preview(arguments) if row["tool"] == "create_file" else None
    return {
        "after": after,
        "path": arguments.get("path") if arguments.open_key != "path" else None,
        "content": len(content) if isinstance(content, str) else None,
        "shown": None if shown is None else len(shown["content"]),
    }


def test_every_stream_shows_what_is_expected_at_every_mark() -> None:
    rows = knowledge_rows("argument_streams.jsonl")
    assert len(rows) >= 28
    for row in rows:
        arguments, found = GrowingArguments(), list[dict[str, Any]]()
        for number, delta in enumerate(row["deltas"], 1):
            arguments.add(delta)
            found.append(marks_of(row, arguments, number))
        marks = {mark["after"]: mark for mark in row["expect"]}
        assert {mark["after"]: mark for mark in found if mark["after"] in marks} == marks, row["name"]
        assert_ends_as_expected(row, arguments)


def test_every_stream_in_single_characters_and_in_one_piece_ends_the_same_way() -> None:
    for row in knowledge_rows("argument_streams.jsonl"):
        text = "".join(row["deltas"])
        for arguments in (read(text), read(*text)):
            assert marks_of(row, arguments, len(row["deltas"])) == row["expect"][-1]
            assert_ends_as_expected(row, arguments)
        shown = [each for each in shown_while_read(text) if each is not None]
        for earlier, later in pairwise(shown):
            assert later["path"] == earlier["path"]
            assert later["content"].startswith(earlier["content"])
        assert (shown[-1] if shown else None) == preview(read(text, ended=True))


def assert_ends_as_expected(row: Row, arguments: GrowingArguments) -> None:
    arguments.end()
    if row["final"] is not None:
        assert row["final"] == dict(arguments) == parse_arguments("".join(row["deltas"]))
    assert arguments.is_complete == (row["final"] is not None)
    assert arguments.is_broken == (row["ends"] == "invalid")
    shown = preview(arguments) if row["tool"] == "create_file" else None
    if shown is not None and row["ends"] != "invalid":
        assert shown["content"] == row["content"]
    if shown is not None:
        assert row["content"].startswith(shown["content"])
