"""Several terminals at once: the first one serves the others, and the next one follows it."""

from __future__ import annotations

import asyncio
import json
import signal
import stat
from collections.abc import Callable, Generator
from contextlib import AsyncExitStack, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agenticx.cli.client.base import SessionInfo
from agenticx.cli.client.http import ServerEndpoint
from agenticx.cli.client.remote import RemoteClient
from tests.support.program import LONG_HOLD
from tests.support.timeouts import PATIENCE

pytestmark = pytest.mark.ci_lane


@pytest.fixture
def home(agx: Any) -> Path:
    return Path(agx.environment["AGX_HOME"])


def say(chat: Any, text: str) -> None:
    chat.type(f"say {text}\r")
    chat.wait_for(f"\n{text}\n")
    chat.wait_for("› ")


def begin_chat(terminal: Callable[..., Any], text: str, *options: str, prepare: str = "") -> Any:
    """Open a chat in a terminal, say a text there and return it."""
    chat = terminal("chat", *options, prepare=prepare)
    chat.wait_for("› ")
    say(chat, text)
    return chat


def quit_chat(chat: Any) -> None:
    chat.type("\x04")
    assert chat.exit_code() == 0


def names(agx: Any) -> list[str]:
    return [json.loads(line)["name"] for line in agx("sessions", "list", "--json").stdout.splitlines()]


def test_every_command_works_beside_a_chat_in_the_same_and_in_another_folder(
    agx: Any, terminal: Callable[..., Any], home: Path, tmp_path: Path
) -> None:
    first = begin_chat(terminal, "first")
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
    second = begin_chat(terminal, "second", "-c")
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


def test_commands_that_begin_and_end_at_the_same_time_share_the_sessions(agx: Any) -> None:
    for number in range(2):
        with ExitStack() as stack:
            runs = [stack.enter_context(agx.start("run", f"say {number}{name}")) for name in "abcdefgh"]
            for run, name in zip(runs, "abcdefgh", strict=True):
                out, err = run.communicate(timeout=PATIENCE)
                assert (run.returncode, out) == (0, f"{number}{name}\n"), err
                assert err in ("", "waiting for the turn of another terminal to end; Ctrl-C stops it\n")
    assert len(names(agx)) == 16
    assert not list(Path(agx.environment["AGX_HOME"]).glob("*.sock"))


def test_a_request_is_sent_to_the_next_owners_of_the_sessions_until_one_answers(tmp_path: Path) -> None:
    ending = [tmp_path / f"sessions-{number}.sock" for number in range(3)]
    answering = tmp_path / "sessions-4.sock"
    owners = [ServerEndpoint.of_terminal(path, number) for number, path in enumerate([*ending, answering])]
    requests = list[bytes]()

    async def end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readline())
        writer.close()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b'HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 15\r\n\r\n{"sessions":[]}')
        writer.close()

    async def list_sessions() -> list[SessionInfo]:
        async with AsyncExitStack() as servers:
            for path in ending:
                await servers.enter_async_context(await asyncio.start_unix_server(end, path))
            await servers.enter_async_context(await asyncio.start_unix_server(answer, answering))
            following = iter(owners[1:])

            async def locate() -> ServerEndpoint:
                return next(following)

            client = RemoteClient(locate, owners[0], pytest.fail, has_owner=lambda: True)
            return list(await client.list_sessions())

    assert asyncio.run(list_sessions()) == []
    assert requests == [b"GET /api/sessions?limit=50 HTTP/1.1\r\n"] * 3


@pytest.mark.parametrize("end", ["quit", "kill"])
def test_a_chat_goes_on_unnoticed_when_the_one_that_has_the_sessions_ends(
    agx: Any, terminal: Callable[..., Any], end: str
) -> None:
    first = begin_chat(terminal, "first")
    second = begin_chat(terminal, "one")
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
    assert second.screen.count("[e]dit: ") == 1
    assert "model: demo, because" not in second.screen
    assert "[e]dit: " not in first.screen + third.screen
    say(second, "two")
    assert agx("run", "say run").stderr == ""
    for chat in (second, third):
        quit_chat(chat)
        for word in ("server", "process", "sessions;", "lost", "not stored", "ended"):
            assert word not in chat.screen
    assert names(agx) == ["say run", "say three", "say one", "say first"]


