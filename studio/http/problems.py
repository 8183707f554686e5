"""Errors as application/problem+json: the table of their codes, and the problem of each exception."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from agenticx.errors import (
    AgentConfigError,
    AgenticXError,
    AttachmentRefused,
    AttachmentTooLarge,
    ResourcesExhausted,
    SessionBusy,
    SessionNotFound,
    SettingsError,
    StoreError,
    ToolError,
    UnknownAgent,
)
from agenticx.knowledge.memory import MemoryUnusable, UnknownMemory
from agenticx.knowledge.registry import InvalidVault, UnknownVault, VaultUnreadable
from agenticx.llms.providers.keys import KeyInEnvironment, NoStoredKey, UnknownProvider
from agenticx.llms.sampling import UnsupportedSampling
from agenticx.logs import get_logger
from agenticx.permissions.rule_stores import RulesUnusable, UnknownRule
from agenticx.permissions.trusted_files import TrustUnusable
from agenticx.resource_exhaustion import exhausted_error
from agenticx.runtime.user_requests.requests import (
    ConfirmClosed,
    DigestMismatch,
    QuestionClosed,
    RememberUnavailable,
    RuleTooWide,
    UnknownConfirm,
    UnknownQuestion,
)
from agenticx.sessions.files.changed_files import CallNotFound, TurnNotFound
from agenticx.sessions.files.options import OptionNotDone, UnknownOption
from agenticx.sessions.files.shown_files import FileNotFound, FileRefused, FileTooLarge
from agenticx.sessions.history.transcript import MessageNotFound
from agenticx.sessions.hub.hub import HubClosed, TurnConflict, TurnFailed
from agenticx.sessions.hub.session_fields import WorkspaceGone
from agenticx.sessions.hub.submission import NothingToGoOnWith, NotQueued
from agenticx.subagents.records import (
    ModelUnavailable,
    SubagentBusy,
    SubagentLimitReached,
    SubagentNotFound,
    SubagentsClosed,
)
from agenticx.tools.artifacts.files import UnknownArtifact

__all__ = ["HANDLERS", "HINTS", "PROBLEMS", "Problem", "ProblemKind", "problem_response"]

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ProblemKind:
    """A row of the table of problems: the status of the response, and what the code means."""

    status: int
    meaning: str


PROBLEMS: Mapping[str, ProblemKind] = {
    "bad_host": ProblemKind(400, "There is not exactly one Host header."),
    "bad_request": ProblemKind(400, "The request is malformed."),
    "incomplete": ProblemKind(400, "The connection was closed before the body was complete."),
    "malformed_json": ProblemKind(400, "The body is not acceptable JSON."),
    "two_lengths": ProblemKind(400, "The body has a length and is chunked."),
    "bad_ticket": ProblemKind(401, "The ticket is unknown, expired or already used."),
    "unauthorized": ProblemKind(401, "The token is missing or wrong."),
    "cross_site": ProblemKind(403, "Another site sent the request."),
    "foreign_origin": ProblemKind(403, "The Origin is not allowed."),
    "file_refused": ProblemKind(403, "The file is private or secret, or a deny rule of the user is about it."),
    "artifact_not_found": ProblemKind(404, "The session has no file of this path, or no such revision of it."),
    "attachment_not_found": ProblemKind(404, "No message of the session has an attachment with this digest."),
    "call_not_found": ProblemKind(404, "No tool call of the session, or of the turn, has this id."),
    "confirm_not_found": ProblemKind(404, "No confirmation has this id."),
    "file_not_found": ProblemKind(404, "The workspace has no file of this path that can be read."),
    "key_not_found": ProblemKind(404, "No key of the provider is stored."),
    "message_not_found": ProblemKind(404, "No message of the session has this id."),
    "not_found": ProblemKind(404, "No route has this path, or it is not in its canonical form."),
    "memory_not_found": ProblemKind(404, "The memory has no entry of this id."),
    "note_not_found": ProblemKind(404, "The vault has no note of this path."),
    "message_not_queued": ProblemKind(404, "The message does not wait: it was read, removed, or never queued."),
    "option_not_found": ProblemKind(404, "The session has no option of this number."),
    "provider_not_found": ProblemKind(404, "No provider has this name, or it has no key."),
    "question_not_found": ProblemKind(404, "No question of an agent has this id."),
    "rule_not_found": ProblemKind(404, "No rule has this id."),
    "session_not_found": ProblemKind(404, "No session has this id."),
    "subagent_not_found": ProblemKind(404, "The session has no sub-agent of this id."),
    "turn_not_found": ProblemKind(404, "No turn of the session has this id."),
    "vault_not_found": ProblemKind(404, "No vault has this id or name."),
    "method_not_allowed": ProblemKind(405, "The path has other methods."),
    "too_slow": ProblemKind(408, "The body did not arrive in time."),
    "client_turn_id_reused": ProblemKind(409, "The `client_turn_id` was used for another input or sub-agent."),
    "digest_mismatch": ProblemKind(409, "The answer is for another content than that of the confirmation."),
    "key_in_environment": ProblemKind(409, "The key is in the environment, where it has to be unset."),
    "option_not_done": ProblemKind(409, "The option has no answer, so it cannot be picked."),
    "session_busy": ProblemKind(409, "The session runs a turn, or its queue is full."),
    "subagent_busy": ProblemKind(409, "The sub-agent works or is queued."),
    "subagent_limit": ProblemKind(409, "As many sub-agents of the same agent work as may."),
    "confirm_closed": ProblemKind(410, "The confirmation was answered otherwise, has expired, or its turn ended."),
    "question_closed": ProblemKind(410, "The question was answered otherwise, has expired, or its turn ended."),
    "attachment_too_large": ProblemKind(413, "A file, or all files together, exceed the limit."),
    "file_too_large": ProblemKind(413, "The file is larger than what is sent of files of the workspace."),
    "too_large": ProblemKind(413, "The body exceeds the limit of the route."),
    "encoded_body": ProblemKind(415, "The body has a Content-Encoding."),
    "not_json": ProblemKind(415, "The body is not JSON by its Content-Type."),
    "wrong_host": ProblemKind(421, "The server does not serve this Host."),
    "attachment_refused": ProblemKind(422, "A file is of no accepted type, or cannot be read."),
    "bad_after": ProblemKind(422, "The parameter `after` is not a whole number from 0 on."),
    "bad_agent": ProblemKind(422, "The file of the agent has a problem, or its model cannot be used."),
    "bad_archived": ProblemKind(422, "The parameter `archived` has another value than those it takes."),
    "bad_available": ProblemKind(422, "The parameter `available` is neither `true` nor `false`."),
    "bad_before": ProblemKind(422, "The parameter `before` is not the id of a session, or of a message or turn of it."),
    "bad_day": ProblemKind(422, "A parameter is not a date."),
    "bad_format": ProblemKind(422, "The parameter `format` has another value than those it takes."),
    "bad_limit": ProblemKind(422, "The parameter `limit` is out of range."),
    "bad_option": ProblemKind(422, "The parameter `option` is not a whole number from 1 on."),
    "bad_path": ProblemKind(422, "The parameter `path` cannot be used."),
    "bad_query": ProblemKind(422, "The parameter `q` is too long."),
    "bad_revision": ProblemKind(422, "The parameter `revision` is not a whole number from 1 on."),
    "bad_rule": ProblemKind(422, "A rule is wrong, or covers more than the confirmation showed."),
    "bad_settings": ProblemKind(422, "A setting or a settings file cannot be used."),
    "bad_tag": ProblemKind(422, "The parameter `tag` is too long."),
    "bad_team": ProblemKind(422, "The file of the team has a problem, or the session cannot run the team."),
    "bad_cursor": ProblemKind(422, "The parameter `from` or `until` is not a cursor of the session."),
    "bad_types": ProblemKind(422, "The parameter `types` is no list of types of events."),
    "bad_vault": ProblemKind(422, "The folder cannot be a vault, or the name is not a free one."),
    "bad_workspace": ProblemKind(422, "The workspace is not a folder that can be used."),
    "invalid_body": ProblemKind(422, "A field of the body is missing, unknown or invalid."),
    "invalid_key": ProblemKind(422, "The text cannot be a key."),
    "key_refused": ProblemKind(422, "The provider does not accept the key."),
    "remember_unavailable": ProblemKind(422, "The confirmation offers nothing to remember."),
    "repeated_parameter": ProblemKind(422, "A query parameter was given more than once."),
    "unknown_agent": ProblemKind(422, "The session has, or is to have, an agent that the server does not know."),
    "unknown_digest": ProblemKind(422, "No AGENTS.md of the session has a content of this digest now."),
    "unknown_model": ProblemKind(422, "No model has this name, or it cannot be used."),
    "unknown_parameter": ProblemKind(422, "The route has no query parameter of this name."),
    "unknown_team": ProblemKind(422, "No configured team has this name."),
    "unknown_tool": ProblemKind(422, "No tool has this name."),
    "unsupported_sampling": ProblemKind(422, "The model does not take a parameter of `sampling`."),
    "internal": ProblemKind(500, "The server has a bug, which its log shows."),
    "memory_unusable": ProblemKind(503, "The memory is damaged, or cannot be read or written."),
    "overloaded": ProblemKind(503, "The machine lacks memory, files or disk space; the request may succeed later."),
    "provider_unreachable": ProblemKind(503, "The provider did not say if it accepts the key."),
    "rules_unusable": ProblemKind(503, "The rules of the user cannot be read or stored."),
    "shutting_down": ProblemKind(503, "The server is shutting down."),
    "storage": ProblemKind(503, "The session store failed, or the session's data is damaged."),
    "trust_unusable": ProblemKind(503, "What the user trusts cannot be read or stored."),
    "vault_unreadable": ProblemKind(503, "The folder of the vault is missing, or its index cannot be used."),
}
"""All problems by code, in the order of their statuses; `/openapi.json` lists them by route."""


HINTS: Mapping[str, str] = {
    "bad_ticket": "POST /api/tickets issues one.",
    "artifact_not_found": "GET /api/sessions/{session_id}/artifacts lists the files.",
    "attachment_not_found": "GET /api/sessions/{session_id}/messages lists the attachments of each message.",
    "call_not_found": "Events `tool_call` have the ids; the list without a call has those that changed files.",
    "confirm_not_found": "GET /api/confirms lists those that wait.",
    "file_not_found": "GET /api/sessions/{session_id}/files finds files.",
    "key_not_found": "GET /api/keys lists the keys.",
    "message_not_found": "GET /api/sessions/{session_id}/messages lists the messages.",
    "not_found": "GET /openapi.json lists the routes.",
    "memory_not_found": "GET /api/memory lists the entries.",
    "note_not_found": "GET /api/vaults/{vault_id}/search finds notes.",
    "message_not_queued": "GET /api/sessions/{session_id}/queue lists the messages that wait.",
    "option_not_found": "GET /api/sessions/{session_id}/options lists the options.",
    "provider_not_found": "GET /api/models lists the models of all providers.",
    "question_not_found": "GET /api/questions lists those that wait.",
    "rule_not_found": "GET /api/permissions lists the rules.",
    "session_not_found": "GET /api/sessions lists the sessions.",
    "subagent_not_found": "GET /api/sessions/{session_id}/subagents lists the sub-agents.",
    "turn_not_found": "GET /api/sessions/{session_id}/turns lists the turns.",
    "vault_not_found": "GET /api/vaults lists the vaults.",
    "file_refused": "GET /api/permissions lists the rules.",
    "digest_mismatch": "GET /api/confirms has the digest of each that waits.",
    "option_not_done": "GET /api/sessions/{session_id}/options says how each stands.",
    "session_busy": "POST /api/sessions/{session_id}/turns queues a message by its `when_busy`.",
    "subagent_busy": "POST /api/sessions/{session_id}/subagents/{agent_id}/cancel stops it.",
    "subagent_limit": "GET /api/sessions/{session_id}/subagents lists those that work.",
    "confirm_closed": "GET /api/confirms lists those that wait.",
    "question_closed": "GET /api/questions lists those that wait.",
    "bad_workspace": "PATCH /api/sessions/{session_id} moves a session to another folder.",
    "key_refused": "PUT /api/keys/{provider} without `test` stores a key as it is.",
    "unknown_agent": "GET /api/agents lists the agents of files.",
    "unknown_digest": "GET /api/sessions/{session_id}/trust lists the files with their digests.",
    "unknown_model": "GET /api/models lists the models.",
    "unknown_parameter": "GET /openapi.json lists the parameters of each route.",
    "unknown_team": "GET /api/teams lists the teams.",
    "unknown_tool": "GET /api/tools lists the tools.",
    "provider_unreachable": "PUT /api/keys/{provider} without `test` stores a key as it is.",
    "storage": "GET /api/ready says why turns cannot be stored.",
    "vault_unreadable": "GET /api/vaults/{vault_id} has the state of the vault.",
}
"""The route that helps the developer who gets a problem, by its code; the text of the problem is for the user."""


class Problem(Exception):
    """An error response: `detail` is a sentence for the user, `code` is for programs, `field` names the wrong field.

    `PROBLEMS` has the status of the code. `server_instance` identifies the run of the server.
    """

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        field: str | None = None,
        headers: Mapping[str, str] | None = None,
        server_instance: str | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = PROBLEMS[code].status
        self.code = code
        self.detail = detail
        self.field = field
        self.headers = headers
        self.server_instance = server_instance


def problem_response(problem: Problem) -> Response:
    """Return a problem as an RFC 9457 response, with `code`, and `field`, `hint` and `server_instance` if any."""
    content = {
        "type": "about:blank",
        "title": HTTPStatus(problem.status).phrase,
        "status": problem.status,
        "code": problem.code,
        "detail": problem.detail,
    }
    if problem.field is not None:
        content["field"] = problem.field
    if problem.code in HINTS:
        content["hint"] = HINTS[problem.code]
    if problem.server_instance is not None:
        content["server_instance"] = problem.server_instance
    return Response(
        json.dumps(content),
        problem.status,
        headers=problem.headers,
        media_type="application/problem+json",
    )


# --- exception handlers -----------------------------------------------------------------------------------------------

_CODES: dict[type[AgenticXError], str] = {
    SessionNotFound: "session_not_found",
    MessageNotFound: "message_not_found",
    TurnNotFound: "turn_not_found",
    CallNotFound: "call_not_found",
    UnknownConfirm: "confirm_not_found",
    SessionBusy: "session_busy",
    TurnConflict: "client_turn_id_reused",
    NotQueued: "message_not_queued",
    DigestMismatch: "digest_mismatch",
    ConfirmClosed: "confirm_closed",
    UnknownQuestion: "question_not_found",
    QuestionClosed: "question_closed",
    RememberUnavailable: "remember_unavailable",
    RuleTooWide: "bad_rule",
    RulesUnusable: "rules_unusable",
    TrustUnusable: "trust_unusable",
    UnknownRule: "rule_not_found",
    AttachmentTooLarge: "attachment_too_large",
    AttachmentRefused: "attachment_refused",
    UnknownProvider: "provider_not_found",
    NoStoredKey: "key_not_found",
    KeyInEnvironment: "key_in_environment",
    UnknownAgent: "unknown_agent",
    AgentConfigError: "bad_agent",
    NothingToGoOnWith: "invalid_body",
    InvalidVault: "bad_vault",
    UnknownArtifact: "artifact_not_found",
    FileNotFound: "file_not_found",
    FileRefused: "file_refused",
    FileTooLarge: "file_too_large",
    UnknownOption: "option_not_found",
    OptionNotDone: "option_not_done",
    UnknownVault: "vault_not_found",
    VaultUnreadable: "vault_unreadable",
    MemoryUnusable: "memory_unusable",
    UnknownMemory: "memory_not_found",
    WorkspaceGone: "bad_workspace",
    SettingsError: "bad_settings",
    SubagentNotFound: "subagent_not_found",
    SubagentBusy: "subagent_busy",
    SubagentLimitReached: "subagent_limit",
    SubagentsClosed: "shutting_down",
    ModelUnavailable: "unknown_model",
    ToolError: "unknown_tool",
    UnsupportedSampling: "unsupported_sampling",
    TurnFailed: "internal",
    ResourcesExhausted: "overloaded",
    StoreError: "storage",
    HubClosed: "shutting_down",
}


_RETRY_HEADERS = {"Retry-After": "1"}


async def _on_problem(_request: Request, exc: Exception) -> Response:
    assert isinstance(exc, Problem)
    return problem_response(exc)


async def _on_agenticx_error(_request: Request, exc: Exception) -> Response:
    for kind in type(exc).__mro__:
        if kind in _CODES:
            headers = _RETRY_HEADERS if kind is ResourcesExhausted else None
            return problem_response(Problem(_CODES[kind], str(exc), headers=headers))
    raise exc


async def _on_system_error(request: Request, exc: Exception) -> Response:
    """Answer 503 where the system lacks a resource, such as files or disk; re-raise any other `OSError`, a bug."""
    exhausted = exhausted_error(exc)
    if exhausted is None:
        raise exc
    _log.error("request failed for lack of resources", error=type(exc).__name__, why=str(exhausted))
    return await _on_agenticx_error(request, exhausted)


async def _on_memory_error(request: Request, exc: Exception) -> Response:
    """Report the error to the event loop, where `agx serve` exits, and answer 503 elsewhere."""
    context = {"message": "a request failed for lack of memory", "exception": exc}
    asyncio.get_running_loop().call_exception_handler(context)
    return await _on_system_error(request, exc)


async def _on_http_error(request: Request, exc: Exception) -> Response:
    """Answer Starlette's own 404 and 405 as problems."""
    assert isinstance(exc, HTTPException)
    path, headers = request.scope["path"], exc.headers
    match exc.status_code:
        case 404:
            problem = Problem("not_found", f"No route matches {path!r}; /openapi.json lists the routes.")
        case 405:
            allowed = (headers or {}).get("Allow", "")
            sentence = f"{request.method} is not allowed for {path!r}; allowed methods: {allowed}."
            problem = Problem("method_not_allowed", sentence, headers=headers)
        case _:
            problem = Problem("bad_request", str(exc.detail), headers=headers)
    return problem_response(problem)


async def _on_unexpected_error(_request: Request, exc: Exception) -> Response:
    """Answer 500; the server logs the exception and closes the connection."""
    _log.error("request failed", error=type(exc).__name__)
    sentence = "Internal server error; see the server's log."
    return problem_response(Problem("internal", sentence, headers={"Connection": "close"}))


HANDLERS = {
    Problem: _on_problem,
    AgenticXError: _on_agenticx_error,
    MemoryError: _on_memory_error,
    OSError: _on_system_error,
    HTTPException: _on_http_error,
    Exception: _on_unexpected_error,
}
