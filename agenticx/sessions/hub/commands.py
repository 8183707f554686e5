"""Commands to the owner of a session: plain data that another process can send, and their results."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, TypeAdapter, WrapSerializer

from agenticx.errors import AgenticXError, StoreError
from agenticx.llms.sampling import UnsupportedSampling
from agenticx.messages import new_id
from agenticx.permissions.rules import Rule
from agenticx.runtime.user_requests.kinds import CONFIRMATION, QUESTION, kind_of
from agenticx.runtime.user_requests.requests import ConfirmAnswer, QuestionAnswer, UserAnswer
from agenticx.sessions.hub.rewind import RewindResult
from agenticx.sessions.hub.submission import Submission, TurnRequest
from agenticx.sessions.log.session_record import SessionRecord, TurnRecord
from agenticx.sessions.store.base import OwnershipLost

__all__ = [
    "Answer",
    "Change",
    "ChangeQueued",
    "Command",
    "Delete",
    "DirectSubagent",
    "ListSubagents",
    "NothingStored",
    "Pick",
    "RemoveRule",
    "ResetTeam",
    "Rewind",
    "Stop",
    "StopOption",
    "SubagentAction",
    "Submit",
    "SuspendedTurn",
    "decode_command",
    "decode_result",
    "encode_command",
    "encode_error",
    "encode_result",
    "repeatable",
]


SubagentAction = Literal["cancel", "retry", "message"]


class NothingStored(OwnershipLost):
    """Raised by a former owner of the session that stored nothing of a command: the new owner can carry it out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submit:
    """Accept a message; the result is a `Submission`.

    Its `work` runs in this process only, see `TurnContext`: in a new turn, or in the suspended turn `turn_id`. A turn
    with `objects`, which are `TurnObjects`, runs in this process too.
    """

    request: TurnRequest
    objects: Annotated[Any, Field(exclude=True)] = None
    work: Annotated[Any, Field(exclude=True)] = None
    turn_id: Annotated[str | None, Field(exclude=True)] = None
    name: Literal["submit"] = "submit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Stop the running turn; the result is its record, None if none runs."""

    name: Literal["stop"] = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Replace fields of the session's record, which is the result."""

    changes: dict[str, Any]
    name: Literal["change"] = "change"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeQueued:
    """Replace the text of a queued message, have it read now, or remove it.

    The result is the message as `Hub.queue` returns it, None if it was removed.
    """

    message_id: str
    text: str | None = None
    when_busy: Literal["steer", "interrupt"] | None = None
    is_removed: bool = False
    name: Literal["change_queued"] = "change_queued"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveRule:
    """Remove a rule that the user gave for the session; the result is the rule."""

    rule_id: str
    name: Literal["remove_rule"] = "remove_rule"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewind:
    """Truncate the conversation after a message; the result is a `RewindResult`."""

    message_id: str | None
    name: Literal["rewind"] = "rewind"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetTeam:
    """Record that a team starts from the beginning."""

    team: str
    name: Literal["reset_team"] = "reset_team"


def _dump_answer(answer: UserAnswer, dump: Callable[[UserAnswer], dict[str, Any]]) -> dict[str, Any]:
    return {"kind": kind_of(answer).name, **dump(answer)}


def _answer_kind(answer: UserAnswer | dict[str, Any]) -> Any:
    return answer.get("kind") if isinstance(answer, dict) else kind_of(answer).name


AnyAnswer = Annotated[
    Annotated[ConfirmAnswer, Tag(CONFIRMATION.name)] | Annotated[QuestionAnswer, Tag(QUESTION.name)],
    Discriminator(_answer_kind),
    WrapSerializer(_dump_answer),
]
"""An answer of either kind, with its kind beside its fields as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Answer a request to the user; the result is the answer that counts.

    `digest` is the digest of a confirmation, "" for a question of an agent.
    """

    request_id: str
    answer: AnyAnswer
    digest: str = ""
    name: Literal["answer"] = "answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspendedTurn:
    """Find the turn that is suspended until the application runs its work; the result is its record, or None."""

    name: Literal["suspended_turn"] = "suspended_turn"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick:
    """Go on with an option; the result is the session's record."""

    number: int
    name: Literal["pick"] = "pick"


