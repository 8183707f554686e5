"""Processes of their own in which a coroutine function runs until it is killed, such as at a commit."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from agenticx.sessions import Store, StoredEvent
from tests.support.forked import ROOT, Process
from tests.support.intercepted_store import InterceptedStore, Write
from tests.support.program import PROGRAM
from tests.support.timeouts import PATIENCE

__all__ = ["kill_this_process", "killed_at_commit", "random_delay", "run_until_killed"]


def kill_this_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def run_until_killed(
    function: Callable[..., Awaitable[None]], *arguments: Any, by: signal.Signals = signal.SIGKILL
) -> None:
    """Run a coroutine function of a test module in a process of its own, and check that this is killed by the signal.

    The representations of the arguments are evaluated there; paths may be among them.
    """
    names = f"from pathlib import PosixPath\nfrom {function.__module__} import {function.__name__}"
    source = f"import asyncio\n{names}\nasyncio.run({function.__name__}(*{arguments!r}))"
    process = Process(PROGRAM, [source], cwd=ROOT, env=os.environ)
    _, error = await asyncio.to_thread(process.communicate, "", PATIENCE)
    assert process.returncode == -by, error


def killed_at_commit(
    store: Store, number: int, seconds: float | None = None, counts: Callable[[], bool] = lambda: True
) -> Store:
    """Return a store that kills the process before the commit of that number, or so many seconds after it.

    Commits for which `counts` returns False are left out.
    """
    commits = 0

    async def around(write: Write) -> Sequence[StoredEvent]:
        nonlocal commits
        commits += (is_counted := counts())
        is_last = is_counted and commits == number
        if is_last and seconds is None:
            kill_this_process()
        stored = await write.make()
        if is_last:
            asyncio.get_running_loop().call_later(seconds or 0.0, kill_this_process)
        return stored

    return InterceptedStore(store, around)


def random_delay(rng: random.Random, most: float = 0.002) -> float | None:
    """Return the seconds between a commit and a kill, at most `most`; as often None, for a kill before the commit."""
    return None if rng.random() < 0.5 else rng.random() * most
