"""The page in a model's reply: the HTML document that it wrote as text.

1. `<file path="…">` wrappers come first: `index.html`, else the first `.html` file. Of several with that path the last
   complete one counts.
2. A document starts at a line that begins with `<!doctype html` or `<html`, outside fences of other languages. It ends
   at the first `</html>` that has only white space behind it on its line; without one, at the end of its fence, at the
   next document or at the end of the text, and then it is not complete. The last complete one counts, else the last.
3. Else the longest ```` ```html ```` fence counts.

Fences are CommonMark's, with any indentation, as in a list. One difference: a line of backticks inside the page
may close its fence too early. If the page's `</html>` stands behind it, followed by the fence's own end, that is the
end of the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

__all__ = ["Extracted", "extract_html", "unwrap_page"]


@dataclass(frozen=True, slots=True)
class Extracted:
    """The HTML in a reply, its characters unchanged; `complete` is false if its end was not seen.

    `path` is the path of its `<file path="…">` wrapper, as the model wrote it; None without one.
    """

    html: str
    complete: bool
    path: str | None = None


def extract_html(text: str) -> Extracted | None:
    """Return the page in a reply, or a fragment in a fence if there is no page, else None.

    The work is linear in the length of the text; run it in a thread for texts of megabytes.
    """
    found = _locate(text)
    return None if found is None else Extracted(text[found.start : found.end], found.is_complete, found.path)


def unwrap_page(path: str, content: str) -> str | None:
    """Return the page in the content of an HTML file that is wrapped in a fence or in `<file path="…">`.

    None if there is nothing to unwrap: the content is the page itself, or more than a wrapped page, or `path` is no
    HTML file, such as a Markdown file that has a page as an example.
    """
    found = _locate(content) if _is_html_file(path) else None
    if found is None:
        return None
    head, tail = content[: found.start], content[found.end :]
    is_wrapped = bool(head.replace("\ufeff", "").strip()) and _WRAPPER_HEAD.fullmatch(head) is not None
    # Prose after a whole page is left out with the wrapper; after a fragment it may be a part of the file.
    return content[found.start : found.end] if is_wrapped and (found.is_page or _WRAPPER_TAIL.fullmatch(tail)) else None


_WRAPPER_HEAD = re.compile(
    r"[\s\ufeff]*(?:<file\s[^<>\r\n]*>\s*)?(?:(?:`{3,}|~{3,})[^\r\n]*(?:\r\n?|\n)\s*)?", re.IGNORECASE
)
_WRAPPER_TAIL = re.compile(r"\s*(?:(?:`{3,}|~{3,})\s*)?(?:</file\s*>\s*)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Located:
    """The place of the HTML in the text; `is_page` is false for a fragment."""

    start: int
    end: int
    is_complete: bool
    is_page: bool
    path: str | None = None


def _locate(text: str) -> _Located | None:
    found = _Scan(text, 0, len(text))
    pages = [file for file in found.files if _is_html_file(file.path) and _TAG.search(text, file.start, file.end)]
    if not pages:
        return found.page or found.fragment
    path = next((file.path for file in pages if _is_index(file.path)), pages[0].path)
    same = [_in_file(text, file) for file in pages if file.path == path]
    return next((page for page in reversed(same) if page.is_complete), same[-1])


def _in_file(text: str, file: _WrappedFile) -> _Located:
    found = _Scan(text, file.start, file.end, has_files=False)
    inner = found.page or found.fragment
    if inner is not None:
        return _Located(inner.start, inner.end, inner.is_complete, inner.is_page, file.path)
    content = text[file.start : file.end]
    start = file.start + len(content) - len(content.lstrip())
    return _Located(start, start + len(content.strip()), file.is_closed, is_page=False, path=file.path)


def _is_html_file(path: str) -> bool:
    return path.lower().endswith((".html", ".htm"))


def _is_index(path: str) -> bool:
    return path.lower().removeprefix("./").removeprefix("/") == "index.html"


_TAG = re.compile(r"<[a-zA-Z!]")

# --- fences, wrappers and documents -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Fence:
    """An open fence: its first mark, their number, its indentation, its language, and the offset of its content."""

    mark: str
    length: int
    indentation: int
    language: str
    start: int

    @property
    def is_html(self) -> bool:
        return self.language in _HTML or _is_html_file(self.language)

    @property
    def may_hold_page(self) -> bool:
        return not self.language or self.is_html


_HTML = frozenset({"html", "htm", "html5", "xhtml"})


@dataclass(frozen=True, slots=True)
class _WrappedFile:
    """A file in `<file path="…">`: the offsets of its content; `is_closed` if `</file>` ends it."""

    path: str
    start: int
    end: int
    is_closed: bool


@dataclass(slots=True)
class _Document:
    """A document whose end is not yet found; `fence` is the one in which it started.

    `fence_end` is where that fence was closed since. `is_prose` says that text follows its first tag, as in a sentence
    that begins with a tag.
    """

    start: int
    fence: _Fence | None
    is_prose: bool
    fence_end: int | None = None


class _Scan:
    """One pass over a part of a text: the best page in it, the longest fragment, and the wrapped files."""

    def __init__(self, text: str, start: int, end: int, *, has_files: bool = True) -> None:
        self.page: _Located | None = None
        self.fragment: _Located | None = None
        self.files: list[_WrappedFile] = []
        self._text = text
        self._end = end
        self._has_files = has_files
        self._fence: _Fence | None = None
        self._document: _Document | None = None
        self._file: tuple[str, int] | None = None  # the path of an open wrapper, and the offset of its content
        self._new_fence: _Fence | None = None  # the open fence if no start tag was seen in it
        for token in _tokens(text, start, end):
            self._read(token)
        self._close()

    def _read(self, token: _Token) -> None:
        if self._file is not None:
            self._read_in_file(*self._file, token)
            return
        match token.kind:
            case "fence":
                self._read_fence(token)
            case "doctype" | "html":
                self._read_start(token)
            case "html end":
                self._read_end(token)
            case "file":
                self._open_file(token)
            case "file end":
                pass

    def _read_in_file(self, path: str, start: int, token: _Token) -> None:
        if token.kind in ("file", "file end"):
            self.files.append(_WrappedFile(path, start, token.start, token.kind == "file end"))
            self._file = (token.value, token.end) if token.kind == "file" else None

    def _open_file(self, token: _Token) -> None:
        in_fence = self._document is not None and self._document.fence is not None
        if self._has_files and self._may_hold_page and not in_fence:
            self._end_document(token.start)
            self._file = (token.value, token.end)

    def _read_fence(self, token: _Token) -> None:
        fence, document = self._fence, self._document
        if fence is None:
            self._fence = self._new_fence = _opened(token)
            if (
                self._fence is not None
                and self._fence.is_html
                and document is not None
                and document.fence_end is not None
            ):
                self._end_document(token.line_start)
        elif _closes(token, fence):
            if document is not None and document.fence is fence:
                document.fence_end = token.line_start
            else:
                self._add_fragment(fence, token.line_start, is_complete=True)
            self._fence = None

    def _read_start(self, token: _Token) -> None:
        fence, document, begun = self._fence, self._document, self._new_fence
        self._new_fence = None
        if document is not None:
            is_first = begun is not None and begun is fence and not self._text[begun.start : token.start].strip(_BLANKS)
            is_over = document.fence_end is not None
            is_next = token.kind == "doctype" or is_first or document.is_prose
            if not is_over and not (is_next and self._may_hold_page):
                return
            self._end_document(token.start)
        if self._may_hold_page:
            is_prose = fence is None and _is_prose(self._text, token.end, self._end)
            self._document = _Document(token.start, fence, is_prose)

    def _read_end(self, token: _Token) -> None:
        document = self._document
        if document is None:
            return
        if document.fence_end is None or _is_behind_own_fence(self._text, token, document, self._end):
            self.page = _Located(document.start, token.end, is_complete=True, is_page=True)
            self._fence, self._document = document.fence, None
        else:
            self._end_document(token.start)

    def _end_document(self, end: int) -> None:
        """End a document without an end tag; it is no page if it is a sentence that begins with a tag."""
        document, self._document = self._document, None
        if document is None or document.is_prose or (self.page is not None and self.page.is_complete):
            return
        content = self._text[document.start : end if document.fence_end is None else document.fence_end]
        last = document.start + len(content.rstrip())
        self.page = _Located(document.start, last, is_complete=False, is_page=True)

    def _add_fragment(self, fence: _Fence, end: int, *, is_complete: bool) -> None:
        """Add the content of an HTML fence, unless a longer one is known or it has no tag."""
        end = _without_line_end(self._text, fence.start, end)
        longest = 0 if self.fragment is None else self.fragment.end - self.fragment.start
        if fence.is_html and end - fence.start > longest and _TAG.search(self._text, fence.start, end):
            self.fragment = _Located(fence.start, end, is_complete, is_page=False)

    def _close(self) -> None:
        """End what the end of the text ends."""
        if self._file is not None:
            self.files.append(_WrappedFile(*self._file, self._end, is_closed=False))
        if self._fence is not None and (self._document is None or self._document.fence is not self._fence):
            self._add_fragment(self._fence, self._end, is_complete=False)
        self._end_document(self._end)

    @property
    def _may_hold_page(self) -> bool:
        return self._fence is None or self._fence.may_hold_page


def _is_prose(text: str, start: int, end: int) -> bool:
    """Return whether text, and no tag, follows the tag whose name ends at `start`."""
    close = text.find(">", start, min(end, start + _TAG_CHARS))
    following = _NEXT_CHARACTER.search(text, close + 1, end) if close >= 0 else None
    return following is not None and following[0] != "<"


_TAG_CHARS = 2_000  # a longer tag is none of a sentence
_NEXT_CHARACTER = re.compile(r"\S")


def _is_behind_own_fence(text: str, token: _Token, document: _Document, end: int) -> bool:
    """Return whether the end tag, behind a line that closed its fence, belongs to the document.

    It does if it is not a part of a sentence, and the next line closes the fence or the text ends.
    """
    before = max(text.rfind(end_mark, document.start, token.start) for end_mark in "\r\n")
    if text[before + 1 : token.end].lstrip()[:1] != "<":
        return False
    following = _NEXT_CHARACTER.search(text, token.end, end)
    if following is None:
        return True
    fence = _FENCE_LINE.match(text, following.start(), end)
    return fence is not None and document.fence is not None and fence[0].startswith(document.fence.mark)


_FENCE_LINE = re.compile(r"(?:`{3,}|~{3,})(?=[ \t]*(?:[\r\n]|\Z))")


def _opened(token: _Token) -> _Fence | None:
    """Return the fence that the line opens; None if it is a line of inline code."""
    info = token.value.strip()
    if token.mark == "`" and "`" in info:
        return None
    language = _LANGUAGE_END.split(info.lstrip("{."), maxsplit=1)[0].lower()
    return _Fence(token.mark, token.length, token.start - token.line_start, language, token.end)


_LANGUAGE_END = re.compile(r"[\s:,;{}=]")


def _closes(token: _Token, fence: _Fence) -> bool:
    is_same = token.mark == fence.mark and token.length >= fence.length and not token.value.strip()
    return is_same and token.start - token.line_start <= fence.indentation + 3


def _without_line_end(text: str, start: int, end: int) -> int:
    """Return the end of the text without its last line end."""
    if end > start and text[end - 1] == "\n":
        end -= 1
    return end - 1 if end > start and text[end - 1] == "\r" else end


# --- tokens -----------------------------------------------------------------------------------------------------------

_Kind = Literal["fence", "doctype", "html", "html end", "file", "file end"]


@dataclass(frozen=True, slots=True)
class _Token:
    """A piece of a reply that may begin or end something.

    `value` is the text behind the marks of a fence, or the path of a file; `end` is the offset of the next line for a
    fence, that behind the tag for a file and for the end of a document.
    """

    kind: _Kind
    line_start: int
    start: int
    end: int
    value: str = ""
    mark: str = ""
    length: int = 0


_TOKEN = re.compile(
    r"""
      (?P<marks>`{3,}|~{3,})
    | <(?:
          !(?P<doctype>doctype)[ \t]+html(?=[\s>]|\Z)
        | (?P<html>html)(?=[\s>]|\Z)
        | /(?P<html_end>html)\s*>(?=[^\S\r\n]*(?:[\r\n]|\Z))
        | file(?P<file>\s[^<>\r\n]*)>(?=[^\S\r\n]*(?:[\r\n<]|\Z))
        | /(?P<file_end>file)\s*>(?=[^\S\r\n]*(?:[\r\n]|\Z))
      )
    """,
    re.IGNORECASE | re.VERBOSE,
)
_PATH = re.compile(r"""\spath\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""", re.IGNORECASE)
_LINE_END = re.compile(r"\r\n?|\n")
_BLANKS = " \t\r\n\ufeff"


def _tokens(text: str, start: int, end: int) -> Iterator[_Token]:
    """Yield the tokens of a part of the text; except for ends, they are the first of their line."""
    position = start
    while match := _TOKEN.search(text, position, end):
        position = match.end()
        line_start = _line_start(text, match.start(), start)
        if match["html_end"] or match["file_end"]:
            kind: _Kind = "html end" if match["html_end"] else "file end"
            yield _Token(kind, match.start(), match.start(), match.end())
        elif line_start is None:
            continue
        elif match["marks"]:
            line_end = _LINE_END.search(text, position, end)
            info_end, position = line_end.span() if line_end else (end, end)
            info = text[match.end() : info_end]
            yield _Token("fence", line_start, match.start(), position, info, match["marks"][0], len(match["marks"]))
        elif match["file"]:
            path = _PATH.search(match["file"])
            if path is not None:
                yield _Token("file", line_start, match.start(), match.end(), path[1] or path[2] or path[3] or "")
        else:
            yield _Token("doctype" if match["doctype"] else "html", line_start, match.start(), match.end())


def _line_start(text: str, offset: int, start: int) -> int | None:
    """Return the start of the line if only blanks stand between it and `offset`, else None."""
    while offset > start and text[offset - 1] in " \t\ufeff":
        offset -= 1
    return offset if offset == start or text[offset - 1] in "\r\n" else None
