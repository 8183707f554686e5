"""A search for commands that may ruin the home folder or a disk without a deletion, or that run what nobody reads.

1. A change of the rights of all that is in the home folder, and an archive that is unpacked into it: it may replace
   `.bashrc`. Words are read as by `deletions`; one with an unknown value does not count here.
2. A disk that a program other than `ls` and the like names, as in `dd of=/dev/sda` and `> /dev/sda`.
3. A command that is stored for later (`crontab`, `at`), when no sandbox and no question protects from it.
4. A shell that runs decoded text: `base64 -d x | sh`.

As with `deletions`, programs and scripts that do the same by other means are not found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from agenticx.tools.critical_folders import CriticalFolders
from agenticx.tools.shell.command_reader import CommandReading
from agenticx.tools.shell.deletion_commands import (
    EXECUTES,
    LISTERS,
    RIGHTS_CHANGERS,
    UNPACKERS,
    ExaminedCommand,
    is_narrowed,
    split_find,
)
from agenticx.tools.shell.deletions import DeletionSearch, find_deletion
from agenticx.tools.shell.file_system_cache import FileSystemCache
from agenticx.tools.visible import visible_line

__all__ = ["find_system_change"]

_MAX_WORD_CHARS = 300
_Words = Sequence[str | None]

_NAMED = re.compile(rf"\b(?:{'|'.join(sorted((*RIGHTS_CHANGERS, *UNPACKERS)))})\b")

_DISK = re.compile(
    r"(?:[\w-]+=)?/+dev/+(?:(?:[shv]|xv)d[a-z*?\[]\S*|nvme\d\S*|mmcblk\d\S*|r?disk\d\S*|dm-\d+|md\d+|(?:mapper|disk)/\S+"
    r"|k?mem|port)"
)
_READER_NAMES = """
    [ [[ ack ag blkid df echo egrep fgrep file findmnt git grep ls lsblk man printf rg smartctl stat test
"""
_LOOKS_AT_DISKS = frozenset(_READER_NAMES.split())
_STORES_COMMANDS = frozenset({"at", "batch", "crontab"})
_DECODERS: Mapping[str, re.Pattern[str]] = {
    "base32": re.compile(r"-[A-Za-z]*[dD]|--decode"),
    "base64": re.compile(r"-[A-Za-z]*[dD]|--decode"),
    "openssl": re.compile(r"-d"),
    "uudecode": re.compile(r""),
    "xxd": re.compile(r"-r\w*|-revert"),
}
_SHELL_NAMES = "ash bash dash fish ksh node perl php python python3 ruby sh zsh"
_SHELLS = frozenset(_SHELL_NAMES.split())
_RUN_TEXT = frozenset({".", "eval", "source"})


def find_system_change(
    command: str,
    reading: CommandReading,
    workspace: Path,
    environment: Mapping[str, str],
    file_system: FileSystemCache,
) -> str | None:
    """Return a sentence about the first such part of `command`, of which `reading` has the programs, or None.

    Raises `UncheckableError` as `file_system` does.
    """
    if (disk := _find_disk(reading)) is not None:
        return f"It names {visible_line(disk, _MAX_WORD_CHARS)}, a disk: what writes there destroys all that is on it."
    if (program := _find_stored(reading.runs)) is not None:
        return f"`{program}` stores commands that run later, outside of any sandbox and without a question."
    if _runs_decoded_text(reading.runs):
        return "It runs a text that it decodes, which nobody can read here."
    search = _HomeSearch(str(workspace), CriticalFolders(Path("~").expanduser()), environment, file_system)
    word = find_deletion(command, search)
    if word is None:
        return None
    shown = visible_line(word, _MAX_WORD_CHARS)
    return f"It unpacks files into {shown} or changes the rights of what is there: your home folder, or one above."


def _find_disk(reading: CommandReading) -> str | None:
    named = (word for words in reading.runs if _program(words) not in _LOOKS_AT_DISKS for word in words[1:])
    return next((word for word in (*named, *reading.written) if word is not None and _DISK.fullmatch(word)), None)


def _find_stored(runs: Sequence[_Words]) -> str | None:
    programs = ((words[0] or "").removeprefix("/usr").removeprefix("/bin/") for words in runs if "-l" not in words)
    return next((program for program in programs if program in _STORES_COMMANDS), None)  # not a script `./batch`


def _runs_decoded_text(runs: Sequence[_Words]) -> bool:
    decodes = (
        any(word is not None and _DECODERS[program].fullmatch(word) for word in words)
        for words in runs
        if (program := _program(words)) in _DECODERS
    )
    return any(decodes) and any(map(_runs_unseen_text, runs))


def _runs_unseen_text(words: _Words) -> bool:
    """Return whether a command runs its input, or a text that only bash knows."""
    program, operands = _program(words), words[1:]
    if program in _RUN_TEXT:
        return None in operands or "/dev/stdin" in operands
    takes_input = all(word is not None and word.startswith("-") for word in operands)
    return program in _SHELLS and (takes_input or None in operands)


def _program(words: _Words) -> str:
    return (words[0] or "").rpartition("/")[2] if words else ""


@dataclass(slots=True)
class _HomeSearch(DeletionSearch):
    """A search for changes of the home folder; only words whose paths are known count."""

    def names_program(self, command: str) -> bool:
        return _NAMED.search(command) is not None

    def find_call(self, text: str) -> str | None:
        return None

    def find_mention(self, text: str) -> str | None:
        return None

    def _deleted_by(self, pipeline: Sequence[ExaminedCommand]) -> str | None:
        command = pipeline[-1]
        folders = self._folders_of(command)
        if command.program == "find":
            return self._changed_by_find(command, folders)
        if command.program in RIGHTS_CHANGERS:
            earlier = pipeline[:-1]
            if command.is_of_xargs and earlier and earlier[0].program in {*LISTERS, "find"}:
                return self._listed_by(earlier)
            return self._first_critical(command.arguments, folders)
        return self._first_critical(_targets(command), folders)

    def _changed_by_find(self, command: ExaminedCommand, folders: Sequence[str]) -> str | None:
        starts, tests = split_find(command.operands)
        places = [place for place, word in enumerate(tests) if word in EXECUTES]
        self.file_system.spend(len(tests) * len(places))
        for place in places:
            program = ExaminedCommand.parse(tests[place + 1 : place + 3]).program
            if program in RIGHTS_CHANGERS and not is_narrowed(tests[:place]):
                return self._first_critical(starts, folders)
        return None

    def _may_be_critical(self, word: str, folders: Sequence[str], *, if_unknown: bool = True) -> bool:
        return DeletionSearch._may_be_critical(self, word, folders, if_unknown=False)


def _targets(command: ExaminedCommand) -> Iterator[str]:
    """Yield the folders into which a command unpacks an archive, none if it does not."""
    unpacks, options = UNPACKERS.get(command.program, (None, ()))
    if unpacks is None or unpacks.search(" ".join(command.operands)) is None:
        return
    found = False
    for word, following in pairwise((*command.operands, "")):
        for option in options:
            if word.startswith(option):
                found = True
                yield word[len(option) :].removeprefix("=") or following
    if not found:
        yield "."
