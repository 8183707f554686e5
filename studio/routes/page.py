"""The page, its assets, and the shell of its previews: static files of this package.

They are read completely and sent from memory. Starlette's own file responses open a file after the response has
started, too late to answer with an error if it cannot be opened, and wait for threads that may never start (`threads`).

The page names its assets in a folder of their version, a digest of all of them: `assets/3f…/main.js`, whose imports are
in that folder, too. A browser keeps them, and asks for none of the hundred again until the page names another version.
An asset of another version, as of a page that was open before an update, is the one of now, and is not kept; nor is one
without a version.

A page that another site opened says so in its text: it asks the person before it takes the token of another tab of the
browser, since that site chose the address and the moment.

The page and its assets are sent with gzip to clients that accept it, as the page is also opened from a phone.
Starlette's `GZipMiddleware` would compress a file for each request, on the event loop, and leave its ETag as it is.
"""

from __future__ import annotations

import gzip
import os
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Literal

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from agenticx.threads import run_in_thread
from studio.http.contents import content_response
from studio.services import services

__all__ = ["asset", "index", "preview"]

_FOLDER = Path(__file__).parent.parent / "web"
_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".toml": "text/plain",
    ".txt": "text/plain",
}
"""Not from `mimetypes`, which reads files of the machine."""
_ASSETS = {
    path.relative_to(_FOLDER).as_posix(): _TYPES[path.suffix] for path in _FOLDER.rglob("*") if path.suffix in _TYPES
}


class _Versions:
    """The version of the assets when the page was sent last, and the digest of each then; its methods block."""

    def __init__(self) -> None:
        self._stamps: Sequence[tuple[int, int]] = ()
        self._last: tuple[str, Mapping[str, str]] | None = None

    def current(self) -> str:
        """Return the version of the assets as they are now."""
        stamps = [(status.st_mtime_ns, status.st_size) for status in (os.stat(_FOLDER / name) for name in _ASSETS)]
        if self._last is None or stamps != self._stamps:
            digests = {name: _digest((_FOLDER / name).read_bytes()) for name in _ASSETS}
            version = _digest("".join(f"{name} {digest}\n" for name, digest in digests.items()).encode())
            self._stamps, self._last = stamps, (version, digests)
        return self._last[0]

    def has(self, version: str, name: str, digest: str) -> bool:
        """Return whether this is the last version, and an asset has that digest in it."""
        if self._last is None:
            self.current()
        assert self._last is not None
        last, digests = self._last
        return version == last and digests[name] == digest


_versions = _Versions()


async def index(request: Request) -> Response:
    own = {"Cross-Origin-Opener-Policy": "same-origin", "Vary": "Accept-Encoding, Sec-Fetch-Site"}
    return await _file(request, "index.html", own)


async def preview(request: Request) -> Response:
    """Return the shell that shows a page of the agent; its policy isolates the page from everything else.

    The shell's frame for the page inherits the policy. `frame-src` is 'none' and not 'self': a page could send data by
    navigating itself.
    """
    hosts = [f"https://{host.removeprefix('https://').lower()}" for host in services(request).settings.preview_hosts]
    content = await run_in_thread((_FOLDER / "preview.html").read_text, name="agx page")
    shell = content.replace("{preview_hosts}", " ".join(hosts))
    return HTMLResponse(shell, headers={"Content-Security-Policy": _preview_policy(hosts)})


def _preview_policy(hosts: Sequence[str]) -> str:
    allowed = "".join(f" {host}" for host in hosts)
    return (
        f"sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'{allowed}; "
        f"style-src 'unsafe-inline'{allowed}; img-src data: blob:{allowed}; font-src data:{allowed}; "
        "media-src data: blob:; connect-src 'none'; frame-src 'none'; form-action 'none'; base-uri 'none'; "
        "frame-ancestors 'self'"
    )


async def asset(request: Request) -> Response:
    """Return the asset of this exact name, with its folders, else 404."""
    name = request.path_params["name"]
    version = None if (found := _VERSION.match(name)) is None else found[1]
    name = name if found is None else name[found.end() :]
    if name not in _ASSETS:
        raise HTTPException(404)
    return await _file(request, name, version=version)


async def _file(
    request: Request, name: str, own_headers: Mapping[str, str] | None = None, *, version: str | None = None
) -> Response:
    coding = "gzip" if _accepts_gzip(request) else "identity"
    is_foreign = request.headers.get("sec-fetch-site") in {"cross-site", "same-site"}
    content, etag, is_kept = await run_in_thread(_read, name, coding, version, is_foreign, name="agx page")
    headers = {
        "Cache-Control": _KEPT if is_kept else "no-cache",
        "Vary": "Accept-Encoding",
        **(own_headers or {}),
    }
    if coding != "identity":
        headers["Content-Encoding"] = coding
    return content_response(request, content, _ASSETS[name], etag=etag, headers=headers)


def _read(
    name: str, coding: Literal["gzip", "identity"], version: str | None, is_foreign: bool
) -> tuple[bytes, str, bool]:
    """Return a file in a content coding, the ETag of that, and whether it is that of the version for ever."""
    content = (_FOLDER / name).read_bytes()
    if name == "index.html":
        content = content.replace(b'"assets/', f'"assets/{_versions.current()}/'.encode())
        if is_foreign:
            content = content.replace(b"<html ", b'<html data-opened-by="another site" ', 1)
    digest = _digest(content)
    is_kept = version is not None and _versions.has(version, name, digest)
    return (_compress(content), f"{digest}-gzip", is_kept) if coding == "gzip" else (content, digest, is_kept)


def _digest(content: bytes) -> str:
    return sha256(content).hexdigest()[:32]


@lru_cache(maxsize=len(_ASSETS))
def _compress(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)


def _accepts_gzip(request: Request) -> bool:
    """Return True if the client names gzip, or any coding, and does not refuse it with `q=0` (RFC 9110, 12.5.3)."""
    weights = dict[str, float]()
    for item in request.headers.get("accept-encoding", "").split(","):
        coding, _, parameter = item.partition(";")
        weights[coding.strip().lower()] = _weight(parameter)
    return weights.get("gzip", weights.get("*", 0)) > 0


def _weight(parameter: str) -> float:
    """Return the weight of `q=0.5`, 1 without one, 0 for what is none."""
    name, _, value = parameter.replace(" ", "").partition("=")
    if not name:
        return 1
    return float(value) if name.lower() == "q" and _WEIGHT.fullmatch(value) else 0


_VERSION = re.compile(r"([0-9a-f]{32})/")
_KEPT = "public, max-age=31536000, immutable"
_WEIGHT = re.compile(r"[01](\.[0-9]{0,3})?")
