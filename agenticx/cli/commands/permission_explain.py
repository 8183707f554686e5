"""The `agx permissions explain` action: the verdict on a call, with the reasons for it."""

from __future__ import annotations

import json
from argparse import Namespace

from agenticx.cli.exit_codes import DONE
from agenticx.cli.options import enabled_tools, settings_for, workspace_of
from agenticx.errors import InvalidArguments
from agenticx.llms.arguments import parse_arguments
from agenticx.permissions.rule_stores import open_rules
from agenticx.permissions.trusted_files import open_trust, read_instructions
from agenticx.runtime.calls.explaining import explain_call
from agenticx.sandbox.options import sandbox_options
from agenticx.sessions.store.factory import using_shared_state
from agenticx.tools.context import ToolContext
from agenticx.tools.visible import visible_line

__all__ = ["explain"]

_MAX_SENTENCE_CHARS = 2_000


def explain(arguments: Namespace) -> int:
    """Run `agx permissions explain` and return its exit code; raise `InvalidArguments`."""
    workspace = workspace_of(arguments)
    settings = settings_for(arguments, workspace)
    tools = {tool.schema.name: tool for tool in enabled_tools(settings)}
    tool = tools.get(arguments.tool)
    if tool is None:
        hint = "; those of servers and applications are known only where they run" if "__" in arguments.tool else ""
        raise InvalidArguments(f"unknown tool {arguments.tool!r}; known tools: {', '.join(sorted(tools))}{hint}")
    given = parse_arguments(arguments.arguments)
    with using_shared_state(settings, only_reads=True) as shared:
        rules = open_rules(settings.home, shared).list()
        instructions = read_instructions(workspace, settings.private_paths, open_trust(settings.home, shared))
        context = ToolContext(
            workspace=workspace, protected_roots=settings.private_paths, sandbox=sandbox_options(settings)
        )
        verdict = explain_call(tool, given, context, settings.permission_mode, rules, instructions)
    if arguments.json:
        row = {"decision": verdict.decision, "rule": verdict.rule_json(), "reasons": list(verdict.reasons)}
        print(json.dumps(row))
        return DONE
    rule = verdict.decided_by
    if rule == "rule":
        rule = ", ".join(visible_line(str(one)) for one in verdict.rules)
    reasons = (visible_line(text, _MAX_SENTENCE_CHARS) for text in verdict.reasons)
    print(f"{verdict.decision} (rule: {rule})", *reasons, sep="\n  ")
    return DONE
