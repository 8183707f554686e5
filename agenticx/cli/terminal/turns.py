"""The display of one turn: its events are shown, its requests answered, and Ctrl-C stops it."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from types import FrameType

from agenticx.cli.client.base import Client, TurnPosition
from agenticx.cli.client.envelopes import Envelope
from agenticx.cli.exit_codes import DONE, FAILED, STOPPED
from agenticx.cli.terminal.event_text import Note, request_payload
from agenticx.cli.terminal.keyboard import Keyboard
from agenticx.cli.terminal.output import Output
from agenticx.cli.terminal.responders import RequestResponder
from agenticx.cli.terminal.termination import termination_signals
from agenticx.errors import AgenticXError, error_text
from agenticx.runtime.events import ANSWERING_EVENTS, ASKING_EVENTS, OWNER_CLOSED, EventType
from agenticx.runtime.user_requests.kinds import kind_of_event

__all__ = ["MessageReturned", "OutputFailed", "WaitingLine", "show_event", "show_turn"]


_QUEUED = Note("waiting for the turn that runs in this session … (Ctrl-C takes the message back)")
_RETURNED = Note("the turn that the message waited for was stopped", "warning")
_MODEL = "waiting for the model"
_WAITING_SECONDS = 0.25
_EXIT_SECONDS = 0.5
"""The delay after a second signal until the process exits, even if the turn's task has not ended."""


async def show_turn(
    client: Client,
    session_id: str,
    start: Callable[[], Awaitable[TurnPosition]],
    output: Output,
    responder: RequestResponder,
    keyboard: Keyboard,
) -> int:
    """Show the turn that `start` starts or finds until it ends, and return its exit code.

    SIGINT, SIGTERM and SIGHUP stop the turn; it still ends with its terminal event. A second signal cancels the caller
    at once. Raise `OutputFailed` or BrokenPipeError, after a stop request, if the output cannot be written.

    A message that waits for another turn is taken back instead of stopped; raise `MessageReturned` if it was returned
    although that turn was not stopped.
    """
    stop = asyncio.Event()
    with keyboard.keep_keys(), _stop_on_signals(stop, output, keyboard):
        position = await start()
        turn = _ShownTurn(position.turn_id, position.queued_message_id)
        stop_task = asyncio.create_task(_stop_when_requested(stop, client, session_id, turn))
        try:
            last = await _show_events(client, session_id, position, turn, output, responder)
        except (BrokenPipeError, OutputFailed):  # the reader closed the pipe, or the disk is full
            await _stop(client, session_id, turn)
            raise
        finally:
            stop_task.cancel()
            await responder.aclose()  # while the keys are kept: a request reads them until it has ended
    if last is None:
        output.show_note(Note("the turn's log could not be written to its end", "bad"))
        return FAILED
    return _exit_code(last)


class OutputFailed(AgenticXError):
    """Raised when the output of a turn can no longer be written."""


class MessageReturned(AgenticXError):
    """Raised when a message that waited for a turn was returned because the process that ran that turn ends."""


class _ShownTurn:
    """The turn that is shown; with a `queued_message_id`, that message waits for another turn, to begin this one."""

    def __init__(self, turn_id: str | None, queued_message_id: str | None) -> None:
        self.id = turn_id
        self.queued_message_id = queued_message_id
        self.begun = asyncio.Event()
        self._was_stopped = False  # True if somebody stopped the turn that ended last
        if queued_message_id is None:
            self.begun.set()

    def follow(self, event: Envelope) -> bool:
        """Take the next event of the session; return True if it is to be shown, as the message does not wait any more.

        The message may have been given to the running turn instead: that is the one to show then. Raise
        `MessageReturned`.
        """
        if self.queued_message_id is None:
            return True
        if event.terminal:
            self._was_stopped = event.data.get("code") == "stopped" and event.data.get("text") != OWNER_CLOSED
        if event.data.get("message_id") != self.queued_message_id:
            return False
        if event.type == EventType.HANDED_BACK:
            if not (self._was_stopped or event.data.get("removed")):
                raise MessageReturned("the process that ran the session has ended")
        elif event.type not in (EventType.TURN_STARTED, EventType.STEERED):
            return False
        self.id, self.queued_message_id = event.turn_id, None
        self.begun.set()
        return True


async def _stop_when_requested(stop: asyncio.Event, client: Client, session_id: str, turn: _ShownTurn) -> None:
    await stop.wait()
    with suppress(AgenticXError):  # the task that follows the turn reports a lost server
        await _stop(client, session_id, turn)


async def _stop(client: Client, session_id: str, turn: _ShownTurn) -> None:
    """Stop a turn, or take back the message that waits to begin it: the turn that runs is not stopped then."""
    if turn.queued_message_id is None or not await client.remove_queued(session_id, turn.queued_message_id):
        await turn.begun.wait()
        await client.stop(session_id)


