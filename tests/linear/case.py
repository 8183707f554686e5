"""One row of the table: a function, its inputs and the call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["LinearCase", "Make", "name_of"]

Make = Callable[[int], Any]
"""Makes an input of about the given number of characters or bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearCase:
    """A function or class `of`, called by `run` with each of the `inputs`, which are named by their oddity.

    If `run` returns a generator, the event loop runs between two of its items, as between two reads of a socket.
    `where` is the place where the engine runs the function: on the event loop, in a thread, or in a `program`, the
    command line, whose loop serves no other task. `awaited` is a coroutine function that uses a thread itself when
    necessary. `also` are other public functions that `run` calls.
    """

    of: Callable[..., Any]
    run: Callable[[Any], object]
    inputs: Mapping[str, Make]
    where: Literal["loop", "thread", "awaited", "program"] = "loop"
    variant: str = ""
    also: tuple[Callable[..., Any], ...] = field(default=())

    @property
    def name(self) -> str:
        """The row's name, such as `llms.arguments.parse_arguments`, followed by the variant."""
        name = name_of(self.of).removeprefix("agenticx.")
        return f"{name}, {self.variant}" if self.variant else name


def name_of(function: Callable[..., Any]) -> str:
    """Return the module and name of a function or class."""
    return f"{function.__module__}.{function.__qualname__}"
