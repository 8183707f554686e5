"""The credentials of the server: its token, and the one-use tickets that the page exchanges for it."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Protocol

from agenticx.clocks import Clock, SystemClock
from agenticx.credentials.server_token import read_token, token_path
from agenticx.errors import SettingsError, error_text
from agenticx.logs import get_logger
from agenticx.private_files import replace_file
from agenticx.resource_exhaustion import raise_if_exhausted
from agenticx.settings import Settings
from agenticx.shared_state.state import SharedState
from agenticx.shared_state.values import SharedValues
from agenticx.threads import run_in_thread

__all__ = ["TICKET_SECONDS", "MemoryTickets", "SharedTickets", "Tickets", "load_or_create_token"]

TICKET_SECONDS = 600.0
_MAX_TICKETS = 64

_log = get_logger(__name__)


def load_or_create_token(settings: Settings, shared: SharedState | None = None) -> str:
    """Return the server's token from AGX_TOKEN_FILE, else from AGX_HOME/token; the first start creates that file.

    With a shared state all workers have one token: the first worker stores it there, and AGX_HOME/token is a copy.
    Raises `SettingsError` for a file that others can read or that holds no token, and as `SharedState.token` does.
    """
    if settings.token_file is not None:
        return read_token(settings)
    settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    if shared is not None:
        return _copy_shared_token(settings, shared)
    try:
        descriptor = os.open(token_path(settings), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return read_token(settings)
    token = secrets.token_urlsafe(32)
    with os.fdopen(descriptor, "w") as file:
        file.write(token + "\n")
    return token


def _copy_shared_token(settings: Settings, shared: SharedState) -> str:
    """Return the token of all workers, and write it to AGX_HOME/token for the programs on this host."""
    path = token_path(settings)
    try:
        own = read_token(settings)
    except FileNotFoundError:
        own = None
    token = shared.token(own or secrets.token_urlsafe(32))
    if token == own:
        return token
    if own is not None:
        _log.warning("the token was replaced by that of the other workers", file=str(path))
    try:
        replace_file(path, f"{token}\n".encode("ascii"), path.with_name(".token.new"))
    except OSError as exc:
        raise_if_exhausted(exc)
        raise SettingsError(f"{path} cannot be written: {error_text(exc)}") from exc
    return token


class Tickets(Protocol):
    """The one-use tickets that the page exchanges for the token; only their digests are stored."""

    async def issue(self) -> str:
        """Return a new ticket, valid once within ten minutes."""
        ...

    async def redeem(self, ticket: str) -> bool:
        """Consume a ticket and return True if it was valid."""
        ...


@dataclass(slots=True)
class MemoryTickets:
    """The tickets of one process; the oldest of more than 64 is dropped."""

    clock: Clock = field(default_factory=SystemClock)
    _expiry_by_digest: OrderedDict[str, float] = field(default_factory=OrderedDict[str, float], init=False)

    async def issue(self) -> str:
        ticket = _new_ticket()
        self._expiry_by_digest[_digest(ticket)] = self.clock.monotonic() + TICKET_SECONDS
        if len(self._expiry_by_digest) > _MAX_TICKETS:
            self._expiry_by_digest.popitem(last=False)
        return ticket

    async def redeem(self, ticket: str) -> bool:
        expires = self._expiry_by_digest.pop(_digest(ticket), None)
        return expires is not None and self.clock.monotonic() < expires


@dataclass(frozen=True, slots=True)
class SharedTickets:
    """The tickets of all workers; any worker redeems them. Raises `StoreError`."""

    values: SharedValues

    async def issue(self) -> str:
        ticket = _new_ticket()
        await run_in_thread(self.values.put, _name(ticket), b"", seconds=TICKET_SECONDS, name="agx ticket")
        return ticket

    async def redeem(self, ticket: str) -> bool:
        return await run_in_thread(self.values.take, _name(ticket), name="agx ticket") is not None


def _new_ticket() -> str:
    return secrets.token_urlsafe(24)


def _name(ticket: str) -> str:
    return f"ticket/{_digest(ticket)}"


def _digest(ticket: str) -> str:
    return hashlib.sha256(ticket.encode()).hexdigest()
