"""Bounded unified diffs of file changes, for confirmations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import chain

from agenticx.tools.lines import common_end, common_start
from agenticx.tools.plurals import pluralize
from agenticx.tools.visible import visible, visible_path

__all__ = ["MAX_DIFF_CHARS", "Diff", "unified_diff"]

MAX_DIFF_CHARS = 20_000
"""The length at which a diff in a question or a result is cut."""

_CONTEXT_LINES = 3
_MAX_COMPARED_LINES = 1_000
_MAX_COMPARED_CHARS = 1_000_000
_MAX_COMPARED_PAIRS = 30_000_000
_POPULAR_FROM = 200
_MAX_CONTEXT_CHARS = 500
_COMMON_CHARS = 80
_SLICE = 65_536

_Opcode = tuple[str, int, int, int, int]


@dataclass(frozen=True, slots=True)
class Diff:
    """A unified diff, the numbers of lines that it adds and removes, and True if its text `is_cut`.

    `unchanged_below` is the number of equal lines after the last one of the whole diff.
    """

    text: str = ""
    added: int = 0
    removed: int = 0
    is_cut: bool = False
    unchanged_below: int = 0


def unified_diff(before: str, after: str, path: str, *, max_chars: int = MAX_DIFF_CHARS) -> Diff:
    """Return `before` → `after` in unified format, with hidden characters escaped; empty if the texts are equal.

    CR at the end of lines is shown unless all lines of both texts end with CRLF; if all lines end with CR, it is taken
    for LF. A very large change is shown as one block removed and one added. A diff longer than `max_chars` is cut, with
    a note; until then each changed character is shown: only lines around a change, and what a long line has in common
    with the line that replaces it, are shortened. The work is linear in the length of the texts, and no step of it
    blocks other threads for long.
    """
    if before == after:
        return Diff()
    if "\n" not in before and "\n" not in after and "\r" in before + after:
        before, after = before.replace("\r", "\n"), after.replace("\r", "\n")
    shows_cr = not (_all_crlf(before) and _all_crlf(after))
    change = _find_change(before, after)
    titles = [f"--- {visible_path(path)}", f"+++ {visible_path(path)}"]
    if change.is_small:
        lines = [*titles, *_compared_lines(change, shows_cr)]
        signs = Counter(line[0] for line in lines[len(titles) :])
        text, is_cut = _join_bounded(lines, len(lines), max_chars)
        return Diff(text, signs["+"], signs["-"], is_cut, change.unchanged_below)
    removed, added = _count_lines(change.old), _count_lines(change.new)
    before_lines, after_lines = list(_lines(change.context_before)), list(_lines(change.context_after))
    old, new = (len(before_lines) + number + len(after_lines) for number in (removed, added))
    block = chain(
        [*titles, _hunk_header([("replace", 0, old, 0, new)], change.skipped)],
        (_context_line(line, shows_cr) for line in before_lines),
        _replaced_lines([change.old], [change.new], shows_cr)
        if removed == added == 1
        else (
            _format_line(sign, line, shows_cr)
            for sign, text in (("-", change.old), ("+", change.new))
            for line in _lines(text)
        ),
        (_context_line(line, shows_cr) for line in after_lines),
    )
    text, is_cut = _join_bounded(block, 3 + len(before_lines) + removed + added + len(after_lines), max_chars)
    return Diff(text, added, removed, is_cut, change.unchanged_below)


# --- the changed lines ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Change:
    """The changed lines of two texts.

    All are whole lines: `old` and `new` differ, `context_before` and `context_after` are up to three equal lines around
    them, `skipped` is the number of equal lines before `context_before`, `unchanged_below` that of those after
    `context_after`.
    """

    skipped: int
    context_before: str
    old: str
    new: str
    context_after: str
    unchanged_below: int

    @property
    def is_small(self) -> bool:
        longest = max(_count_lines(self.old), _count_lines(self.new))
        return longest <= _MAX_COMPARED_LINES and len(self.old) + len(self.new) <= _MAX_COMPARED_CHARS


def _find_change(before: str, after: str) -> _Change:
    start = before.rfind("\n", 0, common_start(before, after)) + 1
    tail = common_end(before, after, min(len(before), len(after)) - start)
    old_end, new_end = len(before) - tail, len(after) - tail
    if not (_begins_line(before, old_end) and _begins_line(after, new_end)):
        rest = before.find("\n", old_end) + 1 or len(before)
        old_end, new_end = rest, new_end + rest - old_end
    first = start
    for _ in range(_CONTEXT_LINES):
        first = before.rfind("\n", 0, max(first - 1, 0)) + 1
    last = old_end
    for _ in range(_CONTEXT_LINES):
        last = before.find("\n", last) + 1 or len(before)
    skipped = _count(before, first)
    below = _count(before, len(before)) - _count(before, last) + (last < len(before) and not before.endswith("\n"))
    changed = before[start:old_end], after[start:new_end]
    return _Change(skipped, before[first:start], *changed, before[old_end:last], below)


def _begins_line(text: str, index: int) -> bool:
    return index == 0 or text[index - 1] == "\n"


def _all_crlf(text: str) -> bool:
    return text.count("\r\n") == text.count("\n")


def _count(text: str, end: int) -> int:
    """Return the number of line breaks before offset `end`."""
    return sum(text.count("\n", start, min(start + _SLICE, end)) for start in range(0, end, _SLICE))


def _count_lines(text: str) -> int:
    return _count(text, len(text)) + bool(text and not text.endswith("\n"))


def _lines(text: str) -> Iterator[str]:
    """Yield the lines with their line breaks; only `\\n` ends a line."""
    start = 0
    while start < len(text):
        end = text.find("\n", start) + 1 or len(text)
        yield text[start:end]
        start = end


# --- the comparison line by line --------------------------------------------------------------------------------------


def _compared_lines(change: _Change, shows_cr: bool) -> Iterator[str]:
    before_lines, after_lines = list(_lines(change.context_before)), list(_lines(change.context_after))
    old = [*before_lines, *_lines(change.old), *after_lines]
    new = [*before_lines, *_lines(change.new), *after_lines]
    for group in _hunks(_opcodes(old, new, len(before_lines), len(after_lines))):
        yield _hunk_header(group, change.skipped)
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                yield from (_context_line(line, shows_cr) for line in old[i1:i2])
            else:
                yield from _replaced_lines(old[i1:i2], new[j1:j2], shows_cr)


def _opcodes(old: list[str], new: list[str], head: int, tail: int) -> list[_Opcode]:
    """Return difflib's opcodes for lists of lines with `head` equal lines at their beginnings, `tail` at their ends.

    The cost of difflib grows with the number of pairs of equal lines times the number of lines; if that is too high,
    all lines between head and tail are replaced.
    """
    old_end, new_end = len(old) - tail, len(new) - tail
    numbers: dict[str, int] = {}  # difflib compares lines many times: numbers are cheap to compare, long lines are not
    before = [numbers.setdefault(line, len(numbers)) for line in old[head:old_end]]
    after = [numbers.setdefault(line, len(numbers)) for line in new[head:new_end]]
    matcher = SequenceMatcher(None, before, after)
    counts = Counter(after)
    # difflib ignores lines that are more frequent than this.
    popular = len(after) // 100 + 1 if len(after) >= _POPULAR_FROM else len(after)
    pairs = sum(counts[line] for line in before if counts[line] <= popular)
    middle: list[_Opcode] = [("replace", head, old_end, head, new_end)]
    if pairs * min(len(before), len(after)) <= _MAX_COMPARED_PAIRS:
        middle = [(tag, head + i1, head + i2, head + j1, head + j2) for tag, i1, i2, j1, j2 in matcher.get_opcodes()]
    ends: list[_Opcode] = [("equal", 0, head, 0, head), ("equal", old_end, len(old), new_end, len(new))]
    return [code for code in (ends[0], *middle, ends[1]) if code[1] < code[2] or code[3] < code[4]]


def _hunks(opcodes: list[_Opcode]) -> list[list[_Opcode]]:
    """Return the opcodes grouped into hunks: changes with three lines around them, close ones in one hunk."""
    hunks: list[list[_Opcode]] = [[]]
    for position, (tag, i1, i2, j1, j2) in enumerate(opcodes):
        if tag != "equal":
            hunks[-1].append((tag, i1, i2, j1, j2))
            continue
        first, last = position == 0, position == len(opcodes) - 1
        if not first and not last and i2 - i1 <= 2 * _CONTEXT_LINES:
            hunks[-1].append((tag, i1, i2, j1, j2))
            continue
        if not first:
            size = min(_CONTEXT_LINES, i2 - i1)
            hunks[-1].append((tag, i1, i1 + size, j1, j1 + size))
        if not last:
            size = min(_CONTEXT_LINES, i2 - i1)
            hunks.append([(tag, i2 - size, i2, j2 - size, j2)])
    return [hunk for hunk in hunks if hunk]


def _hunk_header(group: list[_Opcode], skipped: int) -> str:
    i1, i2, j1, j2 = (skipped + index for index in (group[0][1], group[-1][2], group[0][3], group[-1][4]))
    return f"@@ -{_span(i1, i2)} +{_span(j1, j2)} @@"


def _span(start: int, end: int) -> str:
    length = end - start
    return f"{start + 1 if length else start},{length}" if length != 1 else str(start + 1)


def _context_line(line: str, shows_cr: bool) -> str:
    shown, end = _without_break(line, shows_cr)
    if len(shown) > _MAX_CONTEXT_CHARS:
        return f" {visible(shown[:_MAX_CONTEXT_CHARS])} ⟨{len(shown)} characters⟩{end}"
    return f" {visible(shown)}{end}"


def _format_line(sign: str, line: str, shows_cr: bool) -> str:
    shown, end = _without_break(line, shows_cr)
    return f"{sign}{visible(shown)}{end}"


def _without_break(line: str, shows_cr: bool) -> tuple[str, str]:
    """Return the line without its line break, and the note for a line that has none."""
    if not line.endswith("\n"):
        return line, "\n\\ No newline at end of file"
    return line.removesuffix("\n") if shows_cr else line.removesuffix("\r\n").removesuffix("\n"), ""


def _replaced_lines(old: list[str], new: list[str], shows_cr: bool) -> Iterator[str]:
    """Yield the lines of `old` as removed and those of `new` as added.

    Where each line replaces one, those that are long are shown without the most of what they have in common.
    """
    if len(old) == len(new):
        pairs = [_without_common(before, after) for before, after in zip(old, new, strict=True)]
        old, new = [before for before, _ in pairs], [after for _, after in pairs]
    yield from (_format_line("-", line, shows_cr) for line in old)
    yield from (_format_line("+", line, shows_cr) for line in new)


def _without_common(before: str, after: str) -> tuple[str, str]:
    """Return both lines with notes in place of what long ones have in common, except for some characters around it."""
    if max(len(before), len(after)) <= _MAX_CONTEXT_CHARS:
        return before, after
    head = common_start(before, after)
    tail = common_end(before, after, min(len(before), len(after)) - head)
    first, last = max(head - _COMMON_CHARS, 0), max(tail - _COMMON_CHARS, 0)
    start = before[:first]
    if first > 2 * _COMMON_CHARS:
        start = f"{before[:_COMMON_CHARS]}⟨… {first - _COMMON_CHARS:,} equal characters …⟩"
    end = before[len(before) - last :]
    if last > 2 * _COMMON_CHARS:
        end = f"⟨… {last - _COMMON_CHARS:,} equal characters …⟩{before[len(before) - _COMMON_CHARS :]}"
    return f"{start}{before[first : len(before) - last]}{end}", f"{start}{after[first : len(after) - last]}{end}"


def _join_bounded(lines: Iterable[str], total: int, max_chars: int) -> tuple[str, bool]:
    """Join as many of the `total` lines as fit; True if others are left, which are not taken from the iterable.

    The first line that does not fit is shown in part, and counted with the others.
    """
    shown_lines: list[str] = []
    size = 0
    for line in lines:
        size += len(line) + 1
        if size > max_chars:
            notes = [f"⟨{pluralize(total - len(shown_lines), 'more line')} of this diff⟩"]
            part = line[: max_chars - (size - len(line))]
            if len(part) > _COMMON_CHARS and "\n" not in part:
                notes.insert(0, f"{part}⟨… {len(line) - len(part):,} more characters …⟩")
            return "\n".join([*shown_lines, *notes]), True
        shown_lines.append(line)
    return "\n".join(shown_lines), False
