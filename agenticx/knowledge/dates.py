"""Dates in texts: in digits, and with the names of months in the languages of `config/months.toml`.

"11 March 2024", "March 11, 2024", "11. März 2024", "2024-03-11", "11.03.2024" and "2024年3月11日" are one date.
A date may lack its year or its day. "3/11/2024" has two readings.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import NamedTuple

from agenticx.settings import config_text

__all__ = ["Date", "FoundDate", "dates_meant", "find_dates"]


class Date(NamedTuple):
    """A date, or a part of a date; missing parts are None."""

    year: int | None
    month: int
    day: int | None


@dataclass(frozen=True, slots=True)
class FoundDate:
    """A date in a text from `start` to `end`, with its readings: several where day and month may be either."""

    start: int
    end: int
    readings: tuple[Date, ...]


def find_dates(text: str) -> list[FoundDate]:
    """Return the dates of a text in their order; the days of "11–13 March" are several, with one place.

    A month alone is left out, and so is a text that may be another number, such as "2024-03" or "11.3.".
    """
    if not _DIGIT.search(text):
        return []
    found, rest = _dates_in_digits(text)
    found += (date for date in _named_dates(rest) if any(each.year or each.day for each in date.readings))
    return sorted(found, key=lambda date: date.start)


def dates_meant(text: str) -> set[Date]:
    """Return the dates that a text may mean, including months alone and texts such as "2024-03"."""
    found, rest = _dates_in_digits(text)
    loose = (date for pattern, read in _LOOSE_FORMS for date in _matches(rest, pattern, read))
    return {reading for date in chain(found, loose, _named_dates(rest)) for reading in date.readings}


_Read = Callable[["re.Match[str]"], Sequence[Date]]
_TAKEN = "\0"
_DIGIT = re.compile(r"\d")


def _matches(text: str, pattern: re.Pattern[str], read: _Read) -> Iterator[FoundDate]:
    for match in pattern.finditer(text):
        if possible := tuple(date for date in read(match) if _is_possible(date)):
            yield FoundDate(match.start(), match.end(), possible)


def _is_possible(date: Date) -> bool:
    return 1 <= date.month <= 12 and (date.day is None or 1 <= date.day <= 31)


# --- in digits --------------------------------------------------------------------------------------------------------


def _dates_in_digits(text: str) -> tuple[list[FoundDate], str]:
    """Return the dates in digits, and the text with them masked in the same length."""
    found: list[FoundDate] = []
    for pattern, read in _DIGIT_FORMS:
        dates = list(_matches(text, pattern, read))
        if dates:
            signs = list(text)
            for date in dates:
                signs[date.start : date.end] = _TAKEN * (date.end - date.start)
            text = "".join(signs)
        found += dates
    return found, text


# Patterns begin with the digit itself, not with what must not stand before it: a text is scanned six times as fast.
_ONE = r"(\d(?<![\d./-]\d)\d?)"
_FOUR = r"(\d(?<![\d./-]\d)\d{3})"
_AFTER = r"(?!\d|[./-]\d)"
_YEAR_FIRST = re.compile(rf"{_FOUR}([-/.])(\d{{1,2}})\2(\d{{1,2}}){_AFTER}")
_YEAR_LAST = re.compile(rf"{_ONE}(\.\s?|[/-])(\d{{1,2}})\2(\d{{4}}){_AFTER}")
_YEAR_SIGN = re.compile(r"(\d(?<!\d\d)\d{3})\s?[年년]\s?(\d{1,2})\s?[月월](?:\s?(\d{1,2})\s?[日일])?")
_MONTH_SIGN = re.compile(r"(\d(?<!\d\d)\d?)\s?[月월]\s?(\d{1,2})\s?[日일]")
_YEAR_MONTH = re.compile(rf"{_FOUR}[-/](\d{{2}}){_AFTER}")
_MONTH_YEAR = re.compile(rf"{_ONE}[./](\d{{4}}){_AFTER}")
_DAY_MONTH = re.compile(rf"{_ONE}(?:\.\s?(\d{{1,2}})\.|/(\d{{1,2}})){_AFTER}")


def _year_first(match: re.Match[str]) -> Sequence[Date]:
    return (Date(int(match[1]), int(match[3]), int(match[4])),)


def _year_last(match: re.Match[str]) -> Sequence[Date]:
    first, second, year = int(match[1]), int(match[3]), int(match[4])
    day_first = Date(year, second, first)
    return (day_first,) if match[2].startswith(".") else (day_first, Date(year, first, second))


def _year_sign(match: re.Match[str]) -> Sequence[Date]:
    return (Date(int(match[1]), int(match[2]), int(match[3]) if match[3] else None),)


def _month_sign(match: re.Match[str]) -> Sequence[Date]:
    return (Date(None, int(match[1]), int(match[2])),)


def _year_month(match: re.Match[str]) -> Sequence[Date]:
    return (Date(int(match[1]), int(match[2]), None),)


def _month_year(match: re.Match[str]) -> Sequence[Date]:
    return (Date(int(match[2]), int(match[1]), None),)


def _day_month(match: re.Match[str]) -> Sequence[Date]:
    first, second = int(match[1]), int(match[2] or match[3])
    return (Date(None, second, first),) if match[2] else (Date(None, second, first), Date(None, first, second))


_DIGIT_FORMS: Sequence[tuple[re.Pattern[str], _Read]] = (
    (_YEAR_FIRST, _year_first),
    (_YEAR_LAST, _year_last),
    (_YEAR_SIGN, _year_sign),
    (_MONTH_SIGN, _month_sign),
)
_LOOSE_FORMS: Sequence[tuple[re.Pattern[str], _Read]] = (
    (_YEAR_MONTH, _year_month),
    (_MONTH_YEAR, _month_year),
    (_DAY_MONTH, _day_month),
)


# --- with names of months ---------------------------------------------------------------------------------------------

_LETTERS = re.compile(r"[^\W\d_]+")
_MAX_DAYS_CHARS = 60


@cache
def _months() -> Mapping[str, int]:
    """Return the months by their names: as they are, with a capital letter, and in capitals."""
    kinds: dict[str, dict[str, str]] = tomllib.loads(config_text("months.toml"))["months"]
    months: dict[str, int] = {}
    for kind, languages in kinds.items():
        for lines in languages.values():
            for month, line in enumerate(lines.strip().split("\n"), start=1):
                for name in line.split():
                    months |= {name.upper(): month, name.capitalize(): month}
                    months |= {name: month} if kind == "any" else {}
    return months


class _Around:
    """The patterns of what stands before and after the name of a month in a date."""

    def __init__(self) -> None:
        between = tomllib.loads(config_text("months.toml"))["between"]
        joined, of, ordinals = (
            "|".join(map(re.escape, between[key].split())) for key in ("days", "day_month", "ordinals")
        )
        day = rf"\d{{1,2}}(?:{ordinals})?"
        days = rf"(?P<days>{day}(?:\s?(?:{joined})\s?{day}){{0,3}})"
        year = r"(?P<year>(?:1[5-9]|2[01])\d\d)(?!\w|[.,:/]\d)"
        self.days_before = re.compile(rf"(?<![\w.,:/-]){days}\s?(?:(?:{of})\s)?\Z")
        self.days_after = re.compile(rf"\.?\s(?:the\s)?{days}(?!\w|[.,:/]\d)(?:,?\s{year})?")
        self.year_after = re.compile(rf"\.?,?\s(?:(?:{of})\s)?{year}")


@cache
def _around() -> _Around:
    return _Around()


def _named_dates(text: str) -> Iterator[FoundDate]:
    """Yield the dates with the name of a month, also those that are nothing else."""
    months, around, taken = _months(), _around(), 0
    for name in _LETTERS.finditer(text):
        if (month := months.get(name[0])) is None or name.start() < taken:
            continue
        start, end = name.span()
        if _is_word(text[start - 1 : start]) or _is_word(text[end : end + 1]):
            continue
        before = around.days_before.search(text, max(taken, start - _MAX_DAYS_CHARS), start)
        after = around.year_after.match(text, end) if before else around.days_after.match(text, end)
        after = after or around.year_after.match(text, end)
        days = before or (after if after and "days" in after.groupdict() else None)
        year = int(after["year"]) if after and after["year"] else None
        start = before.start() if before else start
        taken = after.end() if after else end
        for day in re.findall(r"\d+", days["days"]) if days else [None]:
            date = Date(year, month, None if day is None else int(day))
            if _is_possible(date):
                yield FoundDate(start, taken, (date,))


def _is_word(sign: str) -> bool:
    return sign == "_" or sign.isalnum()
