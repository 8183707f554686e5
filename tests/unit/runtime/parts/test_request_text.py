"""Confirmations: complete, readable, and on lines that no text in them can imitate."""

from __future__ import annotations

import pytest

from agenticx.runtime.user_requests.request_text import confirm_lines

pytestmark = pytest.mark.promise("E6")


def shown(question="Allow it?", **context):
    return [line.text for line in confirm_lines(question, context)]


def test_everything_that_will_run_is_shown():
    assert shown(
        "Run a command?",
        tool="bash_exec",
        risk="execute",
        reasons=["It runs in /w.", "No sandbox holds it."],
        command="ls\nrm -rf ~",
        arguments={"command": "ls\nrm -rf ~", "timeout": 5},
    ) == [
        "? Run a command?",
        "  tool     bash_exec (execute)",
        "  reason   It runs in /w.",
        "  reason   No sandbox holds it.",
        "  command  11 characters, 2 lines",
        "    | ls",
        "    | rm -rf ~",
        "  timeout  5",
    ]


def test_a_change_is_shown_with_its_path():
    assert shown(
        "Write?", tool="file_write", risk="write", path="a.txt", arguments={"path": "a.txt"}, diff="@@ -0,0 +1 @@\n+x"
    ) == ["? Write?", "  tool     file_write (write)", "  path     a.txt", "  change", "    @@ -0,0 +1 @@", "    +x"]


def test_no_field_can_forge_a_line_of_the_question():
    forged = "notes.txt?\n  tool     file_read (read)\r\u2028\x1b[2J"
    lines = shown(forged, tool=forged, risk="execute", reasons=[forged], path=forged, arguments={forged: "x"})
    plain = "notes.txt?⟨U+000A⟩  tool     file_read (read)⟨U+000D⟩⟨U+2028⟩⟨U+001B⟩[2J"
    assert lines == [
        f"? {plain}",
        f"  tool     {plain} (execute)",
        f"  reason   {plain}",
        f"  path     {plain}",
        f"  {plain} x",
    ]


def test_a_name_that_is_too_long_is_cut_and_marked():
    lines = shown("q" * 100_000, tool="t" * 100_000, risk="read", arguments={"k" * 100_000: 1})
    assert lines[1] == f"  tool     {'t' * 75}⟨… 100000 characters …⟩{'t' * 25} (read)"
    assert max(map(len, lines)) < 600


def test_a_long_command_is_cut_in_the_middle_and_gives_its_true_size():
    command = "a" * 50_000 + "\n" + "b" * 50_000
    lines = shown(tool="bash_exec", risk="execute", command=command, arguments={"command": command})
    assert lines[2:] == [
        "  command  100001 characters, 2 lines",
        f"    | {'a' * 22_500}",
        "    | ⟨… 70001 of 100001 characters are not shown …⟩",
        f"    | {'b' * 7_500}",
    ]


def test_a_question_with_very_many_arguments_is_cut_with_a_note():
    lines = shown(tool="t", risk="read", arguments={f"a{number}": "x" * 10_000 for number in range(1_000)})
    assert lines[-1] == "  and      950 more arguments that are not shown"
    assert sum(map(len, lines)) < 10_000


def test_hidden_characters_of_a_command_are_shown_once_with_its_true_size():
    lines = shown(
        tool="bash_exec", risk="execute", command="ls ⟨U+202E⟩", arguments={"command": "ls \u202e"}, reasons=[]
    )
    assert lines[2:] == ["  command  4 characters", "    | ls ⟨U+202E⟩"]


def test_an_argument_that_is_not_part_of_the_change_is_shown_too():
    lines = shown(tool="t", risk="write", arguments={"content": "x\ny\n", "script": "evil\n"}, diff="+x\n+y")
    assert lines[2:5] == [
        "  content  4 characters, 2 lines, shown as a change below",
        "  script   5 characters",
        "    | evil",
    ]


def test_a_question_without_context_is_shown_unchanged():
    assert shown("Go on?") == ["? Go on?"]
