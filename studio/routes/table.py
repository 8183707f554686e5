"""The URL table, and the Starlette routes made from it."""

from __future__ import annotations

import json
from functools import cache
from itertools import groupby
from typing import Any

from starlette.convertors import PathConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from agenticx.sessions.store.workers import WorkersReport
from studio.http.frames import EventPageResponse
from studio.http.openapi import EVENT_STREAM, ResponseSpec, RouteSpec, openapi_document
from studio.http.problems import Problem
from studio.http.queries import parameter_schemas
from studio.routes import (
    access,
    agents,
    artifacts,
    attachments,
    changes,
    conversations,
    events,
    files,
    guide,
    keys,
    memory,
    models_and_tools,
    options,
    page,
    permissions,
    queue,
    sessions,
    subagents,
    teams,
    trust,
    turns,
    usage,
    user_requests,
    vaults,
    workers,
)

__all__ = ["TABLE", "is_public", "routes"]

_MAX_SHOWN_CHARS = 80  # of a parameter name sent by a client


async def openapi(_request: Request) -> Response:
    return Response(_openapi_json(), media_type="application/json")


@cache
def _openapi_json() -> str:
    """Return the document as text, the same one for each request."""
    return json.dumps(openapi_document(TABLE))


def _json(schema: Any, status: int = 200) -> tuple[ResponseSpec, ...]:
    return (ResponseSpec(schema, status),)


_NO_CONTENT = (ResponseSpec(status=204, media_type=None),)
_EVENTS = (ResponseSpec(media_type=EVENT_STREAM),)
_PAGE = (ResponseSpec(media_type="text/html"),)
_FILE = (ResponseSpec(media_type="application/jsonl"), ResponseSpec(media_type="text/markdown"))
_ATTACHMENT = (ResponseSpec(media_type="*/*"), ResponseSpec(status=304, media_type=None))
_TURN = (*_json(turns.StartTurnResponse, 202), *_EVENTS)  # events for a request that accepts them
_DOCUMENT = _json(dict[str, Any])

_SESSION_PROBLEMS = ("session_not_found", "storage")
_SUBAGENT_PROBLEMS = (*_SESSION_PROBLEMS, "subagent_not_found", "shutting_down")
_TURN_PROBLEMS = (
    "attachment_too_large",
    "attachment_refused",
    "unknown_model",
    "unknown_tool",
    "unknown_agent",
    "bad_settings",
    "bad_workspace",
    "unsupported_sampling",
)

