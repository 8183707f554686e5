"""A cache folder for compiled modules of tests where PYTHONDONTWRITEBYTECODE is set.

Without it each process would compile all modules again.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

FORBIDDEN = "PYTHONDONTWRITEBYTECODE"


def keep_aside(folder: Path) -> None:
    """Store compiled modules in `folder` instead of beside their sources from now on, in child processes too."""
    if sys.dont_write_bytecode:
        os.environ.pop(FORBIDDEN, None)
        os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = str(folder)
        sys.dont_write_bytecode = False
