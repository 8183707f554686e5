"""Characters that are not seen, in the texts of the page: the classes are those of the server; and shortened titles."""

from __future__ import annotations

import sys
from unicodedata import category

import pytest

from agenticx.tools.visible import visible
from agenticx.untrusted_text import one_line
from tests.support.javascript import NODE, run_module

pytestmark = pytest.mark.skipif(NODE is None, reason="needs node")

ESCAPED = """
    const known = given.filter((one) => !/\\p{Cn}/u.test(one)); // the versions of Unicode differ
    return known.map((one) => [one, module.escapeHidden(one), module.oneLine(`a${one}b`)]);
"""
TITLES = """
    const call = { name: "bash_exec", phase: "done", outcome: "ok" };
    return given.map((command) => module.callTitle({ ...call, args: { command } }));
"""


def test_the_page_escapes_and_removes_the_characters_that_the_server_does() -> None:
    known = [chr(code) for code in range(sys.maxunicode + 1) if category(chr(code)) != "Cn"]
    shown = run_module("text/hidden_characters.js", ESCAPED, known)
    assert len(shown) > 0.9 * len(known)
    different = [
        (one, escaped, line) for one, escaped, line in shown if (escaped, line) != (visible(one), one_line(f"a{one}b"))
    ]
    assert different == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\u2764\ufe0f \u2764\ufe0f\u200d\U0001f525 1\ufe0f\u20e3", None),  # emoji: a heart, one on fire, a keycap
        ("\U0001f3f3\ufe0f\u200d\U0001f308 \U0001f575\U0001f3fb\u200d\u2642\ufe0f", None),
        ("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 10\u00a0000\u202f\u20ac", None),
        ("a\ufe00\ufe01b\U0001d173\U0001d174c", "a⟨U+FE00⟩⟨U+FE01⟩b⟨U+1D173⟩⟨U+1D174⟩c"),  # a hidden text
        (
            "a\u200bb, (c\ufeff) \u062f\u200c\u4e2d\u200b, soft\u00adhyphen\u200e",
            "a⟨U+200B⟩b, (c⟨U+FEFF⟩) \u062f\u200c\u4e2d\u200b, soft\u00adhyphen\u200e",
        ),
        ("a\ufe0f\u200d\ufe0f\u200db\u202e", "a⟨U+FE0F⟩⟨U+200D⟩⟨U+FE0F⟩⟨U+200D⟩b⟨U+202E⟩"),
    ],
)
def test_prose_keeps_emoji_and_joiners_but_shows_what_hides_a_text(text: str, shown: str | None) -> None:
    assert run_module("text/hidden_characters.js", "return module.escapeHiddenText(given)", text) == (shown or text)


MARKS = """
    return given.map((text) => [module.escapeHidden(text), module.escapeHiddenText(text), module.hasHidden(text)]);
"""


def test_a_run_of_marks_that_would_take_minutes_to_lay_out_is_shown_as_their_number() -> None:
    counted = "⟨200,000 combining characters⟩"
    many = {f"a{mark * 200_000}b": f"a{counted}b" for mark in ("\u0301", "\u20e3", "\u093e", "\u0e33", "\U0001f3fd")}
    shown = run_module("text/hidden_characters.js", MARKS, list(many))
    assert shown == [[text, text, True] for text in many.values()]
    letters = "e" + "\u0301" * 30 + "\u0915\u094d\u200d" * 40 + "\u0e01\u0e33" * 40 + "\U0001f44d\U0001f3fd" * 40
    words = [part * 1_000 for part in ("\u0e01\u0e33", "\u0628\u0628", "\u1780\u17b6")]
    shown = run_module("text/hidden_characters.js", MARKS, words)
    assert shown == [[f"{text[:999]}⟨1,001 more letters⟩"] * 2 + [True] for text in words]
    joined = "a" + "\u0301\u200d" * 40
    shown = run_module("text/hidden_characters.js", MARKS, [letters, joined])
    assert [prose for _, prose, _ in shown] == [letters, "a⟨80 combining characters⟩"]
    assert shown[1][0] == "a" + "\u0301⟨U+200D⟩" * 40


OUTPUT = """
    const cut = module.cutOutput(given, 12);
    return [module.plainOutput(given), module.styledOutput(given).map(({text, style}) => `${text}|${style}`), cut];
"""


def test_output_of_commands_has_colours_in_place_of_their_sequences_and_shows_other_controls() -> None:
    text = "␛[1;31mred␛[0m \x1b[38;5;2mgreen\x1b[38;2;1;2;3;4mplain\x1b[m␛[2K␇\x07␛]0;t\t"
    plain, styled, cut = run_module("text/command_output.js", OUTPUT, text)
    assert plain == "red greenplain⟨U+001B⟩[2K⟨U+0007⟩⟨U+0007⟩⟨U+001B⟩]0;t\t"
    rest = plain.partition("plain")[2]
    assert styled == ["red|out-bad out-bold", " |", "green|out-good", "plain|out-underlined", f"{rest}|"]
    assert cut == [text[:10], text[10:]]  # no sequence is cut
    many = "".join(f"␛[{31 + number % 6}m{number}," for number in range(5_000))
    plain, styled, _ = run_module("text/command_output.js", OUTPUT, many)
    assert len(styled) == 400
    assert plain == "".join(one.partition("|")[0] for one in styled) == "".join(f"{n}," for n in range(5_000))
    for hostile in ("\x1b[" * 200_000, "\x1b[" + ";" * 200_000, "␛" * 200_000):
        assert run_module("text/command_output.js", "return module.styledOutput(given).length", hostile) == 1


def test_a_name_with_blanks_is_told_with_their_number() -> None:
    wanted = "return module.wantedText('file_write', { path: given })"
    name = "notes.txt" + " " * 120 + ".bashrc"
    assert run_module("text/tool_words.js", wanted, name) == "write notes.txt⟨120 spaces⟩.bashrc"
    assert run_module("text/tool_words.js", wanted, "my notes.txt") == "write my notes.txt"


def test_a_title_says_that_it_leaves_something_out() -> None:
    commands = {
        "echo  ok\n": "$ echo ok",
        "ls | tee out.txt\n\n  echo done\r\n": "$ ls | tee out.txt ⏎ echo done",
        "echo ok" + " " * 600 + "; touch made": "$ echo ok ; touch made",
        "echo ok" + " " * 100_000 + "; touch made": "$ echo ok…",
        "x" * 121: "$ " + "x" * 119 + "…",
        "echo\u00a0\ufe0f": "$ echo⟨U+00A0⟩⟨U+FE0F⟩",
    }
    assert run_module("text/tool_words.js", TITLES, list(commands)) == list(commands.values())
