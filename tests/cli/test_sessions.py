"""Sessions in the terminal: stored, continued, listed, shown, exported, replayed, deleted."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agenticx.testing import check_grammar
from tests.support.database_versions import set_version, version_of


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def ids(agx: Any) -> list[str]:
    """Return the ids of the sessions, newest first."""
    return [row["id"] for row in rows(agx("sessions", "list", "--json").stdout)]


# --- continuing -------------------------------------------------------------------------------------------------------


def test_a_session_continues_in_another_process(agx: Any) -> None:
    assert agx("run", "remember colour: green", "--yes").returncode == 0
    done = agx("run", "recall colour", "--session", "last")
    assert "`scratchpad_read` gave:\n\n```\ngreen\n```" in done.stdout
    assert len(ids(agx)) == 1


@pytest.mark.ci_lane
def test_last_is_the_most_recently_used_session(agx: Any) -> None:
    agx("run", "say one")
    agx("run", "say two")
    _, older = ids(agx)
    agx("run", "say three", "--session", older)
    assert rows(agx("sessions", "show", "last", "--json").stdout)[0]["id"] == older


@pytest.mark.ci_lane
@pytest.mark.parametrize("noted", [True, False])
def test_last_is_unset_once_its_session_is_deleted(agx: Any, noted: bool) -> None:
    agx("run", "say one")
    agx("run", "say two")
    last, other = ids(agx)
    if not noted:  # then it is the newest
        (Path(agx.environment["AGX_HOME"]) / "last_session").unlink()
    assert agx("sessions", "delete", "last", "--yes").stderr == f"{last} was deleted\n"
    again = agx("sessions", "delete", "last", "--yes")
    expected = f"agx: the last session, {last}, was deleted; `agx sessions list` lists the others\n"
    assert (again.returncode, again.stderr) == (2, expected)
    assert ids(agx) == [other]
    agx("run", "say three", "--session", other)
    assert rows(agx("sessions", "show", "last", "--json").stdout)[0]["id"] == other


@pytest.mark.ci_lane
def test_a_prefix_of_an_id_is_enough_if_it_is_unambiguous(agx: Any) -> None:
    agx("run", "say one")
    agx("run", "say two")
    one, other = ids(agx)
    for word in (one, one[:-1], one.removeprefix("ses_")[:16]):
        assert rows(agx("sessions", "show", word, "--json").stdout)[0]["id"] == one
    done = agx("run", "say more", "--session", "ses_")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"agx: 'ses_' is the prefix of 2 session ids: {one}, {other}\n"


@pytest.mark.parametrize("word", ["nothing", "../x", "", "ses 1"])
@pytest.mark.cases(quick=2)
def test_an_unknown_session_id_is_a_usage_error(agx: Any, word: str) -> None:
    agx("run", "say one")
    done = agx("run", "say more", "--session", word)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"no session has the id or id prefix {word!r}; `agx sessions list` lists the sessions" in done.stderr


def test_last_is_a_usage_error_without_sessions(agx: Any) -> None:
    done = agx("run", "say more", "--session", "last")
    assert (done.returncode, done.stderr) == (2, "agx: there is no session yet; `agx run` and `agx chat` create one\n")


@pytest.mark.ci_lane
def test_a_session_keeps_its_folder(agx: Any, tmp_path: Path) -> None:
    agx("run", "say one")
    (tmp_path / "elsewhere").mkdir()
    agx.folder, work = tmp_path / "elsewhere", agx.folder
    done = agx("run", "Write a.txt with the text hi", "--yes", "--session", "last")
    assert done.stderr.startswith(f"this session works in {work}\n")
    assert (work / "a.txt").read_text() == "hi"
    done = agx("run", "say two", "--session", "last", "--cwd", ".")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"works in {str(work)!r}; without --cwd it goes on there, and `agx sessions move ses_" in done.stderr


@pytest.mark.ci_lane
def test_a_session_keeps_its_permission_mode_until_an_option_changes_it(agx: Any) -> None:
    agx("run", "say one", "--permission-mode", "plan")
    assert "← file_write denied" in agx("run", "Write a.txt with the text hi", "--yes", "--session", "last").stderr
    agx("run", "Write a.txt with the text hi", "--session", "last", "--permission-mode", "auto")
    assert (agx.folder / "a.txt").read_text() == "hi"
    assert rows(agx("sessions", "list", "--json").stdout)[0]["permission_mode"] == "auto"


@pytest.mark.ci_lane
@pytest.mark.promise("E2")
@pytest.mark.parametrize("command", [["run", "Write a.txt with the text hi"], ["chat"]])
def test_mode_auto_is_not_resumed_where_nobody_can_be_asked(agx: Any, command: list[str]) -> None:
    agx("run", "say one", "--permission-mode", "auto")
    stdin = "Write a.txt with the text hi\nWrite b.txt with the text hi\n"
    done = agx(*command, "--session", "last", stdin=stdin)
    assert "this turn runs in mode default, not auto: there is no terminal to ask at\n" in done.stderr
    assert "denied by policy: there is no terminal to ask at" in done.stderr
    assert not (agx.folder / "a.txt").exists()
    assert not (agx.folder / "b.txt").exists()
    assert rows(agx("sessions", "list", "--json").stdout)[0]["permission_mode"] == "auto"
    assert '"data":{"permission_mode"' not in agx("sessions", "export", "last").stdout
    done = agx(*command, "--session", "last", "--yes", stdin=stdin)
    assert "this turn runs" not in done.stderr
    assert (agx.folder / "a.txt").exists()


@pytest.mark.ci_lane
def test_a_new_session_of_a_pipe_keeps_the_mode_that_was_set(agx: Any) -> None:
    agx.environment["AGX_PERMISSION_MODE"] = "auto"
    agx("chat", stdin="say one\nWrite a.txt with the text hi\n")
    assert (agx.folder / "a.txt").exists()


@pytest.mark.parametrize(("keys", "mode"), [("x\ny\n", "auto"), ("\n", "default")])
@pytest.mark.cases(quick=1)
def test_a_chat_asks_before_it_goes_on_in_mode_auto(
    agx: Any, terminal: Callable[..., Any], keys: str, mode: str
) -> None:
    agx("run", "say one", "--permission-mode", "auto")
    screen = terminal("chat", "-c")
    screen.wait_for("demo, mode auto; /help")
    screen.wait_for("Go on in mode auto? [y/N]: ")
    for line in keys.splitlines():
        screen.type(f"{line}\n")
        if line == "x":
            screen.wait_for("Go on in mode auto? [y/N]: ")
    screen.wait_for("› say one\none\n")
    screen.wait_for("› ")
    screen.type("/mode\r")
    screen.wait_for(f"permission mode: {mode}\n")
    screen.wait_for("› ")
    screen.type("\x04")
    assert screen.exit_code() == 0
    assert rows(agx("sessions", "list", "--json").stdout)[0]["permission_mode"] == mode


def test_the_header_of_a_new_chat_says_that_it_is_in_mode_auto(terminal: Callable[..., Any]) -> None:
    screen = terminal("chat", "--permission-mode", "auto")
    screen.wait_for(", mode auto; /help")
    screen.wait_for("in mode auto calls run without being asked about\n")
    screen.wait_for("› ")
    screen.process.send_signal(signal.SIGTERM)
    assert screen.exit_code() == 130


@pytest.mark.ci_lane
def test_the_call_allowed_for_a_session_is_allowed_in_its_next_process(agx: Any, terminal: Callable[..., Any]) -> None:
    screen = terminal("run", "run touch made")
    screen.wait_for("[e]dit: ")
    screen.type("s\n")
    screen.wait_for("← bash_exec ok")
    assert screen.exit_code() == 0
    screen.wait_for(f"(agx run --session {ids(agx)[0]} … continues this session)")
    (agx.folder / "made").unlink()
    done = agx("run", "run touch made", "--session", "last")
    assert "← bash_exec ok" in done.stderr
    assert (agx.folder / "made").exists()


# --- what is stored ---------------------------------------------------------------------------------------------------


def test_run_prints_the_stored_envelopes_byte_for_byte(agx: Any) -> None:
    (agx.folder / "a.txt").write_text("alpha\n")
    first = agx("run", "read a.txt", "--json").stdout
    second = agx("run", "Write b.txt with the text hi", "--json", "--yes", "--session", "last").stdout
    check_grammar(rows(first + second))
    stored = rows(agx("sessions", "export", "last").stdout)
    turn_rows = [row for row in stored if row["turn_id"] is not None]
    assert turn_rows == rows(first + second)
    assert [row["seq"] for row in stored] == list(range(1, len(stored) + 1))
    assert agx("sessions", "export", "last").stdout == agx("sessions", "replay", "last", "--json").stdout
    assert first in agx("sessions", "export", "last").stdout


def test_a_replay_prints_what_the_turn_printed_and_the_messages_and_questions(agx: Any) -> None:
    (agx.folder / "notes.csv").write_text("1,2\n")
    once = agx("run", "Write b.txt with the text hi", "--yes", "--attach", "notes.csv")
    again = agx("sessions", "replay", "last")
    assert again.stdout == once.stdout
    lines = again.stderr.splitlines()
    assert lines[0] == "› Write b.txt with the text hi [with notes.csv]"
    assert "? Create b.txt?" in lines
    assert [line for line in lines if line in once.stderr.splitlines()] == once.stderr.splitlines()


def test_list_prints_a_line_for_each_session_and_finds_messages(agx: Any) -> None:
    agx("run", "say the heron is grey")
    agx("run", "say two", "--session", "last")
    agx("run", "say something else")
    newer, older = ids(agx)
    lines = agx("sessions", "list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == [newer, older]
    assert "  say the heron is grey  " in lines[1]
    found = agx("sessions", "list", "heron").stdout.splitlines()
    assert found[0].startswith(older)
    assert "    user: say the heron is grey" in found
    assert agx("sessions", "list", "--limit", "1").stdout.splitlines() == lines[:1]
    none = agx("sessions", "list", "ostrich")
    assert (none.returncode, none.stdout, none.stderr) == (0, "", "no session matches 'ostrich'\n")


def test_show_prints_fields_last_terminal_event_and_messages(agx: Any) -> None:
    (agx.folder / "a.txt").write_text("alpha\n")
    agx("run", "read a.txt", "--model", "demo")
    shown = agx("sessions", "show", "last").stdout.splitlines()
    assert shown[1:5] == ["name    read a.txt", f"folder  {agx.folder}", "model   demo", "mode    default"]
    assert shown[6].startswith("usage   2 calls, ")
    assert shown[7] == "turns   1; the last one ended with an answer"
    assert shown[9:14] == ["› read a.txt", "", "I'll read a.txt.", '  → file_read {"path": "a.txt"}', "  ← alpha"]
    (whole,) = rows(agx("sessions", "show", "last", "--json").stdout)
    assert [message["role"] for message in whole["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert [(turn["ended"], turn["code"]) for turn in whole["turns"]] == [("final", "answer")]


def test_export_writes_a_file_of_either_form(agx: Any) -> None:
    agx("run", "say hello")
    done = agx("sessions", "export", "last", "--format", "markdown", "-o", "talk.md")
    assert (done.returncode, done.stdout) == (0, "")
    assert "## You\n\nsay hello\n\n## Assistant\n\nhello\n" in (agx.folder / "talk.md").read_text()
    agx("sessions", "export", "last", "-o", "talk.jsonl")
    assert agx("sessions", "replay", "talk.jsonl").stdout == "hello\n"
    printed = agx("sessions", "export", "last", "-o", "-")
    assert (printed.returncode, printed.stdout) == (0, (agx.folder / "talk.jsonl").read_text())
    assert sorted(file.name for file in agx.folder.iterdir()) == ["talk.jsonl", "talk.md"]


def test_a_replay_of_a_file_without_line_breaks_ends_with_an_error(agx: Any) -> None:
    (agx.folder / "talk.jsonl").touch()
    os.truncate(agx.folder / "talk.jsonl", 8 * 1024**3)
    endless = agx("sessions", "replay", "talk.jsonl")
    assert (endless.returncode, endless.stderr) == (
        1,
        "agx: talk.jsonl, line 1: not a session event: it has more than 128 MiB\n",
    )


@pytest.mark.ci_lane
def test_replay_prefers_a_file_to_a_session(agx: Any) -> None:
    agx("run", "say hello")
    agx("sessions", "export", "last", "-o", "talk")
    agx("run", "say two")
    (agx.folder / "last").write_bytes((agx.folder / "talk").read_bytes())
    assert agx("sessions", "replay", "talk").stdout == "hello\n"
    assert agx("sessions", "replay", "last").stdout == "two\n"
    assert agx("sessions", "replay", "./last").stdout == "hello\n"
    neither = agx("sessions", "replay", "tlak")
    assert (neither.returncode, neither.stdout) == (2, "")
    assert neither.stderr.startswith("agx: no session has the id or id prefix 'tlak'")
    assert neither.stderr.endswith(", and there is no file with that name\n")
    assert agx("sessions", "replay", "./tlak").stderr == "agx: tlak: No such file or directory\n"


def test_an_exported_file_has_mode_0600_and_overwrites_only_with_force(agx: Any) -> None:
    agx("run", "say hello")
    file = agx.folder / "talk.md"
    file.write_text("mine")
    file.chmod(0o644)
    command = ("sessions", "export", "last", "--format", "markdown", "-o", "talk.md")
    refused = agx(*command)
    assert (refused.returncode, refused.stderr) == (1, "agx: talk.md already exists; --force overwrites it\n")
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("mine", 0o644)
    assert agx(*command, "--force").returncode == 0
    assert ("hello" in file.read_text(), file.stat().st_mode & 0o777) == (True, 0o600)
    file.unlink()
    assert agx(*command).returncode == 0
    assert file.stat().st_mode & 0o777 == 0o600
    assert agx("sessions", "export", "last", "-o", "/dev/null").returncode == 0


@pytest.mark.ci_lane
def test_a_search_for_bytes_that_are_not_text_finds_nothing(agx: Any) -> None:
    agx("run", "say hello")
    done = agx("sessions", "list", "\udcff")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "no session matches '\ufffd'\n")


@pytest.mark.ci_lane
def test_a_session_that_cannot_be_read_can_be_deleted_by_its_id(agx: Any) -> None:
    agx("run", "say one")
    (session,) = ids(agx)
    with closing(sqlite3.connect(Path(agx.environment["AGX_HOME"]) / "sessions.db", isolation_level=None)) as database:
        database.execute("UPDATE sessions SET record = '{'")
    refused = agx("sessions", "delete", session)
    assert (refused.returncode, "the record of a session is damaged" in refused.stderr) == (1, True)
    done = agx("sessions", "delete", session, "--yes")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (0, f"{session} was deleted")
    again = agx("sessions", "delete", session, "--yes")
    assert again.stderr == (
        f"agx: no session has the id or id prefix {session!r}; `agx sessions list` lists the sessions\n"
    )


@pytest.mark.ci_lane
def test_delete_removes_a_session_after_confirmation(agx: Any, terminal: Callable[..., Any]) -> None:
    agx("run", "say one")
    (session,) = ids(agx)
    refused = agx("sessions", "delete", "last")
    assert (refused.returncode, refused.stderr) == (
        2,
        "agx: there is no terminal to ask at; --yes deletes without asking\n",
    )
    for answer, code, message in (("n", 1, "nothing was deleted"), ("y", 0, f"{session} was deleted")):
        screen = terminal("sessions", "delete", session)
        screen.wait_for(f"{session}  ")
        screen.wait_for("Delete it permanently? [y/N]: ")
        screen.type(f"{answer}\n")
        screen.wait_for(message)
        assert screen.exit_code() == code
    assert ids(agx) == []
    assert agx("sessions", "show", session).returncode == 2


# --- processes that die -----------------------------------------------------------------------------------------------


def test_a_killed_turn_ends_as_interrupted_and_the_session_continues(agx: Any) -> None:
    process = agx.start("run", "count to 9999", "--json")
    seen = [process.stdout.readline() for _ in range(8)]
    process.kill()
    process.communicate()
    (whole,) = rows(agx("sessions", "show", "last", "--json").stdout)
    assert [(turn["ended"], turn["code"]) for turn in whole["turns"]] == [("error", "interrupted")]
    assert "ended with error interrupted" in agx("sessions", "show", "last").stdout
    assert agx("sessions", "export", "last").stdout.startswith("".join(seen))
    assert agx("run", "say more", "--session", "last").stdout == "more\n"


@pytest.mark.ci_lane
def test_a_question_of_a_killed_process_is_asked_again_when_a_chat_resumes(
    agx: Any, terminal: Callable[..., Any]
) -> None:
    first = terminal("run", "Write a.txt with the text hi")
    first.wait_for("[e]dit: ")
    os.killpg(first.process.pid, signal.SIGKILL)
    first.process.wait()
    assert "turns   1; the last one runs, or waits for an answer" in agx("sessions", "show", "last").stdout
    busy = agx("run", "say more", "--yes", "--session", "last")
    assert (busy.returncode, busy.stdout) == (1, "")
    assert "shows the running turn" in busy.stderr
    assert not (agx.folder / "a.txt").exists()

    chat = terminal("chat", "--continue")
    chat.wait_for("[e]dit: ")
    chat.type("y\n")
    chat.wait_for("← file_write ok")
    chat.wait_for("› ")
    assert (agx.folder / "a.txt").read_text() == "hi"
    chat.type("\x04")
    assert chat.exit_code() == 0


# --- one owner --------------------------------------------------------------------------------------------------------


@pytest.mark.ci_lane
def test_a_turn_runs_unstored_with_a_note_while_another_terminal_keeps_the_sessions_to_itself(
    agx: Any, terminal: Callable[..., Any]
) -> None:
    agx("run", "say one")
    chat = terminal("chat", "--max-tool-rounds", "12")
    chat.wait_for("› ")
    owner = f"(process {chat.process.pid})"
    done = agx("run", "say two")
    assert (done.returncode, done.stdout) == (0, "two\n")
    assert done.stderr.startswith("this session is not stored: ")
    assert owner in done.stderr
    still = "; agx sessions list, show, export, replay and usage still work\n"
    assert still in done.stderr
    for words in (["run", "say three", "--session", "last"], ["chat", "-c"], ["sessions", "pin", "last"]):
        refused = agx(*words)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert owner in refused.stderr
        assert refused.stderr.endswith(still)
    chat.type("\x04")
    assert chat.exit_code() == 0
    assert len(ids(agx)) == 1


def test_a_database_of_another_version_is_left_unchanged_and_the_turn_runs_unstored(agx: Any) -> None:
    agx("run", "say one")
    database = Path(agx.environment["AGX_HOME"]) / "sessions.db"
    version = version_of(database)
    set_version(database, 99)
    before = database.read_bytes()
    sentence = (
        f"{str(database)!r} has version 99 of the session database, and this AgenticX has version"
        f" {version}; it was left unchanged. Use the AgenticX that wrote it, or another AGX_HOME\n"
    )
    done = agx("run", "say two")
    assert (done.returncode, done.stdout, done.stderr) == (0, "two\n", f"this session is not stored: {sentence}")
    for words in (["run", "say three", "--session", "last"], ["sessions", "list"]):
        refused = agx(*words)
        assert (refused.returncode, refused.stdout, refused.stderr) == (1, "", f"agx: {sentence}")
    assert database.read_bytes() == before


def test_a_turn_runs_unstored_if_the_store_path_is_not_writable(agx: Any) -> None:
    (agx.folder / "file").write_text("")
    agx.environment["AGX_STORE_URL"] = f"sqlite:///{agx.folder}/file/sessions.db"
    done = agx("run", "say two")
    assert (done.returncode, done.stdout) == (0, "two\n")
    assert done.stderr.startswith("this session is not stored: ")
    refused = agx("sessions", "list")
    assert (refused.returncode, refused.stdout) == (1, "")


def test_commands_that_need_no_session_take_no_lock(agx: Any) -> None:
    for words in (["model", "call", "demo", "say hi"], ["permissions", "explain", "file_read", '{"path": "a"}']):
        assert agx(*words).returncode == 0
    assert not (Path(agx.environment["AGX_HOME"]) / "sessions.db").exists()
    assert not list(Path(agx.environment["AGX_HOME"]).glob("*.owner"))
