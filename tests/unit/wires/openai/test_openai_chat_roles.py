"""Tests that Mistral and servers with strict chat templates get histories in their order of roles."""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from agenticx.llms import (
    ChatDialect,
    ChatModel,
    ModelRequest,
    OpenAIChatModel,
    ToolFallbackModel,
    close_model,
    complete,
    resolve_wire,
)
from agenticx.llms.openai_rows import messages_from_rows
from agenticx.runtime import AgentRuntime, AutoApproveConfirmGate, Session, StopSignal
from agenticx.teams import AssistantAgent, RoundRobinGroupChat
from agenticx.testing import FakeOpenAIServer, ProviderReply, ProviderRequest, RawReply, call, collect, say, status
from tests.support.wires.files import SMALLEST_PNG
from tests.support.wires.replies import sse
from tests.support.wires.rules_chat import mistral_refusal, template_refusal

pytestmark = pytest.mark.anyio

PNG_URL = f"data:image/png;base64,{base64.b64encode(SMALLEST_PNG).decode()}"

LLAMACPP = (
    " ------------ While executing CallExpression at line 19, column 27 in source: ...% 2 == 0) -%}↵ "
    '{{ raise_exception("Conversation roles must alternate user... ^ Error: Jinja Exception: '
)
SERVERS: dict[str, tuple[Callable[[dict[str, Any]], str | None], Callable[[str], RawReply], int]] = {
    "mistral": (mistral_refusal, lambda words: status(400, words, error_type="invalid_request_message_order"), 0),
    "llamacpp": (template_refusal, lambda words: status(500, LLAMACPP + words, error_type="server_error"), 1),
    "vllm": (template_refusal, lambda words: status(400, f"{words} {words}", error_type="BadRequestError"), 1),
}
"""Of each server what it refuses, how it says so, and how many requests it refuses until it knows nothing more."""


def answers(
    refusal: Callable[[dict[str, Any]], str | None], report: Callable[[str], RawReply], *replies: ProviderReply
) -> Callable[[ProviderRequest], Any]:
    """Return the answer of a strict server to each request: a refusal, or the next of the replies."""
    left = deque(replies)

    def answer(request: ProviderRequest) -> Any:
        words = refusal(request.json)
        return left.popleft() if words is None else report(words)

    return answer


async def a_stopped_call(model: ChatModel) -> None:
    stop = StopSignal()

    def look() -> str:
        """Look."""
        stop.set()
        return "a chair"

    runtime, session = AgentRuntime(model, AutoApproveConfirmGate()), Session()
    assert (await collect(runtime.run_turn("Look.", session, stop, tools=[look])))[-1].data["code"] == "stopped"
    for text in ("Why?", "And now?"):
        assert (await collect(runtime.run_turn(text, session, tools=[look])))[-1].type == "final"


async def a_stop_before_any_text(model: ChatModel) -> None:
    stop = StopSignal()
    stop.set()
    runtime, session = AgentRuntime(model, AutoApproveConfirmGate(), system_prompt="Be brief."), Session()
    assert (await collect(runtime.run_turn("Look.", session, stop)))[-1].data["code"] == "stopped"
    for text in ("Why?", "And now?"):
        assert (await collect(runtime.run_turn(text, session)))[-1].type == "final"


async def a_team_of_three(model: ChatModel) -> None:
    members = [AssistantAgent(name, model, system_message=f"You are {name}.") for name in ("ann", "bob", "cleo")]
    result = await RoundRobinGroupChat(members, max_turns=6).run(task="Agree on a colour.")
    assert [message.source for message in result.messages] == ["user", *("ann", "bob", "cleo") * 2]


