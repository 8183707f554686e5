"""The shell tool: it runs a command in the workspace, in a sandbox, and terminates it with all its descendants."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import shutil
import signal
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from agenticx.errors import ToolError
from agenticx.sandbox.options import SandboxKind
from agenticx.sandbox.proxy import HostProxy
from agenticx.secret_names import is_secret_file, is_secret_folder
from agenticx.settings import child_environment
from agenticx.threads import run_in_thread
from agenticx.tools.base import Assessment, ShellCommand, ToolOutput
from agenticx.tools.command_output import HeadTailBuffer, ProgressEmitter
from agenticx.tools.context import ToolContext
from agenticx.tools.critical_folders import deletion_reason
from agenticx.tools.plurals import pluralize
from agenticx.tools.processes import CommandExit, RunningCommand, start_command
from agenticx.tools.protected import is_instruction
from agenticx.tools.registry import tool
from agenticx.tools.shell.command_reader import read_commands
from agenticx.tools.shell.deletions import find_critical_deletion, find_protected_change
from agenticx.tools.shell.file_system_cache import FileSystemCache, UncheckableError
from agenticx.tools.shell.grammar import find_unread
from agenticx.tools.shell.harmless_commands import read_parts
from agenticx.tools.shell.lost_moves import LOST, find_lost_move
from agenticx.tools.shell.named_paths import EXAMINED_COMMAND_BYTES, NamedPaths, examine
from agenticx.tools.shell.path_words import find_named_paths
from agenticx.tools.shell.sandboxing import (
    Launch,
    Wishes,
    find_sandbox_for,
    is_contained,
    prepare,
    read_only_launcher,
    sandbox_reasons,
    sends_to_hosts_only,
)
from agenticx.tools.visible import visible, visible_line

__all__ = ["bash_exec"]

_HEAD_BYTES = 8_000
_TAIL_BYTES = 16_000
_MAX_COMMAND_BYTES = 100_000
_PROGRESS_SECONDS = 0.1
_MAX_BOUND_WORDS = 1_000
_MAX_BOUND_FOLDERS = 4
_MAX_SHOWN_PROGRAMS = 5
_LONG_COMMAND = 200
_DOWNLOADERS = frozenset(
    {"aria2c", "curl", "elinks", "http", "https", "links", "lynx", "nc", "ncat", "w3m", "wget", "xh"}
)
_MAX_WORD_CHARS = 300
_MAY_HIDE_FAILURES = re.compile(r"[|;\n]")  # the exit code is that of another part
_SIGNALLED = 128  # a shell adds the number of the signal that ended a command

# Commands run without a terminal: no pager, no prompt. And bash must not run a start-up file before the command.
_NONINTERACTIVE = {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}
_CHANGING_VARIABLES = re.compile(
    r"BASH_ENV|ENV|SHELLOPTS|BASHOPTS|BASH_FUNC_.*"
    r"|CDPATH|GLOBIGNORE|GREP_OPTIONS|LESSOPEN|LESSCLOSE|RIPGREP_CONFIG_PATH|GIT_.*"  # reads or runs something else
)


# --- the assessment ---------------------------------------------------------------------------------------------------


def _assess(arguments: Mapping[str, Any], context: ToolContext) -> Assessment:
    command: str = arguments["command"]
    workspace = context.workspace.resolve()
    environment = _environment()
    search_path = environment.get("PATH", "")
    file_system = FileSystemCache()
    named = examine(command, workspace, context.protected_roots, file_system)
    wishes = Wishes.of(arguments)
    status = find_sandbox_for(context, wishes)
    launcher = partial(read_only_launcher, context, environment)
    deletions = _find_deletions(command, workspace, environment, named.unchecked, launcher, sandboxed=status.kind)
    unchecked = deletions.unchecked
    shell = _read_command(command, context, environment, file_system, has_parts=unchecked is None)
    reads = shell.parts is not None and all(part.is_harmless for part in shell.parts)
    harmless = reads and (named.secret, deletions.critical, wishes) == (None, None, Wishes())
    read_secret = None if named.secret is not None else _find_read_secret(shell)
    kind, power = status.kind, tuple(sandbox_reasons(context, wishes, status))
    has_sandbox = kind is not None or (wishes.unsandboxed and find_sandbox_for(context, Wishes()).kind is not None)
    asked = wishes.enforced_by(kind) if has_sandbox else Wishes()
    own = _find_own_command(shell)
    moved = find_lost_move(command, shell.runs, workspace) if kind == "bubblewrap" else None
    if moved is not None:
        power += (f"It moves files to {visible_line(moved, _MAX_WORD_CHARS)}: {LOST}.",)
    reasons = (*_reasons(command, workspace, power, named, deletions), *filter(None, (read_secret, own)))
    if kind is None:
        reasons += tuple(_programs_of_workspace(shell, workspace, search_path))
    found = (own, named.protected, named.secret, read_secret, deletions.critical, deletions.protected)
    return Assessment(
        risk="read" if harmless else "execute",
        question="Run this command?",
        reasons=(_HARMLESS,) if harmless else reasons,
        protected=not harmless and any(word is not None for word in found),
        unchecked=unchecked is not None,
        sandboxed=kind or False,
        contained=moved is None and is_contained(context, wishes, kind),
        sends=sends_to_hosts_only(context, wishes, kind),
        instructs=not harmless and any(is_instruction(Path(word).parts) for word in _words(shell)),
        hosts=tuple(host.name for host in wishes.hosts),
        command=visible(_shortened(command)),
        shell=replace(shell, network=asked.network, unsandboxed=asked.unsandboxed),
        binding={
            "sandboxed": kind,
            "cwd": _file_identity(workspace),
            "search_path": search_path,
            "words": _named_files(shell, workspace, search_path),
        },
    )


def _find_read_secret(shell: ShellCommand) -> str | None:
    """Return a sentence about a file with secrets that the command would read without naming it, None if none."""
    clause = next((part.obstacle for part in shell.parts or () if part.reads_secret and part.obstacle), None)
    return None if clause is None else visible_line(f"{clause[0].upper()}{clause[1:]}.", 2 * _MAX_WORD_CHARS)


def _read_command(
    command: str,
    context: ToolContext,
    environment: Mapping[str, str],
    file_system: FileSystemCache,
    *,
    has_parts: bool,
) -> ShellCommand:
    reading = read_commands(command)
    workspace = context.workspace.resolve()
    paths = find_named_paths(reading, workspace)
    shell = ShellCommand(command, None, reading.runs, reading.is_complete, mentions=reading.mentions, paths=paths)
    if not has_parts:
        return shell
    search_path, private = environment.get("PATH", ""), context.protected_roots
    parts = read_parts(
        command,
        workspace,
        search_path,
        private,
        file_system,
        git_environment=environment,
        find_launcher=partial(read_only_launcher, context, environment),
    )
    unread = find_unread(command) if parts is None else None
    return replace(shell, parts=parts, unread=unread)


@dataclass(frozen=True, slots=True)
class _Deletions:
    """The words that may delete a critical folder, or by which protected files are deleted, moved or added, or None.

    `unchecked` is a sentence about parts of the command that are not checked, or None.
    """

    critical: str | None = None
    protected: str | None = None
    unchecked: str | None = None


def _find_deletions(
    command: str,
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
    protected = None
    try:
        critical = find_critical_deletion(command, workspace, environment, FileSystemCache())
        if critical is None and sandboxed != "bubblewrap":
            protected = find_protected_change(command, workspace, environment, FileSystemCache(), find_launcher)
    except UncheckableError as exc:
        return _Deletions(unchecked=unchecked or str(exc))
    return _Deletions(critical, protected, unchecked)


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
    named: NamedPaths,
    deletions: _Deletions,
) -> Iterator[str]:
    yield f"It runs in {visible(str(workspace))}."
    yield from power
    lines = command.count("\n") + 1
    if len(command) > _LONG_COMMAND or lines > 1:
        yield f"The command has {pluralize(len(command), 'character')} in {pluralize(lines, 'line')}."
    if visible(_shortened(command)) != _shortened(command):
        yield "Invisible characters and long runs of blanks are shown in ⟨⟩."
    if named.protected is not None and not _is_secret(named.protected):
        shown = visible_line(named.protected, _MAX_WORD_CHARS)
        yield f"It names {shown}, which decides what runs on this machine or which calls need approval."
    for secret in dict.fromkeys((named.protected, named.secret)):
        if secret is not None and (secret == named.secret or _is_secret(secret)):
            shown, kind = visible_line(secret, _MAX_WORD_CHARS), "folder" if _is_secret_folder(secret) else "file"
            yield f"It names {shown}, a {kind} that usually holds keys or passwords."
    if deletions.critical is not None:
        yield deletion_reason(deletions.critical)
    if deletions.protected is not None:
        shown = visible_line(deletions.protected, _MAX_WORD_CHARS)
        yield f"With {shown} it changes files that decide what runs on this machine or which calls need approval."
    if deletions.unchecked is not None:
        yield deletions.unchecked


def _is_secret(word: str) -> bool:
    """Return whether a word names a file or a folder that usually holds keys or passwords."""
    return is_secret_file(*word.split("/")) or _is_secret_folder(word)


def _is_secret_folder(word: str) -> bool:
    return is_secret_folder(*word.split("/")) and not is_secret_file(*word.split("/"))


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


def _named_files(shell: ShellCommand, workspace: Path, search_path: str) -> dict[str, list[object]]:
    """Return the identities of the files that words of the command may name: programs on the PATH, and paths.

    A path is looked up in the workspace and in the folders that are named themselves, as after `cd`. Words that are not
    meant as files may be included; that is harmless. Contents are identified by the file's status: any change of a file
    changes its ctime.
    """
    identities: dict[str, list[object]] = {}
    words = list(_words(shell))[:_MAX_BOUND_WORDS]
    named = (workspace / word for word in words if word.strip("./"))
    folders = [workspace, *itertools.islice(filter(_is_folder, named), _MAX_BOUND_FOLDERS)]
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


# --- running the command ----------------------------------------------------------------------------------------------


@tool(risk="execute", assess=_assess)
async def bash_exec(
    command: str,
    context: ToolContext,
    timeout: Annotated[float | None, Field(ge=0.05, le=86_400)] = None,
    network: bool | list[str] = False,
    unsandboxed: bool = False,
) -> ToolOutput:
    """Run a command with bash in the workspace; gives its output (standard output and error) and exit code.

    There is no input. What the command leaves running is ended with it. It usually runs in a sandbox: it can write in
    the workspace only, but not git's configuration and hooks, .env and other files that decide what runs; the home
    folder has toolchains and empty caches only, /tmp is empty, and what is written there is lost; there is no network,
    so that installing packages, cloning and pushing need `network`.

    Args:
        command: The command line or script for `bash -c`.
        timeout: Seconds after which the command is ended, if that is sooner than the general limit for tools.
        network: The hosts that the command needs, over HTTP or HTTPS: ["pypi.org", "files.pythonhosted.org"] for pip
            install, ["registry.npmjs.org"] for npm install, ["github.com"] for git; ["*.example.com"] is all below it,
            ["example.com:8443"] another port than 443 and 80. True for all of the network, if the hosts are not known
            or it needs other protocols, such as SSH. Asks the user.
        unsandboxed: True if the command cannot work in the sandbox; asks the user.
    """
    wishes = Wishes.of({"network": network, "unsandboxed": unsandboxed})
    workspace = context.workspace.resolve()
    sources = await run_in_thread(_sources, command, wishes, workspace, name="agx reading a command")
    try:
        if not wishes.hosts:
            output = await _run(command, context, timeout, wishes)
        else:
            async with HostProxy(wishes.hosts, context.clock) as proxy:
                output = await _run(command, context, timeout, wishes, proxy)
    except ToolError as exc:
        raise exc.quoting(sources) from None
    return replace(output, sources=sources)


def _sources(command: str, wishes: Wishes, workspace: Path) -> tuple[str, ...]:
    """Return a name for the texts of others in the output of a command: from the network, or other folders."""
    if wishes.hosts:
        return (f"what a command read from {', '.join(map(str, wishes.hosts))}",)
    runs = read_commands(command).runs
    if wishes.network or any((words[0] or "").rpartition("/")[2] in _DOWNLOADERS for words in runs if words):
        return ("what a command read from the network",)
    named = dict.fromkeys(word for words in runs for word in words[1:] if word)
    if any(_is_outside(word, workspace) for word in list(named)[:_MAX_BOUND_WORDS]):
        return ("what a command read outside of the workspace",)
    return ()


def _is_outside(word: str, workspace: Path) -> bool:
    """Return whether a word is the path of something that exists outside of the workspace, but for devices."""
    if not word.startswith(("/", "~/", "../")):
        return False
    try:
        path = Path(os.path.realpath(workspace / Path(word).expanduser()))
        return not path.is_relative_to(workspace) and not path.is_relative_to("/dev") and path.exists()
    except (OSError, RuntimeError, ValueError):  # too long a name; no home folder; a NUL
        return False


async def _run(
    command: str, context: ToolContext, timeout: float | None, wishes: Wishes, proxy: HostProxy | None = None
) -> ToolOutput:
    environment = _environment()
    buffer = HeadTailBuffer(_HEAD_BYTES, _TAIL_BYTES)
    progress = ProgressEmitter(
        lambda text: context.emit("tool_progress", {"output": text}), interval=context.clock.real(_PROGRESS_SECONDS)
    )

    def on_output(chunk: bytes) -> None:
        buffer.add(chunk)
        progress.add(chunk)

    bash, text = _find_bash(environment, context.workspace.resolve()), _check_command(command)
    launch = await run_in_thread(
        prepare, text, bash, environment, context, wishes, proxy, name="agx preparing a command"
    )
    try:
        running = start_command(
            launch.arguments,
            cwd=context.workspace.resolve(),
            environment=launch.environment,
            call_id=context.call_id,
            on_output=on_output,
            own_processes=launch.own_processes,
            descriptors=[] if launch.proxy is None else [launch.proxy.descriptor],
        )
    except ToolError:
        await run_in_thread(_notes, launch, "", False, name="agx checking a command")
        raise
    if launch.proxy is not None:
        launch.proxy.start()
    end: CommandExit | None = None
    closed = False
    try:
        if context.record_process is not None and (process := await running.wait_started()) is not None:
            await context.record_process(asdict(process))
        with suppress(TimeoutError):
            async with asyncio.timeout(None if timeout is None else context.clock.real(timeout)):
                end = await running.wait()
        output, truncated = buffer.text(), buffer.truncated
        if launch.profile is not None or (end is not None and not end.leftover_count):
            # What still runs could swap folders for links while protected files are looked for and moved.
            running.terminate()
            await running.wait_closed()
            closed = True
        failed = end is None or end.exit_code != 0
        shown = output if failed or _MAY_HIDE_FAILURES.search(text) else ""
        notes = await run_in_thread(_notes, launch, shown, failed, name="agx checking a command")
        notes = [*_network_notes(launch), *notes]
        if end is None:
            ending = f"the command was ended after {timeout:g} s, before it was done"
            raise ToolError(_report(output, truncated, ending, notes).text)
        return _report(output, truncated, _exit_text(end, launch), notes)
    except asyncio.CancelledError:  # a stop, or the engine's own time limit: the output so far is still returned
        return _report(buffer.text(), buffer.truncated, "ended before it was done", _network_notes(launch))
    finally:
        progress.stop()
        running.terminate()
        if not closed:
            if context.add_background_task is None:
                await _close(running, launch)
            else:  # the result does not wait for processes that are slow to end
                context.add_background_task(_close(running, launch))


async def _close(running: RunningCommand, launch: Launch) -> None:
    """Wait until the processes have ended, and move protected files that they created meanwhile."""
    await running.wait_closed()
    if launch.profile is not None:
        await run_in_thread(_notes, launch, "", False, name="agx checking a command")


def _notes(launch: Launch, output: str, failed: bool) -> list[str]:
    """Return sentences about what the sandbox did to the command; remove what it must not leave."""
    notes = list(launch.clean_up())
    if (explanation := launch.explain(output, failed=failed)) is not None:
        notes.append(explanation)
    return notes


def _network_notes(launch: Launch) -> list[str]:
    """Return sentences about servers that the command did not reach."""
    return [] if launch.proxy is None else list(launch.proxy.notes())


def _check_command(command: str) -> str:
    if not command.strip() or "\0" in command:
        raise ToolError("the command is empty or holds a NUL; give a command line for bash")
    if len(command.encode()) > _MAX_COMMAND_BYTES:
        raise ToolError(
            f"the command is longer than {_MAX_COMMAND_BYTES:,} bytes; "
            "write it into a file with file_write and run that"
        )
    return command


def _environment() -> dict[str, str]:
    """Return this process's environment without what changes how a command is read, set to avoid pagers and prompts."""
    return {
        name: value
        for name, value in child_environment(_NONINTERACTIVE).items()
        if name in _NONINTERACTIVE or not _CHANGING_VARIABLES.fullmatch(name)
    }


