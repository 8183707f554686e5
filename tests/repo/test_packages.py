"""The imports of test modules."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.support.modules import modules, statements

_CANDIDATE = re.compile(
    r"(?:from|import)\s+tests[\w.]*\.(?:test_|conftest)"
    r"|from\s+tests[\w.]*\s+import\s+(?:\([^)]*|[^\n(]*)\b(?:test_|conftest)"
)
"""Text of modules that may import a test module; parsing all the others takes seconds."""


def test_no_module_imports_a_test_module() -> None:
    found = [
        f"{module.path}:{line}: {name} belongs to a test module; move it to tests/support"
        for module in modules()
        if _CANDIDATE.search(module.text)
        for line, name in imported_names(module.tree)
        if name.startswith("tests.") and any(part.startswith("test_") or part == "conftest" for part in name.split("."))
    ]
    assert not found, "\n" + "\n".join(found)


def imported_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the dotted name of each import of a module."""
    for node in statements(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
