"""The hand-over of the sessions from a chat to a server, between two turns."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agenticx.cli.client.handover import request_handover
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


def test_a_chat_goes_on_through_the_server_that_takes_its_sessions_over(
    agx: Any, terminal: Callable[..., Any], home: Path
) -> None:
    chat = terminal("chat")
    chat.wait_for("› ")
    chat.type("Write a.txt with the text hi\r")
    chat.wait_for("[e]dit: ")
    with agx.start("serve", "--port", "0", prepare=SERVE.format(pid=chat.process.pid)) as server:
        assert server.stderr.readline().startswith("waiting for the turn of the chat in process ")
        chat.type("y\n")
        assert server.stderr.readline() == "released\n"
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


def test_a_chat_takes_its_sessions_back_if_no_server_comes(agx: Any, terminal: Callable[..., Any], home: Path) -> None:
    chat = terminal("chat")
    chat.wait_for("› ")
    assert request_handover(home, chat.process.pid, print)
    assert agx("run", "say between").stderr == ""
    chat.type("say back\r")
    chat.wait_for("\nback\n")
    chat.wait_for("› ")
    assert "(process" in agx("sessions", "pin", "last").stderr
    chat.type("\x04")
    assert chat.exit_code() == 0


def test_a_chat_with_options_that_a_server_would_not_have_keeps_its_sessions(
    agx: Any, terminal: Callable[..., Any], home: Path
) -> None:
    chat = terminal("chat", "--max-tool-rounds", "12")
    chat.wait_for("› ")
    done = agx("serve", "--port", "0", prepare=SERVE.format(pid=chat.process.pid))
    assert "keeps the sessions: it runs its turns with --base-url or --max-tool-rounds" in done.stderr
    assert not request_handover(home, 999_999_999, print)
    chat.process.kill()
    chat.process.wait(PATIENCE)
    assert not request_handover(home, chat.process.pid, print)  # the socket is left, and nobody listens
    again = terminal("chat")
    again.wait_for("› ")
    assert [path.name for path in home.glob("chat-*.sock")] == [f"chat-{again.process.pid}.sock"]
    again.type("\x04")
    assert again.exit_code() == 0
