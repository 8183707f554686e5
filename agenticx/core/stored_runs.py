"""Runs of tasks as turns of stored sessions.

A run is a turn of its session; its attempts, and the turns in which guide rails ask a model, are child turns. All are
stored as they happen: after a crash the log shows what had begun, and the next run ends the open turns as interrupted.
A run that waited for a person waits on: run again in its session, the same task continues in the old turn, with the
answer, and the calls before the question do not run again. In a session, agents read the results of earlier runs, also
of a run without an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from agenticx.clocks import Clock
from agenticx.core.execution import Execution
from agenticx.llms.base import ChatModel
from agenticx.messages import clean_text
from agenticx.runtime import AsyncConfirmGate, Event
from agenticx.runtime.interrupts import cancel_and_wait
from agenticx.runtime.turn import Turn
from agenticx.settings import Settings
from agenticx.threads import run_in_thread

if TYPE_CHECKING:
    from agenticx.sessions.hub.hub import Hub
    from agenticx.sessions.hub.open_hubs import OpenHub
    from agenticx.sessions.log.session_record import TurnRecord
    from agenticx.sessions.store.base import Log, Store

__all__ = ["StoredRuns"]


class StoredRuns:
    """The sessions in which an executor stores its runs.

    With a `store`, an open one or a URL as for `open_hub`, each run has a new session, or all continue the session
    `session_id`. Without a store, `session_id` is a session of an open hub. `model_of` finds a model by name.
    """

    def __init__(
        self,
        store: Store | str | None,
        session_id: str | None,
        *,
        model_of: Callable[[str], ChatModel],
        settings: Settings,
        clock: Clock,
    ) -> None:
        self._store = store
        self._session_id = session_id
        self._model_of = model_of
        self._settings = settings
        self._clock = clock
        self._opened = AsyncExitStack()
        self._hub: Hub | None = None
        self._opening = asyncio.Lock()

    @property
    def is_own(self) -> bool:
        """True if the executor has a store of its own; no person answers in its sessions."""
        return self._store is not None

    async def events(self, execution: Execution) -> AsyncGenerator[Event, None]:
        """Run a task, and yield the events of its turn and its child turns, each once it is stored.

        Closing the generator early stops the run; a store that is closed while the run waits for a person leaves it so.
        Raises `SessionNotFound`, `SessionBusy`, `OwnedElsewhere`, `StoreError`, and `SettingsError` for a URL that
        cannot be used.
        """
        from agenticx.sessions.log.turn_tree import TurnTree  # on first use: its package imports the stores

        hub, session_id = await self._session_for(execution)
        execution.session_id = session_id
        prompt, waiting = clean_text(execution.prompt), await hub.suspended_turn(session_id)
        turn_id = None if waiting is None or waiting.input != prompt else waiting.id
        work = _Work(execution, hub.store.log, session_id)
        beginning = asyncio.create_task(hub.run_work(session_id, prompt, work, turn_id=turn_id), name="agx run")
        try:
            await asyncio.wait({beginning})  # not cancelled with the caller: the turn may be stored already
        except asyncio.CancelledError:
            await _end(hub, session_id, beginning)
            raise
        turn = beginning.result()
        tree, of_children, is_over, waits_on = TurnTree(), list[Event](), False, False
        try:
            async for item in hub.follow(session_id, after=turn.after_seq or 0):
                event = item.event
                if event.type == "turn_started":
                    tree.apply(event)
                if not tree.is_within(item.turn_id, {turn.id}):
                    continue
                if item.turn_id != turn.id:
                    of_children.append(event)
                is_over = item.turn_id == turn.id and event.terminal
                if is_over and event.type == "error":
                    execution.fail(event.data["code"], event.data["text"], of_children)
                yield event
                if is_over:
                    return
            waits_on = True
        finally:
            if not (is_over or waits_on):
                await hub.stop(session_id)
            await hub.wait_for_turn(session_id, turn.id)
        execution.fail("interrupted", "the store was closed while the run waited for a person; run the task again")

    async def aclose(self) -> None:
        """Close the store if it was opened here; a later run opens it again."""
        self._hub = None
        await self._opened.aclose()

    async def _session_for(self, execution: Execution) -> tuple[OpenHub, str]:
        """Return the session of a run and its hub: an open hub, or the one over the store."""
        if self._store is None:
            from agenticx.sessions.hub.open_hubs import hub_of  # on first use: it imports the stores

            assert self._session_id is not None
            return await hub_of(self._session_id), self._session_id
        async with self._opening:
            if self._hub is None:
                self._hub = await self._open(self._store, execution.acting.model)
        return self._hub, self._session_id or (await self._hub.create()).id

    async def _open(self, given: Store | str, model: ChatModel) -> Hub:
        from agenticx.sessions.hub.hub import Hub

        async with AsyncExitStack() as opened:
            store = given
            if isinstance(store, str):
                store = await run_in_thread(self._open_store, store, name="agx opening")
                opened.push_async_callback(store.aclose)
            hub = Hub(
                store,
                models=lambda name: model if name is None else self._model_of(name),
                tools=lambda _record: (),
                settings=self._settings,
                gate=_UnreadGate(),
                clock=self._clock,
            )
            opened.push_async_callback(hub.close)
            await hub.recover(resume_only=())
            self._opened = opened.pop_all()
        return hub

    def _open_store(self, url: str) -> Store:
        from agenticx.sessions.store.factory import absolute_url, open_store

        return open_store(self._settings.model_copy(update={"store_url": absolute_url(url)}), self._clock)


async def _end(hub: OpenHub, session_id: str, beginning: asyncio.Task[TurnRecord]) -> None:
    """End a run whose caller is cancelled as it begins, and wait for its end; another cancellation ends the wait."""
    try:
        await asyncio.wait({beginning})
        if beginning.exception() is None:
            await hub.stop(session_id)
            await hub.wait_for_turn(session_id, beginning.result().id)
    finally:
        await cancel_and_wait(beginning)


class _UnreadGate(AsyncConfirmGate):
    """The gate of a hub whose requests nobody reads; the gate of the executor is asked instead."""

    @property
    def is_given(self) -> bool:
        return False


class _Work:
    """The work of a run's turn: the attempts and their checks; the answer of the run is the answer of the turn."""

    def __init__(self, execution: Execution, log: Log, session_id: str) -> None:
        self._execution = execution
        self._log = log
        self._session_id = session_id

    async def __call__(self, turn: Turn) -> str:
        from agenticx.sessions.history.task_run_messages import (
            with_task_run_messages,  # on first use: it imports the stores
        )

        execution, variables = self._execution, turn.session.state.context_variables
        execution.history = await with_task_run_messages(self._log, self._session_id, turn.session.messages[:-1])
        execution.context_variables = {**variables, **execution.context_variables}
        async for _ in execution.events():
            pass
        result = execution.result()
        variables.update(result.context_variables)
        execution.check()
        return result.result
