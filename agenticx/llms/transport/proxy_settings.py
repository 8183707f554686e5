"""The proxy for a host, as the variables HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY set it.

They are read by `urllib.request.getproxies`: a name in lower case takes precedence, an empty one in lower case switches
its twin off, and where none is set the system's proxies count (macOS, Windows). The variable of the URL's scheme takes
precedence over ALL_PROXY. NO_PROXY is a list of hosts that are reached without a proxy, separated by commas or blanks:

- `*`: every host,
- `example.com`, `.example.com`, `*.example.com`: that host and its subdomains,
- `10.0.0.1`, `::1`, `[::1]`: an address, in any spelling,
- `10.0.0.0/8`, `fd00::/8`: the addresses of a net; names are not looked up,
- each of these, except a net, with a port (`example.com:8080`, `[::1]:8080`) or a scheme (`https://example.com`).

If a proxy is needed and cannot be used, `SettingsError` is raised, because a request without it is not what the user
wants. Other entries that cannot be used are named once in the log, and by `agx doctor`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import quote, unquote
from urllib.request import getproxies, getproxies_environment, proxy_bypass

from agenticx.errors import SettingsError
from agenticx.http.url import Url
from agenticx.logs import get_logger

__all__ = ["Proxy", "find_proxy", "proxy_problems", "read_proxies"]

_PORTS = {"http": 80, "https": 443}
_SCHEMES = ("http", "https", "socks5", "socks5h")
_VARIABLES = {"http": "HTTP_PROXY", "https": "HTTPS_PROXY", "all": "ALL_PROXY"}
_HOST = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy and the name of its variable; its login is in no text but `url`."""

    variable: str
    url: str
    host: str
    secrets: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Proxy({self.variable!r}, {self.host!r})"


def find_proxy(url: Url) -> Proxy | None:
    """Return the proxy for requests to `url`, None if there is none; raise `SettingsError` if it cannot be used."""
    settings = getproxies()
    for problem in proxy_problems(settings):
        _warn_once(problem)
    key = next((key for key in (url.scheme, "all") if settings.get(key)), None)
    if key is None or _is_direct(url, settings):
        return None
    try:
        return _read_proxy(_VARIABLES[key], settings[key])
    except ValueError as exc:
        raise SettingsError(f"{exc}; correct it, or name {url.host} in NO_PROXY") from exc


def read_proxies() -> list[Proxy]:
    """Return the proxies that are set and can be used."""
    settings, proxies = getproxies(), list[Proxy]()
    for key, variable in _VARIABLES.items():
        try:
            if text := settings.get(key):
                proxies.append(_read_proxy(variable, text))
        except ValueError:
            continue  # it is in `proxy_problems`
    return proxies


def proxy_problems(settings: Mapping[str, str] | None = None) -> list[str]:
    """Return a sentence for each proxy, and each part of NO_PROXY, that cannot be used."""
    settings, problems = getproxies() if settings is None else settings, list[str]()
    for key, variable in _VARIABLES.items():
        try:
            if text := settings.get(key):
                _read_proxy(variable, text)
        except ValueError as exc:
            problems.append(str(exc))
    for entry in _entries(settings):
        try:
            _DirectHost.parse(entry)
        except ValueError as exc:
            problems.append(f"NO_PROXY has {entry[:200]!r}, which is ignored: {exc}")
    return problems


@lru_cache(maxsize=64)
def _warn_once(problem: str) -> None:
    _log.warning("a proxy setting cannot be used", problem=problem)


# --- proxies ----------------------------------------------------------------------------------------------------------


