"""The error tree: the base classes of the errors that AgenticX raises to its callers.

    AgenticXError
    ├── SettingsError          a setting is missing or out of range; names it and the accepted values
    ├── ModelError             the model call failed; carries an error code (`provider.auth`, …)
    │   └── ClockExpired       a time limit of the call passed (`timeout.first_chunk`, …)
    ├── ToolError              the tool failed in a way the model should read and react to
    │   ├── CallBlocked        a limit forbids the call for now
    │   └── InvalidArguments   the call's arguments do not parse or do not fit the schema
    ├── UserCodeError          user code (tool, hook, gate, model) raised, hung or returned an invalid value
    ├── AttachmentRefused      an attached file is of no accepted type or cannot be read
    │   └── AttachmentTooLarge a file, or all of a message together, exceeds a limit, which the message names
    ├── WorkFailed             work that takes the place of a turn's model calls failed; carries the turn's error code
    ├── HookFailed             a hook that guards a step failed, so the step must not happen
    ├── ResourcesExhausted     the machine lacks memory, threads, open files or disk space
    └── StoreError             the session store refused or failed
        ├── SessionNotFound
        └── SessionBusy

Modules define further subclasses of `AgenticXError` for their own errors, such as `TurnInterrupted`, `LoopStopped` and
`ConfirmClosed`. Three exceptions are not in the tree, because each is handled within its own layer: `ProtocolError`
(`agenticx.http.http1`), `UncheckableError` (`tools.shell.file_system_cache`) and `Problem`, an error response of the
studio.

Every exception of a tool becomes a `tool_result` that the model reads: the message of a `ToolError` as it is, any other
with the prefix "Error: ". An `AgenticXError` of the engine itself ends the turn with one fatal `error` event, also
where it was raised inside a tool's call. Code of the application (tools, hooks, gates, duck-typed models) is called
through `user_code`, which raises any exception of such code as an error of this tree. Any other exception is a bug of
AgenticX and propagates; of the code that runs turns only the hub, which ends the turn with `error{internal}`, and the
command line catch it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Self

__all__ = [
    "AgentConfigError",
    "AgenticXError",
    "AttachmentRefused",
    "AttachmentTooLarge",
    "CallBlocked",
    "ClockExpired",
    "HookFailed",
    "InvalidArguments",
    "ModelError",
    "ModelErrorCode",
    "ResourcesExhausted",
    "SessionBusy",
    "SessionNotFound",
    "SettingsError",
    "StoreError",
    "ToolError",
    "UserCodeError",
    "WorkFailed",
    "error_text",
]

ModelErrorCode = Literal[
    "provider.auth",
    "provider.rate_limited",
    "provider.bad_request",
    "provider.bad_reply",
    "provider.overloaded",
    "provider.truncated",
    "provider.content_filter",
    "provider.transport",
    "context_overflow",
    "budget_exceeded",
    "timeout.first_chunk",
    "timeout.heartbeat",
    "timeout.hard",
]


class AgenticXError(Exception):
    """The base of the error tree; the message is a sentence for the user."""


class SettingsError(AgenticXError):
    """A setting that cannot be used; the message names it, its value and the accepted range."""


class AgentConfigError(SettingsError):
    """An agent of a file that cannot be used; the message names the file, the key and what would be right."""


class UnknownAgent(SettingsError):
    """Raised where a session has, or is to have, an agent that is not known here; the message lists the known ones."""


class ModelError(AgenticXError):
    """A failed model call.

    `code` is the error code of the event. `provider_type` is the provider's own type or code as text
    (`protocol_error` for a malformed stream), `status` the HTTP status where there was one.
    `retry_after` is in seconds, as the provider asked. `retryable` says whether the same request may
    succeed later; nothing retries by itself at this level. `lacks_endpoint` is true if the server says, as far as can
    be told, that the path of the request does not exist. `param` is the field of the request that the error names, and
    `named_files` the base64 data of the attachments there.
    """

    def __init__(
        self,
        message: str,
        *,
        code: ModelErrorCode,
        provider_type: str | None = None,
        status: int | None = None,
        retryable: bool = False,
        retry_after: float | None = None,
        lacks_endpoint: bool = False,
        param: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code: ModelErrorCode = code
        self.provider_type = provider_type
        self.status = status
        self.retryable = retryable
        self.retry_after = retry_after
        self.lacks_endpoint = lacks_endpoint
        self.param = param
        self.named_files: tuple[str, ...] = ()


class ClockExpired(ModelError):
    """An exceeded time limit of a model call; `code` names it, `limit_seconds` is its setting."""

    def __init__(self, message: str, *, code: ModelErrorCode, elapsed_seconds: float, limit_seconds: float) -> None:
        super().__init__(message, code=code, retryable=True)
        self.elapsed_seconds = elapsed_seconds
        self.limit_seconds = limit_seconds


class ToolError(AgenticXError):
    """A tool's failure to do what was asked; the model reads the message, which names a valid alternative.

    `sources` name the texts of others that the message quotes, as those of a `ToolOutput` do.
    """

    sources: tuple[str, ...] = ()

    def quoting(self, sources: Sequence[str]) -> Self:
        """Return the error, whose message quotes these texts of others."""
        self.sources = tuple(sources)
        return self


class CallBlocked(ToolError):
    """A call that a limit forbids for now; its result is `blocked`, and the turn goes on."""


class InvalidArguments(ToolError):
    """Arguments of a call that do not parse as JSON or do not fit the tool's schema."""


class UserCodeError(AgenticXError):
    """User code that raised, exceeded its time limit, or returned a value of the wrong type.

    `what` names the code (`tool 'x'`, `hook Y.before_model`), `kind` is the kind of its failure.
    """

    def __init__(self, message: str, *, what: str, kind: Literal["raised", "timed_out", "invalid_result"]) -> None:
        super().__init__(message)
        self.what = what
        self.kind: Literal["raised", "timed_out", "invalid_result"] = kind


class AttachmentRefused(AgenticXError):
    """An attached file that is not accepted; the message names the accepted types or limits."""


class AttachmentTooLarge(AttachmentRefused):
    """A file, or all files of a message together, over a limit; the message names it."""


class WorkFailed(AgenticXError):
    """A failure of the work that takes the place of a turn's model calls; `code` is the error code of the turn."""

    def __init__(self, message: str, *, code: str, retryable: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.retryable = retryable


class HookFailed(AgenticXError):
    """A failed guarding hook; the step that it guards was not taken."""


class ResourcesExhausted(AgenticXError):
    """A lack of memory, threads, open files or disk space; the same request may succeed later."""


class StoreError(AgenticXError):
    """A failure of the session store."""


class SessionNotFound(StoreError):
    """A session id that no session has."""


class SessionBusy(StoreError):
    """A session that already runs a turn."""


def error_text(exc: BaseException) -> str:
    """Return the text of an exception, of an `OSError` without its number and path, which the message has already."""
    return (isinstance(exc, OSError) and exc.strerror) or str(exc)