async def _show_events(
    client: Client,
    session_id: str,
    position: TurnPosition,
    turn: _ShownTurn,
    output: Output,
    responder: RequestResponder,
) -> Envelope | None:
    """Show the events of a turn; return its terminal event, None if the log ends without one.

    For a message that is returned before its turn has begun, the last event is `handed_back`.
    """
    is_queued = turn.queued_message_id is not None
    if is_queued:
        output.show_note(_QUEUED)
    waiting = WaitingLine(output, is_waiting=not is_queued)
    showing = asyncio.create_task(waiting.show())
    try:
        async with client.follow(session_id, position) as events:
            async for event in events:
                if not turn.follow(event):
                    continue
                show_event(event, output, responder)
                if event.type == EventType.HANDED_BACK and turn.id is None:
                    if not event.data.get("removed"):
                        output.show_note(_RETURNED)
                    return event
                if event.turn_id == turn.id:
                    waiting.note(event)
                    if event.terminal:
                        return event
    finally:
        showing.cancel()
    return None


class WaitingLine:
    """A line that says what is waited for, from one second of silence on, with the seconds."""

    def __init__(self, output: Output, *, is_waiting: bool = True) -> None:
        self._output = output
        self._since = asyncio.get_running_loop().time()
        self._awaited = _MODEL if is_waiting else None

    def note(self, event: Envelope) -> None:
        """Take from an event of the turn what is waited for: nothing while text or a question is shown."""
        if event.type == EventType.TOKEN and event.data.get("waiting"):
            return
        self._since = asyncio.get_running_loop().time()
        match event.type:
            case EventType.TURN_STARTED | EventType.ROUND_START | EventType.TOOL_RESULT | EventType.COMPACTION:
                self._awaited = _MODEL
            case EventType.STATE if event.data["state"] in ("compacting", "planning"):
                self._awaited = _MODEL if event.data["state"] == "planning" else "summarising earlier messages"
            case EventType.TOOL_CALL | EventType.CONFIRM_RESPONSE:
                self._awaited = "waiting for the tool"
            case EventType.TOKEN | EventType.THINKING | EventType.FINAL | EventType.ERROR:
                self._awaited = None
            case _ if event.type in ASKING_EVENTS:
                self._awaited = None
            case _:
                pass

    async def show(self) -> None:
        """Draw the line whenever a second has passed, until the task is cancelled."""
        loop = asyncio.get_running_loop()
        drawn = 0
        while True:
            await asyncio.sleep(_WAITING_SECONDS)
            seconds = int(loop.time() - self._since)
            if self._awaited is not None and seconds not in (0, drawn):
                with suppress(OSError):  # the next event says that the output failed
                    self._output.show_waiting(f"… {self._awaited} ({seconds} s)")
            drawn = seconds


def show_event(event: Envelope, output: Output, responder: RequestResponder) -> None:
    """Show an event of a turn and tell the responder of its request; raise BrokenPipeError or `OutputFailed`."""
    try:
        output.show(event)
    except BrokenPipeError:
        raise
    except OSError as exc:
        raise OutputFailed(f"the output cannot be written: {error_text(exc)}") from exc
    if event.type in ASKING_EVENTS:
        responder.on_asked(kind_of_event(event.type), request_payload(event))
    elif event.type in ANSWERING_EVENTS:
        responder.on_closed(event.data["id"])


def _exit_code(terminal: Envelope) -> int:
    if terminal.type == EventType.FINAL:
        return DONE
    is_stopped = terminal.type == EventType.HANDED_BACK or terminal.data.get("code") == "stopped"
    return STOPPED if is_stopped else FAILED


@contextmanager
def _stop_on_signals(stop: asyncio.Event, output: Output, keyboard: Keyboard) -> Generator[None]:
    """Handle termination signals: the first sets `stop`, the second cancels the task, the third exits the process.

    Afterwards a SIGTERM or SIGHUP is raised again for the previous handler: a chat ends after its turn.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None

    def exit_at_once() -> None:
        keyboard.restore_at_exit()
        os._exit(STOPPED)

    exit_timer = threading.Timer(_EXIT_SECONDS, exit_at_once)
    exit_timer.daemon = True
    received: list[int] = []

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if exit_timer.is_alive():
            exit_at_once()
        if received:
            exit_timer.start()
            loop.call_soon_threadsafe(task.cancel)
            return
        received.append(number)
        loop.call_soon_threadsafe(stop.set)
        loop.call_soon_threadsafe(output.show_note, Note("stopping … (Ctrl-C again exits at once)"))

    # not loop.add_signal_handler: a handler of the interpreter also runs while the loop is blocked
    previous = {number: signal.signal(number, on_signal) for number in termination_signals()}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler or signal.SIG_DFL)
        if received and received[0] != signal.SIGINT and callable(previous[signal.Signals(received[0])]):
            signal.raise_signal(received[0])
