"""Each claimed promise has a test that names it, tests name no others, and the listed counts agree."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.modules import Module, modules

TESTS = Path(__file__).parents[1]
UNCLAIMED = "unclaimed"
"""The table with the counts of tests that name no promise."""
LISTED: dict[str, dict[str, Any]] = tomllib.loads((TESTS / "promises.toml").read_text(encoding="utf-8"))
CLAIMED_PROMISES = LISTED.keys() - {UNCLAIMED}
_COUNTED = re.compile(r"\b(?:count|examples)\(")
_MARK = re.compile(r"\bpromise\(\s*((?:\"[A-I]\d?\"[,\s]*)+)\)")


def promises_in_tests() -> dict[str, set[str]]:
    """Return the promises that tests name, each with the files that do."""
    files: dict[str, set[str]] = {}
    for path in TESTS.rglob("test_*.py"):
        for promise in promises_in(path.read_text(encoding="utf-8")):
            files.setdefault(promise, set()).add(str(path.relative_to(TESTS)))
    return files


def test_every_claimed_promise_has_a_test() -> None:
    assert sorted(CLAIMED_PROMISES - promises_in_tests().keys()) == []


def test_every_promise_a_test_names_is_claimed() -> None:
    assert sorted(promises_in_tests().keys() - CLAIMED_PROMISES) == []


def test_the_listed_counts_are_those_of_the_tests() -> None:
    in_tests: dict[str, dict[str, Any]] = {}
    for module in modules():
        if module.path.name.startswith("test_") and _COUNTED.search(module.text):
            for promise, test, counts in counts_in(module):
                in_tests.setdefault(promise, {})[test] = counts[0] if len(counts) == 1 else counts
    assert {promise: table["counts"] for promise, table in LISTED.items() if "counts" in table} == in_tests


def counts_in(module: Module) -> Iterator[tuple[str, str, list[list[int]]]]:
    """Yield the first promise, the name and the counts of each test that calls `count` or `examples`."""
    of_module = [
        name for node in module.tree.body if isinstance(node, ast.Assign) for name in promises_of(module, node)
    ]
    for test in module.tree.body:
        if isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef) and (counts := list(counts_of(test))):
            of_test = [name for decorator in test.decorator_list for name in promises_of(module, decorator)]
            path = module.path.relative_to("tests").as_posix()
            yield min([*of_module, *of_test], default=UNCLAIMED), f"{path}::{test.name}", counts


def counts_of(test: ast.AST) -> Iterator[list[int]]:
    """Yield the three numbers of each call of `count` or `examples`."""
    for node in ast.walk(test):
        match node:
            case ast.Call(func=ast.Name(id="count" | "examples"), args=[_, _, _] as numbers):
                yield [ast.literal_eval(number) for number in numbers]
            case _:
                pass


def promises_of(module: Module, node: ast.expr | ast.stmt) -> list[str]:
    """Return the promises that are named in the source of a node."""
    return promises_in("\n".join(module.lines[node.lineno - 1 : node.end_lineno]))


def promises_in(text: str) -> list[str]:
    """Return the promises that the marks in a text name."""
    return [promise for mark in _MARK.finditer(text) for promise in re.findall(r"[A-I]\d?", mark[1])]
