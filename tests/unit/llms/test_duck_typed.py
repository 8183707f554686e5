"""Duck-typed models: any of their methods and results become a reply or one ModelError."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any

import pytest

from agenticx import UserMessage
from agenticx.errors import ModelError
from agenticx.llms import DemoModel, ModelRequest, Reply, TextDelta, ToolSchema, adapt, complete
from agenticx.messages import ToolCall
from tests.support.timeouts import PATIENCE

pytestmark = pytest.mark.anyio

TOOL = ToolSchema("add", "adds", {"type": "object"})
HELLO = ModelRequest(messages=[UserMessage(content="hello")])
WITH_TOOLS = ModelRequest(messages=HELLO.messages, tools=[TOOL], timeout=315)
ROWS = [{"role": "user", "content": "hello"}]
TOOL_ROWS = [{"type": "function", "function": {"name": "add", "description": "adds", "parameters": {"type": "object"}}}]


async def reply_of(model: object, request: ModelRequest = WITH_TOOLS) -> Reply:
    reply, error = await complete(adapt(model), request)
    assert error is None
    return reply


async def error_of(model: object, request: ModelRequest = WITH_TOOLS) -> tuple[Reply, ModelError]:
    reply, error = await complete(adapt(model), request)
    assert error is not None
    return reply, error


class StreamingModel:
    """A model whose blocking `stream_with_tools` yields these chunks."""

    def __init__(self, *chunks: object) -> None:
        self.chunks = chunks
        self.requests: list[dict[str, Any]] = []

    def stream_with_tools(self, messages: list[Any], tools: list[Any] | None = None, **options: Any) -> Iterator[Any]:
        self.requests.append({"messages": messages, "tools": tools, **options})
        yield from self.chunks


class AsyncStreamingModel(StreamingModel):
    async def stream_with_tools(self, messages: Any, tools: Any = None) -> AsyncIterator[Any]:  # type: ignore[override]
        for chunk in self.chunks:
            yield chunk


class InvokeModel:
    """A model with no method but `invoke`."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def invoke(self, messages: Any, tools: Any = None, tool_choice: str = "", timeout: float = 0) -> object:
        self.requests = {"messages": messages, "tools": tools, "tool_choice": tool_choice, "timeout": timeout}
        return self.answer


DOCUMENTED_CHUNKS = (
    {"type": "content", "text": "Let me "},
    "add.",
    {"type": "tool_call_delta", "tool_index": 0, "tool_call_id": "c1", "tool_name": "add", "arguments_delta": '{"a"'},
    {"type": "tool_call_delta", "tool_index": 0, "tool_call_id": "", "tool_name": "", "arguments_delta": ": 1}"},
    {"type": "done"},
)
ADD = ToolCall(id="c1", name="add", arguments='{"a": 1}')


@pytest.mark.parametrize("kind", [StreamingModel, AsyncStreamingModel])
async def test_a_stream_of_documented_chunks_becomes_text_and_calls(kind: type[StreamingModel]) -> None:
    reply = await reply_of(kind(*DOCUMENTED_CHUNKS))
    assert (reply.text, reply.tool_calls, reply.stop, reply.complete) == ("Let me add.", (ADD,), "tool_calls", True)


async def test_the_model_is_called_with_openai_style_messages_and_tools() -> None:
    streaming, answering = StreamingModel("ok"), InvokeModel("ok")
    await reply_of(streaming)
    await reply_of(answering)
    expected = {"messages": ROWS, "tools": TOOL_ROWS, "tool_choice": "auto", "timeout": 315}
    assert (streaming.requests, answering.requests) == ([expected], expected)


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
async def test_a_reply_of_any_supported_form_is_read(answer: object, text: str, calls: tuple[ToolCall, ...]) -> None:
    reply = await reply_of(InvokeModel(answer))
    assert (reply.text, reply.tool_calls, reply.complete) == (text, calls, True)


