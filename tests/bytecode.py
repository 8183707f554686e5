"""Compiled modules of tests, kept aside where Python is told to keep none: else each process compiles all anew."""

from __future__ import annotations

import os
import sys
from pathlib import Path

FORBIDDEN = "PYTHONDONTWRITEBYTECODE"


def keep_aside(folder: Path) -> None:
    """From here on compiled modules are kept in `folder` and not beside their sources, by child processes too."""
    if sys.dont_write_bytecode:
        os.environ.pop(FORBIDDEN, None)
        os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = str(folder)
        sys.dont_write_bytecode = False
