"""Who may talk to the server: Host, then Origin, then token, before anything is routed; and the one-use tickets.

1. Deny by default: every path needs the token unless `is_public` names it, so an unknown, encoded or case-variant path
   opens nothing. Decisions look at `scope["path"]`, the decoded path that routing looks at too; a path that was sent in
   any other spelling than the canonical one, which encodes only what must be, leads nowhere.
2. Sec-Fetch-Site: cross-site is refused unless the Origin is listed (an Electron page is cross-site by nature) or the
   request is a top-level navigation to `/`, which is how a link opens the page.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import quote

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agenticx.clocks import Clock, SystemClock
from agenticx.settings import Settings
from agenticx.token_file import read_token, token_path
from studio.problems import Problem, problem_response

__all__ = ["TICKET_SECONDS", "Boundary", "Guard", "Tickets", "is_public", "load_token"]

TICKET_SECONDS = 600.0
_TICKETS = 64
_PREFLIGHT = (
    (b"access-control-allow-methods", b"GET, POST, PUT, PATCH, DELETE"),
    (b"access-control-allow-headers", b"authorization, content-type, last-event-id"),
    (b"access-control-allow-private-network", b"true"),
    (b"access-control-max-age", b"600"),
)
_HARDENING = (
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
)


def is_public(path: str) -> bool:
    """Whether a path holds no data and is answered without a token."""
    return path in ("/", "/api/health", "/api/ticket") or path.startswith("/assets/")


@dataclass(frozen=True, slots=True)
class Boundary:
    """Where the server is reached: the exact Host values and Origins that are its own, and the Origins it was told."""

    hosts: frozenset[str]
    own_origins: frozenset[str]
    listed_origins: frozenset[str]

    @classmethod
    def of(cls, port: int, *, allowed_hosts: Iterable[str] = (), allowed_origins: Iterable[str] = ()) -> Boundary:
        """The boundary of a server on `port`; a host without a port means the one with ours."""
        named = [host.lower() for host in ("127.0.0.1", "localhost", "[::1]", *allowed_hosts)]
        hosts = {host if re.search(r":\d+$", host) else f"{host}:{port}" for host in named}
        hosts |= {host.removesuffix(":80") for host in hosts if host.endswith(":80")}
        own = frozenset(f"http://{host}" for host in hosts)
        return cls(frozenset(hosts), own, frozenset(allowed_origins))


@dataclass(frozen=True, slots=True)
class Guard:
    """ASGI middleware that lets through what may talk to us and answers everything else itself, its body unread."""

    app: ASGIApp
    boundary: Boundary
    token: str

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        problem, origin = self._inspect(scope)
        send = _with_headers(send, origin)
        if problem is not None:
            await problem_response(problem)(scope, receive, send)
        elif origin is not None and scope["method"] == "OPTIONS" and _one(scope, b"access-control-request-method"):
            await send({"type": "http.response.start", "status": 204, "headers": list(_PREFLIGHT)})
            await send({"type": "http.response.body", "body": b""})
        else:
            problem = self._token_problem(scope) or _spelling_problem(scope)
            await (self.app if problem is None else problem_response(problem))(scope, receive, send)

    def _inspect(self, scope: Scope) -> tuple[Problem | None, str | None]:
        """What is wrong with framing, Host or Origin, if anything; and the listed Origin that gets CORS headers."""
        if _all(scope, b"content-length") and _all(scope, b"transfer-encoding"):
            sentence = "Send Content-Length or Transfer-Encoding, not both: they could name two ends of the body."
            return Problem(400, "two_lengths", sentence, headers={"Connection": "close"}), None
        hosts, origins = _all(scope, b"host"), _all(scope, b"origin")
        if len(hosts) != 1 or not hosts[0]:
            return Problem(400, "bad_host", "Send exactly one Host header."), None
        if hosts[0].lower() not in self.boundary.hosts:
            return _misdirected(self.boundary), None
        if len(origins) > 1:
            return _foreign_origin(), None
        if origins and origins[0] in self.boundary.listed_origins:
            return None, origins[0]
        if origins and origins[0] not in self.boundary.own_origins:
            return _foreign_origin(), None
        if "cross-site" in _all(scope, b"sec-fetch-site") and not _opens_the_page(scope):
            return Problem(403, "cross_site", "Another site sent this request; open the studio's own page."), None
        return None, None

    def _token_problem(self, scope: Scope) -> Problem | None:
        if is_public(scope["path"]):
            return None
        sent = _all(scope, b"authorization")
        scheme, _, credentials = sent[0].partition(" ") if len(sent) == 1 else ("", "", "")
        right = hmac.compare_digest(credentials.encode("latin-1"), self.token.encode())
        if right and scheme.lower() == "bearer":
            return None
        return Problem(
            401,
            "unauthorized",
            "Send the server's token as one header, Authorization: Bearer TOKEN; `agx open` opens a page that has it.",
            headers={"WWW-Authenticate": "Bearer"},
        )


def _all(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def _one(scope: Scope, name: bytes) -> str | None:
    values = _all(scope, name)
    return values[0] if len(values) == 1 else None


def _spelling_problem(scope: Scope) -> Problem | None:
    canonical = quote(scope["path"], safe="/:@!$&'()*+,;=~").encode()
    if scope.get("raw_path") in (None, canonical):
        return None
    return Problem(404, "not_found", "There is nothing at a path spelt like that; encode only what must be encoded.")


def _opens_the_page(scope: Scope) -> bool:
    return scope["path"] == "/" and scope["method"] == "GET" and _one(scope, b"sec-fetch-mode") == "navigate"


def _misdirected(boundary: Boundary) -> Problem:
    known = ", ".join(sorted(boundary.hosts))
    return Problem(421, "wrong_host", f"This server does not answer to that Host; it answers to: {known}.")


def _foreign_origin() -> Problem:
    return Problem(403, "foreign_origin", "That Origin may not call this server; AGX_ALLOWED_ORIGINS lists who may.")


def _with_headers(send: Send, origin: str | None) -> Send:
    extra = list(_HARDENING)
    if origin is not None:
        extra += [(b"access-control-allow-origin", origin.encode("latin-1")), (b"vary", b"Origin")]

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [*message["headers"], *extra]
            if not any(name == b"cache-control" for name, _ in headers):
                headers.append((b"cache-control", b"no-store"))
            message["headers"] = headers
        await send(message)

    return sending


# --- the token --------------------------------------------------------------------------------------------------------


def load_token(settings: Settings) -> str:
    """The server's token: from AGX_TOKEN_FILE, else from AGX_HOME/token, which is made at the first start.

    Raises `SettingsError` for a file that others can read or that holds no token.
    """
    if settings.token_file is not None:
        return read_token(settings)
    settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        descriptor = os.open(token_path(settings), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return read_token(settings)
    token = secrets.token_urlsafe(32)
    with os.fdopen(descriptor, "w") as file:
        file.write(token + "\n")
    return token


# --- tickets ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Tickets:
    """One-use tickets that the page trades for the token; only their digests are kept."""

    clock: Clock = field(default_factory=SystemClock)
    _open: OrderedDict[bytes, float] = field(default_factory=OrderedDict[bytes, float], init=False)

    def issue(self) -> str:
        """A fresh ticket, good once within ten minutes."""
        ticket = secrets.token_urlsafe(24)
        self._open[_digest(ticket)] = self.clock.monotonic() + TICKET_SECONDS
        if len(self._open) > _TICKETS:
            self._open.popitem(last=False)
        return ticket

    def redeem(self, ticket: str) -> bool:
        """Whether the ticket was good; it is used up."""
        expires = self._open.pop(_digest(ticket), None)
        return expires is not None and self.clock.monotonic() < expires


def _digest(ticket: str) -> bytes:
    return hashlib.sha256(ticket.encode()).digest()
