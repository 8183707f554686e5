"""The `agx permissions explain` action: the verdict on a call, with the reasons for it."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Sequence

from agenticx.cli.commands.described_calls import describe_call
from agenticx.cli.exit_codes import DONE
from agenticx.cli.options import enabled_tools, settings_for, workspace_of
from agenticx.errors import InvalidArguments, ToolError
from agenticx.llms.arguments import parse_arguments
from agenticx.permissions.explain import explain as explain_verdict
from agenticx.permissions.rule_stores import open_rules
from agenticx.permissions.verdict import Verdict, decide
from agenticx.sessions.store.factory import using_shared_place
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
        raise InvalidArguments(f"unknown tool {arguments.tool!r}; known tools: {', '.join(sorted(tools))}")
    with using_shared_place(settings, only_reads=True) as shared:
        rules = open_rules(settings.home, shared).list()
    try:
        call = describe_call(tool, parse_arguments(arguments.arguments), workspace, settings)
    except InvalidArguments:  # which is a ToolError
        raise
    except ToolError as exc:
        _print(Verdict("deny", "tool"), [str(exc)], as_json=arguments.json)
        return DONE
    verdict = decide(settings.permission_mode, call, rules=rules)
    _print(verdict, explain_verdict(call, verdict, rules), as_json=arguments.json)
    return DONE


def _print(verdict: Verdict, reasons: Sequence[str], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"decision": verdict.decision, "rule": verdict.rule_json(), "reasons": list(reasons)}))
        return
    rule = ", ".join(visible_line(str(rule)) for rule in verdict.rules) or verdict.decided_by
    print(
        f"{verdict.decision} (rule: {rule})", *(visible_line(text, _MAX_SENTENCE_CHARS) for text in reasons), sep="\n  "
    )
