"""Behaviour at a terminal: questions and answers, Ctrl-C and Ctrl-D, the chat prompt."""

from __future__ import annotations

import json
import re
import signal
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agenticx.untrusted_text import MATERIAL, frame_text
from tests.support.program import LONG_HOLD
from tests.support.wires import files

WRITE = "Write note.txt with the text hi"
PROMPT = "[n]o [reason], [e]dit: "
AGAIN = "y, s, a, x, n [reason] or e (Enter: no): "


@pytest.mark.parametrize(("keys", "written"), [("y\n", True), ("yes\n", True), ("n\n", False), ("\n", False)])
@pytest.mark.cases(quick=2)
def test_a_question_is_shown_in_full_and_its_answer_decides(
    agx: Any, terminal: Callable[..., Any], keys: str, written: bool
) -> None:
    screen = terminal("run", WRITE)
    screen.wait_for("  tool     file_write (write)\n")
    screen.wait_for("+hi\n")
    screen.wait_for(PROMPT)
    assert "\x1b[7;33mAllow this? " in screen.raw  # no text of the model is reversed
    assert not (agx.folder / "note.txt").exists()
    screen.type(keys)
    screen.wait_for("allowed by you" if written else "denied by you")
    assert screen.exit_code() == 0
    assert (agx.folder / "note.txt").exists() is written


@pytest.mark.ci_lane
def test_a_call_that_is_confirmed_is_shown_once(terminal: Callable[..., Any]) -> None:
    screen = terminal("chat", prepare=LONG_HOLD)
    screen.wait_for("› ")
    screen.type("run touch made\r")
    screen.wait_for(PROMPT)
    screen.type("y\n")
    screen.wait_for("\n  allowed by you\n")
    screen.wait_for("← bash_exec ok")
    screen.wait_for("› ")
    screen.type("list the files here\r")
    screen.wait_for("→ list_files\n← list_files ok")
    screen.wait_for("› ")
    assert "→ bash_exec" not in screen.screen


@pytest.mark.ci_lane
def test_a_kind_of_calls_can_be_allowed_for_the_session_and_always(agx: Any, terminal: Callable[..., Any]) -> None:
    screen = terminal("chat")
    screen.wait_for("› ")
    screen.type("run touch made && mkdir -p other\r")
    screen.wait_for("\n  kind     touch …\n  kind     mkdir …\n")
    screen.wait_for("Allow this? [y]es, [s]ession, [a]lways, e[x]actly this, [n]o [reason], [e]dit: ")
    screen.type("?\n")
    screen.wait_for("s           run it, and in this session ask no more about: touch …; mkdir …\n")
    screen.wait_for("a           run it, and in this folder never again ask about: touch …; mkdir …\n")
    screen.wait_for(AGAIN)
    screen.type("s\n")
    screen.wait_for("allowed by you for this session\n")
    screen.wait_for("› ")
    screen.type("run touch more\r")
    screen.wait_for("← bash_exec ok")
    screen.wait_for("› ")
    screen.type("Write a.txt with the text one\r")
    screen.wait_for("  kind     edit files in the workspace's own folder\n")
    screen.wait_for(PROMPT)  # not before it is whole: what is typed would be shown within it
    screen.type("a\n")
    screen.wait_for("allowed by you always\n")
    screen.wait_for("› ")
    screen.type("/new\rWrite b.txt with the text two\r")
    screen.wait_for("← file_write ok")
    screen.wait_for("› ")
    screen.type("run touch again\r")  # in a session that has no rules
    screen.wait_for("e[x]actly this, [n]o [reason], [e]dit: ")
    screen.type("x\n")
    screen.wait_for("← bash_exec ok")
    screen.wait_for("› ")
    screen.type("run touch again\r")
    screen.wait_for("← bash_exec ok")
    screen.wait_for("› ")
    screen.type("\x04")
    assert screen.exit_code() == 0
    assert screen.screen.count(PROMPT) == 3
    assert "allow edit path=*  " in agx("permissions", "list").stdout