def test_a_chat_shows_once_what_another_terminal_said_in_its_session(agx: Any, terminal: Callable[..., Any]) -> None:
    first = begin_chat(terminal, "first")
    second = begin_chat(terminal, "second", "-c")
    assert agx("run", "-c", "say run").stdout == "run\n"
    first.wait_for_rows("› say run\nrun\ndemo")
    say(first, "mine")
    second.wait_for_rows("› say mine\nmine\ndemo")
    second.type("/rename Both\r")
    second.wait_for("name: Both\n")
    second.wait_for("› ")
    say(second, "end")
    first.wait_for_rows("› say end\nend\ndemo")
    for chat in (first, second):
        quit_chat(chat)
    heading = "meanwhile in this session, from another window:\n"
    theirs = f"{heading}› say second\nsecond\n› say run\nrun\n"
    assert f"\nfirst\n{theirs}› say mine\nmine\n{heading}› say end\nend\n›\n" in first.rows()
    theirs = f"{heading}› say run\nrun\n› say mine\nmine\n"
    assert f"\nsecond\n{theirs}› /rename Both\nname: Both\n› say end\nend\n›\n" in second.rows()


@pytest.mark.parametrize("owner", ["terminal", "server"])
def test_a_turn_of_another_terminal_appears_above_the_prompt_while_it_runs(
    agx: Any, terminal: Callable[..., Any], provider: Any, owner: str
) -> None:
    provider.hold = True
    provider.events('{"choices": [{"delta": {"content": "# Title\\n\\nhalf a sent"}}]}')
    agx.environment |= {"OPENAI_API_KEY": "key", "OPENAI_BASE_URL": provider.base_url}
    with served(agx) if owner == "server" else nullcontext():
        first = terminal("chat")
        first.wait_for("› ")
        say(first, "first")
        first.type("a draft")
        with agx.start("run", "-c", "tell", "-m", "openai-chat:some") as run:
            first.wait_for("half a sent")
            first.wait_for("› a draft")
            first.type(" goes on")
            heading = "meanwhile in this session, from another window:\n"
            first.wait_for_rows(f"say first\nfirst\n{heading}› tell\nTitle\n\nhalf a sent\ndemo · mode default · ")
            run.send_signal(signal.SIGINT)
            first.wait_for("the turn was stopped")
            assert run.wait(PATIENCE) == 130
        first.type("\x01say \r")
        first.wait_for("\na draft goes on\n")
        first.wait_for("› ")
        quit_chat(first)
    shown = first.rows()
    assert shown.count("half a sent") == shown.count("meanwhile") == 1
    assert "half a sent\nthe turn was stopped\n" in shown
    assert "› say a draft goes on\na draft goes on\n›\n" in shown


def test_a_chat_that_waits_at_its_prompt_follows_its_session_to_the_next_owners(
    agx: Any, terminal: Callable[..., Any]
) -> None:
    first = begin_chat(terminal, "first")
    chat = terminal("chat", "-c")
    chat.wait_for("› ")
    chat.type("a draft")
    chat.wait_for("a draft")
    quit_chat(first)
    assert agx("run", "-c", "say beside").stderr == ""
    chat.wait_for_rows("› say beside\nbeside\ndemo")
    with served(agx):
        chat.wait_for("has taken the sessions over; this chat goes on through it")
        assert agx("run", "-c", "say there").returncode == 0
        chat.wait_for_rows("› say there\nthere\ndemo")
    chat.wait_for_rows("\n› a draft")
    chat.type("\x15")
    say(chat, "on")
    quit_chat(chat)


