"""The passages of notes that a model was given in a session, numbered for its citations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agenticx.foreign_text import MATERIAL, frame_text
from agenticx.knowledge.parsing import Passage
from agenticx.tools.base import ToolState

__all__ = ["CITING", "number_passage", "numbered_passages", "shown_passage"]

CITING = "Write [^1], with the number of a passage, behind each sentence that you take from it."

_KEPT_TEXTS = 300


def number_passage(state: ToolState, vault: str, passage: Passage) -> int:
    """Return the number of a passage in the session, a new one if the model was not given it before.

    `vault` is the id of its vault. A number is never used for another passage; the texts of the latest 300 are kept.
    """
    row = {"vault": vault, "path": passage.path, "heading": passage.heading, "sha256": passage.sha256}
    for number in range(len(state.passages), 0, -1):
        known = state.passages[number - 1]
        if all(known[key] == value for key, value in row.items()):
            known |= {"line_start": passage.line_start, "line_end": passage.line_end, "text": passage.text}
            return number
    state.passages.append(row | {"line_start": passage.line_start, "line_end": passage.line_end, "text": passage.text})
    if len(state.passages) > _KEPT_TEXTS:
        state.passages[-_KEPT_TEXTS - 1]["text"] = ""
    return len(state.passages)


def numbered_passages(state: ToolState) -> dict[int, tuple[str, Passage]]:
    """Return the passages of a session by number, each with the id of its vault."""
    return {number: (row["vault"], _passage(row)) for number, row in enumerate(state.passages, start=1)}


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
    return Passage(row["path"], row["heading"], row["line_start"], row["line_end"], row["text"], row["sha256"])
