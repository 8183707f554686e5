"""Connections to hosts through the user's own proxy, named by HTTP_PROXY and HTTPS_PROXY.

That proxy looks names up, so the address of a name is not checked here.
"""

from __future__ import annotations

import asyncio
import errno
import re
from base64 import b64encode
from urllib.parse import unquote

from agenticx.errors import SettingsError
from agenticx.http.url import Url
from agenticx.llms.transport.proxy_settings import Proxy, find_proxy
from agenticx.sandbox.hosts import Host

__all__ = ["connect_through", "find_upstream"]

_STATUS = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: [^\r\n]*)?\r\n")


def find_upstream(host: Host, scheme: str) -> Proxy | None:
    """Return the user's proxy for a host, None to connect directly; raise OSError if the proxy cannot be used."""
    if host.is_local:
        return None
    try:
        proxy = find_proxy(Url.parse(f"{scheme}://{host}"))
    except SettingsError as exc:
        raise OSError(errno.EINVAL, str(exc)) from exc
    if proxy is not None and not proxy.url.startswith(("http://", "https://")):
        raise OSError(errno.EINVAL, f"{proxy.variable} is {proxy.host}, and only a proxy of HTTP can be used here")
    return proxy


async def connect_through(proxy: Proxy, host: Host, *, limit: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a connection to a host through a proxy; raise OSError if that refuses it."""
    url = Url.parse(proxy.url)
    address, port, uses_tls = url.origin
    reader, writer = await asyncio.open_connection(address, port, limit=limit, ssl=uses_tls or None)
    try:
        writer.write(f"CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n{_credentials(url)}\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as exc:
        writer.transport.abort()
        raise OSError(errno.EPROTO, f"{proxy.host} ({proxy.variable}) gives no answer of a proxy") from exc
    except BaseException:
        writer.transport.abort()
        raise
    status = _STATUS.match(head)
    if status is None or not status[1].startswith(b"2"):
        writer.transport.abort()
        answer = "gives no answer of a proxy" if status is None else f"answers {status[1].decode()}"
        raise OSError(errno.EPROTO, f"{proxy.host} ({proxy.variable}) {answer}")
    return reader, writer


def _credentials(url: Url) -> str:
    if not url.userinfo:
        return ""
    user, _, password = url.userinfo.partition(":")
    encoded = b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()
    return f"Proxy-Authorization: Basic {encoded}\r\n"
