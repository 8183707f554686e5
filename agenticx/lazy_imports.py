"""Public names of a package that are imported from their modules at their first use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

__all__ = ["lazy_imports"]


def lazy_imports(
    package: str, modules: Mapping[str, Iterable[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the functions `__getattr__` and `__dir__` of a package whose names are in `modules`.

    `modules` has the names by the module that defines each. None may be that of a module in the package, since an
    import of that module would set it.

        __getattr__, __dir__ = lazy_imports(__name__, {"agenticx.core.task": ["Task"]})
    """
    module_of = {name: module for module, names in modules.items() for name in names}

    def get_name(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(module_of[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *module_of})

    return get_name, list_names
