"""The page, its assets, and the shell of its previews: static files of this package.

They are read completely and sent from memory. Starlette's own file responses open a file after the response has
started, too late to answer with an error if it cannot be opened, and wait for threads that may never start (`threads`).
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from mimetypes import guess_type
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from agenticx.threads import run_in_thread
from studio.http.contents import content_response
from studio.services import services

__all__ = ["asset", "index", "preview"]

_FOLDER = Path(__file__).parent.parent / "web"
_TYPES = {path.name: guess_type(path.name)[0] for path in _FOLDER.iterdir() if path.is_file()}


async def index(request: Request) -> Response:
    return await _file(request, "index.html")


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
    """Return the asset of this exact name, else 404."""
    name = request.path_params["name"]
    if name not in _TYPES:
        raise HTTPException(404)
    return await _file(request, name)


async def _file(request: Request, name: str) -> Response:
    content = await run_in_thread((_FOLDER / name).read_bytes, name="agx page")
    return content_response(request, content, _TYPES[name], etag=sha256(content).hexdigest()[:32])
