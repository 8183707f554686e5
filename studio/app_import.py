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

_IMPORTING_MODULES = {user_code.__name__, "importlib", "importlib._bootstrap", "importlib._bootstrap_external"}


def import_app(name: str) -> Starlette:
    """Import an application of `studio.create_app`, also from the current folder.

    Raises `SettingsError`; the traceback of an exception in the module, from its own code on, is printed to stderr
    first.
    """
    module_name, colon, attribute = name.partition(":")
    if not (module_name and colon and attribute) or module_name.startswith("."):
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
    if cause is not None:
        own = cause.__traceback__
        while own is not None and own.tb_frame.f_globals.get("__name__") in _IMPORTING_MODULES:
            own = own.tb_next
        traceback.print_exception(cause.with_traceback(own))
    return str(exc)
