"""One turn played to an output: its events shown, its questions asked, Ctrl-C turned into a stop."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from agenticx.cli.asking import Audience
from agenticx.cli.desk import Desk, Place
from agenticx.cli.envelopes import Envelope
from agenticx.cli.exit_codes import DONE, FAILED, STOPPED
from agenticx.cli.narrate import Note
from agenticx.cli.render import Output
from agenticx.errors import AgenticXError
from agenticx.runtime.events import EventType

__all__ = ["CannotPrint", "ending_signals", "play"]


_LEAVE_SECONDS = 0.5


async def play(
    desk: Desk, session_id: str, begin: Callable[[], Awaitable[Place]], output: Output, audience: Audience
) -> int:
    """Show the turn that `begin` starts or finds up to its end and return the exit code that it stands for.

    SIGINT, SIGTERM and SIGHUP stop the turn, which still ends with its terminal event; a second one leaves at once.
    """
    stop = asyncio.Event()
    with _stopping_on_signals(stop, output):
        place = await begin()
        stopping = asyncio.create_task(_stop_when_told(stop, desk, session_id))
        try:
            last = await _show_all(desk, session_id, place, output, audience)
        except (BrokenPipeError, CannotPrint):  # whoever read our output left, or it has no room for more
            await desk.stop(session_id)
            raise
        finally:
            stopping.cancel()
    if last is None:
        output.note(Note("the turn's log has no end: it could not be written", "bad"))
        return FAILED
    return _exit_code(last)


class CannotPrint(AgenticXError):
    """The turn's events cannot be shown any more."""


async def _stop_when_told(stop: asyncio.Event, desk: Desk, session_id: str) -> None:
    await stop.wait()
    with suppress(AgenticXError):  # who follows the turn hears of a server that is gone
        await desk.stop(session_id)


async def _show_all(desk: Desk, session_id: str, place: Place, output: Output, audience: Audience) -> Envelope | None:
    """The turn's terminal event, if one came."""
    async with desk.follow(session_id, place) as events:
        async for event in events:
            _show(event, output, audience)
            if event.terminal and event.turn_id == place.turn_id:
                return event
    return None


def _show(event: Envelope, output: Output, audience: Audience) -> None:
    try:
        output.show(event)
    except BrokenPipeError:
        raise
    except OSError as exc:
        raise CannotPrint(f"the output cannot be written: {exc.strerror or exc}") from exc
    if event.type == EventType.CONFIRM_REQUIRED:
        audience.asked(event.data)
    elif event.type == EventType.CONFIRM_RESPONSE:
        audience.closed(event.data["id"])


def _exit_code(terminal: Envelope) -> int:
    if terminal.type == EventType.FINAL:
        return DONE
    return STOPPED if terminal.data.get("code") == "stopped" else FAILED


@contextmanager
def _stopping_on_signals(stop: asyncio.Event, output: Output) -> Generator[None]:
    """While the body runs a first signal sets `stop`, a second one cancels the task, a third one ends the process.

    One that is no Ctrl-C then goes to whoever heard such signals before: a chat ends behind its turn.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    leaving = threading.Timer(_LEAVE_SECONDS, os._exit, (STOPPED,))
    leaving.daemon = True
    told: list[int] = []

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if leaving.is_alive():
            os._exit(STOPPED)
        if told:
            leaving.start()
            loop.call_soon_threadsafe(task.cancel)
            return
        told.append(number)
        loop.call_soon_threadsafe(stop.set)
        loop.call_soon_threadsafe(output.note, Note("stopping … (Ctrl-C again leaves at once)"))

    # not loop.add_signal_handler: a handler of the interpreter still runs when the loop is held up
    before = {number: signal.signal(number, on_signal) for number in ending_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)
        if told and told[0] != signal.SIGINT and callable(before[signal.Signals(told[0])]):
            signal.raise_signal(told[0])


def ending_signals() -> Iterator[signal.Signals]:
    """What asks this process to end, Ctrl-C first."""
    yield signal.SIGINT
    yield signal.SIGTERM
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # ignored under nohup
        yield signal.SIGHUP
