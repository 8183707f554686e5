"""Several terminals at once: the first one serves the others, and the next one follows it."""

from __future__ import annotations

import json
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.timeouts import PATIENCE

pytestmark = pytest.mark.ci_lane


@pytest.fixture
def home(agx: Any) -> Path:
    return Path(agx.environment["AGX_HOME"])


def say(chat: Any, text: str) -> None:
    chat.type(f"say {text}\r")
    chat.wait_for(f"\n{text}\n")
    chat.wait_for("› ")


def quit_chat(chat: Any) -> None:
    chat.type("\x04")
    assert chat.exit_code() == 0


def names(agx: Any) -> list[str]:
    return [json.loads(line)["name"] for line in agx("sessions", "list", "--json").stdout.splitlines()]


def test_every_command_works_beside_a_chat_in_the_same_and_in_another_folder(
    agx: Any, terminal: Callable[..., Any], home: Path, tmp_path: Path
) -> None:
    first = terminal("chat")
    first.wait_for("› ")
    say(first, "first")
    (socket,) = home.glob("sessions-*.sock")
    assert stat.S_IMODE(socket.stat().st_mode) == 0o600
    other = tmp_path / "other"
    other.mkdir()
    done = agx("run", "say there", "--cwd", str(other))
    assert (done.returncode, done.stdout, done.stderr) == (0, "there\n", "")
    done = agx("run", "--session", "last", "say again")
    assert (done.returncode, done.stdout) == (0, "again\n")
    piped = agx("chat", stdin="say piped\n")
    assert (piped.returncode, piped.stdout) == (0, "piped\n")
    second = terminal("chat", "-c")
    second.wait_for("› ")
    say(second, "second")
    assert "context <1 % of 100k" in second.screen
    assert agx("sessions", "rename", "last", "Renamed").returncode == 0
    assert names(agx) == ["Renamed", "say there", "say first"]
    assert agx("sessions", "delete", "last", "--yes").returncode == 0
    assert names(agx) == ["say there", "say first"]
    say(first, "still")
    quit_chat(first)
    quit_chat(second)
    assert not list(home.glob("*.sock"))
    assert not (home / "studio.json").exists()


@pytest.mark.parametrize("end", ["quit", "kill"])
def test_a_chat_goes_on_unnoticed_when_the_one_that_has_the_sessions_ends(
    agx: Any, terminal: Callable[..., Any], end: str
) -> None:
    first = terminal("chat")
    first.wait_for("› ")
    say(first, "first")
    second = terminal("chat")
    second.wait_for("› ")
    say(second, "one")
    third = terminal("chat")
    third.wait_for("› ")
    second.type("Write a.txt with the text hi\r")
    second.wait_for("[e]dit: ")
    if end == "quit":
        quit_chat(first)
    else:
        first.process.kill()
        first.process.wait(PATIENCE)
    say(third, "three")
    second.type("y\n")
    second.wait_for("← file_write ok")
    second.wait_for("› ")
    assert (agx.folder / "a.txt").read_text() == "hi"
    took_over = second.screen.count("the terminal that ran the turns has ended; this one runs them now\n")
    assert second.screen.count("[e]dit: ") == 1 + took_over
    assert "model: demo, because" not in second.screen
    assert "[e]dit: " not in first.screen + third.screen
    say(second, "two")
    assert agx("run", "say run").stderr == ""
    for chat in (second, third):
        quit_chat(chat)
        for word in ("server", "process", "sessions;", "lost", "not stored"):
            assert word not in chat.screen
    assert names(agx) == ["say run", "say three", "say one", "say first"]


def test_a_chat_shows_once_what_another_terminal_said_in_its_session(agx: Any, terminal: Callable[..., Any]) -> None:
    first = terminal("chat")
    first.wait_for("› ")
    say(first, "first")
    second = terminal("chat", "-c")
    second.wait_for("› ")
    say(second, "second")
    assert agx("run", "-c", "say run").stdout == "run\n"
    first.type("say mine\r")
    first.wait_for(
        "meanwhile in this session, from another window:\n› say second\nsecond\n› say run\nrun\n› say mine\nmine\n"
    )
    first.wait_for("› ")
    second.type("/rename Both\r")
    second.wait_for("name: Both\n")
    second.wait_for("› say run\nrun\n› say mine\nmine\n")
    say(second, "end")
    assert "say run" not in second.screen.partition("say end")[2]
    assert "say first" not in second.screen.partition("meanwhile")[2]
    quit_chat(first)
    assert first.screen.count("› say second\n") == 1
    quit_chat(second)


def test_a_turn_of_another_terminal_ends_before_the_chat_that_runs_it(agx: Any, terminal: Callable[..., Any]) -> None:
    first = terminal("chat")
    first.wait_for("› ")
    with agx.start("run", "count to 600") as running:
        assert running.stdout.read(4) == "1 2 "
        first.type("\x04")
        first.wait_for("waiting for the turn of another terminal to end; Ctrl-C stops it")
        out, err = running.communicate(timeout=PATIENCE)
        assert out.endswith(" 599 600\n")
        assert (running.returncode, err) == (0, "")
    assert first.exit_code() == 0


def test_a_run_that_may_do_everything_answers_no_question_of_another_terminal(
    agx: Any, terminal: Callable[..., Any], provider: Any
) -> None:
    provider.hold = True
    provider.events('{"choices": [{"delta": {"content": "hi"}}]}')
    agx.environment.update({"OPENAI_API_KEY": "key", "OPENAI_BASE_URL": provider.base_url})
    with agx.start("run", "hi", "--yes", "--model", "openai-chat:some") as owner:
        assert owner.stdout.read(2) == "hi"
        chat = terminal("chat")
        chat.wait_for("› ")
        chat.type("Write a.txt with the text hi\r")
        chat.wait_for("[e]dit: ")
        owner.send_signal(signal.SIGINT)
        assert owner.wait(PATIENCE) == 130
        chat.type("n\n")
        chat.wait_for("denied by you")
        chat.wait_for("› ")
        quit_chat(chat)
    assert not (agx.folder / "a.txt").exists()


def test_a_server_takes_the_sessions_over_from_terminals_between_two_turns(
    agx: Any, terminal: Callable[..., Any]
) -> None:
    first = terminal("chat")
    first.wait_for("› ")
    second = terminal("chat")
    second.wait_for("› ")
    second.type("count to 600\r")
    second.wait_for("1 2 3")
    with agx.start("serve", "--port", "0") as server:
        assert "waiting for the turn of the chat" in server.stderr.readline()
        second.wait_for("599 600")
        second.wait_for("› ")
        assert "/#" in server.stderr.readline()
        for chat in (first, second):
            say(chat, "on")
            assert f"(process {server.pid})" in chat.screen
            quit_chat(chat)
        server.terminate()


def test_terminals_find_each_other_in_a_home_whose_path_is_too_long_for_a_socket(
    agx: Any, terminal: Callable[..., Any], tmp_path: Path
) -> None:
    agx.environment["AGX_HOME"] = str(tmp_path / ("long" * 30))
    first = terminal("chat")
    first.wait_for("› ")
    say(first, "first")
    done = agx("run", "say second")
    assert (done.returncode, done.stdout, done.stderr) == (0, "second\n", "")
    with agx.start("serve", "--port", "0") as server:
        assert "/#" in server.stderr.readline()
        say(first, "third")
        server.terminate()
    quit_chat(first)
    assert len(names(agx)) == 2
