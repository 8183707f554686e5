"""The pages of the demo model: new pages, their changes as exact edits, and the pages in a conversation."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal, cast

from agenticx.llms.demo.designs import DESIGNS, LANGUAGES, Language
from agenticx.messages import AssistantMessage, Message, ToolMessage, UserMessage

__all__ = ["INDEX", "NewPage", "PageChange", "design_words", "edit_of", "make_page", "pages_in", "title_of"]

INDEX = "index.html"

_MAX_TITLE_CHARS = 60
_MAX_ARGUMENT_CHARS = 100_000  # of a call; the pages of the demo have 5,000
_PICKED_FILE = re.compile(
    r"^\[([^\[\]\n]{1,200}) of option \d{1,6}, boundary ([0-9a-f]{1,64}); [^\n]{0,200}\]\n(.*?)\n"
    r"\[end of \1 of option \d{1,6}, boundary \2\]$",
    re.DOTALL | re.MULTILINE,
)
_ARTICLE = re.compile(
    r"(?:an?|the|my|our|your|some|eine[mnrs]?|ein|der|die|das|den|dem|meine?[mnr]?|unsere?[mnr]?)\s+(?=\S)",
    re.IGNORECASE,
)
_NAME = re.compile(r"\b(?:called|named|namens)\s+[\"'“„]?([^\"'”“\n]{1,60})", re.IGNORECASE)
_END = re.compile(r"[.!?:;]\s|[\n;]|,?\s(?:with|that|which|mit|die|der|das)\s", re.IGNORECASE)
_SIZE = re.compile(r"--(heading|text)-size: ([\d.]+)rem;")


@dataclass(frozen=True, slots=True)
class NewPage:
    """A page to be made about a subject in the words of the request, "" without one."""

    subject: str
    language: Language


@dataclass(frozen=True, slots=True)
class PageChange:
    """A change of a page.

    - `colour` and `size` change a `part`, for example `heading` or `accent`; `value` is a colour of CSS, or a factor.
    - `words` changes the text of the part `heading`, or `title` (heading and window title).
    - `section` adds a section about the `value`.
    - `literal` replaces the text `part`.
    """

    kind: Literal["colour", "size", "words", "section", "literal"]
    part: str
    value: str


def make_page(page: NewPage, design: int) -> str:
    """Return a whole HTML page in the design of that number, from 1 on; they repeat after the last one."""
    title = escape(title_of(page))
    texts = {name: text.replace("$title", title) for name, text in LANGUAGES[page.language].items()}
    return _design(design)[1].substitute(texts, title=title, lang=page.language)


def design_words(design: int) -> str:
    """Return a few words on the look of a design."""
    return _design(design)[0]


def _design(number: int) -> Any:
    return DESIGNS[(number - 1) % len(DESIGNS)]


def title_of(page: NewPage) -> str:
    """Return the title of a page: a name in its subject, else the subject without its article.

    >>> title_of(NewPage("a small bakery in Lisbon with opening hours", "en"))
    'Small bakery in Lisbon'
    """
    if named := _NAME.search(page.subject):
        title = named[1]
    else:
        title = _ARTICLE.sub("", _END.split(page.subject.strip(), maxsplit=1)[0], count=1)
    title = " ".join(title.split()).strip(" .,;:!?\"'“”„")
    if len(title) > _MAX_TITLE_CHARS:
        title = title[:_MAX_TITLE_CHARS].rsplit(" ", 1)[0]
    fallback = "A new page" if page.language == "en" else "Eine neue Seite"
    return f"{title[:1].upper()}{title[1:]}" or fallback


def edit_of(page: str, change: PageChange) -> Mapping[str, Any] | None:
    """Return the arguments of `edit_file` that make a change, without the path; None if it is not in the page.

    Each `old_text` is in the page exactly once, or `count` says how often.
    """
    match change.kind:
        case "colour":
            found = re.search(rf"--{re.escape(change.part)}: [^;\n]+;", page)
            return None if found is None else _replace(page, found[0], f"--{change.part}: {change.value};")
        case "size":
            sizes = {found[1]: found for found in _SIZE.finditer(page)}
            if (found := sizes.get(change.part)) is None:
                return None
            size = round(float(found[2]) * float(change.value), 3)
            return _replace(page, found[0], f"--{change.part}-size: {size:g}rem;")
        case "words":
            tags = ("h1",) if change.part == "heading" else ("title", "h1")
            found = [match for tag in tags if (match := re.search(rf"<{tag}>[^<]*</{tag}>", page))]
            edits = [{"old_text": one[0], "new_text": _with_words(one[0], change.value)} for one in found]
            edits = [edit for edit in edits if page.count(edit["old_text"]) == 1]
            if len(edits) > 1:
                return {"edits": edits}
            return edits[0] if edits else None
        case "section":
            heading = escape(title_of(NewPage(change.value, "en")))
            example = "Beispieltext" if '<html lang="de">' in page else "Example text"
            text = f"<h2>{heading}</h2>\n      <p>{example}: {heading}.</p>"
            section = f'  <section class="wide">\n      {text}\n    </section>\n  </main>'
            return _replace(page, "  </main>", section)
        case "literal":
            old, new = (change.part, change.value) if "<" in change.part else map(_as_text, (change.part, change.value))
            return _replace(page, old, new)


def _as_text(words: str) -> str:
    return escape(words, quote=False)


def _replace(page: str, old: str, new: str) -> Mapping[str, Any] | None:
    times = page.count(old) if old and old != new else 0
    if not times:
        return None
    return {"old_text": old, "new_text": new, **({} if times == 1 else {"count": -1})}


def _with_words(element: str, words: str) -> str:
    return f"{element[: element.index('>') + 1]}{escape(words)}{element[element.rindex('<') :]}"


# --- the pages in a conversation ------------------------------------------------------------------------------------


def pages_in(messages: Sequence[Message]) -> dict[str, str]:
    """Return the files that calls of `create_file` and `edit_file` have written, by path, the last one last.

    Those of an option that was picked take their place.
    """
    results = (message for message in messages if isinstance(message, ToolMessage))
    done = {result.tool_call_id for result in results if result.outcome == "ok"}
    pages: dict[str, str] = {}
    for message in messages:
        if isinstance(message, UserMessage) and message.injected and message.content.startswith("[options] "):
            pages = {found[1]: found[3] for found in _PICKED_FILE.finditer(message.content[:_MAX_ARGUMENT_CHARS])}
        for call in message.tool_calls if isinstance(message, AssistantMessage) else ():
            if call.id not in done or call.name not in {"create_file", "edit_file"}:
                continue
            arguments = _arguments(call.arguments)
            path = str(arguments.get("path") or INDEX)
            if call.name == "create_file":
                content = str(arguments.get("content", ""))
            else:
                edits = cast("list[Any]", arguments.get("edits") or [arguments])
                content = _edited(pages.get(path, ""), edits)
            pages.pop(path, None)
            pages[path] = content
    return pages


def _arguments(text: str) -> dict[str, Any]:
    """Return the arguments of a call, {} for a text that is none: calls of other models are in a conversation too."""
    if len(text) > _MAX_ARGUMENT_CHARS:
        return {}
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", parsed) if isinstance(parsed, dict) else {}


def _edited(content: str, edits: Iterable[Any]) -> str:
    for edit in (cast("dict[str, Any]", one) for one in edits if isinstance(one, dict)):
        old, new, count = edit.get("old_text"), edit.get("new_text"), edit.get("count")
        if isinstance(old, str) and isinstance(new, str) and old:
            content = content.replace(old, new, count if isinstance(count, int) else 1)
    return content