SCENES: dict[str, tuple[Callable[[ChatModel], Awaitable[None]], list[ProviderReply]]] = {
    "a stopped call": (a_stopped_call, [call("look", {}), say("Because."), say("Now.")]),
    "a stop before any text": (a_stop_before_any_text, [say("Because."), say("Now.")]),
    "a team": (a_team_of_three, [say(f"Colour {number}.") for number in range(6)]),
}


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("provider", SERVERS)
async def test_a_conversation_goes_on_at_a_strict_server(provider: str, scene: str) -> None:
    refusal, report, refused = SERVERS[provider]
    play, replies = SCENES[scene]
    answer = answers(refusal, report, *replies)
    async with FakeOpenAIServer([answer] * (len(replies) + refused)) as server:
        model = resolve_wire(f"{provider}:m", api_key="sk-test", base_url=server.base_url)
        await play(model)
        await close_model(model)
        texts = [str(request.json["messages"]) for request in server.requests]
    if scene == "a stopped call":  # the same text in each later request, so that prompt caches apply
        assert [text.count("(stopped)") for text in texts[-2:]] == [1, 1]


@pytest.mark.parametrize(
    "words",
    [
        "Conversation roles must alternate user/assistant/user/assistant/...",
        "Only user and assistant roles are supported!",
        "Only user, system and assistant roles are supported!",
        "Unexpected message role.",
    ],
)
async def test_a_template_without_results_gets_tools_in_the_prompt(words: str) -> None:
    def refusal(body: dict[str, Any]) -> str | None:
        roles = [row["role"] for row in body["messages"]]
        if "system" in words and roles[0] == "system":
            del roles[0]
        return None if roles == (["user", "assistant"] * 9)[: len(roles)] else words

    def look() -> str:
        """Look."""
        return "a chair"

    replies = [call("look", {}), say("A chair."), say("<function=look>\n</function>"), say("Still a chair.")]
    answer = answers(refusal, SERVERS["vllm"][1], *replies)
    async with FakeOpenAIServer([answer] * (len(replies) + 1)) as server:
        model = ToolFallbackModel(OpenAIChatModel("gemma-3", base_url=server.base_url))
        runtime, session = AgentRuntime(model, AutoApproveConfirmGate()), Session()
        for text, found in (("Look.", "A chair."), ("And now?", "Still a chair.")):
            assert (await collect(runtime.run_turn(text, session, tools=[look])))[-1].data["text"] == found
        await model.aclose()


ROWS: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "system", "content": "[compacted] They looked."},
    {"role": "assistant", "content": "So far."},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "function": {"name": "look"}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "a chair"},
    {"role": "user", "content": "Wait."},
    {"role": "system", "content": "It is late."},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "What is this?"},
            {"type": "image_url", "image_url": {"url": PNG_URL}},
        ],
    },
    {"role": "assistant", "content": "A dot."},
    {"role": "assistant", "content": "A black one."},
]


async def sent_rows(rows: list[dict[str, Any]], **dialect: Any) -> list[dict[str, Any]]:
    async with FakeOpenAIServer([say("ok")]) as server:
        model = OpenAIChatModel("m", base_url=server.base_url, dialect=ChatDialect(**dialect))
        await complete(model, ModelRequest(messages=messages_from_rows(rows)))
        await model.aclose()
        return server.requests[0].json["messages"]


async def test_rows_of_any_order_alternate_and_keep_their_parts_in_order() -> None:
    image = {"type": "image_url", "image_url": {"url": PNG_URL}}
    texts = ("Wait.", "[system note] It is late.")
    called = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    conversation = [
        {"role": "assistant", "content": "So far.", "tool_calls": [called]},
        {"role": "tool", "tool_call_id": "c1", "content": "a chair"},
        {"role": "assistant", "content": "(stopped)"},
        {
            "role": "user",
            "content": [
                *({"type": "text", "text": text} for text in texts),
                image,
                {"type": "text", "text": "What is this?"},
            ],
        },
        {"role": "assistant", "content": "A dot.\n\nA black one."},
        {"role": "user", "content": "[Go on.]"},
    ]
    instructions, beginning = "Be brief.\n\n[compacted] They looked.", "[The conversation begins here.]"
    assert await sent_rows(ROWS, alternating_roles=True) == [
        {"role": "system", "content": instructions},
        {"role": "user", "content": beginning},
        *conversation,
    ]
    assert await sent_rows(ROWS, system_rows=False) == [
        {"role": "user", "content": f"{instructions}\n\n{beginning}"},
        *conversation,
    ]


