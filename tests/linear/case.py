"""One function of the table: the inputs it is given and how it is called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Case", "Make", "name_of"]

Make = Callable[[int], Any]
"""An input of about so many characters or bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A function or class, called by `run` with each of the `inputs`, which are named by what is odd about them.

    Where `run` returns a generator, the loop has its turn between two of its items, as between two reads of a socket.
    `where` says where the engine runs the function; a `program` is the command line, whose loop serves nobody else.
    `awaited` is a coroutine function, which goes into a thread itself where it has to.
    `also` are other public functions that `run` goes through.
    """

    of: Callable[..., Any]
    run: Callable[[Any], object]
    inputs: Mapping[str, Make]
    where: Literal["loop", "thread", "awaited", "program"] = "loop"
    variant: str = ""
    also: tuple[Callable[..., Any], ...] = field(default=())

    @property
    def name(self) -> str:
        """`llms.arguments.parse_arguments`, with the variant behind it."""
        name = name_of(self.of).removeprefix("agenticx.")
        return f"{name}, {self.variant}" if self.variant else name


def name_of(function: Callable[..., Any]) -> str:
    """The module and name of a function or class."""
    return f"{function.__module__}.{function.__qualname__}"