@pytest.mark.parametrize("answering", [0, 1])
def test_a_question_of_a_turn_of_another_terminal_can_be_answered_at_either(
    agx: Any, terminal: Callable[..., Any], answering: int
) -> None:
    asked = begin_chat(terminal, "first", prepare=LONG_HOLD)
    chat = terminal("chat", "-c", prepare=LONG_HOLD)
    chat.wait_for("› ")
    chat.type("y")  # keys of a message answer no question that comes while they are typed
    asked.type("Write a.txt with the text hi\r")
    for keys in "es\x7f\x7f":
        chat.type(keys)
    for one in (asked, chat):
        one.wait_for("[e]dit: ")
    both = (asked, chat)
    both[answering].type("y\n")
    both[answering].wait_for("allowed by you")
    both[1 - answering].wait_for("allowed elsewhere")
    for one in both:
        one.wait_for("← file_write ok")
        one.wait_for_rows(")\ndemo · mode default · ")
    assert (agx.folder / "a.txt").read_text() == "hi"
    assert "→ file_write" not in asked.rows() + chat.rows()
    chat.wait_for_rows("\n› y")
    chat.type("\x15")
    for one in both:
        quit_chat(one)
        assert one.screen.count("? Create a.txt?") == 1


def test_a_question_that_is_left_open_is_answered_elsewhere_or_when_the_session_is_opened(
    agx: Any, terminal: Callable[..., Any]
) -> None:
    asked = begin_chat(terminal, "first")
    chat = terminal("chat", "-c")
    chat.wait_for("› ")
    for answering in (asked, chat):
        asked.type("run touch made\r")
        chat.wait_for("[e]dit: ")
        chat.type("\x03")
        chat.wait_for("(the question stays open in the other window; /open last asks it here again)\n")
        chat.wait_for("› ")
        if answering is chat:
            chat.type("/open last\r")
            chat.wait_for("[e]dit: ")
        answering.type("y\n")
        chat.wait_for("allowed by you" if answering is chat else "allowed elsewhere")
        for one in (asked, chat):
            one.wait_for("← bash_exec ok")
            one.wait_for("› ")
    for one in (asked, chat):
        quit_chat(one)


def test_a_message_beside_a_turn_of_another_terminal_waits_at_the_prompt(
    agx: Any, terminal: Callable[..., Any]
) -> None:
    first = begin_chat(terminal, "first")
    second = terminal("chat", "-c")
    second.wait_for("› ")
    second.type("count to 9999\r")
    first.wait_for("1 2 3")
    (agx.folder / "a.txt").write_text("attached")
    first.type("/attach a.txt\r/chat mine\r")
    first.wait_for("a turn of another window runs in this session: /stop ends it, /open last shows it here\n")
    first.wait_for("› /chat mine")
    first.type("\x15/attach\r")
    first.wait_for("attached to your next message: a.txt (text/plain, 8 bytes)")
    first.type("/stop\r")
    first.wait_for("the turn of the other window stops\n")
    first.wait_for("the turn was stopped")
    second.wait_for("the turn was stopped")
    say(first, "on")
    for one in (first, second):
        quit_chat(one)


WAITING = "waiting for the turn that runs in this session … (Ctrl-C takes the message back)\n"


def test_a_run_in_a_session_waits_for_the_turn_of_another_terminal(agx: Any, terminal: Callable[..., Any]) -> None:
    chat = begin_chat(terminal, "first")
    for options in ([], ["--json"]):
        chat.type("run touch made\r")
        chat.wait_for("[e]dit: ")
        with agx.start("run", "-c", "say after", *options) as run, agx.start("run", "-c", "say taken back") as removed:
            for waiting in (run, removed):
                assert waiting.stderr.readline() == WAITING
            removed.send_signal(signal.SIGINT)
            out, err = removed.communicate(timeout=PATIENCE)
            stopping = "stopping … (Ctrl-C again exits at once)\n"
            assert (removed.returncode, out, err) == (130, "", f"{stopping}removed: say taken back\n")
            chat.type("n\n")
            out, err = run.communicate(timeout=PATIENCE)
            assert (run.returncode, err) == (0, "")
            if options:
                events = [json.loads(line) for line in out.splitlines()]
                assert (events[0]["type"], events[0]["data"]["input"]) == ("turn_started", "say after")
                assert events[-1]["type"] == "final"
                assert {event["turn_id"] for event in events} == {events[0]["turn_id"]}
            else:
                assert out == "after\n"
        chat.wait_for_rows("\n› say after\nafter\ndemo")
    chat.type("count to 9999\r")
    chat.wait_for("1 2 3")
    with agx.start("run", "-c", "say no") as run:
        assert run.stderr.readline() == WAITING
        chat.type("\x03")
        out, err = run.communicate(timeout=PATIENCE)
        why = "the turn that the message waited for was stopped\n"
        assert (run.returncode, out, err) == (130, "", f"returned unsent: say no\n{why}")
    chat.wait_for("the turn was stopped")
    chat.type("count to 9999\r")
    chat.wait_for("1 2 3")
    with agx.start("run", "-c", "say on") as run:
        assert run.stderr.readline() == WAITING
        chat.process.kill()
        out, err = run.communicate(timeout=PATIENCE)
        assert (run.returncode, out, err) == (0, "on\n", "")


