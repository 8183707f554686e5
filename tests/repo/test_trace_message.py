"""The path of a plain message through our files gets no longer."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST_CROSSINGS = 313
"""May only be lowered, when the path gets shorter: the figure that the script prints then, and 5 % for its spread."""
ATTEMPTS = 4
"""On a busy machine the work of a turn is divided into more steps; the shortest path counts."""


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
