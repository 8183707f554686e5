"""The client of a server on this machine that stores the sessions and runs their turns.

1. A broken event stream is resumed after the last event received, also when the server restarts.
2. A request that changes nothing when it is repeated is sent again to the terminals that follow one that has ended.
3. A confirmation that `--yes` or the lack of a terminal decided is answered `by` policy, as in a turn of this process:
   the model must not read that the user denied a call if nobody could be asked.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, fields
from decimal import Decimal
from pathlib import Path
from time import monotonic
from typing import Any, Literal, TypeVar
from urllib.parse import quote, urlencode

from agenticx.cli.client.base import (
    DEFAULT_OPTIONS,
    ResolvedModel,
    RewindReport,
    ServerLost,
    SessionInfo,
    SessionOptions,
    TurnOptions,
    TurnPosition,
)
from agenticx.cli.client.envelopes import Envelope
from agenticx.cli.client.http import RequestRejected, ServerEndpoint, ServerUnreachable, ServerUnresponsive
from agenticx.http.json_lines import LineParser
from agenticx.http.sse import IdentifiedEvent, SseParser, StrayJson
from agenticx.messages import MAIN_AGENT, UserMessage
from agenticx.permissions.rules import Rule, rule_from
from agenticx.runtime.user_requests.kinds import kind_of
from agenticx.runtime.user_requests.requests import UserAnswer
from agenticx.sessions.log.session_record import SessionRecord
from agenticx.sessions.log.usage import DailyUsage, UsageCounts
from agenticx.tools.artifacts.files import Artifact

__all__ = ["RETRY_LIMIT_SECONDS", "RemoteClient"]

T = TypeVar("T")

_RETRY_SECONDS = 0.5
_TERMINAL_RETRY_SECONDS = 0.05
RETRY_LIMIT_SECONDS = 20.0
"""The longest wait for a server that was lost."""

_MAX_PAGE_SIZE = 200
_NO_LIMIT = sys.maxsize  # of an event: the server limits what it stores


class RemoteClient:
    """A `Client` over HTTP.

    `locate` finds the server again after the connection to it is lost; `notify` shows the user that it is. Once
    `has_owner` says that no process has the sessions, the server has ended, and is waited for `restart_seconds`. A
    terminal that has ended does not come back: `take_over` has this process serve the sessions, and returns the
    endpoint; None while it cannot, as another process is about to own them.
    """

    def __init__(
        self,
        locate: Callable[[], Awaitable[ServerEndpoint | None]],
        server: ServerEndpoint,
        notify: Callable[[str], None],
        *,
        has_owner: Callable[[], bool],
        restart_seconds: float = RETRY_LIMIT_SECONDS,
        take_over: Callable[[], Awaitable[ServerEndpoint | None]] | None = None,
    ) -> None:
        self._has_owner = has_owner
        self._take_over = take_over
        self._restart_seconds = restart_seconds
        self._locate = locate
        self._server = server
        self._notify = notify
        self._lost_since: float | None = None  # monotonic time of the first failed attempt
        self._notified = False

    @property
    def confirms_by_policy(self) -> bool:
        return False

    @property
    def persistent(self) -> bool:
        return True

    @property
    def server(self) -> ServerEndpoint:
        """The server, or the other terminal, that has the sessions."""
        return self._server

    async def find_server(self) -> bool:
        """Look the server up again and use what is found; return False if no server owns the sessions.

        A restarted server may have another address, and its former port may belong to another program.
        """
        found = await self._find_or_take_over()
        if found is None:
            return False
        self._use(found)
        self._lost_since = None
        return True

    def _use(self, found: ServerEndpoint) -> None:
        """Send requests to a server from now on; a terminal takes the place of another one without notice."""
        is_other = (found.url, found.pid) != (self._server.url, self._server.pid)
        if is_other and not found.is_terminal:
            self._notify(f"agx serve now runs at {found.url} (process {found.pid}), through which this goes on")
        self._server = found

    async def _find_or_take_over(self) -> ServerEndpoint | None:
        """Return the server that has the sessions, None for none; it may be this process after a terminal's end."""
        began = monotonic()
        while True:
            found = await self._locate()
            if found is not None or self._take_over is None or not self._server.is_terminal:
                return found
            found = await self._take_over()
            if found is not None or monotonic() - began > RETRY_LIMIT_SECONDS:
                return found
            await asyncio.sleep(_TERMINAL_RETRY_SECONDS)

    # --- sessions -----------------------------------------------------------------------------------------------------

    async def create(self, options: SessionOptions) -> SessionInfo:
        body = {name: value for name, value in asdict(options).items() if value is not None}
        return _session_info(await self._server.request_json("POST", "/api/sessions", body))

    async def get(self, session_id: str) -> SessionInfo:
        return _session_info(await self._request("GET", _path(session_id)))

    async def list_sessions(
        self, *, query: str | None = None, limit: int = 50, before: str | None = None, archived: bool = False
    ) -> Sequence[SessionInfo]:
        filters = {"q": query, "before": before, "archived": "all" if archived else None}
        sessions: list[SessionInfo] = []
        while len(sessions) < limit:
            size = min(limit - len(sessions), _MAX_PAGE_SIZE)
            parameters = {"limit": size, **{name: value for name, value in filters.items() if value}}
            page = (await self._request("GET", f"/api/sessions?{urlencode(parameters)}"))["sessions"]
            sessions += map(_session_info, page)
            if len(page) < size:
                break
            filters["before"] = sessions[-1].id
        return sessions

    async def change(self, session_id: str, changes: Mapping[str, Any]) -> SessionInfo:
        return _session_info(await self._request("PATCH", _path(session_id), changes))

    async def fork(self, session_id: str, message_id: str | None) -> SessionInfo:
        body = {"message_id": message_id}
        return _session_info(await self._server.request_json("POST", _path(session_id, "fork"), body))

    async def rewind(self, session_id: str, message_id: str | None) -> RewindReport:
        body = {"message_id": message_id}
        result = await self._server.request_json("POST", _path(session_id, "rewind"), body)
        return RewindReport(result["rewound_to"], result["undo"]["message_id"], result["files"])

    async def usage(
        self, *, session_id: str | None = None, since: str | None = None, until: str | None = None
    ) -> Sequence[DailyUsage]:
        filters = {"session_id": session_id, "since": since, "until": until}
        query = urlencode({name: value for name, value in filters.items() if value is not None})
        report = await self._request("GET", "/api/usage" + (f"?{query}" if query else ""))
        return [_daily_usage(row) for row in report["rows"]]

    async def pick(self, session_id: str, option: int) -> None:
        await self._server.request_json("POST", _path(session_id, f"options/{option}/pick"), {})

    async def delete(self, session_id: str) -> None:
        await self._request("DELETE", _path(session_id))

    # --- turns --------------------------------------------------------------------------------------------------------

    async def start(
        self, session_id: str, message: UserMessage, options: TurnOptions = DEFAULT_OPTIONS
    ) -> TurnPosition:
        attached = [attachment.model_dump() for attachment in message.attachments]
        given = {name: value for name, value in asdict(options).items() if value not in (None, False)}
        body = {"input": message.content, "attachments": attached, **given}
        turn = await self._server.request_json("POST", _path(session_id, "turns"), body)
        is_waiting = turn.get("state") in ("queued", "handed_back")
        return TurnPosition(turn["turn_id"], turn.get("cursor"), turn["message_id"] if is_waiting else None)

    async def running_turn(self, session_id: str) -> TurnPosition | None:
        turn_id = (await self.get(session_id)).running_turn_id
        return None if turn_id is None else TurnPosition(turn_id)

    @asynccontextmanager
    async def follow(self, session_id: str, position: TurnPosition) -> AsyncGenerator[AsyncIterator[Envelope]]:
        async with AsyncExitStack() as connection:
            yield self._turn_events(session_id, position, connection)

    async def _turn_events(
        self, session_id: str, position: TurnPosition, connection: AsyncExitStack
    ) -> AsyncGenerator[Envelope]:
        cursor, started = position.cursor, position.cursor is not None
        while True:
            try:
                async for frame in _stream_events(await self._stream(session_id, cursor, connection)):
                    cursor, event, self._lost_since = frame.cursor, frame.envelope, None
                    started = started or event.turn_id == position.turn_id
                    if started:
                        yield event
                    if event.terminal and event.turn_id == position.turn_id:
                        return
                error = None
            except ServerUnreachable as exc:
                error = exc
            await self._wait_for_server(error)

    @asynccontextmanager
    async def follow_log(self, session_id: str, after: int) -> AsyncGenerator[AsyncIterator[Envelope]]:
        async with AsyncExitStack() as connection:
            yield self._events_after(session_id, after, connection)

    async def _events_after(self, session_id: str, after: int, connection: AsyncExitStack) -> AsyncGenerator[Envelope]:
        """Yield the events stored by now, then those of a stream, which begins at a turn: some of them once more."""
        turns = (await self._request("GET", _path(session_id, "turns?limit=1")))["turns"]
        path = _path(session_id, f"export?format=jsonl&after={after}")
        async for event in _log_lines(await connection.enter_async_context(self._get(path))):
            after = event.seq
            yield event
        cursor = turns[-1]["cursor"] if turns else None
        async for frame in _stream_events(await self._stream(session_id, cursor, connection)):
            if frame.envelope.seq > after:
                yield frame.envelope

    async def working_subagents(self) -> int:
        """Return 0: the sub-agents of a server go on."""
        return 0

    async def stop(self, session_id: str) -> None:
        await self._request_with_retries("POST", _path(session_id, "stop"))

    async def remove_queued(self, session_id: str, message_id: str) -> bool:
        try:
            await self._request_with_retries("DELETE", _path(session_id, f"queue/{quote(message_id, safe='')}"))
        except RequestRejected as exc:
            if exc.code != "message_not_queued":
                raise
            return False
        return True

    async def answer(self, request_id: str, answer: UserAnswer, digest: str) -> None:
        kind = kind_of(answer)
        path = f"/api/{kind.resource}/{quote(request_id, safe='')}"
        await self._request_with_retries("POST", path, kind.answer_body(answer, digest))

    async def rules(self, session_id: str | None, workspace: Path) -> Sequence[Rule]:
        given = {"workspace": str(workspace)} if session_id is None else {"session_id": session_id}
        rows = (await self._request("GET", f"/api/permissions?{urlencode(given)}"))["rules"]
        return list(map(rule_from, rows))

    async def remove_rule(self, rule_id: str) -> Rule:
        return rule_from(await self._request("DELETE", f"/api/permissions/{quote(rule_id, safe='')}"))

    @asynccontextmanager
    async def read_log(self, session_id: str, after: int = 0) -> AsyncGenerator[AsyncIterator[Envelope]]:
        async with self._get(_path(session_id, f"export?format=jsonl&after={after}")) as chunks:
            yield _log_lines(chunks)

    @asynccontextmanager
    async def export(self, session_id: str, form: Literal["jsonl", "markdown"]) -> AsyncGenerator[AsyncIterator[bytes]]:
        async with self._get(_path(session_id, f"export?format={form}")) as chunks:
            yield chunks

    async def artifacts(self, session_id: str, *, option: int | None = None) -> Sequence[Artifact]:
        path = _path(session_id, f"artifacts{_query(option=option)}")
        rows = (await self._request("GET", path))["artifacts"]
        return [Artifact(**{field.name: row[field.name] for field in fields(Artifact)}) for row in rows]

    async def option_numbers(self, session_id: str) -> Sequence[int]:
        rows = (await self._request("GET", _path(session_id, "options")))["options"]
        return [row["number"] for row in rows]

    async def read_attachment(self, session_id: str, digest: str) -> bytes:
        async with self._get(_path(session_id, f"attachments/{digest}")) as chunks:
            return b"".join([chunk async for chunk in chunks])

    async def read_artifact(
        self, session_id: str, path: str, revision: int | None = None, *, option: int | None = None
    ) -> bytes:
        query = _query(revision=revision, option=option)
        async with self._get(_path(session_id, f"artifacts/{quote(path)}{query}")) as chunks:
            return b"".join([chunk async for chunk in chunks])

    # --- models and tools ---------------------------------------------------------------------------------------------

    async def resolve_model(self, name: str | None) -> ResolvedModel:
        (model,) = (await self._request("GET", f"/api/models?{urlencode({'name': name or ''})}"))["models"]
        return ResolvedModel(model["id"], model["context_window"])

    async def models(self) -> Sequence[str]:
        return [row["id"] for row in (await self._request("GET", "/api/models?available=true"))["models"]]

    async def tools(self) -> Sequence[tuple[str, str]]:
        rows = (await self._request("GET", "/api/tools"))["tools"]
        return [(row["name"], row["description"]) for row in rows]

    async def aclose(self) -> None:
        return None

    async def _stream(self, session_id: str, cursor: str | None, connection: AsyncExitStack) -> AsyncIterator[bytes]:
        """Open the session's event stream after `cursor` on a new connection."""
        await connection.aclose()
        path = _path(session_id, "events") + ("" if cursor is None else f"?{urlencode({'cursor': cursor})}")
        return await connection.enter_async_context(self._server.stream("GET", path))

    async def _request(self, method: Literal["GET", "PATCH", "DELETE"], path: str, body: Any = None) -> Any:
        """Send an idempotent request, as `_repeat` does, and return the JSON."""
        return await self._repeat(lambda: self._server.request_json(method, path, body))

    @asynccontextmanager
    async def _get(self, path: str) -> AsyncGenerator[AsyncIterator[bytes]]:
        """Yield the content at a path in chunks; the request is sent as that of `_request` is."""
        async with AsyncExitStack() as connection:
            yield await self._repeat(lambda: connection.enter_async_context(self._server.stream("GET", path)))

    async def _repeat(self, send: Callable[[], Awaitable[T]]) -> T:
        """Send an idempotent request; send it again to the terminal that follows one that has ended, or this process.

        Where many terminals end at once, the next one may end too before it answers.
        """
        began = monotonic()
        while True:
            try:
                return await send()
            except ServerUnreachable as exc:
                is_ended_terminal = self._server.is_terminal and not isinstance(exc, ServerUnresponsive)
                is_late = monotonic() - began > RETRY_LIMIT_SECONDS
                if is_late or not is_ended_terminal or not await self.find_server():
                    raise
            await asyncio.sleep(_TERMINAL_RETRY_SECONDS)

    async def _request_with_retries(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> None:
        """Send an idempotent request until the server accepts it."""
        while True:
            try:
                await self._server.request_json(method, path, body)
            except ServerUnreachable as exc:
                await self._wait_for_server(exc)
            else:
                return

    async def _wait_for_server(self, error: ServerUnreachable | None) -> None:
        """Wait until the server is found again; raise `ServerLost` after too long a time without it.

        Nothing is sent meanwhile, because another program may listen on the port of a server that was killed.
        """
        is_first = True
        while True:
            if not (self._server.is_terminal and is_first):  # the terminal has ended: a studio may be starting
                self._report_loss(error)
                await asyncio.sleep(_RETRY_SECONDS)
            is_first = False
            try:
                found, error = await self._find_or_take_over(), None
            except ServerUnresponsive as exc:
                found, error = None, exc
            if found is not None:
                self._use(found)
                return

    def _report_loss(self, error: ServerUnreachable | None) -> None:
        """Notify the user of a failed attempt from the second one on, because a cut stream is usually resumed at once.

        After a read timeout the first one counts, because the user has already waited for `_READ_TIMEOUT`. Raises
        `ServerLost` once the attempts have gone on for too long.
        """
        now, is_repeated = monotonic(), self._lost_since is not None
        if self._lost_since is None:
            self._lost_since, self._notified = now, False
        if not self._notified and (is_repeated or isinstance(error, ServerUnresponsive)):
            self._notified = True
            problem = str(error) if isinstance(error, ServerUnresponsive) else "lost the connection to the server"
            self._notify(f"{problem}; waiting for it to come back …")
        waited = now - self._lost_since
        if waited > RETRY_LIMIT_SECONDS or (waited > self._restart_seconds and not self._has_owner()):
            raise ServerLost(
                f"lost {self._server.name}; when it runs again, `agx sessions show` shows the outcome, "
                "`/open last` in `agx chat` a question that waits for an answer"
            )


@dataclass(frozen=True, slots=True)
class _StreamEvent:
    """One event of a stream and its cursor."""

    cursor: str
    envelope: Envelope

    @classmethod
    def parse(cls, payload: bytes) -> _StreamEvent | None:
        """Return the event with that payload, or None if it is not part of the log.

        Raise `RequestRejected` for a `reset` event: the cursor is not one of the server's log.
        """
        if isinstance(payload, IdentifiedEvent):
            return cls(payload.id.decode(), Envelope.parse(payload))
        if not isinstance(payload, StrayJson) and json.loads(payload)["type"] == "reset":
            raise RequestRejected("the server's log was replaced; `agx sessions list` shows its sessions", "reset")
        return None


async def _log_lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[Envelope]:
    """Yield the events of an exported log."""
    parser = LineParser(_NO_LIMIT)
    async for chunk in chunks:
        for line in parser.feed(chunk):
            yield Envelope.parse(line)


async def _stream_events(chunks: AsyncIterator[bytes]) -> AsyncGenerator[_StreamEvent]:
    """Yield the events of a stream; one that is cut off at its end is dropped."""
    parser = SseParser(_NO_LIMIT)
    async for chunk in chunks:
        for payload in parser.feed(chunk):
            event = _StreamEvent.parse(payload)
            if event is not None:
                yield event


def _path(session_id: str, subpath: str = "") -> str:
    return f"/api/sessions/{quote(session_id, safe='')}" + (f"/{subpath}" if subpath else "")


def _query(**parameters: int | None) -> str:
    """Return the query of a URL with the parameters that are not None, "" for none."""
    given = {name: value for name, value in parameters.items() if value is not None}
    return f"?{urlencode(given)}" if given else ""


def _daily_usage(row: Mapping[str, Any]) -> DailyUsage:
    counts = UsageCounts(
        calls=row["calls"],
        uncounted=row["calls_without_counts"],
        unpriced=row["calls_without_cost"],
        input_tokens=row["input_tokens"],
        output_tokens=row["output_tokens"],
        cached_tokens=row["cached_tokens"],
        reasoning_tokens=row["reasoning_tokens"],
        cost_usd=None if row["cost_usd"] is None else Decimal(row["cost_usd"]),
    )
    ids = {"session_id": row["session_id"], "agent_id": row.get("agent_id", MAIN_AGENT)}
    return DailyUsage(**ids, day=row["day"], model=row["model"], counts=counts)


def _session_info(row: Mapping[str, Any]) -> SessionInfo:
    values: dict[str, Any] = {field.name: row[field.name] for field in fields(SessionRecord) if field.name in row}
    values |= {key: tuple(values[key]) for key in ("tools", "vaults") if values.get(key) is not None}
    return SessionInfo(SessionRecord(**values), row["running_turn_id"], row.get("matches", ()))
