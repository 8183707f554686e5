"""`agx model call --json` against a loopback server: the Reply as the wire contract prints it."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest

from agenticx.untrusted_text import MATERIAL, frame_text
from tests.support.wires import files

NOTHING = {"input_tokens": None, "output_tokens": None, "cached_tokens": None, "reasoning_tokens": None}


def delta(finish: str | None = None, **delta: object) -> str:
    return json.dumps({"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def call(index: int, name: str, arguments: str) -> dict[str, object]:
    function = {"name": name, "arguments": arguments}
    return {"index": index, "id": f"call_{index}", "type": "function", "function": function}


@pytest.fixture
def ask(agx: Any, provider: Any) -> Any:
    """Return a function that makes one call and returns its exit code and the JSON that it printed."""

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


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{"a": 1}', {"a": 1}),
        ("", {}),
        ("[1]", [1]),
        ("null", None),
        ('{"a": ', '{"a": '),
        ('{"a": 1, "a": 2}', '{"a": 1, "a": 2}'),
        ('{"a": NaN}', '{"a": NaN}'),
    ],
)
def test_arguments_are_printed_as_their_json_value_or_as_text(
    ask: Any, provider: Any, text: str, arguments: Any
) -> None:
    provider.events(delta(tool_calls=[call(0, "add", text)]), delta(finish="tool_calls"), "[DONE]")
    assert ask()[1]["tool_calls"] == [{"id": "call_0", "name": "add", "arguments": arguments}]


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


def test_a_second_message_in_one_stream_is_a_protocol_error(agx: Any, provider: Any) -> None:
    start = {"type": "message_start", "message": {"id": "msg_1", "role": "assistant", "content": []}}
    block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Hi"}}
    again = {**start, "message": {**start["message"], "id": "msg_2"}}
    end = [{"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"}]
    provider.events(*map(json.dumps, [start, block, again, block, *end]))
    done = agx("model", "call", "anthropic:x", "hello", "--base-url", provider.base_url, "--json")
    reply = json.loads(done.stdout)
    assert (done.returncode, reply["text"], reply["complete"]) == (1, "Hi", False)
    assert reply["error"]["type"] == "protocol_error"


def test_a_stalled_server_fails_the_call_with_the_clock_that_expired(ask: Any, agx: Any, provider: Any) -> None:
    agx.environment["AGX_LLM_HEARTBEAT_TIMEOUT_SECONDS"] = "0.2"
    provider.events(delta(content="Hel"))
    provider.hold = True
    code, reply = ask()
    assert (code, reply["text"], reply["error"]["type"]) == (1, "Hel", "timeout.heartbeat")
    assert reply["error"]["message"] == "the model sent nothing more for 0.2 s (AGX_LLM_HEARTBEAT_TIMEOUT_SECONDS)"


def test_an_unreachable_server_is_a_transport_error(agx: Any) -> None:
    done = agx("model", "call", "openai-chat:x", "hello", "--base-url", "http://127.0.0.1:9/v1", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["error"]["type"] == "provider.transport"


def test_without_json_only_the_text_is_printed_to_stdout(agx: Any, provider: Any) -> None:
    provider.events(delta(content="Hello"), delta(tool_calls=[call(0, "add", "{}")]), delta(finish="tool_calls"))
    done = agx("model", "call", "openai-chat:x", "hello", "--base-url", provider.base_url)
    assert (done.returncode, done.stdout, done.stderr) == (0, "Hello\n", "→ add {}\n")


def test_the_system_message_is_sent_first_and_no_tools(ask: Any, provider: Any) -> None:
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


def test_attached_files_are_sent_with_the_call(agx: Any, ask: Any, provider: Any) -> None:
    (agx.folder / "a.png").write_bytes(files.contents["image/png"])
    (agx.folder / "b.txt").write_text("words")
    provider.events(delta(content="seen"), delta(finish="stop"), "[DONE]")
    code, reply = ask("--attach", "a.png", "--attach", "b.txt")
    assert (code, reply["text"]) == (0, "seen")
    picture = b64encode(files.contents["image/png"]).decode()
    assert json.loads(provider.requests[0])["messages"] == [
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture}"}},
                {"type": "text", "text": frame_text("attached file b.txt (text/plain, 5 bytes)", "words", MATERIAL)},
                {"type": "text", "text": "hello"},
            ],
        }
    ]


def test_a_model_without_vision_gets_a_placeholder_for_an_image(
    agx: Any, ask: Any, provider: Any, tmp_path: Any
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "models.toml").write_text('[models."openai:x"]\ncapabilities = ["tools"]\n')
    (agx.folder / "a.png").write_bytes(files.contents["image/png"])
    provider.events(delta(content="no"), delta(finish="stop"), "[DONE]")
    assert ask("--attach", "a.png")[0] == 0
    placeholder = "a.png (image/png, 67 bytes): its content is not here, because you cannot be given files of this type"
    assert json.loads(provider.requests[0])["messages"] == [
        {"role": "user", "content": f"[attached file {placeholder}]\n\nhello"}
    ]


def test_a_refused_attachment_prevents_the_call(agx: Any, provider: Any) -> None:
    (agx.folder / "a.zip").write_bytes(b"PK\x03\x04\0")
    (agx.folder / "big.txt").write_text("x" * (512 * 1024 + 1))
    for name, words in (
        ("a.zip", "'a.zip' is neither a PNG"),
        ("gone.png", "'gone.png' is not a file"),
        ("big.txt", "'big.txt' has 524289 bytes; a text file may have 512 KiB"),
    ):
        done = agx("model", "call", "openai-chat:x", "hi", "--base-url", provider.base_url, "--attach", name)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"agx model call: --attach: {words}" in done.stderr
    assert provider.requests == []
