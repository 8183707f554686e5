"""Turns over HTTP: list them, start one, stop the running one."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NotRequired, cast

from pydantic import AfterValidator, BeforeValidator, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from agenticx.attachments import MAX_ATTACHMENTS, MAX_TOTAL_BYTES, Attachment, is_file_name, make_attachment
from agenticx.errors import AttachmentRefused, AttachmentTooLarge, SettingsError
from agenticx.llms.sampling import ReasoningEffort, Sampling
from agenticx.permissions.verdict import PermissionMode
from agenticx.runtime.options import MAX_OPTIONS, MIN_OPTIONS, check_variants
from agenticx.runtime.output_schemas import check_output_schema
from agenticx.sessions.history.transcript import MessageNotFound
from agenticx.sessions.history.turn_list import ListedTurn, read_last_turns, read_turn_of_message
from agenticx.sessions.hub.session_fields import check_model_name
from agenticx.sessions.hub.submission import Submission, TurnRequest, WhenBusy
from agenticx.threads import run_sized
from studio.http.bodies import LARGE_BODY_BYTES, MAX_TEXT_CHARS, RequestBody, read_body
from studio.http.problems import Problem
from studio.http.queries import RequestQuery, WholeNumber, newest_page, read_query
from studio.routes.sessions import ModelName, check_model, vault_ids
from studio.services import Services, services

__all__ = [
    "AttachmentBody",
    "StartTurnBody",
    "StartTurnResponse",
    "StopTurnBody",
    "StopTurnResponse",
    "TurnListQuery",
    "TurnListResponse",
    "index",
    "start",
    "stop",
]

_MAX_INPUT_CHARS = 300


def _validate_file_name(name: str) -> str:
    if not is_file_name(name):
        raise ValueError("a file name must be one line of printable characters")
    return name


class AttachmentBody(RequestBody):
    """An image, a PDF or a text file in base64.

    The type is detected from the content; `media_type` only distinguishes kinds of text.
    """

    name: Annotated[str, Field(min_length=1, max_length=255), AfterValidator(_validate_file_name)] = Field(
        description="The name of the file."
    )
    media_type: str | None = Field(None, max_length=200, description="The media type; null: that of the content.")
    data: str = Field(description="The content, in base64.")


class SamplingBody(RequestBody):
    """Parameters of the turn's model calls; one that is null or absent is left to the model.

    A model that does not take one of them refuses the message. `extra_body` is added to the JSON of each request.
    """

    temperature: float | None = Field(None, description="From 0 to 2.")
    top_p: float | None = Field(None, description="From 0 to 1.")
    max_output_tokens: int | None = Field(None, description="The limit of a reply, with its reasoning.")
    stop: list[str] | None = Field(None, description="The texts that end a reply.")
    seed: int | None = Field(None, description="A number for repeatable replies.")
    reasoning_effort: ReasoningEffort | None = Field(None, description="How much the model thinks before it answers.")
    extra_body: dict[str, Any] | None = Field(None, description="Keys that are added to the JSON of each request.")


def _validate_variants(value: object) -> object:
    try:
        check_variants(value)
    except SettingsError as exc:
        raise ValueError(str(exc).removeprefix("variants ")) from exc
    names: tuple[object, ...] = () if isinstance(value, int) else tuple(cast("Sequence[object]", value))
    for name in names:
        if not isinstance(name, str):
            raise ValueError("must be a number, or a list of names of models")
        check_model_name(name)
    return value


_Variants = Annotated[
    Annotated[int, Field(ge=MIN_OPTIONS, le=MAX_OPTIONS)]
    | Annotated[list[ModelName], Field(min_length=MIN_OPTIONS, max_length=MAX_OPTIONS)],
    BeforeValidator(_validate_variants),
]


class StartTurnBody(RequestBody):
    """A message of the user; with a `client_turn_id` the request can be repeated without a second turn.

    `when_busy` says what happens to it while a turn runs. `reject`, the default: it is a 409. `queue`: it starts a turn
    of its own afterwards, in order. `steer`: the running turn gives it to the model before its next call. `interrupt`:
    the running turn is stopped, and this message starts the next one; several interrupts run in order, each stopped for
    the next. `model` and `permission_mode` take the place of the session's for the turn that the message begins. In a
    session with a team an empty `input` lets the team go on with what was said so far; anywhere else it is refused.
    """

    max_bytes = LARGE_BODY_BYTES + MAX_TOTAL_BYTES * 4 // 3  # attachments come as base64

    input: str = Field(max_length=MAX_TEXT_CHARS, description="The text of the message.")
    attachments: list[AttachmentBody] = Field(
        default_factory=list[AttachmentBody], max_length=MAX_ATTACHMENTS, description="The files of the message."
    )
    client_turn_id: str | None = Field(
        None, min_length=1, max_length=200, description="An id that the client makes for the message."
    )
    model: ModelName | None = Field(None, description="The model; null: that of the session.")
    permission_mode: PermissionMode | None = Field(None, description="The permission mode; null: that of the session.")
    sampling: SamplingBody | None = Field(None, description="Parameters of the model calls; null: those of the model.")
    output_schema: dict[str, Any] | None = Field(
        None, description="The JSON Schema of the answer, which is the `output` of `final` then; not with a team."
    )
    mode: Literal["chat", "vault", "agent"] | None = Field(None, description="Null: that of the words.")
    vaults: list[str] | None = Field(None, max_length=100, description="Ids or names; null: those of the session.")
    when_busy: WhenBusy = Field(
        "reject", description="What happens to the message while a turn runs; by default `reject`."
    )
    variants: _Variants | None = Field(
        None, description="How many options to make of the message, or their models; not while the session is busy."
    )
    compact: bool = Field(
        False,
        description="true: the turn compacts the conversation instead of answering, and its answer says what it did;"
        " `input` is the message as it is shown. Not while the session is busy, and not with a team.",
    )


class TurnListQuery(RequestQuery):
    """The query of the turns of a session."""

    limit: WholeNumber = Field(50, ge=1, le=500, description="The maximum number of turns, the newest ones.")
    before: str | None = Field(
        None, description="Only turns before the one with this id, the first one of the page that was read last."
    )
    message_id: str | None = Field(
        None, description="Only the turn with this message, such as one that a search has found."
    )


class TurnItem(TypedDict):
    """A turn that a message of the user began, and its first 300 characters.

    Its events are after `cursor`, up to `last_cursor`: `GET …/events?from=CURSOR&until=LAST_CURSOR` has them.

    `outcome` is the reason of its event `final`, or the code of its fatal `error`; `outcome` and `ended_at` are null
    while it has not ended. Times are in RFC 3339, UTC. `events` and `tool_calls` are counts without its child turns.
    """

    turn_id: Annotated[str, Field(description="The id of the turn.")]
    message_id: Annotated[str, Field(description="The message that began it.")]
    cursor: Annotated[str, Field(description="The cursor just before its first event.")]
    last_cursor: Annotated[str, Field(description="The cursor of its last event until now.")]
    input: Annotated[str, Field(description="The beginning of the message.")]
    started_at: Annotated[str, Field(description="The time of its start.")]
    ended_at: Annotated[str | None, Field(description="The time of its end; null: it has not ended.")]
    outcome: Annotated[str | None, Field(description="How it ended; null: it has not ended.")]
    events: Annotated[int, Field(description="The number of its events until now.")]
    tool_calls: Annotated[int, Field(description="The number of its tool calls.")]


class TurnListResponse(TypedDict):
    """A page of the turns of a session in order; `has_more` says that there are earlier ones than these."""

    turns: Annotated[list[TurnItem], Field(description="The turns, oldest first.")]
    has_more: Annotated[bool, Field(description="true: there are earlier turns.")]


class StopTurnBody(RequestBody):
    """An empty object."""


class StartTurnResponse(TypedDict):
    """The outcome of a message.

    A started turn, whose events are after `cursor`; a queued or handed-back message, with its `state` and
    `message_id`; or, with a `message_id` and no cursor, a message that steers the running turn.
    """

    turn_id: Annotated[str, Field(description="The turn that the message begins, or that it steers.")]
    cursor: NotRequired[Annotated[str, Field(description="The cursor just before the turn's first event.")]]
    state: NotRequired[
        Annotated[
            Literal["queued", "handed_back"],
            Field(description="How the message stands if it did not begin its turn at once."),
        ]
    ]
    message_id: NotRequired[Annotated[str | None, Field(description="The id of a message that waits or steers.")]]


class StopTurnResponse(TypedDict):
    """The turn that is being stopped, or null if none was running."""

    turn_id: Annotated[str | None, Field(description="The turn that is being stopped; null: none was running.")]


async def index(request: Request) -> Response:
    """List the newest turns of the conversation, or those before them; a stream can begin at the cursor of each.

    Turns that a rewind has left behind are not part of it; with a `message_id` such a one is found too.
    """
    studio, session_id, query = services(request), request.path_params["session_id"], read_query(request, TurnListQuery)
    if query.message_id is not None:
        turn = await read_turn_of_message(studio.store.log, session_id, query.message_id)
        if turn is None:
            raise MessageNotFound(f"no message of this session has the id {query.message_id!r}")
        return JSONResponse(TurnListResponse(turns=[_turn_item(studio, session_id, turn)], has_more=False))
    listed = await read_last_turns(studio.store.log, session_id, query.limit, before=query.before)
    page, has_more = newest_page(
        listed,
        before=query.before,
        limit=query.limit,
        id_of=lambda turn: turn.id,
        listed_as="a turn that GET /api/sessions/{session_id}/turns lists",
    )
    turns = [_turn_item(studio, session_id, turn) for turn in page]
    return JSONResponse(TurnListResponse(turns=turns, has_more=has_more))


def _turn_item(studio: Services, session_id: str, turn: ListedTurn) -> TurnItem:
    return {
        "turn_id": turn.id,
        "message_id": turn.message_id,
        "cursor": studio.relay.cursor(session_id, turn.after_seq),
        "last_cursor": studio.relay.cursor(session_id, turn.last_seq),
        "input": turn.input[:_MAX_INPUT_CHARS],
        "started_at": turn.started_at,
        "ended_at": turn.ended_at,
        "outcome": turn.outcome,
        "events": turn.events,
        "tool_calls": turn.tool_calls,
    }


async def start(request: Request) -> Response:
    """Accept a message of the user: it starts a turn or waits for one.

    With `Accept: text/event-stream` the response has the events of the turn and of its child turns (the speeches of a
    team, sub-agents), up to its terminal event. A message to a busy session (`when_busy`) is announced by the event
    `queued` with the id of its turn: its own, or the running turn that it steers; that turn reports it as `steered`. At
    most 100 messages and 64 MiB of texts and files wait in a session; more are a 409.

    An accepted message is stored and is not lost. It is used, or returned by the event `handed_back`: after a stop,
    when the turn that it was to steer fails, or when a restart ends the turn that it waited for. A request that repeats
    a `client_turn_id` is answered with the state of the first one.
    """
    studio, session_id = services(request), request.path_params["session_id"]
    body = await read_body(request, StartTurnBody)
    await check_model(studio, body.model)
    for model in body.variants if isinstance(body.variants, list) else ():
        await check_model(studio, model, field="variants")
    if body.variants is not None and body.when_busy != "reject":
        raise Problem("invalid_body", "'when_busy' must be 'reject' with 'variants'.", field="when_busy")
    if body.compact:
        await _check_compaction(studio, session_id, body)
    if body.output_schema is not None:
        await _check_output_schema(studio, session_id, body)
    if not body.input and (await studio.store.catalog.get(session_id)).team is None:
        raise Problem("invalid_body", "'input' must not be empty.", field="input")
    turn_request = TurnRequest(
        input=body.input,
        attachments=await _read_attachments(body.attachments) if body.attachments else (),
        client_turn_id=body.client_turn_id,
        model=body.model,
        permission_mode=body.permission_mode,
        sampling=_sampling(body.sampling),
        output_schema=body.output_schema,
        mode=body.mode,
        vaults=None if body.vaults is None else await vault_ids(studio, body.vaults),
        when_busy=body.when_busy,
        variants=tuple(body.variants) if isinstance(body.variants, list) else body.variants,
        compact=body.compact,
    )
    submission = await studio.hub.submit(session_id, turn_request)
    if _wants_events(request):
        return await studio.relay.respond_to_turn(session_id, submission.turn.id, after_seq=submission.after_seq)
    cursor = studio.relay.cursor(session_id, submission.after_seq)
    return JSONResponse(_turn_response(submission, cursor), 202)


async def stop(request: Request) -> Response:
    """Stop the running turn, and hand back the messages that wait; the turn still ends with its terminal event.

    All sub-agents of the session are stopped too, also when no turn runs: `turn_id` is null then.
    """
    await read_body(request, StopTurnBody)
    turn = await services(request).hub.stop(request.path_params["session_id"])
    stopped: StopTurnResponse = {"turn_id": None if turn is None else turn.id}
    return JSONResponse(stopped, 202)


def _sampling(body: SamplingBody | None) -> Sampling | None:
    try:
        return None if body is None else Sampling(**body.model_dump())
    except ValueError as exc:
        raise Problem("invalid_body", f"'sampling': {exc}.", field="sampling") from exc


async def _check_compaction(studio: Services, session_id: str, body: StartTurnBody) -> None:
    """Raise `Problem` for a message that asks for more than to compact the conversation, and in a team."""
    asks_more = body.variants is not None or body.output_schema is not None or body.attachments
    if asks_more or body.when_busy != "reject":
        sentence = "'compact' takes no variants, output_schema or attachments, and 'when_busy' must be 'reject'."
        raise Problem("invalid_body", sentence, field="compact")
    if (await studio.store.catalog.get(session_id)).team is not None:
        sentence = "'compact' is for the conversation of one agent; each participant of a team has its own."
        raise Problem("invalid_body", sentence, field="compact")


async def _check_output_schema(studio: Services, session_id: str, body: StartTurnBody) -> None:
    """Raise `Problem` for an invalid schema, and for a message that no single agent answers."""
    assert body.output_schema is not None
    try:
        check_output_schema(body.output_schema)
    except ValueError as exc:
        raise Problem("invalid_body", f"'output_schema': {exc}.", field="output_schema") from exc
    if body.variants is not None or (await studio.store.catalog.get(session_id)).team is not None:
        sentence = "'output_schema' is for the answer of one agent; leave it out with variants, and for a team."
        raise Problem("invalid_body", sentence, field="output_schema")


def _turn_response(submission: Submission, cursor: str) -> StartTurnResponse:
    """Return the cursor of the turn's events, and the state of a message that did not start its turn at once."""
    match submission.state:
        case "started":
            return {"turn_id": submission.turn.id, "cursor": cursor}
        case "steered":
            return {"turn_id": submission.turn.id, "message_id": submission.message_id}
        case "queued" | "handed_back":
            message_id = submission.message_id
            return {
                "turn_id": submission.turn.id,
                "cursor": cursor,
                "state": submission.state,
                "message_id": message_id,
            }