def test_a_yes_that_cannot_be_remembered_is_not_offered(agx: Any, terminal: Callable[..., Any]) -> None:
    screen = terminal("run", "Write .git/hooks/x with the text hi")
    screen.wait_for("Allow this? [y]es, [n]o [reason], [e]dit: ")
    screen.type("s\n")
    screen.wait_for("(a call like this is asked about each time: a yes cannot be remembered)\n")
    screen.wait_for("y, n [reason] or e (Enter: no): ")
    screen.type("\n")
    screen.wait_for("denied by you")
    assert screen.exit_code() == 0


def test_input_typed_before_the_question_is_discarded(agx: Any, terminal: Callable[..., Any]) -> None:
    screen = terminal("run", WRITE, typed="y\n")
    screen.wait_for(PROMPT)
    screen.type("\n")
    screen.wait_for("denied by you")
    assert screen.exit_code() == 0
    assert not (agx.folder / "note.txt").exists()


def test_end_of_input_at_a_question_denies_it(agx: Any, terminal: Callable[..., Any]) -> None:
    screen = terminal("run", WRITE)
    screen.wait_for(PROMPT)
    screen.type("\x04")
    screen.wait_for("\n  denied by you\n")
    assert screen.exit_code() == 0


def test_anything_else_asks_again_and_a_reason_reaches_the_model(agx: Any, terminal: Callable[..., Any]) -> None:
    screen = terminal("run", WRITE)
    screen.wait_for(PROMPT)
    screen.type("yep\n")
    screen.wait_for("in this session ask no more about this file, whatever is written to it\n")
    screen.wait_for("  n [reason]  do not run it, and tell the model the reason\n")
    screen.wait_for(AGAIN)
    screen.type("y please\ny\n")  # the second line was typed before the next question
    screen.wait_for(AGAIN)
    screen.type("n write \x1b[Aelsewhere\n")
    screen.wait_for("denied by you: write [Aelsewhere")
    assert screen.exit_code() == 0
    assert not (agx.folder / "note.txt").exists()
    session = json.loads(agx("sessions", "show", "last", "--json").stdout)
    (result,) = [message["content"] for message in session["messages"] if message["role"] == "tool"]
    assert result == "Denied by the user. Reason: write [Aelsewhere"


LONG_WORDS = " ".join(("a\tlink https://example.com/" + "a" * 90, "x" * 81, "汉字" * 60, "👩\u200d💻" * 50))


@pytest.mark.ci_lane
@pytest.mark.parametrize("columns", [80, 0, 1, 2, 4, 8])
@pytest.mark.cases(quick=1)
def test_words_that_are_longer_than_a_line_are_shown_whole(
    agx: Any, terminal: Callable[..., Any], columns: int
) -> None:
    if not columns:
        agx.environment["COLUMNS"] = "0"
    run = terminal("run", f"say {LONG_WORDS}", columns=columns)
    assert run.exit_code() == 0
    assert run.screen.partition("(agx run --session")[0] == f"{LONG_WORDS}\n"
    assert run.screen.endswith(" … continues this session)\n")
    replayed = terminal("sessions", "replay", "last", columns=columns)
    assert (replayed.exit_code(), replayed.screen.splitlines()[1]) == (0, LONG_WORDS)
    agx.environment["TERM"] = "dumb"
    chat = terminal("chat", "-c", columns=columns)
    chat.wait_for("\n| a")
    chat.type("/quit\r")
    assert chat.exit_code() == 0
    assert f"\n| {LONG_WORDS}\n" in re.sub(r"\n\| (?!a\t)", "", chat.screen)


BROKEN_MARKDOWN = """
from agenticx.cli.terminal import markdown_output
def find_cuts(source, find=markdown_output._find_cuts):
    return find(source) if len(source) < 9 else [][0]
markdown_output._find_cuts = find_cuts
"""
BROKEN_CALLS = """
from agenticx.cli.terminal import plain_output as output
def event_note(event, note=output.event_note, **options):
    return [][0] if event.type == "tool_call" else note(event, **options)
output.event_note = event_note
"""


