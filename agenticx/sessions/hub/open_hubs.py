"""The hubs that are open in this program, by which a session is found by its id alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from agenticx.errors import SessionNotFound
from agenticx.runtime.events import Event
from agenticx.runtime.run_results import RunResult, UserInput
from agenticx.runtime.turn_context import TurnWork
from agenticx.runtime.user_requests.kinds import AnswerT
from agenticx.sessions.log.events import SessionEvent
from agenticx.sessions.log.session_record import TurnRecord
from agenticx.sessions.store.base import Store

__all__ = ["OpenHub", "hub_of", "register_hub", "remove_hub"]


class OpenHub(Protocol):
    """The methods of a `Hub` that run agents, and an application's own work, as turns."""

    store: Store

    async def run_work(
        self, session_id: str, user_input: UserInput, work: TurnWork, *, turn_id: str | None = None
    ) -> TurnRecord: ...
    def run_turn(self, *args: Any, **options: Any) -> AsyncGenerator[Event]: ...
    async def turn_result(self, *args: Any, **options: Any) -> RunResult[Any]: ...
    async def answer(self, request_id: str, answer: AnswerT, *, digest: str = "") -> AnswerT: ...
    def running_turn_id(self, session_id: str) -> str | None: ...
    async def suspended_turn(self, session_id: str) -> TurnRecord | None: ...
    async def wait_for_turn(self, session_id: str, turn_id: str) -> None: ...
    def follow(self, session_id: str, *, after: int = 0) -> AsyncGenerator[SessionEvent]: ...
    async def stop(self, session_id: str) -> TurnRecord | None: ...
    async def reset_team(self, session_id: str, team: str) -> None: ...


_open: WeakKeyDictionary[OpenHub, asyncio.AbstractEventLoop] = WeakKeyDictionary()


def register_hub(hub: OpenHub) -> None:
    """Add a hub of the running event loop."""
    _open[hub] = asyncio.get_running_loop()


def remove_hub(hub: OpenHub) -> None:
    """Remove a hub that is being closed."""
    _open.pop(hub, None)


async def hub_of(session_id: str) -> OpenHub:
    """Return the open hub of this event loop that has the session; raise `SessionNotFound`."""
    loop, hubs = asyncio.get_running_loop(), list(_open.items())
    for hub in [hub for hub, of_loop in hubs if of_loop is loop]:
        with suppress(SessionNotFound):
            await hub.store.catalog.get(session_id)
            return hub
    if any(of_loop is not loop and not of_loop.is_closed() for _, of_loop in hubs):
        raise SessionNotFound(
            f"no hub of this event loop has a session with the id {session_id!r}; a hub is open on another event loop, "
            "and its sessions can be used only there: await `arun` there, instead of `run`"
        )
    raise SessionNotFound(f"no open hub has a session with the id {session_id!r}; open it with open_hub first")
