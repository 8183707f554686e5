"""The page itself; its assets are plain files beside it."""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, Response

__all__ = ["FOLDER", "index"]

FOLDER = Path(__file__).parent.parent / "web"


async def index(_request: Request) -> Response:
    return FileResponse(FOLDER / "index.html")
