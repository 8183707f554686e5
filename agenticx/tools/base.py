"""The tool protocol: a schema for the model, an assessment for the confirm gate and a coroutine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, runtime_checkable

from typing_extensions import TypeVar

from agenticx.attachments import Attachment
from agenticx.clocks import Clock, SystemClock
from agenticx.llms.base import ToolSchema, Usage
from agenticx.messages import MAIN_AGENT
from agenticx.tools.session_files import ArtifactPreview, Artifacts

__all__ = [
    "Assessment",
    "DepsT",
    "Risk",
    "SettleCost",
    "Snapshots",
    "Tool",
    "ToolContext",
    "ToolOutput",
    "ToolState",
    "UserQuestion",
    "is_idempotent",
    "is_parallel",
    "runs_in_thread",
]

DepsT = TypeVar("DepsT", default=Any)
"""The type of the `deps` of an agent's run."""

Risk = Literal["read", "write", "execute"]
"""The effect of a call: reading the workspace, changing files or other state in it, or running any code."""


@dataclass(frozen=True, slots=True)
class UserQuestion:
    """A question to the user, who may choose one of `options` or answer in other words."""

    text: str
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """A description of the effects of one call, made before the user is asked and again before the call runs.

    `question` is shown to the user, `reasons` are sentences that help to answer it. `binding` holds everything that the
    answer depends on (resolved paths, cwd, a digest of the file to be changed, …); the gate's digest covers it, so a
    call whose second assessment differs from the one that was shown does not run. Values are JSON. The user is asked in
    every mode about calls that are `protected` or `unchecked` (a part of the call could not be examined, or was too
    large to be examined), and about one that `discloses` text to another provider; `reasons` state what applies. One
    that `remembers` text for later sessions is asked about each time, also in plan mode and after an answer that was to
    hold for the session. `undeclared` says that nobody declared a risk, as of a bare function: `risk` is a guess then.

    A call that `asks` the user something does not run: the answer is its result, and waiting for it counts in no time
    limit of tools. It is stored, and the wait goes on after a restart, as for a confirmation.
    """

    risk: Risk
    question: str | None = None
    reasons: tuple[str, ...] = ()
    protected: bool = False
    unchecked: bool = False
    discloses: bool = False
    remembers: bool = False
    undeclared: bool = False
    command: str | None = None
    path: str | None = None
    diff: str | None = None
    asks: UserQuestion | None = None
    binding: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(slots=True)
class ToolState:
    """State that tools keep between the calls of a session.

    `todos` rows are {"text": str, "status": "pending" | "in_progress" | "done"}; `files` maps a resolved path to
    the (mtime_ns, size) last read or written through a tool; `context_variables` belongs to the application.
    `passages` are those of notes that the model was given, whose numbers it cites: the first is number 1.
    `sources_below` name texts of others that were read in child turns of the session's, such as a team's.
    """

    todos: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    scratchpad: dict[str, str] = field(default_factory=dict[str, str])
    files: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    context_variables: dict[str, Any] = field(default_factory=dict[str, Any])
    passages: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    sources_below: list[str] = field(default_factory=list[str])

    @property
    def plan(self) -> tuple[str, str]:
        """The to-do list and the scratchpad as text, for comparison."""
        return repr(self.todos), repr(self.scratchpad)


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """A result that the tool has shortened itself, that has text of others, or that has images.

    `truncated` is True if text was left out. `sources` name the texts in it that others than the user and the model
    wrote, such as notes: while they are in the conversation, the user is asked about each call that runs code.
    `attachments` are images and files that the model is to see, as many as one message may have: it gets them in the
    result of the call, or behind it where the API of its provider takes only text there.
    """

    text: str
    truncated: bool = False
    sources: tuple[str, ...] = ()
    attachments: tuple[Attachment, ...] = ()


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
    """The environment of a call, passed to the tool beside its arguments; never part of its schema.

    `deps` is the object that the run was given, such as a database: `context: ToolContext[Database]` says its type. No
    model sees it and no store keeps it, so it is None in a turn that goes on after a restart.

    `emit(type, payload)` emits an event of the tool between its call and its result: `tool_progress` (payload
    {"output": str}; id, name and elapsed time are filled in), `artifact`, `citation` and the like; types that belong to
    the engine are refused with `ToolError`. `add_background_task(coroutine)` registers work that continues after the
    call has returned (terminating processes); the turn waits 3 s for it and then cancels it. `record_process(process)`
    stores the identity of a process, {pid, started, mark} of `tools.processes`, so that the process can be terminated
    after a crash. A tool that changes files awaits `snapshots.record_edit`, if `snapshots` is not None, just before
    each change. `artifacts` are the files of the session, and `preview` is what was shown of one while this call was
    received. `raise_if_stopped()` raises `ToolError` once the turn, or this call, is to end; a tool that works in a
    thread calls it there before it begins. `attachments()` returns the files that the user attached to messages of the
    conversation, newest first.

    Before a tool uses a paid service, it calls `reserve_cost(name, dollars)` with the service's name and the most that
    this costs (None: unknown). That raises `BudgetExceeded` if the budgets of the turn do not have it, and returns a
    `SettleCost`, which counts what was used in the usage of the turn.
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


def is_idempotent(tool: Tool) -> bool:
    """Return whether a call of `tool` that a crash interrupted may be run again: as declared, else if it only reads."""
    return bool(getattr(tool, "idempotent", tool.read_only))


def is_parallel(tool: Tool) -> bool:
    """Return whether calls of `tool` may run concurrently with others: as declared, else if it only reads."""
    return getattr(tool, "parallel", tool.read_only) is True


def runs_in_thread(tool: Tool) -> bool:
    """Return whether `tool` is a plain function, whose thread runs on after a time-out or a stop."""
    return getattr(tool, "runs_in_thread", False) is True


@runtime_checkable
class Tool(Protocol):
    """An action that an agent can call.

    `read_only` means: no side effect with any arguments; a malformed call may be repaired. `timeout` in seconds
    overrides the setting. `run` returns text (anything else becomes text and files as for `@tool`) or raises
    `ToolError` with a sentence that the model can act on; any other exception is reported to the model too. When `run`
    is cancelled (stop, time-out) it may return a partial result instead of raising `CancelledError`: the engine adds it
    to the result that reports the end of the call.

    Two attributes are optional and follow from `read_only` where they are missing. `idempotent`: running the same call
    twice has no more effect than running it once, so it is run again when a turn resumes after a crash. `parallel`:
    calls may run concurrently with neighbouring calls of the round, each as soon as it is permitted.
    """

    @property
    def schema(self) -> ToolSchema: ...
    @property
    def read_only(self) -> bool: ...
    @property
    def timeout(self) -> float | None: ...
    def assess(self, arguments: Mapping[str, Any], context: ToolContext) -> Assessment:
        """Return a description of the effects of the call; raise `ToolError` for a call that cannot be made.

        Runs in a thread, so it may read files, but it is never cancelled: when the turn stops, or when
        `tool_timeout_seconds` pass, the engine stops waiting and the thread continues. It is called up to three times
        for one call, concurrently with the assessments of other calls, and must not change anything.
        """
        ...

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments as `run` takes them; raise `InvalidArguments` that states the accepted form."""
        ...

    def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Awaitable[object]: ...
