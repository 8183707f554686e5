"""The answers that a line typed at a question gives."""

from __future__ import annotations

import pytest

from agenticx.cli.terminal.responders import parse_answer
from agenticx.permissions import parse_rule
from agenticx.runtime import ConfirmAnswer

KIND, EXACT = parse_rule("allow edit path=src/**"), parse_rule("allow edit path=src/a.py")
OFFERED = {"rules": [KIND.to_json()], "kinds": ["edit files in src/"], "exact_rule": EXACT.to_json()}
ONLY_EXACT = {"rules": [EXACT.to_json()], "kinds": ["edit src/a.py"], "exact_rule": EXACT.to_json()}
YES, NO = ConfirmAnswer(approved=True), ConfirmAnswer(approved=False)


@pytest.mark.promise("E2")
@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("", NO),
        ("\n", NO),
        ("  \n", NO),
        ("n\n", NO),
        (" No ", NO),
        ("y\n", YES),
        ("YES\n", YES),
        ("s\n", ConfirmAnswer(approved=True, remember="session")),
        ("Always", ConfirmAnswer(approved=True, remember="always")),
        ("x\n", ConfirmAnswer(approved=True, remember="session", rules=(EXACT,))),
        ("e\n", "edit"),
        ("n  use\tthe other\x1b[A file\n", ConfirmAnswer(approved=False, reason="use the other[A file")),
        *(
            (line, None)
            for line in (
                "yy",
                "y y",
                "y\x00",
                "yes please",
                "s all",
                "same",
                "a src",
                "all",
                "ja",
                "1",
                "\x1b[200~y",
                "ｙ",
            )
        ),
    ],
)
def test_only_the_words_of_the_question_answer_it(line: str, answer: object) -> None:
    assert parse_answer(line, OFFERED) == answer


def test_what_cannot_be_remembered_is_no_answer() -> None:
    assert [parse_answer(line, {}) for line in ("s", "a", "x")] == [None, None, None]
    assert parse_answer("x", ONLY_EXACT) is None  # s covers just that
    assert parse_answer("a", ONLY_EXACT) == ConfirmAnswer(approved=True, remember="always")
