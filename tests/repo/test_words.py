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

PACKAGES = sorted({module.path.parent for module in modules()})
UNIQUE_IN = [Path(folder) for folder in (".ci", "agenticx", "studio", "tests/support")]
"""The folders in which the name of a public class is used once; a class of a test module has its meaning there only."""
MAX_MODULE_SUMMARY = 100


def words(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


QUESTIONS = words("How If Once That What When Where Whether Which While Who Why")
NO_VERBS = words(
    """
    A After All Also An Any As At Before Behind Between By Each Every For From In It Its Like Most Much No Nobody None
    Not Nothing Of One Only Same Some Somebody The There These They This To Up With Without
    """
)
THIRD_PERSON = words(
    """
    Asks Calls Changes Counts Cuts Decides Does Follows Hands Holds Keeps Makes Owns Plays Raises Returns Runs Sends
    Sets Sorts Splits Tells Turns
    """
)
# Imperatives with an ending that usually marks another form of the verb.
IMPERATIVES = words("bias bring embed exceed feed focus need proceed ring seed speed string succeed")
PROPERTIES = frozenset({"cached_property", "property", "setter"})


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
MODULE_LENGTH = Rule(
    f"a module's summary has at most {MAX_MODULE_SUMMARY} characters", "The permission modes and their decisions."
)
IMPERATIVE = Rule("a function's summary is an imperative", "Return the session if it is in memory, else None.")
NOUN_PHRASE = Rule("a class's summary is a noun phrase", "A cache of the sessions in use.")

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@pytest.mark.parametrize("package", PACKAGES, ids=str)
@pytest.mark.cases
def test_docstrings_follow_the_rules(package: Path) -> None:
    in_package = (module for module in modules() if module.path.parent == package)
    found = [mistake for module in in_package for mistake in mistakes_in_module(module)]
    assert not found, "\n" + "\n".join(found)


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
        (f'"""The {"x" * 100}."""', [MODULE_LENGTH]),
        ('"""The tool protocol\nand its types."""', [ONE_LINE, BLANK_LINE]),
        ('class A:\n    """Keeps sessions."""', [NOUN_PHRASE]),
        ('class A:\n    """A cache of sessions."""', []),
        ('class A:\n    """Raised when no studio is running."""', []),
        ('def f():\n    """Whether it is so."""', [OPENING]),
        ('def f():\n    """Return whether it is so."""', []),
        ('def f():\n    """The session, if it is in memory."""', [IMPERATIVE]),
        ('def f():\n    """`text` for a prompt."""', [IMPERATIVE]),
        ('def f():\n    """Returns the session."""', [IMPERATIVE]),
        ('def f():\n    """Sent to the client."""', []),  # an irregular form is not recognised
        ('def f():\n    """Stored in the session."""', [IMPERATIVE]),
        ('def f():\n    """Waiting for the event."""', [IMPERATIVE]),
        ('def f():\n    """Pass the event on."""', []),
        ('def f():\n    """Feed the parser."""', []),
        ('async def f():\n    """Return the session\n    or None."""', [ONE_LINE, BLANK_LINE]),
        ('class A:\n    @property\n    def f(self):\n        """The number of names."""', []),
        ('class A:\n    @f.setter\n    def f(self, value):\n        """The number of names."""', []),
        ('def test_f():\n    """The name of the test is a sentence already."""', []),
        ("def f():\n    return 1", []),
    ],
)
def test_each_rule_is_checked(code: str, broken: list[Rule]) -> None:
    assert [rule for node, summary in docstrings(ast.parse(code)) for rule in broken_rules(node, summary)] == broken


def mistakes_in_module(module: Module) -> Iterator[str]:
    """Yield a line for each broken rule, with the file, the line, the rule and an example that follows it."""
    for node, docstring in docstrings(module.tree):
        for rule in broken_rules(node, docstring):
            where = f"{module.path}:{getattr(node, 'lineno', 1)}"
            summary = docstring.partition("\n")[0]
            yield f"{where}: {rule.text}: {summary!r}; right would be, for example: {rule.example!r}"


def docstrings(tree: ast.Module) -> Iterator[tuple[Documented, str]]:
    """Yield the documented modules, classes and functions of a module with their docstrings."""
    for node in statements(tree):
        if isinstance(node, Documented) and (docstring := ast.get_docstring(node)):
            yield node, docstring


def broken_rules(node: Documented, docstring: str) -> Iterator[Rule]:
    """Yield the rules that a docstring breaks."""
    summary, *rest = docstring.split("\n")
    opening = first_word(summary)
    if opening in QUESTIONS:
        yield OPENING
    if not summary.endswith((".", ":", "!", "…")):
        yield ONE_LINE
    if rest and rest[0].strip():
        yield BLANK_LINE
    match node:
        case ast.Module() if len(summary) > MAX_MODULE_SUMMARY:
            yield MODULE_LENGTH
        case ast.ClassDef() if opening in THIRD_PERSON:
            yield NOUN_PHRASE
        case ast.FunctionDef() | ast.AsyncFunctionDef() if opening not in QUESTIONS and needs_imperative(node):
            if not is_imperative(opening):
                yield IMPERATIVE
        case _:
            pass


def first_word(summary: str) -> str:
    """Return the letters with which a summary begins, which may be none."""
    match = re.match(r"[\w'-]*", summary)
    return match[0] if match else ""


def needs_imperative(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a function is neither a property nor a test."""
    decorators = {getattr(decorator, "attr", getattr(decorator, "id", "")) for decorator in node.decorator_list}
    return not decorators & PROPERTIES and not node.name.startswith("test_")


def is_imperative(word: str) -> bool:
    """Return whether a word may be an imperative, as far as its form shows."""
    if not word or word in NO_VERBS:
        return False
    lower = word.lower()
    is_other_form = lower.endswith(("ed", "ing")) or (lower.endswith("s") and not lower.endswith("ss"))
    return lower in IMPERATIVES or not is_other_form
