"""Tests of escaping: no text in a question can hide, reorder, imitate or pad anything."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenticx.tools.visible import control_pictures, escape_controls, visible, visible_line

pytestmark = pytest.mark.promise("E6")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ls -la | wc", "ls -la | wc"),
        ("echo 'é 漢字 – ok'\n\techo 2", "echo 'é 漢字 – ok'\n\techo 2"),
        ("\x1b[2Kls", "⟨U+001B⟩[2Kls"),
        ("rm\rls", "rm⟨U+000D⟩ls"),
        ("a\x00b\x7fc\x9bd", "a⟨U+0000⟩b⟨U+007F⟩c⟨U+009B⟩d"),
        ("rm \u202ecod.txt\u2066", "rm ⟨U+202E⟩cod.txt⟨U+2066⟩"),
        ("r\u200bm\u200d\ufeff\u00ad\u2060", "r⟨U+200B⟩m⟨U+200D⟩⟨U+FEFF⟩⟨U+00AD⟩⟨U+2060⟩"),
        ("a\u00a0b\u3000c\u3164d\u2800", "a⟨U+00A0⟩b⟨U+3000⟩c⟨U+3164⟩d⟨U+2800⟩"),
        ("a\u2028b\u2029c\u0085d", "a⟨U+2028⟩b⟨U+2029⟩c⟨U+0085⟩d"),
        ("\ud800\U000e0041\ue000", "⟨U+D800⟩⟨U+E0041⟩⟨U+E000⟩"),
        ("ls" + " " * 500 + "; rm", "ls⟨500 spaces⟩; rm"),
        ("ls\n" + "\n" * 50 + "rm", "ls\n⟨50 empty lines⟩\nrm"),
        ("if x:\n        y\n\n\nz", "if x:\n        y\n\n\nz"),
    ],
)
def test_invisible_characters_are_escaped(text, shown) -> None:
    assert visible(text) == shown


@given(st.text(st.characters(exclude_categories=())))
def test_no_hidden_character_is_left_in_any_text(text) -> None:
    hidden = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    left = [c for c in visible(text) if unicodedata.category(c) in hidden and c not in "\n\t"]
    assert left == []


@given(st.text(st.characters(exclude_categories=())))
def test_escaping_twice_changes_nothing(text) -> None:
    assert visible(visible(text)) == visible(text)


@given(st.text(st.characters(exclude_categories=())))
def test_escaped_controls_neither_move_the_cursor_nor_add_line_breaks(text) -> None:
    shown = escape_controls(text)
    assert [c for c in shown if unicodedata.category(c) in {"Cc", "Zl", "Zp"} and c not in "\n\t"] == []
    assert shown.count("\n") == text.count("\n")


def test_tags_and_runs_without_a_glyph_are_escaped_for_a_terminal_but_flags_and_emoji_stay() -> None:
    flag = "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f"
    kept = f"{flag}🏳\ufe0f\u200d🌈❤\ufe0f1\ufe0f\u20e3می\u200cخواهم"
    assert escape_controls(kept) == kept
    assert escape_controls("a\U000e0041b\u200b\u200cc") == "a⟨U+E0041⟩b⟨U+200B⟩⟨U+200C⟩c"
    assert escape_controls("🏴\U000e0041") == "🏴⟨U+E0041⟩"


def test_control_pictures_keep_line_breaks_and_tabs() -> None:
    assert control_pictures("a\tb\r\nc\x00\x1b[31m\x7f") == "a\tb\r\nc␀␛[31m␡"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("src/a b.py", "src/a b.py"),
        ("a\nb\r\u2028c", "a⟨U+000A⟩b⟨U+000D⟩⟨U+2028⟩c"),
        ("a" + "\n" * 9 + "b", "a⟨U+000A⟩⟨8 empty lines⟩⟨U+000A⟩b"),
        ("a" * 20 + "b" * 20, "aaaaaa⟨… 40 characters …⟩bb"),
    ],
)
def test_a_field_is_one_line_with_a_note_if_it_is_cut(text, shown) -> None:
    assert visible_line(text, 20 if len(text) < 40 else 8) == shown
