"""Hosts of this machine: loopback addresses, and the address of a local Ollama server."""

from __future__ import annotations

import re
from ipaddress import ip_address

__all__ = ["OLLAMA_BASE_URL", "is_loopback", "ollama_url"]

OLLAMA_BASE_URL = "http://127.0.0.1:11434"


def is_loopback(host: str) -> bool:
    """Return whether a host, by name or by address, is this machine itself."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def ollama_url(host: str) -> str:
    """Return the URL of OLLAMA_HOST; scheme and port may be missing, and the host may be 0.0.0.0.

    >>> ollama_url("0.0.0.0"), ollama_url("box:8080"), ollama_url("https://box/ollama/v1/")
    ('http://127.0.0.1:11434', 'http://box:8080', 'https://box/ollama')
    """
    scheme, _, rest = host.strip().rpartition("://")
    address, _, path = rest.partition("/")
    address = re.sub(r"^(0\.0\.0\.0|\[::\])?(?=:\d|$)", "127.0.0.1", address)
    if not scheme and not re.search(r":\d+$", address):
        address += ":11434"
    return re.sub(r"/+((api|v1)/*)?$", "", f"{scheme or 'http'}://{address}/{path}")
