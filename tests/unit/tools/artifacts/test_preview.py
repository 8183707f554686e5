"""Live previews of `create_file`: the text only grows, and starts once the path is known and allowed."""

from __future__ import annotations

import json
from contextlib import nullcontext
from itertools import pairwise
from typing import Any

import pytest

from agenticx.errors import InvalidArguments
from agenticx.llms import GrowingArguments
from agenticx.llms.arguments import parse_arguments
from agenticx.tools.artifacts.paths import check_artifact_path, check_path_conflicts
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
    """Return the previews after each character, or after some 5,000 of a long text, and after the end."""
    arguments = GrowingArguments()
    shown: list[FilePreview | None] = []
    every = len(text) // 5_000 + 1
    for number, character in enumerate(text):
        arguments.add(character)
        if number % every == 0:
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


def test_nothing_is_shown_before_the_path_is_closed() -> None:
    path, content = '"path": "a/b.html"', '"content": "<p>"'
    assert [preview(read("{" + path[:end])) for end in range(len(path) + 1)] == [None] * (len(path) + 1)
    behind = [preview(read("{" + content + ", " + path[:end])) for end in range(len(path) + 1)]
    assert behind == [None] * len(path) + [{"path": "a/b.html", "content": "<p>"}]


def test_a_file_without_a_path_is_shown_as_index_html_once_the_call_has_ended() -> None:
    text = '{"content": "<p>"}'
    assert preview(read(text)) is None
    assert preview(read(text, ended=True)) == {"path": "index.html", "content": "<p>"}
    for other in (text[:-1], text + "{}", text[:-1] + ', "content": "b"}', '{"content": "<p>", "path": null}'):
        assert preview(read(other, ended=True)) is None


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ('{"path": "a", "content": "one", "content": "two"}', "one"),
        ('{"content": "one", "path": "a", "content": "two"}', "one"),
        ('{"path": "a", "content": "one", "path": "b"}', "one"),
        ('{"path": "a", "path": "b", "content": "one"}', None),
        ('{"path": "a", "content": "one"} and so on', "one"),
        ('{"path": "a", "content": "one\\x41"}', "one"),
        ('{"path": "a", "content": "one\\ud83d', "one"),
        ('{"path": "a", "content": "<\\/p>\\u0000\\ufeff"}', "</p>\0\ufeff"),
        ('{"path": "a", "content": ""}', None),
        ('{"path": "a", "content": ["one"]}', None),
        ('{"path": "a", "content": {"path": "b", "content": "one"}}', None),
        ('{"path": 1, "content": "one"}', None),
        ('{"path": "a\n", "content": "one"}', None),
        ('[{"path": "a", "content": "one"}]', None),
        ('"{\\"path\\": \\"a\\", \\"content\\": \\"one\\"}"', None),
    ],
)
def test_the_preview_stops_where_the_text_stops_being_json(text: str, content: str | None) -> None:
    shown = None if content is None else {"path": "a", "content": content}
    assert preview(read(text)) == preview(read(*text, "", ended=True)) == shown


REFUSED = {
    "": "is empty",
    "a" * 201: "is longer than 200 characters",
    "/etc/passwd": "is absolute",
    "C:/a": "is absolute",
    "a\\b": "has a backslash",
    "a\0": "has a control character",
    "a\n": "has a control character",
    "a\x85": "has a control character",
    "a\u202egnp.html": "has a control character",
    "a\u200f.html": "has a control character",
    "a\ud83d": "is not valid Unicode",
    "../a": "has the part '..'",
    "a/../b": "has the part '..'",
    "a/..": "has the part '..'",
    "a//b": "has a part that is empty or '.'",
    "a/": "has a part that is empty or '.'",
    "./a": "has a part that is empty or '.'",
    "what?.html": "has the character '[?]', which names of files on Windows cannot have",
    "a/b:c": "has the character ':', which names of files on Windows cannot have",
    "a./b": "has the part 'a.', whose last character Windows would drop",
    "a/b ": "has the part 'b ', whose last character Windows would drop",
    "css/Nul.tar.css": "has the part 'Nul.tar.css', which Windows reserves for a device",
    "COM¹": "has the part 'COM¹', which Windows reserves for a device",
    "con .html": "has the part 'con .html', which Windows reserves for a device",
    "a/" + 64 * "😀": "has a part that is longer than 255 bytes",
}


@pytest.mark.parametrize(("path", "reason"), REFUSED.items())
def test_a_path_that_is_refused_shows_nothing(path: str, reason: str) -> None:
    with pytest.raises(InvalidArguments, match=rf"^the path '.*' {reason}; give a relative one, such as 'index.html'$"):
        check_artifact_path(path)
    if reason != "is not valid Unicode":  # JSON has it as U+FFFD
        assert preview(read(f'{{"path": {json.dumps(path)}, "content": "one"}}')) is None


@pytest.mark.parametrize(
    "path",
    [
        "a" * 200,
        "日本/ページ😀.html",
        "..a/b..c/...d",
        "a b/.hidden",
        "👩\u200d👧.html",
        "console.html",
        "com10/nullary",
    ],
)
def test_a_relative_path_is_shown(path: str) -> None:
    check_artifact_path(path)
    assert preview(read(f'{{"path": {json.dumps(path)}, "content": "one"}}')) == {"path": path, "content": "one"}


@pytest.mark.parametrize(
    ("path", "other", "reason"),
    [
        ("a/b", "a", "'a' would be both a file and the folder of 'a/b'"),
        ("A", "a/b/c", "'A' would be both a file and the folder of 'a/b/c'"),
        ("A.html", "a.html", "is that of the file 'a.html' to systems that ignore case"),
        ("caf\u00e9", "cafe\u0301", "to systems that ignore case"),
        ("ab", "a", None),
        ("a", "a", None),
        ("Images/b.png", "images/a.png", None),
    ],
)
def test_two_paths_that_cannot_be_in_one_folder_are_refused(path: str, other: str, reason: str | None) -> None:
    with nullcontext() if reason is None else pytest.raises(InvalidArguments, match=reason):
        check_path_conflicts(path, ["x", other])
