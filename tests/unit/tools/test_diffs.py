"""Tests of the diffs in questions to the user."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from agenticx.tools.diffs import unified_diff


def test_a_change_is_shown_with_three_lines_around_it() -> None:
    before = "".join(f"{n}\n" for n in range(1, 13))
    after = before.replace("6\n", "six\n")

    assert unified_diff(before, after, "n.txt").splitlines() == [
        "--- n.txt",
        "+++ n.txt",
        "@@ -3,7 +3,7 @@",
        *[" 3", " 4", " 5", "-6", "+six", " 7", " 8", " 9"],
    ]


def test_a_missing_last_line_break_and_hidden_characters_are_marked() -> None:
    assert unified_diff("", "a\u202eb", "x\x1b").splitlines() == [
        "--- x⟨U+001B⟩",
        "+++ x⟨U+001B⟩",
        "@@ -0,0 +1 @@",
        "+a⟨U+202E⟩b",
        "\\ No newline at end of file",
    ]


def test_a_line_break_in_a_path_makes_no_line_of_the_diff() -> None:
    title = "notes⟨U+000A⟩@@ -0,0 +1 @@⟨U+000A⟩+harmless"
    diff = unified_diff("", "rm -rf\n", "notes\n@@ -0,0 +1 @@\n+harmless")
    assert diff.split("\n") == [f"--- {title}", f"+++ {title}", "@@ -0,0 +1 @@", "+rm -rf"]


def test_equal_texts_have_no_diff() -> None:
    assert unified_diff("a\n", "a\n", "x") == ""


def test_the_diff_of_a_huge_change_is_cut_with_a_note() -> None:
    before, after = "".join(f"a{n}\n" for n in range(50_000)), "".join(f"b{n}\n" for n in range(50_000))
    diff = unified_diff(before, after, "x")

    assert len(diff) < 21_000
    assert re.search(r"⟨[\d,]+ more lines of this diff⟩$", diff)
    assert unified_diff("", "x" * 100_000, "x").splitlines()[3] == "+" + "x" * 500 + " ⟨100000 characters⟩"


lines = st.lists(st.sampled_from(["a\n", "b\n", "\n", "c c\n"]), max_size=30)


@given(lines, lines)
def test_applying_the_diff_to_the_old_text_gives_the_new(before, after) -> None:
    diff = unified_diff("".join(before), "".join(after), "x")
    assert "".join(apply_diff(before, diff.split("\n")[2:]) if diff else before) == "".join(after)


def apply_diff(before: list[str], diff: list[str]) -> list[str]:
    result: list[str] = []
    position = 0
    for line in diff:
        if header := re.fullmatch(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", line):
            start = int(header[1]) - (header[2] != "0")
            result += before[position:start]
            position = start
            assert len(result) == int(header[3]) - (header[4] != "0")
            continue
        if line[0] in " -":
            assert before[position] == f"{line[1:]}\n"
            position += 1
        if line[0] in " +":
            result.append(f"{line[1:]}\n")
    return result + before[position:]
