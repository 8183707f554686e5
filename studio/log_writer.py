"""Standard error of `agx serve`, written by a thread: a stderr that is not read does not block.

Without it a full pipe would stop the event loop at the next log line.
"""

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

_MAX_LINES = 10_000
_MAX_CHARS = 8_000_000
_STOP_SECONDS = 1.0


@contextmanager
def background_logging(level: Level) -> Generator[Callable[[str], None]]:
    """Log lines of `level` and above to stderr while the body runs; prints to `sys.stderr` are queued as well.

    Yields a function to be called once, with the first line of the output: all others stay queued until then.

    At the end queued lines are written for a second at most. A stderr without a descriptor (a stream in memory, as in
    a notebook) cannot block and is written to directly.
    """
    stderr, descriptor = sys.stderr, _descriptor_of_stderr()
    if descriptor is None:
        configure_logging(level)
        yield print_to_stderr
        return
    writer = LogWriter(partial(_write_all, descriptor), stderr.encoding)
    configure_logging(level, writer)
    buffer = cast("BinaryIO", _LogWriterStream(writer, stderr.fileno()))
    sys.stderr = printed = io.TextIOWrapper(buffer, stderr.encoding, "backslashreplace", line_buffering=True)
    try:
        yield writer.start
    finally:
        printed.flush()
        sys.stderr = stderr
        if writer.stop(_STOP_SECONDS):
            configure_logging(level)
            os.close(descriptor)


def print_to_stderr(line: str) -> None:
    """Print a line to stderr and flush."""
    print(line, file=sys.stderr, flush=True)


def _descriptor_of_stderr() -> int | None:
    """Return a duplicate of stderr's descriptor, or None if it has none.

    A duplicate, because the number of a descriptor that other code closes is reused for the next file or socket.
    """
    try:
        return os.dup(sys.stderr.fileno())
    except (AttributeError, OSError):  # sys.stderr is None, or has no descriptor
        return None


def _write_all(descriptor: int, data: bytes) -> None:
    """Write all of `data` to the descriptor.

    Not through `sys.stderr`: a thread that blocks inside that stream holds its lock, and other threads wait for it.
    """
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:  # the parent made it non-blocking
            select.select([], [descriptor], [])


@dataclass(frozen=True, slots=True)
class _Queued:
    """A queued record, or bytes to be written unchanged; `dropped` counts the lines dropped just before it."""

    record: logging.LogRecord | bytes
    length: int
    dropped: int = 0


class LogWriter(QueueHandler):
    """A log handler that queues lines; a daemon thread, run by `start`, formats, redacts and writes them.

    When the queue is full a line is dropped, and so are the following ones until half of the queue is free. One line in
    their place gives their number. After an `OSError` of `write` nothing is queued any more.
    """

    def __init__(
        self,
        write: Callable[[bytes], object],
        encoding: str = "utf-8",
        *,
        max_lines: int = _MAX_LINES,
        max_chars: int = _MAX_CHARS,
    ) -> None:
        self._pending = SimpleQueue[_Queued | None]()
        super().__init__(self._pending)
        self._write = write
        self._encoding = encoding
        self._max_lines, self._max_chars = max_lines, max_chars
        self._dropped = 0  # changed under the handler's lock, as is the next one
        self._queued_chars = 0
        self._written_chars = 0  # changed only by the thread
        self._closed = False
        self._is_drained = False
        self._first_line = b""
        self._thread = threading.Thread(target=self._run, name="agx-log", daemon=True)

    def start(self, first_line: str = "") -> None:
        """Start the thread; it writes `first_line` and then the queued lines."""
        self._first_line = f"{first_line}\n".encode(self._encoding, "backslashreplace") if first_line else b""
        self._thread.start()

    def stop(self, seconds: float) -> bool:
        """Accept no more lines; return True if all queued ones were written within `seconds`."""
        with self._locked():
            self._closed = True
            self._pending.put(None)
        if self._thread.ident is None:
            self._thread.start()
        self._thread.join(seconds)
        return self._is_drained

    # --- the side that logs -------------------------------------------------------------------------------------------

    def write_bytes(self, lines: bytes) -> None:
        """Queue or drop lines that are written unchanged."""
        with self._locked():
            self._put_or_drop(lines, len(lines))

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """Return a record whose content no longer changes.

        A message of another library, whose arguments may change, and any traceback are formatted now.
        """
        if not _is_log_line(record):
            message = record.getMessage()
            record = copy(record)
            record.msg, record.args = message, None
        if raised := record.exc_info:
            record = copy(record)
            record.exc_text = record.exc_text or (self.formatter or logging.Formatter()).formatException(raised)
            record.exc_info = None
        return record

    def enqueue(self, record: logging.LogRecord) -> None:
        """Queue or drop a record returned by `prepare`; the caller holds the handler's lock."""
        self._put_or_drop(record, _length(record))

    def handleError(self, record: logging.LogRecord) -> None:
        """Log that a record of another library cannot be formatted; called in the `except` block of the error."""
        template = record.msg if isinstance(record.msg, str) else type(record.msg).__name__
        error = "".join(traceback.format_exception_only(sys.exc_info()[1])).strip()
        self.enqueue(_record(logging.ERROR, "log line cannot be formatted", template=template, error=error))

    def _put_or_drop(self, record: logging.LogRecord | bytes, length: int) -> None:
        if self._closed:
            return
        divisor = 2 if self._dropped else 1
        lines, chars = self._pending.qsize(), self._queued_chars - self._written_chars + length
        if lines and (lines >= self._max_lines // divisor or chars > self._max_chars // divisor):
            self._dropped += 1
            return
        dropped, self._dropped = self._dropped, 0
        self._queued_chars += length
        self._pending.put(_Queued(record, length, dropped))

    @contextmanager
    def _locked(self) -> Generator[None]:
        self.acquire()
        try:
            yield
        finally:
            self.release()

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            if self._first_line:
                self._write(self._first_line)
            while (queued := self._pending.get()) is not None:
                self._report_dropped(queued.dropped)
                self._write_record(queued.record)
                self._written_chars += queued.length
                del queued  # its record need not stay in memory while the thread waits for the next one
                if self._pending.empty():
                    self._report_dropped(self._take_dropped())
            self._report_dropped(self._take_dropped())
        except OSError:  # the reader of stderr closed it
            self._closed = True
            while not self._pending.empty():
                self._pending.get()
        else:
            self._is_drained = True

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


class _LogWriterStream(io.RawIOBase):
    """A raw buffer that queues lines in a `LogWriter`; `fileno` and `isatty` report the descriptor."""

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


def _is_log_line(record: logging.LogRecord) -> bool:
    return isinstance(record.args, tuple) and len(record.args) == 1 and isinstance(record.args[0], LogLine)


def _length(record: logging.LogRecord) -> int:
    """Return the approximate number of characters that a prepared record keeps in memory."""
    line = record.args[0] if isinstance(record.args, tuple) and record.args else None
    message = line.length if isinstance(line, LogLine) else len(str(record.msg))
    return message + len(record.exc_text or "") + len(record.stack_info or "")


def _record(level: int, event: str, **fields: object) -> logging.LogRecord:
    """Return a log record of this module, made without its logger, since the handler's lock may be held."""
    return logging.LogRecord(__name__, level, __file__, 0, "%s", (LogLine({"event": event, **fields}),), None)
