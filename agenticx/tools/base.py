"""The tool protocol: a schema for the model, an assessment for the confirm gate and a coroutine."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from typing_extensions import TypeVar

if TYPE_CHECKING:  # imported by no agent that does not run
    from agenticx.attachments import Attachment
    from agenticx.llms.base import ToolSchema
    from agenticx.tools.context import ToolContext

__all__ = [
    "Assessment",
    "DepsT",
    "Risk",
    "Tool",
    "ToolOutput",
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
