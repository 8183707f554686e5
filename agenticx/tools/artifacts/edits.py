"""The edits of a session's file: exact replacements, all or none.

1. `old_text` is found with any line ends, and the file keeps its own.
2. If it does not occur as given, white space at the ends of lines is ignored, on both sides; a note says so. Nothing
   else is forgiven: no indentation, no letter case, no Unicode normal form.
3. Without `count` it must occur once, overlapping occurrences included. `count` n replaces the first n, −1 all.
4. A line of `new_text` that only stands for old text is refused, unless the file had that line before the call.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from heapq import nlargest
from typing import Any, Final, Literal, cast

from agenticx.errors import ToolError
from agenticx.tools.artifacts.files import MAX_FILE_BYTES
from agenticx.tools.artifacts.placeholders import find_placeholder
from agenticx.tools.lines import common_start
from agenticx.tools.plurals import pluralize
from agenticx.tools.text_files import differs_in_blanks, replace_spans, with_lf
from agenticx.tools.visible import visible_line

__all__ = ["MAX_EDITS", "EditError", "EditErrorKind", "EditedText", "apply_edits"]

EditErrorKind = Literal[
    "not_found", "ambiguous", "too_few", "no_file", "no_change", "placeholder", "bad_arguments", "too_large"
]

MAX_EDITS: Final = 100
"""The most edits in one call; each reads the whole file."""

_MAX_PLACES = 100_000
"""The most places that the edits of one call replace."""

_MAX_LINES = 10_000_000
"""The most lines that the edits of one call read: all lines of the file for each edit."""

_SHOWN_PLACES = 10
_NEAREST = 3
_COMPARED_CHARS = 200
_COMPARED_OLD_LINES = 200


class EditError(ToolError):
    """An edit that was refused, so that the file is what it was; the message says what would be right."""

    def __init__(self, message: str, *, kind: EditErrorKind) -> None:
        super().__init__(message)
        self.kind: EditErrorKind = kind


@dataclass(frozen=True, slots=True)
class EditedText:
    """The text after all edits.

    `places` is the number of replacements, `first_line` the number of the first line that differs, from 1 on, and
    `notes` are sentences on what was forgiven.
    """

    text: str
    places: int
    first_line: int
    notes: tuple[str, ...] = ()


def _never_stopped() -> None:
    """Raise nothing: the edits are made to the end."""


def apply_edits(
    text: str,
    arguments: Mapping[str, Any],
    *,
    max_chars: int = MAX_FILE_BYTES,
    raise_if_stopped: Callable[[], None] = _never_stopped,
) -> EditedText:
    """Return the text after the edits of a call of `edit_file`; raise `EditError` if one of them is refused.

    `arguments` has `old_text`, `new_text` and perhaps `count`, or a list of such objects as `edits`; other members
    and None values are ignored. Edits apply in their order, each to the result of the previous one. The work of an edit
    is linear in the length of the texts, and the work of all is bounded; run it in a thread. `raise_if_stopped` is
    called before each edit; what it raises ends the work.
    """
    edits = _read_edits(arguments)
    after, places, lines = text, 0, 0
    notes: list[str] = []
    for edit in edits:
        raise_if_stopped()
        lines += after.count("\n") + after.count("\r") - after.count("\r\n")
        if lines > _MAX_LINES:
            raise edit.error(
                f"the edits read the lines of the file once for each, together more than {_MAX_LINES:,}; give fewer"
                " edits in a call",
                "too_large",
            )
        edit.refuse_placeholders(text)
        after, count, was_forgiven = _apply(after, edit, max_chars, _MAX_PLACES - places)
        places += count
        if was_forgiven:
            notes.append(f"{edit.name}white space at the ends of lines differed from old_text and was ignored.")
    if not after.strip():
        raise EditError(
            "the file would be empty; a file has some text: give the text that is to stay", kind="bad_arguments"
        )
    if after == text:
        raise EditError("the edits leave the file as it is; there is nothing to change", kind="no_change")
    return EditedText(after, places, _first_line(text, after), tuple(note[0].upper() + note[1:] for note in notes))


def _first_line(before: str, after: str) -> int:
    same = common_start(before, after)
    if after[same - 1 : same] == "\r":  # the change may be the LF behind it
        same -= 1
    return with_lf(after[:same]).count("\n") + 1


# --- arguments --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Edit:
    """One edit; `name` begins the sentences about it, and is empty if it is the only one."""

    old: str
    new: str
    count: int | None
    name: str

    def error(self, message: str, kind: EditErrorKind) -> EditError:
        return EditError(f"{self.name}{message}", kind=kind)

    def refuse_placeholders(self, text: str) -> None:
        found = find_placeholder(self.new, text)
        if found is not None:
            number, line = found
            raise self.error(
                f"line {number} of new_text, {visible_line(line)!r}, only stands for text that the file has, and would"
                " replace it; write that text out, or leave it out of the edit: what old_text does not name stays",
                "placeholder",
            )


def _read_edits(arguments: Mapping[str, Any]) -> list[_Edit]:
    edits: Any = arguments.get("edits")
    if edits is None:
        return [_read_edit(arguments, "")]
    if any(arguments.get(name) is not None for name in ("old_text", "new_text", "count")):
        raise EditError("give either edits, or old_text and new_text", kind="bad_arguments")
    if not isinstance(edits, list) or not edits:
        raise EditError("edits is no list of edits, each with old_text and new_text", kind="bad_arguments")
    items = cast("list[Any]", edits)
    if len(items) > MAX_EDITS:
        raise EditError(f"edits has {len(items):,} items; give at most {MAX_EDITS} in a call", kind="bad_arguments")
    return [
        _read_edit(item, f"edit {number}: " if len(items) > 1 else "") for number, item in enumerate(items, start=1)
    ]


def _read_edit(item: Any, name: str) -> _Edit:
    if not isinstance(item, Mapping):
        raise EditError(f"{name}an edit is an object with old_text and new_text", kind="bad_arguments")
    fields = cast("Mapping[str, Any]", item)
    old, new, count = (fields.get(key) for key in ("old_text", "new_text", "count"))
    for key, value in (("old_text", old), ("new_text", new)):
        if not isinstance(value, str):
            raise EditError(f"{name}{key} is {'missing' if value is None else 'no text'}", kind="bad_arguments")
    if not old:
        raise EditError(f"{name}old_text is empty; give the text to replace", kind="bad_arguments")
    if count is not None and (not isinstance(count, int) or isinstance(count, bool) or (count < 1 and count != -1)):
        raise EditError(
            f"{name}count is {visible_line(repr(count), 40)}; give the number of occurrences to replace, from the first"
            " on, or -1 for all of them",
            kind="bad_arguments",
        )
    edit = _Edit(cast("str", old), cast("str", new), count, name)
    if with_lf(edit.old) == with_lf(edit.new):
        differ = "are the same" if edit.old == edit.new else "differ in line ends only, and the file keeps its own"
        raise edit.error(f"old_text and new_text {differ}; there is nothing to change", "no_change")
    return edit


# --- one edit ---------------------------------------------------------------------------------------------------------

_Span = tuple[int, int]


def _apply(text: str, edit: _Edit, max_chars: int, max_places: int) -> tuple[str, int, bool]:
    """Return the new text, the number of replacements, and whether white space at line ends was ignored."""
    lines, old = with_lf(text), with_lf(edit.old)
    is_single = edit.count is None
    # One more than is replaced shows that there are too many; an overlapping one costs as much as `old` is long.
    most = _SHOWN_PLACES + 1 if is_single else max_places + 1
    spans = [(start, start + len(old)) for start in _offsets(lines, old, most, is_single=is_single)]
    was_forgiven = not spans
    if was_forgiven:
        spans = _forgiving_spans(lines, old, most, is_single=is_single)
    if not spans:
        raise edit.error(_not_found(text, lines, edit.old, old), "not_found")
    if edit.count is None and len(spans) > 1:
        times = f"more than {_SHOWN_PLACES}" if len(spans) > _SHOWN_PLACES else f"{len(spans)}"
        raise edit.error(
            f"old_text occurs {times} times in the file ({_places(lines, spans)}); give more of the text around the one"
            " that is meant, or the count of those to replace, from the first on; -1 stands for all",
            "ambiguous",
        )
    if len(spans) > max_places and (edit.count is None or not 0 < edit.count <= max_places):
        raise edit.error(
            f"the edits of this call replace more than {_MAX_PLACES:,} places, which are too many; give a longer"
            " old_text, or a count for fewer",
            "too_large",
        )
    if edit.count is not None and edit.count > len(spans):
        raise edit.error(
            f"old_text occurs {pluralize(len(spans), 'time')} in the file ({_places(lines, spans)}), not {edit.count:,}"
            " times; give another count, or -1 for all",
            "too_few",
        )
    chosen = spans if edit.count is None or edit.count < 0 else spans[: edit.count]
    # CRLF for each LF is the most that line ends add.
    growth = len(chosen) * (len(edit.new) + edit.new.count("\n")) - sum(end - start for start, end in chosen)
    if len(text) + growth > max_chars:
        raise edit.error(f"the file would have more than {max_chars:,} characters", "too_large")
    return replace_spans(text, chosen, edit.new), len(chosen), was_forgiven


def _offsets(text: str, wanted: str, most: int, *, is_single: bool) -> Iterator[int]:
    """Yield the first offsets of `wanted`, at most `most`; with `is_single` also of overlapping occurrences."""
    step = 1 if is_single else len(wanted)
    index = text.find(wanted)
    while index >= 0 and most:
        yield index
        most -= 1
        index = text.find(wanted, index + step)


def _places(text: str, spans: list[_Span]) -> str:
    """Return the lines of the first spans' beginnings, as in `lines 2, 4, …`."""
    numbers = dict[str, None]()  # each line once, in order
    number, position = 1, 0
    for start, _ in spans[:_SHOWN_PLACES]:
        number += text.count("\n", position, start)
        position = start
        numbers[f"{number:,}"] = None
    more = ", …" if len(spans) > _SHOWN_PLACES else ""
    return f"{'lines' if more or len(numbers) > 1 else 'line'} {', '.join(numbers)}{more}"