TABLE: tuple[RouteSpec, ...] = (
    RouteSpec(
        "POST",
        "/api/sessions",
        "create_session",
        sessions.create,
        "Create a session",
        _json(sessions.SessionResponse, 201),
        body=sessions.CreateSessionBody,
        problems=(
            "unknown_model",
            "unknown_tool",
            "unknown_agent",
            "bad_agent",
            "unknown_team",
            "bad_team",
            "bad_workspace",
            "storage",
        ),
    ),
    RouteSpec(
        "GET",
        "/api/sessions",
        "list_sessions",
        sessions.index,
        "Sessions, newest first",
        _json(sessions.SessionListResponse),
        query=sessions.SessionListQuery,
        problems=("bad_before", "storage"),
    ),
    RouteSpec(
        "GET",
        "/api/folders",
        "list_folders",
        sessions.folders,
        "Folders of recent sessions",
        _json(sessions.FolderListResponse),
        problems=("storage",),
    ),
    RouteSpec(
        "GET",
        "/api/folders/files",
        "list_folder_files",
        files.in_folder,
        "Files of a folder in which a session is to work, for mentions",
        _json(files.FileListResponse),
        query=files.FolderFilesQuery,
        problems=("bad_workspace",),
    ),
    RouteSpec(
        "GET",
        "/api/sessions/{session_id}",
        "get_session",
        sessions.show,
        "One session",
        _json(sessions.SessionResponse),
        problems=_SESSION_PROBLEMS,
    ),
    RouteSpec(
        "PATCH",
        "/api/sessions/{session_id}",
        "change_session",
        sessions.change,
        "Change a session",
        _json(sessions.SessionResponse),
        body=sessions.ChangeSessionBody,
        problems=(
            *_SESSION_PROBLEMS,
            "session_busy",
            "unknown_model",
            "unknown_tool",
            "unknown_agent",
            "bad_workspace",
            "shutting_down",
        ),
    ),
    RouteSpec(
        "DELETE",
        "/api/sessions/{session_id}",
        "delete_session",
        sessions.delete,
        "Stop and delete a session",
        _NO_CONTENT,
        problems=_SESSION_PROBLEMS,
    ),
    RouteSpec(
        "GET",
        "/api/sessions/{session_id}/messages",
        "list_messages",
        conversations.messages,
        "The messages of a session",
        _json(conversations.MessageListResponse),
        query=conversations.MessageListQuery,
        problems=(*_SESSION_PROBLEMS, "bad_before"),
    ),
    RouteSpec(
        "GET",
        "/api/sessions/{session_id}/attachments/{digest}",
        "get_attachment",
        attachments.show,
        "A file attached to a message",
        _ATTACHMENT,
        problems=(*_SESSION_PROBLEMS, "attachment_not_found"),
    ),
    RouteSpec(
        "GET",
        "/api/sessions/{session_id}/files",
        "list_files",
        files.index,
        "Files of the workspace, for mentions",
        _json(files.FileListResponse),
        query=files.FilesQuery,
        problems=(*_SESSION_PROBLEMS, "bad_workspace", "bad_settings"),
    ),
    RouteSpec(
        "GET",
        "/api/sessions/{session_id}/files/{path}",
        "get_file",
        files.show,
        "A file of the workspace as it is now, as an attachment",
        (ResponseSpec(media_type="*/*"),),
        problems=(
            *_SESSION_PROBLEMS,
            "file_refused",
            "file_not_found",
            "file_too_large",
            "bad_workspace",
            "bad_settings",
            "rules_unusable",
        ),
    ),
    RouteSpec(
        "GET",
        "/api/sessions/{session_id}/changes",
        "list_changes",
        changes.index,
        "The files that the agent changed in a session, with their diffs",
        _json(changes.ChangeListResponse),
        query=changes.ChangesQuery,
        problems=(*_SESSION_PROBLEMS, "turn_not_found", "call_not_found"),
    ),
    RouteSpec(
        "GET",
        "/api/sessions/{session_id}/context",
        "get_context",
        conversations.context,
        "The sizes of a session's next request",
        _json(conversations.ContextResponse),
        problems=(
            *_SESSION_PROBLEMS,
            "unknown_model",
            "unknown_tool",
            "unknown_agent",
            "bad_settings",
            "bad_workspace",
        ),
    ),
    RouteSpec(
        "GET",
        "/api/sessions/{session_id}/instructions",
        "list_instructions",
        sessions.instructions,
        "The AGENTS.md files that apply to a session",
        _json(sessions.InstructionsResponse),
        problems=_SESSION_PROBLEMS,
    ),
    RouteSpec(
        "GET",
        "/api/sessions/{session_id}/trust",
        "list_trust",
        trust.index,
        "The AGENTS.md files of a session, and if they are trusted",
        _json(trust.TrustResponse),
        problems=(*_SESSION_PROBLEMS, "trust_unusable"),
    ),
    RouteSpec(
        "POST",
        "/api/sessions/{session_id}/trust",
        "trust_file",
        trust.trust,
        "Trust the content of an AGENTS.md",
        _json(trust.TrustResponse),
        body=trust.TrustBody,
        problems=(*_SESSION_PROBLEMS, "unknown_digest", "trust_unusable"),
    ),
    RouteSpec(
        "GET",
        "/api/sessions/{session_id}/export",
        "export_session",
        conversations.export,
        "A session as a file",
        _FILE,
        query=conversations.ExportQuery,
        problems=_SESSION_PROBLEMS,
    ),
    RouteSpec(
        "POST",
        "/api/sessions/{session_id}/fork",
        "fork_session",
        conversations.fork,
        "Fork",
        _json(sessions.SessionResponse, 201),
        body=conversations.ForkBody,
        problems=(*_SESSION_PROBLEMS, "message_not_found"),
    ),
    RouteSpec(
        "POST",
        "/api/sessions/{session_id}/rewind",
        "rewind_session",
        conversations.rewind,
        "Go back to an earlier message",
        _json(conversations.RewindResponse),
        body=conversations.RewindBody,
        problems=(*_SESSION_PROBLEMS, "message_not_found", "session_busy", "shutting_down"),
    ),
    RouteSpec(
        "GET",
        "/api/sessions/{session_id}/turns",
        "list_turns",
        turns.index,
        "The turns of a session",
        _json(turns.TurnListResponse),
        query=turns.TurnListQuery,
        problems=(*_SESSION_PROBLEMS, "bad_before", "message_not_found"),
    ),
    RouteSpec(
        "POST",
        "/api/sessions/{session_id}/turns",
        "start_turn",
        turns.start,
        "Start a turn; with `Accept: text/event-stream` the response is the stream of its events",
        _TURN,
        body=turns.StartTurnBody,
        problems=(*_SESSION_PROBLEMS, *_TURN_PROBLEMS, "session_busy", "client_turn_id_reused", "shutting_down"),
    ),
    RouteSpec(
        "GET",
        "/api/sessions/{session_id}/queue",
        "list_queue",
        queue.index,
        "The messages that wait",
        _json(queue.QueueResponse),
        problems=_SESSION_PROBLEMS,
    ),
    RouteSpec(
        "PATCH",
        "/api/sessions/{session_id}/queue/{message_id}",
        "change_queued_message",
        queue.change,
        "Edit a message that waits, or have it read now",
        _json(queue.QueuedItem),
        body=queue.ChangeQueuedBody,
        problems=(*_SESSION_PROBLEMS, "message_not_queued", "session_busy", "shutting_down"),
    ),
    RouteSpec(
        "DELETE",
        "/api/sessions/{session_id}/queue/{message_id}",
        "remove_queued_message",
        queue.remove,
        "Remove a message that waits",
        _NO_CONTENT,
        problems=(*_SESSION_PROBLEMS, "message_not_queued", "shutting_down"),
    ),
    RouteSpec(
        "POST",
        "/api/sessions/{session_id}/stop",
        "stop_turn",
        turns.stop,
        "Stop the running turn",
        _json(turns.StopTurnResponse, 202),
        body=turns.StopTurnBody,
        problems=_SESSION_PROBLEMS,
    ),
    RouteSpec(
        "GET",
        "/api/sessions/{session_id}/events",
        "stream_session_events",
        events.of_session,
        "A session's events, as a stream or a page of them",
        (*_EVENTS, *_json(EventPageResponse)),
        query=events.SessionEventsQuery,
        headers=events.HEADERS,
        problems=(*_SESSION_PROBLEMS, "bad_cursor"),
    ),
    RouteSpec(
        "GET",
        "/api/events",
        "stream_events",
        events.of_all,
        "Events of all sessions",
        _EVENTS,
        query=events.EventsQuery,
        headers=events.HEADERS,
        problems=("storage",),
    ),
    RouteSpec(
        "GET",
        "/api/confirms",
        "list_confirms",
        user_requests.list_confirms,
        "Pending confirmations",
        _json(user_requests.ConfirmListResponse),
        query=user_requests.SessionFilter,
        problems=_SESSION_PROBLEMS,
    ),
    RouteSpec(
        "POST",
        "/api/confirms/{request_id}",
        "answer_confirm",
        user_requests.answer_confirm,
        "Answer a confirmation",
        _json(user_requests.ConfirmDecisionResponse),
        body=user_requests.ConfirmAnswerBody,
        problems=(
            "confirm_not_found",
            "digest_mismatch",
            "confirm_closed",
            "bad_rule",
            "remember_unavailable",
            "storage",
        ),
    ),
    RouteSpec(
        "GET",
        "/api/confirms/{request_id}/diff",
        "get_confirm_diff",
        user_requests.show_diff,
        "The whole diff of a confirmation",
        _json(user_requests.ConfirmDiffResponse),
        problems=("confirm_not_found", "confirm_closed", "digest_mismatch", "storage"),
    ),
    RouteSpec(
        "GET",
        "/api/permissions",
        "list_rules",
        permissions.index,
        "The permission mode and the rules of the user",
        _json(permissions.PermissionsResponse),
        query=permissions.PermissionsQuery,
        problems=("session_not_found", "rules_unusable", "storage"),
    ),
    RouteSpec(
        "PUT",
        "/api/permissions",
        "replace_rules",
        permissions.replace_all,
        "Replace the rules of workspaces and of the user",
        _json(permissions.PermissionsResponse),
        body=permissions.ReplaceRulesBody,
        problems=("bad_rule", "rules_unusable"),
    ),
    RouteSpec(
        "DELETE",
        "/api/permissions/{rule_id}",
        "delete_rule",
        permissions.delete,
        "Revoke a rule",
        _json(permissions.RuleItem),
        problems=("rule_not_found", "rules_unusable", "storage", "shutting_down"),
    ),
    RouteSpec(
        "POST",
        "/api/permissions/explain",
        "explain_call",
        permissions.explain,
        "The verdict about a call, which is not run",
        _json(permissions.ExplainResponse),
        body=permissions.ExplainBody,
        problems=("session_not_found", "unknown_tool", "bad_workspace", "rules_unusable", "storage"),
    ),
    RouteSpec(
        "GET",
        "/api/questions",
        "list_questions",
        user_requests.list_questions,
        "Pending questions of agents",
        _json(user_requests.QuestionListResponse),
        query=user_requests.SessionFilter,
        problems=_SESSION_PROBLEMS,
    ),
    RouteSpec(
        "POST",
        "/api/questions/{question_id}",
        "answer_question",
        user_requests.answer_question,
        "Answer a question of an agent",
        _json(user_requests.QuestionAnswerResponse),
        body=user_requests.QuestionAnswerBody,
        problems=("question_not_found", "question_closed", "storage"),
    ),
    RouteSpec(
        "GET",
        "/api/sessions/{session_id}/subagents",
        "list_subagents",
        subagents.index,
        "The sub-agents of a session",
        _json(subagents.SubagentListResponse),
        problems=(*_SESSION_PROBLEMS, "shutting_down"),
    ),
    RouteSpec(
        "POST",
        "/api/sessions/{session_id}/subagents/{agent_id}/cancel",
        "cancel_subagent",
        subagents.cancel,
        "Stop a sub-agent",
        _json(subagents.SubagentItem, 202),
        body=subagents.CancelSubagentBody,
        problems=_SUBAGENT_PROBLEMS,
    ),
    RouteSpec(
        "POST",
        "/api/sessions/{session_id}/subagents/{agent_id}/retry",
        "retry_subagent",
        subagents.retry,
        "Have a sub-agent begin its task anew",
        _json(subagents.SubagentItem, 202),
        body=subagents.RetrySubagentBody,
        problems=(*_SUBAGENT_PROBLEMS, "subagent_busy", "subagent_limit", "unknown_model", "client_turn_id_reused"),
    ),
    RouteSpec(
        "POST",
        "/api/sessions/{session_id}/subagents/{agent_id}/message",
        "message_subagent",
        subagents.message,
        "Send a message to a sub-agent",
        _json(subagents.SubagentItem, 202),
        body=subagents.MessageSubagentBody,
        problems=(*_SUBAGENT_PROBLEMS, "subagent_limit", "unknown_model"),
    ),
    RouteSpec(
        "GET",
        "/api/sessions/{session_id}/artifacts",
        "list_artifacts",
        artifacts.index,
        "The files that live in a session; with `format=zip` an archive of them",
        (*_json(artifacts.ArtifactListResponse), ResponseSpec(media_type="application/zip")),
        query=artifacts.ArtifactsQuery,
        problems=(*_SESSION_PROBLEMS, "artifact_not_found", "option_not_found"),
    ),
    RouteSpec(
        "GET",
        "/api/sessions/{session_id}/artifacts/{path}",
        "get_artifact",
        artifacts.show,
        "A file that lives in a session, as an attachment",
        (ResponseSpec(media_type="text/plain"),),
        query=artifacts.ArtifactQuery,
        problems=(*_SESSION_PROBLEMS, "artifact_not_found", "option_not_found"),
    ),
    RouteSpec(
        "GET",
        "/api/sessions/{session_id}/options",
        "list_options",
        options.index,
        "The options of a session, and how each stands",
        _json(options.OptionListResponse),
        problems=_SESSION_PROBLEMS,
    ),
    RouteSpec(
        "POST",
        "/api/sessions/{session_id}/options/{number}/pick",
        "pick_option",
        options.pick,
        "Go on with an option",
        _json(sessions.SessionResponse),
        body=options.OptionBody,
        problems=(*_SESSION_PROBLEMS, "option_not_found", "option_not_done", "session_busy", "shutting_down"),
    ),
    RouteSpec(
        "POST",
        "/api/sessions/{session_id}/options/{number}/stop",
        "stop_option",
        options.stop,
        "Stop an option",
        _json(options.OptionStoppedResponse, 202),
        body=options.OptionBody,
        problems=(*_SESSION_PROBLEMS, "option_not_found"),
    ),
    RouteSpec(
        "GET",
        "/api/models",
        "list_models",
        models_and_tools.models,
        "Known models, or those that can be used now",
        _json(models_and_tools.ModelListResponse),
        query=models_and_tools.ModelListQuery,
        problems=("bad_settings", "unknown_model"),
    ),
    RouteSpec(
        "GET",
        "/api/keys",
        "list_keys",
        keys.index,
        "Providers that have a key, with its source",
        _json(keys.KeyListResponse),
        problems=("bad_settings",),
    ),
    RouteSpec(
        "PUT",
        "/api/keys/{provider}",
        "store_key",
        keys.store,
        "Store a provider's key",
        _json(keys.StoreKeyResponse),
        body=keys.StoreKeyBody,
        problems=(
            "provider_not_found",
            "invalid_key",
            "key_refused",
            "provider_unreachable",
            "bad_settings",
            "storage",
        ),
    ),
    RouteSpec(
        "DELETE",
        "/api/keys/{provider}",
        "delete_key",
        keys.delete,
        "Remove a provider's stored key",
        _NO_CONTENT,
        problems=("provider_not_found", "key_not_found", "key_in_environment", "bad_settings", "storage"),
    ),
    RouteSpec(
        "GET",
        "/api/usage",
        "get_usage",
        usage.index,
        "Token usage and cost",
        _json(usage.UsageResponse),
        query=usage.UsageQuery,
        problems=_SESSION_PROBLEMS,
    ),
    RouteSpec(
        "GET",
        "/api/tools",
        "list_tools",
        models_and_tools.tools,
        "Tools that sessions can use",
        _json(models_and_tools.ToolListResponse),
    ),
    RouteSpec(
        "GET",
        "/api/agents",
        "list_agents",
        agents.agents,
        "Agents of files",
        _json(agents.AgentListResponse),
    ),
    RouteSpec(
        "GET",
        "/api/teams",
        "list_teams",
        teams.teams,
        "Configured teams",
        _json(teams.TeamListResponse),
    ),
    RouteSpec(
        "GET",
        "/api/memory",
        "list_memory",
        memory.index,
        "What the user agreed to have remembered",
        _json(memory.MemoryResponse),
        problems=("memory_unusable",),
    ),
    RouteSpec(
        "DELETE",
        "/api/memory/{entry_id}",
        "delete_memory",
        memory.delete,
        "Remove an entry of the memory",
        _NO_CONTENT,
        problems=("memory_not_found", "memory_unusable"),
    ),
    RouteSpec(
        "GET",
        "/api/vaults",
        "list_vaults",
        vaults.index,
        "Vaults of notes",
        _json(vaults.VaultListResponse),
    ),
    RouteSpec(
        "POST",
        "/api/vaults",
        "add_vault",
        vaults.add,
        "Add a folder of notes",
        (*_json(vaults.VaultResponse, 201), *_json(vaults.VaultResponse)),
        body=vaults.AddVaultBody,
        problems=("bad_vault", "vault_not_found", "vault_unreadable"),
    ),
    RouteSpec(
        "GET",
        "/api/vaults/{vault_id}",
        "get_vault",
        vaults.show,
        "One vault",
        _json(vaults.VaultResponse),
        problems=("vault_not_found",),
    ),
    RouteSpec(
        "PATCH",
        "/api/vaults/{vault_id}",
        "change_vault",
        vaults.change,
        "Say whether text of a vault may be sent to the embedding model",
        _json(vaults.VaultResponse),
        body=vaults.ChangeVaultBody,
        problems=("vault_not_found", "vault_unreadable"),
    ),
    RouteSpec(
        "DELETE",
        "/api/vaults/{vault_id}",
        "delete_vault",
        vaults.delete,
        "Forget a vault",
        _NO_CONTENT,
        problems=("vault_not_found", "vault_unreadable"),
    ),
    RouteSpec(
        "POST",
        "/api/vaults/{vault_id}/rescan",
        "rescan_vault",
        vaults.rescan,
        "Bring the index of a vault up to date",
        _json(vaults.VaultResponse, 202),
        body=vaults.RescanBody,
        problems=("vault_not_found",),
    ),
    RouteSpec(
        "GET",
        "/api/vaults/{vault_id}/problems",
        "list_vault_problems",
        vaults.problems,
        "Files of a vault that are skipped, and defects of notes",
        _json(vaults.VaultProblemsResponse),
        problems=("vault_not_found", "vault_unreadable"),
    ),
    RouteSpec(
        "GET",
        "/api/vaults/{vault_id}/search",
        "search_vault",
        vaults.search,
        "Search the notes of a vault",
        _json(vaults.NoteSearchResponse),
        query=vaults.NoteSearchQuery,
        problems=("vault_not_found", "bad_path", "vault_unreadable"),
    ),
    RouteSpec(
        "GET",
        "/api/vaults/{vault_id}/notes/{path}",
        "get_note",
        vaults.note,
        "A note",
        _json(vaults.NoteResponse),
        problems=("vault_not_found", "note_not_found", "vault_unreadable"),
    ),
    RouteSpec(
        "POST",
        "/api/ticket",
        "redeem_ticket",
        access.redeem,
        "Exchange a one-use ticket for the token",
        _json(access.TokenResponse),
        body=access.RedeemTicketBody,
        public=True,
        problems=("bad_ticket", "storage"),
    ),
    RouteSpec(
        "POST",
        "/api/tickets",
        "issue_ticket",
        access.issue,
        "Issue a one-use ticket",
        _json(access.TicketResponse, 201),
        body=access.IssueTicketBody,
        problems=("storage",),
    ),
    RouteSpec(
        "GET",
        "/api/workers",
        "list_workers",
        workers.index,
        "The processes that use the store, what they own, and what waits for one",
        _json(WorkersReport),
        problems=("storage",),
    ),
    RouteSpec(
        "GET",
        "/api/health",
        "get_health",
        access.health,
        "The server accepts turns: 503 while it cannot store them",
        _json(access.HealthResponse),
        public=True,
        problems=("storage",),
    ),
    RouteSpec(
        "GET",
        "/api/identity",
        "get_identity",
        access.identity,
        "The proof that the server has the token, for a client that has not sent it yet",
        _json(access.IdentityResponse),
        query=access.IdentityQuery,
        public=True,
    ),
    RouteSpec(
        "GET",
        "/api/ready",
        "get_readiness",
        access.ready,
        "The server accepts turns and can store them: 503 with the reason while it cannot",
        _json(access.ReadyResponse),
        problems=("storage",),
    ),
    RouteSpec("GET", "/openapi.json", "get_openapi", openapi, "The OpenAPI document", _DOCUMENT),
    RouteSpec("GET", "/", "get_page", page.index, "The page", _PAGE, query=None, public=True),
    RouteSpec(
        "GET", "/preview", "get_preview", page.preview, "The shell of previews, without data", _PAGE, public=True
    ),
    RouteSpec("GET", "/guide", "get_guide", guide.index, "The pages of the guide", _PAGE, public=True),
    RouteSpec("GET", "/guide/{name}", "get_guide_page", guide.show, "A page of the guide", _PAGE, public=True),
)