@pytest.mark.ci_lane
def test_a_turn_goes_on_when_its_output_fails(agx: Any, terminal: Callable[..., Any]) -> None:
    chat = terminal("chat", prepare=BROKEN_MARKDOWN)
    chat.wait_for("› ")
    chat.type("say **one**two\r")  # one word: a line of the log may come between two
    chat.wait_for("\n**one**two\n")
    chat.wait_for("Markdown cannot be rendered and is written plainly")
    chat.wait_for("› ")
    chat.type("\x04")
    assert chat.exit_code() == 0
    run = terminal("run", WRITE, "--yes", prepare=BROKEN_CALLS)
    run.wait_for("I'll write note.txt.\n· tool_call {\n")
    run.wait_for('"name": "file_write"')
    run.wait_for("output failed and is written plainly")
    run.wait_for("← file_write ok")
    assert run.exit_code() == 0
    assert (agx.folder / "note.txt").read_text() == "hi"


def test_the_arguments_that_the_user_edits_are_those_that_run(agx: Any, terminal: Callable[..., Any]) -> None:
    editor = agx.folder.parent / "editor"
    editor.write_text('#!/bin/sh\nls -l "$1" >> seen\nsed -i "$(cat script)" "$1"\n')
    editor.chmod(0o755)
    agx.environment["EDITOR"] = str(editor)
    screen = terminal("run", WRITE)
    for script, answer in (("s/q/z/", "the arguments are unchanged"), ("s/{/[/", "the edited arguments are not JSON")):
        (agx.folder / "script").write_text(script)
        screen.wait_for(PROMPT if "q" in script else AGAIN)
        screen.type("e\n")
        screen.wait_for(answer)
    screen.wait_for("; e goes on with your text, y runs the call as shown")
    screen.wait_for(AGAIN)
    (agx.folder / "script").write_text(r"s/\[/{/; s/hi/ho/")
    screen.type("e\n")
    screen.wait_for('allowed by you, with the arguments {"path": "note.txt", "content": "ho"}')
    assert screen.exit_code() == 0
    assert (agx.folder / "note.txt").read_text() == "ho"
    shown = agx("sessions", "show", "last").stdout
    assert '← The user ran this call with other arguments: {"path": "note.txt", "content": "ho"}' in shown
    modes, _, names = zip(
        *(line.partition(" ") for line in (agx.folder / "seen").read_text().splitlines()), strict=True
    )
    assert set(modes) == {"-rw-------"}
    assert not any(Path(name.split()[-1]).exists() for name in names)


@pytest.mark.ci_lane
def test_arguments_can_be_edited_at_the_prompt(agx: Any, terminal: Callable[..., Any]) -> None:
    screen = terminal("chat")
    screen.wait_for("› ")
    screen.type(WRITE + "\r")
    screen.wait_for(PROMPT)
    screen.type("e\n")
    screen.wait_for('"content": "hi"')
    screen.type("\x1b[A\x05\x7f\x7fere\r")
    screen.wait_for("the edited arguments are not JSON: ")
    screen.wait_for("; e goes on with your text, y runs the call as shown")
    screen.wait_for(AGAIN)
    screen.type("e\n")
    screen.wait_for('"content": "here')
    screen.type('\x1b[A\x05"\r')
    screen.wait_for("allowed by you, with the arguments")
    screen.wait_for("› ")
    assert (agx.folder / "note.txt").read_text() == "here"
    screen.type("\x04")
    assert screen.exit_code() == 0
    second = terminal("run", WRITE)
    second.wait_for(PROMPT)
    second.type("e\n")
    second.wait_for("the arguments on one line (Enter: no change): ")
    second.type('{"path": "b.txt", "content": "there"}\n')
    second.wait_for("allowed by you, with the arguments")
    assert second.exit_code() == 0
    assert (agx.folder / "b.txt").read_text() == "there"