async def test_a_longer_history_begins_with_the_rows_of_a_shorter_one() -> None:
    shorter = await sent_rows(ROWS[:6], alternating_roles=True)
    longer = await sent_rows([*ROWS[:6], {"role": "assistant", "content": "Yes."}, *ROWS[5:6]], alternating_roles=True)
    assert longer[: len(shorter)] == shorter


@pytest.mark.parametrize(
    "words",
    [
        "Jinja Exception: Tool call IDs should be alphanumeric strings with length 9!",
        "Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9.",
    ],
)
async def test_a_template_that_requires_short_ids_of_calls_gets_them(words: str) -> None:
    async with FakeOpenAIServer([status(500, words), say("first"), say("second")]) as server:
        model = OpenAIChatModel("m", base_url=server.base_url)
        request = ModelRequest(messages=messages_from_rows(ROWS))
        assert [(await complete(model, request))[0].text for _ in range(2)] == ["first", "second"]
        await model.aclose()
        ids = [sent.json["messages"][3]["tool_calls"][0]["id"] for sent in server.requests]
    assert [len(id_) for id_ in ids] == [2, 9, 9]


async def test_other_servers_get_the_rows_as_they_are() -> None:
    assert [row["role"] for row in await sent_rows(ROWS)] == [row["role"] for row in ROWS]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (400, "Unexpected role 'user' after role 'tool'"),
        (400, "Unexpected role 'system' after role 'tool'"),
        (400, "Expected last role User or Tool (or Assistant with prefix True) for serving but got assistant"),
        (400, "Conversation roles must alternate user/assistant/user/assistant/..."),
        (
            500,
            "After the optional system message, conversation roles must alternate user and assistant roles except for "
            "tool calls and results.",
        ),
        (
            400,
            'Error rendering prompt with jinja template: "Error: Conversation roles must alternate user/assistant/…"',
        ),
        (500, "jinja2.exceptions.TemplateError: roles must alternate"),
        (400, 'messages: roles must alternate between "user" and "assistant", but found multiple "user" roles'),
        (400, "A conversation must alternate between user and assistant roles."),
        (400, "After the (optional) system message(s), user and assistant roles should be alternating."),
        (
            400,
            "After the (optional) system message(s), user or tool message(s) should alternate with assistant "
            "message(s).",
        ),
        (400, "deepseek-reasoner does not support successive user or assistant messages (messages[1] and [2])"),
        (500, "Jinja Exception: System message must be at the beginning."),
        (400, "No user query found in messages."),
        (400, "Cannot have 2 or more assistant messages at the end of the list."),
        (400, "Assistant response prefill is incompatible with enable_thinking."),
        (400, "This model does not support assistant message prefill. The conversation must end with a user message."),
        (400, 'messages: first message must use the "user" role'),
        (400, "invalid_message_role: The last message in a Gemini request must not be from the assistant"),
        (400, "Please ensure that multiturn requests alternate between user and model."),
        (
            400,
            "Please ensure that function call turn comes immediately after a user turn or after a function response "
            "turn.",
        ),
        (400, "messages 角色信息不正确"),
        (400, "Roles of messages must alternate"),
        (400, "messages must be alternating between user and assistant"),
        (400, "Multiple consecutive user messages are not allowed"),
        (400, "messages with the same role in sequence"),
        (400, 'found multiple "user" roles in a row'),
        (422, "Expected role 'assistant' but got 'user'"),
        (400, "A user message cannot directly follow a tool message"),
        (400, "Invalid message order"),
        (400, "Only user, assistant and tool roles are supported! roles sequence invalid: user,user"),
        (400, "Invalid 'messages': role 'user' can't come right after 'tool'"),
        (400, "messages with role 'tool' must be followed by an assistant message"),
        (400, "conversation history is malformed: user role repeated"),
        (400, "Invalid request: two user messages without an assistant message between them"),
        (400, "The order of roles is not valid"),
        (400, "After a tool result only an assistant message is allowed"),
        (400, "Multiple user messages in sequence"),
        (400, "system messages are not allowed after user messages"),
        (400, "System messages are only allowed at the beginning"),
        (400, "Only one system message is supported"),
        (400, "messages[0].role must be 'user'"),
        (400, "Requests cannot contain `assistant` role in the final position when `tools` are used."),
    ],
)
async def test_a_refusal_of_the_order_is_recognised(code: int, words: str) -> None:
    async with FakeOpenAIServer([status(code, words), say("first"), say("second")]) as server:
        model = OpenAIChatModel("m", base_url=server.base_url)
        request = ModelRequest(messages=messages_from_rows(ROWS))
        assert [(await complete(model, request))[0].text for _ in range(2)] == ["first", "second"]
        await model.aclose()
        roles = [[row["role"] for row in sent.json["messages"]] for sent in server.requests]
    assert roles[0] == [row["role"] for row in ROWS]
    assert roles[1] == roles[2] == ["system", "user", "assistant", "tool", "assistant", "user", "assistant", "user"]