@dataclass(frozen=True, slots=True, kw_only=True)
class StopOption:
    """Stop an option that runs."""

    number: int
    name: Literal["stop_option"] = "stop_option"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Delete the session."""

    name: Literal["delete"] = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListSubagents:
    """List the sub-agents of the session; the result is a list of their states."""

    name: Literal["list_subagents"] = "list_subagents"


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectSubagent:
    """Cancel a sub-agent, restart its task, or send it a message; the result is its state.

    A message with the `message_id` of an earlier one has no effect, nor has a restart with the `turn_id` of an earlier
    one; `client_turn_id` is the client's id of a restart.
    """

    agent_id: str
    action: SubagentAction
    text: str = ""
    message_id: str = ""
    turn_id: str = ""
    client_turn_id: str = ""
    name: Literal["direct_subagent"] = "direct_subagent"


Command = (
    Submit
    | Stop
    | Change
    | ChangeQueued
    | RemoveRule
    | Rewind
    | ResetTeam
    | Answer
    | SuspendedTurn
    | Delete
    | Pick
    | StopOption
    | ListSubagents
    | DirectSubagent
)


def repeatable(command: Command) -> Command:
    """Return a command that can be sent again after a lost answer with the same effect: a message gets an id."""
    if not isinstance(command, Submit) or command.request.client_turn_id is not None:
        return command
    return Submit(request=replace(command.request, client_turn_id=new_id("cmd")))


def encode_command(command: Command) -> bytes:
    """Return the command as JSON."""
    return _json(_command_adapter().dump_python(command))


def decode_command(data: bytes) -> Command:
    """Return the command of that JSON; raises `ValueError`."""
    return _command_adapter().validate_python(json.loads(data))


def encode_result(command: Command, result: Any) -> bytes:
    """Return the result of a command as JSON."""
    return _json({"result": _result_adapter(command.name).dump_python(result)})


def encode_error(error: AgenticXError | TypeError | ValueError) -> bytes:
    """Return the error of a command as JSON."""
    fields = list(error.fields) if isinstance(error, UnsupportedSampling) else None
    return _json({"error": type(error).__name__, "text": str(error), "fields": fields})


def decode_result(command: Command, data: bytes) -> Any:
    """Return the result that the owner sent; raises the owner's error, as `StoreError` if its type is unknown here."""
    answer: dict[str, Any] = json.loads(data)
    if answer.get("error") == UnsupportedSampling.__name__:
        raise UnsupportedSampling(answer["text"], fields=answer["fields"])
    if "error" in answer:
        raise _error_types().get(answer["error"], StoreError)(answer["text"])
    return _result_adapter(command.name).validate_python(answer["result"])


@cache
def _command_adapter() -> TypeAdapter[Command]:
    return TypeAdapter(Annotated[Command, Field(discriminator="name")])


@cache
def _result_adapter(name: str) -> TypeAdapter[Any]:
    results: dict[str, Any] = {
        "submit": Submission,
        "stop": TurnRecord | None,
        "change": SessionRecord,
        "change_queued": dict[str, Any] | None,
        "remove_rule": Rule,
        "rewind": RewindResult,
        "reset_team": None,
        "answer": AnyAnswer,
        "suspended_turn": TurnRecord | None,
        "delete": None,
        "list_subagents": list[dict[str, Any]],
        "direct_subagent": dict[str, Any],
        "pick": SessionRecord,
        "stop_option": None,
    }
    return TypeAdapter(results[name])


def _json(value: Any) -> bytes:
    """Return JSON with lone surrogates and numbers such as NaN, which pydantic's would lose."""
    return json.dumps(value).encode()


def _error_types() -> dict[str, type[Exception]]:
    """Return the errors by name that are made of their text alone."""
    own = {error.__name__: error for error in _subclasses(AgenticXError) if error.__init__ is Exception.__init__}
    return {**own, "TypeError": TypeError, "ValueError": ValueError}


def _subclasses(error: type[AgenticXError]) -> Iterator[type[AgenticXError]]:
    yield error
    for inner in error.__subclasses__():
        yield from _subclasses(inner)
