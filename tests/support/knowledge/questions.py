"""The questions of the public vaults, answered by search: shares of those that are answered."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agenticx.knowledge import VaultIndex, search_notes
from tests.support.knowledge.data import knowledge_folder, knowledge_rows

__all__ = ["Shares", "answer_questions"]

_PASSAGES = 5


@dataclass(frozen=True)
class Shares:
    """The shares of answerable questions for which the first five passages have a gold line, or are of its note.

    `languages` is the share of gold lines for the questions in other languages than English; `by_group` counts all
    questions, gold lines and notes by vault or language.
    """

    span: float
    note: float
    languages: float
    by_group: dict[str, tuple[int, int, int]]


def answer_questions(folder: Path) -> Shares:
    """Index the vaults below `folder`, search for each question and return the shares."""
    indexes: dict[str, VaultIndex] = {}
    asked, spans, notes = Counter[str](), Counter[str](), Counter[str]()
    for row in knowledge_rows("vault_questions.jsonl"):
        if not row["gold"]:
            continue
        vault = row["vault"]
        if vault not in indexes:
            indexes[vault] = VaultIndex(knowledge_folder() / "vaults" / vault, folder / f"{vault}.db")
            indexes[vault].refresh()
        passages = [result.passage for result in search_notes(indexes[vault], row["question"], limit=_PASSAGES)]
        group = row["gold"][0]["path"][:2] if row["kind"] == "lang" else vault
        asked[group] += 1
        spans[group] += any(_holds(passage, gold) for passage in passages for gold in row["gold"])
        notes[group] += any(passage.path == gold["path"] for passage in passages for gold in row["gold"])
    others = [group for group in asked if len(group) == 2]
    return Shares(
        spans.total() / asked.total(),
        notes.total() / asked.total(),
        sum(spans[group] for group in others) / sum(asked[group] for group in others),
        {group: (asked[group], spans[group], notes[group]) for group in asked},
    )


def _holds(passage: Any, gold: dict[str, Any]) -> bool:
    return (
        passage.path == gold["path"]
        and passage.line_start <= gold["line_end"]
        and passage.line_end >= gold["line_start"]
    )
