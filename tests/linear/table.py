"""The table of all pure functions that process model output, and the reasons for exceptions."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import is_dataclass
from importlib import import_module

from pydantic import BaseModel
from typing_extensions import is_protocol

from tests.linear.artifact_cases import ARTIFACT_CASES
from tests.linear.case import name_of
from tests.linear.knowledge_cases import KNOWLEDGE_CASES
from tests.linear.llm_cases import LLM_CASES
from tests.linear.result_cases import RESULT_CASES
from tests.linear.runtime_cases import RUNTIME_CASES
from tests.linear.session_cases import SESSION_CASES
from tests.linear.tool_cases import TOOL_CASES
from tests.linear.wire_cases import WIRE_CASES

__all__ = ["CASES", "EXEMPT", "MODULES", "unlisted"]

CASES = [
    *WIRE_CASES,
    *LLM_CASES,
    *RUNTIME_CASES,
    *RESULT_CASES,
    *TOOL_CASES,
    *SESSION_CASES,
    *KNOWLEDGE_CASES,
    *ARTIFACT_CASES,
]

MODULES = [
    "messages",
    "strict_json",
    "http.sse",
    "http.json_lines",
    "llms.wires.json_events",
    "llms.wires.request_body",
    "llms.call_fields",
    "llms.json_values",
    "llms.memory_estimate",
    "llms.identifiers",
    "llms.file_refusals",
    "llms.transport.errors",
    "llms.transport.overflow",
    "llms.arguments",
    "llms.growing_arguments",
    "llms.wrappers.think_blocks",
    "llms.wrappers.xml_format",
    "llms.wrappers.markdown_state",
    "llms.wrappers.xml_tools",
    "llms.wires.openai_chat._calls",
    "llms.wires.openai_chat._reply",
    "llms.wires.openai_chat._request",
    "llms.wires.openai_chat._roles",
    "llms.wires.openai_responses._reply",
    "llms.wires.openai_responses._request",
    "llms.wires.anthropic._reply",
    "llms.wires.anthropic._request",
    "llms.wires.gemini._reply",
    "llms.wires.gemini._request",
    "llms.wires.ollama._reply",
    "llms.wires.ollama._request",
    "sandbox.explain",
    "runtime.sanitizing",
    "runtime.compactor",
    "runtime.calls.inline",
    "runtime.loop_detector",
    "runtime.structured_output",
    "runtime.user_requests.request_text",
    "runtime.reply_writer",
    "runtime.calls.validation",
    "runtime.turn_log",
    "runtime.arguments_preview",
    "runtime.tool_result_text",
    "runtime.calls_as_text",
    "runtime.history_sizes",
    "runtime.summaries",
    "runtime.user_requests.confirm_digest",
    "runtime.user_requests.edited_arguments",
    "runtime.polling",
    "tools.artifacts.paths",
    "tools.artifacts.preview",
    "tools.shell.read_only_heuristic",
    "tools.coercion",
    "logs",
    "runtime.calls.result_rendering",
    "tools.visible",
    "tools.shown_names",
    "tools.text_files",
    "tools.lines",
    "tools.shell.file_system_cache",
    "tools.shell.braces",
    "tools.shell.globs",
    "tools.shell.quoting",
    "tools.shell.named_paths",
    "tools.shell.assessment",
    "tools.shell.deletion_commands",
    "tools.shell.deletions",
    "tools.shell.protected_changes",
    "tools.shell.grammar",
    "tools.shell.harmless_commands",
    "tools.shell.command_reader",
    "tools.shell.inner_commands",
    "tools.shell.path_words",
    "tools.shell.lost_moves",
    "tools.shell.git_reads",
    "tools.shell.git_revisions",
    "tools.shell.read_only_programs",
    "permissions.kinds",
    "permissions.offers",
    "permissions.explain",
    "permissions.verdict",
    "tools.protected",
    "tools.critical_folders",
    "tools.diffs",
    "tools.command_output",
    "tools.patterns",
    "tools.ignore",
    "tools.schema",
    "tools.artifacts.edits",
    "tools.artifacts.extraction",
    "tools.artifacts.placeholders",
    "tools.builtin.edits",
    "tools.builtin.shell",
    "knowledge.memory",
    "knowledge.words",
    "knowledge.vault",
    "knowledge.parsing",
    "knowledge.citations",
    "knowledge.dates",
    "core.agent_files",
    "core.prompt_modes",
    "core.reasoning",
    "sessions.store.search",
    "sessions.history.transcript",
    "sessions.history.speech_calls",
    "sessions.history.export",
    "sessions.store.segments",
    "cli.terminal.event_text",
    "cli.terminal.output",
    "cli.terminal.plain_output",
    "cli.terminal.terminal_output",
    "teams.group_chats.speaker_names",
    "teams.configured.config",
    "config_files.table",
]
"""The modules in which every public function has a row or a stated exemption."""

EXEMPT: dict[str, str] = {
    f"agenticx.{name}": reason
    for reason, names in {
        "they read paths of at most 200 characters, which `check_artifact_path` has passed": """
            tools.artifacts.paths.check_path_conflicts
        """,
        "it compares the names of modes": "permissions.verdict.stricter_mode",
        "it joins the pages of a log": "sessions.history.export.export_jsonl",
        "they make a row of values, without reading them": """
            sessions.history.speech_calls.message_row sessions.history.speech_calls.result_fields
        """,
        "the rows of their wires go through it": """
            llms.json_values.arguments_json llms.json_values.items_in llms.json_values.fields_in
            llms.json_values.text_in llms.json_values.json_string_fragment
            llms.json_values.count_in llms.json_values.first_count_in llms.json_values.cost_in
            llms.wires.json_events.malformed_reply
            llms.transport.overflow.exceeds_account_limit
            llms.file_refusals.without_refused_files llms.file_refusals.mark_refused llms.file_refusals.note_for
            llms.file_refusals.find_too_large llms.file_refusals.find_suspected
            llms.file_refusals.sent_files llms.file_refusals.with_notes
            llms.transport.errors.blocked_prompt_error
            llms.wires.openai_chat._reply.ReasoningDetails
            llms.call_fields.CallFields llms.call_fields.call_states
            llms.call_fields.fields_of_calls llms.call_fields.merge_fields
            llms.call_fields.provider_fields
            llms.wires.openai_chat._reply.parse_usage llms.wires.openai_chat._request.encode_messages
            llms.wires.openai_responses._request.input_items llms.wires.gemini._request.contents
            llms.wires.ollama._request.encode_messages
        """,
        "other rows go through it": """
            runtime.summaries.is_summary runtime.summaries.cut_middle
            runtime.summaries.current_request runtime.compactor.without_notes runtime.history_sizes.count_characters
            tools.protected.protection_reason tools.builtin.edits.assess_write
            llms.transport.errors.hide_secrets llms.wrappers.think_blocks.ThinkBlockModel
            llms.wrappers.xml_tools.XmlToolModel
            runtime.structured_output.OutputType runtime.user_requests.request_text.describe_size
            runtime.user_requests.request_text.parse_choice
            tools.command_output.ProgressEmitter tools.lines.common_start tools.lines.common_end
            sessions.store.segments.decode_event sessions.store.segments.encode_body
            sessions.store.segments.segment_lines sessions.store.segments.at_position
            sessions.store.segments.line_position sessions.store.segments.full_pages
            sessions.history.transcript.searchable_path_texts
            cli.terminal.output.JsonLinesOutput cli.terminal.plain_output.readable_json
            cli.terminal.terminal_output.TerminalOutput
            cli.terminal.output.FallbackOutput cli.terminal.output.OutputLogHandler cli.terminal.output.OutputWrapper
            logs.hidden_members
            knowledge.vault.read_note knowledge.vault.scan_vault
            cli.terminal.event_text.retry_note cli.terminal.event_text.request_payload
            cli.terminal.event_text.option_of cli.terminal.event_text.option_note
        """,
        "it reads what the application declares, or names": """
            logs.bind_ids logs.bound_ids logs.configure_logging logs.get_logger messages.new_id
            llms.transport.errors.status_error llms.wrappers.xml_format.render_tools
            llms.wires.openai_responses._request.encode_tools llms.wires.anthropic._request.accepted_output_schema
            llms.wires.anthropic._request.tool_name llms.wires.gemini._request.function_declarations
            llms.wires.gemini._request.tool_names llms.wires.request_body.encode_tools tools.protected.is_within
            llms.wires.openai_chat._request.sampling_rules llms.wires.gemini._request.sampling_rules
            tools.protected.changes_bare_repository messages.sources_of messages.files_of messages.is_from_user
            cli.terminal.output.output_for
            config_files.table.tags_of config_files.table.check_keys core.agent_files.with_model_problems
            core.agent_files.AgentFiles core.agent_files.AgentItem core.agent_files.agent_item
        """,
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
