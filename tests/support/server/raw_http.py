"""Requests over raw sockets, sent byte for byte, and the routes of the table with example ids."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass

from studio.routes.table import TABLE
from tests.support.server.running_studio import TOKEN, RunningStudio
from tests.support.timeouts import PATIENCE

ALLOWED_ORIGIN = "app://desktop"


_IDS = {
    "agent_id": "a",
    "digest": "0",
    "entry_id": "mem_x",
    "message_id": "msg_x",
    "name": "events",
    "number": "1",
    "path": "a.md",
    "provider": "acme",
    "question_id": "qst_x",
    "request_id": "cfm_x",
    "rule_id": "rul_x",
    "session_id": "ses_x",
    "vault_id": "vault_x",
}
ROUTES = [(route.method, route.path.format(**_IDS)) for route in TABLE]


PROTECTED = [*((route.method, path) for route, (_, path) in zip(TABLE, ROUTES, strict=True) if not route.public)]


BODIES = [(route.method, path) for route, (_, path) in zip(TABLE, ROUTES, strict=True) if route.body is not None]


AUTHORIZED = f"Authorization: Bearer {TOKEN}"


JSON = "Content-Type: application/json"


@dataclass(frozen=True)
class RawResponse:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> str:
        return json.loads(self.body)["code"]


async def send_raw(studio: RunningStudio, request: str | bytes) -> RawResponse:
    """Send bytes unchanged (PORT replaced) and read one response, without its body if it is a stream."""
    raw = request.encode("latin-1") if isinstance(request, str) else request
    reader, writer = await asyncio.open_connection("127.0.0.1", studio.port)
    writer.write(raw.replace(b"PORT", str(studio.port).encode()))
    try:
        async with asyncio.timeout(PATIENCE):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in head[1:-2])}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
        return RawResponse(int(head[0].split()[1]), headers, body)
    finally:
        writer.transport.abort()


def raw_request(method: str, path: str, *headers: str, host: str | None = "127.0.0.1:PORT", body: str = "") -> str:
    lines = [f"{method} {path} HTTP/1.1", *([f"Host: {host}"] if host else []), *headers]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", body])
