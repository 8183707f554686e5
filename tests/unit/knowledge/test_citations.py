"""Citations: each marker compared with its passage, by numbers, dates, quotations and code."""

from __future__ import annotations

import tomllib

import pytest

from agenticx.knowledge import CheckedCitation, Passage, check_citations, parse_note, passage_sha256
from agenticx.settings import config_text
from tests.support.knowledge.bars import wrong_citations

TEXT = (
    "## Service\nLast serviced on 2024-03-11 by Nordwarm, 120 EUR.\nPressure should stay **between 1.2 and 1.8 bar**.\n"
    "Run `reset --hard` never; 40,000 km, 7:30, version 2.4.1, -5 °C."
)
PASSAGE = Passage("Boiler.md", "Service", 3, 6, TEXT, passage_sha256(TEXT))
NOTE = f"# Boiler\n\n{TEXT}\n"


def statuses(reply: str, note: str | None = NOTE) -> list[tuple[int, str]]:
    return [(cited.marker, cited.status) for cited in check_citations(reply, {1: PASSAGE}, {"Boiler.md": note}.get)]


def test_every_case_has_the_expected_citations() -> None:
    assert wrong_citations() == []


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        ("It cost 120 EUR.[^1]", "verified"),
        ("It cost 120 EUR [^1]: a bargain.", "verified"),
        ("It cost 120 EUR. [^1] Then it went on.", "verified"),
        ("On 2024-03-12, Dr. Smith came [^1].", "unsupported"),
        ("Serviced on 11.03.2024 [^1].", "verified"),
        ("Serviced on 2024-11-03 [^1].", "unsupported"),
        ("Keep it at 1.2–1.8 bar [^1].", "verified"),
        ("After 40.000 km [^1].", "verified"),
        ("After 40 000 km [^1].", "verified"),
        ("After 40 km [^1].", "unsupported"),
        ("Version v2.4.1 [^1].", "verified"),
        ("Version 2.4 [^1].", "unsupported"),
        ("At 07:30 [^1].", "verified"),
        ("At -5 °C [^1].", "verified"),
        ("At 5 °C [^1].", "unsupported"),
        ("It says “between 1.2 and 1.8 bar.” [^1]", "verified"),
        ("It says „between 1.2 … 1.8 bar“ [^1].", "verified"),
        ('It says "between 1.2 or 1.8 bar" [^1].', "unsupported"),
        ("Run `set --hard` [^1].", "unsupported"),
        ("| 120 EUR [^1] | 500 EUR |", "verified"),
        ("It says “Run `reset --hard` never” [^1].", "verified"),
        ("2. Nordwarm came [^1].", "located"),
        ("See Q3 and x86 [^1].", "located"),
        ("> It cost\n> 120 EUR [^1].", "verified"),
    ],
)
def test_what_can_be_checked_decides(reply: str, status: str) -> None:
    assert statuses(reply) == [(1, status)]


@pytest.mark.parametrize(
    "reply",
    ["`[^1]`", "```\n[^1]\n```", "[^1]: 120 EUR\n    [^1] more", "\\[^1]", "[^2]", "[^note]", "[^01234567890]", ""],
)
def test_what_is_no_marker_of_a_passage_makes_no_citation(reply: str) -> None:
    assert statuses(reply) == []


def test_a_moved_passage_keeps_its_status_and_has_its_new_lines_and_a_changed_one_those_of_retrieval() -> None:
    reply = "It cost 120 EUR [^1]."
    (moved,) = check_citations(reply, {1: PASSAGE}, lambda _: f"# Boiler\r\n\r\nnew\r\n\r\n{TEXT}")
    (changed,) = check_citations(reply, {1: PASSAGE}, lambda _: NOTE.replace("120", "130"))

    quote = "Last serviced on 2024-03-11 by Nordwarm, 120 EUR."
    assert moved == CheckedCitation(1, "verified", quote, "Boiler.md", "Service", 5, 8, PASSAGE.sha256, 6)
    assert changed == CheckedCitation(1, "changed", quote, "Boiler.md", "Service", 3, 6, PASSAGE.sha256, 4)
    assert statuses(reply, None) == [(1, "changed")]


def passage_of(text: str) -> Passage:
    return Passage("a.md", None, 1, text.count("\n") + 1, text, passage_sha256(text))


