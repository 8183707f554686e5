"""Access control of requests: Host, then Origin, then token, checked before routing.

1. Deny by default: every path needs the token unless `is_public` names it, so an unknown, encoded or case-variant path
   is refused. The check reads `scope["path"]`, the decoded path that routing reads too. The canonical form of a path
   encodes only what must be encoded; any other form is answered with 404.
2. Sec-Fetch-Site: cross-site is refused unless the Origin is allowed (an Electron page is always cross-site) or the
   request is a top-level navigation to `/`: a link opens the page like that.
3. In a mounted application, a path is the part behind the mount point.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from studio.http.problems import Problem, problem_response

__all__ = ["AccessMiddleware", "AccessRules", "OriginPolicy"]

_PREFLIGHT_HEADERS = (
    (b"access-control-allow-methods", b"GET, POST, PUT, PATCH, DELETE"),
    (b"access-control-allow-headers", b"authorization, content-type, last-event-id"),
    (b"access-control-allow-private-network", b"true"),
    (b"access-control-max-age", b"600"),
)
_MAY_BE_ENCODED = re.compile(rb"%(2[146-9A-C]|3[ABD]|40|7E)", re.IGNORECASE)
"""Characters that mean the same encoded or not; client libraries differ in encoding them (RFC 3986, 2.2)."""
_SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
        b"frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        b"require-trusted-types-for 'script'; trusted-types 'none'",
    ),
)


@dataclass(frozen=True, slots=True)
class OriginPolicy:
    """The exact Host values and Origins of the server itself, and the other Origins that the settings allow."""

    hosts: frozenset[str]
    own_origins: frozenset[str]
    allowed_origins: frozenset[str]

    @classmethod
    @lru_cache(maxsize=64)
    def for_port(
        cls, port: int, *, allowed_hosts: tuple[str, ...] = (), allowed_origins: tuple[str, ...] = ()
    ) -> OriginPolicy:
        """Return the policy of a server on `port`; an allowed host without a port gets this port.

        A host with port 443 is a proxy that terminates TLS: its origin is https, and clients leave the port out.
        """
        named = [host.lower() for host in ("127.0.0.1", "localhost", "[::1]", *allowed_hosts)]
        hosts = {host if re.search(r":\d+$", host) else f"{host}:{port}" for host in named}
        own_origins = {f"http://{host}" for host in hosts}
        for scheme, suffix in (("http", ":80"), ("https", ":443")):
            usual = {host.removesuffix(suffix) for host in hosts if host.endswith(suffix)}
            own_origins |= {f"{scheme}://{host}" for host in usual}
            hosts |= usual
        return cls(frozenset(hosts), frozenset(own_origins), frozenset(allowed_origins))


@dataclass(frozen=True, slots=True)
class AccessRules:
    """The token of a server, and the Hosts and Origins that it accepts besides its own."""

    token: str
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()

    def origin_policy(self, scope: Scope) -> OriginPolicy:
        """Return the policy for the port of the request."""
        _, port = scope.get("server") or ("", None)
        return OriginPolicy.for_port(port or 0, allowed_hosts=self.allowed_hosts, allowed_origins=self.allowed_origins)


@dataclass(frozen=True, slots=True)
class AccessMiddleware:
    """ASGI middleware that passes permitted requests on and answers all others itself, without reading their body.

    `rules_of` returns the rules for the scope of a request.
    """

    app: ASGIApp
    rules_of: Callable[[Scope], AccessRules]
    is_public: Callable[[str], bool]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        problem, origin, is_preflight = self._check(scope)
        send = _with_headers(send, origin)
        if problem is not None:
            await problem_response(problem)(scope, receive, send)
        elif is_preflight:
            await send({"type": "http.response.start", "status": 204, "headers": list(_PREFLIGHT_HEADERS)})
            await send({"type": "http.response.body", "body": b""})
        else:
            await self.app(scope, receive, send)

    def _check(self, scope: Scope) -> tuple[Problem | None, str | None, bool]:
        """Return the request's problem, if any, the allowed Origin that gets CORS headers, and if it is a preflight."""
        rules, headers = self.rules_of(scope), _values_by_name(scope)
        problem, origin = _check_headers(rules.origin_policy(scope), scope, headers)
        method = _single_value(headers, b"access-control-request-method")
        is_preflight = bool(origin is not None and scope["method"] == "OPTIONS" and method)
        if problem is None and not is_preflight:
            problem = self._token_problem(rules.token, scope, headers) or _path_problem(scope)
        return problem, origin, is_preflight

    def _token_problem(self, token: str, scope: Scope, headers: _Headers) -> Problem | None:
        scheme, _, credentials = (_single_value(headers, b"authorization") or "").partition(" ")
        is_valid = hmac.compare_digest(credentials.encode("latin-1"), token.encode())
        if (is_valid and scheme.lower() == "bearer") or self.is_public(_route_path(scope)):
            return None
        return Problem(
            "unauthorized",
            "Send the server's token as one header, Authorization: Bearer TOKEN; `agx open` opens a page that has it.",
            headers={"WWW-Authenticate": "Bearer"},
        )


