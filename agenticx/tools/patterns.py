r"""Regular expressions and globs with linear matching time, so that no search can hang.

Python's `re` backtracks and holds the interpreter lock meanwhile. The engine used here is Rust's `regex` crate, as
pydantic includes it for its string patterns: it has no look-around and no back-references, and its matching time is
linear. It compiles a repetition by expanding it, and the class `\w` into all letters of Unicode: `\w{1000}` takes 10
MB, and keeps other threads from running for a tenth of a second. So a pattern is refused if its expansion has more than
a few thousand characters or a hundred such classes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from pydantic_core import SchemaError, SchemaValidator, core_schema

from agenticx.errors import ToolError

__all__ = ["LinearPattern", "compile_file_globs", "compile_glob", "compile_pattern"]

_MAX_CHARS = 8_192
_MAX_CLASSES = 100
_MAX_PATH_CHARS = 4_096
_MAX_GLOBS = 256
_MAX_EXPANSION_CHARS = 32_768
_SHOWN_CHARS = 200


@dataclass(frozen=True, slots=True)
class LinearPattern:
    """A compiled pattern with linear matching time."""

    validator: SchemaValidator

    def found_in(self, text: str) -> bool:
        """Return whether the pattern matches anywhere in `text`, a text without lone surrogates."""
        return self.validator.isinstance_python(text)


def compile_pattern(pattern: str, *, is_multi_line: bool = False) -> LinearPattern:
    """Compile a regular expression; raise `ToolError` that states the mistake if it is not accepted.

    With `is_multi_line`, `^` and `$` match at each line's beginning and end.
    """
    _check_size(pattern)
    try:
        expression = f"(?m){pattern}" if is_multi_line else pattern
        schema = core_schema.str_schema(pattern=expression, regex_engine="rust-regex", strict=True)
        return LinearPattern(SchemaValidator(schema))
    except SchemaError as exc:
        raise ToolError(f"the pattern {_quoted(pattern)} cannot be used: {_reason(str(exc))}") from exc


def _quoted(pattern: str) -> str:
    return repr(pattern) if len(pattern) <= _SHOWN_CHARS else f"{pattern[:_SHOWN_CHARS]!r}…"


def _check_size(pattern: str) -> None:
    """Raise `ToolError` for a pattern that would take long to compile; runs in time linear in its length."""
    if len(pattern) > _MAX_CHARS:
        raise ToolError(f"the pattern has {len(pattern):,} characters; give one of at most {_MAX_CHARS:,}")
    sums, last = [_Size(0, 0)], _Size(0, 0)
    for token in _TOKEN.finditer(pattern):
        match token.lastgroup:
            case "opened":
                sums.append(_Size(0, 0))
                last = _Size(0, 0)
                continue
            case "closed":
                last = sums.pop() if len(sums) > 1 else _Size(0, 0)
                added = last
            case "times":
                more = max(_count(token["least"]), _count(token["most"]), 1) - 1
                added = _Size(last.characters * more, last.classes * more)
                last = _Size(last.characters + added.characters, last.classes + added.classes)
            case _:
                last = added = _Size(1, 1 if _UNICODE_CLASS.search(token[0]) else 0)
        sums[-1] = _Size(sums[-1].characters + added.characters, sums[-1].classes + added.classes)
    characters, classes = sum(size.characters for size in sums), sum(size.classes for size in sums)
    if characters > _MAX_CHARS or classes > _MAX_CLASSES:
        raise ToolError(
            f"the pattern {_quoted(pattern)} repeats too much: written out, it may have {_MAX_CHARS:,} characters and "
            f"{_MAX_CLASSES} classes such as \\w; use + or * instead of counts, or [a-z] instead of \\w"
        )


class _Size(NamedTuple):
    """The numbers of characters and of Unicode classes in the expansion of a part of a pattern."""

    characters: int
    classes: int


def _count(digits: str | None) -> int:
    return min(int((digits or "0")[:9] or 0), 10 * _MAX_CHARS)


_TOKEN = re.compile(
    r"""(?P<opened>\() | (?P<closed>\)) | (?P<times>\{(?P<least>[0-9]+)(?:,(?P<most>[0-9]*))?\})
    | (?P<class>\[\^?\]?[^\]\\]*+(?:\\.[^\]\\]*+)*(?:\]|\Z)) | (?P<escape>\\(?:[pPxuU]\{[^{}]*+\}|.)) | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_UNICODE_CLASS = re.compile(r"\\[pPwWdDsS]")


def _reason(message: str) -> str:
    reason = message.strip().rpartition("\n")[2].strip().removeprefix("error: ").removeprefix("SchemaError: ")
    if "look-around" in reason or "backreferences" in reason:
        return f"{reason}; write it without them"
    return f"{reason}; to find these very characters, set `literal`"


def compile_glob(glob: str) -> LinearPattern:
    """Compile a glob over `/`-separated relative paths: `*`, `?`, `[…]`, and `**` for any number of folders.

    Braces and commas stand for themselves, as in a .gitignore. Raises `ToolError` as `compile_pattern` does, and for a
    glob longer than any path.
    """
    _check_glob_length(glob)
    return compile_pattern(f"^(?s:{_translate(glob)})$")


