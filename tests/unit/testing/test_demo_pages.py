"""The demo model builds pages: one in pieces, exact edits of it, and a design for each option."""

from __future__ import annotations

import json
import math
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from agenticx import UserMessage
from agenticx.clocks import ScaledClock
from agenticx.llms import DemoModel, ModelRequest, ToolCallDelta, complete
from agenticx.llms.demo.designs import DESIGNS
from agenticx.llms.demo.pages import NewPage, make_page, title_of
from agenticx.llms.demo.plan import make_plan
from agenticx.messages import SystemMessage
from agenticx.runtime import AgentRuntime, Session
from agenticx.testing import check_grammar, collect
from agenticx.tools import tool

pytestmark = pytest.mark.anyio

DEMO = DemoModel(ScaledClock(math.inf))


class Files:
    """Files in memory, written by the two tools, whose edits are as strict as those of sessions."""

    def __init__(self) -> None:
        self.contents: dict[str, str] = {}
        self.tools = [
            tool(self.create, name="create_file", risk="read"),
            tool(self.edit, name="edit_file", risk="read"),
        ]

    async def create(self, content: str, path: str = "index.html") -> str:
        """Write a file."""
        self.contents[path] = content
        return f"wrote {path}"

    async def edit(
        self,
        path: str = "index.html",
        old_text: str = "",
        new_text: str = "",
        count: int | None = None,
        edits: list[dict[str, Any]] | None = None,
    ) -> str:
        """Change a file."""
        for edit in edits or [{"old_text": old_text, "new_text": new_text, "count": count}]:
            times = self.contents[path].count(edit["old_text"])
            assert times == 1 or (times > 1 and edit["count"] == -1)
            self.contents[path] = self.contents[path].replace(edit["old_text"], edit["new_text"])
        return "a diff"


async def say(files: Files, session: Session, words: str) -> str:
    events = await collect(AgentRuntime(DEMO).run_turn(words, session, tools=files.tools))
    check_grammar(events)
    return events[-1].data["text"]


def values(page: str) -> dict[str, str]:
    """Return the custom properties of a page, and its `h1` and `title`."""
    elements = re.findall(r"<(h1|title)>([^<]*)</", page)
    return dict(re.findall(r"--([\w-]+): ([^;]+);", page)) | dict(elements)


async def test_a_page_is_written_in_many_pieces_of_one_call_and_reported_in_one_sentence(agx_session: Session) -> None:
    files = Files()
    request = ModelRequest(
        messages=[UserMessage(content="Make a page about a bakery")], tools=[one.schema for one in files.tools]
    )
    pieces = [delta async for batch in DEMO.stream(request) for delta in batch if isinstance(delta, ToolCallDelta)]
    assert 40 <= len(pieces) <= 60
    arguments = json.loads("".join(piece.arguments for piece in pieces))
    assert list(arguments) == ["path", "content"]
    answer = await say(files, agx_session, "Make a page about a bakery")
    assert files.contents == {"index.html": arguments["content"]}
    assert answer == "I have made the page “Bakery” in index.html, warm and centred; its text is an example."


async def test_later_messages_change_the_page_by_its_exact_text(agx_session: Session) -> None:
    files = Files()
    assert "no page in this conversation" in await say(files, agx_session, "make the heading red")
    await say(files, agx_session, "Build a landing page for a café called Tom & Co")
    before = files.contents["index.html"]
    assert await say(files, agx_session, "make the heading red") == "I have made the heading red."
    assert await say(files, agx_session, "change the title to Fish & Chips and make the heading bigger") == (
        "The title is 'Fish & Chips' now.\n\nI have made the heading larger."
    )
    await say(files, agx_session, "Ändere den Titel zu <Neu>")
    await say(files, agx_session, "add a section about opening hours")
    await say(files, agx_session, 'Replace "Made with care" with Made by hand')
    after = files.contents["index.html"]
    assert {name: value for name, value in values(after).items() if value != values(before)[name]} == {
        "heading": "red",
        "heading-size": "4.375rem",
        "h1": "&lt;Neu&gt;",
        "title": "&lt;Neu&gt;",
    }
    assert "<h2>Opening hours</h2>" in after
    assert "<h3>Made by hand</h3>" in after
    assert "has no such text" in await say(files, agx_session, "replace Nonsense with sense")


@pytest.mark.parametrize(
    ("system", "words", "design"),
    [
        (None, "make a page about tea", 1),
        (None, "make a page about tea\n\nOption 2", 2),
        ("You are option 3 of 3.", "make a page about tea", 3),
        ('Parts of another page, such as "the header of option 2".', "make a page about tea", 1),
        (None, "Option 5: make a page about tea", 5),
    ],
)
async def test_each_option_has_a_design_of_its_own(system: str | None, words: str, design: int) -> None:
    messages = [*([] if system is None else [SystemMessage(content=system)]), UserMessage(content=words)]
    reply, _ = await complete(DEMO, ModelRequest(messages=messages, tools=[one.schema for one in Files().tools]))
    (call,) = reply.tool_calls
    assert json.loads(call.arguments)["content"] == make_page(NewPage("tea", "en"), design)


class Elements(HTMLParser):
    """The open elements of a page, which must close in order, and the values of attributes that request something."""

    VOID = frozenset({"meta", "input", "path", "circle", "polygon"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.requested: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        self.requested += [value or "" for name, value in attrs if name in {"src", "href", "action", "srcset", "data"}]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("design", range(1, len(DESIGNS) + 1))
@pytest.mark.parametrize("language", ["en", "de"])
def test_a_page_is_whole_and_requests_nothing(design: int, language: Any) -> None:
    page = make_page(NewPage('a shop called <script>"&', language), design)
    parser = Elements()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    assert all(value.startswith("#") for value in parser.requested)
    assert not re.search(r"https?:|url\(|@import|fetch|\$\w", page)
    assert page.startswith("<!doctype html>")
    assert page.rstrip().endswith("</html>")
    assert f'<html lang="{language}">' in page
    assert (page.count("<h1>"), page.count("</main>"), page.count("<title>")) == (1, 1, 1)
    assert "<h1>&lt;script&gt;</h1>" in page


@pytest.mark.parametrize(
    ("subject", "title"),
    [
        ("a small bakery in Lisbon, with a menu", "Small bakery in Lisbon"),
        ("eine Bäckerei. Sie soll warm wirken.", "Bäckerei"),
        ("my shop called Bean There", "Bean There"),
        ("", "A new page"),
        ("word " * 100, "Word word word word word word word word word word word word"),
    ],
)
def test_the_title_of_a_page_is_the_name_or_the_subject(subject: str, title: str) -> None:
    assert title_of(NewPage(subject, "en")) == title


@pytest.mark.parametrize(
    ("words", "tools"),
    [
        ("Make 3 versions of a page about a bakery", ["run_variants"]),
        ("Kannst du mir eine schöne Webseite über Katzen bauen?", ["create_file"]),
        ("rebuild this page", ["create_file"]),
        ("make a page about tea and then make the heading red", ["create_file", "edit_file"]),
        ("mach die Überschrift dunkelrot", ["edit_file"]),
        ("save the page as out.html", ["artifact_save"]),
        ("use the header of option 2", ["retrieve_option"]),
        ("replace a with b in notes.txt", ["file_edit"]),
        ("write a.txt with the text make a page about tea", ["file_write"]),
        ("run ./configure and then make install", ["bash_exec"]),
        ("What does the page about bread say?", []),
    ],
)
def test_requests_for_pages_are_read_beside_the_others(words: str, tools: list[str]) -> None:
    assert [planned.tool for planned in make_plan(words).calls] == tools
