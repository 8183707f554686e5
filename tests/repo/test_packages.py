"""Limits on the size of folders, modules and functions, and on the imports of test modules."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from tests.support.modules import modules, statements

MOST_MODULES = 22
MOST_LINES = 500
MOST_LINES_OF_A_FUNCTION = 60


def test_no_folder_has_more_than_22_modules() -> None:
    counts = Counter(str(module.path.parent) for module in modules())
    assert {folder: count for folder, count in counts.items() if count > MOST_MODULES} == {}


def test_no_module_has_more_than_500_lines() -> None:
    sizes = {str(module.path): len(module.text.splitlines()) for module in modules()}
    assert {path: lines for path, lines in sizes.items() if lines > MOST_LINES} == {}


def test_no_function_has_more_than_60_lines() -> None:
    long: dict[str, int] = {}
    for module in modules():
        for node in statements(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > MOST_LINES_OF_A_FUNCTION:
                    long[f"{module.path}:{node.lineno} {node.name}"] = lines
    assert long == {}


def test_no_module_imports_a_test_module() -> None:
    found = [
        f"{module.path}:{line}: {name} belongs to a test module; move it to tests/support"
        for module in modules()
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
