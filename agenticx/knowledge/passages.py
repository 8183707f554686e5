"""The passages, of notes or of pages, that a model was given in a session, by number."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agenticx.knowledge.parsing import NoteText, Passage, note_lines, passage_sha256
from agenticx.tools.context import ToolState
from agenticx.untrusted_text import MATERIAL, frame_text, one_line

__all__ = [
    "CITING",
    "NumberedPassage",
    "given_number",
    "number_passage",
    "number_url_passage",
    "numbered_passages",
    "outdated_line",
    "outdated_numbers",
    "shown_numbers",
    "shown_passage",
]

CITING = "Write [^1], with the number of a passage, behind each sentence that you take from it."

_KEPT_TEXTS = 300
_SHOWN = re.compile(r"^\[passage (\d{1,9}): ", re.MULTILINE)
_BEGINNING_CHARS = 240
_EMPTY_SHA256 = passage_sha256("")


@dataclass(frozen=True, slots=True)
class NumberedPassage:
    """A passage that a model was given, with the id and the name of its vault; None if its path is a URL.

    A passage that is not `whole` has only the beginning of its text; its hash may find it in its note.
    """

    passage: Passage
    vault: str | None
    vault_name: str | None
    whole: bool


def number_passage(state: ToolState, vault: str, passage: Passage, *, vault_name: str | None = None) -> int:
    """Return the number of a passage in the session, a new one if the model was not given it before.

    `vault` is the id of its vault. A number is never used for another passage. The texts of 300 passages are kept, of
    others only the beginning.
    """
    number = _number(state, {"vault": vault, "path": passage.path}, passage)
    if vault_name is not None:
        state.passages[number - 1]["vault_name"] = vault_name
    return number


def given_number(state: ToolState, vault: str, passage: Passage) -> int | None:
    """Return the number that a passage has in the session, None if the model was not given it before."""
    wanted = {"vault": vault, "path": passage.path, "heading": passage.heading, "sha256": passage.sha256}
    numbers = range(len(state.passages), 0, -1)
    return next((number for number in numbers if wanted.items() <= state.passages[number - 1].items()), None)


def number_url_passage(state: ToolState, url: str, text: str, *, heading: str | None = None) -> tuple[int, Passage]:
    """Return the number in the session of a passage that stands at `url`, and the passage, for `shown_passage`.

    For tools that read from elsewhere than a vault. Its citations name the URL, and are compared with `text`.
    """
    lines = note_lines(text.rstrip())
    text = "\n".join(lines)
    passage = Passage(url, heading, 1, len(lines), text, passage_sha256(text))
    return _number(state, {"url": url}, passage), passage


def _number(state: ToolState, place: Mapping[str, Any], passage: Passage) -> int:
    key = {**place, "heading": passage.heading, "sha256": passage.sha256}
    content: dict[str, Any] = {"line_start": passage.line_start, "line_end": passage.line_end, "text": passage.text}
    if passage.column > 1:
        content["column"] = passage.column
    for number in range(len(state.passages), 0, -1):
        row = state.passages[number - 1]
        if all(row.get(name) == value for name, value in key.items()):
            row.pop("outdated", None)  # the note has it again
            row.pop("beginning", None)
            row.pop("column", None)
            row |= content
            break
    else:
        row = key | content
        state.passages.append(row)
        number = len(state.passages)
    _drop_texts(state.passages, row)
    return number


def _drop_texts(rows: Sequence[dict[str, Any]], latest: Mapping[str, Any]) -> None:
    """Keep of the first passages only the beginning, until 300 have their text; the `latest` keeps it."""
    whole = [row for row in rows if row["text"]]
    for row in whole[: max(0, len(whole) - _KEPT_TEXTS)]:
        if row is not latest:
            row |= {"beginning": row["text"][:_BEGINNING_CHARS], "text": ""}


def numbered_passages(state: ToolState) -> dict[int, NumberedPassage]:
    """Return the passages of a session by number."""
    return {
        number: NumberedPassage(
            passage=_passage(row),
            vault=row.get("vault"),
            vault_name=row.get("vault_name"),
            whole=row["text"] != "" or row["sha256"] == _EMPTY_SHA256,
        )
        for number, row in enumerate(state.passages, start=1)
    }


def outdated_numbers(state: ToolState, vault: str, path: str, text: str | None) -> list[int]:
    """Return the numbers of the passages of a note that its `text` no longer has, each only once in a session.

    `text` is None for a note that is gone.
    """
    note = None if text is None else NoteText(text)
    numbers: list[int] = []
    for number, row in enumerate(state.passages, start=1):
        is_known = row.get("vault") == vault and row.get("path") == path and not row.get("outdated")
        if is_known and (note is None or not _stands_in(row, note)):
            row["outdated"] = True
            numbers.append(number)
    return numbers


def _stands_in(row: Mapping[str, Any], note: NoteText) -> bool:
    passage = _passage(row)
    return (note.restore(passage) if "beginning" in row else note.find(passage)) is not None


def outdated_line(numbers: Sequence[int], path: str, *, is_gone: bool = False) -> str:
    """Return a sentence for the model that names passages whose note has changed or is gone."""
    names = ", ".join(f"passage {number}" for number in numbers)
    return f"Outdated: {names}; {one_line(path)} {'is gone' if is_gone else 'has changed'}."


def shown_numbers(text: str) -> Iterator[int]:
    """Yield the numbers of the passages that a text shows, as `shown_passage` returns them."""
    return map(int, _SHOWN.findall(text))


def shown_passage(number: int, passage: Passage, vault_name: str | None = None) -> str:
    """Return a passage as a model reads it: framed, with its number, place and heading."""
    place = passage.path if vault_name is None else f"{vault_name}: {passage.path}"
    heading = f", {passage.heading}" if passage.heading else ""
    lines = (
        f"line {passage.line_start}"
        if passage.line_start == passage.line_end
        else (f"lines {passage.line_start}-{passage.line_end}")
    )
    return frame_text(f"passage {number}: {place}{heading}, {lines}", passage.text, MATERIAL)


def _passage(row: Mapping[str, Any]) -> Passage:
    return Passage(
        path=row.get("url") or row["path"],
        heading=row["heading"],
        line_start=row["line_start"],
        line_end=row["line_end"],
        text=row["text"] or row.get("beginning", ""),
        sha256=row["sha256"],
        column=row.get("column", 1),
    )
