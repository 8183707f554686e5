"""A labelled corpus of call sequences and the detector's figures on it.

`python -m tests.benchmarks.loop_corpus` prints the figures.

`loops/*.jsonl` hold one sequence a line: {label: "honest" | "loop", family, name, begins?, rounds}. An item of `rounds`
is a list of calls {tool, arguments, result, outcome?, state?, artifact?}, or {times, rounds}: rounds that are repeated
so many times. `arguments` is an object, or text if the model wrote no JSON. `state` is the scratchpad after the call,
`artifact` the content of one that it made. `begins` is the round, counted from 1, with which a loop begins.

A sequence is positive if it gets a critical verdict; warnings are counted apart. `held_out.jsonl`, a third drawn at
random, was put aside before the detector was written: nobody read which of its sequences it got wrong, but its figures
were seen while it was tuned. `further.jsonl` was written after the first version, against its weak points (precision
0.857, recall 0.923 then), and changed it; its last 93 sequences came of a review (with the first 81 of them the file
stood at precision 0.654, recall 0.895). The authors of the detector wrote the corpus.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from agenticx.runtime import LoopDetector, LoopVerdict, RecordedCall
from agenticx.tools.shell.read_only_heuristic import seems_read_only

__all__ = [
    "FILES",
    "READ_ONLY",
    "SHELL",
    "CorpusFigures",
    "Labelled",
    "arguments_text",
    "corpus",
    "judge",
    "measure",
    "misses",
]

FILES = ("tuning", "held_out", "further")
READ_ONLY = frozenset(
    [
        "add",
        "audit",
        "check_link",
        "check_syntax",
        "count_rows",
        "define",
        "describe",
        "dns",
        "errors_of",
        "exists",
        "fetch_page",
        "fetch_rows",
        "file_read",
        "file_search",
        "find_symbol",
        "find_user",
        "flights",
        "get_doc",
        "get_lamp",
        "get_sensor",
        "get_user",
        "get_weather",
        "http_get",
        "inbox",
        "is_free",
        "job_status",
        "kubectl_get",
        "lint",
        "list_commits",
        "list_files",
        "list_issues",
        "list_orders",
        "lookup",
        "metrics",
        "outliers",
        "page_text",
        "ping",
        "pipeline_status",
        "read_mail",
        "recall",
        "rooms",
        "scratchpad_read",
        "search_api",
        "search_docs",
        "search_mail",
        "service_status",
        "slow_query",
        "sql",
        "translate",
        "validate_json",
        "verify",
        "web_search",
    ]
)
"""The tools of the corpus that change nothing; all others may."""

SHELL = "bash_exec"

Call = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Labelled:
    """One sequence with its repeated rounds expanded."""

    label: str
    family: str
    name: str
    begins: int
    rounds: tuple[tuple[Call, ...], ...]

    @property
    def title(self) -> str:
        return f"{self.family}: {self.name}"


@cache
def corpus(file: str) -> tuple[Labelled, ...]:
    """Return the sequences of one file."""
    path = Path(__file__).with_name("loops") / f"{file}.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return tuple(
        Labelled(row["label"], row["family"], row["name"], row.get("begins", 1), tuple(_rounds(row["rounds"])))
        for row in rows
    )


def _rounds(items: Sequence[Any]) -> Iterator[tuple[Call, ...]]:
    for item in items:
        if isinstance(item, list):
            yield tuple(item)
        else:
            for _ in range(item["times"]):
                yield from _rounds(item["rounds"])


def arguments_text(call: Call) -> str:
    """Return the arguments as the model wrote them."""
    return call["arguments"] if isinstance(call["arguments"], str) else json.dumps(call["arguments"])


# --- judging ----------------------------------------------------------------------------------------------------------


def judge(sequence: Labelled) -> tuple[list[int], int | None, LoopVerdict | None]:
    """Return the rounds that caused a warning, the round of the critical verdict and that verdict, if there was one."""
    detector = LoopDetector()
    detector.record_state("")
    warned: list[int] = []
    for number, calls in enumerate(sequence.rounds, 1):
        for call in calls:
            if "state" in call:
                detector.record_state(call["state"])
            if "artifact" in call:
                detector.record_artifact(call["artifact"])
        detector.record_round([_recorded(call) for call in calls])
        verdict = detector.check()
        if verdict is not None and verdict.level == "critical":
            return warned, number, verdict
        if verdict is not None:
            warned.append(number)
    return warned, None, None


def _recorded(call: Call) -> RecordedCall:
    return RecordedCall(
        tool=call["tool"],
        arguments=arguments_text(call),
        result=call["result"],
        outcome=call.get("outcome", "ok"),
        read_only=call["tool"] in READ_ONLY
        or (call["tool"] == SHELL and seems_read_only(call["arguments"]["command"])),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusFigures:
    """The results on a set of sequences; `latest` is the most rounds between a loop's beginning and its verdict."""

    honest: int
    loops: int
    found: int
    ended_honest: int
    warned_honest: int
    latest: int

    @property
    def precision(self) -> float:
        return self.found / (self.found + self.ended_honest)

    @property
    def recall(self) -> float:
        return self.found / self.loops


def measure(sequences: Sequence[Labelled]) -> CorpusFigures:
    """Judge all sequences and return the figures."""
    judged = [(sequence, *judge(sequence)) for sequence in sequences]
    loops = [(sequence, ended) for sequence, _, ended, _ in judged if sequence.label == "loop"]
    honest = [(warned, ended) for sequence, warned, ended, _ in judged if sequence.label == "honest"]
    found = [ended - sequence.begins + 1 for sequence, ended in loops if ended is not None]
    return CorpusFigures(
        honest=len(honest),
        loops=len(loops),
        found=len(found),
        ended_honest=sum(ended is not None for _, ended in honest),
        warned_honest=sum(bool(warned) for warned, _ in honest),
        latest=max(found),
    )


def misses(sequences: Sequence[Labelled]) -> list[str]:
    """Return the titles of the loops that were not found and of the honest sequences that were ended."""
    wrong: list[str] = []
    for sequence in sequences:
        _, ended, verdict = judge(sequence)
        if sequence.label == "loop" and ended is None:
            wrong.append(f"not found: {sequence.title}")
        elif sequence.label == "honest" and verdict is not None:
            wrong.append(f"ended in round {ended} ({verdict.detector}): {sequence.title}")
    return wrong


def main(arguments: Sequence[str]) -> None:
    """Print the figures of each file and of all, and with `--misses` each wrong verdict."""
    sets = {file: corpus(file) for file in FILES}
    sets["all"] = tuple(sequence for sequences in sets.values() for sequence in sequences)
    for name, sequences in sets.items():
        figures = measure(sequences)
        print(
            f"{name:9} {figures.loops + figures.honest} sequences, {figures.honest} of them honest: "
            f"precision {figures.precision:.3f}, recall {figures.recall:.3f}; "
            f"{figures.found} of {figures.loops} loops found, at the latest in round {figures.latest} of the loop; "
            f"{figures.ended_honest} honest ones ended, {figures.warned_honest} warned"
        )
    if "--misses" in arguments:
        print(*misses(sets["tuning"] + sets["further"]), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
