"""Models that are not ours: whatever they have and whatever they do, a reply or one ModelError."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any

import pytest

from agenticx.errors import ModelError
from agenticx.llms import DemoModel, ModelRequest, Reply, TextDelta, ToolSchema, adapt, complete
from agenticx.messages import ToolCall, UserMessage
from tests.patience import PATIENCE

pytestmark = pytest.mark.anyio

TOOL = ToolSchema("add", "adds", {"type": "object"})
HELLO = ModelRequest(messages=[UserMessage(content="hello")])
WITH_TOOLS = ModelRequest(messages=HELLO.messages, tools=[TOOL], timeout=315)
ROWS = [{"role": "user", "content": "hello"}]
TOOL_ROWS = [{"type": "function", "function": {"name": "add", "description": "adds", "parameters": {"type": "object"}}}]


async def ask(model: object, request: ModelRequest = WITH_TOOLS) -> Reply:
    reply, error = await complete(adapt(model), request)
    assert error is None
    return reply


async def failure(model: object, request: ModelRequest = WITH_TOOLS) -> tuple[Reply, ModelError]:
    reply, error = await complete(adapt(model), request)
    assert error is not None
    return reply, error


class Says:
    """A model whose `stream_with_tools` gives out these chunks, in a blocking way."""

    def __init__(self, *chunks: object) -> None:
        self.chunks = chunks
        self.asked: list[dict[str, Any]] = []

    def stream_with_tools(self, messages: list[Any], tools: list[Any] | None = None, **options: Any) -> Iterator[Any]:
        self.asked.append({"messages": messages, "tools": tools, **options})
        yield from self.chunks


class SaysAsync(Says):
    async def stream_with_tools(self, messages: Any, tools: Any = None) -> AsyncIterator[Any]:  # type: ignore[override]
        for chunk in self.chunks:
            yield chunk


class Answers:
    """A model with nothing but `invoke`."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def invoke(self, messages: Any, tools: Any = None, tool_choice: str = "", timeout: float = 0) -> object:
        self.asked = {"messages": messages, "tools": tools, "tool_choice": tool_choice, "timeout": timeout}
        return self.answer


SEED = (
    {"type": "content", "text": "Let me "},
    "add.",
    {"type": "tool_call_delta", "tool_index": 0, "tool_call_id": "c1", "tool_name": "add", "arguments_delta": '{"a"'},
    {"type": "tool_call_delta", "tool_index": 0, "tool_call_id": "", "tool_name": "", "arguments_delta": ": 1}"},
    {"type": "done"},
)
ADD = ToolCall(id="c1", name="add", arguments='{"a": 1}')


@pytest.mark.parametrize("kind", [Says, SaysAsync])
async def test_a_stream_of_the_published_form_becomes_text_and_calls(kind: type[Says]) -> None:
    reply = await ask(kind(*SEED))
    assert (reply.text, reply.tool_calls, reply.stop, reply.complete) == ("Let me add.", (ADD,), "tool_calls", True)


async def test_the_model_is_asked_in_openai_s_form() -> None:
    streaming, answering = Says("ok"), Answers("ok")
    await ask(streaming)
    await ask(answering)
    expected = {"messages": ROWS, "tools": TOOL_ROWS, "tool_choice": "auto", "timeout": 315}
    assert (streaming.asked, answering.asked) == ([expected], expected)


FUNCTION = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
OBJECT = SimpleNamespace(id="c1", function=SimpleNamespace(name="add", arguments='{"a": 1}'))


