"""The error tree: everything AgenticX raises on purpose.

    AgenticXError
    ├── SettingsError          a setting is missing or out of range; names it and what would be right
    ├── ModelError             the model call failed; carries a wire code (`provider.auth`, …)
    │   └── ClockExpired       one of the four clocks ran out (`timeout.first_chunk`, …)
    ├── ToolError              the tool failed in a way the model should read and react to
    │   └── InvalidArguments   the call's arguments do not parse or do not fit the schema
    ├── ForeignError           code that is not ours (tool, hook, gate, model) raised, hung or returned junk
    ├── AttachmentRefused      a file that came with a message is none that is let in
    │   └── AttachmentTooLarge over a limit, which it names
    ├── HookFailed             a hook that guards a step failed, so the step must not happen
    ├── ResourcesExhausted     the machine lacks memory, threads, open files or room on the disk
    └── StoreError             the session store refused or failed
        ├── SessionNotFound
        └── SessionBusy

Whatever a tool raises becomes a `tool_result` that the model reads: the message of a `ToolError` as it is, any other
behind "Error: ". An `AgenticXError` of the engine itself ends the turn with one fatal `error` event, also where it
came up inside a tool's call. Anything else is a bug of ours and propagates.
"""

from __future__ import annotations

from typing import Literal

__all__ = [
    "AgenticXError",
    "AttachmentRefused",
    "AttachmentTooLarge",
    "ClockExpired",
    "ForeignError",
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
    "timeout.first_chunk",
    "timeout.heartbeat",
    "timeout.hard",
]


class AgenticXError(Exception):
    """Base of all errors raised on purpose; the message is a sentence fit for a person."""


class SettingsError(AgenticXError):
    """A setting cannot be used; the message names it, its value and the accepted range."""


class ModelError(AgenticXError):
    """A model call failed.

    `code` is the wire contract's code. `provider_type` is the provider's own type or code as text
    (`protocol_error` for a malformed stream), `status` the HTTP status where there was one.
    `retry_after` is in seconds, as the provider asked. `retryable` says whether the same request may
    succeed later; nothing retries by itself at this level.
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
    ) -> None:
        super().__init__(message)
        self.code: ModelErrorCode = code
        self.provider_type = provider_type
        self.status = status
        self.retryable = retryable
        self.retry_after = retry_after


class ClockExpired(ModelError):
    """One of the model-call clocks ran out; `code` names it, `limit_seconds` is what it was set to."""

    def __init__(self, message: str, *, code: ModelErrorCode, elapsed_seconds: float, limit_seconds: float) -> None:
        super().__init__(message, code=code, retryable=True)
        self.elapsed_seconds = elapsed_seconds
        self.limit_seconds = limit_seconds


class ToolError(AgenticXError):
    """A tool could not do what was asked; the model reads the message, so it says what would be right."""


class InvalidArguments(ToolError):
    """The arguments of a call do not parse as JSON or do not fit the tool's schema."""


class ForeignError(AgenticXError):
    """Foreign code raised, hung past its limit, or returned what its contract does not allow.

    `what` names the code (`tool 'x'`, `hook Y.before_model`), `kind` says how it failed.
    """

    def __init__(self, message: str, *, what: str, kind: Literal["raised", "timed_out", "junk"]) -> None:
        super().__init__(message)
        self.what = what
        self.kind: Literal["raised", "timed_out", "junk"] = kind


class AttachmentRefused(AgenticXError):
    """A file that came with a message is not let in; the message says what would be."""


class AttachmentTooLarge(AttachmentRefused):
    """A file, or all of a message's together, are over a limit; the message names it."""


class HookFailed(AgenticXError):
    """A guarding hook failed; the step it guards was not taken."""


class ResourcesExhausted(AgenticXError):
    """The machine lacks what this takes: memory, threads, open files, room on the disk. It may succeed later."""


class StoreError(AgenticXError):
    """The session store could not do what was asked."""


class SessionNotFound(StoreError):
    """No session has that id."""


class SessionBusy(StoreError):
    """The session already runs a turn."""
