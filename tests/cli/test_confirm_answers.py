"""The answers that a line typed at a question gives."""

from __future__ import annotations

import pytest

from agenticx.cli.terminal.responders import parse_answer
from agenticx.runtime import ConfirmAnswer

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
        ("e\n", "edit"),
        ("n  use\tthe other\x1b[A file\n", ConfirmAnswer(approved=False, reason="use the other[A file")),
        *(
            (line, None)
            for line in ("yy", "y y", "y\x00", "yes please", "s all", "same", "a", "ja", "1", "\x1b[200~y", "ｙ")
        ),
    ],
)
def test_only_the_words_of_the_question_answer_it(line: str, answer: object) -> None:
    assert parse_answer(line) == answer
