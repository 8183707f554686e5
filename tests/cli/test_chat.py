"""`agx chat` from a pipe: one message per line, the slash commands, one conversation."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.timeouts import PATIENCE


def test_each_line_of_a_pipe_is_one_message(agx: Any) -> None:
    done = agx("chat", stdin="say one\n\nsay two\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "one\ntwo\n", "")


@pytest.mark.ci_lane
def test_a_line_that_is_too_long_is_reported_and_the_next_one_is_sent(agx: Any) -> None:
    done = agx("chat", stdin="x" * 4_100_000 + "\nsay two\n")
    sentence = "a message has at most 4,000,000 characters; put longer text into a file\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, "two\n", sentence)


def test_a_piped_chat_ends_on_sigterm_after_its_turn(agx: Any) -> None:
    process = agx.start("chat")
    process.stdin.write("say one\n")
    process.stdin.flush()
    assert process.stdout.readline() == "one\n"
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (130, "")
    assert err in ("", "stopping … (Ctrl-C again exits at once)\n")  # unless the turn had ended already
    assert (Path(agx.environment["AGX_HOME"]) / "sessions.db.owner").read_bytes() == b""  # because the store was closed


def test_the_turns_share_one_conversation(agx: Any) -> None:
    done = agx("chat", "--yes", stdin="remember colour: green\nrecall colour\n")
    assert "`scratchpad_read` gave:\n\n```\ngreen\n```" in done.stdout


def test_quit_leaves_before_the_next_line(agx: Any) -> None:
    assert agx("chat", stdin="say one\n/quit\nsay two\n").stdout == "one\n"


def test_slash_commands_print_to_stderr(agx: Any) -> None:
    done = agx("chat", stdin="/mode\n/mode plan\n/mode bold\n/model\n/model nobody:x\n/stop\n/tolls\n")
    assert (done.returncode, done.stdout) == (0, "")
    lines = done.stderr.splitlines()
    assert lines[:4] == [
        "permission mode: default",
        "permission mode: plan",
        "unknown mode 'bold'; known modes: default, accept_edits, plan, auto",
        "model: demo",
    ]
    assert lines[4] == "* demo"
    assert "nobody" in lines[-3]
    assert lines[-2:] == [
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
@pytest.mark.cases(quick=1)
def test_a_pipe_cannot_select_a_mode_that_allows_more(agx: Any, mode: str) -> None:
    done = agx("chat", stdin=f"/mode {mode}\nWrite a.txt with the text hi\n/mode plan\n/mode default\n")
    assert f"/mode {mode} allows more than this chat may; start it with --permission-mode {mode}\n" in done.stderr
    assert "denied by policy: there is no terminal to ask at" in done.stderr
    assert done.stderr.endswith("permission mode: plan\npermission mode: default\n")
    assert not (agx.folder / "a.txt").exists()


@pytest.mark.ci_lane
def test_a_pipe_cannot_leave_the_plan_mode_it_was_started_in(agx: Any) -> None:
    done = agx("chat", "--yes", "--permission-mode", "plan", stdin="/mode default\nWrite a.txt with the text hi\n")
    assert "← file_write denied" in done.stderr
    assert not (agx.folder / "a.txt").exists()


@pytest.mark.ci_lane
def test_a_double_slash_sends_a_message_that_begins_with_one(agx: Any) -> None:
    assert "“/nonsense”" in agx("chat", stdin="//nonsense\n").stdout


def test_the_exit_code_of_a_pipe_is_that_of_the_last_turn(agx: Any, provider: Any) -> None:
    provider.status, provider.body = 401, b"{}"
    done = agx("chat", "--model", "openai-chat:x", "--base-url", provider.base_url, stdin="hello\n")
    assert done.returncode == 1


def test_a_pipe_cannot_attach_files(agx: Any) -> None:
    (agx.folder / "secret.txt").write_text("s3cret")
    done = agx("chat", stdin="/attach\n/attach secret.txt\n/attach\n")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.splitlines() == [
        "no file is attached; /attach FILE attaches one to your next message",
        "/attach is for a terminal; agx run --attach sends a file from a script",
        "no file is attached; /attach FILE attaches one to your next message",
    ]


@pytest.mark.ci_lane
def test_new_starts_another_session_and_open_returns_to_the_first(agx: Any) -> None:
    done = agx("chat", "--yes", stdin="remember colour: green\n/new\nsay two\n/sessions\n/sessions colour\n")
    listed = [line for line in done.stderr.splitlines() if line.startswith("ses_")]
    assert "your next message starts a new session\n" in done.stderr
    assert ["remember colour" in line for line in listed] == [False, True, True]
    first = listed[1].split()[0]
    done = agx("chat", stdin=f"recall colour\n/open {first[:12]}\nrecall colour\n")
    assert done.stdout.endswith("`scratchpad_read` gave:\n\n```\ngreen\n```\n")
    assert f"{first} remember colour: green in {agx.folder}\n› remember colour: green\n" in done.stderr


def test_an_error_is_printed_and_the_chat_continues(agx: Any) -> None:
    done = agx("chat", stdin="/open nothing\n/open\n/open last\nsay on\n")
    assert (done.returncode, done.stdout) == (0, "on\n")
    assert done.stderr.splitlines() == [
        "no session has the id or id prefix 'nothing'; `agx sessions list` lists the sessions",
        "/open ID continues a session; /sessions lists them",
        "there is no session yet; `agx run` and `agx chat` create one",
    ]


@pytest.mark.ci_lane
def test_a_pipe_can_continue_the_last_session(agx: Any) -> None:
    agx("run", "remember colour: green", "--yes")
    for option in ("-c", "--continue", "--session=last"):
        assert "green" in agx("chat", option, stdin="recall colour\n").stdout


@pytest.mark.promise("E2")
def test_a_pipe_cannot_open_a_session_that_allows_more(agx: Any) -> None:
    agx("run", "say one", "--permission-mode", "auto")
    done = agx("chat", stdin="/open last\nWrite a.txt with the text hi\n")
    assert "refused: its mode auto allows more than this chat may\n" in done.stderr
    assert "denied by policy: there is no terminal to ask at" in done.stderr
    assert not (agx.folder / "a.txt").exists()


def test_a_chat_without_a_message_creates_no_session(agx: Any) -> None:
    agx("chat", stdin="/mode plan\n/model\n")
    assert agx("sessions", "list").stdout == ""


OWN_AGENTS = """
from agenticx.core import Agent, Result
from agenticx.testing import ScriptedModel, call
from studio import create_app

