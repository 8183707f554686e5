"""Running one turn: its events are committed in batches while it runs, and it always gets a terminal event.

Readers get an event only once it is stored. So a client that resumes with its cursor gets exactly what it missed, and
all clients of a session see the same turn.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any, Protocol

from agenticx.clocks import Clock
from agenticx.errors import AgenticXError, SettingsError
from agenticx.llms.base import ChatModel
from agenticx.messages import ToolCall, UserMessage
from agenticx.runtime import (
    AgentRuntime,
    AsyncConfirmGate,
    HookRegistry,
    RuntimeEvent,
    Session,
    Steering,
    StopSignal,
)
from agenticx.runtime.resume import ResumePoint
from agenticx.sessions.files.snapshots import SnapshotFolder
from agenticx.sessions.hub.batches import EventBatcher
from agenticx.sessions.store.base import Log
from agenticx.sessions.store.records import Fact, FactKind, SessionRecord, TurnRecord
from agenticx.settings import PROJECT_FILE, Settings, prompt_text
from agenticx.threads import run_in_thread
from agenticx.tools.base import Tool, is_idempotent

__all__ = ["RunningTurn", "TurnServices", "TurnSetup", "TurnWriter", "run_turn"]

_READING_SECONDS = 5.0  # for one small file, which may lie on a disk that does not answer


@dataclass(slots=True, eq=False)
class RunningTurn:
    """A turn from its beginning until its generator is exhausted.

    `closed`: no further event of its generator is stored, because the terminal event is stored, the turn is being
    aborted, or it is `suspended`. `suspended` is set when the turn waits for a confirmation while the program ends: it
    continues after the next start. `done_event` is set once the turn's end is stored, its session deleted or its end
    left to a later try; never for a suspended turn. `derived_name` becomes the name of a session without one once the
    turn has begun.
    """

    turn: TurnRecord
    derived_name: str | None = None
    stop: StopSignal = field(default_factory=StopSignal)
    steering: Steering = field(default_factory=Steering)
    started: asyncio.Future[int] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    closed: bool = False
    done_event: asyncio.Event = field(default_factory=asyncio.Event)
    suspended: bool = False
    task: asyncio.Task[None] | None = None

    @property
    def has_failed_to_begin(self) -> bool:
        """True if the turn ended before its first event was stored, as far as is known."""
        return self.started.done() and self.started.exception() is not None

    async def wait_begun(self) -> TurnRecord:
        """Wait for the turn's first stored event and return the turn; cancelling the wait does not affect the turn."""
        return replace(self.turn, after_seq=await asyncio.shield(self.started))


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSetup:
    """The model and the tools with which a turn runs; its `settings` are read as it begins, unless given."""

    model: ChatModel
    tools: Sequence[Tool]
    settings: Settings | None = None


@dataclass(slots=True, kw_only=True)
class TurnServices:
    """What the turns of all sessions share.

    `models` finds a model by name (None: the default) and `tools` returns the tools of a session; both raise an
    `AgenticXError` whose message names the accepted values. `closing` is set once no turn may begin any more.
    """

    log: Log
    models: Callable[[str | None], ChatModel]
    tools: Callable[[SessionRecord], Sequence[Tool]]
    settings: Settings
    gate: AsyncConfirmGate
    hooks: HookRegistry
    clock: Clock
    snapshots: SnapshotFolder | None = None
    closing: bool = False

    def setup(self, record: SessionRecord, model: str | None) -> TurnSetup:
        """Return the setup of a turn that begins now, with `model` instead of the session's own if it is given."""
        return TurnSetup(model=self.models(model or record.model), tools=self.tools(record))

    @property
    def can_resume(self) -> bool:
        """True if a turn that waits for a confirmation continues after a restart."""
        return self.log.durability != "memory" and self.settings.resume_interrupted == "confirms"

    async def read_settings(self, workspace: Path) -> Settings:
        """Return the settings of a turn that begins now; raises `SettingsError` for an unusable workspace file."""
        try:
            async with asyncio.timeout(self.clock.real(_READING_SECONDS)):
                return await run_in_thread(self.settings.in_workspace, workspace, name="agx reading settings")
        except TimeoutError:
            sentence = f"{workspace / PROJECT_FILE} could not be read within {_READING_SECONDS:g} seconds"
            raise SettingsError(sentence) from None

    def is_repeatable(self, record: SessionRecord, tool_name: str) -> bool:
        """Return whether the session has an idempotent tool of that name, whose calls may run again."""
        try:
            tools = self.tools(record)
        except AgenticXError:
            return False
        return any(is_idempotent(tool) for tool in tools if tool.schema.name == tool_name)


class TurnWriter(Protocol):
    """The part of a session's actor that a turn writes to."""

    @property
    def session(self) -> Session: ...

    async def write_events(self, running: RunningTurn, batch: Sequence[RuntimeEvent]) -> None:
        """Store events of the turn."""
        ...

    async def write_fact(self, fact: Fact) -> None:
        """Store a fact of the turn."""
        ...


async def run_turn(
    services: TurnServices,
    writer: TurnWriter,
    running: RunningTurn,
    turn_input: UserMessage | ResumePoint,
    setup: TurnSetup,
) -> None:
    """Run the turn and write its events, until its generator is exhausted; raises what the turn or the store raises."""

    async def write(batch: Sequence[RuntimeEvent]) -> None:
        await writer.write_events(running, batch)

    session, batcher = writer.session, EventBatcher(write)
    settings = setup.settings or await services.read_settings(session.workspace)
    runtime = AgentRuntime(
        setup.model,
        services.gate,
        max_tool_rounds=settings.max_tool_rounds,
        hooks=services.hooks,
        settings=settings,
        clock=services.clock,
    )
    events = runtime.run_turn(
        turn_input,
        session,
        running.stop,
        tools=setup.tools,
        system_prompt=_default_system_prompt(session.workspace, services.clock.now().date()),
        client_turn_id=running.turn.client_turn_id,
        journal=_FactJournal(writer, running.turn, batcher),
        steering=running.steering,
    )
    await batcher.drain(events)


@dataclass(frozen=True, slots=True)
class _FactJournal:
    """The `CallJournal` of one turn, kept as facts."""

    writer: TurnWriter
    turn: TurnRecord
    batcher: EventBatcher

    async def record_call(self, call: ToolCall) -> None:
        await self.batcher.flush()  # events before the call are in the log before the call has an effect
        await self._write("call_began", call.id, {"call_id": call.id, "name": call.name, "arguments": call.arguments})

    async def record_process(self, call: ToolCall, process: Mapping[str, Any]) -> None:
        await self._write("process_started", f"{call.id}/{process['pid']}", {"call_id": call.id, **process})

    async def _write(self, kind: FactKind, key: str, data: Mapping[str, Any]) -> None:
        turn_id = self.turn.id
        await self.writer.write_fact(Fact(kind=kind, key=f"{turn_id}/{key}", turn_id=turn_id, data=data))


def _default_system_prompt(workspace: Path, today: date) -> str:
    """Return `config/prompts/system.md` (or the user's own file) with its placeholders filled in.

    The text is the same all day, so that prompt caches stay valid.
    """
    filled = prompt_text("system").replace("{workspace}", str(workspace)).replace("{platform}", platform.system())
    return filled.replace("{date}", today.isoformat())
