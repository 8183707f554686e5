"""The methods of a hub for the files that live in sessions."""

from __future__ import annotations

from abc import ABC
from typing import TYPE_CHECKING

from agenticx.sessions.files.artifacts import artifacts_of_state
from agenticx.tools.session_files import Artifacts

if TYPE_CHECKING:
    from agenticx.sessions.hub.turn_services import TurnServices
    from agenticx.sessions.store.base import Store

__all__ = ["ArtifactMethods"]


class ArtifactMethods(ABC):
    """A base class of hubs with the files that live in sessions."""

    store: Store
    _services: TurnServices

    async def artifacts(self, session_id: str) -> Artifacts:
        """Return the files of a session as they are stored, for reading only.

        Raises `SessionNotFound`, `DamagedData`.
        """
        await self.store.catalog.get(session_id)
        state = await self.store.log.state(session_id)
        return artifacts_of_state(state.state_json, self._services.blobs, session_id)