async def _read_attachments(bodies: Sequence[AttachmentBody]) -> tuple[Attachment, ...]:
    size = sum(len(body.data) for body in bodies)
    return await run_sized(_attachments, bodies, size=size, name="agx attachments")


def _attachments(bodies: Sequence[AttachmentBody]) -> tuple[Attachment, ...]:
    return tuple(_attachment(index, body) for index, body in enumerate(bodies))


def _attachment(index: int, body: AttachmentBody) -> Attachment:
    """Return the decoded file; raise `Problem`: 413 over a limit, 422 if not base64 or of a type that is refused."""
    field = f"attachments.{index}.data"
    try:
        return make_attachment(body.name, b64decode(body.data, validate=True), body.media_type)
    except AttachmentTooLarge as exc:
        raise Problem("attachment_too_large", f"{exc}.", field=field) from exc
    except AttachmentRefused as exc:
        raise Problem("attachment_refused", f"{exc}.", field=field) from exc
    except ValueError as exc:
        raise Problem("invalid_body", f"{field!r} must be base64.", field=field) from exc


def _wants_events(request: Request) -> bool:
    media_types = ",".join(request.headers.getlist("accept")).lower().split(",")
    return any(media_type.partition(";")[0].strip() == "text/event-stream" for media_type in media_types)
