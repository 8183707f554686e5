"""`agx chat` from a pipe: one message per line, the slash commands, one conversation."""

from __future__ import annotations

from typing import Any

import pytest


def test_each_line_of_a_pipe_is_one_message(agx: Any) -> None:
    done = agx("chat", stdin="say one\n\nsay two\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "one\ntwo\n", "")


def test_the_turns_share_one_conversation(agx: Any) -> None:
    done = agx("chat", "--yes", stdin="remember colour: green\nrecall colour\n")
    assert "`scratchpad_read` gave:\n\n```\ngreen\n```" in done.stdout


def test_quit_leaves_before_the_next_line(agx: Any) -> None:
    assert agx("chat", stdin="say one\n/quit\nsay two\n").stdout == "one\n"


def test_commands_answer_on_stderr(agx: Any) -> None:
    done = agx("chat", stdin="/mode\n/mode plan\n/mode bold\n/model\n/model nobody:x\n/stop\n/tolls\n")
    assert (done.returncode, done.stdout) == (0, "")
    lines = done.stderr.splitlines()
    assert lines[:4] == [
        "permission mode: default",
        "permission mode: plan",
        "'bold' is no mode; modes are: default, accept_edits, plan, auto",
        "model: demo",
    ]
    assert "nobody" in lines[4]
    assert lines[5:] == [
        "no turn is running; while one runs, Ctrl-C stops it",
        "unknown command /tolls; did you mean /tools?",
    ]


def test_tools_lists_what_the_agent_can_use(agx: Any) -> None:
    agx.environment["AGX_ENABLED_TOOLS"] = "file_read,list_files"
    done = agx("chat", stdin="/tools\n")
    assert [line.split()[0] for line in done.stderr.splitlines()] == ["file_read", "list_files"]


def test_plan_mode_denies_writing(agx: Any) -> None:
    done = agx("chat", stdin="/mode plan\nWrite a.txt with the text hi\n")
    assert "← file_write denied" in done.stderr
    assert not (agx.folder / "a.txt").exists()


@pytest.mark.promise("E2")
@pytest.mark.parametrize("mode", ["accept_edits", "auto"])
def test_a_pipe_cannot_allow_itself_more(agx: Any, mode: str) -> None:
    done = agx("chat", stdin=f"/mode {mode}\nWrite a.txt with the text hi\n/mode plan\n/mode default\n")
    assert f"/mode {mode} allows more, so it is for a terminal; start with --permission-mode {mode}\n" in done.stderr
    assert "denied by policy: there is no terminal to ask at" in done.stderr
    assert done.stderr.endswith("permission mode: plan\npermission mode: default\n")
    assert not (agx.folder / "a.txt").exists()


def test_a_pipe_cannot_leave_the_plan_mode_it_was_started_in(agx: Any) -> None:
    done = agx("chat", "--yes", "--permission-mode", "plan", stdin="/mode default\nWrite a.txt with the text hi\n")
    assert "← file_write denied" in done.stderr
    assert not (agx.folder / "a.txt").exists()


def test_a_double_slash_sends_a_message_that_begins_with_one(agx: Any) -> None:
    assert "“/nonsense”" in agx("chat", stdin="//nonsense\n").stdout


def test_the_exit_code_of_a_pipe_is_that_of_the_last_turn(agx: Any, provider: Any) -> None:
    provider.status, provider.body = 401, b"{}"
    done = agx("chat", "--model", "openai-chat:x", "--base-url", provider.base_url, stdin="hello\n")
    assert done.returncode == 1
