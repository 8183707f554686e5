"""`agx run` with the demo model: its output streams and its exit codes."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from agenticx.cli.commands.message_input import MAX_PROMPT_CHARS
from agenticx.testing import check_grammar, outline
from agenticx.untrusted_text import MATERIAL, frame_text
from studio.routes.turns import StartTurnBody
from tests.support.closed_port import closed_port
from tests.support.timeouts import PATIENCE

TOO_LONG = "a message has at most 4,000,000 characters; put longer text into a file"

INTERRUPTED = (130, -signal.SIGINT)
"""The exit codes of a process whose second Ctrl-C may arrive while it is exiting; a shell reports both as 130."""


def envelopes(stdout: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stdout.splitlines()]


def test_only_the_text_goes_to_stdout(agx: Any) -> None:
    done = agx("run", "say good morning")
    assert (done.returncode, done.stdout, done.stderr) == (0, "good morning\n", "")


def test_calls_and_results_go_to_stderr(agx: Any) -> None:
    (agx.folder / "a.txt").write_text("alpha\n")
    done = agx("run", "read a.txt")
    assert done.returncode == 0
    assert "alpha" in done.stdout
    assert done.stderr.startswith("→ file_read path=a.txt\n← file_read ok")
    assert "→" not in done.stdout


def test_stderr_names_the_files_with_instructions(agx: Any) -> None:
    (agx.folder / "AGENTS.md").write_text("Use tabs.")
    done = agx("run", "say hi")
    assert (done.stdout, done.stderr) == ("hi\n", "instructions: AGENTS.md\n")


def test_an_agents_file_that_is_left_out_is_named_by_run_and_doctor(agx: Any) -> None:
    (agx.folder / ".env").write_text("TOKEN=CANARY")
    (agx.folder / "AGENTS.md").symlink_to(".env")
    done = agx("run", "say hi")
    reason = "it leads to '.env', which usually holds keys or passwords"
    assert f"instructions: AGENTS.md (left out: {reason})\n" in done.stderr
    assert "WARNING" not in done.stderr
    finding = f"--  instructions {agx.folder / 'AGENTS.md'} is left out: {reason}\n"
    assert finding in agx("doctor").stdout


@pytest.mark.ci_lane
def test_the_log_of_a_turn_is_shown_only_if_its_level_was_set(agx: Any) -> None:
    (agx.folder / "a.txt").write_text("alpha\n")
    assert "llm_call" not in agx("run", "read a.txt").stderr
    agx.environment["AGX_LOG_LEVEL"] = "info"
    words = [line.split()[4] for line in agx("run", "read a.txt").stderr.splitlines() if " INFO " in line]
    assert words == ["llm_call", "tool_call", "llm_call", "turn"]


def test_a_number_outside_its_range_is_pointed_out_once(agx: Any) -> None:
    (agx.folder / ".agenticx").mkdir()
    (agx.folder / ".agenticx" / "settings.toml").write_text("max_tool_rounds = 1000000\n")
    done = agx("run", "say hi")
    assert (done.returncode, done.stdout) == (0, "hi\n")
    assert done.stderr == (
        "max_tool_rounds is 1000000; using 120, the nearest from 10 to 120\n"
        "settings of .agenticx/settings.toml: max_tool_rounds = 120\n"
    )


def test_a_limit_of_the_folder_is_named_where_it_ends_a_call(agx: Any) -> None:
    (agx.folder / ".agenticx").mkdir()
    (agx.folder / ".agenticx" / "settings.toml").write_text("tool_timeout_seconds = 2\n")
    done = agx("run", "run sleep 60", "--yes")
    assert done.stderr.startswith("settings of .agenticx/settings.toml: tool_timeout_seconds = 2.0\n")
    assert "bash_exec did not finish within 2 s (tool_timeout_seconds in .agenticx/" in done.stderr


def test_the_prompt_can_come_from_stdin(agx: Any) -> None:
    assert agx("run", "-", stdin="say from a pipe\n").stdout == "from a pipe\n"


@pytest.mark.parametrize(
    ("stdin", "framed"),
    [("one\ntwo\n\n", "one\ntwo\n\n"), ("a\x1b[31mb\n", "a\x1b[31mb\n"), ("", None), (" \n", None)],
    ids=["text", "controls", "nothing", "blanks"],
)
@pytest.mark.cases(quick=2)
def test_piped_input_comes_after_the_task(agx: Any, stdin: str, framed: str | None) -> None:
    rows = envelopes(agx("run", "say this:", "--json", stdin=stdin).stdout)
    after = "" if framed is None else "\n\n" + frame_text("standard input", framed, MATERIAL)
    assert rows[0]["data"]["input"] == f"say this:{after}"


def test_a_file_as_input_comes_after_the_task(agx: Any) -> None:
    (agx.folder / "a.txt").write_text("alpha")
    with (agx.folder / "a.txt").open() as file:
        assert agx("run", "say", stdin=file.fileno()).stdout == "alpha\n"


@pytest.mark.ci_lane
def test_an_open_pipe_that_brings_nothing_is_left_alone(agx: Any) -> None:
    with agx.start("run", "say alone", stdin=subprocess.PIPE) as process:
        out, err = process.stdout.read(), process.stderr.read()
    assert (process.returncode, out) == (0, "alone\n")
    assert err == "agx: standard input brought nothing for 3 s and is left alone; - waits for it\n"


@pytest.mark.parametrize(
    "command",
    [
        ["run", "say hi", "--model", "demo"],
        ["run", "say hi"],
        ["model", "call", "demo", "x"],
        ["chat", "--model", "demo"],
    ],
)
def test_a_base_url_with_the_demo_is_a_usage_error(agx: Any, command: list[str]) -> None:
    done = agx(*command, "--base-url", "http://127.0.0.1:9/v1")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("agx: --base-url cannot be used with demo, which is offline; ")


@pytest.mark.parametrize("options", [[], ["--model", "tiny"]])
def test_a_base_url_that_is_no_address_is_refused_before_it_is_asked(agx: Any, options: list[str]) -> None:
    done = agx("run", "say hi", "--base-url", "127.0.0.1:8080/v1", *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "agx: '127.0.0.1:8080/v1' is not an address such as http://127.0.0.1:8080/v1\n"


CUT = '{"choices": [{"index": 0, "delta": {"content": "half an ans"}, "finish_reason": "length"}]}'
EMPTY = '{"choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "stop"}]}'


@pytest.mark.parametrize(
    ("chunk", "out", "note", "bare_note"),
    [
        (EMPTY, "", "the model's answer is empty", "agx model call: the reply is empty"),
        (
            CUT,
            "half an ans\n",
            "the answer is incomplete: it was cut off, or its model calls or its time were used up",
            "agx model call: the reply was cut at the output limit of the model",
        ),
    ],
)
@pytest.mark.cases(quick=1)
def test_an_empty_reply_and_a_cut_one_are_pointed_out(
    agx: Any, provider: Any, chunk: str, out: str, note: str, bare_note: str
) -> None:
    provider.events(chunk, "[DONE]")
    done = agx("run", "hello", "--model", "openai-chat:tiny", "--base-url", provider.base_url)
    assert (done.returncode, done.stdout, done.stderr) == (0, out, f"{note}\n")
    done = agx("model", "call", "openai-chat:tiny", "hello", "--base-url", provider.base_url)
    assert (done.returncode, done.stdout, done.stderr) == (0, out, f"{bare_note}\n")


def test_a_refused_connection_to_this_machine_fails_at_once(agx: Any) -> None:
    with closed_port() as port:
        agx.environment["OLLAMA_HOST"] = f"127.0.0.1:{port}"
        done = agx("run", "hello", "--model", "ollama:qwen3")
    assert (done.returncode, done.stdout) == (1, "")
    assert "retry" not in done.stderr
    assert done.stderr.endswith(" could not be reached: nothing listens there; is Ollama running?\n")


def test_retries_are_shown_with_their_number_and_wait(agx: Any, provider: Any) -> None:
    provider.status, provider.body = 503, b'{"error": {"message": "busy"}}'
    provider.headers["Retry-After"] = "1"
    agx.environment["AGX_LLM_ATTEMPTS"] = "2"
    done = agx("run", "hello", "--model", "openai-chat:tiny", "--base-url", provider.base_url)
    notes = done.stderr.splitlines()
    assert notes[0] == "… openai-chat:tiny answered with HTTP 503: busy; retry 1 in 1 s"
    assert notes[1].startswith("error (provider.overloaded): ")
    assert len(provider.requests) == 2


def test_invalid_utf8_in_a_prompt_is_replaced(agx: Any) -> None:
    agx.environment["PYTHONIOENCODING"] = "utf-8:strict"  # as in most people's locales
    process = agx.start("run", "-")
    process.stdin.buffer.write(b"say a\xffb")
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err) == (0, "a\ufffdb\n", "")


@pytest.mark.parametrize("command", [["run"], ["model", "call", "demo"]])
@pytest.mark.parametrize(("prompt", "stdin"), [("-", " \n"), ("-", ""), ("", "say hi")])
def test_an_empty_prompt_is_a_usage_error(agx: Any, command: list[str], prompt: str, stdin: str) -> None:
    done = agx(*command, prompt, stdin=stdin)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "agx: the prompt is empty; pass it as an argument, or - to read it from stdin\n"


@pytest.mark.parametrize("command", [["run"], ["model", "call", "demo"]])
def test_a_prompt_that_is_too_long_is_a_usage_error_before_stdin_ends(agx: Any, command: list[str]) -> None:
    with agx.start(*command, "-") as process:
        with suppress(BrokenPipeError):
            while True:
                process.stdin.write("y\n" * 100_000)
        err = process.stderr.read()
        with suppress(BrokenPipeError):  # what is left of the last write
            process.stdin.close()
    assert (process.returncode, err) == (2, f"agx: {TOO_LONG}\n")
    assert not Path(agx.environment["AGX_HOME"]).exists()


def test_the_prompt_limit_equals_that_of_the_server() -> None:
    assert StartTurnBody(input="x" * MAX_PROMPT_CHARS).input
    with pytest.raises(ValidationError, match="at most 4000000"):
        StartTurnBody(input="x" * (MAX_PROMPT_CHARS + 1))


def test_json_prints_one_envelope_per_line_in_the_order_of_the_grammar(agx: Any) -> None:
    (agx.folder / "a.txt").write_text("alpha\n")
    done = agx("run", "read a.txt", "--json")
    rows = envelopes(done.stdout)
    check_grammar(rows)
    assert done.returncode == 0
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
    assert len({row["session_id"] for row in rows}) == len({row["turn_id"] for row in rows}) == 1
    assert [name for name in outline(rows) if not name.startswith(("token", "tool_call_delta"))] == [
        "turn_started",
        "round_start",
        "tool_call",
        "tool_result",
        "round_start",
        "final",
    ]
    assert done.stderr == ""


def test_the_workspace_is_the_current_folder_or_cwd(agx: Any, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    for options, folder in (((), agx.folder), (("--cwd", str(tmp_path / "elsewhere")), tmp_path / "elsewhere")):
        done = agx("run", "Write note.txt with the text hi", "--yes", *options)
        assert done.returncode == 0, done.stderr
        assert (folder / "note.txt").read_text() == "hi"


def test_a_cwd_that_is_not_a_folder_is_a_usage_error(agx: Any) -> None:
    done = agx("run", "hello", "--cwd", "nowhere")
    assert (done.returncode, done.stderr) == (2, "agx: --cwd 'nowhere' is not a folder\n")


def test_yes_allows_by_policy_and_emits_both_confirm_events(agx: Any) -> None:
    done = agx("run", "Write note.txt with the text hi", "--yes", "--json")
    rows = envelopes(done.stdout)
    check_grammar(rows)
    asked = next(row["data"] for row in rows if row["type"] == "confirm_required")
    answered = next(row["data"] for row in rows if row["type"] == "confirm_response")
    assert answered == {"id": asked["id"], "approved": True, "by": "policy"}
    assert (agx.folder / "note.txt").read_text() == "hi"


def test_without_a_terminal_and_without_yes_a_question_is_denied_with_a_note(agx: Any) -> None:
    done = agx("run", "Write note.txt with the text hi")
    assert done.returncode == 0
    assert "denied by policy: there is no terminal to ask at; --yes would allow it\n" in done.stderr
    assert not (agx.folder / "note.txt").exists()


def test_auto_mode_asks_nothing(agx: Any) -> None:
    done = agx("run", "Write note.txt with the text hi", "--permission-mode", "auto", "--json")
    assert not any(row["type"].startswith("confirm") for row in envelopes(done.stdout))
    assert (agx.folder / "note.txt").read_text() == "hi"


def test_a_fatal_error_is_exit_code_1_and_is_printed_on_stderr(agx: Any, provider: Any) -> None:
    provider.status, provider.body = 401, b'{"error": {"message": "who are you", "type": "invalid_request_error"}}'
    done = agx("run", "hello", "--model", "openai-chat:x", "--base-url", provider.base_url)
    assert (done.returncode, done.stdout) == (1, "")
    assert "error (provider.auth): " in done.stderr


def test_a_note_is_printed_if_no_model_is_configured_and_the_demo_answers(agx: Any) -> None:
    del agx.environment["AGX_MODEL"]
    done = agx("run", "say hello")
    assert done.returncode == 0
    assert "demo" in done.stderr
    assert done.stdout == "hello\n"


@pytest.mark.parametrize("command", [("run", "hi"), ("chat",)])
@pytest.mark.parametrize(("model", "shown", "length"), [("", "", 0), ("m" * 201, "m" * 100, 201)])
def test_a_model_name_of_no_model_is_a_usage_error(
    agx: Any, command: tuple[str, ...], model: str, shown: str, length: int
) -> None:
    done = agx(*command, "--model", model)
    sentence = f"agx: --model {shown!r}: the name of a model must have 1 to 200 characters, not {length}\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", sentence)


def test_control_characters_in_a_model_name_are_escaped(agx: Any, provider: Any) -> None:
    del agx.environment["AGX_MODEL"]
    agx.environment["ACME_API_KEY"] = "x"
    home = Path(agx.environment["AGX_HOME"])
    home.mkdir()
    row = f'base_url = "{provider.base_url}"\nkeys = ["ACME_API_KEY"]\nmodel = "large\\u001b[2J"\n'
    (home / "models.toml").write_text(f"[providers.acme]\n{row}")
    provider.status = 401
    done = agx("run", "hello")
    assert "model: acme:large⟨U+001B⟩[2J, because ACME_API_KEY is set" in done.stderr
    assert "\x1b" not in done.stderr


def test_ctrl_c_stops_the_turn_with_its_terminal_event(agx: Any) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        process = agx.start("run", "count to 9999", "--json")
        rows = [json.loads(process.stdout.readline())]
        while rows[-1]["type"] != "token":
            rows.append(json.loads(process.stdout.readline()))
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)
        rows += envelopes(out)
        check_grammar(rows)
        assert rows[-1]["data"]["code"] == "stopped"
        assert process.returncode == 130
        assert err == "stopping … (Ctrl-C again exits at once)\n"


def test_a_second_ctrl_c_exits_at_once(agx: Any, provider: Any) -> None:
    process = agx.start("run", "count to 9999")
    process.stdout.read(4)
    process.send_signal(signal.SIGINT)
    assert process.stderr.readline() == "stopping … (Ctrl-C again exits at once)\n"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE)
    assert process.returncode in INTERRUPTED


def test_a_closed_stdout_ends_the_turn_without_a_traceback(agx: Any) -> None:
    process = agx.start("run", "count to 9999", "--json")
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(PATIENCE) == 1
    assert process.stderr.read() == ""
    process.stderr.close()


def test_attached_files_are_sent_and_the_log_names_them(agx: Any) -> None:
    (agx.folder / "a.csv").write_text("1,2\n")
    (agx.folder / "b.txt").write_text("words")
    rows = envelopes(agx("run", "say hi", "--attach", "a.csv", "--attach", "b.txt", "--json").stdout)
    check_grammar(rows)
    assert rows[0]["data"]["attachments"] == [
        {"name": "a.csv", "media_type": "text/plain", "size": 4, "sha256": sha256(b"1,2\n").hexdigest()},
        {"name": "b.txt", "media_type": "text/plain", "size": 5, "sha256": sha256(b"words").hexdigest()},
    ]


def test_a_refused_attachment_is_a_usage_error(agx: Any) -> None:
    (agx.folder / "a.zip").write_bytes(b"PK\x03\x04\0")
    for name, words in (("a.zip", "'a.zip' is neither a PNG"), ("gone.png", "'gone.png' is not a file")):
        done = agx("run", "say hi", "--attach", name)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"agx run: --attach: {words}" in done.stderr


def test_a_task_needs_no_quotes_and_a_misspelt_option_is_named(agx: Any) -> None:
    assert agx("run", "say", "hello", "there", "-m", "demo").stdout == "hello there\n"
    done = agx("run", "--modle", "demo", "say hi")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("unrecognized arguments: --modle; did you mean --model?\n")


@pytest.mark.ci_lane
def test_an_address_alone_is_asked_for_its_models(agx: Any, provider: Any) -> None:
    provider.events('{"choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}]}', "[DONE]")
    del agx.environment["AGX_MODEL"]
    done = agx("run", "--base-url", provider.base_url, "hello")
    assert (done.returncode, done.stdout) == (0, "hi\n")
    assert done.stderr == f"model: openai-chat:tiny, the first of 2 that {provider.base_url} lists\n"
    again = agx("run", "-c", "hello")
    assert (again.returncode, again.stdout, again.stderr) == (0, "hi\n", "")
    other = agx("run", "-c", "--base-url", provider.base_url, "-m", "openai-chat:big", "hello")
    assert (other.returncode, other.stdout, other.stderr) == (0, "hi\n", "")
    assert [json.loads(request)["model"] for request in provider.requests] == ["tiny", "tiny", "big"]
    assert (Path(agx.environment["AGX_HOME"]) / "model_addresses").stat().st_mode & 0o777 == 0o600


@pytest.mark.ci_lane
def test_a_terminal_shows_what_is_waited_for_from_one_second_on(agx: Any, terminal: Callable[..., Any]) -> None:
    (agx.folder / "long.txt").write_text("words and words\n" * 1_000)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        agx.environment |= {
            "OPENAI_API_KEY": "key",
            "OPENAI_BASE_URL": f"http://127.0.0.1:{silent.getsockname()[1]}/v1",
        }
        screen = terminal("run", "hi", "-m", "openai-chat:some")
        screen.wait_for("… waiting for the model (")
        assert screen.interrupt() == 130
        agx("run", "say hi", "--attach", "long.txt", "-m", "demo")
        screen = terminal("chat", "-c", "-m", "openai-chat:some")
        screen.wait_for("› ")
        screen.type("/compact\r")
        screen.wait_for("… summarising earlier messages (")
        screen.type("\x03")
        screen.wait_for("the turn was stopped")


@pytest.mark.ci_lane
def test_a_plain_model_name_at_an_address_is_that_of_a_server_that_speaks_chat(agx: Any, provider: Any) -> None:
    provider.events('{"choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}]}', "[DONE]")
    for name in ("plain", "deepseek-r1:8b"):
        done = agx("run", "--base-url", provider.base_url, "-m", name, "go")
        assert (done.returncode, done.stdout) == (0, "hi\n")
        assert done.stderr == f"{provider.base_url} may have no model {name!r}: it lists tiny, big\n"
        done = agx("model", "call", name, "go", "--base-url", provider.base_url)
        assert (done.returncode, done.stdout) == (0, "hi\n")
    assert "1 call, tokens not reported" in agx("sessions", "show", "last").stdout


def test_an_address_where_nothing_listens_cannot_be_reached(agx: Any) -> None:
    del agx.environment["AGX_MODEL"]
    done = agx("run", "--base-url", "http://127.0.0.1:1/v1", "say", "hi")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("agx: http://127.0.0.1:1/v1 cannot be reached: ")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("run", "-m", "demoo", "hi"), "did you mean 'demo'?"),
        (("run", "-m", "opnai:gpt", "hi"), "did you mean 'openai:gpt'?"),
        (("run", "--permission-mode", "autoo", "hi"), "did you mean auto?"),
        (("sessions", "lst"), "did you mean list?"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_one_that_may_be_meant(
    agx: Any, words: tuple[str, ...], meant: str
) -> None:
    done = agx(*words)
    assert done.returncode == 2
    assert meant in done.stderr


@pytest.mark.ci_lane
def test_a_name_of_a_session_and_a_search_need_no_quotes(agx: Any) -> None:
    agx("run", "say", "hi")
    assert agx("sessions", "rename", "last", "My", "new", "name").returncode == 0
    assert "My new name" in agx("sessions", "list", "new", "name").stdout
    assert agx("sessions", "rename", "last", "").returncode == 0
    assert "(without a name)" in agx("sessions", "list").stdout