def _read_proxy(variable: str, text: str) -> Proxy:
    """Return a proxy; raise ValueError with a sentence that does not repeat its login."""
    text = text.strip()
    if "://" not in text:
        text = f"http://{text}"
    if text.startswith("socks://"):  # GNOME's spelling
        text = text.replace("socks", "socks5", 1)
    try:
        url = Url.parse(text)
    except ValueError:  # whose text may contain a part of the login
        raise ValueError(f"{variable} is no URL of a proxy, such as http://host:3128") from None
    shown = f"{url.scheme}://{url.netloc}"
    if url.scheme not in _SCHEMES or not url.host:
        expected = ", ".join(f"{scheme}://" for scheme in _SCHEMES)
        raise ValueError(f"{variable} is {shown!r}; a proxy begins with {expected} and has a host")
    if url.scheme.startswith("socks") and find_spec("socksio") is None:
        raise ValueError(
            f"{variable} is {shown!r}, and SOCKS needs the extra `socks`: install it, for example by pip install"
            " '.[socks]' in the folder of AgenticX"
        )
    if not url.userinfo:
        return Proxy(variable, shown, shown)
    user, _, password = url.userinfo.partition(":")
    encoded = f"{quote(unquote(user), safe='')}:{quote(unquote(password), safe='')}"
    secrets = tuple({password, unquote(password), encoded.partition(":")[2]} - {""})
    return Proxy(variable, f"{url.scheme}://{encoded}@{url.netloc}", shown, secrets)


# --- hosts without a proxy --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _DirectHost:
    """An entry of NO_PROXY: a name, an address or a net, `*` for all; `scheme` and `port` if it is for these only."""

    host: str | IPv4Address | IPv6Address | IPv4Network | IPv6Network
    scheme: str = ""
    port: int | None = None

    @classmethod
    def parse(cls, entry: str) -> _DirectHost:
        """Return an entry; raise ValueError with the reason for one that is invalid."""
        scheme, _, rest = entry.lower().rpartition("://")
        rest = rest.rstrip("/")
        if "/" in rest:
            return cls(ip_network(rest.replace("[", "").replace("]", ""), strict=False), scheme)
        if (address := _address(rest)) is not None:
            return cls(address, scheme)
        host, separator, port = rest.rpartition(":")
        if not separator:
            host, port = rest, ""
        elif not (port.isdecimal() and port.isascii() and 0 < int(port[:6]) < 65_536):
            raise ValueError(f"{port[:20]!r} is no port")
        return cls(_address(host) or _host_name(host), scheme, int(port) if port else None)

    def matches(self, url: Url) -> bool:
        if (self.scheme and self.scheme != url.scheme) or (self.port and self.port != (url.port or _PORTS[url.scheme])):
            return False
        address = _address(url.host)
        if isinstance(self.host, IPv4Network | IPv6Network):
            return address is not None and address in self.host
        if isinstance(self.host, str):
            host = url.host.lower().rstrip(".")
            return self.host in ("*", host) or host.endswith(f".{self.host}")
        return address == self.host


def _host_name(text: str) -> str:
    """Return a name of NO_PROXY in ASCII and without the dots around it; raise ValueError for one that is invalid."""
    if text == "*":
        return text
    name = text.removeprefix("*").strip(".")
    name = name if name.isascii() else Url.parse(f"http://{name}").host
    if not _HOST.fullmatch(name):
        raise ValueError("an entry is a host, an address or a net, such as example.com, 10.0.0.1 or 10.0.0.0/8")
    return name


def _is_direct(url: Url, settings: Mapping[str, str]) -> bool:
    """Return whether `url` is reached without a proxy."""
    if not getproxies_environment():
        return bool(proxy_bypass(url.host))  # the system's own list
    return any(entry.matches(url) for entry in _direct_hosts(settings))


def _direct_hosts(settings: Mapping[str, str]) -> Iterator[_DirectHost]:
    for entry in _entries(settings):
        try:
            yield _DirectHost.parse(entry)
        except ValueError:
            continue  # it is in `proxy_problems`


def _entries(settings: Mapping[str, str]) -> list[str]:
    return [entry for entry in re.split(r"[\s,]+", settings.get("no", "")) if entry]


def _address(host: str) -> IPv4Address | IPv6Address | None:
    """Return an address, of IPv4 also where it is written as IPv6; None for a name."""
    try:
        address = ip_address(host[1:-1] if host.startswith("[") and host.endswith("]") else host)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
