"""Standard error of `agx serve`: a thread writes to it, so that a stderr that nobody reads does not stop the server."""

from __future__ import annotations

import io
import logging
import os
import select
import sys
import threading
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from functools import partial
from logging.handlers import QueueHandler
from queue import SimpleQueue
from typing import TYPE_CHECKING, BinaryIO, cast

from agenticx.logs import Level, LogLine, configure_logging

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["LogWriter", "background_logging", "print_to_stderr"]

_MOST_LINES = 10_000
_MOST_CHARS = 8_000_000
_ENDING_SECONDS = 1.0


@contextmanager
def background_logging(level: Level) -> Generator[Callable[[str], None]]:
    """Log from `level` on to stderr while the body runs; whatever prints to `sys.stderr` meanwhile is queued as well.

    Yields a function that is called once, with the line that stands before all others: until then they wait.

    At the end waiting lines are written for a second at most. A stderr without a descriptor (a stream in memory, as in
    a notebook) cannot block and is written to at once.
    """
    stderr, descriptor = sys.stderr, _descriptor_of_stderr()
    if descriptor is None:
        configure_logging(level)
        yield print_to_stderr
        return
    writer = LogWriter(partial(_write_all, descriptor), stderr.encoding)
    configure_logging(level, writer)
    buffer = cast("BinaryIO", _Printed(writer, stderr.fileno()))
    sys.stderr = printed = io.TextIOWrapper(buffer, stderr.encoding, "backslashreplace", line_buffering=True)
    try:
        yield writer.begin
    finally:
        printed.flush()
        sys.stderr = stderr
        if writer.end(_ENDING_SECONDS):
            configure_logging(level)
            os.close(descriptor)


def print_to_stderr(line: str) -> None:
    """Print a line at once."""
    print(line, file=sys.stderr, flush=True)


def _descriptor_of_stderr() -> int | None:
    """Return a descriptor of our own: the number of one that somebody closed is given to the next file or socket."""
    try:
        return os.dup(sys.stderr.fileno())
    except (AttributeError, OSError):  # sys.stderr is None, or has no descriptor
        return None


def _write_all(descriptor: int, data: bytes) -> None:
    """Write to the descriptor itself: who waits for its reader inside `sys.stderr` keeps the lock of that stream."""
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:  # the parent made it non-blocking
            select.select([], [descriptor], [])


@dataclass(frozen=True, slots=True)
class _Queued:
    """A record, or bytes that are written as they are. `dropped` counts the lines before it that found no room."""

    record: logging.LogRecord | bytes
    length: int
    dropped: int = 0


