"""The `agx model call` command: one model call without a session, a store or a lock."""

from __future__ import annotations

import asyncio
import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Any

from agenticx.cli.action_parser import ActionParser
from agenticx.cli.commands.message_input import add_attach_option, load_attachments, read_prompt
from agenticx.cli.exit_codes import DONE, FAILED, USAGE
from agenticx.clocks import Clock, SystemClock
from agenticx.errors import AttachmentRefused, ModelError, SettingsError
from agenticx.llms.base import ChatModel, Delta, ModelRequest, Reply, ReplyBuilder, UsageDelta
from agenticx.llms.providers.resolve import find_model_facts, is_offline, resolve_wire, served_model_name
from agenticx.llms.wrappers.capabilities import CapabilityModel
from agenticx.messages import Message, SystemMessage, ToolCall, UserMessage
from agenticx.runtime.deadlines import ModelClocks
from agenticx.runtime.model_call import ModelReader
from agenticx.settings import load_settings
from agenticx.strict_json import read_json
from agenticx.tools.visible import escape_controls, visible_line

__all__ = ["configure", "parsed_arguments", "reply_to_json", "run"]

_MAX_DEPTH = 100  # of arguments, the same as in turns

_EPILOG = """\
MODEL is provider:name, such as openai-chat:gpt-4.1-mini or ollama:qwen3, or demo. A server on this machine
(--base-url http://127.0.0.1:…) needs no key.

examples:
  agx model call openai-chat:gpt-4.1-mini "Say hello"
  agx model call openai-chat:x "Say hello" --base-url http://127.0.0.1:8080/v1 --json
  echo "Say hello" | agx model call demo -
  agx model call gemini:gemini-2.5-flash "What is this?" --attach photo.jpg --attach notes.txt

exit codes: 0 a complete reply, 1 an error (--json prints what was received before it), 2 usage"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments and help texts of `agx model` to its parser."""
    actions = parser.add_subparsers(parser_class=ActionParser, dest="action", required=True, metavar="call")
    call = actions.add_parser(
        "call",
        help="call MODEL once and print its reply",
        description="Call a model once and print its reply.",
        epilog=_EPILOG,
        formatter_class=parser.formatter_class,
        allow_abbrev=False,
    )
    call.add_argument("model", metavar="MODEL", help="provider:name or demo; with --base-url also the name alone")
    call.add_argument("prompt", help="the message; - reads it from stdin")
    call.add_argument("--base-url", metavar="U", help="the model server's address, such as http://127.0.0.1:8080/v1")
    call.add_argument("--system", metavar="S", help="a system message, sent first")
    add_attach_option(call)
    call.add_argument("--json", action="store_true", help="print the whole reply as one line of JSON")


def run(arguments: Namespace) -> int:
    """Run `agx model` and return its exit code."""
    clocks = ModelClocks.from_settings(load_settings())
    try:
        attached = load_attachments(arguments.attach)
    except AttachmentRefused as exc:
        print(f"agx model call: {visible_line(str(exc))}", file=sys.stderr)
        return USAGE
    if is_offline(arguments.model) and arguments.base_url is not None:
        raise SettingsError(f"--base-url cannot be used with {arguments.model}, which is offline; name another model")
    name = arguments.model if arguments.base_url is None else served_model_name(arguments.model)
    model = CapabilityModel(resolve_wire(name, base_url=arguments.base_url), find_model_facts(name))
    prompt = read_prompt(arguments.prompt)
    messages: list[Message] = [SystemMessage(content=arguments.system)] if arguments.system else []
    messages.append(UserMessage(content=prompt, attachments=attached))
    request = ModelRequest(messages=messages, timeout=clocks.request_timeout)
    reply, error = asyncio.run(_call(model, request, clocks))
    problem = _find_problem(reply, error)
    if arguments.json:
        print(json.dumps(reply_to_json(reply, problem), allow_nan=False))
    else:
        _print_reply(reply, problem)
    return DONE if problem is None else FAILED


async def _call(model: ChatModel, request: ModelRequest, clocks: ModelClocks) -> tuple[Reply, ModelError | None]:
    """Return the reply received, and the error that ended it, if any; the time limits of a turn apply to the call."""
    reader = _ReplyReader(SystemClock(), clocks)
    try:
        await reader.read(model, request, reader.add)
    except ModelError as exc:
        return reader.builder.reply(), exc
    return reader.builder.reply(), None


class _ReplyReader(ModelReader):
    """A reader that keeps the reply, and prints a notice if the model is slow."""

    def __init__(self, clock: Clock, clocks: ModelClocks) -> None:
        super().__init__(clock, clocks)
        self.builder = ReplyBuilder()

    def add(self, deltas: Sequence[Delta]) -> bool:
        """Add the deltas to the reply; return whether any of them was more than token counts."""
        for delta in deltas:
            self.builder.add(delta)
        return not all(isinstance(delta, UsageDelta) for delta in deltas)

    def _report_slow(self, total: float, silent: float | None) -> None:
        print(f"agx model call: waiting for the model ({total:.0f} s)", file=sys.stderr)


def _find_problem(reply: Reply, error: ModelError | None) -> dict[str, str] | None:
    if error is not None:
        return {"type": error.provider_type or error.code, "message": str(error)}
    if not reply.complete:
        return {"type": "provider.truncated", "message": "the stream ended without its end marker"}
    return None


def reply_to_json(reply: Reply, problem: dict[str, str] | None) -> dict[str, Any]:
    """Return the reply as the JSON object of `--json`, including what was received before an error."""
    usage = reply.usage
    return {
        "text": reply.text,
        "reasoning": reply.reasoning,
        "tool_calls": [
            {"id": call.id, "name": call.name, "arguments": parsed_arguments(call)} for call in reply.tool_calls
        ],
        "finish_reason": reply.finish_reason,
        "usage": {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "cached_tokens": usage.cached_tokens,
            "reasoning_tokens": usage.reasoning_tokens,
        },
        "complete": reply.complete,
        "error": problem,
    }


def parsed_arguments(call: ToolCall) -> Any:
    """Return a call's arguments as their JSON value, or as text if they are not JSON or a freeform tool's input."""
    if not call.arguments.strip():
        return {}
    try:
        return read_json(call.arguments, max_depth=_MAX_DEPTH)
    except ValueError:
        return call.arguments


def _print_reply(reply: Reply, problem: dict[str, str] | None) -> None:
    if reply.text:
        print(escape_controls(reply.text) if sys.stdout.isatty() else reply.text)
    for call in reply.tool_calls:
        print(f"→ {visible_line(call.name, 100)} {visible_line(call.arguments, 2_000)}", file=sys.stderr)
    note = None if problem is not None else _unusual_end(reply)
    if note is not None:
        print(f"agx model call: {note}", file=sys.stderr)
    if problem is not None:
        print(
            f"agx model call: {visible_line(problem['type'], 100)}: {visible_line(problem['message'], 2_000)}",
            file=sys.stderr,
        )


def _unusual_end(reply: Reply) -> str | None:
    """Return a sentence about a reply that was cut or is empty, None for any other."""
    if reply.stop == "length":
        return "the reply was cut at the output limit of the model"
    if not reply.is_whole:
        return f"the reply ended early: {visible_line(reply.finish_reason or reply.stop, 100)}"
    return None if reply.text or reply.tool_calls else "the reply is empty"
