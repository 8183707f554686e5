"""Limits on the size of folders, modules and functions."""

from __future__ import annotations

import ast
from collections import Counter

from tests.support.modules import modules

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
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > MOST_LINES_OF_A_FUNCTION:
                    long[f"{module.path}:{node.lineno} {node.name}"] = lines
    assert long == {}
