"""Citations: each marker compared with its passage, by numbers, dates, quotations and code."""

from __future__ import annotations

from typing import Any

import pytest

from agenticx.knowledge.citations import CheckedCitation, check_citations
from agenticx.knowledge.parsing import Passage, passage_sha256
from tests.support.knowledge.data import knowledge_rows

TEXT = (
    "## Service\nLast serviced on 2024-03-11 by Nordwarm, 120 EUR.\nPressure should stay **between 1.2 and 1.8 bar**.\n"
    "Run `reset --hard` never; 40,000 km, 7:30, version 2.4.1, -5 °C."
)
PASSAGE = Passage("Boiler.md", "Service", 3, 6, TEXT, passage_sha256(TEXT))
NOTE = f"# Boiler\n\n{TEXT}\n"


def statuses(reply: str, note: str | None = NOTE) -> list[tuple[int, str]]:
    return [(cited.marker, cited.status) for cited in check_citations(reply, {1: PASSAGE}, {"Boiler.md": note}.get)]


def test_every_case_has_the_expected_citations() -> None:
    data: Any = knowledge_rows("citation_passages.json")
    passages = {
        int(number): Passage(**fields, sha256=passage_sha256(fields["text"]))
        for number, fields in data["passages"].items()
    }
    for case in knowledge_rows("citation_cases.jsonl"):
        checked = check_citations(case["reply"], passages, {**data["files"], **case["files_now"]}.get)
        found = [{"marker": cited.marker, "status": cited.status} for cited in checked]
        assert found == case["expect"], (case["name"], case["reply"])


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        ("It cost 120 EUR.[^1]", "verified"),
        ("It cost 120 EUR. [^1] Then it went on.", "verified"),
        ("On 2024-03-12, Dr. Smith came [^1].", "unsupported"),
        ("Serviced on 11.03.2024 [^1].", "verified"),
        ("Serviced on 2024-11-03 [^1].", "unsupported"),
        ("Keep it at 1.2–1.8 bar [^1].", "verified"),
        ("After 40.000 km [^1].", "verified"),
        ("After 40 000 km [^1].", "verified"),
        ("After 40 km [^1].", "unsupported"),
        ("Version v2.4.1 [^1].", "verified"),
        ("Version 2.4 [^1].", "unsupported"),
        ("At 07:30 [^1].", "verified"),
        ("At -5 °C [^1].", "verified"),
        ("At 5 °C [^1].", "unsupported"),
        ("It says “between 1.2 and 1.8 bar.” [^1]", "verified"),
        ("It says „between 1.2 … 1.8 bar“ [^1].", "verified"),
        ('It says "between 1.2 or 1.8 bar" [^1].', "unsupported"),
        ("Run `set --hard` [^1].", "unsupported"),
        ("| 120 EUR [^1] | 500 EUR |", "verified"),
        ("It says “Run `reset --hard` never” [^1].", "verified"),
        ("2. Nordwarm came [^1].", "located"),
        ("See Q3 and x86 [^1].", "located"),
        ("> It cost\n> 120 EUR [^1].", "verified"),
    ],
)
def test_what_can_be_checked_decides(reply: str, status: str) -> None:
    assert statuses(reply) == [(1, status)]


@pytest.mark.parametrize(
    "reply",
    ["`[^1]`", "```\n[^1]\n```", "[^1]: 120 EUR\n    [^1] more", "\\[^1]", "[^2]", "[^note]", "[^01234567890]", ""],
)
def test_what_is_no_marker_of_a_passage_makes_no_citation(reply: str) -> None:
    assert statuses(reply) == []


def test_a_moved_passage_keeps_its_status_and_has_its_new_lines_and_a_changed_one_those_of_retrieval() -> None:
    reply = "It cost 120 EUR [^1]."
    (moved,) = check_citations(reply, {1: PASSAGE}, lambda _: f"# Boiler\r\n\r\nnew\r\n\r\n{TEXT}")
    (changed,) = check_citations(reply, {1: PASSAGE}, lambda _: NOTE.replace("120", "130"))

    quote = "Last serviced on 2024-03-11 by Nordwarm, 120 EUR."
    assert moved == CheckedCitation(1, "verified", quote, "Boiler.md", "Service", 5, 8, PASSAGE.sha256)
    assert changed == CheckedCitation(1, "changed", quote, "Boiler.md", "Service", 3, 6, PASSAGE.sha256)
    assert statuses(reply, None) == [(1, "changed")]
