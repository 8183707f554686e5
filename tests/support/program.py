"""A program of the fork server that runs Python source, as `python -c` does."""

from __future__ import annotations

import sys

__all__ = ["AGX", "LONG_HOLD", "PROGRAM"]

PROGRAM = "tests.support.program"
AGX = "\nimport runpy; runpy.run_module('agenticx.cli', run_name='__main__', alter_sys=True)"
"""What runs `agx` behind source that prepares the process for it."""
LONG_HOLD = "from agenticx.cli.terminal import terminal_output; terminal_output._HELD_SECONDS = 60"
"""Source that prepares a terminal which waits long enough for the confirmation of a call before it shows its line."""

if __name__ == "__main__":
    source = sys.argv.pop(1)
    exec(compile(source, "<string>", "exec"), {"__name__": "__main__"})
