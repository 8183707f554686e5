"""The path of a plain message through our files gets no longer."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST_CROSSINGS = 313
"""The goal that was set for this path, from 470; it may only be lowered."""
ATTEMPTS = 3
"""Runs of the script, of which the shortest path counts: a busy machine divides the work of a turn into more steps."""


def trace() -> dict[str, int]:
    """Return the numbers that the script prints, by name."""
    command = [sys.executable, "-m", "tests.repo.trace_message"]
    printed = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    match = re.fullmatch(
        r"(?P<functions>\d+) functions in (?P<files>\d+) files, (?P<crossings>\d+) crossings\n", printed
    )
    assert match is not None, printed
    return {name: int(number) for name, number in match.groupdict().items()}


def test_a_plain_message_crosses_between_files_no_more_often_than_before() -> None:
    seen = trace()
    for _ in range(ATTEMPTS - 1):
        if seen["crossings"] > MOST_CROSSINGS:
            seen = trace()
    assert 1 < seen["files"] <= seen["functions"], seen
    assert seen["files"] <= seen["crossings"] <= MOST_CROSSINGS, seen
