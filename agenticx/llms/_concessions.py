"""How a server that refuses the way it was asked is asked another way, as long as there is one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from agenticx.errors import ModelError

__all__ = ["Concession", "conceded"]

Way = TypeVar("Way")
"""What is asked differently: a request, a dialect, a model."""


@dataclass(frozen=True, slots=True)
class Concession(Generic[Way]):
    """Another way to ask: which refusals call for it, what it makes of a way, and what the log says of it."""

    refusal: re.Pattern[str]
    change: Callable[[Way], Way]
    said: str


def conceded(asked: Way, refusal: ModelError, possible: Iterable[Concession[Way]]) -> Concession[Way] | None:
    """The first that a server's refusal calls for and that makes a difference to how it was `asked`, None if none."""
    if refusal.status is None:
        return None
    text = str(refusal)
    return next((each for each in possible if each.refusal.search(text) and each.change(asked) != asked), None)
