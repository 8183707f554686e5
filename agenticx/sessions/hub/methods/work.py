"""The methods of a hub with which an application runs work of its own as turns of a session."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from agenticx.argument_types import check_str, check_type
from agenticx.llms.openai_rows import user_message
from agenticx.runtime.results import UserInput
from agenticx.runtime.turn import TurnWork
from agenticx.sessions.hub.commands import Command, Submit, WaitingTurn
from agenticx.sessions.hub.submission import TurnRequest, check_files
from agenticx.sessions.store.records import TurnRecord

__all__ = ["WorkMethods"]


class WorkMethods(ABC):
    """A base class of hubs with the turns whose work is code of the application.

    A process that ends, or is killed, takes that code with it. A turn that waited for a person then, itself or in all
    turns below it, waits on after the next start, without any code: its questions and confirmations are listed and can
    be answered, a stop ends it, and the session is busy with it, until the application runs the work in it again.
    """

    @abstractmethod
    def _check_open(self) -> None: ...
    @abstractmethod
    async def _perform(self, session_id: str, command: Command) -> Any: ...
    @abstractmethod
    async def _perform_here(self, session_id: str, command: Command) -> Any: ...

    async def run_work(
        self, session_id: str, user_input: UserInput, work: TurnWork, *, turn_id: str | None = None
    ) -> TurnRecord:
        """Begin a turn in which `work` takes the place of the model calls, see `TurnContext`, and return it.

        With the `turn_id` of the session's `waiting_turn` it goes on in that one, which has its input already: the work
        finds the questions that it has asked there, with the answers given since, and the turns below it, which go on
        when it begins them again. Without, a turn that waits so is ended as interrupted first. Raises as `submit` does,
        `TurnFailed` if that turn does not wait any more, and `SessionOwnedElsewhere`: it runs in this process only.
        """
        self._check_open()
        check_type("session_id", session_id, str, "the id of a session, which is a str")
        if turn_id is not None:
            check_str("turn_id", turn_id)
        message = user_message(user_input)
        await check_files(message.attachments)
        request = TurnRequest(input=message.content, attachments=message.attachments)
        return (await self._perform_here(session_id, Submit(request=request, work=work, turn_id=turn_id))).turn

    async def waiting_turn(self, session_id: str) -> TurnRecord | None:
        """Return the turn of an earlier process that waits for its work, None if there is none.

        Raises `SessionNotFound`, `StoreError`.
        """
        return await self._perform(session_id, WaitingTurn())
