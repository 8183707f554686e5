"""A program of the fork server that runs Python source, as `python -c` does."""

from __future__ import annotations

import sys

__all__ = ["AGX", "PROGRAM"]

PROGRAM = "tests.support.program"
AGX = "\nimport runpy; runpy.run_module('agenticx.cli', run_name='__main__', alter_sys=True)"
"""What runs `agx` behind source that prepares the process for it."""

if __name__ == "__main__":
    source = sys.argv.pop(1)
    exec(compile(source, "<string>", "exec"), {"__name__": "__main__"})
