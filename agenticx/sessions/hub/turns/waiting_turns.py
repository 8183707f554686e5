"""Turns of an earlier process that wait for a person, until they are begun again."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from agenticx.runtime.resume import ResumedTurn

__all__ = ["WaitingTurns"]


class WaitingTurns:
    """The waiting turns `by_id`.

    `open_questions` are those that they ask again, by id, each with an event that is set once that is so, or the turn
    is over.
    """

    def __init__(self) -> None:
        self.by_id: dict[str, _WaitingTurn] = {}
        self.open_questions: dict[str, asyncio.Event] = {}

    def add(self, resumed: Sequence[ResumedTurn], *, detached: bool = False, ask: bool = True) -> None:
        """Add turns and those below them; with `detached` the former go on by themselves.

        Unless they `ask` their questions again, nobody can wait for that; they are added again when they do.
        """
        for one in resumed:
            open_questions = [question for question in one.point.questions.values() if question.answer is None]
            questions = open_questions if ask else []
            self.by_id[one.turn_id] = waiting = _WaitingTurn(
                parent_id=one.parent_turn_id,
                detached=detached,
                questions={question.request.id: question.asked for question in questions},
            )
            self.open_questions |= waiting.questions
            self.add(one.point.children, ask=ask)

    @property
    def detached(self) -> Sequence[str]:
        """The ids of the turns that go on by themselves."""
        return [id_ for id_, one in self.by_id.items() if one.detached]

    def below(self, *turn_ids: str) -> Sequence[str]:
        """Return the ids of the turns directly below those, which do not outlive them."""
        waiting = self.by_id.items()
        return [id_ for id_, one in waiting if one.parent_id in turn_ids and not one.detached]

    def forget(self, turn_ids: Sequence[str]) -> Collection[str]:
        """Remove turns that are not begun again, and those below them, and return all their ids."""
        forgotten = set[str]()
        while turn_ids:
            forgotten.update(turn_ids)
            for id_ in turn_ids:
                if (waiting := self.by_id.pop(id_, None)) is not None:
                    waiting.close()
            turn_ids = self.below(*forgotten)
        return forgotten


@dataclass(frozen=True, slots=True, kw_only=True)
class _WaitingTurn:
    """A turn that is to go on; `questions` are those that it asks again, as `open_questions`."""

    parent_id: str
    detached: bool
    questions: Mapping[str, asyncio.Event]

    def close(self) -> None:
        """Let those who answer its questions wait no more."""
        for asked in self.questions.values():
            asked.set()
