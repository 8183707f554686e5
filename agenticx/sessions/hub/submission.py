"""Messages that clients submit to a session, and the submission states they get back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from agenticx.argument_types import check_str, check_type
from agenticx.attachments import Attachment, check_attachments, fingerprint
from agenticx.errors import AgenticXError, SettingsError
from agenticx.llms.sampling import Sampling
from agenticx.messages import Message, UserMessage
from agenticx.permissions.verdict import PermissionMode
from agenticx.runtime.options import check_variants
from agenticx.runtime.output_schemas import check_output_schema
from agenticx.runtime.structured_output import OutputType
from agenticx.runtime.turn_agent import AgentDefinition
from agenticx.sessions.hub.session_fields import check_fields
from agenticx.sessions.log.session_record import TurnRecord
from agenticx.threads import run_sized

__all__ = [
    "HubClosed",
    "NotQueued",
    "NothingToGoOnWith",
    "Submission",
    "SubmissionState",
    "TurnConflict",
    "TurnFailed",
    "TurnObjects",
    "TurnRequest",
    "WhenBusy",
    "check_files",
    "check_request",
    "check_same_input",
    "check_task",
]

WhenBusy = Literal["reject", "queue", "steer", "interrupt"]
"""Treatment of a message while a turn runs, in this order: refused; its own turn after the running one ends; taken into
the running turn; its own turn after the running one is stopped."""

SubmissionState = Literal["started", "queued", "steered", "handed_back"]


class HubClosed(AgenticXError):
    """A submission while the hub is shutting down; no turn begins any more."""


class NothingToGoOnWith(SettingsError):
    """A message without content to a session whose team has not run yet."""


class NotQueued(AgenticXError):
    """A change of a message that does not wait, or never did."""


class TurnConflict(AgenticXError):
    """A `client_turn_id` that was used before, for another input."""


class TurnFailed(AgenticXError):
    """A turn that failed before its first event was stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRequest:
    """A message that a client submits.

    The fields hold for the turn that it begins, also if it is queued before, or resumed after a restart. A message that
    steers runs in the turn that it joins.

    - `model`, `permission_mode` and `vaults` replace the session's; `sampling` takes precedence over the model's.
    - `output_schema` is a JSON Schema: the answer is a JSON value that fits it, as the `output` of `final`.
    - `mode` replaces the mode that its words suggest.
    - `variants`, 2 to 8 or the names of as many models, makes options of it; refused while the session is busy.
    - `compact` compacts the conversation instead of answering; refused while the session is busy.
    """

    input: str
    attachments: tuple[Attachment, ...] = ()
    client_turn_id: str | None = None
    model: str | None = None
    permission_mode: PermissionMode | None = None
    sampling: Sampling | None = None
    output_schema: Mapping[str, Any] | None = None
    mode: Literal["chat", "vault", "agent"] | None = None
    vaults: tuple[str, ...] | None = None
    when_busy: WhenBusy = "reject"
    variants: int | tuple[str, ...] | None = None
    compact: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnObjects:
    """The objects of a turn that no store keeps, so the turn begins at once in this process.

    `agent` acts instead of the session's, and its tools get `deps`. `context_variables` are added to the session's.
    `output` is the type of the answer, and gets the accepted object.
    """

    agent: AgentDefinition[Any, Any] | None = None
    deps: Any = field(default=None, repr=False)
    context_variables: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    output: OutputType | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """The current state of a submitted message.

    `started`: it began `turn`. `queued`: it will begin `turn`. `steered`: it is or will be taken into `turn`, which
    another message began. `handed_back`: it had no effect and was returned to the client. The log's events about it
    come after sequence number `after_seq`.
    """

    state: SubmissionState
    turn: TurnRecord
    message_id: str | None = None
    after_seq: int = 0


async def check_files(attachments: Sequence[Attachment]) -> None:
    """Raise `AttachmentRefused` unless one message may have all of these; large ones are checked in a thread."""
    size = sum(len(attachment.data) for attachment in attachments)
    await run_sized(check_attachments, attachments, size=size, name="agx attachments")


def check_request(request: TurnRequest) -> None:
    """Raise `TypeError` or `ValueError` for a request that cannot be stored or carried out."""
    check_type("request", request, TurnRequest, "a TurnRequest")
    check_str("input", request.input)
    own = {"model": request.model, "permission_mode": request.permission_mode, "vaults": request.vaults}
    check_fields({name: value for name, value in own.items() if value is not None})
    if request.sampling is not None:
        check_type("sampling", request.sampling, Sampling, "a Sampling")
    if request.output_schema is not None:
        check_type("output_schema", request.output_schema, Mapping, "a JSON Schema as a dict")
        check_output_schema(request.output_schema)
    if request.mode not in (None, "chat", "vault", "agent"):
        raise ValueError(f"mode must be 'chat', 'vault', 'agent' or None, not {request.mode!r}")
    if request.variants is not None:
        check_variants(request.variants)
        if request.when_busy != "reject":
            raise ValueError(f"with variants when_busy must be 'reject', not {request.when_busy!r}: it cannot wait")
    if request.compact:
        check_compaction(request)
    if request.client_turn_id is not None:
        check_str("client_turn_id", request.client_turn_id)
    if request.when_busy not in get_args(WhenBusy):
        raise ValueError(f"when_busy must be one of {', '.join(get_args(WhenBusy))}, not {request.when_busy!r}")


def check_compaction(request: TurnRequest) -> None:
    """Raise `ValueError` for a request to compact the conversation that also asks for something else."""
    if request.when_busy != "reject":
        raise ValueError(f"with compact when_busy must be 'reject', not {request.when_busy!r}: it cannot wait")
    if request.variants is not None or request.output_schema is not None or request.attachments:
        raise ValueError("compact takes no variants, output_schema or attachments: the turn gives no answer of a model")


def check_task(request: TurnRequest, messages: Sequence[Message]) -> None:
    """Raise `NothingToGoOnWith` for a request without content to a session with a team and without `messages`."""
    if not (request.input or request.attachments or messages):
        raise NothingToGoOnWith("the input is empty, but the team has nothing to go on with; give it a task")


def check_same_input(client_turn_id: str | None, earlier: TurnRecord | UserMessage, request: TurnRequest) -> None:
    """Raise `TurnConflict` unless `earlier`, which used the id first, has the same input, attachments and variants."""
    if isinstance(earlier, UserMessage):
        earlier_input = (earlier.content, fingerprint(earlier.attachments), None)  # variants do not wait
    else:
        earlier_input = (earlier.input, earlier.attachments_digest, earlier.variants)
    if earlier_input != (request.input, fingerprint(request.attachments), request.variants):
        raise TurnConflict(
            f"client_turn_id {client_turn_id!r} was used for another input; a new message takes a new id"
        )
