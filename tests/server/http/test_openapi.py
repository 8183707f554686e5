"""`/openapi.json`: real responses match its schemas, and parameters it does not name are refused."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator
from pydantic import TypeAdapter
from typing_extensions import is_typeddict

from agenticx.assembly import default_tools
from agenticx.llms import ScriptedModel
from agenticx.runtime import envelope_schema
from agenticx.testing import call, hang, say
from studio.http.openapi import EVENT_STREAM, openapi_document, possible_problems
from studio.http.problems import HINTS, PROBLEMS
from studio.http.queries import RequestQuery, find_problem_codes
from studio.routes.table import TABLE
from tests.support.server.running_studio import RunningStudio, StudioMaker, until
from tests.support.wires.files import PNG

pytestmark = [pytest.mark.anyio, pytest.mark.shares_secrets]

QUERIES = {
    "/api/identity": ["challenge"],
    "/api/sessions": ["q", "limit", "before", "archived"],
    "/api/sessions/{session_id}/messages": ["limit", "before"],
    "/api/folders/files": ["q", "limit", "workspace"],
    "/api/sessions/{session_id}/files": ["q", "limit"],
    "/api/sessions/{session_id}/changes": ["turn_id", "tool_call_id", "path", "limit"],
    "/api/sessions/{session_id}/turns": ["limit", "before", "message_id"],
    "/api/sessions/{session_id}/export": ["format", "after"],
    "/api/sessions/{session_id}/artifacts": ["format", "option"],
    "/api/sessions/{session_id}/artifacts/{path}": ["revision", "option"],
    "/api/sessions/{session_id}/events": ["cursor", "lastEventId", "types", "from", "until", "limit"],
    "/api/events": ["cursor", "lastEventId", "types"],
    "/api/confirms": ["session_id"],
    "/api/permissions": ["session_id", "workspace"],
    "/api/questions": ["session_id"],
    "/api/models": ["available", "name"],
    "/api/usage": ["session_id", "since", "until"],
    "/api/vaults/{vault_id}/search": ["q", "limit", "path", "tag", "since"],
}
"""The query parameters of each route; any other is refused before its handler reads it."""


OPERATIONS = {
    "GET /api/sessions/{session_id}/attachments/{digest}": "get_attachment",
    "GET /api/sessions/{session_id}/artifacts": "list_artifacts",
    "GET /api/sessions/{session_id}/artifacts/{path}": "get_artifact",
    "GET /api/sessions/{session_id}/options": "list_options",
    "POST /api/sessions/{session_id}/options/{number}/pick": "pick_option",
    "POST /api/sessions/{session_id}/options/{number}/stop": "stop_option",
    "GET /api/memory": "list_memory",
    "DELETE /api/memory/{entry_id}": "delete_memory",
    "GET /api/vaults": "list_vaults",
    "POST /api/vaults": "add_vault",
    "GET /api/vaults/{vault_id}": "get_vault",
    "PATCH /api/vaults/{vault_id}": "change_vault",
    "DELETE /api/vaults/{vault_id}": "delete_vault",
    "POST /api/vaults/{vault_id}/rescan": "rescan_vault",
    "GET /api/vaults/{vault_id}/problems": "list_vault_problems",
    "GET /api/vaults/{vault_id}/search": "search_vault",
    "GET /api/vaults/{vault_id}/notes/{path}": "get_note",
    "GET /": "get_page",
    "GET /guide": "get_guide",
    "GET /guide/{name}": "get_guide_page",
    "GET /preview": "get_preview",
    "GET /api/confirms": "list_confirms",
    "POST /api/confirms/{request_id}": "answer_confirm",
    "GET /api/confirms/{request_id}/diff": "get_confirm_diff",
    "GET /api/permissions": "list_rules",
    "PUT /api/permissions": "replace_rules",
    "DELETE /api/permissions/{rule_id}": "delete_rule",
    "POST /api/permissions/explain": "explain_call",
    "GET /api/questions": "list_questions",
    "POST /api/questions/{question_id}": "answer_question",
    "GET /api/events": "stream_events",
    "GET /api/folders": "list_folders",
    "GET /api/folders/files": "list_folder_files",
    "GET /api/health": "get_health",
    "GET /api/identity": "get_identity",
    "GET /api/keys": "list_keys",
    "PUT /api/keys/{provider}": "store_key",
    "DELETE /api/keys/{provider}": "delete_key",
    "GET /api/models": "list_models",
    "GET /api/ready": "get_readiness",
    "GET /api/sessions": "list_sessions",
    "POST /api/sessions": "create_session",
    "DELETE /api/sessions/{session_id}": "delete_session",
    "GET /api/sessions/{session_id}": "get_session",
    "PATCH /api/sessions/{session_id}": "change_session",
    "GET /api/sessions/{session_id}/events": "stream_session_events",
    "GET /api/sessions/{session_id}/subagents": "list_subagents",
    "POST /api/sessions/{session_id}/subagents/{agent_id}/cancel": "cancel_subagent",
    "POST /api/sessions/{session_id}/subagents/{agent_id}/message": "message_subagent",
    "POST /api/sessions/{session_id}/subagents/{agent_id}/retry": "retry_subagent",
    "GET /api/sessions/{session_id}/changes": "list_changes",
    "GET /api/sessions/{session_id}/context": "get_context",
    "GET /api/sessions/{session_id}/files": "list_files",
    "GET /api/sessions/{session_id}/files/{path}": "get_file",
    "GET /api/sessions/{session_id}/export": "export_session",
    "POST /api/sessions/{session_id}/fork": "fork_session",
    "GET /api/sessions/{session_id}/messages": "list_messages",
    "GET /api/sessions/{session_id}/instructions": "list_instructions",
    "GET /api/sessions/{session_id}/trust": "list_trust",
    "POST /api/sessions/{session_id}/trust": "trust_file",
    "POST /api/sessions/{session_id}/rewind": "rewind_session",
    "GET /api/sessions/{session_id}/queue": "list_queue",
    "PATCH /api/sessions/{session_id}/queue/{message_id}": "change_queued_message",
    "DELETE /api/sessions/{session_id}/queue/{message_id}": "remove_queued_message",
    "POST /api/sessions/{session_id}/stop": "stop_turn",
    "GET /api/sessions/{session_id}/turns": "list_turns",
    "POST /api/sessions/{session_id}/turns": "start_turn",
    "POST /api/ticket": "redeem_ticket",
    "POST /api/tickets": "issue_ticket",
    "GET /api/teams": "list_teams",
    "GET /api/agents": "list_agents",
    "GET /api/tools": "list_tools",
    "GET /api/usage": "get_usage",
    "GET /api/workers": "list_workers",
    "GET /openapi.json": "get_openapi",
}
"""The operation ids: generated clients make functions of these names, so that renaming one breaks them."""

SCHEMAS = [
    "AddVaultBody",
    "AgentItem",
    "AgentListResponse",
    "ArtifactItem",
    "ArtifactListResponse",
    "AttachmentBody",
    "AttachmentItem",
    "CancelSubagentBody",
    "ChangeListResponse",
    "ChangeQueuedBody",
    "ChangeSessionBody",
    "ChangeVaultBody",
    "ChangedFileItem",
    "CitationItem",
    "ConfirmAnswerBody",
    "ConfirmDecisionResponse",
    "ConfirmDiffResponse",
    "ConfirmItem",
    "ConfirmListResponse",
    "ContextLayerItem",
    "ContextResponse",
    "CreateSessionBody",
    "DeletionReport",
    "Event",
    "EventPageResponse",
    "ExplainBody",
    "ExplainResponse",
    "FileItem",
    "FileListResponse",
    "FolderItem",
    "FolderListResponse",
    "ForkBody",
    "FoundPassageItem",
    "HealthResponse",
    "HostReport",
    "IdentityResponse",
    "InstructionsResponse",
    "IssueTicketBody",
    "KeyItem",
    "KeyListResponse",
    "LongModelRates",
    "MemoryEntryItem",
    "MemoryResponse",
    "MessageItem",
    "MessageListResponse",
    "MessageSubagentBody",
    "ModelItem",
    "ModelListResponse",
    "ModelPrice",
    "NoteProblemItem",
    "NoteResponse",
    "NoteSearchResponse",
    "OptionBody",
    "OptionItem",
    "OptionListResponse",
    "OptionStoppedResponse",
    "OrphanReport",
    "ParticipantItem",
    "PermissionsResponse",
    "Problem",
    "QuestionAnswerBody",
    "QuestionAnswerResponse",
    "QuestionItem",
    "QuestionListResponse",
    "QueueResponse",
    "QueuedItem",
    "ReadyResponse",
    "RedeemTicketBody",
    "ReplaceRulesBody",
    "RescanBody",
    "ResetData",
    "ResetFrame",
    "RetrySubagentBody",
    "RewindBody",
    "RewindResponse",
    "RewindUndo",
    "RewoundFileItem",
    "RuleItem",
    "SamplingBody",
    "SearchMatchItem",
    "ServerClosingData",
    "ServerClosingFrame",
    "ServerReport",
    "SessionItem",
    "SessionListResponse",
    "SessionResponse",
    "StartTurnBody",
    "StartTurnResponse",
    "StopTurnBody",
    "StopTurnResponse",
    "StoreKeyBody",
    "StoreKeyResponse",
    "StreamFrame",
    "SubagentItem",
    "SubagentListResponse",
    "TeamItem",
    "TeamListResponse",
    "TicketResponse",
    "TokenResponse",
    "ToolCallItem",
    "ToolItem",
    "ToolListResponse",
    "TrustBody",
    "TrustResponse",
    "TrustedFileItem",
    "TurnItem",
    "TurnListResponse",
    "UsageByAgent",
    "UsageByDay",
    "UsageByModel",
    "UsageBySession",
    "UsageItem",
    "UsageResponse",
    "UsageRow",
    "VaultEmbeddingsItem",
    "VaultListResponse",
    "VaultProblemsResponse",
    "VaultResponse",
    "WorkerReport",
    "WorkersReport",
]
"""The schemas besides those of the events: generated clients make types of these names, as above."""


class DocumentedClient:
    """A client that validates every response against the document."""

    def __init__(self, studio: RunningStudio, document: dict[str, Any]) -> None:
        self.studio = studio
        self.document = document
        self.seen = set[tuple[str, str, str, str | None]]()
        self._paths = [(re.compile(re.sub(r"{\w+}", "[^/]+", path)), path) for path in sorted(document["paths"])]

    async def request(self, method: str, url: str, body: Any = None, **headers: str) -> httpx.Response:
        kept = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = await self.studio.client.request(method, url, json=body, headers=kept)
        self.check(method, url, answer)
        return answer

    def check(self, method: str, url: str, answer: httpx.Response) -> None:
        path = next(path for pattern, path in self._paths if pattern.fullmatch(url.partition("?")[0]))
        responses = self.document["paths"][path][method.lower()]["responses"]
        response = responses[str(answer.status_code)]
        media_type = answer.headers.get("content-type", "").partition(";")[0] or None
        if "*/*" in response.get("content", ()):
            media_type = "*/*"
        assert [media_type] == [None] if "content" not in response else media_type in response["content"], (
            method,
            url,
            media_type,
        )
        if media_type is not None and media_type.endswith("json"):
            schema = {**response["content"][media_type]["schema"], "components": self.document["components"]}
            Draft202012Validator(schema).validate(answer.json())
        if answer.is_success:
            self.seen.add((method, path, str(answer.status_code), media_type))


def without_additional_properties(schema: Any) -> Any:
    """Return the schema with additional properties forbidden in every object."""
    if isinstance(schema, list):
        return [without_additional_properties(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {name: without_additional_properties(one) for name, one in schema.items()}
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        inner.setdefault("additionalProperties", False)
    return inner


def documented_responses(document: dict[str, Any]) -> Iterator[tuple[str, str, str, str | None]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            for status, response in operation["responses"].items():
                for media in response.get("content", {None: {}}):
                    if status.startswith("2"):
                        yield method.upper(), path, status, media


async def test_every_response_matches_the_document(
    make_studio: StudioMaker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-x")
    monkeypatch.setenv("AGX_HOME", str(tmp_path / "home"))
    monkeypatch.setitem(sys.modules, "keyring", None)
    model = ScriptedModel(
        [
            call("file_write", {"path": "a.txt", "content": "x"}),
            "Written, the needle is in there.",
            [call("ask_user", {"text": "Which?", "options": ["one"]}), call("create_file", {"content": "<p>"})],
            "Thanks.",
            [call("spawn_subagent", {"task": "Work", "name": "a"}), call("wait_subagents")],
            *["Worked.", "Reported.", "Worked again.", "Worked more."],
            *["One page.", "Another page."],
            [say("so"), hang()],
            *["more"] * 5,
        ]
    )
    async with make_studio(model, tools=default_tools()) as studio:
        document = (await studio.client.get("/openapi.json")).json()
        client = DocumentedClient(studio, without_additional_properties(document))
        await client.request("GET", "/openapi.json")

        session = {
            "name": "Named",
            "tools": ["file_write", "create_file", "ask_user", "spawn_subagent", "wait_subagents"],
        }
        made = (await client.request("POST", "/api/sessions", session)).json()
        await confirm_a_tool_call(client, made["id"])
        await read_and_rewind(client, made["id"])
        await answer_a_question(client, made["id"])
        for artifact in ("artifacts", "artifacts?format=zip", "artifacts/index.html?revision=1"):
            await client.request("GET", f"/api/sessions/{made['id']}/{artifact}")
        await direct_a_subagent(client, made["id"])
        await pick_an_option(client, made["id"])
        await queue_messages_and_stop(client, made["id"])
        await open_streams(client, made["id"])

        assert (await client.request("GET", "/api/sessions?limit=0")).status_code == 422
        ticket = (await client.request("POST", "/api/tickets")).json()["ticket"]
        await client.request("POST", "/api/ticket", {"ticket": ticket})
        await client.request("PUT", "/api/keys/groq", {"key": "a-key-for-nobody"})
        for plain in (
            "/",
            "/preview",
            "/guide",
            "/guide/events",
            "/api/health",
            f"/api/identity?challenge={'a' * 64}",
            "/api/ready",
            "/api/workers",
            "/api/tools",
            "/api/teams",
            "/api/agents",
            "/api/folders",
            "/api/folders/files?q=a",
            "/api/models?available=true",
            "/api/keys",
        ):
            await client.request("GET", plain)
        await use_a_vault(client, tmp_path / "notes")
        save = studio.services.notes.memory.save
        saved, _ = await asyncio.to_thread(save, "Likes tea.", saved_at="2026-01-01T00:00:00.000Z")
        await client.request("GET", "/api/memory")
        await client.request("DELETE", f"/api/memory/{saved.id}")
        await keep_a_rule(client, made["id"])
        await client.request("DELETE", "/api/keys/groq")
        assert (await client.request("DELETE", "/api/keys/groq")).status_code == 404
        await client.request("DELETE", f"/api/sessions/{made['id']}")
    assert client.seen == set(documented_responses(document))


async def pick_an_option(client: DocumentedClient, session_id: str) -> None:
    """Make two options, pick one, and stop the other, which has ended."""
    path = f"/api/sessions/{session_id}"
    turn = (await client.request("POST", f"{path}/turns", {"input": "A page", "variants": 2})).json()
    async with client.studio.events(session_id, cursor=turn["cursor"]) as frames:
        async for frame in frames:
            if frame.type == "final" and frame.data["turn_id"] == turn["turn_id"]:
                break
    await client.request("GET", f"{path}/options")
    await client.request("POST", f"{path}/options/1/pick", {})
    assert (await client.request("GET", f"{path}/messages")).json()["messages"][-1]["picked"] == 1
    await client.request("POST", f"{path}/options/2/stop", {})


async def keep_a_rule(client: DocumentedClient, session_id: str) -> None:
    """Store a rule, list it, ask what it decides, and revoke it."""
    rule = {"decision": "allow", "tool": "bash_exec", "command": "git push", "network": True, "scope": "user"}
    await client.request("PUT", "/api/permissions", {"rules": [rule]})
    (stored,) = (await client.request("GET", f"/api/permissions?session_id={session_id}")).json()["rules"]
    arguments = {"command": "git push"}
    await client.request("POST", "/api/permissions/explain", {"tool": "bash_exec", "arguments": arguments})
    assert (await client.request("DELETE", f"/api/permissions/{stored['id']}")).json() == stored


async def trust_a_file(client: DocumentedClient, path: str) -> None:
    """Trust the instructions of the workspace."""
    (client.studio.workspace / "AGENTS.md").write_text("Use tabs.")
    (file,) = (await client.request("GET", f"{path}/trust")).json()["files"]
    assert not file["trusted"]
    trusted = await client.request("POST", f"{path}/trust", {"sha256": file["sha256"]})
    assert trusted.json() == {"files": [{**file, "trusted": True}]}


async def use_a_vault(client: DocumentedClient, folder: Path) -> None:
    """Add a vault, search and read it, and forget it."""
    folder.mkdir()
    (folder / "a.md").write_text("# A\n\nneedle\n")
    vault = (await client.request("POST", "/api/vaults", {"path": str(folder)})).json()["id"]
    await client.request("POST", "/api/vaults", {"path": str(folder)})
    await client.request("POST", f"/api/vaults/{vault}/rescan")
    await client.request("PATCH", f"/api/vaults/{vault}", {"embeddings": True})
    for path in ("", f"/{vault}", f"/{vault}/problems", f"/{vault}/search?q=needle", f"/{vault}/notes/a.md"):
        await client.request("GET", f"/api/vaults{path}")
    await client.request("DELETE", f"/api/vaults/{vault}")


async def confirm_a_tool_call(client: DocumentedClient, session_id: str) -> None:
    """Run a turn with an attachment whose tool call needs a confirmation, and approve it."""
    picture = {"name": PNG.name, "data": PNG.data}
    await client.request("POST", f"/api/sessions/{session_id}/turns", {"input": "Write", "attachments": [picture]})
    await client.studio.events_until(session_id, "confirm_required")
    (question,) = (await client.request("GET", f"/api/confirms?session_id={session_id}")).json()["confirms"]
    assert (await client.request("GET", f"/api/confirms/{question['id']}/diff")).json()["path"] == "a.txt"
    yes = {"approved": True, "digest": question["digest"], "reason": "why not"}
    await client.request("POST", f"/api/confirms/{question['id']}", yes)
    await client.studio.events_until(session_id, "final")


async def answer_a_question(client: DocumentedClient, session_id: str) -> None:
    """Run a turn whose model asks the user, and answer it."""
    turn = (await client.request("POST", f"/api/sessions/{session_id}/turns", {"input": "Ask"})).json()
    await client.studio.events_until(session_id, "question_asked")
    (question,) = (await client.request("GET", f"/api/questions?session_id={session_id}")).json()["questions"]
    await client.request("POST", f"/api/questions/{question['id']}", {"answer": "another"})
    await client.studio.events_until(session_id, "final", cursor=turn["cursor"])


async def direct_a_subagent(client: DocumentedClient, session_id: str) -> None:
    """Run a turn that starts a sub-agent, and have it work again."""
    turn = (await client.request("POST", f"/api/sessions/{session_id}/turns", {"input": "Delegate"})).json()
    path = f"/api/sessions/{session_id}/subagents"
    async with client.studio.events(session_id, cursor=turn["cursor"]) as frames:
        await until(frames, "subagent_completed")
        for action, body in (("retry", {}), ("message", {"text": "More"})):
            assert (await client.request("POST", f"{path}/a-1/{action}", body)).status_code == 202
            await until(frames, "subagent_completed")
    await client.request("POST", f"{path}/a-1/cancel", {})
    (state,) = (await client.request("GET", path)).json()["subagents"]
    assert (state["agent_id"], state["state"]) == ("a-1", "completed")


async def read_and_rewind(client: DocumentedClient, session_id: str) -> None:
    """Read, search, export, fork and rewind a session with one turn."""
    path = f"/api/sessions/{session_id}"
    await client.request("GET", path)
    await client.request("GET", f"{path}/instructions")
    await trust_a_file(client, path)
    assert (await client.request("GET", f"{path}/turns")).json()["turns"][0]["outcome"] == "answer"
    await client.request("GET", f"{path}/context")
    assert (await client.request("GET", f"{path}/changes")).json()["files"][0]["path"] == "a.txt"
    assert (await client.request("GET", f"{path}/files?q=a.t")).json()["files"] == [{"path": "a.txt", "secret": False}]
    assert (await client.request("GET", f"{path}/files/a.txt")).status_code == 200
    await client.request("PATCH", path, {"pinned": True})
    (found,) = (await client.request("GET", "/api/sessions?q=needle&limit=5&archived=all")).json()["sessions"]
    assert found["matches"]
    await client.request("GET", "/api/sessions")
    messages = (await client.request("GET", f"{path}/messages")).json()["messages"]
    assert [sorted(message.keys() - {"message_id", "role", "content", "created_at"}) for message in messages] == [
        ["attachments"],
        ["tool_calls"],
        ["is_error", "outcome", "tool_call_id"],
        [],
    ]
    digest = messages[0]["attachments"][0]["sha256"]
    assert (await client.request("GET", f"{path}/attachments/{digest}")).status_code == 200
    assert (await client.request("GET", "/api/usage?since=2020-01-01&until=2999-01-01")).json()["rows"]
    await client.request("GET", f"{path}/export?after=1")
    await client.request("GET", f"{path}/export?format=markdown")
    await client.request("POST", f"{path}/fork", {})
    rewound = await client.request("POST", f"{path}/rewind", {"message_id": messages[0]["message_id"]})
    assert rewound.json()["files"]


async def queue_messages_and_stop(client: DocumentedClient, session_id: str) -> None:
    """Start a turn, submit messages while it runs, and stop it."""
    path = f"/api/sessions/{session_id}"
    await client.request("POST", f"{path}/turns", {"input": "Hold"})
    for when_busy in ("queue", "steer"):
        await client.request("POST", f"{path}/turns", {"input": "Also", "when_busy": when_busy})
    assert (await client.request("POST", f"{path}/turns", {"input": "Me"})).status_code == 409
    waiting = [one["message_id"] for one in (await client.request("GET", f"{path}/queue")).json()["messages"]]
    await client.request("PATCH", f"{path}/queue/{waiting[0]}", {"input": "Better"})
    await client.request("DELETE", f"{path}/queue/{waiting[1]}")
    await client.request("POST", f"{path}/stop")
    await client.studio.events_until(session_id, "handed_back")


async def open_streams(client: DocumentedClient, session_id: str) -> None:
    """Open the stream of a turn in a new session, that of a session, and that of all."""
    other = (await client.request("POST", "/api/sessions", {})).json()["id"]
    await client.request("POST", f"/api/sessions/{other}/turns", {"input": "On"}, Accept=EVENT_STREAM)
    assert (await client.request("GET", f"/api/sessions/{session_id}/events?limit=3")).json()["has_more"]
    for stream in (f"/api/sessions/{session_id}/events", "/api/events"):
        async with client.studio.client.stream("GET", stream) as answer:
            client.check("GET", stream, answer)


async def test_every_parameter_of_a_route_is_declared_and_any_other_is_refused_by_name(
    make_studio: StudioMaker,
) -> None:
    async with make_studio() as studio:
        session_id = await studio.session()
        document = (await studio.client.get("/openapi.json")).json()
        for route in TABLE:
            declared = document["paths"][route.path][route.method.lower()].get("parameters", [])
            known = [one["name"] for one in declared if one["in"] == "query"]
            assert known == QUERIES.get(route.path, [])[: None if route.method == "GET" else 0]
            assert all(one["schema"] and (one["in"] == "path" or one["description"]) for one in declared)
            ids = {"session_id": session_id, "agent_id": "a", "request_id": "cfm_x", "question_id": "qst_x"}
            ids |= {
                "provider": "groq",
                "vault_id": "vault_x",
                "path": "a.md",
                "entry_id": "mem_x",
                "number": "1",
                "rule_id": "x",
                "message_id": "msg_x",
            }
            path = route.path.format(**ids, name="events", digest="0")
            if route.path == "/":
                assert (await studio.client.get("/?from=mail")).status_code == 200
                continue
            answer = await studio.client.request(route.method, f"{path}?limt=1")
            assert (path, answer.status_code) == (path, 422)
            problem = answer.json()
            assert (problem["code"], problem["field"]) == ("unknown_parameter", "limt")
            names = ", ".join(known) or "none"
            sentence = f"Unknown parameter 'limt' of {route.method} {route.path}; known parameters: {names}."
            assert problem["detail"] == sentence


async def test_parameters_that_begin_with_an_underscore_are_ignored(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        for path in ("/api/health?_=1", "/api/tools?_=1&_cache=no", "/api/sessions?limit=5&_=2", "/assets/main.js?_=1"):
            assert (await studio.client.get(path)).status_code == 200
        assert (await studio.client.post("/api/sessions?_=1", json={})).status_code == 201
        refused = await studio.client.get("/api/tools?_=1&limt=1&_=2")
        assert (refused.status_code, refused.json()["field"]) == (422, "limt")


async def test_streams_declare_the_last_event_id_header(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        paths = (await studio.client.get("/openapi.json")).json()["paths"]
    for path in ("/api/events", "/api/sessions/{session_id}/events"):
        headers = [one["name"] for one in paths[path]["get"]["parameters"] if one["in"] == "header"]
        assert headers == ["Last-Event-ID"]


async def test_every_problem_of_a_route_is_declared_with_its_status_and_code(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        client = DocumentedClient(studio, openapi_document(TABLE))
        session_id = await studio.session()
        session = f"/api/sessions/{session_id}"
        await studio.turn(session_id, client_turn_id="one")
        await studio.events_until(session_id, "final")
        picture = {"name": "a.exe", "data": "AAAA"}
        requests: list[tuple[int, str, str, str, Any]] = [
            (404, "session_not_found", "GET", "/api/sessions/ses_x", None),
            (404, "session_not_found", "POST", "/api/sessions/ses_x/turns", {"input": "a"}),
            (404, "session_not_found", "GET", "/api/sessions/ses_x/events", None),
            (404, "session_not_found", "GET", "/api/confirms?session_id=ses_x", None),
            (404, "message_not_found", "POST", f"{session}/rewind", {"message_id": "msg_x"}),
            (404, "message_not_found", "POST", f"{session}/fork", {"message_id": "msg_x"}),
            (404, "message_not_found", "GET", f"{session}/turns?message_id=msg_x", None),
            (404, "turn_not_found", "GET", f"{session}/changes?turn_id=turn_x", None),
            (404, "call_not_found", "GET", f"{session}/changes?tool_call_id=call_x", None),
            (404, "file_not_found", "GET", f"{session}/files/none.md", None),
            (403, "file_refused", "GET", f"{session}/files/.env", None),
            (404, "attachment_not_found", "GET", f"{session}/attachments/{'0' * 64}", None),
            (404, "not_found", "GET", f"/api/sessions/%73{session_id[1:]}", None),
            (404, "confirm_not_found", "POST", "/api/confirms/cnf_x", {"approved": True, "digest": ""}),
            (404, "question_not_found", "POST", "/api/questions/qst_x", {"answer": "a"}),
            (404, "subagent_not_found", "POST", f"{session}/subagents/x/retry", {}),
            (404, "message_not_queued", "DELETE", f"{session}/queue/msg_x", None),
            (409, "client_turn_id_reused", "POST", f"{session}/turns", {"input": "b", "client_turn_id": "one"}),
            (413, "too_large", "POST", "/api/ticket", {"ticket": "t" * 2000}),
            (401, "bad_ticket", "POST", "/api/ticket", {"ticket": "t"}),
            (422, "attachment_refused", "POST", f"{session}/turns", {"input": "a", "attachments": [picture]}),
            (422, "invalid_body", "POST", f"{session}/turns", {"input": ""}),
            (422, "unknown_model", "PATCH", session, {"model": "nobody:none"}),
            (422, "unknown_tool", "POST", "/api/sessions", {"tools": ["none"]}),
            (422, "bad_workspace", "POST", "/api/sessions", {"workspace": "relative"}),
            (422, "bad_before", "GET", "/api/sessions?before=ses_x", None),
            (422, "bad_before", "GET", f"{session}/messages?before=msg_x", None),
            (422, "bad_limit", "GET", "/api/sessions?limit=0", None),
            (422, "bad_day", "GET", "/api/usage?since=today", None),
            (422, "bad_types", "GET", "/api/events?types=final,nothing", None),
            (422, "bad_cursor", "GET", f"{session}/events?until=ff-0", None),
            (422, "repeated_parameter", "GET", "/api/sessions?limit=1&limit=2", None),
            (422, "unknown_team", "POST", "/api/sessions", {"team": "nope"}),
            (422, "unknown_agent", "POST", "/api/sessions", {"agent": "nope"}),
            (422, "unknown_parameter", "GET", "/api/tools?limt=1", None),
            (422, "bad_rule", "POST", "/api/confirms/cnf_x", {"approved": True, "digest": "", "rule": {}}),
            (422, "bad_rule", "PUT", "/api/permissions", {"rules": [{"decision": "allow", "tool": "*"}]}),
            (404, "rule_not_found", "DELETE", "/api/permissions/rul_x", None),
            (422, "unknown_digest", "POST", f"{session}/trust", {"sha256": "0" * 64}),
            (422, "unknown_tool", "POST", "/api/permissions/explain", {"tool": "nope", "arguments": {}}),
        ]
        for status, code, method, url, body in requests:
            answer = await client.request(method, url, body)
            assert (url, answer.status_code, answer.json()["code"]) == (url, status, code)
        assert (await client.request("GET", "/api/tools", Authorization="Bearer no")).status_code == 401
        assert (await client.request("GET", "/api/health", Origin="http://elsewhere")).status_code == 403
        assert (await client.request("GET", "/api/health", Host="elsewhere")).status_code == 421


def test_every_problem_of_the_table_is_that_of_a_route_or_of_no_route_at_all() -> None:
    codes = {code for route in TABLE for code in possible_problems(route)}
    assert {*PROBLEMS} - codes == {"method_not_allowed", "bad_request"}
    own = {code for route in TABLE for code in (*route.problems, *find_problem_codes(route.query or RequestQuery))}
    assert own <= {*PROBLEMS}
    statuses = [kind.status for kind in PROBLEMS.values()]
    assert statuses == sorted(statuses)


def test_every_route_in_a_hint_of_a_problem_exists() -> None:
    known = {f"{route.method} {route.path}" for route in TABLE}
    named = {route for hint in HINTS.values() for route in re.findall(r"(?:GET|POST|PUT|PATCH) /[\w/{}.]*", hint)}
    assert (HINTS.keys() <= PROBLEMS.keys(), len(named) > 20, named - known) == (True, True, set())


async def test_the_frames_of_streams_match_their_schema(make_studio: StudioMaker) -> None:
    schema = {"$ref": "#/components/schemas/StreamFrame", "components": openapi_document(TABLE)["components"]}
    async with make_studio() as studio:
        session_id = await studio.session()
        async with studio.events(session_id, cursor="nonsense") as frames:
            seen = [await anext(frames)]
            await studio.turn(session_id)
            seen += await until(frames, "final")
            studio.server.should_exit = True
            seen += await until(frames, "server_closing")
    assert [frame.type for frame in seen if frame.id is None] == ["reset", "server_closing"]
    for frame in seen:
        Draft202012Validator(schema).validate(frame.data)


def test_operations_and_schemas_have_the_names_that_generated_clients_use() -> None:
    document = openapi_document(TABLE)
    operations = {
        f"{method.upper()} {path}": operation["operationId"]
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    assert operations == OPERATIONS
    assert len(set(operations.values())) == len(operations)
    assert sorted(document["components"]["schemas"].keys() - envelope_schema()["$defs"].keys()) == SCHEMAS


def test_no_field_of_a_body_has_a_default_which_generated_clients_would_require() -> None:
    schemas = openapi_document(TABLE)["components"]["schemas"]
    bodies = {route.body.__name__ for route in TABLE if route.body is not None}
    defaults = {name for name in (*bodies, "AttachmentBody") if '"default":' in json.dumps(schemas[name]["properties"])}
    assert (len(bodies) > 10, defaults) == (True, set())
    assert schemas["StartTurnBody"]["required"] == ["input"]


def test_the_limits_of_a_number_have_the_names_of_json_schema() -> None:
    document = json.dumps(openapi_document(TABLE))
    assert [name for name in ("ge", "gt", "le", "lt", "multiple_of") if f'"{name}":' in document] == []
    assert document.count('"minimum":') > 5


def test_every_field_of_an_event_a_body_and_a_response_is_described() -> None:
    schemas = openapi_document(TABLE)["components"]["schemas"]
    fields = [
        (f"{name}.{key}", field.get("description"))
        for name, schema in schemas.items()
        for key, field in schema.get("properties", {}).items()
        if not (key == "type" and "const" in field) and not (key == "data" and name.endswith("Event"))
    ]
    assert (len(fields) > 500, [name for name, text in fields if not text]) == (True, [])


def test_no_two_schemas_of_the_document_have_the_same_name() -> None:
    known: dict[str, Any] = dict.fromkeys(("Problem", "Event", "StreamFrame"), "ours")
    for name, schema in named_schemas():
        definitions = {**schema.get("$defs", {}), name: {key: schema[key] for key in schema.keys() - {"$defs"}}}
        for inner, definition in definitions.items():
            assert known.setdefault(inner, definition) == definition, inner


def named_schemas() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the schemas of the document, each with those that it refers to."""
    yield "of all events", envelope_schema()
    for route in TABLE:
        if route.body is not None:
            yield route.body.__name__, route.body.model_json_schema()
        for answer in route.responses:
            if is_typeddict(answer.schema):
                yield answer.schema.__name__, TypeAdapter(answer.schema).json_schema(mode="serialization")