_ASSETS = "/assets/"
_GUIDE = "/guide/"
_PUBLIC_PATHS = frozenset(spec.path for spec in TABLE if spec.public) - {spec.path for spec in TABLE if not spec.public}


def is_public(path: str) -> bool:
    """Return True if a path holds no data and is answered without a token."""
    return path in _PUBLIC_PATHS or path.startswith((_ASSETS, _GUIDE))


def routes() -> list[BaseRoute]:
    """Return the table as Starlette routes, one per path, and the route of the page's assets."""
    paths = groupby(sorted(TABLE, key=lambda spec: spec.path), key=lambda spec: spec.path)
    assets = Route(f"{_ASSETS}{{name:path}}", page.asset, methods=["GET"])
    return [*(_route(path, {spec.method: spec for spec in specs}) for path, specs in paths), assets]


class _WholePath(PathConvertor):
    """The rest of a URL, also with line breaks, which names of files may have."""

    regex = r"(?s:.*)"


register_url_convertor("whole", _WholePath())


def _route(path: str, specs: dict[str, RouteSpec]) -> Route:
    async def endpoint(request: Request) -> Response:
        spec = specs["GET" if request.method == "HEAD" else request.method]
        _check_query(request, spec)
        return await spec.handler(request)

    with_slashes = path.replace("{path}", "{path:whole}")  # as the path of a note has them
    return Route(with_slashes, endpoint, methods=list(specs))


def _check_query(request: Request, spec: RouteSpec) -> None:
    """Raise `Problem` for an unknown or repeated query parameter instead of ignoring it silently.

    A parameter that begins with an underscore is ignored: clients add them against caches (`?_=1`) and for tracing.
    """
    if spec.query is None or not request.scope["query_string"]:
        return
    parameter_names = parameter_schemas(spec.query).keys()
    seen = set[str]()
    for name, _ in request.query_params.multi_items():
        if name.startswith("_"):
            continue
        if name not in parameter_names:
            shown = name[:_MAX_SHOWN_CHARS]
            names = ", ".join(parameter_names) or "none"
            sentence = f"Unknown parameter {shown!r} of {spec.method} {spec.path}; known parameters: {names}."
            raise Problem("unknown_parameter", sentence, field=shown)
        if name in seen:
            raise Problem("repeated_parameter", f"{name!r} must be given once, not several times.", field=name)
        seen.add(name)
