"""Limits on the size of folders, modules and functions."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ("agenticx", "studio", "tests")
MOST_MODULES = 22
MOST_LINES = 500
MOST_LINES_OF_A_FUNCTION = 60


def modules() -> Iterator[Path]:
    """Yield the paths of all Python modules, relative to the repository."""
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "node_modules" not in path.parts:
                yield path.relative_to(ROOT)


def test_no_folder_has_more_than_22_modules() -> None:
    counts = Counter(str(path.parent) for path in modules())
    assert {folder: count for folder, count in counts.items() if count > MOST_MODULES} == {}


def test_no_module_has_more_than_500_lines() -> None:
    sizes = {str(path): len((ROOT / path).read_text(encoding="utf-8").splitlines()) for path in modules()}
    assert {path: lines for path, lines in sizes.items() if lines > MOST_LINES} == {}


def test_no_function_has_more_than_60_lines() -> None:
    long: dict[str, int] = {}
    for path in modules():
        for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > MOST_LINES_OF_A_FUNCTION:
                    long[f"{path}:{node.lineno} {node.name}"] = lines
    assert long == {}
