"""The figures that notes must reach: questions answered by search, modes of prompts, and citations.

`python -m tests.support.knowledge.bars` prints them, questions by vault and language.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from pathlib import Path

from agenticx.core.prompt_modes import detect_mode
from agenticx.knowledge import Passage, check_citations, passage_sha256
from tests.support.knowledge.data import knowledge_folder, knowledge_rows
from tests.support.knowledge.questions import answer_questions

__all__ = ["classify_prompts", "wrong_citations"]


def classify_prompts() -> Counter[tuple[str, str]]:
    """Return the numbers of prompts by the mode that they have and the one that they should have, the latter first."""
    rows = knowledge_rows("mode_prompts.jsonl")
    return Counter((row["mode"], detect_mode(row["text"], vaults=True, tools=["bash_exec"]).kind) for row in rows)


def wrong_citations() -> list[str]:
    """Return the names of the cases whose citations are not as expected."""
    data = json.loads((knowledge_folder() / "citation_passages.json").read_text(encoding="utf-8"))
    passages = {
        int(number): Passage(**fields, sha256=passage_sha256(fields["text"]))
        for number, fields in data["passages"].items()
    }
    wrong: list[str] = []
    for case in knowledge_rows("citation_cases.jsonl"):
        checked = check_citations(case["reply"], passages, {**data["files"], **case["files_now"]}.get)
        if [{"marker": cited.marker, "status": cited.status} for cited in checked] != case["expect"]:
            wrong.append(case["name"])
    return wrong


def _print() -> None:
    with tempfile.TemporaryDirectory() as name:
        shares = answer_questions(Path(name))
    print(f"questions: span@5 {shares.span:.2f}, note@5 {shares.note:.2f}")
    for group, (asked, spans, notes) in shares.by_group.items():
        print(f"  {group:14} {asked:3} questions, {spans:3} gold lines, {notes:3} notes")
    found = classify_prompts()
    right = found["chat", "chat"] + found["vault", "vault"]
    classed = sum(number for (_, mode), number in found.items() if mode != "agent")
    print(f"modes: {right} of {classed} classed chat or vault are right")
    for mode in ("chat", "vault"):
        wanted = sum(number for (expected, _), number in found.items() if expected == mode)
        print(f"  {mode:5} {found[mode, mode]} of {wanted} found")
    cases, wrong = len(knowledge_rows("citation_cases.jsonl")), wrong_citations()
    print(f"citations: {cases - len(wrong)} of {cases} cases as expected{''.join(f', not {name}' for name in wrong)}")


if __name__ == "__main__":
    _print()
