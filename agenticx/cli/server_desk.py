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

from agenticx.cli.desk import DeskLost, Known, NewSession, Place
from agenticx.cli.envelopes import Envelope
from agenticx.cli.loopback import Loopback, Refused, Silent, Unreachable
from agenticx.messages import UserMessage
from agenticx.runtime import ConfirmAnswer
from agenticx.sessions.base import SessionRecord

__all__ = ["ServerDesk"]

_RETRY_SECONDS = 0.5
_PATIENCE_SECONDS = 20.0
_LARGEST_PAGE = 200


class ServerDesk:
    """`Desk` over HTTP. `locate` finds the server anew after it went away; `tell` says to the person that it did."""

    def __init__(self, locate: Callable[[], Loopback | None], server: Loopback, tell: Callable[[str], None]) -> None:
        self._locate = locate
        self._server = server
        self._tell = tell
        self._lost: float | None = None  # since when it cannot be reached
        self._told = False

    @property
    def by_policy(self) -> bool:
        return False

    @property
    def kept(self) -> bool:
        return True

    # --- sessions -----------------------------------------------------------------------------------------------------

    async def create(self, wanted: NewSession) -> Known:
        given = {name: value for name, value in asdict(wanted).items() if value is not None}
        return _known(await self._server.json("POST", "/api/sessions", given))

    async def get(self, session_id: str) -> Known:
        return _known(await self._server.json("GET", _path(session_id)))

    async def sessions(
        self, *, query: str | None = None, limit: int = 50, before: str | None = None, archived: bool = False
    ) -> Sequence[Known]:
        asked = {"q": query, "before": before, "archived": "all" if archived else None}
        known: list[Known] = []
        while len(known) < limit:
            size = min(limit - len(known), _LARGEST_PAGE)
            given = {"limit": size, **{name: value for name, value in asked.items() if value}}
            page = (await self._server.json("GET", f"/api/sessions?{urlencode(given)}"))["sessions"]
            known += map(_known, page)
            if len(page) < size:
                break
            asked["before"] = known[-1].id
        return known

    async def change(self, session_id: str, changes: Mapping[str, Any]) -> Known:
        return _known(await self._server.json("PATCH", _path(session_id), changes))

    async def delete(self, session_id: str) -> None:
        await self._server.json("DELETE", _path(session_id))

    # --- turns --------------------------------------------------------------------------------------------------------

    async def start(self, session_id: str, said: UserMessage, model: str | None) -> Place:
        attached = [attachment.model_dump() for attachment in said.attachments]
        body = {"input": said.content, "attachments": attached, "model": model}
        answer = await self._server.json("POST", _path(session_id, "turns"), body)
        return Place(answer["turn_id"], answer["cursor"])

    async def running(self, session_id: str) -> Place | None:
        turn_id = (await self.get(session_id)).running_turn_id
        return None if turn_id is None else Place(turn_id)

    @asynccontextmanager
    async def follow(self, session_id: str, place: Place) -> AsyncGenerator[AsyncIterator[Envelope]]:
        async with AsyncExitStack() as connection:
            yield self._turn_events(session_id, place, connection)

    async def _turn_events(self, session_id: str, place: Place, connection: AsyncExitStack) -> AsyncGenerator[Envelope]:
        cursor, begun = place.cursor, place.cursor is not None
        while True:
            try:
                async for frame in _frames(await self._stream(session_id, cursor, connection)):
                    cursor, event, self._lost = frame.cursor, frame.envelope, None
                    begun = begun or event.turn_id == place.turn_id
                    if begun:
                        yield event
                    if event.terminal and event.turn_id == place.turn_id:
                        return
                ended = None
            except Unreachable as exc:
                ended = exc
            await self._wait_for_server(ended)

    async def stop(self, session_id: str) -> None:
        await self._patiently("POST", _path(session_id, "stop"))

    async def answer(self, request_id: str, digest: str, answer: ConfirmAnswer) -> None:
        body: dict[str, Any] = {"approved": answer.approved, "digest": digest, "remember": answer.remember}
        if answer.reason is not None:
            body["reason"] = answer.reason
        await self._patiently("POST", f"/api/confirms/{quote(request_id, safe='')}", body)

    @asynccontextmanager
    async def log(self, session_id: str) -> AsyncGenerator[AsyncIterator[Envelope]]:
        async with self._server.body("GET", _path(session_id, "export?format=jsonl")) as chunks:
            yield (Envelope.read(line) async for line in _pieces(chunks, b"\n"))

    @asynccontextmanager
    async def export(self, session_id: str, form: Literal["jsonl", "markdown"]) -> AsyncGenerator[AsyncIterator[bytes]]:
        async with self._server.body("GET", _path(session_id, f"export?format={form}")) as chunks:
            yield chunks

    # --- the rest -----------------------------------------------------------------------------------------------------

    async def model(self, name: str | None) -> str:
        """The name, which the server checks when it is used."""
        return name or str((await self._server.json("GET", "/api/models"))["default"])

    async def tools(self) -> Sequence[tuple[str, str]]:
        rows = (await self._server.json("GET", "/api/tools"))["tools"]
        return [(row["name"], row["description"]) for row in rows]

    async def aclose(self) -> None:
        return None

    async def _stream(self, session_id: str, cursor: str | None, connection: AsyncExitStack) -> AsyncIterator[bytes]:
        """The session's stream from `cursor`, on a new connection."""
        await connection.aclose()
        path = _path(session_id, "events") + ("" if cursor is None else f"?{urlencode({'cursor': cursor})}")
        return await connection.enter_async_context(self._server.body("GET", path))

    async def _patiently(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> None:
        """A request that may be made twice, until the server takes it."""
        while True:
            try:
                await self._server.json(method, path, body)
            except Unreachable as exc:
                await self._wait_for_server(exc)
            else:
                return

    async def _wait_for_server(self, why: Unreachable | None) -> None:
        """Between two attempts to reach the server; raises `DeskLost` when there were enough of them.

        The person is told from the second one on: a stream that is cut is nothing to be told of. One that fell silent
        is: who watched it waited for long already.
        """
        now, again = monotonic(), self._lost is not None
        if self._lost is None:
            self._lost, self._told = now, False
        if not self._told and (again or isinstance(why, Silent)):
            self._told = True
            ended = str(why) if isinstance(why, Silent) else "the server broke off"
            self._tell(f"{ended}; waiting for it to come back …")
        if now - self._lost > _PATIENCE_SECONDS:
            raise DeskLost(
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
    def read(cls, text: bytes) -> _Frame | None:
        """The event in a frame; None for a comment and for what the server says of itself.

        Raises `Refused` where it says that the cursor is not one of its log.
        """
        lines = dict(line.split(b": ", 1) for line in text.splitlines() if b": " in line and not line.startswith(b":"))
        data, cursor = lines.get(b"data"), lines.get(b"id")
        if data is None:
            return None
        if cursor is None:
            if json.loads(data)["type"] == "reset":
                raise Refused("the server has another log than before; `agx sessions list` shows what it has", "reset")
            return None
        return cls(cursor.decode(), Envelope.read(data))


async def _frames(chunks: AsyncIterator[bytes]) -> AsyncGenerator[_Frame]:
    async for text in _pieces(chunks, b"\n\n"):
        frame = _Frame.read(text)
        if frame is not None:
            yield frame


async def _pieces(chunks: AsyncIterator[bytes], end: bytes) -> AsyncGenerator[bytes]:
    """What comes in chunks, cut where `end` stands; what has no end is not whole and is dropped."""
    rest = bytearray()
    async for chunk in chunks:
        seen = max(len(rest) - len(end), 0)
        rest += chunk
        while (at := rest.find(end, seen)) >= 0:
            yield bytes(rest[:at])
            del rest[: at + len(end)]
            seen = 0


def _path(session_id: str, below: str = "") -> str:
    return f"/api/sessions/{quote(session_id, safe='')}" + (f"/{below}" if below else "")


def _known(row: Mapping[str, Any]) -> Known:
    known: dict[str, Any] = {field.name: row[field.name] for field in fields(SessionRecord) if field.name in row}
    if known.get("tools") is not None:
        known["tools"] = tuple(known["tools"])
    return Known(SessionRecord(**known), row["running_turn_id"], row.get("matches", ()))
