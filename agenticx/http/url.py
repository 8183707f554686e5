"""URLs of servers as a client needs them: where to connect, the Host header, and the target."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Self
from urllib.parse import parse_qs, quote, unquote, urlencode

__all__ = ["Url"]

_MAX_CHARS = 65_536
_URL = re.compile(r"(?:([a-zA-Z][a-zA-Z0-9+.-]*):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#.*)?", re.DOTALL)
_AUTHORITY = re.compile(r"(?:(.*)@)?(\[.*\]|[^:@]*):?(.*)", re.DOTALL)
_IPV4 = re.compile(r"[0-9]+(\.[0-9]+){3}")
_DEFAULT_PORTS = {"http": 80, "https": 443}

_PRINTABLE = frozenset(map(chr, range(0x20, 0x7F)))
_SAFE_IN_QUERY = "".join(_PRINTABLE - frozenset(' "#<>'))
_SAFE_IN_PATH = "".join(_PRINTABLE - frozenset(' "#<>?`{}'))


@dataclass(frozen=True)
class Url:
    """A URL in ASCII; `port` is None for that of the scheme, `host` has no brackets, and `userinfo` is not sent.

    >>> url = Url.parse("http://Box:8080/v1?key=a b")
    >>> url.netloc, url.origin, url.with_path("/models").target
    ('box:8080', ('box', 8080, False), '/v1/models?key=a%20b')
    """

    scheme: str
    userinfo: str
    host: str
    port: int | None
    path: str
    query: str | None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the URL, encoding what must be encoded; raise ValueError with the reason for one that is invalid.

        Scheme and host may be missing, or the scheme another one than http and https.
        """
        if len(text) > _MAX_CHARS:
            raise ValueError("URL too long")
        if (control := next((char for char in text if char.isascii() and not char.isprintable()), None)) is not None:
            raise ValueError(f"Invalid non-printable ASCII character in URL, {control!r}")
        match = _URL.fullmatch(text)
        assert match is not None
        scheme, authority, path, query = match.groups()
        scheme = (scheme or "").lower()
        parts = _AUTHORITY.fullmatch(authority or "")
        assert parts is not None
        return cls(
            scheme,
            parts[1] or "",
            _encode_host(parts[2]),
            _parse_port(parts[3], scheme),
            quote(path, _SAFE_IN_PATH),
            None if query is None else quote(query, _SAFE_IN_QUERY),
        )

    @cached_property
    def netloc(self) -> str:
        """Host and port as in the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"

    @cached_property
    def origin(self) -> tuple[str, int, bool]:
        """Host, port, and whether over TLS."""
        return self.host, self.port or _DEFAULT_PORTS[self.scheme], self.scheme == "https"

    @cached_property
    def target(self) -> str:
        """Path and query as in the first line of a request."""
        return (self.path or "/") + ("" if self.query is None else f"?{self.query}")

    @property
    def password(self) -> str:
        return unquote(self.userinfo.partition(":")[2])

    @property
    def parameters(self) -> dict[str, list[str]]:
        """The values of each query parameter."""
        return parse_qs(self.query or "", keep_blank_values=True)

    def with_path(self, path: str, query: Mapping[str, str] | None = None) -> Self:
        """Return this URL with `path`, which begins with a slash, after its own, and with the parameters in `query`."""
        encoded = self.path.rstrip("/") + quote(path, _SAFE_IN_PATH)
        merged = urlencode({**self.parameters, **query}, doseq=True) if query else self.query
        return replace(self, path=encoded, query=merged)

    def __str__(self) -> str:
        userinfo = f"{quote(self.userinfo, safe='%:')}@" if self.userinfo else ""
        return f"{self.scheme}://{userinfo}{self.netloc}{self.target}"


def _encode_host(host: str) -> str:
    if _IPV4.fullmatch(host):
        return _checked_address(IPv4Address, host, f"Invalid IPv4 address: {host!r}")
    if host.startswith("[") and host.endswith("]"):
        return _checked_address(IPv6Address, host[1:-1], f"Invalid IPv6 address: {host!r}")
    if host.isascii():
        return quote(host.lower(), safe="!$&'()*+,;=\"`{}%|\\")
    import idna  # takes 10 ms, and few hosts need it

    try:
        return idna.encode(host.lower()).decode("ascii")
    except idna.IDNAError as exc:
        raise ValueError(f"Invalid IDNA hostname: {host!r}") from exc


def _checked_address(kind: type[IPv4Address | IPv6Address], host: str, sentence: str) -> str:
    try:
        kind(host)
    except AddressValueError as exc:
        raise ValueError(sentence) from exc
    return host


def _parse_port(text: str, scheme: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= 65_535):
        raise ValueError(f"Invalid port: {text!r}")
    return None if int(text) == _DEFAULT_PORTS.get(scheme) else int(text)
