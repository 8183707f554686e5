"""Rows for files of a session: pages in replies, and edits."""

from __future__ import annotations

from contextlib import suppress

from agenticx.tools.artifacts.edits import EditError, apply_edits
from agenticx.tools.artifacts.extraction import extract_html, unwrap_page
from agenticx.tools.artifacts.placeholders import find_placeholder, is_placeholder
from agenticx.tools.text_files import replace_spans, with_lf
from tests.linear.case import LinearCase
from tests.linear.texts import TEXTS, repeated

__all__ = ["ARTIFACT_CASES"]

_PIECES = {
    "doctypes": "<!doctype html>\n",
    "begun tags": "<html\n",
    "ends": "</html>\n",
    "begun ends": "</html  ",
    "ends over lines": "</html\n",
    "documents": "<!doctype html>\n</html>\n",
    "documents behind fences": "```html\n<html>\n```\n</html>\n```\n",
    "closed fences": "```html\n<p>\n```\n",
    "tildes": "~~~~~~\n",
    "files": '<file path="a.html">\n<p>\n</file>\n',
    "begun files": '<file path="index.html">\n',
    "open files": "<file path ",
    "CR": "\r",
    "mixed line ends": "a\n\r\nb",
    "white space at line ends": "a \t\nb  \n",
    "comments": "/* rest of the \n",
    "placeholders": "// ... rest of the code ...\n",
    "open comments": "<!--\n",
}
_REPLIES = {**TEXTS, **{name: repeated(piece) for name, piece in _PIECES.items()}}


def _edited(text: str) -> None:
    """Apply edits that are found, forgiven, ambiguous and not found."""
    half, third = text[: len(text) // 2], text[len(text) // 3 : len(text) // 2]
    for old, new, count in (
        (f"{half}!", "x", None),
        (f"{third} ", text, None),
        (third, "y\r\n", None),
        ("\n", "a\nb", -1),
        ("a \nb", "b", -1),
    ):
        with suppress(EditError):
            apply_edits(f"{text}\r\n\n", {"old_text": old, "new_text": new, "count": count}, max_chars=9 * len(text))


def _placed(text: str) -> object:
    """Replace every line end and, in another text, the middle."""
    mixed = f"{text}\r\n\n"
    lines = with_lf(mixed)
    ends = [(index, index + 1) for index, character in enumerate(lines) if character == "\n"]
    return replace_spans(mixed, ends, "a\nb"), replace_spans(text, [(0, len(with_lf(text)) // 2)], "\r\nb")


ARTIFACT_CASES: list[LinearCase] = [
    LinearCase(
        of=extract_html,
        run=lambda text: (extract_html(text), unwrap_page("index.html", text)),
        inputs=_REPLIES,
        where="thread",
        also=(unwrap_page,),
    ),
    LinearCase(of=apply_edits, run=_edited, inputs=_REPLIES, where="thread"),
    LinearCase(of=replace_spans, run=_placed, inputs=_REPLIES, where="thread", also=(with_lf,)),
    LinearCase(
        of=find_placeholder,
        run=lambda text: (find_placeholder(text, text), is_placeholder(text)),
        inputs=_REPLIES,
        where="thread",
        also=(is_placeholder,),
    ),
]
