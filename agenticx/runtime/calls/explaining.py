"""The verdict about a call that is not made, for a person who wants to know what would be asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from agenticx.errors import InvalidArguments, ToolError
from agenticx.permissions.explain import explain, explain_decider
from agenticx.permissions.rules import Call, Rule
from agenticx.permissions.trusted_files import Instructions
from agenticx.permissions.verdict import PermissionMode, Verdict, decide
from agenticx.runtime.calls.assessing import bind_call
from agenticx.tools.assessments import checked_assessment
from agenticx.tools.base import Tool
from agenticx.tools.context import ToolContext
from agenticx.tools.critical_folders import assess_deletion

__all__ = ["describe_call", "explain_call"]


def explain_call(
    tool: Tool,
    arguments: Mapping[str, Any],
    context: ToolContext,
    mode: PermissionMode,
    rules: Sequence[Rule] = (),
    instructions: Instructions | None = None,
    sources: Sequence[str] = (),
) -> Verdict:
    """Return the verdict of a session in that mode about a call, without running it; the tool assesses it.

    Its reasons also say what each part of a command is, and what a yes could cover (`permissions.explain`). A call that
    the tool itself refuses is denied, decided by "tool". Texts of others are the `instructions` that are not
    trusted, and the `sources` of a conversation. It blocks. Raises `InvalidArguments` for arguments that the tool does
    not take.
    """
    try:
        call = describe_call(tool, arguments, context)
    except InvalidArguments:
        raise
    except ToolError as exc:
        refused = Verdict("deny", "tool", (f"{exc}.",))
        return replace(refused, reasons=(*refused.reasons, *explain_decider(refused)))
    files = () if instructions is None else instructions.untrusted()
    verdict = decide(mode, call, rules=rules, sources=sources, untrusted_files=files)
    return replace(verdict, reasons=tuple(explain(call, verdict, rules)))


def describe_call(tool: Tool, arguments: Mapping[str, Any], context: ToolContext) -> Call:
    """Return a call as rules see it; the tool assesses it, nothing runs, and it blocks.

    Raises `InvalidArguments`, and `ToolError` for a call that the tool itself refuses.
    """
    name, valid = tool.schema.name, tool.validate(arguments)
    assessment = checked_assessment(tool.assess(valid, context), name)
    assessment = assess_deletion(assessment, name, valid, context.workspace)
    return bind_call(Call(tool=name, assessment=assessment, arguments=valid, workspace=context.workspace.resolve()))
