"""A wrapper that gives tools to a model without function calling: they are told, called and answered in its text.

Whoever reads the model sees the same deltas as from one with function calling. A reply that ends inside a call is
marked as cut by its length, so that nothing of it runs.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import cast

from agenticx.errors import InvalidArguments
from agenticx.llms._attachments import content_parts
from agenticx.llms._identifiers import ToolNames
from agenticx.llms._weight import history_size
from agenticx.llms.arguments import parse_arguments
from agenticx.llms.base import (
    Delta,
    Finished,
    ModelRequest,
    OutputSchema,
    TextDelta,
    ToolCallDelta,
    ToolSchema,
    takes_output_schema,
)
from agenticx.llms.wrapping import Wrapper, sorted_anew
from agenticx.llms.xml_format import (
    NAMES,
    XmlCallParser,
    render_call,
    render_result,
    render_tools,
    without_calls,
    without_tags,
)
from agenticx.logs import get_logger
from agenticx.messages import AssistantMessage, Message, SystemMessage, ToolCall, ToolMessage, UserMessage
from agenticx.settings import prompt
from agenticx.threads import run_sized

__all__ = ["XmlToolModel", "in_xml"]

_log = get_logger(__name__)


class XmlToolModel(Wrapper):
    """`model`, called with XML-like text instead of a provider's function calling."""

    def takes_output_schema(self, output: OutputSchema, *, with_tools: bool) -> bool:
        """Only without tools: calls are text, which a schema for the text would forbid."""
        return not with_tools and takes_output_schema(self._model, output, with_tools=False)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        """The inner model's batches, with the calls in its text as tool-call deltas."""
        names = ToolNames(NAMES, request)
        parser = XmlCallParser([replace(tool, name=names.sent_name(tool.name)) for tool in request.tools])
        originals = names.originals
        last: list[Delta] = []  # what is shown before the error of a reply that is given up

        def sort(batch: Sequence[Delta]) -> list[Delta]:
            deltas = [_named(delta, originals) for delta in self._sorted(parser, batch)]
            if parser.error is not None:
                last.extend(deltas)
                raise parser.error
            return deltas

        told = await run_sized(in_xml, request, size=history_size(request.messages), name="agx in_xml")
        batches = sorted_anew(self._model, told, sort, lambda: [*last, *parser.end()])
        try:
            async for batch in batches:
                yield batch
        finally:
            await cast("AsyncGenerator[Sequence[Delta]]", batches).aclose()

    def _sorted(self, parser: XmlCallParser, batch: Sequence[Delta]) -> list[Delta]:
        deltas: list[Delta] = []
        for delta in batch:
            if parser.error is not None:
                break
            match delta:
                case TextDelta():
                    deltas.extend(parser.feed(delta.text))
                case ToolCallDelta():
                    _log.warning("the model made a call of a kind it was not offered; it is left out", model=self.name)
                case Finished():
                    deltas.extend(parser.end())
                    deltas.append(_finished(parser, delta))
                case _:
                    deltas.append(delta)
        return deltas


def _named(delta: Delta, originals: Mapping[str, str]) -> Delta:
    """Return the piece of a call under our name of its tool."""
    ours = originals.get(delta.name) if isinstance(delta, ToolCallDelta) else None
    return delta if ours is None else replace(cast("ToolCallDelta", delta), name=ours)


def _finished(parser: XmlCallParser, finished: Finished) -> Finished:
    if parser.unfinished:
        return replace(finished, stop="length")
    return replace(finished, stop="tool_calls") if parser.calls and finished.stop == "end" else finished


def in_xml(request: ModelRequest) -> ModelRequest:
    """The same request without tools: they stand in the system prompt, calls and results in the messages."""
    names = ToolNames(NAMES, request)
    tools = [replace(tool, name=names.sent_name(tool.name)) for tool in request.tools]
    schemas = {tool.name: tool for tool in tools}
    messages: list[Message] = []
    for is_result, rows in groupby(request.messages, key=lambda row: isinstance(row, ToolMessage)):
        if is_result:
            messages.append(_results(cast("list[ToolMessage]", list(rows)), names))
        else:
            messages.extend(_told(row, schemas, names) for row in rows)
    if request.tools and request.tool_choice != "none":
        messages = _with_tools(messages, tools)
    return replace(request, messages=messages, tools=(), tool_choice="auto")


def _with_tools(messages: list[Message], tools: Sequence[ToolSchema]) -> list[Message]:
    text = prompt("xml_tools").replace("{tools}", without_tags(render_tools(tools)))
    first = messages[0] if messages else None
    if isinstance(first, SystemMessage):
        return [first.model_copy(update={"content": f"{first.content}\n\n{text}"}), *messages[1:]]
    return [SystemMessage(content=text, message_id="msg_xml_tools"), *messages]


def _told(message: Message, schemas: Mapping[str, ToolSchema], names: ToolNames) -> Message:
    """The message in text alone, in which nothing looks like a call or a result but what is one."""
    if not isinstance(message, AssistantMessage):
        message = _with_texts_written_out(message) if isinstance(message, UserMessage) else message
        content = without_tags(message.content)
        return message if content == message.content else message.model_copy(update={"content": content})
    said = without_calls(message.content)
    named = [call.model_copy(update={"name": names.sent_name(call.name)}) for call in message.tool_calls]
    calls = [_render(call, schemas.get(call.name)) for call in named]
    if not calls and said == message.content:
        return message
    text = "\n".join([said, *calls] if said else calls)
    return message.model_copy(update={"content": text, "tool_calls": (), "provider_state": None})


def _with_texts_written_out(message: UserMessage) -> UserMessage:
    """The message with its text files in its text, where they are looked through like the rest of it."""
    files = [file.media_type for file in message.attachments if file.kind != "text"]
    if len(files) == len(message.attachments):
        return message
    pieces = content_parts(message, files)
    text = "\n\n".join(piece for piece in pieces if isinstance(piece, str))
    kept = tuple(piece for piece in pieces if not isinstance(piece, str))
    return message.model_copy(update={"content": text, "attachments": kept})


def _render(call: ToolCall, schema: ToolSchema | None) -> str:
    try:
        return render_call(call.name, parse_arguments(call.arguments), schema)
    except InvalidArguments:  # what the model wrote then, it reads again
        return f"<function={call.name}>\n{without_tags(call.arguments)}\n</function>"


def _results(rows: Sequence[ToolMessage], names: ToolNames) -> UserMessage:
    texts = [render_result(names.sent_name(row.name), row.content) for row in rows]
    return UserMessage(content="\n".join(texts), message_id=f"{rows[0].message_id}_xml", injected=True)
