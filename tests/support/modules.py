"""The Python modules of the repository, each read and parsed at most once."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

__all__ = ["ROOT", "Module", "modules", "statements"]

ROOT = Path(__file__).parents[2]
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
SOURCES = (".ci", "agenticx", "studio", "tests")


@dataclass(frozen=True)
class Module:
    """A Python module, with its path relative to the repository."""

    path: Path

    @cached_property
    def text(self) -> str:
        return (ROOT / self.path).read_text(encoding="utf-8")

    @cached_property
    def lines(self) -> Sequence[str]:
        return self.text.splitlines()

    @cached_property
    def tree(self) -> ast.Module:
        gc.disable()  # looking for garbage meanwhile, or later among the nodes, takes longer than parsing
        try:
            return ast.parse(self.text)
        finally:
            gc.freeze()
            gc.enable()


@cache
def modules() -> Sequence[Module]:
    """Return all modules of the packages, the tests and CI, sorted by path."""
    found = (path for source in SOURCES for path in (ROOT / source).rglob("*.py") if "node_modules" not in path.parts)
    return [Module(path.relative_to(ROOT)) for path in sorted(found)]


def statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield a module and its statements at any depth, without the expressions, ten times as many, of `ast.walk`."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        yield node
        for name in _BLOCKS:
            pending += getattr(node, name, ())
