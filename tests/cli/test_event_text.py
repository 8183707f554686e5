"""The complete output of events: text on stdout, everything else on stderr."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from agenticx.cli.client.envelopes import Envelope
from agenticx.cli.terminal.event_text import Note
from agenticx.cli.terminal.output import FallbackOutput
from agenticx.cli.terminal.plain_output import PlainOutput
from agenticx.cli.terminal.reasoning_output import ReasoningOutput
from agenticx.cli.terminal.session_views import show_past_event
from agenticx.runtime import EventType, RuntimeEvent


class Screen(io.StringIO):
    """A stream in memory that may claim to be a terminal."""

    def __init__(self, *, at_terminal: bool = False) -> None:
        super().__init__()
        self._at_terminal = at_terminal

    def isatty(self) -> bool:
        return self._at_terminal


def show(*events: tuple[str, dict[str, Any]]) -> tuple[str, str]:
    out, err = Screen(), Screen()
    output = PlainOutput(out, err)
    for type_, data in events:
        output.show(RuntimeEvent(EventType(type_), data))
    return out.getvalue(), err.getvalue()


def text(content: str, message_id: str = "m1") -> tuple[str, dict[str, Any]]:
    return "token", {"text": content, "message_id": message_id, "offset": 0}


def final(content: str, message_id: str = "m1", reason: str = "answer") -> tuple[str, dict[str, Any]]:
    return "final", {"text": content, "message_id": message_id, "reason": reason, "usage": {}}


def test_a_note_in_the_middle_of_a_message_does_not_break_the_text_on_stdout() -> None:
    stall = {"phase": "heartbeat", "elapsed_seconds": 8.2, "limit_seconds": 60, "action": "waiting"}
    out, err = show(text("half "), ("stall", stall), text("whole"), final("half whole"))
    assert out == "half whole\n"
    assert err == "… no further output from the model for 8 s\n"


def test_a_choice_that_failed_names_who_speaks_instead_and_the_words_of_the_model() -> None:
    chosen = {"team": "t", "speakers": ["reader"]}
    _, err = show(("speaker_selected", chosen), ("speaker_selected", {**chosen, "fallback": "reader,\nor reviewer"}))
    assert err == (
        "reader:\n… the model named no one speaker, so reader speaks; it said: reader, or reviewer\nreader:\n"
    )


def test_a_stall_names_the_missing_output_and_the_action() -> None:
    retry = {"retry_at": "2026-01-01T00:00:00Z", "reason": "dead:x could not be reached:\x1b[2J", "model": "acme:large"}
    times = {"elapsed_seconds": 9.1, "limit_seconds": 8}
    _, err = show(
        ("stall", {"phase": "first_chunk", "action": "waiting", **times}),
        ("stall", {"phase": "first_chunk", "action": "retrying", **times, **retry}),
        ("stall", {"phase": "first_chunk", "action": "retrying", **times, "retry_at": "2026-01-01T00:00:00Z"}),
        ("stall", {"phase": "hard", "action": "failed", **times}),
        ("stall", {"phase": "tool", "action": "failed", **times}),
        ("stall", {"phase": "tool", "action": "waiting", "elapsed_seconds": 0.9, "limit_seconds": 4.0}),
        ("stall", {"phase": "confirm", "action": "failed", **times}),
    )
    assert err.splitlines() == [
        "… no output from the model for 9 s",
        "… dead:x could not be reached:⟨U+001B⟩[2J; asking acme:large",
        "… no output from the model after 9 s, asking again",
        "… no complete reply within 8 s",
        "… no result from the tool within 8 s",
        "… not finished yet, asking again in 3 s",
        "… no answer to the question within 8 s",
    ]


def test_stdout_and_stderr_on_one_terminal_each_start_on_a_new_line() -> None:
    screen = Screen(at_terminal=True)
    output = PlainOutput(screen, screen)
    for type_, data in (
        text("I'll look."),
        ("tool_call", {"tool_call_id": "c", "name": "file_read", "arguments": {"path": "a", "lines": 3}}),
        (
            "tool_result",
            {"tool_call_id": "c", "name": "file_read", "result": "x\ny", "is_error": False, "outcome": "ok"},
        ),
        ("thinking", {"text": "so ", "message_id": "m2", "offset": 0}),
        ("thinking", {"text": "it is", "message_id": "m2", "offset": 3}),
        text("Done.", "m2"),
        final("Done.", "m2"),
    ):
        output.show(RuntimeEvent(EventType(type_), data))
    assert screen.getvalue().splitlines() == [
        "I'll look.",
        "→ file_read path=a lines=3",
        "← file_read ok, 2 lines: x y",
        "so it is",
        "Done.",
    ]


def test_messages_of_several_rounds_are_separate_lines() -> None:
    assert show(text("one"), text("two", "m2"), final("two", "m2"))[0] == "one\ntwo\n"


def test_a_reply_that_was_not_streamed_is_shown_at_the_end() -> None:
    assert show(final("all at once"))[0] == "all at once\n"


def test_a_partial_answer_is_marked() -> None:
    assert show(text("so far"), final("so far", reason="partial")) == (
        "so far\n",
        "the answer is incomplete: it was cut off, or its model calls or its time were used up\n",
    )


def test_the_output_of_a_running_tool_is_shown_as_it_arrives() -> None:
    progress = {"tool_call_id": "c", "name": "bash_exec", "elapsed_seconds": 1.0}
    _, err = show(
        ("tool_progress", progress | {"output": "li"}),
        ("tool_progress", progress | {"output": "ne\x1b[2J"}),
        ("tool_progress", progress),
    )
    assert err == "line⟨U+001B⟩[2J\n  … bash_exec is still running (1 s)\n"


def test_errors_name_their_code() -> None:
    _, err = show(
        ("error", {"text": "Again.", "code": "loop_warning", "fatal": False}),
        ("error", {"text": "No key.", "code": "provider.auth", "fatal": True}),
    )
    assert err == "warning (loop_warning): Again.\nerror (provider.auth): No key.\n"


def test_a_question_shows_everything_that_will_run_with_control_characters_escaped() -> None:
    out, err = Screen(), Screen()
    context = {
        "tool": "bash_exec",
        "risk": "execute",
        "reasons": ["It runs code."],
        "command": "ls\u202e\x1b[8m\nrm -rf ~",
        "arguments": {"command": "ls\u202e\x1b[8m\nrm -rf ~", "note": "a\tb", "limits": {"cpu": 1}},
    }
    PlainOutput(out, err).show_request({"id": "q", "question": "Run a command?", "context": context}, "Allow? ")
    assert out.getvalue() == ""
    assert err.getvalue() == (
        "? Run a command?\n"
        "  tool     bash_exec (execute)\n"
        "  reason   It runs code.\n"
        "  command  16 characters, 2 lines\n"
        "    | ls⟨U+202E⟩⟨U+001B⟩[8m\n"
        "    | rm -rf ~\n"
        "  note     a\tb\n"
        "  limits   14 characters, 3 lines\n"
        "    | {\n"
        '    |   "cpu": 1\n'
        "    | }\n"
        "Allow? "
    )


def test_a_change_is_shown_as_a_diff() -> None:
    out, err = Screen(), Screen()
    context = {
        "tool": "file_write",
        "risk": "write",
        "reasons": [],
        "path": "a.txt",
        "arguments": {"path": "a.txt", "content": "x\ny\n"},
        "diff": "@@ -0,0 +1,2 @@\n+x\n+y",
    }
    PlainOutput(out, err).show_request({"question": "Write?", "context": context}, "")
    assert err.getvalue().splitlines() == [
        "? Write?",
        "  tool     file_write (write)",
        "  path     a.txt",
        "  content  4 characters, 2 lines, shown as a change below",
        "  change",
        "    @@ -0,0 +1,2 @@",
        "    +x",
        "    +y",
    ]


def test_the_lines_of_a_command_are_told_apart() -> None:
    command = "ls | tee out.txt\n\n  echo done\n"
    _, err = show(("tool_call", {"tool_call_id": "c", "name": "bash_exec", "arguments": {"command": command}}))
    assert err == "→ bash_exec command=ls | tee out.txt ⏎ echo done\n"


def test_no_text_of_a_call_can_forge_a_line() -> None:
    forged = "x\n  allowed by you\x1b[2J"
    _, err = show(
        ("tool_call", {"tool_call_id": "c", "name": forged, "arguments": {forged: forged}}),
        ("tool_progress", {"tool_call_id": "c", "name": forged, "elapsed_seconds": 1.0}),
        ("confirm_response", {"id": "q", "approved": False, "by": "policy", "reason": forged}),
        ("tool_result", {"tool_call_id": "c", "name": forged, "result": forged, "is_error": True, "outcome": "error"}),
        ("question_answered", {"id": "q", "answer": forged, "by": "user"}),
        ("error", {"text": forged, "code": "internal", "fatal": False}),
    )
    assert [line for line in err.splitlines() if line.startswith(("  allowed", "\x1b"))] == []
    assert len(err.splitlines()) == 6
    assert "\x1b" not in err
    asked = Screen()
    PlainOutput(Screen(), asked).show_request({"id": "q", "text": forged, "options": [forged]}, "Your answer: ")
    assert asked.getvalue().splitlines() == [
        "? x",
        "    |   allowed by you⟨U+001B⟩[2J",
        "  1   x⟨U+000A⟩  allowed by you⟨U+001B⟩[2J",
        "Your answer: ",
    ]


def test_a_note_with_raw_control_characters_is_written_escaped() -> None:
    err = Screen()
    PlainOutput(Screen(), err).show_note(Note("a\x1b[2Jb"))
    assert err.getvalue() == "a⟨U+001B⟩[2Jb\n"


def test_a_name_of_any_length_stays_on_a_line_of_readable_length() -> None:
    long = "n" * 100_000
    _, err = show(
        ("tool_call", {"tool_call_id": "c", "name": long, "arguments": {f"{long}{number}": 1 for number in range(50)}}),
        ("tool_result", {"tool_call_id": "c", "name": long, "result": "x", "is_error": False, "outcome": "ok"}),
    )
    assert max(map(len, err.splitlines())) < 450


def test_bidirectional_control_characters_in_streamed_text_are_escaped() -> None:
    screen = Screen(at_terminal=True)
    output = PlainOutput(screen, screen)
    output.show(RuntimeEvent(EventType("token"), text("a\u202eb\u2066c\u200fd שלום 👩\u200d💻\n")[1]))
    assert screen.getvalue() == "a⟨U+202E⟩b⟨U+2066⟩c⟨U+200F⟩d שלום 👩\u200d💻\n"


def test_nothing_that_only_takes_long_is_shown_over_the_prompt_of_a_question() -> None:
    out, err = Screen(), Screen()
    output = PlainOutput(out, err)
    progress = {"name": "wait_subagents", "tool_call_id": "c1", "elapsed_seconds": 2.0}
    wait = {"phase": "first_chunk", "action": "waiting", "elapsed_seconds": 9.0, "limit_seconds": 8}
    late = {"phase": "confirm", "action": "failed", "elapsed_seconds": 9.0, "limit_seconds": 8}
    slow = [("tool_progress", progress), ("stall", wait), ("token", {"text": "", "message_id": "m1", "waiting": True})]

    def show_events(*events: tuple[str, dict[str, Any]]) -> None:
        for type_, data in events:
            output.show(RuntimeEvent(EventType(type_), data))

    output.show_request({"id": "q1", "text": "Which?", "agent_path": ["meta", "kid-1", "kid-2"]}, "Your answer: ")
    show_events(*slow)
    assert err.getvalue() == "? Which?\n  agent    kid-2, below kid-1\nYour answer: "
    show_events(("stall", late), ("question_answered", {"id": "q1", "answer": "", "by": "timeout"}), slow[0])
    assert err.getvalue().splitlines()[3:] == [
        "… no answer to the question within 8 s",
        "  no answer by time-out",
        "  … wait_subagents is still running (2 s)",
    ]


def test_a_line_over_the_prompt_of_a_question_is_followed_by_the_prompt() -> None:
    out, err = Screen(), Screen()
    output = PlainOutput(out, err)
    result = {"tool_call_id": "c1", "name": "ask_user", "result": "red", "is_error": False, "outcome": "ok"}
    output.show_request({"id": "q1", "text": "Which?"}, "Your answer: ")
    output.show(RuntimeEvent(EventType.TOOL_RESULT, result))
    assert err.getvalue() == "? Which?\nYour answer: \n← ask_user ok, 3 characters: red\nYour answer: "


def test_an_answer_that_was_not_typed_here_says_so() -> None:
    out, err = Screen(), Screen()
    output = PlainOutput(out, err)
    for id_ in ("q1", "q2"):
        output.show(RuntimeEvent(EventType.QUESTION_ASKED, {"id": id_, "text": "Which?"}))
    output.show_request({"id": "q1", "text": "Which?"}, "Your answer: ")
    for id_ in ("q2", "q1"):
        output.show(RuntimeEvent(EventType.QUESTION_ANSWERED, {"id": id_, "answer": "red", "by": "user"}))
    assert [line for line in err.getvalue().splitlines() if "answered" in line] == ["  answered elsewhere: red"] * 2


def test_a_question_without_a_path_names_its_agent_unless_it_is_the_main_one() -> None:
    out, err = Screen(), Screen()
    for agent in ("critic", "meta"):
        asked = {"type": "question_asked", "agent_id": agent, "data": {"id": "q1", "text": "Which?"}}
        show_past_event(Envelope.parse(json.dumps(asked).encode()), PlainOutput(out, err))
    assert err.getvalue() == "? Which?\n  agent    critic\n? Which?\n"


def test_a_word_longer_than_a_line_may_stand_before_a_call() -> None:
    screen = Screen(at_terminal=True)
    output = PlainOutput(screen, screen)
    call = {"tool_call_id": "c", "name": "file_read", "arguments": {"path": "a"}}
    for type_, data in (text("see " + "x" * 81), ("tool_call", call)):
        output.show(RuntimeEvent(EventType(type_), data))
    assert screen.getvalue() == f"see {'x' * 81}\n→ file_read path=a\n"


class FailingOutput(PlainOutput):
    """An output with a bug in all that it writes."""

    def _write_text(self, text: str, message_id: str) -> None:
        raise IndexError("string index out of range")

    def _end_open_lines(self) -> None:
        raise RuntimeError("no lines")


def test_what_an_output_fails_to_show_is_written_plainly_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    out, err = Screen(at_terminal=True), Screen()
    output = FallbackOutput(FailingOutput(out, err), out, err)
    for type_, data in (text("one\x1b[2J "), text("two"), ("error", {"text": "é\x1b", "code": "x", "fatal": False})):
        output.show(Envelope.parse(json.dumps({"type": type_, "agent_id": "meta", "data": data}).encode()))
    output.show_request({"id": "q", "text": "Which\u202e?"}, "Your answer: ")
    output.prompt_answered("red\n")
    output.show_note(Note("a\x1bb"))
    assert out.getvalue() == "one⟨U+001B⟩[2J two\n"
    assert err.getvalue() == (
        '· error {\n  "text": "\\u00e9\\u001b",\n  "code": "x",\n  "fatal": false\n}\n'
        '? {\n  "id": "q",\n  "text": "Which\\u202e?"\n}\nYour answer: a⟨U+001B⟩b\n'
    )
    assert caplog.text.count("output failed and is written plainly") == 6
    assert caplog.text.count("Traceback") == 1


def test_characters_that_a_strict_stream_cannot_encode_are_escaped() -> None:
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, "ascii")
    output = FallbackOutput(PlainOutput(stream, stream), stream, stream)
    for type_, data in (text("汉 "), text("é"), final("汉 é")):
        output.show(Envelope.parse(json.dumps({"type": type_, "agent_id": "meta", "data": data}).encode()))
    output.show_note(Note("…"))
    assert written.getvalue() == b"\\u6c49 \\xe9\n\\u2026\n"


def test_a_turn_with_calls_ends_with_a_line_of_its_steps() -> None:
    def envelope(type_: str, second: int, **data: Any) -> Envelope:
        row = {"type": type_, "data": data, "turn_id": "turn_a", "ts": f"2026-05-01T10:00:{second:02}.000Z"}
        return Envelope.parse(json.dumps(row).encode())

    arguments = {"query": "lease"}
    screen = io.StringIO()
    output = ReasoningOutput(PlainOutput(screen, screen))
    output.show(envelope("turn_started", 1, input="?", model="m", message_id="msg_1"))
    output.show(envelope("tool_call", 2, tool_call_id="c", name="note_search", arguments=arguments))
    result = {"tool_call_id": "c", "name": "note_search", "result": "[passage 1: a", "is_error": False, "outcome": "ok"}
    output.show(envelope("tool_result", 3, **result))
    output.show(envelope("tool_call", 3, tool_call_id=7))  # of another release
    output.show(envelope("final", 5, text="", message_id="msg_2", reason="answer"))
    output.show(envelope("turn_started", 6, input="?", model="m", message_id="msg_3"))
    output.show(envelope("final", 7, text="", message_id="msg_4", reason="answer"))

    assert [line for line in screen.getvalue().splitlines() if line.startswith("(")] == [
        "(4 s: Searched notes for 'lease': 1 found)"
    ]