def status_of(claim: str, text: str, now: str | None = None) -> str:
    (cited,) = check_citations(f"{claim} [^1].", {1: passage_of(text)}, lambda _: text if now is None else now)
    return cited.status


@pytest.mark.parametrize(
    ("text", "now", "status"),
    [
        ("The rent is 12", "The rent is 1200 euros", "changed"),
        ("The rent is 12", "Not: The rent is 12", "changed"),
        ("The rent is 12\nper day", "The rent is 12\nper day and head", "changed"),
        ("The rent is 12\nper day", "x: The rent is 12\nper day", "changed"),
        ("The rent is 12", "# Rent\r\nThe rent is 12", "verified"),
        ("The rent is 12\nper day", "a\nThe rent is 12\nper day\nb", "verified"),
    ],
)
def test_a_passage_is_whole_lines_of_its_note(text: str, now: str, status: str) -> None:
    assert status_of("It is 12", text, now) == status


def test_a_part_of_a_very_long_line_is_found_as_lines_are_cut_or_between_blanks() -> None:
    note = " ".join(f"word{number:04}x" for number in range(1_000)) + " the rent is 12"
    parsed = parse_note("a.md", note)
    first, _, last = (
        Passage("a.md", None, 1, 1, text, passage_sha256(text))
        for text in (span.text(parsed.lines) for span in parsed.passages)
    )

    def lines_of(passage: Passage, now: str) -> list[tuple[str, int]]:
        return [(one.status, one.line_start) for one in check_citations("12 [^1]", {1: passage}, lambda _: now)]

    assert lines_of(last, note) == [("verified", 1)]
    assert lines_of(last, f"new\n{note}") == [("verified", 2)]
    assert lines_of(last, f"{note}00") == [("changed", 1)]
    assert lines_of(first, f"begin {note}") == [("unsupported", 1)]
    assert lines_of(first, f"be{note}") == [("changed", 1)]


@pytest.mark.parametrize(
    ("claim", "text"),
    [
        ("On 2024-03-11", "On March 11, 2024"),
        ("On 2024/03/11", "On 2024-03-11"),
        ("On 11.3.2024", "On 2024-03-11"),
        ("On 3/11/2024", "On 2024-03-11"),
        ("On 31/12/2024", "On 31 December 2024"),
        ("On 11 May", "the 11th of May"),
        ("In March 2024", "On 2024-03-11"),
        ("In March 2024", "2024-03: quiet"),
        ("On Jan. 5, 2024", "2024-01-05"),
        ("Am 11. März 2024 war es", "11.03.2024"),
        ("le 1er mars 2024", "2024-03-01"),
        ("el 11 de marzo de 2024", "2024-03-11"),
        ("l'11 marzo 2024", "2024-03-11"),
        ("11 de março de 2024", "2024-03-11"),
        ("2024年3月11日", "11 March 2024"),
        ("On 11 March", "11–13 March 2024"),
        ("From 11 to 13 March 2024", "11–13 March 2024"),
        ("On 11 March 2024", "## 2024\n11 March: boiler"),
        ("In March 2024", "## 2024\nIn March it was cold."),
        ("In 2024", "On 11 March 2024"),
        ("They march 5 miles", "5 miles on the march"),
    ],
)
def test_a_date_is_the_same_in_another_form(claim: str, text: str) -> None:
    assert status_of(claim, text) == "verified"


def test_the_months_of_each_language_are_twelve_and_no_name_is_of_two() -> None:
    kinds = tomllib.loads(config_text("months.toml"))["months"].values()
    languages = {language: names.strip().split("\n") for kind in kinds for language, names in kind.items()}
    stop_words = tomllib.loads(config_text("stop_words.toml"))["words"]
    assert languages.keys() == stop_words.keys()
    assert {len(lines) for lines in languages.values()} == {12}
    months: dict[str, int] = {}
    for lines in languages.values():
        for month, line in enumerate(lines):
            for name in line.split():
                assert months.setdefault(name.casefold(), month) == month


