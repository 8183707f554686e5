"""The hand-over of the sessions from a chat to a server, between two turns."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Thread
from typing import Any

import pytest

from agenticx.cli.client.handover import request_handover
from agenticx.cli.client.remote import RETRY_LIMIT_SECONDS
from tests.support.timeouts import PATIENCE

SERVE = """
import sys
from agenticx.cli.client.handover import request_handover
from agenticx.settings import load_settings
settings = load_settings()
if not request_handover(settings.home, {pid}, lambda text: print(text, file=sys.stderr, flush=True)):
    sys.exit("not released")
print("released", file=sys.stderr, flush=True)
"""


@pytest.fixture
def home(agx: Any) -> Path:
    return Path(agx.environment["AGX_HOME"])


@pytest.mark.ci_lane
def test_a_chat_goes_on_through_the_server_that_takes_its_sessions_over(
    agx: Any, terminal: Callable[..., Any], home: Path
) -> None:
    chat = terminal("chat")
    chat.wait_for("› ")
    chat.type("Write a.txt with the text hi\r")
    chat.wait_for("[e]dit: ")
    with agx.start("serve", "--port", "0") as server:
        assert server.stderr.readline() == waiting_line(chat)
        chat.type("y\n")
        assert re.search(r"http://127\.0\.0\.1:\d+/#", server.stderr.readline())
        chat.wait_for("› ")
        chat.type("read a.txt\r")
        chat.wait_for(f"agx serve (process {server.pid}) has taken the sessions over; this chat goes on through it")
        chat.wait_for("← file_read ok")
        chat.wait_for("› ")
        assert len(json.loads(agx("sessions", "show", "last", "--json").stdout)["turns"]) == 2
        chat.type("\x04")
        assert chat.exit_code() == 0
        server.terminate()
    assert not list(home.glob("chat-*.sock"))


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\n\r\n", b"x", b""])
def test_a_chat_keeps_its_sessions_from_who_does_not_ask_for_them(
    agx: Any, terminal: Callable[..., Any], home: Path, sent: bytes
) -> None:
    chat = terminal("chat")
    chat.wait_for("› ")
    with socket.socket(socket.AF_UNIX) as stranger, suppress(ConnectionResetError):
        stranger.connect(str(home / f"chat-{chat.process.pid}.sock"))
        stranger.sendall(sent)
        stranger.shutdown(socket.SHUT_WR)
        answer = stranger.makefile("rb").read()
        assert answer == b"refused the request is not one of agx serve\n"
    chat.type("say on\r")
    chat.wait_for("\non\n")
    chat.type("\x04")
    assert chat.exit_code() == 0
    assert "has the sessions" not in chat.screen


@pytest.mark.ci_lane
def test_a_server_ends_with_its_parent_while_it_waits_for_the_turn_of_a_chat(
    agx: Any, terminal: Callable[..., Any]
) -> None:
    chat = terminal("chat")
    chat.wait_for("› ")
    chat.type("Write a.txt with the text hi\r")
    chat.wait_for("[e]dit: ")
    with agx.start("serve", "--json", "--port", "0", "--exit-with-parent") as server:
        assert server.stderr.readline() == waiting_line(chat)
        server.stdin.close()
        assert server.wait(PATIENCE) == 0
        assert server.stdout.read() == ""
    chat.type("y\n")
    chat.wait_for("› ")
    chat.type("say on\r")
    chat.wait_for("\non\n")
    chat.wait_for("› ")
    assert "no server has the sessions" not in chat.screen
    chat.type("\x04")
    assert chat.exit_code() == 0


@pytest.mark.ci_lane
def test_a_server_that_takes_over_replaces_one_that_waits_for_the_turn_of_a_chat(
    agx: Any, terminal: Callable[..., Any], home: Path
) -> None:
    chat = terminal("chat")
    chat.wait_for("› ")
    chat.type("Write a.txt with the text hi\r")
    chat.wait_for("[e]dit: ")
    with agx.start("serve", "--port", "0") as first:
        assert first.stderr.readline() == waiting_line(chat)
        with agx.start("serve", "--port", "0", "--take-over") as second:
            assert second.stderr.readline() == waiting_line(chat)
            chat.type("y\n")
            assert re.search(r"http://127\.0\.0\.1:\d+/#", second.stderr.readline())
            assert first.wait(PATIENCE) in (0, 1)  # it was replaced, or refused because the second one was faster
            assert json.loads((home / "studio.json").read_text())["pid"] == second.pid
            chat.type("\x04")
            assert chat.exit_code() == 0
            second.terminate()


def waiting_line(chat: Any) -> str:
    return f"waiting for the turn of the chat in process {chat.process.pid} to end; Ctrl-C gives up\n"


def test_a_chat_goes_on_by_itself_after_the_end_of_the_server_and_through_the_next_one(
    agx: Any, terminal: Callable[..., Any]
) -> None:
    chat = terminal("chat")
    chat.wait_for("› ")
    with agx.start("serve", "--port", "0") as server:
        assert "/#" in server.stderr.readline()
        chat.type("say via\r")
        chat.wait_for("\nvia\n")
        chat.wait_for("› ")
        server.terminate()
    chat.type("say one\r")
    chat.wait_for("no server has the sessions; this chat stores them and runs the turns itself")
    chat.wait_for("\none\n")
    chat.wait_for("› ")
    for answer, note in (("two", "has taken the sessions over; "), ("three", "now runs at ")):
        with agx.start("serve", "--port", "0") as server:
            assert "/#" in server.stderr.readline()
            chat.type(f"say {answer}\r")
            chat.wait_for(note)
            chat.wait_for(f"\n{answer}\n")
            chat.wait_for("› ")
            assert len(json.loads(agx("sessions", "show", "last", "--json").stdout)["turns"]) >= 3
            server.terminate()
    chat.type("/new\r")
    chat.wait_for("your next message starts a new session")
    chat.type("\x04")
    assert chat.exit_code() == 0


@pytest.mark.ci_lane
def test_a_message_that_a_server_accepted_before_it_was_killed_is_not_run_again(
    agx: Any, terminal: Callable[..., Any], home: Path
) -> None:
    with agx.start("serve", "--port", "0") as server:
        assert "/#" in server.stderr.readline()
        with proxy_that_kills(home, server.pid):
            chat = terminal("chat")
            chat.wait_for("› ")
            chat.type("say once\r")
            chat.wait_for("no server has the sessions; this chat stores them and runs the turns itself")
            chat.wait_for("› ")
            chat.type("say twice\r")
            chat.wait_for("\ntwice\n")
            chat.type("\x04")
            assert chat.exit_code() == 0
    session = json.loads(agx("sessions", "show", "last", "--json").stdout)
    said = [message["content"] for message in session["messages"] if message["role"] == "user"]
    assert (len(session["turns"]), said) == (2, ["say once", "say twice"])


@pytest.mark.ci_lane
def test_a_chat_goes_on_soon_after_its_server_was_killed_in_a_turn(agx: Any, terminal: Callable[..., Any]) -> None:
    with agx.start("serve", "--port", "0") as server:
        assert "/#" in server.stderr.readline()
        chat = terminal("chat")
        chat.wait_for("› ")
        chat.type("count to 9999\r")
        chat.wait_for("1 2 3 4")
        killed_at = time.monotonic()
        server.kill()
        server.wait(PATIENCE)
        chat.wait_for("lost the server at http://127.0.0.1:")
        assert time.monotonic() - killed_at < RETRY_LIMIT_SECONDS / 2
    chat.type("say on\r")
    chat.wait_for("no server has the sessions; this chat stores them and runs the turns itself")
    chat.wait_for("\non\n")
    chat.type("\x04")
    assert chat.exit_code() == 0
    events = [json.loads(line) for line in agx("sessions", "export", "last").stdout.splitlines()]
    assert [event["data"]["code"] for event in events if event["type"] == "error"] == ["interrupted"]


@pytest.mark.ci_lane
@pytest.mark.parametrize(
    ("message", "prompt"),
    [("Write note.txt with the text hi", "[e]dit: "), ("ask me: Which colour? (red, blue)", "(Ctrl-D: none): ")],
)
@pytest.mark.cases(quick=1)
def test_a_chat_that_loses_its_server_asks_its_question_again_itself_and_then_through_the_next_server(
    agx: Any, terminal: Callable[..., Any], message: str, prompt: str
) -> None:
    with agx.start("serve", "--port", "0") as server:
        assert "/#" in server.stderr.readline()
        chat = terminal("chat")
        chat.wait_for("› ")
        chat.type(f"{message}\r")
        chat.wait_for(prompt)
        server.kill()
        server.wait(PATIENCE)
        chat.wait_for("lost the server at http://127.0.0.1:")
        chat.wait_for("`/open last` in `agx chat` a question that waits for an answer")
        chat.wait_for("the turn goes on:")
        chat.wait_for(prompt)
    with agx.start("serve", "--port", "0") as server:
        assert "/#" in server.stderr.readline()
        chat.wait_for("has taken the sessions over; this chat goes on through it")
        chat.wait_for(prompt)
        chat.type("n\n")
        chat.wait_for_rows(")\ndemo · mode default · ")
        chat.type("say on\r")
        chat.wait_for("\non\n")
        chat.wait_for("› ")
        chat.type("\x04")
        assert chat.exit_code() == 0
        server.terminate()
        server.wait(PATIENCE)
    assert "Unhandled exception" not in chat.screen
    assert "Task was destroyed" not in chat.screen
    assert chat.screen.count(prompt) == 3


@contextmanager
def proxy_that_kills(home: Path, pid: int) -> Generator[None]:
    """Put a proxy between clients and the server, which is killed once it has accepted a turn; its answer is lost."""
    found = json.loads((home / "studio.json").read_text())

    class Proxy(StreamRequestHandler):
        def handle(self) -> None:
            head = b"".join(iter(self.rfile.readline, b"\r\n"))
            length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
            head = head.replace(str(proxy.server_address[1]).encode(), str(found["port"]).encode())
            with socket.create_connection(("127.0.0.1", found["port"])) as upstream, suppress(OSError):
                upstream.sendall(head + b"\r\n" + self.rfile.read(int(length[1]) if length else 0))
                while data := upstream.recv(65536):
                    if re.match(rb"POST \S+/turns ", head):
                        os.kill(pid, signal.SIGKILL)
                        return
                    self.wfile.write(data)

    with ThreadingTCPServer(("127.0.0.1", 0), Proxy) as proxy:
        proxy.daemon_threads = True
        thread = Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        port = proxy.server_address[1]
        (home / "studio.json").write_text(json.dumps({**found, "port": port, "url": f"http://127.0.0.1:{port}"}))
        try:
            yield
        finally:
            proxy.shutdown()
            thread.join()


@pytest.mark.ci_lane
def test_a_chat_takes_its_sessions_back_if_no_server_comes(agx: Any, terminal: Callable[..., Any], home: Path) -> None:
    chat = terminal("chat")
    chat.wait_for("› ")
    assert request_handover(home, chat.process.pid, print)
    assert agx("run", "say between").stderr == ""
    chat.type("say back\r")
    chat.wait_for("\nback\n")
    chat.wait_for("› ")
    assert (home / f"sessions-{chat.process.pid}.sock").exists()
    chat.type("\x04")
    assert chat.exit_code() == 0


@pytest.mark.ci_lane
def test_a_chat_with_options_that_a_server_would_not_have_keeps_its_sessions(
    agx: Any, terminal: Callable[..., Any], home: Path
) -> None:
    chat = terminal("chat", "--max-tool-rounds", "12")
    chat.wait_for("› ")
    done = agx("serve", "--port", "0", prepare=SERVE.format(pid=chat.process.pid))
    assert "keeps the sessions: it runs its turns with --max-tool-rounds" in done.stderr
    assert not request_handover(home, 999_999_999, print)
    chat.process.kill()
    chat.process.wait(PATIENCE)
    assert not request_handover(home, chat.process.pid, print)  # the socket is left, and nobody listens
    left = home / f"chat-{chat.process.pid}.sock"
    again = terminal("chat")
    again.wait_for("› ")
    assert list(home.glob("chat-*.sock")) == [home / f"chat-{again.process.pid}.sock"]
    hint = f"a chat (process {again.process.pid}) has the sessions; `agx serve` starts one, which takes them over "
    assert hint in agx("open", "--print").stderr
    again.type("\x04")
    assert again.exit_code() == 0
    left.touch()
    with agx.start("serve", "--port", "0") as server:
        assert "/#" in server.stderr.readline()
        assert not left.exists()
        server.terminate()


def test_a_server_beside_a_run_names_its_process_and_when_to_start_again(agx: Any, provider: Any) -> None:
    provider.hold = True
    provider.events('{"choices": [{"delta": {"content": "hi"}}]}')
    agx.environment.update({"OPENAI_API_KEY": "key", "OPENAI_BASE_URL": provider.base_url})
    with agx.start("run", "hi", "--model", "openai-chat:some") as running:
        assert running.stdout.read(2) == "hi"
        done = agx("serve", "--port", "0")
        running.terminate()
    assert (done.returncode, done.stdout) == (1, "")
    assert f"(process {running.pid}); end that, or use another AGX_HOME or store; an `agx run` frees it" in done.stderr


@pytest.mark.ci_lane
def test_a_run_waits_for_a_suspended_server_and_says_so(agx: Any) -> None:
    with agx.start("serve", "--port", "0") as server:
        assert "/#" in server.stderr.readline()
        server.send_signal(signal.SIGSTOP)
        with agx.start("run", "say hi") as running:
            line = running.stderr.readline()
            server.send_signal(signal.SIGCONT)
            assert running.communicate(timeout=PATIENCE) == ("hi\n", "")
        server.terminate()
    assert f"(process {server.pid}) does not answer; " in line
    assert line.endswith(f"`kill -CONT {server.pid}` resumes it; waiting for it …\n")