def _forgiving_spans(text: str, old: str, most: int, *, is_single: bool) -> list[_Span]:
    """Return the first occurrences of `old`, at most `most`, if white space at the ends of lines does not count.

    White space at the end of `old` counts as that only where it stands at the end of a line of the text.
    """
    lines = text.split("\n")
    bare_lines = [line.rstrip() for line in lines]
    wanted = "\n".join(line.rstrip() for line in old.split("\n"))
    if not wanted.strip():
        return []
    ends_line = old[-1].isspace() and old[-1] != "\n"
    bare, wanted_bare = "\n".join(bare_lines), wanted
    if ends_line:
        bare, wanted_bare = f"{bare}\n", f"{wanted}\n"
    found = [(start, start + len(wanted)) for start in _offsets(bare, wanted_bare, most, is_single=is_single)]
    return _mapped_spans(found, lines, bare_lines, starts_with_break=wanted[0] == "\n", ends_line=ends_line)


def _mapped_spans(
    spans: list[_Span], lines: list[str], bare_lines: list[str], *, starts_with_break: bool, ends_line: bool
) -> list[_Span]:
    """Return spans of the bare lines as spans of the lines themselves."""
    if not spans:
        return []
    places = sorted({place for span in spans for place in span})
    begins: list[int] = []  # the offsets of the places where a span begins there, and where it ends there
    ends: list[int] = []
    offset = bare_offset = index = 0
    for line, bare in zip(lines, bare_lines, strict=True):
        while index < len(places) and places[index] <= bare_offset + len(bare):
            within = places[index] - bare_offset
            is_end = within == len(bare)
            begins.append(offset + (len(line) if is_end and starts_with_break else within))
            ends.append(offset + (len(line) if is_end and ends_line else within))
            index += 1
        offset += len(line) + 1
        bare_offset += len(bare) + 1
    return [(begins[bisect_left(places, start)], ends[bisect_left(places, end)]) for start, end in spans]


