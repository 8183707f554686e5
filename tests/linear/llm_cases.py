"""Rows for the modules between the wires and the turn: texts, arguments, JSON, calls in text, errors."""

from __future__ import annotations

import json
from collections.abc import Generator
from functools import partial
from typing import Any

from agenticx import UserMessage
from agenticx.errors import InvalidArguments, ModelError
from agenticx.llms import (
    GrowingArguments,
    ModelRequest,
    ReplyBuilder,
    TextDelta,
    ToolCallDelta,
    ToolSchema,
    preview_arguments,
)
from agenticx.llms.arguments import check_value_count, parse_arguments, repair_arguments
from agenticx.llms.base import ReplySize
from agenticx.llms.file_refusals import data_at_path, find_refused, is_undecodable, is_vague
from agenticx.llms.identifiers import CallIds, IdentifierRule, ToolNames
from agenticx.llms.json_values import cleaned, json_text, object_from_pairs
from agenticx.llms.memory_estimate import estimate_fragment_bytes, estimate_parsed_bytes, history_size, measure_bytes
from agenticx.llms.reply_limits import MAX_VALUES
from agenticx.llms.transport.errors import find_error, parse_error_body, stream_error, without_secrets
from agenticx.llms.transport.overflow import exceeded_limit
from agenticx.llms.wires.openai_chat._calls import ToolCallAssembler
from agenticx.llms.wires.openai_chat._reply import plain_text
from agenticx.llms.wires.request_body import arguments_object, arguments_text, body_bytes
from agenticx.llms.wrappers.markdown_state import MarkdownState
from agenticx.llms.wrappers.think_blocks import ThinkBlockParser
from agenticx.llms.wrappers.xml_format import XmlCallParser, escape_calls, escape_tags, render_call, render_result
from agenticx.llms.wrappers.xml_tools import with_tools_in_prompt
from agenticx.messages import AssistantMessage, Attachment, ToolCall, clean_text, names_speaker, shown_text
from agenticx.strict_json import clean_json, find_excess, has_more_values, is_nested_deeper, read_json
from agenticx.teams.agents.messages_for_model import quote_speakers
from agenticx.teams.group_chats.speaker_names import named_candidates
from agenticx.untrusted_text import decode_text, frame_lines, frame_text, one_line, without_controls, without_frames
from tests.linear.case import LinearCase, Make
from tests.linear.histories import HISTORIES
from tests.linear.texts import JSON, LINES, TEXTS, repeated

__all__ = ["LLM_CASES", "parsed"]

_WRITE = ToolSchema("look", "", {"type": "object", "properties": {"a": {"type": "string"}, "path": {"type": "string"}}})
_WITH_FILE = [UserMessage(content="", attachments=(Attachment(name="a.png", media_type="image/png", data=""),))]
_KEYS = ("sk-aaaaaaaaaaaaaaaaaaaa", "lorem-ipsum-dolor-sit")


def _refusing(function: Any, text: Any) -> object:
    """Return the function's result, or None if it refuses the text."""
    try:
        return function(text)
    except (InvalidArguments, ValueError, RecursionError, ModelError):
        return None


def parsed(make: Make) -> Make:
    """Return a maker of the arguments parsed from texts; a refused text gives no arguments."""

    def value(size: int) -> Any:
        try:
            return parse_arguments(make(size))
        except InvalidArguments:
            return {}

    return value


def _loaded(make: Make) -> Make:
    return lambda size: json.loads(make(size))


_VALUES: dict[str, Make] = {
    name: _loaded(JSON[name]) for name in ("a long string", "a file", "numbers", "nulls", "objects", "keys", "nested")
}


def _in_pieces(make: Make, piece: int) -> Make:
    def pieces(size: int) -> list[str]:
        text = make(size)
        return [text[start : start + piece] for start in range(0, len(text), piece)]

    return pieces


def _pieces(piece: int) -> dict[str, Make]:
    return {name: _in_pieces(make, piece) for name, make in TEXTS.items()}


def _fed(make: Any, pieces: list[str]) -> Generator[None]:
    reader = make()
    for piece in pieces:
        reader.feed(piece)
        yield
    reader.end()
    yield


def _prose(pieces: list[str]) -> Generator[None]:
    prose = MarkdownState()
    for piece in pieces:
        prose.add(piece)
        prose.call_may_begin  # noqa: B018 - may be computed on access
        yield


def _sorted_calls(pieces: list[dict[str, Any]]) -> Generator[None]:
    sorter = ToolCallAssembler(ReplySize())
    for piece in pieces:
        _refusing(sorter.add, piece)
        yield
    sorter.close([])
    yield


