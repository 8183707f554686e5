"""`agx html extract`: the page in a reply, from a file or standard input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.knowledge.data import knowledge_rows

PAGE = "<!DOCTYPE html>\r\n<html>\r\n<p>é</p>\r\n</html>"


def test_the_page_is_printed_with_nothing_added(agx: Any, tmp_path: Path) -> None:
    reply = tmp_path / "reply.md"
    reply.write_bytes(f"Sure:\r\n```html\r\n{PAGE}\r\n```\r\nDone.\r\n".encode())
    with (tmp_path / "index.html").open("wb") as file:
        printed = agx("html", "extract", str(reply), stdout=file.fileno())
    assert (printed.returncode, printed.stderr) == (0, "")
    assert (tmp_path / "index.html").read_bytes() == PAGE.encode()

    found = agx("html", "extract", str(reply), "--json")
    assert (found.returncode, found.stderr) == (0, "")
    assert json.loads(found.stdout) == {"html": PAGE, "complete": True, "path": None}
    assert found.stdout.isascii()  # a terminal gets no control characters, as with --json of other commands


def test_standard_input_is_read_and_a_text_without_a_page_is_no_error(agx: Any) -> None:
    wrapped = agx("html", "extract", "-", "--json", stdin='<file path="a.html">\n<html>\n<p>')
    assert json.loads(wrapped.stdout) == {"html": "<html>\n<p>", "complete": False, "path": "a.html"}
    nothing = agx("html", "extract", stdin="No page.")
    assert (nothing.returncode, nothing.stdout) == (0, "")
    assert nothing.stderr.startswith("agx html: no page was found; `agx artifacts` has")
    null = agx("html", "extract", "--json", stdin="No page.")
    assert (null.returncode, null.stdout, null.stderr) == (0, "null\n", "")


def test_what_is_no_text_is_refused(agx: Any, tmp_path: Path) -> None:
    binary = tmp_path / "page.png"
    binary.write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    for path, sentence in (
        (tmp_path / "none.md", "No such file or directory"),
        (tmp_path, "Is a directory"),
        (binary, "is no text in UTF-8 or UTF-16; give the text of a reply"),
    ):
        refused = agx("html", "extract", str(path))
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr.startswith(f"agx: {path}")
        assert refused.stderr.endswith(f"{sentence}\n")


@pytest.mark.cases(quick=0)
def test_every_reply_of_the_data_gives_its_page(agx: Any) -> None:
    for row in knowledge_rows("html_extraction.jsonl"):
        found = json.loads(agx("html", "extract", "--json", stdin=row["text"]).stdout)
        assert (found and (found["html"], found["complete"])) == (row["html"] and (row["html"], row["complete"]))