@contextmanager
def served(agx: Any) -> Generator[None]:
    with agx.start("serve", "--port", "0") as server:
        assert "/#" in server.stderr.readline()
        yield
        server.terminate()


@pytest.fixture
def slow_model(agx: Any, provider: Any) -> Any:
    """A provider at which the model `openai-chat:slow` says "one", and " two" once it is released."""
    provider.hold = True
    two = '{"choices": [{"delta": {"content": " two"}, "finish_reason": "stop"}]}'
    provider.events('{"choices": [{"delta": {"content": "one"}}]}', rest=[two, "[DONE]"])
    agx.environment |= {"OPENAI_API_KEY": "key", "OPENAI_BASE_URL": provider.base_url}
    return provider


def test_a_turn_of_another_terminal_ends_before_the_chat_that_runs_it(
    agx: Any, terminal: Callable[..., Any], slow_model: Any
) -> None:
    first = terminal("chat")
    first.wait_for("› ")
    with agx.start("run", "go", "-m", "openai-chat:slow") as running:
        assert running.stdout.read(3) == "one"
        first.type("\x04")
        first.wait_for("waiting for the turn of another terminal to end; Ctrl-C stops it")
        slow_model.released.set()
        out, err = running.communicate(timeout=PATIENCE)
        assert (running.returncode, out, err) == (0, " two\n", "")
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
    agx: Any, terminal: Callable[..., Any], slow_model: Any
) -> None:
    first = terminal("chat")
    first.wait_for("› ")
    second = terminal("chat", "-m", "openai-chat:slow")
    second.wait_for("› ")
    second.type("go\r")
    second.wait_for("one")
    with agx.start("serve", "--port", "0") as server:
        assert "waiting for the turn of the chat" in server.stderr.readline()
        slow_model.released.set()
        second.wait_for(" two\n")
        second.wait_for("› ")
        assert "/#" in server.stderr.readline()
        say(first, "on")
        second.type("go on\r")
        second.wait_for("one two\n")
        second.wait_for("› ")
        for chat in (first, second):
            assert f"(process {server.pid})" in chat.screen
            quit_chat(chat)
        server.terminate()


def test_terminals_find_each_other_in_a_home_whose_path_is_too_long_for_a_socket(
    agx: Any, terminal: Callable[..., Any], tmp_path: Path
) -> None:
    agx.environment["AGX_HOME"] = str(tmp_path / ("long" * 30))
    first = begin_chat(terminal, "first")
    done = agx("run", "say second")
    assert (done.returncode, done.stdout, done.stderr) == (0, "second\n", "")
    with agx.start("serve", "--port", "0") as server:
        assert "/#" in server.stderr.readline()
        say(first, "third")
        server.terminate()
    quit_chat(first)
    assert len(names(agx)) == 2


@pytest.fixture
def keyed(agx: Any, provider: Any) -> Any:
    """A terminal whose environment has a key and the address of a provider, which answers "provided"."""
    provider.events('{"choices": [{"delta": {"content": "provided"}, "finish_reason": "stop"}]}')
    provider.has_responses = False
    del agx.environment["AGX_MODEL"]
    variables = {"OPENAI_API_KEY": "sk-of-the-second", "OPENAI_BASE_URL": provider.base_url}
    return replace(agx, environment={**agx.environment, **variables})


BECAUSE = ", because OPENAI_API_KEY is set\n"


