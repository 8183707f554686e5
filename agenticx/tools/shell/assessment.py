"""The assessment of a command for bash: its effects, reasons to ask, and the files that a yes depends on."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from agenticx.sandbox.options import SandboxKind
from agenticx.secret_detection import is_secret_file, is_secret_folder
from agenticx.tools.base import Assessment, ShellCommand
from agenticx.tools.context import ToolContext
from agenticx.tools.critical_folders import deletion_reason
from agenticx.tools.plurals import pluralize
from agenticx.tools.protected import is_instruction
from agenticx.tools.shell.command_reader import CommandReading, read_commands
from agenticx.tools.shell.deletions import find_critical_deletion
from agenticx.tools.shell.environment import command_environment
from agenticx.tools.shell.file_system_cache import FileSystemCache, UncheckableError
from agenticx.tools.shell.grammar import find_unread
from agenticx.tools.shell.harmless_commands import ReadCheck
from agenticx.tools.shell.lost_moves import LOST, find_lost_move
from agenticx.tools.shell.named_paths import EXAMINED_COMMAND_BYTES, NamedPaths, examine
from agenticx.tools.shell.path_words import find_named_paths
from agenticx.tools.shell.protected_changes import find_protected_change
from agenticx.tools.shell.sandboxing import (
    RequestedAccess,
    find_sandbox_for,
    is_contained,
    read_only_launcher,
    sandbox_reasons,
    sends_to_hosts_only,
)
from agenticx.tools.shell.system_changes import find_system_change
from agenticx.tools.visible import visible, visible_line, visible_path

__all__ = ["assess_command"]

_MAX_BOUND_WORDS = 1_000
_MAX_BOUND_FOLDERS = 4
_MAX_SHOWN_PROGRAMS = 5
_LONG_COMMAND = 200
_MAX_WORD_CHARS = 300


def assess_command(arguments: Mapping[str, Any], context: ToolContext) -> Assessment:
    """Return the assessment of a call of `bash_exec` with these arguments; blocks."""
    command: str = arguments["command"]
    workspace = context.workspace.resolve()
    environment = command_environment()
    search_path = environment.get("PATH", "")
    file_system = FileSystemCache()
    named = examine(command, workspace, context.protected_roots, file_system)
    requested = RequestedAccess.of(arguments)
    status = find_sandbox_for(context, requested)
    kind = status.kind
    launcher = partial(read_only_launcher, context, environment)
    reading = read_commands(command)
    deletions = _find_deletions(command, reading, workspace, environment, named.unchecked, launcher, sandboxed=kind)
    shell = _read_command(command, reading, workspace)
    check = ReadCheck(
        workspace,
        search_path,
        context.protected_roots,
        file_system,
        git_environment=environment,
        find_launcher=launcher,
    )
    if deletions.unchecked is None:
        parts = check.read_parts(command)
        shell = replace(shell, parts=parts, unread=find_unread(command) if parts is None else None)
    words = _words(shell)
    reads = shell.parts is not None and all(part.is_harmless for part in shell.parts)
    harmless = reads and (named.secret, deletions.critical, requested) == (None, None, RequestedAccess())
    read_secret = None
    if not harmless and named.secret is None and deletions.unchecked is None:
        read_secret = _find_read_secret(shell, check)
    power = list(sandbox_reasons(context, requested, status))
    has_sandbox = kind is not None or (
        requested.unsandboxed and find_sandbox_for(context, RequestedAccess()).kind is not None
    )
    asked = requested.enforced_by(kind) if has_sandbox else RequestedAccess()
    own = _find_own_command(shell)
    moved = find_lost_move(command, shell.runs, workspace) if kind == "bubblewrap" else None
    if moved is not None:
        power.append(f"It moves files to {visible_line(moved, _MAX_WORD_CHARS)}: {LOST}.")
    harm = (*_reasons_of_deletions(deletions), *_reasons_of_names(named), *filter(None, (read_secret, own)))
    reasons = (*harm, *_reasons(command, workspace, power))  # what could do harm is to be read first
    if deletions.unchecked is not None:
        reasons += (deletions.unchecked,)
    if kind is None:
        reasons += tuple(_programs_of_workspace(shell, workspace, search_path))
    found = (own, named.protected, named.secret, read_secret, deletions.critical, deletions.protected, deletions.system)
    return Assessment(
        risk="read" if harmless else "execute",
        question="Run this command?",
        reasons=(_HARMLESS,) if harmless else reasons,
        protected=not harmless and any(word is not None for word in found),
        unchecked=deletions.unchecked is not None,
        sandboxed=kind or False,
        contained=moved is None and is_contained(context, requested, kind),
        sends=sends_to_hosts_only(context, requested, kind),
        instructs=not harmless and any(is_instruction(Path(word).parts) for word in words),
        hosts=tuple(host.name for host in requested.hosts),
        command=visible(_shortened(command)),
        cwd=visible_path(str(context.workspace.resolve())),
        shell=replace(shell, network=asked.network, unsandboxed=asked.unsandboxed),
        binding={
            "sandboxed": kind,
            "cwd": _file_identity(workspace),
            "search_path": search_path,
            "words": _named_files(words, workspace, search_path),
        },
    )


def _read_command(command: str, reading: CommandReading, workspace: Path) -> ShellCommand:
    """Return the command with the programs and paths that rules with ask or deny compare."""
    paths = find_named_paths(reading, workspace)
    return ShellCommand(command, None, reading.runs, reading.is_complete, mentions=reading.mentions, paths=paths)


def _find_read_secret(shell: ShellCommand, check: ReadCheck) -> str | None:
    """Return a sentence about a secret file that the command would read without naming it, None if there is none.

    First the parts of the command are looked at, then the commands that it may run.
    """
    clause = next((part.obstacle for part in shell.parts or () if part.reads_secret and part.obstacle), None)
    clause = clause or check.find_read_secret(_unread_runs(shell))
    return None if clause is None else visible_line(f"{clause[0].upper()}{clause[1:]}.", 2 * _MAX_WORD_CHARS)


def _unread_runs(shell: ShellCommand) -> list[tuple[str | None, ...]]:
    """Return the words of the commands that are not known to be harmless."""
    parts = shell.parts or ()
    others = {part.words for part in parts if not part.is_harmless}
    harmless = {part.words for part in parts} - others
    return [words for words in shell.runs if words not in harmless]


@dataclass(frozen=True, slots=True)
class _Deletions:
    """The deletions in a command; each field is None if there is none.

    - `critical` is the word that may delete a critical folder.
    - `protected` is the word that deletes, moves or adds protected files.
    - `system` is a sentence about a part that changes the home folder or a disk in another way.
    - `unchecked` is a sentence about parts of the command that are not checked.
    """

    critical: str | None = None
    protected: str | None = None
    system: str | None = None
    unchecked: str | None = None


def _find_deletions(
    command: str,
    reading: CommandReading,
    workspace: Path,
    environment: Mapping[str, str],
    unchecked: str | None,
    find_launcher: Callable[[], Sequence[str]],
    *,
    sandboxed: SandboxKind | None,
) -> _Deletions:
    """Find what a command deletes; in bubblewrap protected files are mounted read-only, so it deletes none of them."""
    if len(command) > EXAMINED_COMMAND_BYTES:
        return _Deletions(unchecked=unchecked)
    protected = system = None
    try:
        critical = find_critical_deletion(command, workspace, environment, FileSystemCache())
        if critical is None:
            system = find_system_change(command, reading, workspace, environment, FileSystemCache())
        if critical is None and sandboxed != "bubblewrap":
            protected = find_protected_change(command, workspace, environment, FileSystemCache(), find_launcher)
    except UncheckableError as exc:
        return _Deletions(unchecked=unchecked or str(exc))
    return _Deletions(critical, protected, system, unchecked)


def _shortened(command: str) -> str:
    """Return the command for display; if it is too long to be checked, only its beginning and its end."""
    if len(command) <= EXAMINED_COMMAND_BYTES:
        return command
    left_out = len(command) - EXAMINED_COMMAND_BYTES
    tail = EXAMINED_COMMAND_BYTES // 4
    note = f"⟨… {left_out} of {len(command)} characters are not shown …⟩"
    return f"{command[: EXAMINED_COMMAND_BYTES - tail]}\n{note}\n{command[-tail:]}"


_HARMLESS = "It only looks at files of the workspace."


def _reasons(
    command: str,
    workspace: Path,
    power: Sequence[str],
) -> Iterator[str]:
    yield f"It runs in {visible(str(workspace))}."
    yield from power
    lines = command.count("\n") + 1
    if len(command) > _LONG_COMMAND or lines > 1:
        yield f"The command has {pluralize(len(command), 'character')} in {pluralize(lines, 'line')}."
    if visible(_shortened(command)) != _shortened(command):
        yield "Invisible characters and long runs of blanks are shown in ⟨⟩."


def _reasons_of_deletions(deletions: _Deletions) -> Iterator[str]:
    if deletions.critical is not None:
        yield deletion_reason(deletions.critical)
    if deletions.protected is not None:
        shown = visible_line(deletions.protected, _MAX_WORD_CHARS)
        yield f"With {shown} it changes files that decide what runs on this machine or which calls need approval."
    if deletions.system is not None:
        yield deletions.system


def _reasons_of_names(named: NamedPaths) -> Iterator[str]:
    for word in dict.fromkeys(filter(None, (named.protected, named.secret))):
        shown, parts = visible_line(word, _MAX_WORD_CHARS), word.split("/")
        is_file = is_secret_file(*parts)
        is_folder = not is_file and is_secret_folder(*parts)
        if word == named.protected and not (is_file or is_folder):
            yield f"It names {shown}, which decides what runs on this machine or which calls need approval."
        if word == named.secret or is_file or is_folder:
            yield f"It names {shown}, a {'folder' if is_folder else 'file'} that usually holds keys or passwords."


# Commands of AgenticX that change what agents may do, know or are given.
_OWN_COMMANDS = frozenset({"keys", "mcp", "memory", "permissions", "token", "trust"})


def _find_own_command(shell: ShellCommand) -> str | None:
    """Return a sentence about a command of AgenticX that changes what agents may do, None if there is none."""
    for words in shell.runs:
        program = (words[0] or "").rpartition("/")[2]
        is_module = program.startswith("python") and any(word in ("agenticx", "agenticx.cli") for word in words)
        if (program in ("agx", "agenticx") or is_module) and (named := _OWN_COMMANDS.intersection(words)):
            return f"`agx {min(filter(None, named))}` changes what agents may do, know or are given."
    return None


def _programs_of_workspace(shell: ShellCommand, workspace: Path, search_path: str) -> Iterator[str]:
    """Yield a sentence about each program of the command that the PATH finds in the workspace."""
    names = dict.fromkeys(words[0] for words in shell.runs if words and words[0] and "/" not in words[0])
    for name in list(names)[:_MAX_SHOWN_PROGRAMS]:
        path = shutil.which(name, path=search_path)
        if path is not None and Path(os.path.realpath(os.path.dirname(path))).is_relative_to(workspace):
            shown = visible_line(os.path.relpath(path, workspace), _MAX_WORD_CHARS)
            yield f"`{visible_line(name, _MAX_WORD_CHARS)}` is {shown}, which an earlier command may have written."


def _named_files(named: Iterable[str], workspace: Path, search_path: str) -> dict[str, list[object]]:
    """Return the identities of the files that words of the command may name: programs on the PATH, and paths.

    A path is looked up in the workspace, and in each folder that the command names, as after `cd`. Words that are not
    meant as files may be included; that is harmless. A file is identified by its status, since each change of its
    content changes its ctime.
    """
    identities: dict[str, list[object]] = {}
    words = list(itertools.islice(named, _MAX_BOUND_WORDS))
    paths = (workspace / word for word in words if word.strip("./"))
    folders = [workspace, *itertools.islice(filter(_is_folder, paths), _MAX_BOUND_FOLDERS)]
    for word in words:
        if "/" not in word and (program := shutil.which(word, path=search_path)) is not None:
            identities[f"{word} {program}"] = _file_identity(Path(program))
        for folder in folders:
            if identity := _file_identity(folder / word):
                identities[str(folder / word)] = identity
    return identities


def _words(shell: ShellCommand) -> dict[str, None]:
    """Return the words of a command, as they are written and as bash reads them."""
    written = re.findall(r"[^\s;|&<>()\"'`$=]+", shell.text[:EXAMINED_COMMAND_BYTES])
    return dict.fromkeys(["bash", *written, *(word for words in shell.runs for word in words if word)])


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # too long a name; a NUL
        return False


def _file_identity(path: Path) -> list[object]:
    """Return the resolved path and status of a file, without size and times for a folder; empty if it is missing."""
    try:
        status = path.stat()
        real = os.path.realpath(path)
    except (OSError, ValueError):
        return []
    if stat.S_ISDIR(status.st_mode):
        return [real, status.st_dev, status.st_ino]
    return [real, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]
