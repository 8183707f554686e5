"""The page in a model's reply: documents, fragments and wrapped files."""

from __future__ import annotations

from random import Random

import pytest

from agenticx.tools.artifacts.extraction import Extracted, extract_html, unwrap_page
from tests.support.knowledge.data import knowledge_rows
from tests.support.lanes import Count

PAGE = '<!DOCTYPE html>\n<html lang="en">\n<body>\n  <h1>Bread</h1>\n</body>\n</html>'
CUT = PAGE.removesuffix("\n</html>")
CODE = PAGE.replace("Bread", "\n```js\nx\n```\n")
OTHER = PAGE.replace("Bread", "Rolls")


def test_every_reply_of_the_data_gives_its_page() -> None:
    rows = knowledge_rows("html_extraction.jsonl")
    assert len(rows) >= 27
    found = {row["name"]: extract_html(row["text"]) for row in rows}
    assert {name: (None, None) if page is None else (page.html, page.complete) for name, page in found.items()} == {
        row["name"]: (row["html"], row["complete"]) for row in rows
    }


WHOLE = Extracted(PAGE, complete=True)
REPLIES = {
    "a fence in a list": (f"1. Paste:\n\n   ```html\n{PAGE}\n   ```\n2. Save", WHOLE),
    "tildes": (f"~~~HTML\n{PAGE}\n~~~", WHOLE),
    "a language with a path": (f"```html:index.html\n{PAGE}\n```", WHOLE),
    "the last of two": (f"```html\n{OTHER}\n```\nOr rather:\n```html\n{PAGE}\n```", WHOLE),
    "the last complete one": (f"```html\n{PAGE}\n```\nOr:\n```html\n{CUT}", WHOLE),
    "a start after a start": (f"{CUT}\n{PAGE}", WHOLE),
    "a fence without a doctype behind a cut document": (f"{CUT}\n```html\n<html>\n</html>\n```", "<html>\n</html>"),
    "backticks in the page": (page := PAGE.replace("Bread", "\n```\nx\n```\n"), page),
    "backticks in the page in a fence": (f"```html\n{page}\n```\nDone.", page),
    "a code block in the page in a fence": (f"```html\n{CODE}\n```", CODE),
    "an end in a sentence behind a cut document": (
        f"```html\n{CUT}\n```\nClose it with </html>\n",
        Extracted(CUT, complete=False),
    ),
    "a fragment behind a cut document": (
        f"```html\n{CUT}\n```\n```html\n<b>x</b>\n</html>\n```",
        Extracted(CUT, complete=False),
    ),
    "the longest fragment": ("```html\n<b>1</b>\n```\n```html\n<b>22</b>\n```\n```html\n<i>\n```", "<b>22</b>"),
    "an open fragment": ("```html\n<b>x", Extracted("<b>x", complete=False)),
    "words in an HTML fence": ("```html\nbread\n```", None),
    "a fragment in a fence without a language": ("```\n<b>x</b>\n```", None),
    "a document in an open fence of another language": (f"```python\nPAGE = '''\n{PAGE}\n'''", None),
    "an indented page in a string": (f"```js\nconst page = `\n  {PAGE}`\n```", None),
    "sentences that begin with a tag": (
        "<html> is the root element.\n<!DOCTYPE html> comes first.\nBoth belong to a page.",
        None,
    ),
    "such a sentence before a page": (f"<html> is the root element:\n\n{PAGE}", WHOLE),
    "inline code of three backticks": (f"```<html>``` is the root.\n{PAGE}", WHOLE),
    "text in html": ("<html>\nHello\n</html>", Extracted("<html>\nHello\n</html>", complete=True)),
    "index.html of several files": (
        f'<file path="a.html">\n{OTHER}\n</file>\n<file path="index.html">\n{PAGE}\n</file>',
        Extracted(PAGE, complete=True, path="index.html"),
    ),
    "the last whole index.html": (
        f"<file path='index.html'>\n{OTHER}\n</file>\n<file path='index.html'>{PAGE}</file>\n"
        f"<file path='index.html'>\n{CUT}",
        Extracted(PAGE, complete=True, path="index.html"),
    ),
    "a file that is cut": (
        f'<file path="b.html">\n{CUT}',
        Extracted(CUT, complete=False, path="b.html"),
    ),
    "a file that is a fragment": (
        '<file path="b.html" lang="html">\n\n<b>x</b>\n\n</file>',
        Extracted("<b>x</b>", complete=True, path="b.html"),
    ),
    "files of other kinds": (f'<file path="a.py">\n{OTHER}\n</file>\n{PAGE}', WHOLE),
    "a file in a fence of another language": (f'```xml\n<file path="a.html">\n{PAGE}\n</file>\n```', None),
    "a file in a sentence": (f'Use <file path="a.html"> for:\n{PAGE}', WHOLE),
}


@pytest.mark.parametrize(("text", "expected"), REPLIES.values(), ids=REPLIES)
def test_the_page_of_a_reply(text: str, expected: Extracted | str | None) -> None:
    assert extract_html(text) == (Extracted(expected, complete=True) if isinstance(expected, str) else expected)
    crlf = extract_html(text.replace("\n", "\r\n"))
    html = expected.html if isinstance(expected, Extracted) else expected
    assert (crlf and crlf.html) == (html and html.replace("\n", "\r\n"))


def test_what_is_found_is_a_part_of_the_reply(rng: Random, count: Count) -> None:
    pieces = [
        "```html\n",
        "```\n",
        "~~~\n",
        "<!doctype html>\n",
        "<html>\n",
        "</html>\n",
        "x</html>",
        "<b>\n",
        " ",
        "\r\n",
    ]
    pieces += ['<file path="a.html">\n', '<file path="index.html">\n', "</file>\n", "```css\n", "text\n", "\ufeff"]
    for _ in range(count(300, 2_000, 50_000)):
        text = "".join(rng.choices(pieces, k=rng.randrange(1, 14)))
        found = extract_html(text)
        if found is not None:
            assert found.html
            assert found.html in text
            assert extract_html(f"```css\n```\n{text}") == found
        inner = unwrap_page("index.html", text)
        assert inner is None or (len(inner) < len(text) and inner in text and unwrap_page("a.html", inner) is None)


@pytest.mark.parametrize(
    ("path", "content", "expected"),
    [
        ("index.html", f"```html\n{PAGE}\n```", PAGE),
        ("index.html", f"\n```\n{PAGE}\n```\n", PAGE),
        ("index.html", f'<file path="x.html">\n```html\n{PAGE}\n```\n</file>', PAGE),
        ("index.html", f'<file path="index.html">\n{PAGE}\n</file>', PAGE),
        ("index.html", f"```html\n{PAGE}\n```\nI used a serif font.", PAGE),
        ("index.html", "```html\n<b>x</b>\n```", "<b>x</b>"),
        ("index.html", "```html\n<b>x</b>\n```\n<i>y</i>", None),
        ("index.html", PAGE, None),
        ("index.html", f"\ufeff{PAGE}\n", None),
        ("index.html", f"\ufeff```html\n{PAGE}\n```\n", PAGE),
        ("index.html", f"<!-- v2 -->\n{PAGE}\n", None),
        ("index.html", f"<p>\n```html\n{PAGE}\n```", None),
        ("index.html", f"```css\n{PAGE}\n```", None),
        ("example.md", f"```html\n{PAGE}\n```", None),
        ("index.html", "", None),
    ],
)
def test_a_wrapped_page_is_unwrapped(path: str, content: str, expected: str | None) -> None:
    assert unwrap_page(path, content) == expected
