"""Hosts that a command may reach: names, `*.example.com` for all subdomains, addresses, and ports."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

__all__ = ["Address", "Host", "cover", "is_public", "overlap", "parse_hosts", "read_address"]

Address = IPv4Address | IPv6Address

_MAX_HOSTS = 20
_MAX_CHARS = 253
_SHOWN_CHARS = 60
_DEFAULT_PORTS = frozenset({80, 443})
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]]+)(?::([0-9]{1,5}))?")
_NAME = re.compile(r"(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)")  # as the last label it makes programs read an IPv4 address
# The server of Azure for its machines: https://learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16
_PUBLIC_BUT_LOCAL = ip_address("168.63.129.16")
_NAT64, _LOCAL_NAT64 = ip_network("64:ff9b::/96"), ip_network("64:ff9b:1::/48")


@dataclass(frozen=True, slots=True)
class Host:
    """A host that a command may reach: a name in lower case, `*.NAME`, or an address; the port None is 80 or 443."""

    name: str
    port: int | None = None

    @classmethod
    def parse(cls, text: str) -> Host:
        """Return the host in a text; raise ValueError with a sentence that says what would be right.

        >>> Host.parse("Example.com:8443"), str(Host.parse("[::1]:80"))
        (Host(name='example.com', port=8443), '[::1]:80')
        """
        match = _HOST.fullmatch(text.lower()) if len(text) <= _MAX_CHARS else None
        name = None if match is None else _normal_name(match[1])
        port = None if match is None or match[2] is None else int(match[2])
        if name is None or port == 0 or (port or 0) > 65_535:
            raise ValueError(
                f"{text[:_SHOWN_CHARS]!r} is no host; give one without scheme and path, such as pypi.org,"
                " *.example.com, example.com:8443 or 127.0.0.1:5000"
            )
        return cls(name, port)

    @property
    def ports(self) -> frozenset[int]:
        return _DEFAULT_PORTS if self.port is None else frozenset({self.port})

    @property
    def is_local(self) -> bool:
        """True if it certainly is a server of this machine or of its own network."""
        address = read_address(self.name)
        return self.name == "localhost" or (address is not None and not is_public(address))

    def covers(self, other: Host) -> bool:
        """Return whether this host covers the other: its names, addresses and ports include all of the other's."""
        return other.ports <= self.ports and _name_covers(self.name, other.name)

    def overlaps(self, other: Host) -> bool:
        """Return whether one server may match both hosts."""
        names = _name_covers(self.name, other.name) or _name_covers(other.name, self.name)
        return names and not self.ports.isdisjoint(other.ports)

    def __str__(self) -> str:
        name = f"[{self.name}]" if ":" in self.name else self.name
        return name if self.port is None else f"{name}:{self.port}"


def parse_hosts(texts: Iterable[str]) -> tuple[Host, ...]:
    """Return the hosts in texts, each once; raise ValueError with a sentence for a wrong one, and for too many."""
    hosts = tuple(dict.fromkeys(map(Host.parse, texts)))
    if len(hosts) > _MAX_HOSTS:
        raise ValueError(f"there are {len(hosts)} hosts, and at most {_MAX_HOSTS} can be named")
    return hosts


def cover(wide: Sequence[Host], hosts: Iterable[Host]) -> bool:
    """Return whether each of the hosts is covered by one of `wide`."""
    return all(any(one.covers(host) for one in wide) for host in hosts)


def overlap(ones: Sequence[Host], others: Iterable[Host]) -> bool:
    """Return whether one server may match a host of `ones` and a host of `others`."""
    return any(one.overlaps(other) for other in others for one in ones)


def read_address(text: str) -> Address | None:
    """Return the address in a text, None for a name; an IPv4 address written as IPv6 is returned as IPv4."""
    try:
        address = ip_address(text.removeprefix("[").removesuffix("]"))
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def is_public(address: Address) -> bool:
    """Return whether an address is public: not of this machine, its networks, or its cloud's services."""
    if isinstance(address, IPv6Address):
        translated = IPv4Address(int(address) & 0xFFFF_FFFF) if address in _NAT64 else None
        embedded = address.ipv4_mapped or address.sixtofour or translated
        if address.is_site_local or address in _LOCAL_NAT64 or (embedded is not None and not is_public(embedded)):
            return False
    return address.is_global and not address.is_multicast and address != _PUBLIC_BUT_LOCAL


def _normal_name(text: str) -> str | None:
    """Return a name or an address as it is compared, None if it is neither."""
    if (address := read_address(text)) is not None:
        return str(address)
    name = text.removesuffix(".")
    plain = name.removeprefix("*.")
    is_name = _NAME.fullmatch(plain) and not _NUMBER.fullmatch(plain)
    return name if is_name and (plain == name or "." in plain) else None


def _name_covers(pattern: str, name: str) -> bool:
    return name == pattern or (pattern.startswith("*.") and name.endswith(pattern[1:]))
