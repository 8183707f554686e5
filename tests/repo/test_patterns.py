"""Regular expressions use no possessive group and no atomic group.

`re` of Python 3.11.0 to 3.11.4 matches them wrongly if the group can backtrack
(https://github.com/python/cpython/issues/106052), and Debian 12 has 3.11.2.
"""

from __future__ import annotations

import re

import pytest

from tests.support.modules import modules

POSSESSIVE_GROUP = re.compile(r"(?<![\\(])[)}](?:[*+?]|\{\d*,?\d*\})\+|\(\?>")
"""The end of a repeated group, or of a pattern in an f-string, or the beginning of an atomic group."""


def test_no_pattern_has_a_possessive_or_atomic_group() -> None:
    found = [
        f"{module.path}:{number}: Python 3.11.4 matches {match[0]!r} wrongly; right would be, for example: "
        "(?:…)* before what it cannot match, or (?=(?P<part>…))(?P=part)"
        for module in modules()
        if module.path.parts[0] in ("agenticx", "studio")
        for number, line in enumerate(module.lines, 1)
        if (match := POSSESSIVE_GROUP.search(line))
    ]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize("pattern", ["(?:ab)*+", "(a|b)++", "(?:a b)?+", "(ab){1,2}+", "(?>ab)", "{_GROUP}*+"])
def test_each_form_is_found(pattern: str) -> None:
    assert POSSESSIVE_GROUP.search(pattern)


@pytest.mark.parametrize("pattern", [r"\s*+", r"[^)]++", r"\w{1,64}+", r"\)*+", "(?:ab)+", "!$&'()*+,;="])
def test_possessive_repeats_of_one_character_are_allowed(pattern: str) -> None:
    assert not POSSESSIVE_GROUP.search(pattern)
