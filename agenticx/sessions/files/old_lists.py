"""The lists of file edits and rewinds of earlier releases, which are facts since then.

The two lists, which `Blobs.read_old_lists` returns, have a line for each change. A line ends in a checksum of the
rest of it. A line that a crash left unfinished is no edit: its file was not touched, and the next line begins after it.
Any other line that is not as it was written is damage, and then the lists are refused as a whole.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from agenticx.sessions.files.changes import FileChange, FileEdit, RewindEdit, damaged_list_error, is_path
from agenticx.sessions.store.blobs import OLD_LISTS

__all__ = ["parse_old_lists"]


def parse_old_lists(lists: Mapping[str, bytes]) -> list[FileChange]:
    """Return the edits of a session, then its rewinds, each in order; `lists` are their lists by name.

    Raises `DamagedData`.
    """
    return [change for name in OLD_LISTS if name in lists for change in _parse_list(name, lists[name])]


def _parse_list(name: str, text: bytes) -> Iterator[FileChange]:
    for line in _complete_lines(text):
        change = _parse_row(name, _decode_line(line))
        if change is None:
            raise damaged_list_error(name, "a line is not what was written")
        yield change


def _parse_row(name: str, row: Any) -> FileChange | None:
    match row:
        case [str() as call_id, str() as path, None | str() as before, str() as after] if is_path(path):
            return FileEdit(call_id, path, before, after) if name == OLD_LISTS[0] else None
        case [str() as path, [*undone], [*redone], None | int() as mode] if is_path(path):
            mode = None if mode is None else mode & 0o777
            return RewindEdit(path, _strings(undone), _strings(redone), mode) if name == OLD_LISTS[1] else None
        case _:
            return None


def _strings(items: list[Any]) -> frozenset[str]:
    return frozenset(name for name in items if isinstance(name, str))


def _decode_line(line: bytes) -> Any:
    """Return the row of a line without its checksum, which lines of the first releases do not have.

    None if the line is not as it was written.
    """
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    match row:
        case [_, _, _, _]:
            return row
        case [*rest, str() as checksum] if f"{zlib.crc32(json.dumps(rest).encode()):08x}" == checksum:
            return rest
        case _:
            return None


def _complete_lines(text: bytes) -> Iterator[bytes]:
    """Yield all lines except empty ones and those that a crash cut off.

    A line that was cut off has no line break after it, so the next line written follows without an empty one:

    >>> list(_complete_lines(b'\\n["a"]\\n' + b'\\n["cut o' + b'\\n["b"]\\n'))
    [b'["a"]', b'["b"]']
    """
    lines = text.split(b"\n")
    for line, following in zip(lines, [*lines[1:], b"?"], strict=True):
        if line and not (following and _is_unfinished(line)):
            yield line


def _is_unfinished(line: bytes) -> bool:
    if not line.strip(b"\0"):  # a power cut can leave the file longer than the data written to it
        return True
    try:
        json.JSONDecoder().raw_decode(line.decode("latin-1"))
    except (ValueError, RecursionError):
        return line.startswith(b"[")
    return False
