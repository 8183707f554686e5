"""Questions of the agent (`ask_user`) at a terminal, and without one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

ASK = "ask me: Which colour? (red, blue)"
PROMPT = "Your answer, or 1 to 2 (Ctrl-D: none): "


def result_of(agx: Any) -> str:
    """Return the result of the last session's only call."""
    session = json.loads(agx("sessions", "show", "last", "--json").stdout)
    (result,) = [message["content"] for message in session["messages"] if message["role"] == "tool"]
    return result


@pytest.mark.parametrize(
    ("keys", "answer"), [("2\n", "blue"), ("3\n", "3"), ("\n  dark \x1b[A green\n", "dark [A green")]
)
@pytest.mark.cases(quick=1)
def test_a_line_or_the_number_of_an_option_answers(
    agx: Any, terminal: Callable[..., Any], keys: str, answer: str
) -> None:
    screen = terminal("run", ASK)
    screen.wait_for("? Which colour?\n  1   red\n  2   blue\n")
    for line in keys.splitlines(keepends=True):
        screen.wait_for(PROMPT)
        screen.type(line)
    screen.wait_for(f"answered by you: {answer}")
    assert screen.exit_code() == 0
    assert result_of(agx) == answer
    assert f"  ← {answer}\n" in agx("sessions", "show", "last").stdout
    replayed = agx("sessions", "replay", "last").stderr
    assert "? Which colour?\n  1   red\n  2   blue\n" in replayed
    assert f"answered by you: {answer}\n" in replayed
    assert answer in agx("sessions", "export", "last", "--format", "markdown").stdout


def test_all_lines_of_a_paste_are_the_answer(agx: Any, terminal: Callable[..., Any]) -> None:
    screen = terminal("run", ASK)
    screen.wait_for(PROMPT)
    screen.type("1\nand more of it\n")
    screen.wait_for("answered by you: 1 and more of it")
    assert screen.exit_code() == 0
    assert result_of(agx) == "1 and more of it"


@pytest.mark.promise("E2")
def test_what_was_typed_before_is_no_answer_and_end_of_input_gives_none(agx: Any, terminal: Callable[..., Any]) -> None:
    screen = terminal("run", ASK, typed="1\n")
    screen.wait_for(PROMPT)
    screen.type("\x04")
    screen.wait_for("no answer by you")
    assert screen.exit_code() == 0
    assert result_of(agx) == "No answer: the user did not want to give one."


def test_a_chat_asks_and_a_stop_ends_the_question(agx: Any, terminal: Callable[..., Any]) -> None:
    screen = terminal("chat")
    screen.wait_for("› ")
    screen.type(ASK + "\r")
    screen.wait_for(PROMPT)
    screen.type("1\n")
    screen.wait_for("answered by you: red")
    screen.wait_for("› ")
    screen.type(ASK + "\r")
    screen.wait_for(PROMPT)
    screen.type("\x03")
    screen.wait_for("no answer by stop")
    screen.wait_for("› ")
    screen.type("\x04")
    assert screen.exit_code() == 0


@pytest.mark.parametrize("options", [(), ("--yes",)])
@pytest.mark.cases(quick=1)
def test_without_a_terminal_the_model_is_told_that_nobody_can_be_asked(agx: Any, options: tuple[str, ...]) -> None:
    done = agx("run", ASK, *options)
    assert done.returncode == 0
    assert "no answer by policy" in done.stderr
    assert result_of(agx).startswith("No answer: nobody can be asked now.")
