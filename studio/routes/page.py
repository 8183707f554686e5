"""The page itself, and its assets: plain files beside it."""

from __future__ import annotations

from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

__all__ = ["assets", "index"]

_FOLDER = Path(__file__).parent.parent / "web"


async def index(_request: Request) -> Response:
    return FileResponse(_FOLDER / "index.html")


def assets() -> StaticFiles:
    return _Assets(directory=_FOLDER)


class _Assets(StaticFiles):
    """Files that are found under the one path that is theirs, without `.`, `..` or empty parts."""

    def get_path(self, scope: Scope) -> str:
        path = super().get_path(scope)
        if scope["path"] != f"/assets/{Path(path).as_posix()}":
            raise HTTPException(404)
        return path
