"""One studio per AGX_HOME, whatever its store: a lock, and taking over from the studio that holds it."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from agenticx.cli.client.discovery import find_studio
from agenticx.cli.client.http import ServerUnresponsive
from agenticx.cli.client.studio_file import STUDIO_FILE, StudioAddress, read_address
from agenticx.errors import SettingsError, StoreError
from agenticx.resource_exhaustion import raise_if_exhausted
from agenticx.sessions.store.owner import OwnedElsewhere, OwnerLock

__all__ = ["lock_home"]

_TAKE_OVER_SECONDS = 10.0
_ANSWER_SECONDS = 3.0
"""The longest wait for a studio that cannot be asked to end."""

_LAST_SECONDS = 1.0  # for an answer that is requested shortly before the time is over
_PAUSE_SECONDS = 0.05


def lock_home(
    home: Path,
    *,
    take_over: bool = False,
    drain_seconds: float = 0.0,
    stopped: Callable[[], bool] = lambda: False,
) -> OwnerLock:
    """Create AGX_HOME if it is missing, and return its lock; a studio holds it until it has ended.

    If another studio holds it, `OwnedElsewhere` is raised, or with `take_over` that studio gets SIGTERM. Its turns
    may end within `drain_seconds`; then this waits ten seconds for the lock, while `stopped` is false. Raises
    `SettingsError` for a folder that cannot be created.
    """
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as exc:
        raise_if_exhausted(exc)
        raise SettingsError(f"AGX_HOME is {str(home)!r}, which cannot be created: {exc.strerror}") from exc
    try:
        return OwnerLock(home / STUDIO_FILE)
    except OwnedElsewhere as exc:
        if not take_over:
            raise _already_running(home, exc.pid) from exc
    except StoreError as exc:  # nothing can be created in the folder
        raise StoreError(f"AGX_HOME is {str(home)!r}: {exc}") from exc
    return _take_over(home, _TAKE_OVER_SECONDS + drain_seconds, stopped)


def _take_over(home: Path, seconds: float, stopped: Callable[[], bool]) -> OwnerLock:
    """End the studios that hold the lock, and return it.

    Each gets one signal, once its answer has confirmed that it is that studio: the second one would end it at once. A
    studio that is starting is asked again until it is ready; one that is ending does not answer any more.
    """
    began = time.monotonic()
    signalled: set[str] = set()
    problem: str | None = None
    while True:
        try:
            return OwnerLock(home / STUDIO_FILE)
        except OwnedElsewhere as exc:
            owner = exc
        if signalled:
            problem = None
        passed = time.monotonic() - began
        if stopped() or passed >= (seconds if problem is None else _ANSWER_SECONDS):
            text = problem or f"{_describe_studio(home, owner.pid)} did not end within {seconds:g} seconds"
            raise OwnedElsewhere(text, pid=owner.pid) from owner
        address, problem = _confirmed_address(
            home, owner.pid, min(max(seconds - passed, _LAST_SECONDS), _ANSWER_SECONDS)
        )
        if address is not None and address.instance not in signalled:
            signalled.add(address.instance)
            with suppress(ProcessLookupError):
                os.kill(address.pid, signal.SIGTERM)
        time.sleep(_PAUSE_SECONDS)


def _confirmed_address(home: Path, pid: int, seconds: float) -> tuple[StudioAddress | None, str | None]:
    """Return the address of the studio that is the process `pid`, if it answers and says so; else why it cannot.

    There is no reason for a studio that does not listen: it is ending.
    """
    address = read_address(home)
    if pid and (address is None or address.pid != pid):
        reason = f"{str(home / STUDIO_FILE)!r} does not have its address: it is starting, or the file was removed"
        return None, f"the studio (process {pid}) cannot be asked to end; {reason}; `kill {pid}` ends it"
    try:
        address = asyncio.run(find_studio(home, response_timeout=seconds))
    except ServerUnresponsive as exc:
        return None, str(exc)
    return (address if address is not None and address.pid == pid else None), None


def _already_running(home: Path, pid: int) -> OwnedElsewhere:
    text = (
        f"{_describe_studio(home, pid)} has the sessions of this AGX_HOME; `agx open` opens it, --take-over replaces it"
    )
    return OwnedElsewhere(text, pid=pid)


def _describe_studio(home: Path, pid: int) -> str:
    address = read_address(home)
    where = f" at {address.url}" if address is not None and address.pid == pid else ""
    return f"the studio{where} ({f'process {pid}' if pid else 'another process'})"
