"""A port on which nothing listens."""

from __future__ import annotations

import socket
from collections.abc import Generator
from contextlib import contextmanager

__all__ = ["closed_port"]


@contextmanager
def closed_port() -> Generator[int]:
    """Hold a port of this machine that refuses connections: it is bound, so that nobody else gets it."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]
