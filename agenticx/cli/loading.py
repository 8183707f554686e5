"""Ctrl-C while a command is being loaded: nothing has begun, so the process ends there and then.

A KeyboardInterrupt will not do, because what is being imported may swallow it or make another exception of it.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

__all__ = ["exit_on_ctrl_c", "raise_on_ctrl_c"]


def exit_on_ctrl_c() -> None:
    """From now on, unless Ctrl-C means something else already."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _exit)


def raise_on_ctrl_c() -> None:
    """The command is loaded: Ctrl-C is a KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _exit:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _exit(_number: int, _frame: FrameType | None) -> None:
    os._exit(130)  # as a shell counts it
