"""The `agx permissions explain` command: the verdict on a tool call and its rule, without running it."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import get_args

from agenticx.cli.action_parser import ActionParser
from agenticx.cli.exit_codes import DONE, USAGE
from agenticx.cli.options import enabled_tools, settings_for, workspace_of
from agenticx.errors import InvalidArguments, ToolError
from agenticx.llms.arguments import parse_arguments
from agenticx.permissions.rules import Call
from agenticx.permissions.verdict import PermissionMode, Verdict, decide
from agenticx.sandbox.options import sandbox_options
from agenticx.tools.base import Tool
from agenticx.tools.context import ToolContext
from agenticx.tools.visible import visible_line

__all__ = ["configure", "run"]

_EPILOG = """\
examples:
  agx permissions explain bash_exec '{"command": "git status"}'
  agx permissions explain file_write '{"path": "a.txt", "content": "hi"}' --permission-mode auto --json

exit codes: 0 explained, 2 usage"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments and help texts of `agx permissions` to its parser."""
    actions = parser.add_subparsers(parser_class=ActionParser, dest="action", required=True, metavar="explain")
    explain = actions.add_parser(
        "explain",
        help="explain the verdict on a call: allow, ask or deny",
        description="Explain the verdict on a call (allow, ask or deny), its rule and its reasons. Nothing runs.",
        epilog=_EPILOG,
        formatter_class=parser.formatter_class,
        allow_abbrev=False,
    )
    explain.add_argument("tool", metavar="TOOL", help="the tool's name")
    explain.add_argument("arguments", metavar="ARGS", help="its arguments, a JSON object")
    explain.add_argument("--json", action="store_true", help="print {decision, rule, reasons}")
    explain.add_argument("--cwd", metavar="D", type=Path, help="the workspace (default: the current folder)")
    explain.add_argument("--permission-mode", metavar="MODE", choices=get_args(PermissionMode))
    explain.set_defaults(max_tool_rounds=None)


def run(arguments: Namespace) -> int:
    """Run `agx permissions` and return its exit code."""
    workspace = workspace_of(arguments)
    settings = settings_for(arguments, workspace)
    tools = {tool.schema.name: tool for tool in enabled_tools(settings)}
    tool = tools.get(arguments.tool)
    if tool is None:
        return _usage_error(f"unknown tool {arguments.tool!r}; known tools: {', '.join(sorted(tools))}")
    context = ToolContext(
        workspace=workspace, protected_roots=settings.private_paths, sandbox=sandbox_options(settings)
    )
    try:
        verdict = _decide(tool, arguments.arguments, context, settings.permission_mode)
    except InvalidArguments as exc:
        return _usage_error(str(exc))
    if arguments.json:
        row = {"decision": verdict.decision, "rule": verdict.rule_json(), "reasons": list(verdict.reasons)}
        print(json.dumps(row))
    else:
        print(f"{verdict.decision} (rule: {verdict.decided_by})", *map(visible_line, verdict.reasons), sep="\n  ")
    return DONE


def _decide(tool: Tool, text: str, context: ToolContext, mode: PermissionMode) -> Verdict:
    """Return the verdict of the confirm gate; a call that the tool itself refuses is a deny."""
    arguments = tool.validate(parse_arguments(text))
    try:
        assessment = tool.assess(arguments, context)
    except ToolError as exc:
        return Verdict("deny", "tool", (str(exc),))
    call = Call(
        tool=tool.schema.name, assessment=assessment, arguments=arguments, workspace=context.workspace.resolve()
    )
    return decide(mode, call)


def _usage_error(message: str) -> int:
    print(f"agx permissions explain: {visible_line(message, 2_000)}", file=sys.stderr)
    return USAGE
