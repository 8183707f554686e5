"""The credentials of the server: its token, and the one-use tickets that the page exchanges for it."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections import OrderedDict
from dataclasses import dataclass, field

from agenticx.clocks import Clock, SystemClock
from agenticx.settings import Settings
from agenticx.token_file import read_token, token_path

__all__ = ["TICKET_SECONDS", "Tickets", "load_or_create_token"]

TICKET_SECONDS = 600.0
_MAX_TICKETS = 64


def load_or_create_token(settings: Settings) -> str:
    """Return the server's token from AGX_TOKEN_FILE, else from AGX_HOME/token, which is created at the first start.

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


@dataclass(slots=True)
class Tickets:
    """The one-use tickets that the page exchanges for the token; only their digests are stored."""

    clock: Clock = field(default_factory=SystemClock)
    _expiry_by_digest: OrderedDict[bytes, float] = field(default_factory=OrderedDict[bytes, float], init=False)

    def issue(self) -> str:
        """Return a new ticket, valid once within ten minutes; the oldest of more than 64 is dropped."""
        ticket = secrets.token_urlsafe(24)
        self._expiry_by_digest[_digest(ticket)] = self.clock.monotonic() + TICKET_SECONDS
        if len(self._expiry_by_digest) > _MAX_TICKETS:
            self._expiry_by_digest.popitem(last=False)
        return ticket

    def redeem(self, ticket: str) -> bool:
        """Consume a ticket and return True if it was valid."""
        expires = self._expiry_by_digest.pop(_digest(ticket), None)
        return expires is not None and self.clock.monotonic() < expires


def _digest(ticket: str) -> bytes:
    return hashlib.sha256(ticket.encode()).digest()
