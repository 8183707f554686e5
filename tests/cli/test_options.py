"""Options in the terminal: several answers to one message, their files, and the one that goes on."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

TASK = ["--agent", "page-builder", "Build a page about bread"]


@pytest.fixture(params=["in this process", "at a server", "beside a chat"])
def made(request: pytest.FixtureRequest, agx: Any) -> tuple[Any, subprocess.CompletedProcess[str]]:
    """Return the shell with a session of two options, in the three ways to read it, and the run that made them."""
    if request.param == "at a server":
        request.getfixturevalue("studio")
    done = agx("run", "--variants", "2", *TASK)
    if request.param == "beside a chat":
        request.getfixturevalue("terminal")("chat").wait_for("› ")
    return agx, done


@pytest.mark.cases(quick=1)
def test_a_run_makes_options_whose_files_can_be_read(made: tuple[Any, subprocess.CompletedProcess[str]]) -> None:
    shell, done = made
    answer = re.fullmatch(
        r"- Option 1 \(demo\): index.html \((\S+) bytes\)\n- Option 2 \(demo\): index.html \((\S+) bytes\)\n",
        done.stdout,
    )
    assert (done.returncode, answer is not None) == (0, True), done
    assert answer is not None
    files = [re.fullmatch(r"option (\d)  index.html  (\S+) bytes, revision \d", line) for line in _notes(done)]
    assert {line and line[1]: line and line[2] for line in files} == {"1": answer[1], "2": answer[2]}

    listed = shell("artifacts", "list", "last", "--option", "2")
    assert re.fullmatch(rf"index.html  {answer[2]} bytes, revision \d, text/html\n", listed.stdout), listed
    pages = [shell("artifacts", "show", "last", "--option", number).stdout for number in ("1", "2")]
    assert pages[0] != pages[1]
    assert shell("artifacts", "show", "last", "--option", "1", "--revision", "1").returncode == 0  # the only file
    assert all(page.startswith("<!doctype html>") for page in pages)
    saved = shell("artifacts", "save", "last", "--option", "2", "--to", "site")
    assert (saved.returncode, (shell.folder / "site" / "index.html").read_text()) == (0, pages[1])
    assert (
        "options have files of their own: `--option 1` names one of 1, 2" in shell("artifacts", "list", "last").stderr
    )
    for action in ("list", "show", "save"):
        unknown = shell("artifacts", action, "last", "--option", "3")
        assert (unknown.returncode, unknown.stdout) == (1, "")
        assert unknown.stderr == "agx: the session has no option 3; it has 1, 2\n"


@pytest.mark.ci_lane
@pytest.mark.parametrize("place", ["in this process", "at a server"])
@pytest.mark.cases(quick=1)
def test_a_chat_picks_the_option_to_go_on_with(agx: Any, request: pytest.FixtureRequest, place: str) -> None:
    if place == "at a server":
        request.getfixturevalue("studio")
    agx("run", "--variants", "2", *TASK)
    done = agx("chat", "-c", stdin="/pick 2\n/pick 3\n/pick x\n/pick\n")
    assert done.stderr.splitlines()[-4:] == [
        "your next message goes on with option 2",
        "the session has no option 3; it has 1, 2",
        "/pick 'x': the number of an option",
        "/pick '': the number of an option",
    ]
    assert agx("sessions", "show", "last").stdout.endswith("\n\n… option 2 goes on\n")
    assert agx("artifacts", "show", "last").stdout == agx("artifacts", "show", "last", "--option", "2").stdout != ""
    assert "taken back: Build a page about bread" in agx("chat", "-c", stdin="/rewind\n").stderr


@pytest.mark.ci_lane
@pytest.mark.parametrize("place", ["in this process", "at a server"])
@pytest.mark.cases(quick=1)
def test_the_next_message_says_which_option_goes_on(agx: Any, request: pytest.FixtureRequest, place: str) -> None:
    if place == "at a server":
        request.getfixturevalue("studio")
    agx("run", "--variants", "2", *TASK)
    done = agx("run", "-c", "Make the headings smaller")
    assert done.returncode == 0
    assert done.stderr.splitlines().count("… option 1 goes on") == 1
    assert "goes on" not in agx("run", "-c", "Thanks").stderr


def _notes(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stderr.splitlines() if not line.startswith("instructions:")]


@pytest.mark.ci_lane
def test_models_make_options_as_json_lines(agx: Any) -> None:
    done = agx("run", "--json", "--variants", "demo, demo", *TASK)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    finals = [event["agent_id"] for event in events if event["type"] == "final"]
    assert (done.returncode, sorted(finals), finals[-1]) == (0, ["meta", "option-1", "option-2"], "meta")


def test_variants_that_cannot_be_made_are_refused(agx: Any) -> None:
    for given in ("1", "9", "demo", "demo,", "", ",".join(["demo"] * 9)):
        done = agx("run", "--variants", given, "say one")
        assert (done.returncode, done.stdout) == (2, ""), given
        assert "is neither a number from 2 to 8 nor the names of as many models" in done.stderr
    done = agx("run", "--variants", "demo,nope", "say one")
    assert (done.returncode, done.stdout) == (2, "")
    assert "model 'nope' is not provider:name" in done.stderr
    assert "is not the number of an option" in agx("artifacts", "list", "last", "--option", "x").stderr


def test_a_question_names_its_option(agx: Any, terminal: Callable[..., Any]) -> None:
    run = terminal("run", "--variants", "2", "Write a.txt with the text hi")
    for _ in range(2):
        run.wait_for("Allow this?")
        run.type("n\n")
    assert run.exit_code() == 0
    assert set(re.findall(r"agent +(\S+)", run.screen)) == {"option-1", "option-2"}
    assert not (agx.folder / "a.txt").exists()
