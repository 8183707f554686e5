"""The pages of the guide as HTML, without data of the user."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from html import escape

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from agenticx.guide import GuidePage, UnknownGuidePage, guide_page, guide_pages
from agenticx.threads import run_in_thread
from studio.http.problems import Problem

__all__ = ["index", "show"]

_SHELL = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title} · AgenticX guide</title>
<link rel="icon" href="{root}assets/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="{root}assets/css/base.css">
<link rel="stylesheet" href="{root}assets/guide.css">
</head>
<body class="guide">
<nav aria-label="Guide"><a href="{root}">Studio</a><ul>{links}</ul></nav>
<main>{content}</main>
</body>
</html>
"""


async def index(_request: Request) -> Response:
    """Return the list of pages."""
    return HTMLResponse(await run_in_thread(_index, name="agx guide"))


async def show(request: Request) -> Response:
    """Return one page; the 404 for an unknown name lists those that may be meant, or all."""
    try:
        return HTMLResponse(await run_in_thread(_page, request.path_params["name"], name="agx guide"))
    except UnknownGuidePage as exc:
        sentence = str(exc)
        end = "" if sentence.endswith("?") else "."
        raise Problem("not_found", f"{sentence[0].upper()}{sentence[1:]}{end}") from None


@cache
def _index() -> str:
    pages = guide_pages()
    rows = "".join(
        f'<li><a href="guide/{page.name}">{escape(page.title)}</a><br>{escape(page.summary)}</li>' for page in pages
    )
    return _SHELL.format(
        title="Guide", root="./", links=_links(pages, "guide/", ""), content=f"<h1>Guide</h1><ul>{rows}</ul>"
    )


def _page(name: str) -> str:
    page = guide_page(name)
    return _rendered(page.name)


@cache
def _rendered(name: str) -> str:
    from markdown_it import MarkdownIt  # takes 20 ms

    page = guide_page(name)
    content = MarkdownIt("commonmark", {"html": False}).enable("table").render(page.text)
    for other in guide_pages():  # links name files, see agenticx.guide
        content = content.replace(f'href="{other.name}.md', f'href="{other.name}')
    return _SHELL.format(
        title=escape(page.title), root="../", links=_links(guide_pages(), "", page.name), content=content
    )


def _links(pages: Sequence[GuidePage], folder: str, current: str) -> str:
    return "".join(
        f'<li><a href="{folder}{page.name}"{" aria-current=page" if page.name == current else ""}>'
        f"{escape(page.title)}</a></li>"
        for page in pages
    )