@pytest.mark.parametrize(
    ("claim", "text"),
    [
        ("On 11 April 2024", "On 2024-03-11"),
        ("On 11 May", "the 11th of June"),
        ("On March 12, 2024", "On 2024-03-11"),
        ("In April 2024", "On 2024-03-11"),
        ("On Jan. 6, 2024", "2024-01-05"),
        ("12. März 2024 war es", "11.03.2024"),
        ("el 12 de marzo", "2024-03-11"),
        ("2024年3月12日", "11 March 2024"),
        ("On 12 March", "11–13 March 2024"),
        ("On 11 March 2024", "In March 2024 came 11 people"),
        ("On 2024-03-11", "March 12 and 2024-04-11"),
    ],
)
def test_another_day_or_month_is_not_in_the_passage(claim: str, text: str) -> None:
    assert status_of(claim, text) == "unsupported"


@pytest.mark.parametrize(
    ("claim", "text", "status"),
    [
        ("There are 3 kings", "See source [^3] for all.", "unsupported"),
        ("There are 3 kings", "[^3]: Kings", "unsupported"),
        ("It costs 2 euros", "1. foo\n2. bar", "unsupported"),
        ("It costs 2 euros", "> 1) foo\n> 2) bar", "unsupported"),
        ("It costs 2 euros", "1. foo\n2. bar: 2 euros", "verified"),
        ("It took 12 days", "It took\n12. And no more.", "verified"),
        ("½ cup", "1/2 cup", "verified"),
        ("21/2 cups", "2½ cups", "unsupported"),
        ("It is 401 km", "It is 40¹ km", "unsupported"),
        ("٣ cups", "3 cups", "verified"),
        ("It says “trust me”", "trust [^3] me", "verified"),
        ("See `a[^1]b`", "```\na[^1]b\n```", "verified"),
        ("It is called 'Old Mill'", "The *Old Mill*", "verified"),
        ("It is called 'Old Mill'", "The new mill", "unsupported"),
        ("The dogs' and the cats' bowls", "Nothing", "located"),
        ("Music of the '90s for kids' rooms", "90s", "verified"),
    ],
)
def test_what_counts_as_a_fact(claim: str, text: str, status: str) -> None:
    assert status_of(claim, text) == status


@pytest.mark.parametrize(
    ("reply", "text", "markers"),
    [
        ("The note says “trust [^1] me”.", "Please trust [^1] me.", []),
        ("The note says “trust [^1] me” [^1].", "Please trust [^1] me.", [1]),
        ('It says "See [^1] [^2] [^3]." [^1]', "See [^1] [^2] [^3].", [1]),
        ("> See [^1] [^2].", "See [^1] [^2] [^3].", []),
        ("> See [^1] [^2]. [^3]", "See [^1] [^2].", [3]),
        ("> - See `x` [^1] 5", "- See `x` [^1] 5", []),
        ("« … see [^1] me » [^3]", "Now see [^1] me", [3]),
        ("It says “trust me [^1]”.", "trust me", [1]),
        ("> It cost 120 EUR. [^1]", "It cost 120 EUR. [^9]", [1]),
        ("See [^1] me.", "See [^1] me.", [1]),
        ("> It cost 120 EUR … [^1]", "It cost 120 EUR, see [^1].", [1]),
        ("> It cost 120 EUR.\n> [^1]", "See [^1].", [1]),
    ],
)
def test_a_marker_of_quoted_note_text_is_no_citation(reply: str, text: str, markers: list[int]) -> None:
    passages = {number: passage_of(text) for number in (1, 2, 3)}
    assert [cited.marker for cited in check_citations(reply, passages, lambda _: text)] == markers


@pytest.mark.parametrize(
    ("claim", "text", "status"),
    [
        ("Prix 1 250,50 € net", "Prix 1 250,50 € net", "verified"),
        ("It costs 1250.50", "Prix\u00a01\u202f250,50\u00a0€", "verified"),
        ("It costs 1.250,50", "Prix 1 250.50", "verified"),
        ("It costs 1 250,50", "Prix 1 250,60", "unsupported"),
        ("Rooms 1 250", "Room 1 and house 250", "verified"),
        ("You may use `Enum`", "You may use `Enum`s here", "verified"),
        ("You may use `Enu`", "You may use `Enum`s here", "unsupported"),
    ],
)
def test_spaced_numbers_with_decimals_and_code_within_a_word_are_found(claim: str, text: str, status: str) -> None:
    passage = Passage("a.md", None, 1, 1, text, passage_sha256(text))
    assert [one.status for one in check_citations(f"{claim} [^1].", {1: passage}, lambda _: text)] == [status]
