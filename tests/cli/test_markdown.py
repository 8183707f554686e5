"""Markdown on a terminal: the same screen however its text arrives, and no word lost or broken."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterable

import pytest
from rich.console import Console

from agenticx.cli.terminal.drawn_lines import LinesAtCursor
from agenticx.cli.terminal.markdown_output import MarkdownStream
from tests.support.lanes import Count
from tests.support.screen import Screen
from tests.support.timeouts import slowdown

WIDTH = 60
CONSOLE = Console(force_terminal=True, width=WIDTH)
TEXT = """\
# A title
Some **bold** and `inline` text with <angle brackets> and a [link](http://example.com/page) &amp; more of it.
A second line

- one
- two https://example.com/a/very/long/address/that/no/line/of/this/terminal/can/hold
  - inside an item, with so many words that they do not fit on one line of it

7. seven
8. eight

   with a paragraph

> quoted
> text

```python
def double(number: int) -> int:
    return number * 2  # a comment that is so long that it does not fit on a line
```

| name | size |
|------|-----:|
| a    |    1 |

![an image](http://example.com/image.png)
<div>raw</div>

[reference]: http://example.com/reference
"""
SCREEN = """\
A title

Some bold and inline text with <angle brackets> and a link
(http://example.com/page) & more of it.
A second line

 • one
 • two
   https://example.com/a/very/long/address/that/no/line/of/t
his/terminal/can/hold
    • inside an item, with so many words that they do not
      fit on one line of it

 7. seven
 8. eight
    with a paragraph

▌ quoted
▌ text

  def double(number: int) -> int:
      return number * 2  # a comment that is so long that it
 does not fit on a line

 name  size
 ──────────
 a        1

!an image (http://example.com/image.png)
<div>raw</div>

[reference]: http://example.com/reference
"""


def shown(parts: Iterable[str], *, height: int = 24) -> str:
    """Return the screen after a message that arrives in these parts, with a frame after each."""
    screen = Screen(WIDTH)
    console = Console(force_terminal=True, width=WIDTH, height=height)
    stream = MarkdownStream(console, LinesAtCursor(console, screen.write))
    for part in parts:
        stream.feed(part)
        stream.draw()
    stream.finish()
    return screen.text()


def in_parts(text: str, rng: random.Random) -> Iterable[str]:
    while text:
        size = rng.randint(1, 40)
        yield text[:size]
        text = text[size:]


def test_a_flag_that_arrives_in_parts_stays_and_hidden_tags_are_shown() -> None:
    flag = "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"
    console = Console(force_terminal=True, width=WIDTH)
    stream = MarkdownStream(console, LinesAtCursor(console, Screen(WIDTH).write))
    for part in (*f"a{flag}b", "\U000e0041", "🏴\U000e0067"):
        stream.feed(part)
    assert stream.unfinished == f"a{flag}b⟨U+E0041⟩🏴\U000e0067"
    assert stream.hold_word() == f"a{flag}b⟨U+E0041⟩🏴⟨U+E0067⟩"


def test_a_message_is_rendered() -> None:
    assert shown([TEXT]) == SCREEN


@pytest.mark.parametrize("height", [24, 5])
@pytest.mark.cases(quick=1)
@pytest.mark.ci_lane
def test_the_screen_is_the_same_however_the_text_arrives(height: int, count: Count) -> None:
    assert shown(TEXT, height=height) == SCREEN
    for seed in range(count(2, 5, 5)):
        assert shown(in_parts(TEXT, random.Random(seed)), height=height) == SCREEN, f"seed {seed}"


@pytest.mark.parametrize(
    "text",
    [
        "words of a long paragraph " * 200,
        "".join(f"{number}. entry {number}\n" for number in range(1, 120)),
        "".join(f"1. entry {number}\n" for number in range(1, 120)),
        "- entry\n" * 200,
        "```\n" + "".join(f"line {number}\n" for number in range(200)) + "```\nafter\n",
        "|a|b|\n|-|-|\n" + "".join(f"|c{number}|d{number}|\n" for number in range(80)),
        "x" * 8_000,
        "> " * 30 + "deep\n" * 3,
        ">" * 2_000 + "deeper\n",
    ],
    ids=["paragraph", "numbers", "equal numbers", "bullets", "code", "table", "one word", "quotes", "too many quotes"],
)
@pytest.mark.cases(quick=3)
@pytest.mark.ci_lane
def test_no_word_of_a_long_block_is_lost_or_broken(text: str) -> None:
    screen = shown(in_parts(text, random.Random(1)))
    wanted = re.findall(r"[a-z]\w*", text)
    if len(wanted) == 1:
        assert screen.replace("\n", "") == text.rstrip()
    elif not text.startswith("|"):  # where the rest of a table begins, its head is repeated
        assert re.findall(r"[a-z]\w*", screen) == wanted
    else:
        assert [word for word in re.findall(r"\w+", screen) if word not in "ab"] == re.findall(r"\w\d+", text)
    if text.startswith(("1. entry 1\n", "```")):
        assert "119" in screen


def test_the_numbers_of_a_list_go_on_where_it_is_divided() -> None:
    screen = shown(in_parts("1. entry\n" * 100, random.Random(2)))
    assert re.findall(r"(\d+)\. entry", screen) == [str(number) for number in range(1, 101)]


def test_no_control_character_reaches_the_terminal() -> None:
    hostile = (
        "a\x1b]0;t\x07\x9b2J\u202e &#x1b;[2J &#8238; &#x9b; [l](http://x/&#27;c)\n\n```x&#27;\n\x1b[2J&#27;\n```\n"
    )
    raw: list[str] = []
    stream = MarkdownStream(CONSOLE, LinesAtCursor(CONSOLE, raw.append))
    stream.feed(hostile)
    stream.finish()
    left = re.sub(r"\x1b\[[0-9;]*[mAGJ]", "", "".join(raw))
    assert [char for char in left if not char.isprintable() and char != "\n"] == []
    assert "a⟨U+001B⟩]0;t⟨U+0007⟩⟨U+009B⟩2J⟨U+202E⟩" in left
    assert "⟨U+202E⟩ " in left


def test_a_note_inside_a_block_of_code_does_not_end_it() -> None:
    screen = Screen(WIDTH)
    stream = MarkdownStream(CONSOLE, LinesAtCursor(CONSOLE, screen.write))
    stream.feed("```python\nfirst\nsec")
    assert stream.hold_word() == "sec"
    assert stream.finish() == "```python\n"
    assert screen.text() == "  first\n"
    stream = MarkdownStream(CONSOLE, LinesAtCursor(CONSOLE, screen.write))
    stream.feed("```python\nsecond\n```\n**end**")
    assert stream.finish() == ""
    assert screen.text() == "  first\n  second\n\nend\n"


def test_text_that_only_grows_is_only_appended() -> None:
    raw: list[str] = []
    stream = MarkdownStream(CONSOLE, LinesAtCursor(CONSOLE, raw.append))
    for word in ("one", " two", " three\nfour"):
        stream.feed(word)
        stream.draw()
    stream.finish()
    assert raw == ["one", " two", " three\nfour", "\n"]


@pytest.mark.ci_lane
def test_a_long_text_that_arrives_at_once_is_shown_without_long_work() -> None:
    text = "".join(f"- entry {number} of a list\n" for number in range(40_000)) + "**end**"
    raw: list[str] = []
    stream = MarkdownStream(CONSOLE, LinesAtCursor(CONSOLE, raw.append))
    stream.feed(text)
    began = time.process_time()
    stream.finish()
    assert time.process_time() - began < 5 * slowdown()  # a second, where all of it would take twenty
    shown = re.sub(r"\x1b\[[0-9;]*[a-zA-Z]", "", "".join(raw))
    assert re.findall(r"entry (\d+) of a list\n", shown) == [str(number) for number in range(40_000)]
    assert shown.endswith("end\n")
