"""Regular expressions that are compiled at their first use.

Long alternatives take Python milliseconds to compile; a program that imports the runtime needs few of them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

__all__ = ["lazy_compile"]


class _LazyPattern:
    """Stands for `re.compile(pattern, flags)`; the compiled pattern's methods are kept at their first use."""

    def __init__(self, pattern: str, flags: int = 0) -> None:
        self._arguments = (pattern, flags)

    def __getattr__(self, name: str) -> object:
        value = getattr(re.compile(*self._arguments), name)
        setattr(self, name, value)
        return value


if TYPE_CHECKING:
    lazy_compile = re.compile
else:
    lazy_compile = _LazyPattern
