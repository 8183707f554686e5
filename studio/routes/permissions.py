"""Rules of the user over HTTP: listed, replaced, revoked, and the verdict about a call explained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, cast

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from agenticx import user_code
from agenticx.errors import InvalidArguments, UserCodeError
from agenticx.knowledge.tools import session_note_tools
from agenticx.permissions.advice import advise_all, refuse_without_effect
from agenticx.permissions.rule_stores import RuleStore
from agenticx.permissions.rules import Rule, RuleOrigin, RuleScope, rule_from
from agenticx.permissions.trusted_files import read_instructions
from agenticx.permissions.verdict import Decision, PermissionMode, Verdict
from agenticx.runtime.calls.explaining import explain_call
from agenticx.sandbox.options import sandbox_options
from agenticx.threads import run_in_thread
from agenticx.tools.base import Tool
from agenticx.tools.context import ToolContext
from studio.http.bodies import LARGE_BODY_BYTES, RequestBody, read_body
from studio.http.problems import Problem
from studio.http.queries import RequestQuery, read_query
from studio.routes.sessions import workspace_folder
from studio.services import Services, services

__all__ = [
    "ExplainBody",
    "ExplainResponse",
    "PermissionsQuery",
    "PermissionsResponse",
    "ReplaceRulesBody",
    "RuleItem",
    "delete",
    "explain",
    "index",
    "read_rules",
    "replace_all",
    "tools_by_name",
]

_MAX_RULES = 1000  # the most entries that a list in a body may have


class PermissionsQuery(RequestQuery):
    """The query of the list of rules."""

    session_id: str | None = Field(
        None, description="Only rules that hold in this session, with those that were given for it."
    )
    workspace: str | None = Field(None, description="Only rules that hold in this folder: an absolute path.")


class ReplaceRulesBody(RequestBody):
    """All rules of scope workspace and user: each a `RuleItem`, whose `id` and `created_at` may be missing.

    A new one that allows what no rule can allow is refused.
    """

    max_bytes = LARGE_BODY_BYTES

    rules: list[dict[str, Any]] = Field(max_length=_MAX_RULES, description="The rules, each as a `RuleItem`.")


class ExplainBody(RequestBody):
    """A call as an agent would make it, in a session or in a folder, by default in that of new sessions."""

    max_bytes = LARGE_BODY_BYTES

    tool: str = Field(max_length=200, description="The name of the tool.")
    arguments: dict[str, Any] = Field(description="The arguments of the call.")
    workspace: str | None = Field(
        None, max_length=4096, description="The workspace, by default that of the session or of new ones."
    )
    permission_mode: PermissionMode | None = Field(
        None, description="The permission mode, by default that of the session or of new ones."
    )
    session_id: str | None = Field(None, max_length=200, description="The session whose rules apply too.")


class RuleItem(TypedDict):
    """A rule of the user; one of scope workspace has the absolute path of its `workspace`.

    It is about calls of the `tool`, `edit` for all that change files, `*` for all tools. `path` is a glob relative to
    the workspace; `command` are the first words of a shell command, or with `exact` all of it; with `exact` and a
    `digest` it is about one call of another tool, with these `arguments`. `network` is true, or the hosts that a
    command may reach. Without an `origin` it was written in the file, or given for the session.
    """

    id: NotRequired[Annotated[str, Field(description="The id of the rule; without one it gets a new one.")]]
    decision: Annotated[Decision, Field(description="What the rule does with a call.")]
    tool: Annotated[str, Field(description="The name of a tool, `edit`, or `*`.")]
    path: NotRequired[Annotated[str, Field(description="A glob, relative to the workspace.")]]
    command: NotRequired[Annotated[str, Field(description="The first words of a command.")]]
    host: NotRequired[Annotated[str, Field(description="The host of a URL.")]]
    server: NotRequired[Annotated[str, Field(description="The name of an MCP server.")]]
    network: NotRequired[
        Annotated[Literal[True] | list[str], Field(description="The network access of a command: true, or the hosts.")]
    ]
    arguments: NotRequired[
        Annotated[dict[str, Any], Field(description="The arguments of the one call that the rule is about.")]
    ]
    digest: NotRequired[Annotated[str, Field(description="The digest of these arguments.")]]
    exact: NotRequired[Annotated[Literal[True], Field(description="true: the rule is about one command or call.")]]
    scope: Annotated[RuleScope, Field(description="Where the rule holds.")]
    workspace: NotRequired[Annotated[str, Field(description="The absolute path of the workspace in which it holds.")]]
    origin: NotRequired[Annotated[RuleOrigin, Field(description="How the rule was made.")]]
    created_at: NotRequired[Annotated[str, Field(description="The time at which it was made, in RFC 3339, UTC.")]]


class PermissionsResponse(TypedDict):
    """Rules, oldest first, those of the session last; `mode` is that of the session, else that of new ones.

    `warnings` are, by the id of a rule, clauses about one that may not mean what it seems to.
    """

    mode: Annotated[PermissionMode, Field(description="The permission mode.")]
    rules: Annotated[list[RuleItem], Field(description="The rules.")]
    warnings: Annotated[dict[str, list[str]], Field(description="Clauses about rules, by their ids.")]


class ExplainResponse(TypedDict):
    """The verdict; `rule` is the rule that decided, a list of several, or the name of a built-in one."""

    decision: Annotated[Decision, Field(description="What would happen with the call.")]
    rule: Annotated[
        dict[str, Any] | list[dict[str, Any]] | str,
        Field(description="The rule or rules that decide, or the name of a built-in one."),
    ]
    reasons: Annotated[list[str], Field(description="The reasons, as sentences.")]


async def index(request: Request) -> Response:
    """List the rules of the user; with a session or a folder those that hold there."""
    studio, query = services(request), read_query(request, PermissionsQuery)
    mode, folder, own = studio.settings.permission_mode, None, tuple[Rule, ...]()
    if query.session_id is not None:
        session = await studio.store.catalog.get(query.session_id)
        mode, folder = session.permission_mode, Path(session.workspace)
        own = await studio.hub.session_rules(query.session_id)
    if query.workspace is not None:
        folder = await run_in_thread(workspace_folder, studio, query.workspace, name="agx workspace")
    stored = await run_in_thread(_store(studio).list, name="agx rules")
    held = [rule for rule in stored if folder is None or rule.holds_in(folder)]
    return await _response(studio, mode, [*held, *own])


async def replace_all(request: Request) -> Response:
    """Replace all rules of scope workspace and user; those of sessions stay."""
    studio, body = services(request), await read_body(request, ReplaceRulesBody)
    store, given = _store(studio), read_rules(body.rules, "rules")
    try:
        stored = await run_in_thread(_replace, store, given, name="agx rules")
    except InvalidArguments as exc:
        raise Problem("bad_rule", f"{exc}.", field="rules") from exc
    return await _response(studio, studio.settings.permission_mode, stored)


def _replace(store: RuleStore, given: Sequence[Rule]) -> Sequence[Rule]:
    """Store the rules and return them; raise `Problem` for a new one that allows what no rule can allow."""
    known, rules = {rule.id for rule in store.list()}, list[Rule]()
    for number, rule in enumerate(given):
        if rule.id in known:
            rules.append(rule)
            continue
        try:
            refuse_without_effect(rule)
        except InvalidArguments as exc:
            field = f"rules.{number}"
            raise Problem("bad_rule", f"{field!r}: {exc}.", field=field) from exc
        rules.append(rule.model_copy(update={"origin": "http"}))
    return store.replace(rules)


async def delete(request: Request) -> Response:
    """Revoke a rule, also one of a session; the next call, and those that wait, are decided without it."""
    rule = await services(request).hub.remove_rule(request.path_params["rule_id"])
    return JSONResponse(_item(rule))


async def explain(request: Request) -> Response:
    """Explain the verdict about a call: what decides it, and why. The tool looks at the call; nothing runs."""
    studio, body = services(request), await read_body(request, ExplainBody)
    tools = tools_by_name(studio)
    if (tool := tools.get(body.tool)) is None:
        sentence = f"Unknown tool {body.tool!r}; known tools: {', '.join(sorted(tools))}."
        raise Problem("unknown_tool", sentence, field="tool")
    mode, folder, own = body.permission_mode or studio.settings.permission_mode, body.workspace, tuple[Rule, ...]()
    sources = tuple[str, ...]()
    if body.session_id is not None:
        session = await studio.store.catalog.get(body.session_id)
        mode, folder = body.permission_mode or session.permission_mode, folder or session.workspace
        own = await studio.hub.session_rules(body.session_id)
        sources = await studio.hub.untrusted_sources(body.session_id)
    workspace = await run_in_thread(workspace_folder, studio, folder, name="agx workspace")
    rules = [*await run_in_thread(_store(studio).list, name="agx rules"), *own]
    settings, trust = studio.settings, studio.hub.trust
    read = partial(read_instructions, workspace, settings.private_paths, trust)
    instructions = await run_in_thread(read, name="agx trusted files")
    context = ToolContext(
        workspace=workspace, protected_roots=settings.private_paths, sandbox=sandbox_options(settings)
    )
    what, limit = f"the assessment of tool {body.tool!r}", studio.clock.real(settings.tool_timeout_seconds)
    try:
        verdict: Verdict = await user_code.call(
            explain_call, tool, body.arguments, context, mode, rules, instructions, sources, what=what, limit=limit
        )
    except InvalidArguments as exc:
        raise Problem("invalid_body", f"'arguments': {exc}.", field="arguments") from exc
    except UserCodeError as exc:  # for which such a call is refused
        verdict = Verdict("deny", "tool", (f"{exc}.",))
    row = ExplainResponse(decision=verdict.decision, rule=verdict.rule_json(), reasons=list(verdict.reasons))
    return JSONResponse(row)


def read_rules(rules: Sequence[Mapping[str, Any]], field: str) -> tuple[Rule, ...]:
    """Return the rules of a body; raise `Problem` for the first that is wrong."""
    read = list[Rule]()
    for number, fields in enumerate(rules):
        try:
            read.append(rule_from(fields))
        except InvalidArguments as exc:
            place = field if field == "rule" else f"{field}.{number}"
            raise Problem("bad_rule", f"{place!r}: {exc}.", field=place) from exc
    return tuple(read)


def _store(studio: Services) -> RuleStore:
    store = studio.hub.rules
    assert store is not None  # `make_hub` gives it one
    return store


def tools_by_name(studio: Services) -> Mapping[str, Tool]:
    """Return the tools of sessions, with those for notes while there is a vault."""
    return {tool.schema.name: tool for tool in studio.notes.with_tools(studio.toolbox)}


async def _response(studio: Services, mode: PermissionMode, rules: Sequence[Rule]) -> Response:
    tools = {*tools_by_name(studio), *(tool.schema.name for tool in session_note_tools())}
    advice = await run_in_thread(advise_all, rules, tools, name="agx rules")
    warnings = {rule_id: list(clauses) for rule_id, clauses in advice.items()}
    return JSONResponse(PermissionsResponse(mode=mode, rules=[_item(rule) for rule in rules], warnings=warnings))


def _item(rule: Rule) -> RuleItem:
    return cast("RuleItem", rule.to_json())