async def test_sdk_chunks_are_read() -> None:
    def chunk(finish_reason: str | None = None, **fields: Any) -> SimpleNamespace:
        return SimpleNamespace(
            choices=[SimpleNamespace(index=0, delta=SimpleNamespace(**fields), finish_reason=finish_reason)]
        )

    counts = SimpleNamespace(choices=[], usage=SimpleNamespace(prompt_tokens=9, completion_tokens=4))
    reply = await reply_of(StreamingModel(chunk(content="h"), chunk(content="i"), chunk("length"), counts))
    assert (reply.text, reply.stop, reply.usage.input_tokens) == ("hi", "length", 9)


async def test_stream_is_called_only_without_tools() -> None:
    class PlainStreamModel:
        def stream(self, messages: Any) -> Iterator[str]:
            return iter(["h", "i"])

        def invoke(self, messages: Any, tools: Any = None) -> str:
            return "invoked"

    assert [(await reply_of(PlainStreamModel(), request)).text for request in (HELLO, WITH_TOOLS)] == ["hi", "invoked"]


async def test_a_stream_that_fails_before_its_first_delta_falls_back_to_invoke(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class FailingStream(InvokeModel):
        def stream_with_tools(self, messages: Any, tools: Any) -> Iterator[str]:
            raise NotImplementedError("no streaming here")
            yield

    class EmptyStream(InvokeModel):
        def stream_with_tools(self, messages: Any, tools: Any) -> Iterator[str]:
            yield from ()

    assert [(await reply_of(kind("invoked"))).text for kind in (FailingStream, EmptyStream)] == ["invoked"] * 2
    assert ["calling invoke instead" in record.getMessage() for record in caplog.records] == [True, True]


async def test_a_stream_that_fails_after_its_first_delta_fails_the_call() -> None:
    class FailingStream(InvokeModel):
        def stream_with_tools(self, messages: Any, tools: Any) -> Iterator[str]:
            yield "half"
            raise ConnectionResetError("gone")

    reply, error = await error_of(FailingStream("invoked"))
    assert (reply.text, reply.complete, error.code) == ("half", False, "provider.transport")
    assert str(error) == "FailingStream.stream_with_tools raised ConnectionResetError: gone"


class Unreadable(Exception):
    def __str__(self) -> str:
        raise ValueError("no message")


@pytest.mark.parametrize(
    "exc",
    [ValueError("no"), SystemExit(3), KeyboardInterrupt(), StopIteration(1), asyncio.CancelledError(), Unreadable()],
    ids=lambda exc: type(exc).__name__,
)
async def test_every_exception_becomes_a_model_error(exc: BaseException) -> None:
    class RaisingModel:
        def invoke(self, messages: Any) -> str:
            raise exc

    class AsyncRaisingModel:
        async def invoke(self, messages: Any) -> str:
            raise exc

    assert (await error_of(RaisingModel()))[1].code == "provider.transport"
    if not isinstance(exc, KeyboardInterrupt):  # asyncio raises it out of the event loop, not in a task
        assert (await error_of(AsyncRaisingModel()))[1].code == "provider.transport"


async def test_a_full_context_is_recognised_in_the_words_of_an_exception_without_a_status() -> None:
    class LlamaCpp:
        def invoke(self, messages: Any) -> str:
            raise ValueError("Requested tokens (5000) exceed context window of 4096")

    assert (await error_of(LlamaCpp()))[1].code == "context_overflow"


async def test_the_status_of_an_sdk_error_is_kept() -> None:
    class RateLimitError(Exception):
        status_code = 429
        code = "rate_limit_exceeded"

    class RaisingModel:
        def invoke(self, messages: Any) -> str:
            raise RateLimitError("slow down")

    _, error = await error_of(RaisingModel())
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
async def test_an_unknown_chunk_is_a_model_error(chunk: object) -> None:
    reply, error = await error_of(StreamingModel("a", chunk))
    assert (reply.text, error.code.partition(".")[0]) == ("a", "provider")


async def test_lone_surrogates_are_replaced() -> None:
    assert (await reply_of(StreamingModel("a\ud800b"))).text == "a\ufffdb"


async def test_a_blocking_model_does_not_block_the_loop_and_stops_after_the_stream_is_closed() -> None:
    released, stopped = threading.Event(), threading.Event()

    class BlockingModel:
        def stream_with_tools(self, messages: Any, tools: Any) -> Iterator[str]:
            try:
                yield "first"
                released.wait(PATIENCE)
                yield "second"
                yield "third"
            finally:
                stopped.set()

    async with aclosing(adapt(BlockingModel()).stream(WITH_TOOLS)) as batches:  # type: ignore[type-var]
        assert await asyncio.wait_for(anext(batches), PATIENCE) == [TextDelta("first")]
    released.set()
    assert await asyncio.to_thread(stopped.wait, PATIENCE)


async def test_a_call_of_a_blocked_model_can_be_cancelled() -> None:
    called, release = threading.Event(), threading.Event()

    class HangingModel:
        def invoke(self, messages: Any) -> str:
            called.set()
            release.wait(2 * PATIENCE)
            return "late"

    call = asyncio.create_task(complete(adapt(HangingModel()), HELLO))
    assert await asyncio.to_thread(called.wait, PATIENCE)
    call.cancel()
    done, _ = await asyncio.wait((call,), timeout=PATIENCE)
    release.set()
    assert done == {call}
    assert call.cancelled()


async def test_a_model_that_has_returned_is_not_logged_as_abandoned(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(100):
        await error_of(InvokeModel(5), HELLO)
    assert not caplog.records


async def test_a_model_faster_than_its_reader_is_paused() -> None:
    produced = 0

    class FastModel:
        def stream_with_tools(self, messages: Any, tools: Any) -> Iterator[str]:
            nonlocal produced
            while produced < 100_000:
                produced += 1
                yield "x"

    async with aclosing(adapt(FastModel()).stream(WITH_TOOLS)) as batches:  # type: ignore[type-var]
        await anext(batches)
        while True:
            before = produced
            await asyncio.to_thread(threading.Event().wait, 0.05)
            if before == produced:
                break
    assert produced < 2_000


def test_a_chat_model_is_returned_unchanged() -> None:
    model = DemoModel()
    assert adapt(model) is model


def test_an_object_without_any_known_method_is_refused() -> None:
    with pytest.raises(TypeError, match="none of the methods stream_with_tools, stream and invoke"):
        adapt(object())


def test_a_model_name_is_refused_with_a_hint_to_resolve_model() -> None:
    with pytest.raises(TypeError, match=re.escape("use agenticx.llms.resolve_model('acme:one')")):
        adapt("acme:one")


def test_the_name_of_an_adapted_model_is_its_class_and_its_model() -> None:
    class NamedModel(InvokeModel):
        model = "large"
        context_window = 8192

    assert (adapt(NamedModel("")).name, adapt(NamedModel("")).context_window) == ("NamedModel:large", 8192)


async def test_a_refused_order_of_roles_is_changed_from_then_on() -> None:
    class Refusal(Exception):
        status_code = 400

    class Strict:
        def __init__(self) -> None:
            self.roles: list[list[str]] = []

        def invoke(self, messages: list[dict[str, Any]], **_: Any) -> str:
            self.roles.append([row["role"] for row in messages])
            if ["user", "user"] in [self.roles[-1][n : n + 2] for n in range(len(messages))]:
                raise Refusal("Conversation roles must alternate user/assistant/user/assistant/...")
            return "ok"

    inner = Strict()
    model = adapt(inner)
    request = ModelRequest(messages=[UserMessage(content="a"), UserMessage(content="b")])
    assert [(await complete(model, request))[0].text for _ in range(2)] == ["ok", "ok"]
    assert inner.roles == [["user", "user"], ["user"], ["user"]]
