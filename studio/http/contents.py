"""Responses with the content of a file: its ETag, and how a browser treats it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

__all__ = ["content_response", "disposition"]


def content_response(
    request: Request, content: bytes, media_type: str | None, *, etag: str, headers: Mapping[str, str] | None = None
) -> Response:
    """Return the content with its ETag, without the quotes of the header; 304 if the client has it already."""
    quoted = f'"{etag}"'
    known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    own_headers = {"ETag": quoted, **(headers or {})}
    if quoted in known:
        return Response(status_code=304, headers=own_headers)
    return Response(content, media_type=media_type, headers=own_headers)


def disposition(kind: Literal["attachment", "inline"], name: str) -> dict[str, str]:
    """Return the header that makes a browser save a file with any name (`attachment`), or show it (`inline`)."""
    is_plain = _PLAIN_NAME.fullmatch(name) is not None
    parameter = f'filename="{name}"' if is_plain else f"filename*=UTF-8''{quote(name, safe='')}"
    return {"Content-Disposition": f"{kind}; {parameter}"}


_PLAIN_NAME = re.compile(r"[\w.-]+", re.ASCII)  # curl, for one, reads only a plain `filename`
