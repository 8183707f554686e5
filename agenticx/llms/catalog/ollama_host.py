"""The URL of an Ollama server, from the format of its own setting OLLAMA_HOST."""

from __future__ import annotations

import re

__all__ = ["OLLAMA_BASE_URL", "ollama_url"]

OLLAMA_BASE_URL = "http://127.0.0.1:11434"


def ollama_url(host: str) -> str:
    """Return the URL of OLLAMA_HOST, which may lack scheme and port and name all addresses to listen on.

    >>> ollama_url("0.0.0.0"), ollama_url("box:8080"), ollama_url("https://box/ollama/v1/")
    ('http://127.0.0.1:11434', 'http://box:8080', 'https://box/ollama')
    """
    scheme, _, rest = host.strip().rpartition("://")
    address, _, path = rest.partition("/")
    address = re.sub(r"^(0\.0\.0\.0|\[::\])?(?=:\d|$)", "127.0.0.1", address)
    if not scheme and not re.search(r":\d+$", address):
        address += ":11434"
    return re.sub(r"/+((api|v1)/*)?$", "", f"{scheme or 'http'}://{address}/{path}")
