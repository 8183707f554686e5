"""One turn played to an output: its events shown, its questions asked, Ctrl-C turned into a stop."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import aclosing, contextmanager
from types import FrameType

from agenticx.cli.asking import Audience
from agenticx.cli.exit_codes import DONE, FAILED, STOPPED
from agenticx.cli.narrate import Note
from agenticx.cli.render import Output
from agenticx.errors import AgenticXError
from agenticx.logs import get_logger
from agenticx.runtime import StopSignal
from agenticx.runtime.events import EventType, RuntimeEvent

__all__ = ["play"]


_LEAVE_SECONDS = 0.5

_log = get_logger(__name__)


async def play(start: Callable[[StopSignal], AsyncGenerator[RuntimeEvent]], output: Output, audience: Audience) -> int:
    """Run the turn that `start` begins to its end and return the exit code that it stands for.

    SIGINT, SIGTERM and SIGHUP stop the turn, which still ends with its terminal event; a second one leaves at once.
    A bug of ours ends the turn with the error `internal`, its traceback in the log.
    """
    stop = StopSignal()
    last: RuntimeEvent | None = None
    with _stopping_on_signals(stop, output):
        try:
            async with aclosing(start(stop)) as events:
                async for last in events:
                    _show(last, output, audience)
        except (BrokenPipeError, CannotPrint):  # whoever read our output left, or it has no room for more
            raise
        except Exception as exc:
            _log.exception("the turn failed")
            if last is None or not last.terminal:
                last = _internal(exc)
                output.show(last)
    return FAILED if last is None else _exit_code(last)


class CannotPrint(AgenticXError):
    """The turn's events cannot be shown any more."""


def _show(event: RuntimeEvent, output: Output, audience: Audience) -> None:
    try:
        output.show(event)
    except BrokenPipeError:
        raise
    except OSError as exc:
        raise CannotPrint(f"the output cannot be written: {exc.strerror or exc}") from exc
    if event.type is EventType.CONFIRM_REQUIRED:
        audience.asked(event.data)
    elif event.type is EventType.CONFIRM_RESPONSE:
        audience.closed(event.data["id"])


def _exit_code(terminal: RuntimeEvent) -> int:
    if terminal.type is EventType.FINAL:
        return DONE
    return STOPPED if terminal.data.get("code") == "stopped" else FAILED


def _internal(exc: Exception) -> RuntimeEvent:
    text = f"AgenticX failed ({type(exc).__name__}); this is a bug of its own, please report what the log says"
    return RuntimeEvent(EventType.ERROR, {"text": text, "code": "internal", "fatal": True})


@contextmanager
def _stopping_on_signals(stop: StopSignal, output: Output) -> Generator[None]:
    """While the body runs a first signal sets `stop`, a second one cancels the task, a third one ends the process."""
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    leaving = threading.Timer(_LEAVE_SECONDS, os._exit, (STOPPED,))
    leaving.daemon = True

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        if leaving.is_alive():
            os._exit(STOPPED)
        if stop.is_set():
            leaving.start()
            loop.call_soon_threadsafe(task.cancel)
            return
        stop.set()
        loop.call_soon_threadsafe(output.note, Note("stopping … (Ctrl-C again leaves at once)"))

    # not loop.add_signal_handler: a handler of the interpreter still runs when the loop is held up
    before = {number: signal.signal(number, on_signal) for number in _signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


def _signals() -> Iterator[signal.Signals]:
    yield signal.SIGINT
    yield signal.SIGTERM
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # ignored under nohup
        yield signal.SIGHUP
