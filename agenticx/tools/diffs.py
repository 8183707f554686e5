"""What a change of a file looks like, as a bounded unified diff for the person who is asked."""

from __future__ import annotations

import re
from difflib import SequenceMatcher

from agenticx.tools.amounts import counted
from agenticx.tools.visible import visible

__all__ = ["unified_diff"]

_CONTEXT = 3
_COMPARED_LINES = 1_000
_SHOWN_CHARS = 20_000
_SHOWN_LINE = 500

_LINE = re.compile(r"[^\n]*\n|[^\n]+")

_Opcode = tuple[str, int, int, int, int]


def unified_diff(before: str, after: str, path: str) -> str:
    """`before` → `after` in unified format, empty if they are equal, with nothing hidden in its lines.

    Long lines and long diffs are cut, which they say. A very large change is shown as one block removed and one added.
    """
    if before == after:
        return ""
    old, new = _LINE.findall(before), _LINE.findall(after)
    lines = [f"--- {visible(path)}", f"+++ {visible(path)}"]
    for group in _hunks(_opcodes(old, new)):
        lines.append(_header(group))
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                lines += [_line(" ", line) for line in old[i1:i2]]
            else:
                lines += [_line("-", line) for line in old[i1:i2]]
                lines += [_line("+", line) for line in new[j1:j2]]
    return _bounded(lines)


def _opcodes(old: list[str], new: list[str]) -> list[_Opcode]:
    """difflib's opcodes; equal head and tail are taken off first, since its cost grows with the square of the rest."""
    shorter = min(len(old), len(new))
    head = next((index for index in range(shorter) if old[index] != new[index]), shorter)
    tail = next((index for index in range(shorter - head) if old[-1 - index] != new[-1 - index]), shorter - head)
    old_end, new_end = len(old) - tail, len(new) - tail
    if max(old_end, new_end) - head > _COMPARED_LINES:
        middle: list[_Opcode] = [("replace", head, old_end, head, new_end)]
    else:
        matcher = SequenceMatcher(None, old[head:old_end], new[head:new_end])
        middle = [(tag, head + i1, head + i2, head + j1, head + j2) for tag, i1, i2, j1, j2 in matcher.get_opcodes()]
    ends: list[_Opcode] = [("equal", 0, head, 0, head), ("equal", old_end, len(old), new_end, len(new))]
    return [code for code in (ends[0], *middle, ends[1]) if code[1] < code[2] or code[3] < code[4]]


def _hunks(opcodes: list[_Opcode]) -> list[list[_Opcode]]:
    """Changes with three lines around them; those that lie close together in one hunk."""
    hunks: list[list[_Opcode]] = [[]]
    for position, (tag, i1, i2, j1, j2) in enumerate(opcodes):
        if tag != "equal":
            hunks[-1].append((tag, i1, i2, j1, j2))
            continue
        first, last = position == 0, position == len(opcodes) - 1
        if not first and not last and i2 - i1 <= 2 * _CONTEXT:
            hunks[-1].append((tag, i1, i2, j1, j2))
            continue
        if not first:
            size = min(_CONTEXT, i2 - i1)
            hunks[-1].append((tag, i1, i1 + size, j1, j1 + size))
        if not last:
            size = min(_CONTEXT, i2 - i1)
            hunks.append([(tag, i2 - size, i2, j2 - size, j2)])
    return [hunk for hunk in hunks if hunk]


def _header(group: list[_Opcode]) -> str:
    i1, i2, j1, j2 = group[0][1], group[-1][2], group[0][3], group[-1][4]
    return f"@@ -{_span(i1, i2)} +{_span(j1, j2)} @@"


def _span(start: int, end: int) -> str:
    length = end - start
    return f"{start + 1 if length else start},{length}" if length != 1 else str(start + 1)


def _line(sign: str, line: str) -> str:
    ended = line.endswith("\n")
    text = line.removesuffix("\n").removesuffix("\r") if ended else line
    shown = visible(text[:_SHOWN_LINE])
    if len(text) > _SHOWN_LINE:
        shown += f" ⟨{len(text)} characters⟩"
    return f"{sign}{shown}" + ("" if ended else "\n\\ No newline at end of file")


def _bounded(lines: list[str]) -> str:
    size = 0
    for index, line in enumerate(lines):
        size += len(line) + 1
        if size > _SHOWN_CHARS:
            return "\n".join(lines[:index]) + f"\n⟨{counted(len(lines) - index, 'more line')} of this diff⟩"
    return "\n".join(lines)
