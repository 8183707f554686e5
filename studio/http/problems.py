"""Errors as application/problem+json, with a stable code and a sentence on how to correct the request."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from agenticx.errors import (
    AgenticXError,
    AttachmentRefused,
    AttachmentTooLarge,
    ResourcesExhausted,
    SessionBusy,
    SessionNotFound,
    SettingsError,
    StoreError,
    ToolError,
)
from agenticx.llms.catalog.keys import KeyInEnvironment, NoStoredKey, UnknownProvider
from agenticx.logs import get_logger
from agenticx.resource_exhaustion import exhausted_error
from agenticx.runtime.confirm import ConfirmClosed, DigestMismatch, UnknownConfirm
from agenticx.sessions.history.transcript import MessageNotFound
from agenticx.sessions.hub.hub import HubClosed, TurnConflict, TurnFailed

__all__ = ["HANDLERS", "Problem", "problem_response"]

_log = get_logger(__name__)


class Problem(Exception):
    """An error response: `detail` is a sentence for the user, `code` is for programs, `field` names the wrong field."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        field: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.field = field
        self.headers = headers


def problem_response(problem: Problem) -> Response:
    """Return a problem as an RFC 9457 response, with `code` and, for a field or parameter that is wrong, `field`."""
    content = {
        "type": "about:blank",
        "title": HTTPStatus(problem.status).phrase,
        "status": problem.status,
        "code": problem.code,
        "detail": problem.detail,
    }
    if problem.field is not None:
        content["field"] = problem.field
    return Response(
        json.dumps(content),
        problem.status,
        headers=problem.headers,
        media_type="application/problem+json",
    )


# --- exception handlers -----------------------------------------------------------------------------------------------

_STATUS_AND_CODE: dict[type[AgenticXError], tuple[int, str]] = {
    SessionNotFound: (404, "session_not_found"),
    MessageNotFound: (404, "message_not_found"),
    UnknownConfirm: (404, "confirm_not_found"),
    SessionBusy: (409, "session_busy"),
    TurnConflict: (409, "client_turn_id_reused"),
    DigestMismatch: (409, "digest_mismatch"),
    ConfirmClosed: (410, "confirm_closed"),
    AttachmentTooLarge: (413, "attachment_too_large"),
    AttachmentRefused: (422, "attachment_refused"),
    UnknownProvider: (404, "provider_not_found"),
    NoStoredKey: (404, "key_not_found"),
    KeyInEnvironment: (409, "key_in_environment"),
    SettingsError: (422, "bad_settings"),
    ToolError: (422, "unknown_tool"),
    TurnFailed: (500, "internal"),
    ResourcesExhausted: (503, "overloaded"),
    StoreError: (503, "storage"),
    HubClosed: (503, "shutting_down"),
}


_RETRY_HEADERS = {"Retry-After": "1"}


async def _on_problem(_request: Request, exc: Exception) -> Response:
    assert isinstance(exc, Problem)
    return problem_response(exc)


async def _on_agenticx_error(_request: Request, exc: Exception) -> Response:
    for kind in type(exc).__mro__:
        if kind in _STATUS_AND_CODE:
            headers = _RETRY_HEADERS if kind is ResourcesExhausted else None
            return problem_response(Problem(*_STATUS_AND_CODE[kind], str(exc), headers=headers))
    raise exc


async def _on_system_error(request: Request, exc: Exception) -> Response:
    """Answer 503 where the system lacks a resource, such as memory or files; re-raise any other `OSError`, a bug."""
    exhausted = exhausted_error(exc)
    if exhausted is None:
        raise exc
    _log.error("request failed for lack of resources", error=type(exc).__name__, why=str(exhausted))
    return await _on_agenticx_error(request, exhausted)


async def _on_http_error(request: Request, exc: Exception) -> Response:
    """Answer Starlette's own 404 and 405 as problems."""
    assert isinstance(exc, HTTPException)
    path, headers = request.scope["path"], exc.headers
    match exc.status_code:
        case 404:
            problem = Problem(404, "not_found", f"No route matches {path!r}; /openapi.json lists the routes.")
        case 405:
            allowed = (headers or {}).get("Allow", "")
            sentence = f"{request.method} is not allowed for {path!r}; allowed methods: {allowed}."
            problem = Problem(405, "method_not_allowed", sentence, headers=headers)
        case _:
            problem = Problem(exc.status_code, "bad_request", str(exc.detail), headers=headers)
    return problem_response(problem)


async def _on_unexpected_error(_request: Request, exc: Exception) -> Response:
    """Answer 500; the server logs the exception and closes the connection."""
    _log.error("request failed", error=type(exc).__name__)
    sentence = "Internal server error; see the server's log."
    return problem_response(Problem(500, "internal", sentence, headers={"Connection": "close"}))


HANDLERS = {
    Problem: _on_problem,
    AgenticXError: _on_agenticx_error,
    MemoryError: _on_system_error,
    OSError: _on_system_error,
    HTTPException: _on_http_error,
    Exception: _on_unexpected_error,
}
