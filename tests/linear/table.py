"""The table of all pure functions that process model output, and the reasons for exceptions."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import is_dataclass
from importlib import import_module

from pydantic import BaseModel
from typing_extensions import is_protocol

from tests.linear.case import name_of
from tests.linear.llm_cases import LLM_CASES
from tests.linear.result_cases import RESULT_CASES
from tests.linear.runtime_cases import RUNTIME_CASES
from tests.linear.session_cases import SESSION_CASES
from tests.linear.tool_cases import TOOL_CASES
from tests.linear.wire_cases import WIRE_CASES

__all__ = ["CASES", "EXEMPT", "MODULES", "unlisted"]

CASES = [*WIRE_CASES, *LLM_CASES, *RUNTIME_CASES, *RESULT_CASES, *TOOL_CASES, *SESSION_CASES]

MODULES = [
    "messages",
    "strict_json",
    "llms._sse",
    "llms._lines",
    "llms._json_events",
    "llms._bodies",
    "llms._values",
    "llms._weight",
    "llms._identifiers",
    "llms._failures",
    "llms.arguments",
    "llms.think_blocks",
    "llms.xml_format",
    "llms.xml_prose",
    "llms.xml_tools",
    "llms.openai_chat._calls",
    "llms.openai_chat._parts",
    "llms.openai_chat._reply",
    "llms.openai_chat._request",
    "llms.openai_responses._reply",
    "llms.openai_responses._request",
    "llms.anthropic._reply",
    "llms.anthropic._request",
    "llms.gemini._reply",
    "llms.gemini._request",
    "llms.ollama._reply",
    "llms.ollama._request",
    "runtime.sanitize",
    "runtime.compactor",
    "runtime.inline_calls",
    "runtime.loop_detector",
    "runtime.output",
    "runtime.question",
    "runtime.reply_writer",
    "runtime.call_reading",
    "runtime.turn_log",
    "runtime.result_text",
    "runtime.row_text",
    "runtime.canonical_json",
    "runtime.polling",
    "tools.looking",
    "tools.fitting",
    "logs",
    "runtime.tool_output",
    "tools.visible",
    "tools.lines",
    "tools.lookups",
    "tools.shell_braces",
    "tools.shell_globs",
    "tools.shell_quoting",
    "tools.shell_words",
    "tools.simple_commands",
    "tools.protected",
    "tools.diffs",
    "tools.output",
    "tools.patterns",
    "tools.ignore",
    "tools.schema",
    "tools.builtin.edits",
    "tools.builtin.shell",
    "sessions.titles",
    "sessions.search",
    "sessions.transcript",
    "sessions.exporting",
    "sessions.batches",
    "sessions.sqlite._packs",
    "cli.narrate",
    "cli.render",
]
"""The modules in which every public function has a row or a stated exemption."""

EXEMPT: dict[str, str] = {
    f"agenticx.{name}": reason
    for reason, names in {
        "the rows of their wires go through it": """
            llms._values.arguments_json llms._values.items_in llms._values.fields_in llms._values.text_in
            llms._values.count_in llms._values.cost_in llms._json_events.malformed_reply
            llms._failures.blocked_prompt_error llms.openai_chat._parts.ReasoningDetails
            llms.openai_chat._parts.parse_usage
            llms.openai_responses._request.input_items llms.gemini._request.contents llms.ollama._request.message_rows
            llms.openai_responses._request.sent_tool_names llms.anthropic._request.sent_tool_names
            llms.gemini._request.sent_tool_names llms.ollama._request.sent_tool_names
        """,
        "other rows go through it": """
            runtime.compactor.is_summary tools.protected.protection_reason
            llms._failures.hide_secrets llms.think_blocks.ThinkBlockModel llms.xml_tools.XmlToolModel
            runtime.output.OutputType runtime.question.describe_size tools.output.ProgressEmitter
            sessions.sqlite._packs.decode_event sessions.sqlite._packs.segment_lines
            sessions.sqlite._packs.line_position
            sessions.sqlite._packs.envelope_bytes sessions.transcript.tool_call_ids
            sessions.transcript.searchable_path_texts
            cli.render.JsonLinesOutput cli.render.TerminalOutput logs.hidden_members
        """,
        "it reads what the application declares, or names": """
            logs.bound_ids logs.configure_logging logs.get_logger messages.new_id
            llms._failures.status_error llms.xml_format.render_tools
            llms.openai_responses._request.tool_rows llms.anthropic._request.accepted_output_schema
            llms.anthropic._request.tool_name llms.gemini._request.function_declarations
            llms.gemini._request.tool_names llms.ollama._request.tool_rows tools.protected.is_within
            tools.protected.changes_bare_repository cli.render.output_for
        """,
        "it carries events and looks at none of their texts": "sessions.batches.EventBatcher",
    }.items()
    for name in names.split()
}
"""The reasons why these have no row of their own."""


def unlisted() -> Iterator[str]:
    """Yield the public functions and classes that have neither a row nor an exemption."""
    known = {name_of(function) for case in CASES for function in (case.of, *case.also)} | EXEMPT.keys()
    for module in MODULES:
        found = import_module(f"agenticx.{module}")
        for name in found.__all__:
            if f"agenticx.{module}.{name}" not in known and _is_reader(getattr(found, name), found.__name__):
                yield f"agenticx.{module}.{name}"


def _is_reader(value: object, module: str) -> bool:
    """Return whether it is a function or class of that module that does more than hold fields or wait."""
    if not (inspect.isfunction(value) or inspect.isclass(value)) or value.__module__ != module:
        return False
    if inspect.isfunction(value):
        return not inspect.iscoroutinefunction(value)
    holds_fields = issubclass(value, BaseModel | BaseException | bytes | tuple)
    return not (holds_fields or is_protocol(value) or (is_dataclass(value) and value.__name__ not in _WITH_METHODS))


_WITH_METHODS = ("ContextCompactor", "IdentifierRule", "CallSchema", "LinearPattern", "IgnoreRules", "SearchQuery")
"""Dataclasses whose methods read texts."""
