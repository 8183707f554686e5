"""Tests of the wording of docstrings, and that each public class name is used once."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.modules import Module, modules, statements

UNIQUE_IN = [Path(folder) for folder in (".ci", "agenticx", "studio", "tests/support")]
"""The folders in which the name of a public class is used once; a class of a test module has its meaning there only."""

QUESTIONS = frozenset(["How", "If", "Once", "That", "What", "When", "Where", "Whether", "Which", "While", "Who", "Why"])


@dataclass(frozen=True)
class Rule:
    """A rule for docstrings, with an example that follows it."""

    text: str
    example: str


OPENING = Rule(
    "a docstring does not open with a question word or a conjunction", "Return whether the path lies in the workspace."
)
ONE_LINE = Rule("the summary is one line that ends with a period", "Return the cursor after the last event.")
BLANK_LINE = Rule("an empty line follows the summary", "Return the cursor after the last event.\\n\\nRaises …")

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@pytest.mark.ci_lane
def test_docstrings_follow_the_rules() -> None:
    found = [mistake for module in modules() for mistake in mistakes_in_module(module)]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.ci_lane
def test_each_public_class_name_is_used_once() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for module in (module for module in modules() if any(folder in module.path.parents for folder in UNIQUE_IN)):
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{module.path}:{node.lineno}")
    found = [
        f"{', '.join(where)}: several public classes are called {name!r}; one name has one meaning; "
        "right would be, for example: SearchExcerpt and HeadTailBuffer"
        for name, where in sorted(places.items())
        if len(where) > 1
    ]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("code", "broken"),
    [
        ('"""What a tool is."""', [OPENING]),
        ('"""The tool protocol."""', []),
        ('"""The tool protocol\nand its types."""', [ONE_LINE, BLANK_LINE]),
        ('class A:\n    """A cache of sessions."""', []),
        ('def f():\n    """Whether it is so."""', [OPENING]),
        ('async def f():\n    """Return the session\n    or None."""', [ONE_LINE, BLANK_LINE]),
        ("def f():\n    return 1", []),
    ],
)
def test_each_rule_is_checked(code: str, broken: list[Rule]) -> None:
    assert [rule for _, text in docstrings(ast.parse(code)) for rule in broken_rules(text)] == broken


def mistakes_in_module(module: Module) -> Iterator[str]:
    """Yield a line for each broken rule, with the file, the line, the rule and an example that follows it."""
    for node, docstring in docstrings(module.tree):
        for rule in broken_rules(docstring):
            where = f"{module.path}:{getattr(node, 'lineno', 1)}"
            summary = docstring.partition("\n")[0]
            yield f"{where}: {rule.text}: {summary!r}; right would be, for example: {rule.example!r}"


def docstrings(tree: ast.Module) -> Iterator[tuple[Documented, str]]:
    """Yield the documented modules, classes and functions of a module with their docstrings."""
    for node in statements(tree):
        if isinstance(node, Documented) and (docstring := ast.get_docstring(node)):
            yield node, docstring


def broken_rules(docstring: str) -> Iterator[Rule]:
    """Yield the rules that a docstring breaks."""
    summary, *rest = docstring.split("\n")
    if re.match(r"[\w'-]*", summary)[0] in QUESTIONS:
        yield OPENING
    if not summary.endswith((".", ":", "!", "…")):
        yield ONE_LINE
    if rest and rest[0].strip():
        yield BLANK_LINE
