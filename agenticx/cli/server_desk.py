"""Sessions kept and turns run by a server on this machine: every wish is a request, and its log is a stream.

1. A stream that breaks goes on behind the last event that came; a server that is being restarted is waited for.
2. What this terminal answers, it answers as the person whose token it has; so `by` is then `user`, also where `--yes`
   or the lack of a terminal decided, and the reason says which.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, fields
from time import monotonic
from typing import Any, Literal
from urllib.parse import quote, urlencode

from agenticx.cli.desk import ServerLost, SessionInfo, SessionOptions, TurnPosition
from agenticx.cli.envelopes import Envelope
from agenticx.cli.loopback import RequestRejected, ServerEndpoint, ServerUnreachable, ServerUnresponsive
from agenticx.messages import UserMessage
from agenticx.runtime import ConfirmAnswer
from agenticx.sessions.base import SessionRecord

__all__ = ["RemoteClient"]

_RETRY_SECONDS = 0.5
_RETRY_LIMIT_SECONDS = 20.0
_MAX_PAGE_SIZE = 200


class RemoteClient:
    """`Desk` over HTTP. `locate` finds the server anew after it went away; `tell` says to the person that it did."""

    def __init__(
        self, locate: Callable[[], ServerEndpoint | None], server: ServerEndpoint, notify: Callable[[str], None]
    ) -> None:
        self._locate = locate
        self._server = server
        self._notify = notify
        self._lost_since: float | None = None  # since when it cannot be reached
        self._notified = False

    @property
    def confirms_by_policy(self) -> bool:
        return False

    @property
    def persistent(self) -> bool:
        return True

    # --- sessions -----------------------------------------------------------------------------------------------------

    async def create(self, options: SessionOptions) -> SessionInfo:
        given = {name: value for name, value in asdict(options).items() if value is not None}
        return _session_info(await self._server.request_json("POST", "/api/sessions", given))

    async def get(self, session_id: str) -> SessionInfo:
        return _session_info(await self._server.request_json("GET", _path(session_id)))

    async def list_sessions(
        self, *, query: str | None = None, limit: int = 50, before: str | None = None, archived: bool = False
    ) -> Sequence[SessionInfo]:
        asked = {"q": query, "before": before, "archived": "all" if archived else None}
        known: list[SessionInfo] = []
        while len(known) < limit:
            size = min(limit - len(known), _MAX_PAGE_SIZE)
            given = {"limit": size, **{name: value for name, value in asked.items() if value}}
            page = (await self._server.request_json("GET", f"/api/sessions?{urlencode(given)}"))["sessions"]
            known += map(_session_info, page)
            if len(page) < size:
                break
            asked["before"] = known[-1].id
        return known

    async def change(self, session_id: str, changes: Mapping[str, Any]) -> SessionInfo:
        return _session_info(await self._server.request_json("PATCH", _path(session_id), changes))

    async def delete(self, session_id: str) -> None:
        await self._server.request_json("DELETE", _path(session_id))

    # --- turns --------------------------------------------------------------------------------------------------------

    async def start(self, session_id: str, message: UserMessage, model: str | None) -> TurnPosition:
        attached = [attachment.model_dump() for attachment in message.attachments]
        body = {"input": message.content, "attachments": attached, "model": model}
        answer = await self._server.request_json("POST", _path(session_id, "turns"), body)
        return TurnPosition(answer["turn_id"], answer["cursor"])

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
        cursor, begun = position.cursor, position.cursor is not None
        while True:
            try:
                async for frame in _frames(await self._stream(session_id, cursor, connection)):
                    cursor, event, self._lost_since = frame.cursor, frame.envelope, None
                    begun = begun or event.turn_id == position.turn_id
                    if begun:
                        yield event
                    if event.terminal and event.turn_id == position.turn_id:
                        return
                ended = None
            except ServerUnreachable as exc:
                ended = exc
            await self._wait_for_server(ended)

    async def stop(self, session_id: str) -> None:
        await self._request_with_retries("POST", _path(session_id, "stop"))

    async def answer(self, request_id: str, digest: str, answer: ConfirmAnswer) -> None:
        body: dict[str, Any] = {"approved": answer.approved, "digest": digest, "remember": answer.remember}
        if answer.reason is not None:
            body["reason"] = answer.reason
        await self._request_with_retries("POST", f"/api/confirms/{quote(request_id, safe='')}", body)

    @asynccontextmanager
    async def read_log(self, session_id: str) -> AsyncGenerator[AsyncIterator[Envelope]]:
        async with self._server.stream("GET", _path(session_id, "export?format=jsonl")) as chunks:
            yield (Envelope.parse(line) async for line in _split(chunks, b"\n"))

    @asynccontextmanager
    async def export(self, session_id: str, form: Literal["jsonl", "markdown"]) -> AsyncGenerator[AsyncIterator[bytes]]:
        async with self._server.stream("GET", _path(session_id, f"export?format={form}")) as chunks:
            yield chunks

    # --- the rest -----------------------------------------------------------------------------------------------------

    async def resolve_model(self, name: str | None) -> str:
        """The name, which the server checks when it is used."""
        return name or str((await self._server.request_json("GET", "/api/models"))["default"])

    async def tools(self) -> Sequence[tuple[str, str]]:
        rows = (await self._server.request_json("GET", "/api/tools"))["tools"]
        return [(row["name"], row["description"]) for row in rows]

    async def aclose(self) -> None:
        return None

    async def _stream(self, session_id: str, cursor: str | None, connection: AsyncExitStack) -> AsyncIterator[bytes]:
        """The session's stream from `cursor`, on a new connection."""
        await connection.aclose()
        path = _path(session_id, "events") + ("" if cursor is None else f"?{urlencode({'cursor': cursor})}")
        return await connection.enter_async_context(self._server.stream("GET", path))

    async def _request_with_retries(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> None:
        """A request that may be made twice, until the server takes it."""
        while True:
            try:
                await self._server.request_json(method, path, body)
            except ServerUnreachable as exc:
                await self._wait_for_server(exc)
            else:
                return

    async def _wait_for_server(self, error: ServerUnreachable | None) -> None:
        """Between two attempts to reach the server; raises `DeskLost` when there were enough of them.

        The person is told from the second one on: a stream that is cut is nothing to be told of. One that fell silent
        is: who watched it waited for long already.
        """
        now, again = monotonic(), self._lost_since is not None
        if self._lost_since is None:
            self._lost_since, self._notified = now, False
        if not self._notified and (again or isinstance(error, ServerUnresponsive)):
            self._notified = True
            ended = str(error) if isinstance(error, ServerUnresponsive) else "the server broke off"
            self._notify(f"{ended}; waiting for it to come back …")
        if now - self._lost_since > _RETRY_LIMIT_SECONDS:
            raise ServerLost(
                f"the server at {self._server.url} went away; once it is back, `agx sessions show` tells what became"
                " of the turn"
            )
        await asyncio.sleep(_RETRY_SECONDS)
        self._server = self._locate() or self._server


@dataclass(frozen=True, slots=True)
class _Frame:
    """One event of a stream and the cursor behind it."""

    cursor: str
    envelope: Envelope

    @classmethod
    def parse(cls, text: bytes) -> _Frame | None:
        """The event in a frame; None for a comment and for what the server says of itself.

        Raises `Refused` where it says that the cursor is not one of its log.
        """
        lines = dict(line.split(b": ", 1) for line in text.splitlines() if b": " in line and not line.startswith(b":"))
        data, cursor = lines.get(b"data"), lines.get(b"id")
        if data is None:
            return None
        if cursor is None:
            if json.loads(data)["type"] == "reset":
                raise RequestRejected(
                    "the server has another log than before; `agx sessions list` shows what it has", "reset"
                )
            return None
        return cls(cursor.decode(), Envelope.parse(data))


async def _frames(chunks: AsyncIterator[bytes]) -> AsyncGenerator[_Frame]:
    async for text in _split(chunks, b"\n\n"):
        frame = _Frame.parse(text)
        if frame is not None:
            yield frame


async def _split(chunks: AsyncIterator[bytes], separator: bytes) -> AsyncGenerator[bytes]:
    """What comes in chunks, cut where `end` stands; what has no end is not whole and is dropped."""
    rest = bytearray()
    async for chunk in chunks:
        seen = max(len(rest) - len(separator), 0)
        rest += chunk
        while (at := rest.find(separator, seen)) >= 0:
            yield bytes(rest[:at])
            del rest[: at + len(separator)]
            seen = 0


def _path(session_id: str, subpath: str = "") -> str:
    return f"/api/sessions/{quote(session_id, safe='')}" + (f"/{subpath}" if subpath else "")


def _session_info(row: Mapping[str, Any]) -> SessionInfo:
    known: dict[str, Any] = {field.name: row[field.name] for field in fields(SessionRecord) if field.name in row}
    if known.get("tools") is not None:
        known["tools"] = tuple(known["tools"])
    return SessionInfo(SessionRecord(**known), row["running_turn_id"], row.get("matches", ()))