def _check_glob_length(glob: str) -> None:
    if len(glob) > _MAX_PATH_CHARS:
        raise ToolError(f"the glob has {len(glob):,} characters; give one of at most {_MAX_PATH_CHARS:,}")


def _translate(glob: str, *, has_classes: bool = True) -> str:
    parts: list[str] = []
    index = 0
    while index < len(glob):
        if glob.startswith("**/", index) and glob[index - 1 : index] in {"", "/"}:
            parts.append("(?:.*/)?")
            index += 3
        elif glob.startswith("**", index):
            parts.append(".*")
            index += 2
        elif glob[index] == "*":
            parts.append("[^/]*")
            index += 1
        elif glob[index] == "?":
            parts.append("[^/]")
            index += 1
        elif has_classes and (bracket := _BRACKET.match(glob, index)):
            listed = _SPECIAL_IN_CLASS.sub(r"\\\g<0>", bracket[2])
            parts.append(f"[^/{listed}]" if bracket[1] else f"[{listed}]")
            index = bracket.end()
        else:
            index += glob[index] == "\\" and index + 1 < len(glob)
            parts.append(re.escape(glob[index]))
            index += 1
    return "".join(parts)


_BRACKET = re.compile(r"\[([!^]?)(\]?[^\]/]{1,255}|\])\]")  # at most as long as a file name
_SPECIAL_IN_CLASS = re.compile(r"[\[\]\\&~^]")


# --- globs as shells and editors take them ----------------------------------------------------------------------------


def compile_file_globs(text: str, workspace: str, *, is_name: bool = False) -> LinearPattern:
    """Compile what a model gives to select files, as one pattern over paths relative to the folder `workspace`.

    It is one glob or several with commas between them.

    - In addition to the syntax of `compile_glob`, braces are expanded: `{a,b}`, nested ones, and ranges of at most 256
      values, as in `{1..9}`. `{a}` means both `{a}` and `a`, and `[a]` both `[a]` and `a`.
    - A glob with a `/` begins at the workspace, also as `./a`, `/a` or an absolute path; one without `/` matches in any
      folder.
    - `a/` means all files in a folder `a`, at any depth; `a` also means files of that name.
    - Unless the text `is_name` of a file, it may also be in quotes, a JSON list of texts, or have blanks, `;` or `|`
      between globs that each have a `*`.

    Raises `ToolError` as `compile_glob` does, and for more than 256 globs.
    """
    _check_glob_length(text)
    parts = _split_at_commas(text) if is_name else _split_list(text)
    globs = [glob for part in parts for glob in _expand_braces(part)]
    if "," in text:
        globs.append(text)  # it may also be part of a name
    relative = [_from_workspace(glob, workspace) for glob in globs]
    choices = [
        *(_translate(glob) + ("(?:/.*)?" if not is_name and _is_plain(glob) else "") for glob in relative),
        *(_translate(glob, has_classes=False) for glob in relative if "[" in glob),
    ]
    regex = "|".join(dict.fromkeys(choices))
    if len(globs) > _MAX_GLOBS or len(regex) > _MAX_CHARS:
        raise _too_many_globs(text)
    try:
        return compile_pattern(f"^(?s:{regex})$")
    except ToolError as exc:
        raise ToolError(f"the glob {_quoted(text)} cannot be used; check what is in its brackets") from exc


def _too_many_globs(text: str) -> ToolError:
    return ToolError(f"the glob {_quoted(text)} stands for too many globs; give one with fewer alternatives in braces")


def _from_workspace(glob: str, workspace: str) -> str:
    """Return the glob for a relative path: without `./` and the like, and with `**` where folders are not given."""
    if glob == workspace or glob.startswith(f"{workspace.rstrip('/')}/"):
        glob = f"/{glob[len(workspace) :]}"
    relative = _EMPTY_PARTS.sub("/", _LEADING_DOTS.sub("", glob, count=1))
    is_folder = relative.endswith("/")
    relative = relative.rstrip("/")
    if not relative or relative == ".":
        return "**"
    anchored = "/" in relative or glob.startswith(("./", "/"))
    return f"{'' if anchored else '**/'}{relative}{'/**' if is_folder else ''}"


_LEADING_DOTS = re.compile(r"\A(?:\.?/)+")
_EMPTY_PARTS = re.compile(r"/(?:\.?/)+")


def _is_plain(glob: str) -> bool:
    """Return whether a glob has no special characters, so that it may be the path of a folder."""
    return not any(special in glob.removeprefix("**/") for special in "*?[]{}\\")