@pytest.mark.parametrize(
    ("words", "refusals"),
    [
        ("System role not supported", 1),
        ("Only user and assistant roles are supported!", 1),
        ("Only user, assistant and tool roles are supported, got system.", 1),
        ("Invalid role: must be one of 'user', 'assistant', 'tool'", 1),
        ("This model does not support system messages", 1),
        ("Developer instruction is not enabled for models/gemma-3-27b-it", 1),
        ("Unsupported value: 'messages[0].role' does not support 'system' with this model.", 1),
        ("Conversation roles must alternate user/assistant/user/assistant/...", 2),
    ],
)
async def test_a_template_without_a_place_for_instructions_gets_them_from_the_user(words: str, refusals: int) -> None:
    async with FakeOpenAIServer([*[status(400, words)] * refusals, say("first"), say("second")]) as server:
        model = OpenAIChatModel("m", base_url=server.base_url)
        request = ModelRequest(messages=messages_from_rows(ROWS))
        assert [(await complete(model, request))[0].text for _ in range(2)] == ["first", "second"]
        await model.aclose()
        assert [sent.json["messages"][0]["role"] for sent in server.requests[-2:]] == ["user", "user"]


async def test_a_request_that_a_downgrade_does_not_change_is_not_sent_again() -> None:
    async with FakeOpenAIServer([status(400, "Conversation roles must alternate user/assistant/…")]) as server:
        model = OpenAIChatModel("m", base_url=server.base_url)
        _, error = await complete(model, ModelRequest(messages=messages_from_rows([{"role": "user", "content": "x"}])))
        await model.aclose()
    assert error is not None
    assert error.status == 400


@pytest.mark.parametrize("kind", [{}, {"code": 500, "type": "server_error"}], ids=["LM Studio", "llama.cpp"])
async def test_a_refusal_inside_a_stream_is_answered_as_one_before_it(kind: dict[str, Any]) -> None:
    words = 'Error rendering prompt with jinja template: "Conversation roles must alternate user/assistant/…"'
    refusal = RawReply(b"event: error\n" + sse({"error": {"message": words, **kind}}))
    async with FakeOpenAIServer([refusal, say("first"), say("second")]) as server:
        model = OpenAIChatModel("m", base_url=server.base_url)
        request = ModelRequest(messages=messages_from_rows(ROWS))
        assert [(await complete(model, request))[0].text for _ in range(2)] == ["first", "second"]
        await model.aclose()