@pytest.mark.parametrize(
    ("answer", "text", "calls"),
    [
        pytest.param("hi", "hi", (), id="text"),
        pytest.param("", "", (), id="empty text"),
        pytest.param(None, "", (), id="nothing"),
        pytest.param({"content": "hi"}, "hi", (), id="a dict"),
        pytest.param({"content": None, "tool_calls": [FUNCTION]}, "", (ADD,), id="a dict with calls"),
        pytest.param(SimpleNamespace(content="hi"), "hi", (), id="an object"),
        pytest.param(SimpleNamespace(content="", tool_calls=[FUNCTION]), "", (ADD,), id="an object with calls"),
        pytest.param(SimpleNamespace(content="", tool_calls=[OBJECT]), "", (ADD,), id="an object with call objects"),
        pytest.param({"type": "ai", "content": "hi"}, "hi", (), id="a typed message"),
        pytest.param(
            SimpleNamespace(content="", tool_calls=[{"id": "c1", "name": "add", "args": {"a": 1}}]),
            "",
            (ToolCall(id="c1", name="add", arguments='{"a":1}'),),
            id="calls with parsed arguments",
        ),
        pytest.param(
            SimpleNamespace(
                choices=[SimpleNamespace(index=0, message=SimpleNamespace(content="hi", tool_calls=[OBJECT]))]
            ),
            "hi",
            (ADD,),
            id="an SDK response",
        ),
        pytest.param({"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}, "hi", (), id="a response"),
    ],
)
async def test_an_answer_of_any_form_is_understood(answer: object, text: str, calls: tuple[ToolCall, ...]) -> None:
    reply = await ask(Answers(answer))
    assert (reply.text, reply.tool_calls, reply.complete) == (text, calls, True)


async def test_chunks_of_an_sdk_are_understood() -> None:
    def chunk(finish_reason: str | None = None, **fields: Any) -> SimpleNamespace:
        return SimpleNamespace(
            choices=[SimpleNamespace(index=0, delta=SimpleNamespace(**fields), finish_reason=finish_reason)]
        )

    counts = SimpleNamespace(choices=[], usage=SimpleNamespace(prompt_tokens=9, completion_tokens=4))
    reply = await ask(Says(chunk(content="h"), chunk(content="i"), chunk("length"), counts))
    assert (reply.text, reply.stop, reply.usage.input_tokens) == ("hi", "length", 9)


async def test_a_plain_stream_is_used_when_there_are_no_tools() -> None:
    class Streams:
        def stream(self, messages: Any) -> Iterator[str]:
            return iter(["h", "i"])

        def invoke(self, messages: Any, tools: Any = None) -> str:
            return "invoked"

    assert [(await ask(Streams(), request)).text for request in (HELLO, WITH_TOOLS)] == ["hi", "invoked"]


async def test_a_stream_that_fails_before_its_first_delta_falls_back_to_invoke(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Fails(Answers):
        def stream_with_tools(self, messages: Any, tools: Any) -> Iterator[str]:
            raise NotImplementedError("no streaming here")
            yield

    class Empty(Answers):
        def stream_with_tools(self, messages: Any, tools: Any) -> Iterator[str]:
            yield from ()

    assert [(await ask(kind("invoked"))).text for kind in (Fails, Empty)] == ["invoked"] * 2
    assert ["asking invoke instead" in record.getMessage() for record in caplog.records] == [True, True]


async def test_a_stream_that_fails_after_its_first_delta_fails_and_is_not_asked_again() -> None:
    class Fails(Answers):
        def stream_with_tools(self, messages: Any, tools: Any) -> Iterator[str]:
            yield "half"
            raise ConnectionResetError("gone")

    reply, error = await failure(Fails("invoked"))
    assert (reply.text, reply.complete, error.code) == ("half", False, "provider.transport")
    assert str(error) == "Fails.stream_with_tools raised ConnectionResetError: gone"


class Unreadable(Exception):
    def __str__(self) -> str:
        raise ValueError("no message")


@pytest.mark.parametrize(
    "exc",
    [ValueError("no"), SystemExit(3), KeyboardInterrupt(), StopIteration(1), asyncio.CancelledError(), Unreadable()],
    ids=lambda exc: type(exc).__name__,
)
async def test_whatever_it_raises_is_a_model_error(exc: BaseException) -> None:
    class Raises:
        def invoke(self, messages: Any) -> str:
            raise exc

    class RaisesAsync:
        async def invoke(self, messages: Any) -> str:
            raise exc

    assert (await failure(Raises()))[1].code == "provider.transport"
    if not isinstance(exc, KeyboardInterrupt):  # asyncio gives that to the person, not to a task
        assert (await failure(RaisesAsync()))[1].code == "provider.transport"


async def test_an_sdk_s_status_error_keeps_its_meaning() -> None:
    class RateLimitError(Exception):
        status_code = 429
        code = "rate_limit_exceeded"

    class Raises:
        def invoke(self, messages: Any) -> str:
            raise RateLimitError("slow down")

    _, error = await failure(Raises())
    assert (error.code, error.provider_type, error.status) == ("provider.rate_limited", "rate_limit_exceeded", 429)


@pytest.mark.parametrize(
    "chunk",
    [
        {"type": "tool_call_delta", "tool_name": "add", "arguments_delta": {1, 2}},
        {"type": "error", "message": "it broke"},
        {"hello": 1},
        42,
        b"bytes",
    ],
)
async def test_junk_is_a_model_error(chunk: object) -> None:
    reply, error = await failure(Says("a", chunk))
    assert (reply.text, error.code.partition(".")[0]) == ("a", "provider")


async def test_lone_surrogates_never_get_in() -> None:
    assert (await ask(Says("a\ud800b"))).text == "a\ufffdb"


async def test_a_blocking_model_does_not_block_the_loop_and_a_closed_one_stops_at_its_next_item() -> None:
    go_on, stopped = threading.Event(), threading.Event()

    class Blocks:
        def stream_with_tools(self, messages: Any, tools: Any) -> Iterator[str]:
            try:
                yield "first"
                go_on.wait(PATIENCE)
                yield "second"
                yield "third"
            finally:
                stopped.set()

    async with aclosing(adapt(Blocks()).stream(WITH_TOOLS)) as batches:  # type: ignore[type-var]
        assert await asyncio.wait_for(anext(batches), PATIENCE) == [TextDelta("first")]
    go_on.set()
    assert await asyncio.to_thread(stopped.wait, PATIENCE)


async def test_a_model_that_never_answers_can_be_cancelled_at_once() -> None:
    asked, release = threading.Event(), threading.Event()

    class Hangs:
        def invoke(self, messages: Any) -> str:
            asked.set()
            release.wait(2 * PATIENCE)
            return "late"

    call = asyncio.create_task(complete(adapt(Hangs()), HELLO))
    assert await asyncio.to_thread(asked.wait, PATIENCE)
    call.cancel()
    done, _ = await asyncio.wait((call,), timeout=PATIENCE)
    release.set()
    assert done == {call}
    assert call.cancelled()


async def test_a_model_far_ahead_of_its_reader_waits() -> None:
    given = 0

    class Eager:
        def stream_with_tools(self, messages: Any, tools: Any) -> Iterator[str]:
            nonlocal given
            while given < 100_000:
                given += 1
                yield "x"

    async with aclosing(adapt(Eager()).stream(WITH_TOOLS)) as batches:  # type: ignore[type-var]
        await anext(batches)
        while True:
            before = given
            await asyncio.to_thread(threading.Event().wait, 0.05)
            if before == given:
                break
    assert given < 2_000


def test_our_own_models_stay_as_they_are() -> None:
    model = DemoModel()
    assert adapt(model) is model


def test_what_has_no_way_to_be_asked_is_no_model() -> None:
    with pytest.raises(TypeError, match="none of stream_with_tools, stream and invoke"):
        adapt(object())


def test_a_name_is_no_model_and_its_refusal_says_what_makes_one_of_it() -> None:
    with pytest.raises(TypeError, match=re.escape("use resolve_model('acme:one') of agenticx.llms")):
        adapt("acme:one")


def test_a_model_is_called_by_its_class_and_its_own_name() -> None:
    class Mine(Answers):
        model = "large"
        context_window = 8192

    assert (adapt(Mine("")).name, adapt(Mine("")).context_window) == ("Mine:large", 8192)