class LogWriter(QueueHandler):
    """A log handler that queues lines; from `begin` on a daemon thread formats, redacts and writes them.

    A line that finds the queue full is dropped, and so are the following ones until half of the queue is free. One line
    in their place has their number. After an `OSError` of `write` nothing is queued any more.
    """

    def __init__(
        self,
        write: Callable[[bytes], object],
        encoding: str = "utf-8",
        *,
        most_lines: int = _MOST_LINES,
        most_chars: int = _MOST_CHARS,
    ) -> None:
        self._waiting = SimpleQueue[_Queued | None]()
        super().__init__(self._waiting)
        self._write = write
        self._encoding = encoding
        self._most_lines, self._most_chars = most_lines, most_chars
        self._dropped = 0  # changed under the handler's lock, as is the next one
        self._queued_chars = 0
        self._written_chars = 0  # changed by the thread alone
        self._closed = False
        self._written_all = False
        self._first = b""
        self._thread = threading.Thread(target=self._work, name="agx-log", daemon=True)

    def begin(self, first: str = "") -> None:
        """Start the thread, which writes the line `first` and then what waits."""
        self._first = f"{first}\n".encode(self._encoding, "backslashreplace") if first else b""
        self._thread.start()

    def end(self, seconds: float) -> bool:
        """Take no more lines; return whether all that waited were written within `seconds`."""
        with self._locked():
            self._closed = True
            self._waiting.put(None)
        if self._thread.ident is None:
            self._thread.start()
        self._thread.join(seconds)
        return self._written_all

    # --- the side that logs -------------------------------------------------------------------------------------------

    def write_bytes(self, lines: bytes) -> None:
        """Queue or drop lines that are written as they are."""
        with self._locked():
            self._put_or_drop(lines, len(lines))

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """Return a record that stays as it is: a message that is not ours, and any traceback, are formatted now."""
        if not _is_ours(record):
            message = record.getMessage()
            record = copy(record)
            record.msg, record.args = message, None
        if raised := record.exc_info:
            record = copy(record)
            record.exc_text = record.exc_text or (self.formatter or logging.Formatter()).formatException(raised)
            record.exc_info = None
        return record

    def enqueue(self, record: logging.LogRecord) -> None:
        """Queue or drop what `prepare` returned; the lock is held."""
        self._put_or_drop(record, _length(record))

    def handleError(self, record: logging.LogRecord) -> None:
        """Log that a record of another library cannot be formatted; called while the exception is handled."""
        template = record.msg if isinstance(record.msg, str) else type(record.msg).__name__
        error = "".join(traceback.format_exception_only(sys.exc_info()[1])).strip()
        self.enqueue(_record(logging.ERROR, "log line cannot be formatted", template=template, error=error))

    def _put_or_drop(self, record: logging.LogRecord | bytes, length: int) -> None:
        if self._closed:
            return
        share = 2 if self._dropped else 1
        lines, chars = self._waiting.qsize(), self._queued_chars - self._written_chars + length
        if lines and (lines >= self._most_lines // share or chars > self._most_chars // share):
            self._dropped += 1
            return
        dropped, self._dropped = self._dropped, 0
        self._queued_chars += length
        self._waiting.put(_Queued(record, length, dropped))

    @contextmanager
    def _locked(self) -> Generator[None]:
        self.acquire()
        try:
            yield
        finally:
            self.release()

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            if self._first:
                self._write(self._first)
            while (queued := self._waiting.get()) is not None:
                self._report_dropped(queued.dropped)
                self._write_record(queued.record)
                self._written_chars += queued.length
                del queued  # not kept while waiting
                if self._waiting.empty():
                    self._report_dropped(self._take_dropped())
            self._report_dropped(self._take_dropped())
        except OSError:  # nobody reads stderr any more
            self._closed = True
            while not self._waiting.empty():
                self._waiting.get()
        else:
            self._written_all = True

    def _take_dropped(self) -> int:
        with self._locked():
            dropped, self._dropped = self._dropped, 0
        return dropped

    def _report_dropped(self, lines: int) -> None:
        if lines:
            self._write_record(_record(logging.WARNING, "log lines dropped", lines=lines))

    def _write_record(self, record: logging.LogRecord | bytes) -> None:
        if isinstance(record, logging.LogRecord):
            self._write(f"{self.format(copy(record))}\n".encode(self._encoding, "backslashreplace"))
        else:
            self._write(record)


class _Printed(io.RawIOBase):
    """The buffer of a text stream; lines go to a `LogWriter`. In everything else it is the descriptor."""

    def __init__(self, writer: LogWriter, descriptor: int) -> None:
        self._writer = writer
        self._descriptor = descriptor

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer, /) -> int:
        lines = bytes(data)
        self._writer.write_bytes(lines)
        return len(lines)

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)


def _is_ours(record: logging.LogRecord) -> bool:
    return isinstance(record.args, tuple) and len(record.args) == 1 and isinstance(record.args[0], LogLine)


def _length(record: logging.LogRecord) -> int:
    """Return about how many characters a prepared record keeps in memory."""
    line = record.args[0] if isinstance(record.args, tuple) and record.args else None
    message = line.length if isinstance(line, LogLine) else len(str(record.msg))
    return message + len(record.exc_text or "") + len(record.stack_info or "")


def _record(level: int, event: str, **fields: object) -> logging.LogRecord:
    """Return a record of this module, made without its logger: the lock of the handler may be held."""
    return logging.LogRecord(__name__, level, __file__, 0, "%s", (LogLine({"event": event, **fields}),), None)
