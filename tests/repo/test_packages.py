"""The imports of test modules."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

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


_INSIDE = re.compile(r"from\s+(?:agenticx|studio)\.\w+\.\w")
"""Text of modules that import from inside a package."""


def test_no_test_imports_a_public_name_from_inside_its_package() -> None:
    exporting = exporting_packages()
    found = [
        f"{module.path}:{line}: import {name.rpartition('.')[2]} from {exporting[name]}, which exports it"
        for module in modules()
        if module.path.parts[0] == "tests" and _INSIDE.search(module.text)
        for line, name in imported_names(module.tree)
        if name.count(".") > 2 and name in exporting
    ]
    assert not found, "\n" + "\n".join(found)


def exporting_packages() -> Mapping[str, str]:
    """Return the package that exports each name, by the dotted name that its `__init__` imports."""
    return {
        name: ".".join(module.path.parent.parts)
        for module in modules()
        if module.path.name == "__init__.py" and module.path.parts[0] in ("agenticx", "studio")
        for _, name in imported_names(module.tree)
        if f'"{name.rpartition(".")[2]}"' in module.text  # in its `__all__`
    }
