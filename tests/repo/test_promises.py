"""Promises: each claimed one has a test that names it, and tests name no others."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

TESTS = Path(__file__).parents[1]
CLAIMED_PROMISES: dict[str, str] = tomllib.loads((TESTS / "promises.toml").read_text(encoding="utf-8"))
_MARK = re.compile(r"\bpromise\(\s*((?:\"[A-I]\d?\"[,\s]*)+)\)")


def promises_in_tests() -> dict[str, set[str]]:
    """Return the promises that tests name, each with the files that do."""
    files: dict[str, set[str]] = {}
    for path in TESTS.rglob("test_*.py"):
        for mark in _MARK.finditer(path.read_text(encoding="utf-8")):
            for promise in re.findall(r"[A-I]\d?", mark[1]):
                files.setdefault(promise, set()).add(str(path.relative_to(TESTS)))
    return files


def test_every_claimed_promise_has_a_test() -> None:
    assert sorted(set(CLAIMED_PROMISES) - set(promises_in_tests())) == []


def test_every_promise_a_test_names_is_claimed() -> None:
    assert sorted(set(promises_in_tests()) - set(CLAIMED_PROMISES)) == []
