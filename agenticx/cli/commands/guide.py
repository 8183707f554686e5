"""The `agx guide` command: the pages of the guide."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace

from agenticx.cli.exit_codes import DONE
from agenticx.guide import GuidePage, guide_page, guide_pages
from agenticx.log_colors import visible_console

__all__ = ["configure", "run"]

_MAX_COLUMNS = 100

_EPILOG = """\
A terminal shows the page with headings and code set off; a pipe gets its Markdown as it is. The studio has the same
pages at /guide.

examples:
  agx guide                                  the pages, a line each
  agx guide quickstart
  agx guide asking | less
  agx guide sessions > sessions.md

exit codes: 0 done, 1 no page of that name, 2 usage"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments and help texts of `agx guide` to its parser."""
    parser.epilog = _EPILOG
    parser.add_argument("page", metavar="PAGE", nargs="?", help="the name of a page (default: list them)")
    parser.add_argument("--json", action="store_true", help="name, title and text; of the list one object per line")


def run(arguments: Namespace) -> int:
    """Run `agx guide` and return its exit code."""
    if arguments.page is None:
        for page in guide_pages():
            print(_to_json(page) if arguments.json else f"{page.name:<20} {page.title}")
        return DONE
    page = guide_page(arguments.page)
    if arguments.json:
        print(_to_json(page))
    elif sys.stdout.isatty():
        _print_rendered(page)
    else:
        print(page.text, end="")
    return DONE


def _to_json(page: GuidePage) -> str:
    return json.dumps({"name": page.name, "title": page.title, "text": page.text}, ensure_ascii=False)


def _print_rendered(page: GuidePage) -> None:
    from rich.console import Console  # rich takes 0.05 s
    from rich.segment import Segment, Segments

    from agenticx.cli.terminal.markdown import render_markdown

    console = visible_console(Console(highlight=False))
    for line in render_markdown(page.text, console, min(console.width, _MAX_COLUMNS), joins_lines=True):
        console.print(Segments([*line, Segment.line()]), soft_wrap=True)
