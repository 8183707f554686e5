"""The handling of Ctrl-C while a command is imported: the process exits at once.

Nothing has started yet, so nothing needs closing. A KeyboardInterrupt is not enough, because the imported code may
swallow it or convert it into another exception (pydantic does).
"""

from __future__ import annotations

import os
import signal
from types import FrameType

__all__ = ["exit_on_ctrl_c", "raise_on_ctrl_c"]


def exit_on_ctrl_c() -> None:
    """Exit the process on Ctrl-C from now on, unless another handler is installed."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _exit)


def raise_on_ctrl_c() -> None:
    """Restore KeyboardInterrupt on Ctrl-C, once the command is imported."""
    if signal.getsignal(signal.SIGINT) is _exit:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _exit(_number: int, _frame: FrameType | None) -> None:
    os._exit(130)  # 128 + SIGINT, as a shell reports it
