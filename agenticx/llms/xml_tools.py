"""A wrapper that gives tools to a model without function calling: they are told, called and answered in its text.

Whoever reads the model sees the same deltas as from one with function calling. A reply that ends inside a call is
marked as cut by its length, so that nothing of it runs.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import cast

from agenticx.errors import InvalidArguments, ModelError
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
from agenticx.llms.wrapping import Wrapper
from agenticx.llms.xml_format import XmlCallParser, render_call, render_tools
from agenticx.logs import get_logger
from agenticx.messages import AssistantMessage, Message, SystemMessage, ToolCall, ToolMessage, UserMessage
from agenticx.settings import prompt

__all__ = ["XmlToolModel", "in_xml"]

_log = get_logger(__name__)


class XmlToolModel(Wrapper):
    """`model`, called with XML-like text instead of a provider's function calling."""

    def takes_output_schema(self, output: OutputSchema, *, with_tools: bool) -> bool:
        """Only without tools: calls are text, which a schema for the text would forbid."""
        return not with_tools and takes_output_schema(self._model, output, with_tools=False)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        """The inner model's batches, with the calls in its text as tool-call deltas."""
        parser = XmlCallParser(request.tools)
        source = cast("AsyncGenerator[Sequence[Delta]]", self._model.stream(in_xml(request)))
        failure: ModelError | None = None
        try:
            async for batch in source:
                if deltas := self._sorted(parser, batch):
                    yield deltas
        except ModelError as exc:
            failure = exc
        finally:
            await source.aclose()
        if rest := parser.end():  # the reply was cut, but what came of it is shown
            yield rest
        if failure is not None:
            raise failure

    def _sorted(self, parser: XmlCallParser, batch: Sequence[Delta]) -> list[Delta]:
        deltas: list[Delta] = []
        for delta in batch:
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


def _finished(parser: XmlCallParser, finished: Finished) -> Finished:
    if parser.unfinished:
        return replace(finished, stop="length")
    return replace(finished, stop="tool_calls") if parser.calls and finished.stop == "end" else finished


def in_xml(request: ModelRequest) -> ModelRequest:
    """The same request without tools: they stand in the system prompt, calls and results in the messages."""
    schemas = {tool.name: tool for tool in request.tools}
    messages: list[Message] = []
    for is_result, rows in groupby(request.messages, key=lambda row: isinstance(row, ToolMessage)):
        if is_result:
            messages.append(_results(cast("list[ToolMessage]", list(rows))))
        else:
            messages.extend(_without_calls(row, schemas) for row in rows)
    if request.tools and request.tool_choice != "none":
        messages = _with_tools(messages, request.tools)
    return replace(request, messages=messages, tools=(), tool_choice="auto")


def _with_tools(messages: list[Message], tools: Sequence[ToolSchema]) -> list[Message]:
    text = prompt("xml_tools").replace("{tools}", render_tools(tools))
    first = messages[0] if messages else None
    if isinstance(first, SystemMessage):
        return [first.model_copy(update={"content": f"{first.content}\n\n{text}"}), *messages[1:]]
    return [SystemMessage(content=text, message_id="msg_xml_tools"), *messages]


def _without_calls(message: Message, schemas: Mapping[str, ToolSchema]) -> Message:
    if not (isinstance(message, AssistantMessage) and message.tool_calls):
        return message
    calls = [_render(call, schemas.get(call.name)) for call in message.tool_calls]
    text = "\n".join([message.content, *calls] if message.content else calls)
    return message.model_copy(update={"content": text, "tool_calls": (), "provider_state": None})


def _render(call: ToolCall, schema: ToolSchema | None) -> str:
    try:
        return render_call(call.name, parse_arguments(call.arguments), schema)
    except InvalidArguments:  # what the model wrote then, it reads again
        return f"<function={call.name}>\n{call.arguments}\n</function>"


def _results(rows: Sequence[ToolMessage]) -> UserMessage:
    texts = [f"<function_result={row.name}>\n{row.content}\n</function_result>" for row in rows]
    return UserMessage(content="\n".join(texts), message_id=f"{rows[0].message_id}_xml", injected=True)
