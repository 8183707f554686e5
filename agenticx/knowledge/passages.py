"""The passages, of notes or of pages, that a model was given in a session, by number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agenticx.foreign_text import MATERIAL, frame_text, one_line
from agenticx.knowledge.parsing import Passage, note_lines, passage_sha256
from agenticx.tools.base import ToolState

__all__ = [
    "CITING",
    "given_number",
    "number_passage",
    "number_url_passage",
    "numbered_passages",
    "outdated_line",
    "outdated_numbers",
    "shown_passage",
]

CITING = "Write [^1], with the number of a passage, behind each sentence that you take from it."

_KEPT_TEXTS = 300


def number_passage(state: ToolState, vault: str, passage: Passage) -> int:
    """Return the number of a passage in the session, a new one if the model was not given it before.

    `vault` is the id of its vault. A number is never used for another passage; the texts of the latest 300 are kept.
    """
    return _number(state, {"vault": vault, "path": passage.path}, passage)


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
    row = {**place, "heading": passage.heading, "sha256": passage.sha256}
    for number in range(len(state.passages), 0, -1):
        known = state.passages[number - 1]
        if all(known.get(key) == value for key, value in row.items()):
            known.pop("outdated", None)  # the note has it again
            known |= {"line_start": passage.line_start, "line_end": passage.line_end, "text": passage.text}
            return number
    state.passages.append(row | {"line_start": passage.line_start, "line_end": passage.line_end, "text": passage.text})
    if len(state.passages) > _KEPT_TEXTS:
        state.passages[-_KEPT_TEXTS - 1]["text"] = ""
    return len(state.passages)


def numbered_passages(state: ToolState) -> dict[int, tuple[str | None, Passage]]:
    """Return the passages of a session by number, each with the id of its vault; None if its path is a URL."""
    return {number: (row.get("vault"), _passage(row)) for number, row in enumerate(state.passages, start=1)}


def outdated_numbers(state: ToolState, vault: str, path: str, text: str | None) -> list[int]:
    """Return the numbers of the passages of a note that its `text` no longer has, each only once in a session.

    `text` is None for a note that is gone.
    """
    plain = "" if text is None else "\n".join(note_lines(text))
    numbers: list[int] = []
    for number, row in enumerate(state.passages, start=1):
        is_known = row.get("vault") == vault and row.get("path") == path and row["text"] and not row.get("outdated")
        if is_known and row["text"] not in plain:
            row["outdated"] = True
            numbers.append(number)
    return numbers


def outdated_line(numbers: Sequence[int], path: str, *, is_gone: bool = False) -> str:
    """Return a sentence for the model that names passages whose note has changed or is gone."""
    names = ", ".join(f"passage {number}" for number in numbers)
    return f"Outdated: {names}; {one_line(path)} {'is gone' if is_gone else 'has changed'}."


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
        row.get("url") or row["path"], row["heading"], row["line_start"], row["line_end"], row["text"], row["sha256"]
    )
