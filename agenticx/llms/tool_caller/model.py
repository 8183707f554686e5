"""A model for tests that calls every tool once, with arguments made from its schema, and then answers."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import ClassVar, Literal

from agenticx.argument_types import check_str, wrong_type
from agenticx.errors import ModelError
from agenticx.llms.base import (
    Delta,
    Finished,
    ModelRequest,
    OutputSchema,
    TextDelta,
    ToolCallDelta,
    ToolSchema,
    Usage,
    UsageDelta,
)
from agenticx.llms.sampling import Sampling, SamplingField
from agenticx.llms.tool_caller.schema_values import value_of_schema
from agenticx.messages import AssistantMessage, Message, ToolMessage, UserMessage

__all__ = ["TestModel"]

_NO_CALLS = "No tools were called."
_INSTEAD = "give other tools in call_tools, or replies of your own to a ScriptedModel"


class TestModel:
    """A model that calls every tool once and then answers; by name it is `model="test"`.

    Its first reply to a message calls each of the `call_tools`, by default all that the request has, with the smallest
    arguments that the tool's schema accepts: the required ones, 0 or "a" where nothing else is asked for. Tools that
    appear later, as after a handoff, are called then. A turn whose tool cannot be called so, because of a pattern that
    looks ahead or a check that no schema has, fails with the reason: leave the tool out of `call_tools`, or write its
    call with `ScriptedModel`. A tool that raises does not end the turn: its result begins with "Error: " and is part of
    the answer, and its `tool_result` has `is_error`. The answer is `text`, by default the results as a JSON object by
    tool, or, where an object of a type is asked for, one made of its schema. `requests` records the requests.

    It needs no script, and shows that tools can be called, and that an agent's parts work together:

    >>> from agenticx import AgentRuntime, tool
    >>> @tool(risk="read")
    ... def add(left: int, right: int) -> int:
    ...     "Add two numbers."
    ...     return left + right
    >>> AgentRuntime("test", tools=[add]).run_sync("Add.").text
    '{"add":"0"}'

    The model for replies of your own is `ScriptedModel`.
    """

    __test__: ClassVar[bool] = False  # pytest collects classes of such names

    def __init__(
        self, *, call_tools: Sequence[str] | Literal["all"] = "all", text: str | None = None, name: str = "test"
    ) -> None:
        if isinstance(call_tools, str) and call_tools != "all":
            raise wrong_type("call_tools", call_tools, 'a list of names of tools, or "all"')
        if text is not None:
            check_str("text", text)
        self.name = name
        self.context_window: int | None = None
        self.requests: list[ModelRequest] = []
        self._call_tools = call_tools
        self._text = text

    def takes_output_schema(self, output: OutputSchema, *, with_tools: bool) -> bool:
        """Return True: its answer is made of the schema."""
        return True

    def sampling_problems(self, sampling: Sampling) -> Mapping[SamplingField, str]:
        """Return nothing: any sampling is accepted."""
        return {}

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[Delta], None]:
        """Call the tools that were not called since the last message of the user, or answer.

        Raises `ModelError` if no value can be made for a schema, and if a tool refused its arguments.
        """
        self.requests.append(replace(request, messages=tuple(request.messages), tools=tuple(request.tools)))
        later = list(_since_request(request.messages))
        calls = [] if request.tool_choice == "none" else self._calls(request, later)
        for index, tool in enumerate(calls):
            id_ = f"test_{len(self.requests)}_{index + 1}"
            yield (ToolCallDelta(index, id_, tool.name, _json(tool.parameters, f"the arguments of {tool.name!r}")),)
        if not calls:
            _check_results(later)
            yield (TextDelta(self._answer(request, later)),)
        finished = Finished("tool_calls", "tool_calls") if calls else Finished("end", "stop")
        yield (UsageDelta(Usage(len(request.messages), 1, cost_usd=Decimal(0))), finished)

    def _calls(self, request: ModelRequest, later: Sequence[Message]) -> list[ToolSchema]:
        if self._call_tools == "all":
            chosen = list(request.tools)
        else:
            chosen = [tool for tool in request.tools if tool.name in self._call_tools]
        if request.tool_choice == "required" and request.required_tool:
            chosen = [tool for tool in request.tools if tool.name == request.required_tool]
        called = {call.name for one in later if isinstance(one, AssistantMessage) for call in one.tool_calls}
        return [tool for tool in chosen if tool.name not in called][: None if request.parallel_calls else 1]

    def _answer(self, request: ModelRequest, later: Sequence[Message]) -> str:
        if self._text is not None:
            return self._text
        if request.output_schema is not None:
            return _json(request.output_schema.schema, "the answer")
        results = {message.name: message.content for message in later if isinstance(message, ToolMessage)}
        return json.dumps(results, ensure_ascii=False, separators=(",", ":")) if results else _NO_CALLS


def _since_request(messages: Sequence[Message]) -> Iterator[Message]:
    """Yield the messages behind the last one of the user, the newest first."""
    for message in reversed(messages):
        if isinstance(message, UserMessage) and not message.injected:
            return
        yield message


def _check_results(later: Iterable[Message]) -> None:
    for message in later:
        if isinstance(message, ToolMessage) and message.outcome == "invalid_arguments":
            problem = f"the tool {message.name!r} was not run, as it refuses what the test model made from its schema"
            raise ModelError(f"{problem}: {message.content}; {_INSTEAD}", code="provider.bad_request")


def _json(schema: Mapping[str, object], what: str) -> str:
    try:
        return json.dumps(value_of_schema(schema), ensure_ascii=False)
    except ValueError as exc:
        problem = f"the test model cannot make {what}: {exc}"
        raise ModelError(f"{problem}; {_INSTEAD}", code="provider.bad_request") from exc
