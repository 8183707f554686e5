"""The keyboard of a terminal; keys typed during a turn wait for the prompt, and answer no request."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, Protocol

from agenticx.runtime.gates.terminal import discard_typed_ahead

__all__ = ["PASTE_END", "ChatKeyboard", "Keyboard", "LineKeyboard", "strip_paste_marks"]

_READ_BYTES = 65_536
_MAX_KEPT_BYTES = 16 * 1024 * 1024
_PASTE_AS_ONE = "\x1b[?2004h"  # bracketed paste: https://invisible-island.net/xterm/xterm-paste64.html
_PASTE_AS_TYPED = "\x1b[?2004l"
_PASTE_START = "\x1b[200~"
PASTE_END = "\x1b[201~"


class Keyboard(Protocol):
    """The keyboard while a turn runs."""

    def keep_keys(self) -> AbstractContextManager[None]:
        """Keep the keys that are typed while the block runs, without showing them."""
        ...

    def read_lines(self) -> AbstractContextManager[bool]:
        """Let the user type lines while the block runs, a request; nothing that was typed before is one of them.

        The value is True if the rest of a bracketed paste that began before is among the first lines.
        """
        ...

    def restore_at_exit(self) -> None:
        """Restore the terminal at once, because the process exits without running any `finally`; in any thread."""
        ...


class LineKeyboard:
    """The keyboard of a command without a prompt, whose terminal stays as it is."""

    def keep_keys(self) -> AbstractContextManager[None]:
        return nullcontext()

    @contextmanager
    def read_lines(self) -> Generator[bool]:
        discard_typed_ahead()
        yield False

    def restore_at_exit(self) -> None:
        return


def strip_paste_marks(line: str) -> str | None:
    """Return a line without the marks of a bracketed paste; None if it is the end of one that began before the line.

    >>> strip_paste_marks("\x1b[200~y\x1b[201~")
    'y'
    """
    before, end, _ = line.partition(PASTE_END)
    if end and _PASTE_START not in before:
        return None
    return line.replace(_PASTE_START, "").replace(PASTE_END, "")


class ChatKeyboard:
    """The keyboard of a chat: between its prompts, typed keys are not echoed and wait for the next prompt.

    Ctrl-C stays a signal. `take` returns the bytes typed since it was last called.
    """

    def __init__(self) -> None:
        self._kept = bytearray()
        self._descriptor = sys.stdin.fileno()
        self._found: list[Any] | None = None  # the terminal's attributes at the start; None: it has none to change
        self._is_keeping = False

    def __enter__(self) -> ChatKeyboard:
        self._found = _attributes(self._descriptor)
        self._hide()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._show()

    def take(self) -> bytes:
        """Return the bytes that were typed outside a prompt."""
        kept = bytes(self._kept)
        self._kept.clear()
        pasted, end, typed = kept.partition(PASTE_END.encode())
        if end and _PASTE_START.encode() not in pasted:  # the rest of a paste whose first line answered a request
            return typed
        return kept

    @contextmanager
    def keep_keys(self) -> Generator[None]:
        self._begin_keeping()
        try:
            yield
        finally:
            self._end_keeping()

    @contextmanager
    def read_lines(self) -> Generator[bool]:
        was_keeping = self._is_keeping
        while self._is_keeping and select.select([self._descriptor], [], [], 0)[0]:
            self._keep()
        self._end_keeping()
        self._show()
        is_pasting = self._kept.rfind(_PASTE_START.encode()) > self._kept.rfind(PASTE_END.encode())
        self._kept[:] = self._kept.rstrip(b"\r\n")  # a draft for the next prompt: it must not be sent by itself
        if is_pasting:
            self._kept += PASTE_END.encode()
        discard_typed_ahead()
        try:
            yield is_pasting
        finally:
            self._hide()
            if was_keeping:
                self._begin_keeping()

    def restore_at_exit(self) -> None:
        if self._found is not None:  # also while a prompt or a program of the user has changed the terminal
            _set_attributes(self._descriptor, self._found)
            with suppress(OSError):
                if select.select([], [self._descriptor], [], 0)[1]:  # a stopped terminal must not hold up the exit
                    os.write(self._descriptor, _PASTE_AS_TYPED.encode())

    def _show(self) -> None:
        if self._found is not None:
            _set_attributes(self._descriptor, self._found)

    def _hide(self) -> None:
        if self._found is not None:
            _set_attributes(self._descriptor, _without_echo(self._found))

    def _begin_keeping(self) -> None:
        with suppress(NotImplementedError):  # Windows: the system keeps the keys
            loop = asyncio.get_running_loop()
            loop.add_reader(self._descriptor, self._keep)
            loop.add_signal_handler(signal.SIGCONT, self._hide)  # after Ctrl-Z the terminal has the shell's attributes
            self._is_keeping = True
            _control(_PASTE_AS_ONE)

    def _end_keeping(self) -> None:
        if self._is_keeping:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            asyncio.get_running_loop().remove_signal_handler(signal.SIGCONT)
            self._is_keeping = False
            _control(_PASTE_AS_TYPED)

    def _keep(self) -> None:
        try:
            typed = os.read(self._descriptor, _READ_BYTES)
        except OSError:  # the terminal was closed
            typed = b""
        if not typed:
            self._end_keeping()
        elif len(self._kept) + len(typed) <= _MAX_KEPT_BYTES:
            self._kept += typed


def _control(sequence: str) -> None:
    """Send a control sequence to the terminal."""
    stream = sys.stdout if sys.stdout.isatty() else sys.stderr
    with suppress(OSError):
        stream.write(sequence)
        stream.flush()


def _attributes(descriptor: int) -> list[Any] | None:
    if sys.platform == "win32":
        return None
    import termios

    try:
        return termios.tcgetattr(descriptor)
    except termios.error:
        return None


def _set_attributes(descriptor: int, attributes: list[Any]) -> None:
    if sys.platform == "win32":
        return
    import termios

    with suppress(termios.error):  # it was closed
        termios.tcsetattr(descriptor, termios.TCSANOW, attributes)


def _without_echo(attributes: list[Any]) -> list[Any]:
    """Return the attributes of a terminal that passes keys on one by one and shows none; Ctrl-C stays a signal."""
    if sys.platform == "win32":
        return attributes
    import termios

    iflag, oflag, cflag, lflag, ispeed, ospeed, characters = attributes
    lflag &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN)
    iflag &= ~(termios.ICRNL | termios.INLCR | termios.IGNCR)
    characters = list(characters)
    characters[termios.VMIN], characters[termios.VTIME] = 1, 0
    return [iflag, oflag, cflag, lflag, ispeed, ospeed, characters]
