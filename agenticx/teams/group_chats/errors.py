"""The error of a team's run."""

from __future__ import annotations

from agenticx.errors import (
    AgenticXError,
    ModelError,
    ResourcesExhausted,
    SettingsError,
    StoreError,
    WorkFailed,
)
from agenticx.runtime import TurnError

__all__ = ["TeamError"]


class TeamError(WorkFailed, RuntimeError):
    """Raised if a participant, a condition or a selector failed and ended the run; `__cause__` is its error.

    `participant` is the name of the failed participant, None for a condition or a selector. `code` is the error code of
    the cause, such as `provider.auth`; it is `hook_failed` for a failure of the application's own code.
    """

    def __init__(
        self, message: str, *, code: str = "hook_failed", retryable: bool = False, participant: str | None = None
    ) -> None:
        super().__init__(message, code=code, retryable=retryable)
        self.participant = participant

    @classmethod
    def of(cls, failure: AgenticXError, where: str, participant: str | None = None) -> TeamError:
        """Return the error of a run that `failure` ended; `where` is the part of the team that failed."""
        return cls(
            f"{where}: {failure}",
            code=_code(failure),
            retryable=isinstance(failure, ModelError | TurnError) and failure.retryable,
            participant=participant,
        )


def _code(failure: AgenticXError) -> str:
    match failure:
        case ModelError() | TurnError() | WorkFailed():
            return failure.code
        case StoreError():
            return "storage"
        case SettingsError() | ResourcesExhausted():
            return "internal"
        case _:
            return "hook_failed"