def transfer_to_billing() -> Agent:
    return billing

model = ScriptedModel([call("transfer_to_billing"), "What for?", "Two."])
billing = Agent(name="Billing")
app = create_app(models={"own": model}, tools=[transfer_to_billing], agents=[billing])
"""


@pytest.mark.ci_lane
def test_a_chat_shows_who_takes_over_and_chooses_who_answers(agx: Any) -> None:
    (agx.folder / "own.py").write_text(OWN_AGENTS)
    served = agx.start("serve", "--port", "0", "--app", "own:app")
    assert "is ready" in served.stderr.readline()
    lines = "/agent\nPay!\n/agent\n/agent Nobody\n/agent meta\nsay two\n"
    done = agx("chat", "--model", "own", "--permission-mode", "auto", stdin=lines)
    served.send_signal(signal.SIGTERM)
    served.communicate(timeout=PATIENCE)
    assert done.stdout == "What for?\nTwo.\n"
    shown = [line for line in done.stderr.splitlines() if "agent" in line or "hands over" in line]
    assert shown == [
        "/agent is for a session; your next message starts one",
        "… meta hands over to Billing",
        "… agent: Billing",
        "agent: Billing",
        "unknown agent 'Nobody'; known agents: 'Billing'; null stands for the main agent; "
        "a hub has others with open_hub(agents=[…]), a studio with create_app(agents=[…])",
        "agent: meta",
    ]
