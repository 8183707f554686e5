"""Errors of the machine are reported by `agx` in one sentence, without a traceback or a bug report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.timeouts import PATIENCE


def run_in_shell(agx: Any, program: str) -> subprocess.CompletedProcess[str]:
    """Run a shell program in which `"$@"` is `agx` in a new Python, which imports all of it."""
    return subprocess.run(
        ["sh", "-c", program, "sh", sys.executable, "-m", "agenticx.cli"],
        cwd=agx.folder,
        env=agx.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


DELETED = "import os; os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')"


@pytest.mark.parametrize("command", ["run hi", "chat", "permissions explain file_read {}", "serve --port 0"])
@pytest.mark.cases(quick=1)
def test_a_deleted_current_folder_is_reported(agx: Any, command: str) -> None:
    done = agx(*command.split(), prepare=DELETED)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "agx: the current folder was deleted; change to another one\n"


@pytest.mark.ci_lane
def test_doctor_still_works_in_a_deleted_folder(agx: Any) -> None:
    done = run_in_shell(agx, 'mkdir gone && cd gone && rmdir ../gone && exec "$@" doctor')
    assert done.returncode == 1
    assert "!!  settings     the current folder was deleted; change to another one\n" in done.stdout


@pytest.mark.parametrize("words", [("run", "say hi"), ("run", "say hi", "--json"), ("doctor",), ("--help",)])
def test_a_full_disk_is_reported(agx: Any, words: tuple[str, ...]) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    with open("/dev/full", "wb") as full:
        done = agx(*words, stdout=full.fileno())
    assert done.returncode == 1
    assert done.stderr == "agx: the output cannot be written: No space left on device\n"


def test_a_store_that_cannot_be_written_is_named_and_doctor_reports_its_folder(agx: Any) -> None:
    pytest.importorskip("resource")
    assert agx("run", "say hi").returncode == 0
    no_space = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))"
    home = agx.environment["AGX_HOME"]
    listed, checked = agx("sessions", "list", prepare=no_space), agx("doctor", prepare=no_space)
    assert (listed.returncode, checked.returncode) == (1, 1)
    assert listed.stderr.startswith(f"agx: '{home}/sessions.db' cannot be opened, as '{home}/")
    assert f"home         AGX_HOME is '{home}', in which nothing can be written: " in checked.stdout


def test_a_disk_that_fills_before_the_first_message_stores_nothing_and_the_turn_runs(
    agx: Any, terminal: Callable[..., Any]
) -> None:
    limits = pytest.importorskip("resource")
    if not hasattr(limits, "prlimit"):
        pytest.skip("needs prlimit")
    screen = terminal("chat")
    screen.wait_for("› ")
    limits.prlimit(screen.process.pid, limits.RLIMIT_FSIZE, (1, limits.RLIM_INFINITY))
    screen.type("say two\n")
    screen.wait_for("this session is not stored: the database failed: ")
    screen.wait_for("\ntwo\n")
    screen.wait_for("› ")
    screen.type("say three\n")
    screen.wait_for("\nthree\n")
    screen.wait_for("› ")
    screen.type("\x04")
    assert screen.exit_code() == 0
    assert screen.screen.count("is not stored") == 1
    assert agx("sessions", "list").stdout == ""


def test_a_search_query_in_a_chat_may_be_any_bytes(agx: Any) -> None:
    (agx.folder / "typed").write_bytes(b"/sessions \xff\n")
    with (agx.folder / "typed").open("rb") as typed:
        done = agx("chat", stdin=typed.fileno())
    assert done.returncode == 0
    assert done.stderr.endswith("no session matches\n")


@pytest.mark.ci_lane
def test_closed_standard_streams_behave_like_dev_null(agx: Any) -> None:
    done = run_in_shell(agx, '"$@" run "Write a.txt with the text hi" --yes <&- >&-')
    assert (done.returncode, done.stdout, (agx.folder / "a.txt").read_text()) == (0, "", "hi")
    assert "Traceback" not in done.stderr
    assert run_in_shell(agx, '"$@" run "say hi" <&- >&- 2>&-').returncode == 0


def test_a_slow_reader_of_a_non_blocking_pipe_gets_all_of_a_long_text(agx: Any) -> None:
    text = "word " * 40_000  # more than a pipe holds
    event = {"type": "token", "data": {"text": text, "message_id": "m"}, "agent_id": "meta", "turn_id": "t"}
    (agx.folder / "talk.jsonl").write_text(json.dumps(event))
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    process = agx.start("sessions", "replay", "./talk.jsonl", stdout=theirs)
    with open(ours, "rb", buffering=0) as out:
        assert out.read(1) == b"w"
        assert os.get_blocking(theirs)
        os.close(theirs)
        assert out.readall().decode() == text[1:]
    assert (process.communicate(timeout=PATIENCE)[1], process.returncode) == ("", 0)


def test_a_home_that_cannot_be_created_is_reported(agx: Any) -> None:
    agx.environment["AGX_HOME"] = "/proc/none"
    done = agx("serve", "--port", "0")
    assert done.returncode in (1, 2)
    assert "/proc/none" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        "run hi",
        "chat",
        "serve --port 0",
        "open",
        "sessions list",
        "model call demo hi",
        "permissions explain file_read {}",
        "doctor",
    ],
)
def test_every_command_reports_a_home_that_is_not_a_folder(agx: Any, command: str) -> None:
    agx.environment["AGX_HOME"] = "/dev/null"
    done = agx(*command.split())
    sentence = "AGX_HOME is '/dev/null'; it must be a folder\n"
    if command == "doctor":
        assert (done.returncode, f"!!  settings     {sentence}" in done.stdout) == (1, True)
    else:
        assert (done.returncode, done.stdout, done.stderr) == (2, "", f"agx: {sentence}")


def test_control_characters_and_line_breaks_in_an_error_message_are_escaped(agx: Any) -> None:
    done = agx("run", "hi", "--cwd", "x\x1b[2J\nagx: all is well")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "\x1b" not in done.stderr


@pytest.mark.parametrize(
    "line",
    [
        '{"a":' * 100_000,
        '{"a":' * 100_000 + "1" + "}" * 100_000,
        '{"type":"zork","data":' + '{"a":' * 974 + "1" + "}" * 975,  # as deep as can be read and not written again
        '{"type":"usage","data":{"input_tokens":' + "9" * 5000 + "}}",
        '{"type":"final","data":{}',
        '["type"]',
        '"type"',
        "{}",
        "hello",
        "\ufeff{}",
    ],
    ids=lambda line: line[:40],
)
def test_a_line_of_a_file_that_is_not_an_event_is_reported_with_its_number(agx: Any, line: str) -> None:
    good = '{"type":"state","data":{"state":"done"},"agent_id":"meta","turn_id":"t"}'
    (agx.folder / "f.jsonl").write_text(f"{good}\n\n{line}\n{good}\n", encoding="utf-8")
    done = agx("sessions", "replay", "f.jsonl")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"agx: f.jsonl, line 3: not a session event: {line.encode()[:80]!r}\n"


INTERRUPTED = """
import os, signal, sys

module, sys.argv[1:] = sys.argv[1], ["run", "hi"]

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt as exc:  # as pydantic does
                raise ValueError("no schema") from exc

sys.meta_path.insert(0, Interrupting())
from agenticx.cli import main
sys.exit(main())
"""


@pytest.mark.parametrize("module", ["agenticx.cli.registry", "agenticx.messages"])
@pytest.mark.cases(quick=1)
def test_ctrl_c_while_the_command_is_imported_exits_with_130_and_no_output(agx: Any, module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, module],
        env=agx.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("unreadable", ["prompts", "prompts/system.md"])
def test_an_unreadable_system_prompt_is_reported_with_its_path_and_not_as_a_bug(agx: Any, unreadable: str) -> None:
    file = Path(agx.environment["AGX_HOME"]) / unreadable
    file.parent.mkdir(parents=True)
    file.write_bytes(b"\xff")
    done = agx("run", "hi")
    assert done.returncode == 2
    assert "prompts/system.md cannot be read: " in done.stderr
    assert "Traceback" not in done.stderr