def test_what_a_terminal_sets_holds_for_the_sessions_that_it_begins_at_another(
    agx: Any, terminal: Callable[..., Any], keyed: Any, provider: Any, home: Path
) -> None:
    first = begin_chat(terminal, "first")
    done = keyed("run", "hi")
    assert (done.returncode, done.stdout) == (0, "provided\n")
    assert done.stderr.startswith("model: openai:")
    assert done.stderr.endswith(BECAUSE)
    done = keyed("run", "hi", "-m", "openai-chat:mymodel")
    assert (done.returncode, done.stdout, done.stderr) == (0, "provided\n", "")
    chosen = replace(keyed, environment={**keyed.environment, "AGX_MODEL": "openai-chat:chosen"})
    done = chosen("run", "hi")
    assert (done.returncode, done.stdout, done.stderr) == (0, "provided\n", "")
    assert b'"chosen"' in provider.requests[-1]
    assert set(provider.keys) == {"Bearer sk-of-the-second"}
    refused = agx("run", "hi", "-m", "openai-chat:mymodel")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "OPENAI_API_KEY is not set" in refused.stderr
    refused = keyed("run", "hi", "--max-tool-rounds", "20")
    assert refused.returncode == 2
    assert f"the agx that has the sessions (process {first.process.pid}) runs the turns" in refused.stderr
    say(first, "still")
    stored = b"".join(path.read_bytes() for path in home.rglob("*") if path.is_file())
    assert b"provided" in stored
    assert b"sk-of-the-second" not in stored
    quit_chat(first)


def test_a_message_that_waits_for_a_turn_of_another_terminal_has_the_key_of_its_own(
    terminal: Callable[..., Any], keyed: Any, provider: Any
) -> None:
    first = begin_chat(terminal, "first")
    first.type("run touch made\r")
    first.wait_for("[e]dit: ")
    with keyed.start("run", "-c", "hi", "-m", "openai-chat:mymodel") as run:
        assert run.stderr.readline() == WAITING
        first.type("n\n")
        out, err = run.communicate(timeout=PATIENCE)
        assert (run.returncode, out, err) == (0, "provided\n", "")
    assert provider.keys == ["Bearer sk-of-the-second"]
    quit_chat(first)


def test_the_next_owner_of_the_sessions_gets_the_key_of_a_terminal_from_that(
    agx: Any, terminal: Callable[..., Any], keyed: Any, provider: Any
) -> None:
    first = begin_chat(terminal, "first")
    third = begin_chat(terminal, "third", "--model", "demo")
    agx.environment |= keyed.environment
    second = terminal("chat")
    second.wait_for(BECAUSE)
    first.process.kill()
    first.process.wait(PATIENCE)
    say(third, "still")
    second.wait_for("› ")
    second.type("hi\r")
    second.wait_for("\nprovided\n")
    second.wait_for("› ")
    assert set(provider.keys) == {"Bearer sk-of-the-second"}
    for chat in (second, third):
        quit_chat(chat)


def test_a_terminal_says_where_the_default_model_of_another_process_counts(
    agx: Any, terminal: Callable[..., Any], keyed: Any
) -> None:
    without = dict(agx.environment)
    agx.environment |= keyed.environment
    first = terminal("chat")
    first.wait_for("› ")
    done = replace(agx, environment=without)("run", "hi")
    assert done.stdout == "provided\n"
    assert done.stderr.startswith("model: openai:")
    assert f", the default of the agx that has the sessions (process {first.process.pid})\n" in done.stderr
    quit_chat(first)
    agx.environment.clear()
    agx.environment |= without
    with served(agx):
        done = keyed("run", "say hi")
        assert (done.returncode, done.stdout) == (0, "hi\n")
        assert done.stderr.startswith("model: demo, the default of the server at http://")
        assert done.stderr.endswith(BECAUSE)
        refused = keyed("run", "hi", "-m", "openai-chat:mymodel")
        assert (refused.returncode, refused.stdout) == (2, "")
        assert refused.stderr.startswith("agx: the server at http://")
        assert "OPENAI_API_KEY is not set" in refused.stderr