_Headers = Mapping[bytes, Sequence[str]]


def _values_by_name(scope: Scope) -> _Headers:
    headers: dict[bytes, list[str]] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name, []).append(value.decode("latin-1"))
    return headers


def _single_value(headers: _Headers, name: bytes) -> str | None:
    values = headers.get(name, ())
    return values[0] if len(values) == 1 else None


def _check_headers(policy: OriginPolicy, scope: Scope, headers: _Headers) -> tuple[Problem | None, str | None]:
    """Return the problem with framing, Host or Origin, if any, and the allowed Origin that gets CORS headers."""
    if headers.get(b"content-length") and headers.get(b"transfer-encoding"):
        sentence = "Send Content-Length or Transfer-Encoding, not both: they could give the body different ends."
        return Problem("two_lengths", sentence, headers={"Connection": "close"}), None
    host, origins = _single_value(headers, b"host"), headers.get(b"origin", ())
    if not host:
        return Problem("bad_host", "Send exactly one Host header."), None
    if host.lower() not in policy.hosts:
        return _wrong_host(policy), None
    if len(origins) > 1:
        return _origin_not_allowed(), None
    if origins and origins[0] in policy.allowed_origins:
        return None, origins[0]
    if origins and origins[0] not in policy.own_origins:
        return _origin_not_allowed(), None
    if "cross-site" in headers.get(b"sec-fetch-site", ()) and not _is_page_navigation(scope, headers):
        return Problem("cross_site", "Another site sent this request; open the studio's own page."), None
    return None, None


def _path_problem(scope: Scope) -> Problem | None:
    canonical, raw = quote(scope["path"], safe="/:@!$&'()*+,;=~").encode(), scope.get("raw_path")
    if raw in (None, canonical) or _MAY_BE_ENCODED.sub(_decoded, raw) == canonical:
        return None
    return Problem("not_found", "The path is not in canonical form; encode only what must be encoded.")


def _decoded(match: re.Match[bytes]) -> bytes:
    return bytes([int(match[1], 16)])


def _route_path(scope: Scope) -> str:
    """Return the path that routing reads: without the mount point of the application."""
    path, root = str(scope["path"]), str(scope.get("root_path") or "")
    return path[len(root) :] if root and path.startswith(f"{root}/") else path


def _is_page_navigation(scope: Scope, headers: _Headers) -> bool:
    mode = _single_value(headers, b"sec-fetch-mode")
    return _route_path(scope) == "/" and scope["method"] == "GET" and mode == "navigate"


def _wrong_host(policy: OriginPolicy) -> Problem:
    allowed_hosts = ", ".join(sorted(policy.hosts))
    return Problem("wrong_host", f"This server does not serve that Host; allowed hosts: {allowed_hosts}.")


def _origin_not_allowed() -> Problem:
    return Problem("foreign_origin", "That Origin is not allowed; AGX_ALLOWED_ORIGINS lists the allowed ones.")


def _with_headers(send: Send, origin: str | None) -> Send:
    """Return a `send` that adds headers to a response, except those that it has itself."""
    extra = [*_SECURITY_HEADERS, (b"cache-control", b"no-store")]
    if origin is not None:
        extra += [(b"access-control-allow-origin", origin.encode("latin-1")), (b"vary", b"Origin")]

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = list(message["headers"])
            names = {name for name, _ in own}
            message["headers"] = [*own, *((name, value) for name, value in extra if name not in names)]
        await send(message)

    return sending
