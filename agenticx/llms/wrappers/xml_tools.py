"""A wrapper that gives tools to models without function calling, as XML-like text.

Tools are described in the system prompt, calls and results are written into the messages. The wrapper returns the same
deltas as a model with function calling. A reply that ends inside a call gets the stop reason `length`, so that none of
its calls run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import cast

from agenticx.errors import InvalidArguments
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
from agenticx.llms.identifiers import ToolNames
from agenticx.llms.memory_estimate import history_size
from agenticx.llms.message_attachments import content_parts, result_parts
from agenticx.llms.opening import OpenReply, open_reply
from agenticx.llms.wrappers.base import ModelWrapper
from agenticx.llms.wrappers.xml_format import (
    TAG_NAME_RULE,
    XmlCallParser,
    escape_calls,
    escape_tags,
    render_call,
    render_result,
    render_tools,
)
from agenticx.logs import get_logger
from agenticx.messages import AssistantMessage, Attachment, Message, SystemMessage, ToolCall, ToolMessage, UserMessage
from agenticx.settings import prompt_text
from agenticx.threads import run_sized

__all__ = ["XmlToolModel", "with_tools_in_prompt"]

_log = get_logger(__name__)


class XmlToolModel(ModelWrapper):
    """A wrapper that replaces function calling by XML-like text."""

    def takes_output_schema(self, output: OutputSchema, *, with_tools: bool) -> bool:
        """Return False with tools: calls are text, and a schema for the text would forbid them."""
        return not with_tools and takes_output_schema(self._model, output, with_tools=False)

    async def open(self, request: ModelRequest) -> OpenReply:
        """Open the inner model's reply, with the calls in its text as tool-call deltas."""
        names = ToolNames(TAG_NAME_RULE, request)
        parser = XmlCallParser([replace(tool, name=names.sent_name(tool.name)) for tool in request.tools])
        originals = names.originals
        last: list[Delta] = []  # deltas of the batch with the parser's error, returned before it is raised

        def read_calls(batch: Sequence[Delta]) -> list[Delta]:
            deltas = [_with_original_name(delta, originals) for delta in self._parse_batch(parser, batch)]
            if parser.error is not None:
                last.extend(deltas)
                raise parser.error
            return deltas

        xml_request = await run_sized(
            with_tools_in_prompt, request, size=history_size(request.messages), name="agx xml tools"
        )
        reply = await open_reply(self._model, xml_request)
        return await reply.transform(read_calls, lambda: [*last, *parser.end()])

    def _parse_batch(self, parser: XmlCallParser, batch: Sequence[Delta]) -> list[Delta]:
        deltas: list[Delta] = []
        for delta in batch:
            if parser.error is not None:
                break
            match delta:
                case TextDelta():
                    deltas.extend(parser.feed(delta.text))
                case ToolCallDelta():
                    _log.warning(
                        "the model made a call of a kind that was not offered; the call is ignored", model=self.name
                    )
                case Finished():
                    deltas.extend(parser.end())
                    deltas.append(_adjusted_end(parser, delta))
                case _:
                    deltas.append(delta)
        return deltas


def _with_original_name(delta: Delta, originals: Mapping[str, str]) -> Delta:
    """Return a tool-call delta with the original name of its tool, any other delta unchanged."""
    original = originals.get(delta.name) if isinstance(delta, ToolCallDelta) else None
    return delta if original is None else replace(cast("ToolCallDelta", delta), name=original)


def _adjusted_end(parser: XmlCallParser, finished: Finished) -> Finished:
    if parser.unfinished:
        return replace(finished, stop="length")
    return replace(finished, stop="tool_calls") if parser.calls and finished.stop == "end" else finished


def with_tools_in_prompt(request: ModelRequest) -> ModelRequest:
    """Return the request without tools: they are described in the system prompt, calls and results are text."""
    names = ToolNames(TAG_NAME_RULE, request)
    tools = [replace(tool, name=names.sent_name(tool.name)) for tool in request.tools]
    schemas = {tool.name: tool for tool in tools}
    messages: list[Message] = []
    for is_result, group in groupby(request.messages, key=lambda message: isinstance(message, ToolMessage)):
        if is_result:
            messages.append(_result_message(cast("list[ToolMessage]", list(group)), names))
        else:
            messages.extend(_as_text(message, schemas, names) for message in group)
    if request.tools and request.tool_choice != "none":
        messages = _with_tools_described(messages, tools)
    return replace(request, messages=messages, tools=(), tool_choice="auto")


def _with_tools_described(messages: list[Message], tools: Sequence[ToolSchema]) -> list[Message]:
    text = prompt_text("xml_tools").replace("{tools}", escape_tags(render_tools(tools)))
    first = messages[0] if messages else None
    if isinstance(first, SystemMessage):
        return [first.model_copy(update={"content": f"{first.content}\n\n{text}"}), *messages[1:]]
    return [SystemMessage(content=text, message_id="msg_xml_tools"), *messages]


def _as_text(message: Message, schemas: Mapping[str, ToolSchema], names: ToolNames) -> Message:
    """Return the message with its calls as text, and with everything else that looks like a call or result escaped."""
    if not isinstance(message, AssistantMessage):
        message = _with_text_files_inlined(message) if isinstance(message, UserMessage) else message
        content = escape_tags(message.content)
        return message if content == message.content else message.model_copy(update={"content": content})
    own_text = escape_calls(message.content)
    named = [call.model_copy(update={"name": names.sent_name(call.name)}) for call in message.tool_calls]
    calls = [_render_history_call(call, schemas.get(call.name)) for call in named]
    if not calls and own_text == message.content:
        return message
    text = "\n".join([own_text, *calls] if own_text else calls)
    return message.model_copy(update={"content": text, "tool_calls": (), "provider_state": None})


def _with_text_files_inlined(message: UserMessage) -> UserMessage:
    """Return the message with its text files inlined in its text, where their tags are escaped as well."""
    files = [file.media_type for file in message.attachments if file.kind != "text"]
    if len(files) == len(message.attachments):
        return message
    parts = content_parts(message, files)
    text = "\n\n".join(part for part in parts if isinstance(part, str))
    attachments = tuple(part for part in parts if not isinstance(part, str))
    return message.model_copy(update={"content": text, "attachments": attachments})


def _render_history_call(call: ToolCall, schema: ToolSchema | None) -> str:
    try:
        return render_call(call.name, parse_arguments(call.arguments), schema)
    except InvalidArguments:  # the model sees its malformed arguments as it wrote them
        return f"<function={call.name}>\n{escape_tags(call.arguments)}\n</function>"


def _result_message(results: Sequence[ToolMessage], names: ToolNames) -> UserMessage:
    texts, files = list[str](), list[Attachment]()
    for result in results:
        text, sent = result_parts(result, [file.media_type for file in result.attachments if file.kind != "text"])
        texts.append(render_result(names.sent_name(result.name), text))
        files += sent
    id_ = f"{results[0].message_id}_xml"
    return UserMessage(content="\n".join(texts), attachments=tuple(files), message_id=id_, injected=True)