class _Braces(NamedTuple):
    """A pair of braces in a glob: the offsets of `{`, of the commas of this pair, and of `}`."""

    opened: int
    commas: list[int]
    closed: int

    def choices(self, glob: str) -> list[str]:
        """Return the texts that the pair expands to; literal braces are escaped."""
        if self.commas:
            ends = [self.opened, *self.commas, self.closed]
            return [glob[start + 1 : end] for start, end in pairwise(ends)]
        body = glob[self.opened + 1 : self.closed]
        if (values := _range(body)) is not None:
            return values
        literal = f"\\{{{body}\\}}"
        return [literal, body] if body and ".." not in body else [literal]


def _range(body: str) -> list[str] | None:
    """Return the values of `1..9`, `01..10..3` or `a..e`; None for any other text, and for very many values."""
    match = _RANGE.fullmatch(body)
    if match is None:
        return None
    first, last = match["first"], match["last"]
    is_number = first.lstrip("-").isdigit()
    if is_number != last.lstrip("-").isdigit():
        return None
    start, end = (int(first), int(last)) if is_number else (ord(first), ord(last))
    step = (abs(int(match["step"] or 1)) or 1) * (1 if start <= end else -1)
    values = range(start, end + (1 if step > 0 else -1), step)
    if len(values) > _MAX_GLOBS:
        return None
    padded = any(re.match("-?0[0-9]", number) for number in (first, last))
    width = max(len(first), len(last)) if is_number and padded else 0
    return [f"{value:0{width}d}" if is_number else chr(value) for value in values]


_RANGE = re.compile(
    r"(?P<first>-?[0-9]{1,9}|[A-Za-z])\.\.(?P<last>-?[0-9]{1,9}|[A-Za-z])(?:\.\.(?P<step>-?[0-9]{1,9}))?"
)


def _expand_braces(glob: str) -> list[str]:
    expanded: list[str] = []
    pending = [glob]
    characters = 0
    while pending:
        text = pending.pop()
        characters += len(text) + 1
        if characters > _MAX_EXPANSION_CHARS or len(expanded) > _MAX_GLOBS:
            raise _too_many_globs(glob)
        braces = _find_braces(text)[0]
        if braces is None:
            expanded.append(text)
        else:
            head, tail = text[: braces.opened], text[braces.closed + 1 :]
            pending += [f"{head}{choice}{tail}" for choice in reversed(braces.choices(text))]
    return expanded


def _split_list(text: str) -> list[str]:
    """Return the globs of a list that has quotes, brackets of JSON, or other separators than commas."""
    text = text.strip()
    if _JSON_LIST.fullmatch(text):
        return [quoted[1:-1] for quoted in _QUOTED.findall(text) if quoted[1:-1].strip()]
    parts: list[str] = []
    for part in _split_at_commas(text):
        quoted = [*_QUOTED.findall(part)]
        if quoted and not _QUOTED.sub("", part).strip(" ;|"):
            parts += [one[1:-1] for one in quoted if one[1:-1].strip()]
        elif len(pieces := _split_globs(part)) > 1:
            parts += pieces
        else:
            parts.append(part)
    return parts


def _split_globs(text: str) -> list[str]:
    """Return the globs separated by `;`, `|` or blanks; only the text itself if it may be one glob."""
    pieces = [piece for piece in _SEPARATORS.split(text) if piece]
    is_list = all(
        "*" in one and one.count("{") == one.count("}") and one.count("[") == one.count("]") for one in pieces
    )
    if is_list and _BLANKS.search(text) is not None:  # `My* *.ts` may be a name with a blank
        is_list = all("*." in piece or "/" in piece for piece in pieces)
    return pieces if is_list else [text]


_QUOTED = re.compile(r""""[^"]*+"|'[^']*+'|`[^`]*+`""")
_JSON_LIST = re.compile(rf"\[\s*+(?:{_QUOTED.pattern})(?:\s*+,\s*+(?:{_QUOTED.pattern}))*\s*+(?:,\s*+)?\]")
_SEPARATORS = re.compile(r"[\s;|]+")
_BLANKS = re.compile(r"\s")


def _split_at_commas(text: str) -> list[str]:
    """Return the globs of a list, without blanks around them and without empty ones."""
    commas = [-1, *_find_braces(text)[1], len(text)]
    parts = [text[start + 1 : end].strip() for start, end in pairwise(commas)]
    return [part for part in parts if part]


def _find_braces(glob: str) -> tuple[_Braces | None, list[int]]:
    """Return the leftmost of the outermost pairs of braces, if any, and the offsets of the commas outside of pairs."""
    opened: list[tuple[int, list[int]]] = [(-1, [])]
    leftmost: _Braces | None = None
    for token in _BRACE_TOKEN.finditer(glob):
        if token[0] == "{":
            opened.append((token.start(), []))
        elif token[0] == ",":
            opened[-1][1].append(token.start())
        elif token[0] == "}" and len(opened) > 1:
            start, commas = opened.pop()
            if leftmost is None or start < leftmost.opened:
                leftmost = _Braces(start, commas, token.start())
    return leftmost, [comma for _, commas in opened for comma in commas]


_BRACE_TOKEN = re.compile(rf"\\.|{_BRACKET.pattern}|[{{}},]", re.DOTALL)