@pytest.mark.promise("E2")
def test_nothing_typed_in_a_chat_before_a_question_answers_it(agx: Any, terminal: Callable[..., Any]) -> None:
    screen = terminal("chat")
    screen.wait_for("› ")
    screen.type(f"{WRITE}\ry\ry\r\x1b[200~y\ny\n\x1b[201~y")
    screen.wait_for(PROMPT)
    screen.type("\n")
    screen.wait_for("denied by you")
    assert not (agx.folder / "note.txt").exists()


@pytest.mark.ci_lane
def test_a_draft_typed_in_a_chat_before_a_question_waits_for_the_next_prompt(
    agx: Any, terminal: Callable[..., Any]
) -> None:
    screen = terminal("chat")
    screen.wait_for("› ")
    screen.type(f"{WRITE}\ra draft")
    screen.wait_for(PROMPT)
    screen.type("y\n")
    screen.wait_for("allowed by you")
    screen.wait_for("› a draft")
    screen.type("\x15\x04")
    assert screen.exit_code() == 0
    assert (agx.folder / "note.txt").exists()


@pytest.mark.promise("E2")
def test_a_paste_at_a_question_answers_it_only_if_it_is_one_line(agx: Any, terminal: Callable[..., Any]) -> None:
    screen = terminal("chat")
    screen.wait_for("› ")
    screen.type(WRITE + "\r")
    screen.wait_for(PROMPT)
    screen.type("\x1b[201~y\n")  # the end of a paste that began before the question
    screen.wait_for(AGAIN)
    for paste in ("\x1b[200~y\n \x1b[201~", "always\nmore", "a\nb\nc\n"):
        screen.type(paste)
        screen.wait_for(AGAIN)
    screen.type("\x1b[200~y\x1b[201~\n")
    screen.wait_for("allowed by you")
    screen.wait_for("› ")
    assert (agx.folder / "note.txt").read_text() == "hi"
    screen.type("say clean\r")
    screen.wait_for("\nclean\n")
    session = json.loads(agx("sessions", "show", "last", "--json").stdout)
    assert [one["content"] for one in session["messages"] if one["role"] == "user"] == [WRITE, "say clean"]


