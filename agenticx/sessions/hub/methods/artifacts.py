"""The methods of a hub for the files that live in sessions, and for the options made to choose from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agenticx.runtime import Session
from agenticx.runtime.session import Option
from agenticx.sessions.files.options import OptionState, find_option, option_states, stored_session_files
from agenticx.sessions.hub.commands import Command, Pick, StopOption
from agenticx.sessions.store.records import SessionRecord
from agenticx.tools.session_files import Artifacts

if TYPE_CHECKING:
    from agenticx.sessions.hub.turn_services import TurnServices
    from agenticx.sessions.store.base import Store

__all__ = ["ArtifactMethods"]


class ArtifactMethods(ABC):
    """A base class of hubs with the files that live in sessions."""

    store: Store
    _services: TurnServices

    @abstractmethod
    async def _perform(self, session_id: str, command: Command) -> Any: ...
    @abstractmethod
    async def running_turn_ids(self, session_ids: Collection[str]) -> Mapping[str, str]: ...

    async def artifacts(self, session_id: str, *, option: int | None = None) -> Artifacts:
        """Return the files of a session, or of one of its options, as they are stored; for reading only.

        Raises `SessionNotFound`, `UnknownOption`, `DamagedData`.
        """
        session = await self._stored(session_id)
        return session.artifacts if option is None else find_option(session.options, option).artifacts

    async def options(self, session_id: str) -> Sequence[tuple[Option, OptionState]]:
        """Return the options of a session, and how each stands.

        Raises `SessionNotFound`, `DamagedData`.
        """
        options = (await self._stored(session_id)).options
        run_id = (await self.running_turn_ids([session_id])).get(session_id)
        running = [option.turn_id for option in options if option.run_id == run_id]
        turn_ids = [option.turn_id for option in options]
        states = await option_states(self.store.log, session_id, turn_ids, running=running)
        return [(option, states[option.turn_id]) for option in options]

    async def pick(self, session_id: str, number: int) -> SessionRecord:
        """Go on with an option: its files become the session's, and its answer a part of the conversation.

        The others stay, and another pick changes it. Raises `SessionNotFound`, `UnknownOption`, `OptionNotDone` for one
        without an answer, and `SessionBusy` while a turn runs.
        """
        return await self._perform(session_id, Pick(number=number))

    async def stop_option(self, session_id: str, number: int) -> None:
        """Stop an option that runs; the others go on. Raises `SessionNotFound`, `UnknownOption`."""
        await self._perform(session_id, StopOption(number=number))

    async def _stored(self, session_id: str) -> Session:
        """Return a session with its files and options as they are stored, and nothing else."""
        await self.store.catalog.get(session_id)
        state = await self.store.log.state(session_id)
        return stored_session_files(state.state_json, self._services.blobs, session_id)
