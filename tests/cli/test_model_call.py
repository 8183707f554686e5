"""`agx model call --json` against a loopback server: the Reply as the wire contract prints it."""

from __future__ import annotations

import json
from typing import Any

import pytest

NOTHING = {"input_tokens": None, "output_tokens": None, "cached_tokens": None, "reasoning_tokens": None}


def delta(finish: str | None = None, **delta: object) -> str:
    return json.dumps({"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def call(index: int, name: str, arguments: str) -> dict[str, object]:
    function = {"name": name, "arguments": arguments}
    return {"index": index, "id": f"call_{index}", "type": "function", "function": function}


@pytest.fixture
def ask(agx: Any, provider: Any) -> Any:
    """One call, its exit code and the one line it printed."""

    def ask(*options: str) -> tuple[int, dict[str, Any]]:
        done = agx("model", "call", "openai-chat:x", "hello", "--base-url", provider.base_url, "--json", *options)
        assert done.stdout.count("\n") == 1, done.stderr
        return done.returncode, json.loads(done.stdout)

    return ask


def test_a_reply_with_text_calls_and_usage(ask: Any, provider: Any) -> None:
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    provider.events(
        delta(role="assistant", content="Hel"),
        delta(content="lo"),
        delta(tool_calls=[call(0, "add", '{"a": 1}')]),
        delta(finish="tool_calls"),
        json.dumps({"id": "c", "choices": [], "usage": usage}),
        "[DONE]",
    )
    assert ask() == (
        0,
        {
            "text": "Hello",
            "reasoning": "",
            "tool_calls": [{"id": "call_0", "name": "add", "arguments": {"a": 1}}],
            "finish_reason": "tool_calls",
            "usage": NOTHING | {"input_tokens": 7, "output_tokens": 3},
            "complete": True,
            "error": None,
        },
    )


def test_arguments_that_are_no_object_stay_text(ask: Any, provider: Any) -> None:
    provider.events(delta(tool_calls=[call(0, "add", '{"a": ')]), delta(finish="tool_calls"), "[DONE]")
    assert ask()[1]["tool_calls"] == [{"id": "call_0", "name": "add", "arguments": '{"a": '}]


def test_the_input_of_a_freeform_tool_is_a_string(agx: Any, provider: Any) -> None:
    item = {"type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": '{"a": 1}'}
    provider.events(
        json.dumps({"type": "response.output_item.done", "output_index": 0, "item": item}),
        json.dumps({"type": "response.completed", "response": {"status": "completed"}}),
    )
    done = agx("model", "call", "openai:x", "hello", "--base-url", provider.base_url, "--json")
    assert json.loads(done.stdout)["tool_calls"] == [{"id": "c1", "name": "patch", "arguments": '{"a": 1}'}]


def test_a_stream_without_its_end_marker_is_truncated_and_keeps_its_text(ask: Any, provider: Any) -> None:
    provider.events(delta(content="Hel"))
    code, reply = ask()
    assert (code, reply["text"], reply["complete"]) == (1, "Hel", False)
    assert reply["error"] == {
        "type": "provider.truncated",
        "message": "the stream ended without its end marker",
    }


def test_the_provider_s_own_error_type_is_printed(ask: Any, provider: Any) -> None:
    provider.status = 400
    provider.body = json.dumps({"error": {"message": "no such thing", "type": "invalid_request_error"}}).encode()
    code, reply = ask()
    assert (code, reply["error"]["type"]) == (1, "invalid_request_error")
    assert "no such thing" in reply["error"]["message"]


def test_a_server_that_falls_silent_is_given_up_by_the_clock_that_ran_out(ask: Any, agx: Any, provider: Any) -> None:
    agx.environment["AGX_LLM_HEARTBEAT_TIMEOUT_SECONDS"] = "0.2"
    provider.events(delta(content="Hel"))
    provider.hold = True
    code, reply = ask()
    assert (code, reply["text"], reply["error"]["type"]) == (1, "Hel", "timeout.heartbeat")


def test_a_server_that_is_not_there_is_a_transport_error(agx: Any) -> None:
    done = agx("model", "call", "openai-chat:x", "hello", "--base-url", "http://127.0.0.1:9/v1", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["error"]["type"] == "provider.transport"


def test_without_json_the_text_goes_to_stdout_and_the_rest_to_stderr(agx: Any, provider: Any) -> None:
    provider.events(delta(content="Hello"), delta(tool_calls=[call(0, "add", "{}")]), delta(finish="tool_calls"))
    done = agx("model", "call", "openai-chat:x", "hello", "--base-url", provider.base_url)
    assert (done.returncode, done.stdout, done.stderr) == (0, "Hello\n", "→ add {}\n")


def test_the_system_message_goes_first_and_no_tools_are_offered(ask: Any, provider: Any) -> None:
    provider.events(delta(content="Hi"), delta(finish="stop"), "[DONE]")
    ask("--system", "Be brief.")
    sent = json.loads(provider.requests[0])
    assert [(message["role"], message["content"]) for message in sent["messages"]] == [
        ("system", "Be brief."),
        ("user", "hello"),
    ]
    assert "tools" not in sent


def test_the_demo_model_can_be_called(agx: Any) -> None:
    done = agx("model", "call", "demo", "say hello")
    assert (done.returncode, done.stdout) == (0, "hello\n")


def test_an_unknown_provider_is_a_usage_error(agx: Any) -> None:
    done = agx("model", "call", "nobody:x", "hello", "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "nobody" in done.stderr