def _find_bash(environment: Mapping[str, str], workspace: Path) -> str:
    """Return the path of bash, which is not in the workspace: an agent may have written a program there."""
    folders = [folder for folder in environment.get("PATH", "").split(os.pathsep) if os.path.isabs(folder)]
    outside = [folder for folder in folders if not Path(os.path.realpath(folder)).is_relative_to(workspace)]
    path = shutil.which("bash", path=os.pathsep.join(outside))
    if path is None:
        raise ToolError("there is no bash on this machine's PATH outside of the workspace; install it to run commands")
    return path


def _exit_text(end: CommandExit, launch: Launch) -> str:
    ending = f"exit code {end.exit_code}" if end.exit_code >= 0 else f"ended by {_signal_name(-end.exit_code)}"
    # bubblewrap ends with such a code where the command was ended by a signal
    if launch.kind == "bubblewrap" and _SIGNALLED < end.exit_code <= _SIGNALLED + signal.NSIG:
        ending += f", as after {_signal_name(end.exit_code - _SIGNALLED)}"
    if not end.leftover_count:
        return ending
    processes = "1 process was" if end.leftover_count == 1 else f"{end.leftover_count} processes were"
    return f"{ending}; {processes} still running in the background and ended with the command"


def _signal_name(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def _report(output: str, truncated: bool, ending: str, notes: Sequence[str] = ()) -> ToolOutput:
    if output and not output.endswith("\n"):
        output += "\n"
    text = f"{output}[{ending}]" if output else f"(no output)\n[{ending}]"
    return ToolOutput("\n".join([text, *(f"[{note}]" for note in notes)]), truncated)
