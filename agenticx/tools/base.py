"""What a tool is: a schema for the model, an assessment for the gate, and a coroutine that does it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from agenticx.clocks import Clock, SystemClock
from agenticx.llms.base import ToolSchema

__all__ = [
    "Assessment",
    "Risk",
    "Snapshots",
    "Tool",
    "ToolContext",
    "ToolOutput",
    "ToolState",
    "is_idempotent",
    "is_parallel",
]

Risk = Literal["read", "write", "execute"]
"""What a call can do: look at the workspace, change files or other state in it, or run anything at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """What one call would do, worked out before anyone is asked and again before it runs.

    `question` is what the person is asked, `reasons` are sentences that help to answer it. `binding` holds everything
    that the answer depends on (resolved paths, cwd, a digest of the file to be changed, …); the gate's digest covers
    it, so a call whose second assessment differs from the one that was shown does not run. Values are JSON.
    `protected` and `unchecked` (something of the call could not be looked at, or was too much to be) are asked about
    in every mode; `reasons` say which it is.
    """

    risk: Risk
    question: str | None = None
    reasons: tuple[str, ...] = ()
    protected: bool = False
    unchecked: bool = False
    command: str | None = None
    path: str | None = None
    diff: str | None = None
    binding: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(slots=True)
class ToolState:
    """What tools keep from one call to the next within a session.

    `todos` rows are {"text": str, "status": "pending" | "in_progress" | "done"}; `files` maps a resolved path to
    the (mtime_ns, size) last read or written through a tool; `context_variables` is the application's own.
    """

    todos: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    scratchpad: dict[str, str] = field(default_factory=dict[str, str])
    files: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    context_variables: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def plan(self) -> tuple[str, str]:
        """The to-do list and the scratchpad as text, for comparison."""
        return repr(self.todos), repr(self.scratchpad)


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """A result that its tool has shortened already; `truncated` says so to whoever reads it."""

    text: str
    truncated: bool = False


class Snapshots(Protocol):
    """Keeps what files held before and after tools changed them, so that a person can take changes back."""

    def record_edit(self, call_id: str, path: Path, before: bytes | None, after: bytes) -> None:
        """A call is about to put `after` where `before` is (None: no file); `path` is resolved, links and all.

        What is told here is durable on return. Raises `ToolError` if it cannot be kept: then nothing is to be changed.
        """
        ...


def _ignore(_type: str, _payload: Mapping[str, Any]) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """What a tool is given beside its arguments; never part of its schema.

    `emit(type, payload)` puts an event of the tool's own between its call and its result: `tool_progress`
    (payload {"output": str}; id, name and elapsed time are filled in), `artifact`, `citation` and the like; types that
    belong to the engine are refused with `ToolError`. `afterwards(coroutine)` hands over work that must go on after
    the call is over (ending processes); the turn gives it 3 s and then cancels it. `started(process)` keeps what a
    process is found by, {pid, started, mark} of `tools.processes`, so that it can be ended after a crash. A tool that
    changes files tells `snapshots`, where there are any, just before it does.
    """

    workspace: Path
    call_id: str = ""
    session_id: str = ""
    agent_id: str = "meta"
    state: ToolState = field(default_factory=ToolState)
    clock: Clock = field(default_factory=SystemClock)
    emit: Callable[[str, Mapping[str, Any]], None] = _ignore
    add_background_task: Callable[[Coroutine[Any, Any, None]], None] | None = None
    record_process: Callable[[Mapping[str, Any]], Awaitable[None]] | None = None
    protected_roots: tuple[Path, ...] = ()
    snapshots: Snapshots | None = None


def is_idempotent(tool: Tool) -> bool:
    """Whether a call of `tool` that a crash cut off may be run again: what it declares, else whether it only reads."""
    return bool(getattr(tool, "idempotent", tool.read_only))


def is_parallel(tool: Tool) -> bool:
    """Whether calls of `tool` may run beside others: its own declaration, else whether it only reads."""
    return getattr(tool, "parallel", tool.read_only) is True


@runtime_checkable
class Tool(Protocol):
    """Something an agent can do.

    `read_only` means: no side effect whatever the arguments; a malformed call may be repaired. `timeout` in seconds
    overrides the setting. `run` returns text (anything else is rendered by the engine) or raises `ToolError` with a
    sentence that the model can act on; whatever else it raises is told to the model too. When it is cancelled (stop,
    time-out) it may return what it has by then instead of letting that pass: it is added to what is said of the call's
    end.

    Two attributes are optional and follow from `read_only` where they are missing. `idempotent`: running the same call
    twice does no more than running it once, so where a turn goes on after a crash it is run again. `parallel`: calls
    may run beside neighbouring ones of the round, each once it is permitted.
    """

    @property
    def schema(self) -> ToolSchema: ...
    @property
    def read_only(self) -> bool: ...
    @property
    def timeout(self) -> float | None: ...
    def assess(self, arguments: Mapping[str, Any], context: ToolContext) -> Assessment:
        """Return what the call would do; raises `ToolError` for a call that cannot be made.

        Runs in a thread, so it may look at files, but nobody stops it: a stop of the turn leaves it behind, and a
        limit (`tool_timeout_seconds`) ends the wait for it. It is called up to three times for one call, at the same
        time as other calls' assessments, and changes nothing.
        """
        ...

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as `run` takes them; raises `InvalidArguments` with what would be right."""
        ...

    def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Awaitable[object]: ...
