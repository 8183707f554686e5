"""The tool protocol: a schema for the model, an assessment for the confirm gate and a coroutine."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from typing_extensions import TypeVar

from agenticx.sandbox.hosts import Host

if TYPE_CHECKING:  # imported by no agent that does not run
    from agenticx.attachments import Attachment
    from agenticx.llms.base import ToolSchema
    from agenticx.tools.context import ToolContext
    from agenticx.tools.result_data import ResultDetails

__all__ = [
    "Assessment",
    "CommandPart",
    "DepsT",
    "Risk",
    "ShellCommand",
    "Tool",
    "ToolOutput",
    "UserQuestion",
    "is_idempotent",
    "is_parallel",
    "is_untrusted",
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


@dataclass(frozen=True, slots=True)
class CommandPart:
    """A simple command between the operators of a command line.

    `words` are those that it has, without quotes; `bare_count` is the number of words at its beginning that stand there
    without quotes and globs. `is_harmless`: it only reads the workspace. `obstacle` is a clause that says why a program
    that can only read may do more here, None for another program. `reads_secret`: the obstacle is an existing file that
    usually holds keys or passwords, which it would read.
    """

    words: tuple[str, ...]
    bare_count: int
    is_harmless: bool = False
    obstacle: str | None = None
    reads_secret: bool = False


@dataclass(frozen=True, slots=True)
class Obstacle:
    """The reason for which a command that can only read is not harmless, as a clause.

    `is_secret`: it would read an existing file that usually holds keys or passwords. `is_unlisted`: it would show files
    that cannot be listed.
    """

    clause: str
    is_secret: bool = False
    is_unlisted: bool = False


@dataclass(frozen=True, slots=True)
class NamedPath:
    """A file or folder that a word of a command may name, relative to the workspace, which itself is ".".

    The command goes through it if it `is_folder`. `is_changed` is False if it only reads it, None if that is not known;
    `is_sure` is False if only a part of the word names it.
    """

    path: str
    is_folder: bool = False
    is_changed: bool | None = None
    is_sure: bool = True


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """A command line of bash.

    - `text` is all of it.
    - `parts` are its simple commands if it has nothing else that bash would expand or run, else None; then `unread` is
      a clause about the first such thing, None if the command was not read at all.
    - `runs` are the words of all simple commands that it may run, also in substitutions, quoted code and after programs
      such as `sudo`; None is a word that only bash knows. `is_complete` is False if it may run others too, and
      `mentions` are names in the arguments of programs that are not known, which may run them. `paths` are the files
      and folders that its words may name, None if not all are known.
    - `network` and `unsandboxed` say what it asks for beyond the sandbox, where there is one. `network` is True, or
      some hosts where the sandbox keeps the command from all others.
    """

    text: str
    parts: tuple[CommandPart, ...] | None
    runs: tuple[tuple[str | None, ...], ...] = ()
    is_complete: bool = True
    network: bool | tuple[Host, ...] = False
    unsandboxed: bool = False
    unread: str | None = None
    mentions: frozenset[str | None] = frozenset()
    paths: tuple[NamedPath, ...] | None = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """A description of the effects of one call, made before the user is asked and again before the call runs.

    - `question` is shown to the user; `reasons` are sentences that help to answer it.
    - `binding` has everything, as JSON, that the answer depends on: resolved paths, cwd, a digest of the file to be
      changed, … The gate's digest covers it: if the second assessment differs from the shown one, the call does not
      run.
    - The user is asked in every mode about a call that is `protected` or `unchecked` (a part of it could not be
      examined, or was too large for that), or that `discloses` text to another provider.
    - If it `remembers` text for later sessions, the user is asked each time, also after an answer for the rest of
      the session; in plan mode it is denied.
    - `sandboxed` is the kind of sandbox that a command runs in, False if it runs in none, None if the call runs no
      command. A call that runs code is `contained` if a sandbox keeps it from all files but those of the workspace and
      from the network: a mode that allows changes of files allows it.
    - If it `sends` its arguments to others, the user is asked in every mode while texts of others are in the
      conversation, unless the user wrote what is sent or has a rule that allows it.
    - Mode `accept_edits` allows a call of risk "write" if it names `paths`, all in the workspace, and reaches nobody:
      it does not send and has no hosts and no server. `elsewhere` says that `paths` are relative to another folder,
      such as a vault of notes.
    - A command that `instructs` may change instructions of agents, such as `AGENTS.md`: the user is asked in every mode
      while texts of others are in the conversation.
    - `cwd` is the folder in which a command runs. `diff_cut` says if the `diff` was cut, `unchanged_below`
      how many lines the file has after those of the whole diff.
    - `undeclared`: nobody declared a risk, as for a bare function; `risk` is a guess then.
    - Rules of the user look at what the call is about: `paths`, the files of the workspace that it changes (or, of risk
      "read", reads), relative to it, links followed; `folders`, those that it reads with the number of their levels,
      None for all; `hosts` to which it connects; `server`, that of a tool of MCP; and
      `shell`, the command that it runs.
    - `asks` is a question to the user. Such a call does not run: the answer is its result. Waiting for it counts in no
      time limit of tools; the question is stored and waits on after a restart, as a confirmation does.
    """

    risk: Risk
    question: str | None = None
    reasons: tuple[str, ...] = ()
    protected: bool = False
    unchecked: bool = False
    discloses: bool = False
    remembers: bool = False
    instructs: bool = False
    sends: bool = False
    undeclared: bool = False
    sandboxed: Literal["bubblewrap", "landlock", False] | None = None
    contained: bool = False
    command: str | None = None
    cwd: str | None = None
    path: str | None = None
    diff: str | None = None
    diff_cut: bool | None = None
    unchanged_below: int | None = None
    paths: tuple[str, ...] = ()
    elsewhere: bool = False
    folders: tuple[tuple[str, int | None], ...] = ()
    hosts: tuple[str, ...] = ()
    server: str | None = None
    shell: ShellCommand | None = None
    asks: UserQuestion | None = None
    binding: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def stays_in_workspace(self) -> bool:
        """True if it only reads, or only changes files of the workspace: by name, or as code that is contained."""
        if self.risk != "write":
            return self.risk == "read" or self.contained
        reaches_others = self.sends or self.hosts or self.server is not None
        return bool(self.paths) and not self.elsewhere and not reaches_others and all(map(_is_inside, self.paths))


def _is_inside(path: str) -> bool:
    return not PurePosixPath(path).is_absolute() and ".." not in PurePosixPath(path).parts


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """A result that the tool has shortened itself, that has untrusted text, or that has images.

    `truncated` is True if text was left out. `sources` name untrusted texts in it, for example notes: neither the user
    nor the model wrote them, and while they are in the conversation, the user is asked about each call that runs code.
    `attachments` are images and files for the model, as many as one message may have; they are sent in the result of
    the call, or after it if the provider's API takes only text in results. `details` are for clients; the model does
    not get them.
    """

    text: str
    truncated: bool = False
    sources: tuple[str, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    details: ResultDetails | None = None


def is_idempotent(tool: Tool) -> bool:
    """Return whether a call of `tool` that a crash interrupted may be run again: as declared, else if it only reads."""
    return bool(getattr(tool, "idempotent", tool.read_only))


def is_parallel(tool: Tool) -> bool:
    """Return whether calls of `tool` may run concurrently with others: as declared, else if it only reads."""
    return getattr(tool, "parallel", tool.read_only) is True


def is_untrusted(tool: Tool) -> bool:
    """Return whether results of `tool` have texts of others."""
    return getattr(tool, "untrusted", False) is True


def runs_in_thread(tool: Tool) -> bool:
    """Return whether `tool` is a plain function, so that its thread runs on after a time-out or a stop."""
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
    calls may run concurrently with neighbouring calls of the round, each as soon as it is permitted. One more is False
    where it is missing: with `untrusted`, results have texts of others.
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
