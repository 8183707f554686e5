"""`agx team run` beside a server, watched and answered with curl."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from agenticx.testing import check_grammar
from tests.support.server.cli_studio import CliStudio
from tests.support.timeouts import PATIENCE

CURL = shutil.which("curl")

PAIR = """
kind = "round_robin"
max_turns = 2
[[participants]]
name = "clerk"
system_message = "Do what you are told."
tools = ["file_write"]
[[participants]]
name = "witness"
system_message = "Say what you saw."
"""


WITH_PERSON = """
kind = "round_robin"
max_turns = 3
[[participants]]
name = "clerk"
system_message = "Ask."
[[participants]]
name = "person"
kind = "user"
[[participants]]
name = "witness"
system_message = "Repeat."
"""


@pytest.fixture(autouse=True)
def home(agx: Any) -> Path:
    home = Path(agx.environment["AGX_HOME"])
    (home / "teams").mkdir(parents=True)
    (home / "teams" / "pair.toml").write_text(PAIR, encoding="utf-8")
    (home / "teams" / "asking.toml").write_text(WITH_PERSON, encoding="utf-8")
    return home


def test_an_unknown_team_is_a_usage_error_as_without_a_server(agx: Any, studio: CliStudio) -> None:
    done = agx("team", "run", "nope", "hi")
    assert (done.returncode, done.stdout) == (2, "")
    assert "unknown team 'nope'; known teams: asking, pair, " in done.stderr


class Curl:
    """curl with the token of a studio."""

    def __init__(self, studio: CliStudio) -> None:
        assert CURL is not None
        token = (studio.home / "token").read_text().strip()
        self._base = f"http://127.0.0.1:{studio.port}"
        self._words = [CURL, "-sS", "-H", f"Authorization: Bearer {token}"]

    @contextmanager
    def watching(self, path: str) -> Generator[IO[str]]:
        """Yield the lines of `curl -N`."""
        words = [*self._words, "-N", self._base + path]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                yield process.stdout
            finally:
                process.kill()

    def post(self, path: str, body: dict[str, Any]) -> Any:
        words = [*self._words, "-H", "Content-Type: application/json", "-d", json.dumps(body), self._base + path]
        return json.loads(subprocess.run(words, stdout=subprocess.PIPE, check=True, timeout=PATIENCE).stdout)


def until(lines: IO[str], type_: str) -> list[dict[str, Any]]:
    """Return the events of a stream up to the first of that type."""
    events: list[dict[str, Any]] = []
    for line in lines:
        if line.startswith("data: "):
            events.append(json.loads(line.removeprefix("data: ")))
            if events[-1]["type"] == type_:
                return events
    raise AssertionError(f"the stream ended before {type_!r}")


@pytest.mark.skipif(CURL is None, reason="needs curl")
def test_a_team_is_watched_with_curl_and_the_confirm_of_a_participant_is_answered_there(
    agx: Any, studio: CliStudio, terminal: Callable[..., Any]
) -> None:
    curl = Curl(studio)
    with curl.watching("/api/events") as lines:
        lines.readline()  # the server has accepted the stream
        screen = terminal("team", "run", "pair", "Write note.txt with the text hi")
        events = until(lines, "confirm_required")
        asked = events[-1]
        assert (asked["agent_id"], asked["data"]["agent_path"]) == ("clerk", ["meta", "clerk"])
        screen.wait_for("clerk:")
        answer = {"approved": True, "digest": asked["data"]["digest"]}
        assert curl.post(f"/api/confirms/{asked['data']['id']}", answer)["approved"] is True
        while not (events[-1]["type"] == "final" and events[-1]["agent_id"] == "meta"):
            events += until(lines, "final")
    screen.wait_for("witness:")
    assert screen.exit_code() == 0
    assert (agx.folder / "note.txt").read_text() == "hi"
    own = [event for event in events if event["session_id"] == asked["session_id"]]
    check_grammar([event for event in own if event["turn_id"] is not None])
    assert [event["data"]["speakers"] for event in own if event["type"] == "speaker_selected"] == [
        ["clerk"],
        ["witness"],
    ]
    (session,) = studio.call("GET", "/api/sessions")["sessions"]
    assert session["team"] == "pair"


@pytest.mark.ci_lane
@pytest.mark.skipif(CURL is None, reason="needs curl")
def test_a_team_that_asks_a_person_goes_on_when_the_server_is_killed_and_answered_after_its_restart(
    agx: Any, studio: CliStudio
) -> None:
    session = studio.call("POST", "/api/sessions", {"team": "asking"})["id"]
    studio.call("POST", f"/api/sessions/{session}/turns", {"input": "say Which size?"})
    curl = Curl(studio)
    with curl.watching(f"/api/sessions/{session}/events") as lines:
        question = until(lines, "question_asked")[-1]["data"]
    assert question["agent_path"] == ["meta", "person"]
    studio.end(signal.SIGKILL)
    studio.start()
    curl = Curl(studio)
    assert curl.post(f"/api/questions/{question['id']}", {"answer": "say large"})["answer"] == "say large"
    with curl.watching(f"/api/sessions/{session}/events") as lines:
        events = until(lines, "final")
        while events[-1]["agent_id"] != "meta":
            events += until(lines, "final")
    check_grammar(events)
    assert events[-1]["data"]["text"] == "large"
    said = [event["data"]["message"] for event in events if event["type"] == "team_message"]
    assert [(one["source"], one["content"]) for one in said if one["type"] == "TextMessage"] == [
        ("user", "say Which size?"),
        ("clerk", "Which size?"),
        ("person", "say large"),
        ("witness", "large"),
    ]


@pytest.mark.ci_lane
@pytest.mark.skipif(CURL is None, reason="needs curl")
def test_a_team_whose_confirm_waits_when_the_server_is_killed_goes_on_once_it_is_answered(
    agx: Any, studio: CliStudio
) -> None:
    session = studio.call("POST", "/api/sessions", {"team": "pair", "workspace": str(agx.folder)})["id"]
    studio.call("POST", f"/api/sessions/{session}/turns", {"input": "Write note.txt with the text hi"})
    with Curl(studio).watching(f"/api/sessions/{session}/events") as lines:
        asked = until(lines, "confirm_required")[-1]["data"]
    studio.end(signal.SIGKILL)
    studio.start()
    curl = Curl(studio)
    answer = {"approved": True, "digest": asked["digest"]}
    assert curl.post(f"/api/confirms/{asked['id']}", answer)["approved"] is True
    with curl.watching(f"/api/sessions/{session}/events") as lines:
        events = until(lines, "final")
        while events[-1]["agent_id"] != "meta":
            events += until(lines, "final")
    check_grammar(events)
    assert (agx.folder / "note.txt").read_text() == "hi"
    assert [event["data"]["speakers"] for event in events if event["type"] == "speaker_selected"] == [
        ["clerk"],
        ["witness"],
    ]
    assert [event["agent_id"] for event in events if event["type"] == "turn_started"] == ["meta", "clerk", "witness"]
    said = [event["data"]["message"] for event in events if event["type"] == "team_message"]
    assert [(one["source"], one["type"]) for one in said] == [
        ("user", "TextMessage"),
        ("clerk", "ThoughtEvent"),
        ("clerk", "ToolCallRequestEvent"),
        ("clerk", "ToolCallExecutionEvent"),
        ("clerk", "TextMessage"),
        ("witness", "TextMessage"),
    ]
