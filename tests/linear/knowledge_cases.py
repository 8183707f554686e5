"""Rows for notes: their text and structure, queries, citations and modes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from agenticx.core import Reasoning, reasoning_of
from agenticx.core.prompt_modes import detect_mode
from agenticx.core.reasoning import add_event
from agenticx.errors import InvalidArguments
from agenticx.knowledge import Passage, UserMemory, check_citations, parse_note, passage_sha256
from agenticx.knowledge.dates import dates_meant, find_dates
from agenticx.knowledge.memory import check_room, checked_text, search_entries, unknown_entry
from agenticx.knowledge.parsing import CodeLines, NoteText, code_lines, note_lines
from agenticx.knowledge.vault import decode_note, skip_reason
from agenticx.knowledge.words import find_tags, fold_case, index_text, match_key, query_words, tag_key, without_tags
from agenticx.runtime import EventType
from agenticx.runtime.events import EVENT_CLASSES
from tests.linear.case import LinearCase
from tests.linear.texts import TEXTS

__all__ = ["KNOWLEDGE_CASES"]

_PIECES = {
    "headings": "# h\n\n",
    "nested lists": "- a\n  - b\n",
    "quotations": "> a\nb\n",
    "fences": "```\na\n",
    "reference definitions": "[a]: b 'x\n",
    "links": "[[a|b]] ![[c]] [d](e.md) ",
    "half links": "[[a![[b](",
    "tags": "#a/b #1 ",
    "colours": "#fff #ff00aa {#a ](#b <a #c ://#d ",
    "open targets": "[a](<b ](c [d]: <e",
    "frontmatter": "a: [b]\n",
    "markers": "It cost 120 EUR [^1]. ",
    "markers without ends": "120 [^1] ",
    "quoted numbers": '"1.2" “3,4” `5` 2024-03-11 7:30 ',
    "open quotations": "“a „b «c ",
    "digits": "1,234.5",
    "dates in words": "Am 11. März 2024, on May 5 ",
    "days": "11 to ",
    "months": "March ",
    "items": "1. foo\n",
    "small digits": "1²½",
    "quoted markers": "“a [^1] b” ",
    "quoted lines of markers": "> a [^1][^1][^1]\n",
    "apostrophes": "'a b' ",
    "pairs": "日本語",
}
_NOTES = {
    **TEXTS,
    **{name: (lambda size, piece=piece: piece * (size // len(piece) + 1)) for name, piece in _PIECES.items()},
}
_PASSAGE = Passage("a.md", "A", 1, 1, "It cost 120 EUR.", passage_sha256("It cost 120 EUR."))


def _parsed(text: str) -> object:
    return parse_note("a.md", f"---\n{text[: len(text) // 2]}\n---\n{text}" if text.startswith("a:") else text)


def _cited(text: str) -> object:
    passage = Passage("a.md", "A", 1, text.count("\n") + 1, text, passage_sha256(text))
    return check_citations(text[:4_000], {1: passage}, lambda _: text), check_citations(
        text, {1: _PASSAGE}, lambda _: text
    )


def _placed(text: str) -> object:
    middle = text[len(text) // 3 : len(text) // 2]
    passage = Passage("a.md", "A", 1, middle.count("\n") + 1, middle, passage_sha256(middle))
    note = NoteText(text)
    return note.find(passage), note.restore(replace(passage, text=middle[:100], sha256=""))


def _reasoned(text: str) -> object:
    rows: list[tuple[EventType, dict[str, Any]]] = [
        (EventType.TURN_STARTED, {}),
        *((EventType.THINKING, {"text": text[at : at + 50]}) for at in range(0, len(text), 50)),
        (EventType.TOOL_CALL, {"tool_call_id": "c", "name": "note_search", "arguments": {"query": text}}),
        (
            EventType.TOOL_RESULT,
            {"tool_call_id": "c", "name": "note_search", "result": text, "is_error": False, "outcome": "ok"},
        ),
    ]
    return reasoning_of((EVENT_CLASSES[type_](type_, data, "meta", "turn_a"), 0.0) for type_, data in rows)


def _remembered(text: str) -> object:
    with suppress(InvalidArguments):
        checked_text(text)
    return UserMemory(Path(__file__).parent).search(text)


def _skipped(text: str) -> object:
    return skip_reason(Path(__file__).parent, f"{'a/' * 150}{text}.md"), skip_reason(
        Path(__file__).parent, f"{text}.md"
    )


KNOWLEDGE_CASES: list[LinearCase] = [
    LinearCase(
        of=decode_note, run=lambda text: decode_note(text.encode("utf-8", "replace")), inputs=_NOTES, where="thread"
    ),
    LinearCase(of=skip_reason, run=_skipped, inputs=_NOTES, where="thread"),
    LinearCase(of=parse_note, run=_parsed, inputs=_NOTES, where="thread", also=(note_lines, passage_sha256, CodeLines)),
    LinearCase(of=find_dates, run=find_dates, inputs=_NOTES, where="thread"),
    LinearCase(of=dates_meant, run=dates_meant, inputs=_NOTES, where="thread"),
    LinearCase(of=NoteText, run=_placed, inputs=_NOTES, where="thread"),
    LinearCase(of=check_citations, run=_cited, inputs=_NOTES, where="thread", also=(code_lines,)),
    LinearCase(of=index_text, run=index_text, inputs=_NOTES, where="thread"),
    LinearCase(
        of=find_tags,
        run=lambda text: (find_tags(text), without_tags(text)),
        inputs=_NOTES,
        where="thread",
        also=(without_tags,),
    ),
    LinearCase(of=query_words, run=query_words, inputs=_NOTES, where="thread"),
    LinearCase(
        of=checked_text,
        run=_remembered,
        inputs=_NOTES,
        where="thread",
        also=(UserMemory, search_entries, check_room, unknown_entry),
    ),
    LinearCase(of=tag_key, run=tag_key, inputs=_NOTES, where="thread"),
    LinearCase(of=fold_case, run=fold_case, inputs=_NOTES, where="thread"),
    LinearCase(of=match_key, run=match_key, inputs=_NOTES, where="thread"),
    LinearCase(of=add_event, run=_reasoned, inputs=_NOTES, where="thread", also=(reasoning_of, Reasoning)),
    LinearCase(
        of=detect_mode,
        run=lambda text: detect_mode(text, vaults=True, tools=["bash_exec"]),
        inputs=_NOTES,
        where="thread",
    ),
]
