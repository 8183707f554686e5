"""`agx team`: the configured teams, and their runs in the terminal."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agenticx.testing import check_grammar

ECHO = """
kind = "round_robin"
max_turns = 2
[[participants]]
name = "first"
system_message = "Echo."
[[participants]]
name = "second"
system_message = "Echo."
"""


@pytest.fixture
def home(agx: Any) -> Path:
    """Return AGX_HOME, with the team `echo`, whose participants are the demo model."""
    home = Path(agx.environment["AGX_HOME"])
    (home / "teams").mkdir(parents=True)
    (home / "teams" / "echo.toml").write_text(ECHO, encoding="utf-8")
    return home


def test_the_teams_are_listed_with_their_participants_and_problems(agx: Any, home: Path) -> None:
    (home / "teams" / "broken.toml").write_text("kind = 3", encoding="utf-8")
    (home / "teams" / "flying.toml").write_text(f'{ECHO}tools = ["fly"]', encoding="utf-8")
    lines = agx("team", "list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["broken", "echo", "flying", "review", "triage", "writer-critic"]
    assert lines[2].startswith(
        f"flying            round_robin  first, second  ({home}/teams/flying.toml); cannot be used, unless "
        "an application adds it: team 'flying': participant 'second': unknown tool 'fly'"
    )
    packaged = re.search(r"^writer-critic     round_robin  writer, critic  \(packaged: (.*)\)$", lines[-1])
    assert lines[0].startswith("broken            cannot be used: ")
    assert lines[1] == f"echo              round_robin  first, second  ({home}/teams/echo.toml)"
    assert packaged is not None
    assert Path(packaged[1]).read_text(encoding="utf-8").startswith("# A writer and a critic")
    rows = [json.loads(line) for line in agx("team", "list", "--json").stdout.splitlines()]
    assert [(row["name"], row["kind"], row["participants"], row["origin"]) for row in rows[:2]] == [
        ("broken", None, [], "user"),
        (
            "echo",
            "round_robin",
            [{"name": name, "kind": "assistant", "description": None} for name in ("first", "second")],
            "user",
        ),
    ]
    assert rows[1]["path"] == f"{home}/teams/echo.toml"


def test_the_last_speech_goes_to_stdout_and_the_talk_to_stderr(agx: Any, home: Path) -> None:
    done = agx("team", "run", "echo", "say say hello")
    assert (done.returncode, done.stdout) == (0, "hello\n")
    assert done.stderr == "first:\nsay hello\nsecond:\nhello\nthe team stopped: Maximum number of turns 2 reached.\n"


@pytest.mark.ci_lane
def test_on_one_device_each_speech_is_shown_once(agx: Any, home: Path, tmp_path: Path) -> None:
    with (tmp_path / "all.txt").open("w+") as both:
        agx("team", "run", "echo", "say say hello", stdout=both.fileno(), stderr=both.fileno())
        both.seek(0)
        assert both.read() == (
            "first:\nsay hello\nsecond:\nhello\nthe team stopped: Maximum number of turns 2 reached.\n"
        )


@pytest.mark.ci_lane
def test_a_replay_shows_the_task_once_and_each_speech_once(agx: Any, home: Path) -> None:
    agx("team", "run", "echo", "say say hello")
    done = agx("sessions", "replay", "last")
    assert done.stdout == "hello\n"
    talk = "first:\nsay hello\nsecond:\nhello\nthe team stopped: Maximum number of turns 2 reached.\n"
    assert done.stderr.startswith(f"› say say hello\n{talk}")


def test_a_run_goes_on_in_its_session_with_and_without_a_task(agx: Any, home: Path) -> None:
    agx("team", "run", "echo", "say say say say six")
    assert agx("team", "run", "echo", "--session", "last").stdout == "six\n"
    assert agx("team", "run", "echo", "say say seven", "--session", "last").stdout == "seven\n"
    shown = json.loads(agx("sessions", "show", "last", "--json").stdout)
    assert (shown["team"], len(shown["turns"])) == ("echo", 3)
    text = agx("sessions", "show", "last").stdout
    assert "› (without a message)\n" in text
    assert re.search(r"^team    echo$", text, re.MULTILINE)
    assert text.endswith("› say say seven\n\nfirst: say seven\n\nsecond: seven\n")


@pytest.mark.parametrize(
    ("team", "speakers"),
    [
        ("review", ["reader", "reviewer", "reporter"]),
        ("triage", ["triage", "explainer"]),
        ("writer-critic", ["writer", "critic"]),
    ],
)
@pytest.mark.cases(quick=1)
def test_a_packaged_team_runs_offline_to_its_end(agx: Any, team: str, speakers: list[str]) -> None:
    done = agx("team", "run", team, "Write a haiku about rain")
    spoken = re.findall(r"^(\w+):$", done.stderr, re.MULTILINE)
    assert (done.returncode, spoken, done.stderr.count("“Write a haiku about rain”")) == (
        0,
        speakers,
        done.stderr.count("“"),
    )
    assert re.search(r"^the team stopped: Text '\w+' mentioned$", done.stderr, re.MULTILINE)


def test_json_prints_the_envelopes_of_the_team_and_its_participants(agx: Any, home: Path) -> None:
    lines = agx("team", "run", "echo", "say say hello", "--json").stdout.splitlines()
    events = [json.loads(line) for line in lines]
    check_grammar(events)
    assert [event["data"]["speakers"] for event in events if event["type"] == "speaker_selected"] == [
        ["first"],
        ["second"],
    ]


@pytest.mark.parametrize(
    "words",
    [
        ("echo", "--yes", "say say hello"),
        ("echo", "--model", "demo", "say say hello", "--yes"),
        ("--yes", "echo", "--model", "demo", "--", "say say hello"),
    ],
)
@pytest.mark.cases(quick=1)
def test_options_and_the_task_of_a_run_come_in_any_order(agx: Any, home: Path, words: tuple[str, ...]) -> None:
    assert agx("team", "run", *words).stdout == "hello\n"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("run", "echo", "hello", "--yes", "more"), "agx team run: error: unrecognized arguments: more"),
        (("run", "--nope", "echo"), "agx team run: error: unrecognized arguments: --nope"),
        (("list", "echo"), "agx team list: error: unrecognized arguments: echo"),
    ],
)
def test_a_usage_error_of_an_action_shows_its_usage(agx: Any, words: tuple[str, ...], problem: str) -> None:
    done = agx("team", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"usage: agx team {words[0]} ")
    assert done.stderr.endswith(f"{problem}\n")


@pytest.mark.parametrize("command", ["run", "chat"])
def test_commands_without_teams_name_the_one_that_runs_them(agx: Any, command: str) -> None:
    done = agx(command, "--team", "review", *(["hi"] if command == "run" else []))
    assert (done.returncode, done.stdout) == (2, "")
    assert "`agx team run` runs the team 'review'; --session continues its session" in done.stderr
    assert "--team" not in agx(command, "--help").stdout + agx("completion", "bash").stdout


@pytest.mark.ci_lane
def test_a_chat_names_the_team_of_its_session(agx: Any, home: Path, terminal: Callable[..., Any]) -> None:
    agx("team", "run", "echo", "say say hello")
    screen = terminal("chat", "-c")
    screen.wait_for("demo, team echo; /help shows the commands")


@pytest.mark.ci_lane
def test_a_chat_that_goes_on_shows_the_speeches_of_the_last_run_with_their_speakers(
    agx: Any, home: Path, terminal: Callable[..., Any]
) -> None:
    agx("team", "run", "echo", "say say hello")
    screen = terminal("chat", "-c")
    screen.wait_for("› say say hello\nfirst:\nsay hello\nsecond:\nhello\nthe team stopped: ")


def test_a_confirm_and_a_question_name_the_participant_that_asks(
    agx: Any, home: Path, terminal: Callable[..., Any]
) -> None:
    asking = ECHO.replace('"Echo."', '"Ask."\ntools = ["file_write", "ask_user"]', 1)
    (home / "teams" / "asking.toml").write_text(asking, encoding="utf-8")
    screen = terminal("team", "run", "asking", "Write a.txt with the text hi")
    screen.wait_for("? Create a.txt?\n  agent    first\n  tool     file_write (write)\n")
    screen.wait_for("[e]dit: ")
    screen.type("n\n")
    assert screen.exit_code() == 0
    screen = terminal("team", "run", "asking", "ask me: Which colour? (red, blue)")
    screen.wait_for("? Which colour?\n  agent    first\n  1   red\n")


@pytest.mark.ci_lane
def test_the_calls_of_participants_the_team_and_a_single_agent_are_shown(agx: Any, home: Path) -> None:
    writing = ECHO.replace('"Echo."', '"Write."\ntools = ["file_write"]', 1).replace("max_turns = 2", "max_turns = 1")
    (home / "teams" / "writing.toml").write_text(writing, encoding="utf-8")
    agx("team", "run", "writing", "Write a.txt with the text hi", "--yes")
    shown = agx("sessions", "show", "last").stdout
    assert re.search(r'\nfirst: .*\n  → file_write \{"path": "a.txt", "content": "hi"\}\n  ← Created a.txt', shown)
    assert re.search(r"^usage   .*\n        first: .* tokens", shown, re.MULTILINE)
    assert "  Write a.txt with the text hi [team writing]  " in agx("sessions", "list").stdout
    exported = agx("sessions", "export", "last", "--format", "markdown").stdout
    assert re.search(r"## first\n\n.*\n\n\*\*file\\_write\*\*\n\n```json\n", exported)


def test_without_a_terminal_the_question_that_nobody_answered_is_shown(agx: Any, home: Path) -> None:
    person = ECHO.replace('system_message = "Echo."', 'kind = "user"').replace(
        'kind = "user"', 'system_message = "A."', 1
    )
    (home / "teams" / "asking.toml").write_text(person, encoding="utf-8")
    done = agx("team", "run", "asking", "say Which size?")
    assert (done.returncode, done.stdout) == (0, "The user did not answer: nobody can be asked now.\n")
    question = (
        "? first: Which size?\n    | \n    | It is your turn to speak.\n  agent    second\n  no answer by policy\n"
    )
    assert question in done.stderr


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("nope", "hi"), "unknown team 'nope'; known teams: echo, review, triage, writer-critic"),
        ((os.fsdecode(b"a\xff"), "hi"), r"unknown team 'a\udcff'; known teams: echo"),
        ((300 * "a", "hi"), "unknown team 'aaa"),
        (("echo",), "give the team a task, or a session to go on with"),
        (("review", "hi", "--session", "last"), "has the team 'echo'; leave --session out to run 'review'"),
    ],
)
@pytest.mark.cases(quick=2)
def test_what_cannot_be_run_is_a_usage_error(agx: Any, home: Path, words: tuple[str, ...], problem: str) -> None:
    agx("team", "run", "echo", "say say hello")
    done = agx("team", "run", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert problem in done.stderr