# --- text that was not found ------------------------------------------------------------------------------------------


def _not_found(text: str, lines: str, given: str, old: str) -> str:
    why = " as it is written: spaces, tabs or line breaks differ" if differs_in_blanks(text, given) else ""
    nearest = "".join(f"\n{number}: {line}" for number, line in _nearest_lines(lines, old))
    shown = f"; the nearest lines of the file are:{nearest}" if nearest else "; the file has no text"
    return f"old_text does not occur in the file{why}{shown}"


def _nearest_lines(text: str, old: str) -> list[tuple[int, str]]:
    """Return the numbers and texts of the lines most like the first line of `old` that the file does not have.

    The first characters of each line are compared, by the pairs of characters that two lines share.
    """
    numbers: dict[str, int] = {}
    whole_lines = text.split("\n")
    for number, line in enumerate(whole_lines):
        if compared := _compared(line):
            numbers.setdefault(compared, number)
    old_lines = old.split("\n", _COMPARED_OLD_LINES)[:_COMPARED_OLD_LINES]
    wanted = [compared for line in old_lines if (compared := _compared(line))]
    if not wanted:
        return []
    needle = next((line for line in wanted if line not in numbers), wanted[0])
    pairs = _pairs(needle)

    def likeness(line: str) -> tuple[float, int]:
        others = _pairs(line)
        return 2 * len(pairs & others) / (len(pairs) + len(others)), -numbers[line]

    found = sorted(numbers[line] for line in nlargest(_NEAREST, numbers, key=likeness))
    return [(number + 1, _excerpt(whole_lines[number], needle)) for number in found]


def _compared(line: str) -> str:
    return line[: 2 * _COMPARED_CHARS].strip()[:_COMPARED_CHARS]


def _pairs(line: str) -> set[str]:
    padded = f" {line.casefold()} "
    return {padded[index : index + 2] for index in range(len(padded) - 1)}


def _excerpt(line: str, needle: str) -> str:
    """Return a line, or of a long one the part that begins most like `needle`."""
    if len(line) <= 2 * _COMPARED_CHARS:
        return visible_line(line)
    length, place = len(needle), -1
    while length >= 4 and place < 0:
        place = line.find(needle[:length])
        length //= 2
    start = max(place - 40, 0)
    part = line[start : start + 2 * _COMPARED_CHARS]
    return f"{'…' if start else ''}{visible_line(part)}… ({pluralize(len(line), 'character')})"