@pytest.mark.ci_lane
@pytest.mark.promise("E2")
@pytest.mark.parametrize("end", ["y\n\x1b[201~", "y\ny\n\x1b[201~\n", "y\n"])
@pytest.mark.cases(quick=1)
def test_the_rest_of_a_paste_that_began_before_a_question_does_not_answer_it(
    agx: Any, terminal: Callable[..., Any], provider: Any, end: str
) -> None:
    arguments = json.dumps({"path": "note.txt", "content": "hi"})
    call = {"index": 0, "id": "call_0", "type": "function", "function": {"name": "file_write", "arguments": arguments}}
    asks = json.dumps({"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]})
    provider.hold = True  # so that the paste begins before the question
    provider.events('{"choices": [{"delta": {"content": "I begin."}}]}', rest=[asks, "[DONE]"])
    screen = terminal("chat", "--model", "openai-chat:x", "--base-url", provider.base_url)
    screen.wait_for("› ")
    screen.type("go\r")
    screen.wait_for("I begin.")
    screen.type("\x1b[200~first\n")
    provider.released.set()
    screen.wait_for(PROMPT)
    screen.type(end)
    screen.wait_for(AGAIN)
    provider.events('{"choices": [{"delta": {"content": "No then."}, "finish_reason": "stop"}]}', "[DONE]")
    screen.type("n\n")
    screen.wait_for("denied by you")
    screen.wait_for("No then.")
    screen.wait_for("› ")
    assert not (agx.folder / "note.txt").exists()


def test_ctrl_c_at_a_question_stops_the_turn(agx: Any, terminal: Callable[..., Any]) -> None:
    screen = terminal("run", WRITE)
    screen.wait_for(PROMPT)
    screen.type("\x03")
    screen.wait_for("stopping …")
    screen.wait_for("denied by stop")
    screen.wait_for("the turn was stopped")
    assert screen.exit_code() == 130
    assert not (agx.folder / "note.txt").exists()


@pytest.mark.ci_lane
def test_an_unanswered_question_is_denied_after_its_timeout(agx: Any, terminal: Callable[..., Any]) -> None:
    agx.environment["AGX_CONFIRM_TIMEOUT_SECONDS"] = "2"  # so that the question is seen before
    screen = terminal("run", WRITE)
    screen.wait_for(PROMPT)
    screen.wait_for("denied by time-out")
    assert screen.exit_code() == 0


def test_ctrl_c_stops_a_turn_of_a_chat_and_the_conversation_continues(terminal: Callable[..., Any]) -> None:
    screen = terminal("chat")
    screen.wait_for("› ")
    screen.type("count to 9999\n")
    screen.wait_for("1 2 3 4")
    screen.type("\x03")
    screen.wait_for("the turn was stopped")
    screen.wait_for("› ")
    screen.type("say still here\n")
    screen.wait_for("\nstill here\n")
    screen.wait_for("› ")
    screen.type("\x04")
    assert screen.exit_code() == 0


def test_the_header_of_a_chat_names_the_files_with_instructions(agx: Any, terminal: Callable[..., Any]) -> None:
    (agx.folder / ".git").mkdir()
    (agx.folder / "AGENTS.md").write_text("Use tabs.")
    (agx.folder / "part").mkdir()
    (agx.folder / "part" / "AGENTS.md").write_text("Use spaces.")
    screen = terminal("chat", "--cwd", "part")
    screen.wait_for("instructions: ../AGENTS.md, AGENTS.md\n")
    screen.wait_for("› ")
    screen.type("\x04")
    assert screen.exit_code() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("message", ["", "count to 9999\n"])
@pytest.mark.cases(quick=1)
def test_a_chat_closes_its_store_on_a_termination_signal(
    agx: Any, terminal: Callable[..., Any], number: signal.Signals, message: str
) -> None:
    screen = terminal("chat")
    screen.wait_for("› ")
    if message:
        screen.type(message)
        screen.wait_for("1 2 3 4")
    screen.process.send_signal(number)
    assert screen.exit_code() == 130
    assert "Traceback" not in screen.screen
    assert ("the turn was stopped" in screen.screen) is bool(message)
    assert (Path(agx.environment["AGX_HOME"]) / "sessions.db.owner").read_bytes() == b""  # as the store was closed


def test_ctrl_c_at_the_chat_prompt_discards_the_line(terminal: Callable[..., Any]) -> None:
    screen = terminal("chat")
    screen.wait_for("› ")
    screen.type("say nothi\x03")
    screen.wait_for("(Ctrl-D or /quit exits)")
    screen.wait_for("› ")
    screen.type("/quit\n")
    assert screen.exit_code() == 0


def test_ctrl_c_takes_effect_while_the_prompt_handles_a_key(terminal: Callable[..., Any]) -> None:
    screen = terminal("chat")
    screen.wait_for("› ")
    screen.process.send_signal(signal.SIGSTOP)  # so that the signal and the next key are there at once
    screen.type("say nothi\x03x")
    screen.process.send_signal(signal.SIGCONT)
    screen.wait_for("(Ctrl-D or /quit exits)")
    screen.wait_for("› ")
    screen.type("\x15/quit\n")  # Ctrl-U: the key may have become part of this line
    assert screen.exit_code() == 0


def test_control_characters_of_the_model_do_not_reach_the_terminal(terminal: Callable[..., Any]) -> None:
    screen = terminal("run", "say a\x07b\x9bc")
    screen.wait_for("a⟨U+0007⟩b⟨U+009B⟩c")
    assert screen.exit_code() == 0


def test_control_characters_of_a_single_model_call_do_not_reach_the_terminal(terminal: Callable[..., Any]) -> None:
    screen = terminal("model", "call", "demo", "say a\x07b\u202ec")
    screen.wait_for("a⟨U+0007⟩b⟨U+202E⟩c")
    assert screen.exit_code() == 0


def test_the_history_file_of_a_chat_has_mode_0600(agx: Any, terminal: Callable[..., Any], tmp_path: Any) -> None:
    pytest.importorskip("readline")
    screen = terminal("chat")
    screen.wait_for("› ")
    screen.type("/mode\n")
    screen.wait_for("permission mode: default")
    screen.wait_for("› ")
    screen.type("\x04")
    assert screen.exit_code() == 0
    history = tmp_path / "home" / "chat_history"
    assert "/mode" in history.read_text().splitlines()
    assert history.stat().st_mode & 0o777 == 0o600


@pytest.mark.ci_lane
def test_files_attached_in_a_chat_are_sent_with_the_next_message_only(
    agx: Any, terminal: Callable[..., Any], provider: Any
) -> None:
    (agx.folder / "two words.png").write_bytes(files.contents["image/png"])
    (agx.folder / "n.txt").write_text("words")
    (agx.folder / "m.txt").write_text("never")
    provider.events('{"choices": [{"index": 0, "delta": {"content": "seen"}, "finish_reason": "stop"}]}', "[DONE]")
    screen = terminal("chat", "--model", "openai-chat:x", "--base-url", provider.base_url)
    screen.wait_for("› ")
    screen.type("/attach m.txt\n")
    screen.wait_for("attached to your next message: m.txt (text/plain, 5 bytes)\n")
    screen.type("/detach\n")
    screen.wait_for("no file is attached")
    screen.type("/attach two words.png\n")
    screen.wait_for("attached to your next message: two words.png (image/png, ")
    screen.type("/attach 'n.txt'\n")
    screen.wait_for(" bytes), n.txt (text/plain, 5 bytes)\n")
    screen.type("/attach gone.png\n")
    screen.wait_for("not attached: 'gone.png' is not a file\n")
    for message in ("what is this?", "and now?"):
        screen.type(f"{message}\n")
        screen.wait_for("seen\n")
        screen.wait_for("› ")
    screen.type("\x04")
    assert screen.exit_code() == 0

    first, _, second = json.loads(provider.requests[-1])["messages"][-3:]
    picture = b64encode(files.contents["image/png"]).decode()
    assert first["content"] == [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture}"}},
        {"type": "text", "text": frame_text("attached file n.txt (text/plain, 5 bytes)", "words", MATERIAL)},
        {"type": "text", "text": "what is this?"},
    ]
    assert second["content"] == "and now?"


def test_a_file_that_is_too_large_is_refused_when_it_is_attached(agx: Any, terminal: Callable[..., Any]) -> None:
    (agx.folder / "big.txt").write_text("x" * (512 * 1024 + 1))
    screen = terminal("chat")
    screen.wait_for("› ")
    screen.type("/attach big.txt\n")
    screen.wait_for("not attached: 'big.txt' has 524289 bytes; a text file may have 512 KiB\n")
    screen.wait_for("› ")
    screen.type("\x04")
    assert screen.exit_code() == 0


def test_a_chat_prints_how_to_continue_it_and_shows_its_last_turn_when_continued(terminal: Callable[..., Any]) -> None:
    screen = terminal("chat")
    screen.wait_for("a new session; later, agx chat -c continues it\n")
    screen.wait_for("› ")
    screen.type("say good morning\n")
    screen.wait_for("\ngood morning\n")
    screen.wait_for("› ")
    screen.type("\x04")
    screen.wait_for("agx chat --session ses_")
    assert screen.exit_code() == 0
    again = terminal("chat", "-c")
    again.wait_for("say good morning in ")
    again.wait_for("› say good morning\ngood morning\n")
    again.wait_for("› ")
    again.type("/new\n")
    again.wait_for("› ")
    again.type("/quit\n")
    assert again.exit_code() == 0
    assert "continues this session" not in again.screen
