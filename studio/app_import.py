"""The application that `agx serve --app MODULE:NAME` names."""

from __future__ import annotations

import sys
import traceback
from importlib import import_module
from pathlib import Path

from starlette.applications import Starlette

from agenticx import user_code
from agenticx.errors import SettingsError, UserCodeError
from studio.app import parts_of

__all__ = ["import_app"]


def import_app(name: str) -> Starlette:
    """Import an application of `studio.create_app`, also from the current folder.

    Raises `SettingsError`; the traceback of an exception in the module is printed to stderr first.
    """
    module_name, colon, attribute = name.partition(":")
    if not (module_name and colon and attribute):
        raise SettingsError(f"--app is {name!r}; it must be MODULE:NAME, as in my_module:app")
    if (folder := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = user_code.call_sync(import_module, module_name, what=f"importing {module_name!r}")
    except UserCodeError as exc:
        raise SettingsError(f"--app is {name!r}: {_reason(module_name, folder, exc)}") from exc
    app: object = getattr(module, attribute, None)
    if not isinstance(app, Starlette) or parts_of(app) is None:
        what = f"a {type(app).__name__}" if hasattr(module, attribute) else "missing"
        raise SettingsError(f"--app is {name!r}: {attribute!r} is {what}, not an application of studio.create_app")
    return app


def _reason(module_name: str, folder: str, exc: UserCodeError) -> str:
    cause = exc.__cause__
    if isinstance(cause, ModuleNotFoundError) and f"{module_name}.".startswith(f"{cause.name}."):
        return f"there is no module {cause.name!r} in {folder} or among the installed packages"
    traceback.print_exception(cause)
    return str(exc)