def _call_pieces(text: str, **fields: Any) -> Make:
    piece = {**fields, "function": {"name": "look", "arguments": text}}
    return lambda size: [piece] * (size // max(len(text), 4))


def _built(pieces: list[str]) -> Generator[None]:
    builder, size = ReplyBuilder(), ReplySize()
    for piece in pieces:
        batch = [TextDelta(piece), ToolCallDelta(0, arguments=piece)]
        if _refusing(size.add, batch) is not None:
            return
        for delta in batch:
            builder.add(delta)
        yield
    builder.reply()
    yield


_RULE = IdentifierRule("a-zA-Z0-9_-", 64)
_IDS: dict[str, Make] = {
    "the same": lambda size: ["call_0"] * (size // 8),
    "the same odd one": lambda size: ["né" * 50] * (size // 100),
    "nearly the same": lambda size: [f"{'a' * 90}{number}" for number in range(size // 100)],
    "numbered": lambda size: [f"look_{number % 9}" for number in range(size // 8)],
    "long": lambda size: ["é" * (size // 4), "a" * (size // 2)],
}


def _identified(ids: list[str]) -> object:
    sent = CallIds(_RULE)
    return [sent.assign(id_) for id_ in ids], [sent.pop(id_) for id_ in ids]


def _named(names: list[str]) -> object:
    calls = tuple(ToolCall(id="a", name=name) for name in names[:256])  # as many as one reply has
    return ToolNames(_RULE, ModelRequest(messages=[AssistantMessage(tool_calls=calls)], tools=[_WRITE])).originals


def _read_while_growing(text: str) -> Generator[None]:
    """Read arguments in single characters, and look at what each thirty-second one added."""
    arguments = GrowingArguments()
    shown = 0
    for number, character in enumerate(text):
        arguments.add(character)
        if number % 32 == 0:
            key = arguments.open_key
            shown += len(arguments.text_from(key, shown)) if key is not None and key in arguments else 0
            yield
    arguments.end()


_SPEAKERS = [
    "a____b",
    "code__writer",
    *("_".join("a" * count) for count in range(1, 33)),
    *map("a{}".format, range(99)),
]

LLM_CASES = [
    LinearCase(of=clean_text, run=clean_text, inputs=TEXTS),
    LinearCase(
        of=frame_text,
        run=lambda text: frame_text("file a", text),
        inputs={
            **TEXTS,
            **{repr(part): repeated(part) for part in ("\u200d", "👨\u200d", "\ufe0f", "a\u200bb\x1b\n")},
        },
        where="thread",
        also=(without_controls, frame_lines, one_line),
    ),
    LinearCase(
        of=without_frames,
        run=without_frames,
        inputs={
            **TEXTS,
            "first lines": repeated("[a, boundary 0123456789abcdef]\n"),
            "labels": repeated("[a, boundary "),
        },
    ),
    LinearCase(
        of=decode_text, run=lambda text: decode_text(text.encode("utf-8", "replace")), inputs=TEXTS, where="thread"
    ),
    LinearCase(of=shown_text, run=lambda text: shown_text(text, 220), inputs=TEXTS),
    LinearCase(of=names_speaker, run=names_speaker, inputs=TEXTS),
    LinearCase(of=quote_speakers, run=quote_speakers, inputs=TEXTS),
    LinearCase(of=named_candidates, run=lambda text: named_candidates(text, _SPEAKERS), inputs=TEXTS),
    LinearCase(of=is_nested_deeper, run=lambda text: is_nested_deeper(text, 100), inputs=JSON | TEXTS, where="thread"),
    LinearCase(
        of=find_excess,
        run=partial(find_excess, max_depth=100, max_values=MAX_VALUES),
        inputs=JSON | TEXTS,
    ),
    LinearCase(of=read_json, run=partial(_refusing, partial(read_json, max_depth=100)), inputs=JSON, where="thread"),
    LinearCase(of=clean_json, run=partial(clean_json, max_depth=100), inputs=_VALUES, where="thread"),
    LinearCase(of=parse_arguments, run=partial(_refusing, parse_arguments), inputs=JSON),
    LinearCase(of=preview_arguments, run=preview_arguments, inputs=JSON),
    LinearCase(of=GrowingArguments, run=_read_while_growing, inputs=JSON),
    LinearCase(of=repair_arguments, run=partial(_refusing, repair_arguments), inputs=JSON | TEXTS, where="thread"),
    # --- of all wires
    LinearCase(of=cleaned, run=cleaned, inputs=_VALUES, where="thread", also=(object_from_pairs,)),
    LinearCase(of=json_text, run=json_text, inputs=_VALUES),
    LinearCase(of=measure_bytes, run=measure_bytes, inputs=_VALUES, where="thread"),
    LinearCase(
        of=estimate_parsed_bytes, run=lambda text: estimate_parsed_bytes(text.encode("utf-8", "replace")), inputs=TEXTS
    ),
    LinearCase(of=estimate_fragment_bytes, run=estimate_fragment_bytes, inputs=TEXTS),
    LinearCase(of=arguments_object, run=arguments_object, inputs=JSON),
    LinearCase(of=arguments_text, run=arguments_text, inputs=JSON),
    LinearCase(of=body_bytes, run=lambda value: body_bytes({"a": value}), inputs=_VALUES | LINES),
    LinearCase(
        of=plain_text,
        run=plain_text,
        inputs={"parts": lambda size: [{"text": "a"}] * (size // 12), **LINES},
        where="thread",
    ),
    LinearCase(
        of=ToolCallAssembler,
        run=_sorted_calls,
        inputs={
            "letters": _call_pieces("a", index=0, id="a"),
            "braces": _call_pieces("{}", id="a"),
            "closed": _call_pieces("}", id="a"),
            "without index": _call_pieces("a"),
            "text in quotes": _call_pieces('"', index=0),
            "the same call": _call_pieces('{"a":"' + "a" * 1000 + '"}', id="a"),
        },
    ),
    LinearCase(
        of=ReplyBuilder,
        run=_built,
        inputs={name: _in_pieces(make, 4) for name, make in LINES.items()},
        also=(ReplySize,),
    ),
    LinearCase(of=CallIds, run=_identified, inputs=_IDS, where="thread", also=(IdentifierRule,)),
    LinearCase(of=ToolNames, run=_named, inputs=_IDS),
    LinearCase(
        of=check_value_count, run=partial(_refusing, check_value_count), inputs=_VALUES, also=(has_more_values,)
    ),
    LinearCase(of=history_size, run=history_size, inputs=HISTORIES),
    LinearCase(
        of=stream_error,
        run=lambda text: stream_error(find_error({"error": {"message": text, "type": text}}), label="test"),  # pyright: ignore[reportArgumentType]
        inputs=TEXTS,
        also=(find_error,),
    ),
    LinearCase(
        of=find_refused,
        run=lambda text: (
            find_refused(_WITH_FILE, "m", ModelError(text, code="provider.bad_request")),
            is_undecodable(text),
            is_vague(ModelError(text, code="provider.bad_request", status=400)),
            data_at_path(b'{"messages": [{"content": [{"data": ""}]}]}', text),
        ),
        inputs={
            **TEXTS,
            "images": lambda size: "image " * (size // 6),
            "paths": lambda size: "messages.0" * (size // 10),
        },
        also=(is_undecodable, is_vague, data_at_path),
    ),
    LinearCase(
        of=exceeded_limit,
        run=lambda text: exceeded_limit("", text, provider="", status=400),
        inputs={
            **TEXTS,
            "subjects": lambda size: "prompt " * (size // 7),
            "subjects and verbs": lambda size: "prompt exceeds " * (size // 15),
        },
    ),
    LinearCase(
        of=parse_error_body,
        run=lambda text: parse_error_body(text.encode("utf-8", "replace")[: 64 * 1024]),
        inputs=TEXTS,
    ),
    LinearCase(of=without_secrets, run=lambda text: without_secrets(text[:4096], _KEYS), inputs=TEXTS),
    # --- calls and thoughts in text
    LinearCase(
        of=ThinkBlockParser,
        variant="one piece",
        run=partial(_fed, ThinkBlockParser),
        inputs=_pieces(1 << 30),
        where="thread",
    ),
    LinearCase(of=ThinkBlockParser, variant="small pieces", run=partial(_fed, ThinkBlockParser), inputs=_pieces(7)),
    LinearCase(of=MarkdownState, variant="one piece", run=_prose, inputs=_pieces(1 << 30), where="thread"),
    LinearCase(of=MarkdownState, variant="small pieces", run=_prose, inputs=_pieces(7)),
    LinearCase(
        of=XmlCallParser,
        where="thread",
        variant="one piece",
        run=partial(_fed, partial(XmlCallParser, (_WRITE,))),
        inputs=_pieces(1 << 30),
    ),
    LinearCase(
        of=XmlCallParser,
        variant="small pieces",
        run=partial(_fed, partial(XmlCallParser, (_WRITE,))),
        inputs=_pieces(7),
    ),
    LinearCase(
        of=XmlCallParser,
        variant="values",
        where="thread",
        run=partial(_fed, partial(XmlCallParser, (_WRITE,))),
        inputs={
            name: (
                lambda size, make=make: [
                    f"<function=look>\n<parameter=a>{make(size)}</parameter>\n<parameter=b>{make(8)}"
                ]
            )
            for name, make in (JSON | TEXTS).items()
        },
    ),
    LinearCase(of=escape_tags, run=escape_tags, inputs=TEXTS, where="thread"),
    LinearCase(of=escape_calls, run=escape_calls, inputs=TEXTS, where="thread"),
    LinearCase(of=render_result, run=lambda text: render_result(text[:100], text), inputs=TEXTS, where="thread"),
    LinearCase(of=render_call, run=lambda value: render_call("look", value, _WRITE), inputs=_VALUES, where="thread"),
    LinearCase(
        of=with_tools_in_prompt,
        run=lambda messages: with_tools_in_prompt(ModelRequest(messages=messages, tools=[_WRITE])),
        where="thread",
        inputs=HISTORIES,
    ),
]
