"""Python source as a forked program: `python -m tests.support.program SOURCE ARGUMENTS`, like `python -c`."""

from __future__ import annotations

import sys

__all__ = ["AGX", "PROGRAM"]

PROGRAM = "tests.support.program"
AGX = "\nimport runpy; runpy.run_module('agenticx.cli', run_name='__main__', alter_sys=True)"
"""What runs `agx` behind source that prepares the process for it."""

if __name__ == "__main__":
    source = sys.argv.pop(1)
    exec(compile(source, "<string>", "exec"), {"__name__": "__main__"})
