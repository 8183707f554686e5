"""The sampling of each wire: its place in requests, what is refused, and refusals of servers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agenticx.errors import ModelError
from agenticx.llms import ModelRequest, Sampling, UnsupportedSampling, complete, resolve_wire
from agenticx.testing import FakeOpenAIServer
from tests.support.wires.served import ANTHROPIC, CHAT, GEMINI, HELLO, OLLAMA, RESPONSES, SERVED_WIRES, ServedWire
from tests.support.wires.wires import WIRES

pytestmark = pytest.mark.anyio

NUMBERS = Sampling(temperature=0.5, top_p=0.9, max_output_tokens=99)
ALL = NUMBERS.updated(Sampling(stop=["END", "."], seed=7, reasoning_effort="low"))
GEMINI_CONFIG = {"temperature": 0.5, "topP": 0.9, "maxOutputTokens": 99, "stopSequences": ["END", "."], "seed": 7}


async def sent(wire: ServedWire, sampling: Sampling, model: str = "m", **options: Any) -> dict[str, Any]:
    """Return the request that a model of the wire sends."""
    request = ModelRequest(messages=HELLO.messages, sampling=sampling)
    async with FakeOpenAIServer([wire.body(wire.hi, wire.end)]) as server:
        async with wire.open_model(server.base_url, model, **options) as opened:
            assert (await complete(opened, request))[1] is None
        return server.requests[0].json


async def refused(wire: ServedWire, sampling: Sampling, model: str = "m") -> str:
    """Return the error of a call that makes no request."""
    request = ModelRequest(messages=HELLO.messages, sampling=sampling)
    async with FakeOpenAIServer() as server, wire.open_model(server.base_url, model) as opened:
        _, error = await complete(opened, request)
    assert isinstance(error, UnsupportedSampling)
    return str(error)


# --- parameters -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wire", "sampling", "fields"),
    [
        (
            CHAT,
            ALL,
            {
                "temperature": 0.5,
                "top_p": 0.9,
                "max_tokens": 99,
                "stop": ["END", "."],
                "seed": 7,
                "reasoning_effort": "low",
            },
        ),
        (
            RESPONSES,
            ALL.without(["stop", "seed"]),
            {"temperature": 0.5, "top_p": 0.9, "max_output_tokens": 99, "reasoning": {"effort": "low"}},
        ),
        (
            ANTHROPIC,
            ALL.without(["seed"]),
            {
                "temperature": 0.5,
                "top_p": 0.9,
                "max_tokens": 99,
                "stop_sequences": ["END", "."],
                "output_config": {"effort": "low"},
            },
        ),
        (
            GEMINI,
            ALL,
            {
                "generationConfig": {
                    **GEMINI_CONFIG,
                    "thinkingConfig": {"includeThoughts": True, "thinkingBudget": 1024},
                }
            },
        ),
        (
            OLLAMA,
            ALL,
            {
                "options": {"temperature": 0.5, "top_p": 0.9, "num_predict": 99, "stop": ["END", "."], "seed": 7},
                "think": "low",
            },
        ),
    ],
    ids=lambda value: value.name if isinstance(value, ServedWire) else "",
)
async def test_each_wire_sends_the_parameters_under_the_names_of_its_provider(
    wire: ServedWire, sampling: Sampling, fields: dict[str, Any]
) -> None:
    body, plain = await sent(wire, sampling), await sent(wire, Sampling())
    assert {name: value for name, value in body.items() if plain.get(name) != value} == fields


@pytest.mark.parametrize("wire", WIRES.values(), ids=lambda wire: wire.name)
def test_a_strict_server_accepts_every_parameter(wire: Any) -> None:
    request = ModelRequest(messages=HELLO.messages, sampling=ALL.updated(Sampling(temperature=1)))
    assert wire.violations(json.loads(wire.body(request, "m"))) == []


@pytest.mark.parametrize(
    ("model", "effort", "thinking"),
    [
        ("gemini-3-flash-preview", "medium", {"includeThoughts": True, "thinkingLevel": "MEDIUM"}),
        ("gemini-2.5-flash", "high", {"includeThoughts": True, "thinkingBudget": 24_576}),
        ("gemini-2.5-flash", "none", {"thinkingBudget": 0}),
    ],
)
async def test_the_effort_of_gemini_is_a_level_or_before_gemini_3_a_budget(
    model: str, effort: Any, thinking: dict[str, Any]
) -> None:
    request = ModelRequest(messages=HELLO.messages, sampling=Sampling(reasoning_effort=effort))
    async with FakeOpenAIServer([GEMINI.body(GEMINI.hi, GEMINI.end)]) as server:
        async with GEMINI.open_model(server.base_url, model) as opened:
            await complete(opened, request)
        assert server.requests[0].json["generationConfig"]["thinkingConfig"] == thinking


async def test_the_seed_has_the_name_that_the_catalogue_gives_it() -> None:
    request = ModelRequest(messages=HELLO.messages, sampling=Sampling(seed=7))
    async with FakeOpenAIServer(["hi"]) as server:
        model = resolve_wire("mistral:mistral-large-latest", base_url=server.base_url, api_key="k")
        assert (await complete(model, request))[1] is None
        assert server.requests[0].json.keys() & {"seed", "random_seed"} == {"random_seed"}


async def test_an_effort_and_an_output_schema_share_an_object_of_the_request() -> None:
    body = await sent(
        RESPONSES, Sampling(reasoning_effort="high", extra_body={"text": {"verbosity": "low"}}), "gpt-5.4"
    )
    assert (body["reasoning"], body["text"]) == ({"summary": "auto", "effort": "high"}, {"verbosity": "low"})


# --- refused before any request -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wire", "model", "sampling", "error"),
    [
        (
            RESPONSES,
            "m",
            Sampling(temperature=1, stop="x", seed=7),
            "openai:m takes no `stop` (the Responses API has no such parameter); "
            "takes no `seed` (the Responses API has no such parameter)",
        ),
        (
            RESPONSES,
            "m",
            Sampling(max_output_tokens=1),
            "openai:m takes `max_output_tokens` from 16, not 1",
        ),
        (ANTHROPIC, "m", Sampling(seed=7), "anthropic:m takes no `seed` (the Messages API has no such parameter)"),
        (ANTHROPIC, "m", Sampling(temperature=1.5), "anthropic:m takes a `temperature` from 0 to 1, not 1.5"),
        (
            ANTHROPIC,
            "m",
            Sampling(reasoning_effort="none"),
            "anthropic:m takes a `reasoning_effort` of low, medium, high, xhigh, max, not none",
        ),
        (
            ANTHROPIC,
            "claude-opus-4-7",
            Sampling(top_p=0.5),
            "anthropic:claude-opus-4-7 takes no `top_p` (the Messages API since Opus 4.7 has no such parameter)",
        ),
        (
            GEMINI,
            "gemini-3-flash-preview",
            Sampling(reasoning_effort="none"),
            "gemini:gemini-3-flash-preview takes a `reasoning_effort` of minimal, low, medium, high, xhigh, not none",
        ),
        (
            OLLAMA,
            "m",
            Sampling(reasoning_effort="max"),
            "ollama:m takes a `reasoning_effort` of none, low, medium, high, not max",
        ),
    ],
)
async def test_a_parameter_that_a_wire_does_not_have_is_refused_by_name(
    wire: ServedWire, model: str, sampling: Sampling, error: str
) -> None:
    assert await refused(wire, sampling, model) == error


@pytest.mark.parametrize(
    ("wire", "extra", "names"),
    [
        (CHAT, {"model": "x", "messages": [], "stream": False, "tools": []}, ("messages", "model", "stream", "tools")),
        (CHAT, {"max_completion_tokens": 9, "temperature": 1}, ("max_completion_tokens", "temperature")),
        (RESPONSES, {"input": "x", "reasoning": {"effort": "low"}}, ("input", "reasoning.effort")),
        (ANTHROPIC, {"system": "x", "output_config": {"effort": "low"}}, ("output_config.effort", "system")),
        (GEMINI, {"contents": [], "generationConfig": {"top_p": 1}}, ("contents", "generationConfig.top_p")),
        (GEMINI, {"generation_config": {}, "system_instruction": {}}, ("generation_config", "system_instruction")),
        (OLLAMA, {"think": True, "options": {"num_ctx": 9}}, ("options.num_ctx", "think")),
    ],
)
async def test_an_extra_body_cannot_replace_a_key_of_the_request(
    wire: ServedWire, extra: dict[str, Any], names: tuple[str, ...]
) -> None:
    listed = ", ".join(f"`{name}`" for name in names)
    assert await refused(wire, Sampling(extra_body=extra)) == (
        f"{wire.name}:m takes no {listed} in `extra_body` (the request has its own)"
    )


async def test_an_object_of_the_request_can_only_be_extended_by_an_object() -> None:
    assert await refused(OLLAMA, Sampling(extra_body={"options": 5})) == (
        "ollama:m takes only an object as `options` of `extra_body`"
    )


@pytest.mark.parametrize(
    ("wire", "extra"),
    [
        (CHAT, {"top_k": 40, "provider": {"order": ["a"]}}),
        (RESPONSES, {"service_tier": "flex", "reasoning": {"context": "all"}}),
        (ANTHROPIC, {"thinking": {"type": "adaptive"}}),
        (GEMINI, {"generationConfig": {"topK": 40}}),
        (OLLAMA, {"keep_alive": "1h", "options": {"top_k": 40}}),
    ],
    ids=lambda value: value.name if isinstance(value, ServedWire) else "",
)
async def test_an_extra_body_is_merged_into_the_request(wire: ServedWire, extra: dict[str, Any]) -> None:
    body = await sent(wire, NUMBERS.updated(Sampling(extra_body=extra)))
    for key, value in extra.items():
        assert {**body[key], **value} == body[key] if isinstance(value, dict) else body[key] == value
    assert body != await sent(wire, Sampling(extra_body=extra))


# --- refused by the server ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wire", "model", "sampling", "message"),
    [
        (CHAT, "m", Sampling(seed=7), "stream_options and seed are not supported"),
        (CHAT, "m", Sampling(extra_body={"top_k": 4}), "response_format: top_k is unknown"),
        (RESPONSES, "gpt-5.4", Sampling(reasoning_effort="max"), "Unsupported parameter: 'reasoning.effort'"),
        (ANTHROPIC, "m", Sampling(max_output_tokens=9000), "max_tokens: 9000 > 4096, which is the maximum"),
        (ANTHROPIC, "m", Sampling(reasoning_effort="low"), "output_config.effort: not supported by this model"),
        (GEMINI, "gemini-3-pro", Sampling(reasoning_effort="medium"), "Thinking level MEDIUM is not supported"),
    ],
    ids=lambda value: value.name if isinstance(value, ServedWire) else "",
)
async def test_a_refusal_of_the_sampling_is_the_error_and_nothing_is_left_out_of_the_request(
    wire: ServedWire, model: str, sampling: Sampling, message: str
) -> None:
    request = ModelRequest(messages=HELLO.messages, sampling=sampling)
    replies = [wire.refusal(400, message)]
    async with FakeOpenAIServer(replies) as server, wire.open_model(server.base_url, model) as opened:
        _, error = await complete(opened, request)
    assert isinstance(error, ModelError)
    assert message in str(error)
    assert len(server.requests) == 1


@pytest.mark.parametrize("wire", SERVED_WIRES, ids=lambda wire: wire.name)
def test_each_wire_accepts_a_temperature_and_an_output_limit(wire: ServedWire) -> None:
    assert wire.model("m").sampling_problems(NUMBERS) == {}
