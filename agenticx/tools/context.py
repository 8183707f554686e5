"""The context of a tool call, and the state that tools keep in a session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Generic, Protocol

from agenticx.attachments import Attachment
from agenticx.clocks import Clock, SystemClock
from agenticx.llms.base import Usage
from agenticx.messages import MAIN_AGENT
from agenticx.sandbox.options import SandboxOptions
from agenticx.tools.artifacts.files import ArtifactPreview, Artifacts
from agenticx.tools.base import DepsT, Risk
from agenticx.tools.diffs import MAX_DIFF_CHARS

__all__ = ["SettleCost", "Snapshots", "ToolContext", "ToolState"]


@dataclass(slots=True)
class ToolState:
    """State that tools keep between the calls of a session.

    `todos` rows are {"text": str, "status": "pending" | "in_progress" | "done"}; `files` maps a resolved path to
    the (mtime_ns, size) last read or written through a tool; `context_variables` belongs to the application.
    `passages` are the passages of notes that the model was given and cites by number; the first is number 1.
    `sources` name untrusted texts that were read in child turns, for example a team's.
    """

    todos: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    scratchpad: dict[str, str] = field(default_factory=dict[str, str])
    files: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    context_variables: dict[str, Any] = field(default_factory=dict[str, Any])
    passages: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    sources: list[str] = field(default_factory=list[str])

    @property
    def plan(self) -> tuple[str, str]:
        """The to-do list and the scratchpad as text, for comparison."""
        return repr(self.todos), repr(self.scratchpad)


class Snapshots(Protocol):
    """A record of file contents before and after tools changed them, so that a user can undo changes."""

    async def record_edit(
        self,
        call_id: str,
        path: Path,
        before: bytes | None,
        after: bytes,
        *,
        in_place: bool = False,
        root: Path | None = None,
    ) -> None:
        """Store that a call is about to replace `before` (None: no file) by `after` at `path`, with all links resolved.

        `root` is the folder, resolved too, that the call may change; without one it is the session's workspace. The
        record is durable on return. A call that writes `in_place` may leave parts of both contents, so both are
        stored whatever room is left. Raises `ToolError` if it cannot be stored; the tool must not change the file
        then.
        """
        ...


SettleCost = Callable[[Usage | None], None]
"""A function that ends a reservation: it is called once, with what was used, `Usage()` if that is not known, or None if
nothing was."""


def _settle_nothing(_usage: Usage | None) -> None:
    return None


def _reserve_nothing(_name: str, _cost_usd: Decimal | None) -> SettleCost:
    return _settle_nothing


def _no_attachments() -> Sequence[Attachment]:
    return ()


def _discard_event(_type: str, _payload: Mapping[str, Any]) -> None:
    return None


def _never_stopped() -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext(Generic[DepsT]):
    """The environment of a call, passed to the tool in addition to its arguments; never part of its schema.

    - `deps` is the object that the run was given, for example a database; `context: ToolContext[Database]` states its
      type. No model sees it and no store keeps it: a turn resumed after a restart has the deps of `open_hub(deps=…)`,
      or None.
    - `emit(type, payload)` emits an event of the tool between its call and its result: `tool_progress` (payload
      {"output": str}; id, name and elapsed time are filled in), `artifact`, `citation` and the like. Types of the
      engine are refused with `ToolError`.
    - `add_background_task(coroutine)` registers work that continues after the call has returned, for example
      terminating processes; the turn waits 3 s for it and then cancels it.
    - `record_process(process)` stores the identity of a process, {pid, started, mark} of `tools.processes`, so that it
      can be terminated after a crash.
    - `snapshots`: a tool that changes files awaits `snapshots.record_edit` just before each change, unless it is None.
    - `artifacts` are the files of the session; `preview` is the part of one that was shown while this call was
      received.
    - `permitted_risk` is the risk that was permitted, by the mode, a rule or the user: a call permitted as "read" must
      not change anything.
    - `sandbox` says whether commands run in a sandbox, where this machine has one.
    - `diff_chars` is the length at which the diff in an assessment is cut.
    - `raise_if_stopped()` raises `ToolError` once the turn, or this call, is to end; a tool that works in a thread
      calls it there before it begins.
    - `attachments()` returns the files that the user attached to messages of the conversation, newest first.
    - `reserve_cost(name, dollars)` must be called before a paid service is used, with the service's name and its
      largest cost (None: unknown). It raises `BudgetExceeded` if the budgets of the turn have less left, and returns a
      `SettleCost` that adds the actual use to the turn's usage.
    """

    workspace: Path
    deps: DepsT = None  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    call_id: str = ""
    session_id: str = ""
    turn_id: str = ""
    agent_id: str = MAIN_AGENT
    state: ToolState = field(default_factory=ToolState)
    clock: Clock = field(default_factory=SystemClock)
    emit: Callable[[str, Mapping[str, Any]], None] = _discard_event
    add_background_task: Callable[[Coroutine[Any, Any, None]], None] | None = None
    record_process: Callable[[Mapping[str, Any]], Awaitable[None]] | None = None
    protected_roots: tuple[Path, ...] = ()
    snapshots: Snapshots | None = None
    reserve_cost: Callable[[str, Decimal | None], SettleCost] = _reserve_nothing
    attachments: Callable[[], Sequence[Attachment]] = _no_attachments
    artifacts: Artifacts = field(default_factory=Artifacts)
    preview: ArtifactPreview | None = None
    raise_if_stopped: Callable[[], None] = _never_stopped
    permitted_risk: Risk = "execute"
    sandbox: SandboxOptions = field(default_factory=SandboxOptions)
    diff_chars: int = MAX_DIFF_CHARS
