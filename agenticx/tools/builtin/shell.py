"""The shell tool: a command in the workspace, watched while it runs and ended with all that it started."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import stat
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from agenticx.errors import ToolError
from agenticx.settings import child_environment
from agenticx.tools.amounts import counted
from agenticx.tools.base import Assessment, ToolContext, ToolOutput
from agenticx.tools.lookups import Lookups
from agenticx.tools.output import Excerpt, Progress
from agenticx.tools.processes import CommandEnd, start_command
from agenticx.tools.registry import tool
from agenticx.tools.shell_words import EXAMINED_COMMAND_BYTES, NamedPaths, examine
from agenticx.tools.simple_commands import is_plainly_harmless
from agenticx.tools.visible import visible, visible_line

__all__ = ["bash_exec"]

_HEAD_BYTES = 8_000
_TAIL_BYTES = 16_000
_COMMAND_BYTES = 100_000
_PROGRESS_SECONDS = 0.1
_BOUND_WORDS = 64
_LONG_COMMAND = 200
_SHOWN_WORD = 300

# For commands that nobody watches: no pager, no prompt. And bash must run the command, not somebody's start-up file.
_QUIET = {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}
_START_UP = re.compile(r"BASH_ENV|ENV|SHELLOPTS|BASHOPTS|BASH_FUNC_.*")


# --- what is asked ----------------------------------------------------------------------------------------------------


def _assess(arguments: Mapping[str, Any], context: ToolContext) -> Assessment:
    command: str = arguments["command"]
    workspace = context.workspace.resolve()
    search_path = _environment().get("PATH", "")
    lookups = Lookups()
    named = examine(command, workspace, context.protected_roots, lookups)
    harmless = named == NamedPaths() and is_plainly_harmless(
        command, workspace, search_path, context.protected_roots, lookups
    )
    return Assessment(
        risk="read" if harmless else "execute",
        question="Run this command?",
        reasons=(_HARMLESS,) if harmless else tuple(_reasons(command, workspace, named)),
        protected=not (named.protected is None and named.secret is None),
        unchecked=named.unchecked is not None,
        command=visible(_shortened(command)),
        binding={
            "cwd": _identity(workspace),
            "search_path": search_path,
            "words": _named_files(command[:EXAMINED_COMMAND_BYTES], workspace, search_path),
        },
    )


def _shortened(command: str) -> str:
    """Return the command as it is shown: of one that is too long to be checked the beginning and the end."""
    if len(command) <= EXAMINED_COMMAND_BYTES:
        return command
    left_out = len(command) - EXAMINED_COMMAND_BYTES
    tail = EXAMINED_COMMAND_BYTES // 4
    note = f"⟨… {left_out} of {len(command)} characters are not shown …⟩"
    return f"{command[: EXAMINED_COMMAND_BYTES - tail]}\n{note}\n{command[-tail:]}"


_HARMLESS = "It is one plain command that only looks at files of the workspace."


def _reasons(command: str, workspace: Path, named: NamedPaths) -> Iterator[str]:
    yield f"It runs in {visible(str(workspace))}."
    yield "No sandbox holds it: it can do whatever you can, and could read AgenticX's access token."
    lines = command.count("\n") + 1
    if len(command) > _LONG_COMMAND or lines > 1:
        yield f"The command has {counted(len(command), 'character')} in {counted(lines, 'line')}."
    if visible(_shortened(command)) != _shortened(command):
        yield "Characters that do not show, or long blanks, stand in ⟨⟩."
    if named.protected is not None:
        shown = visible_line(named.protected, _SHOWN_WORD)
        yield f"It names {shown}, which decides what runs on this machine or who is asked."
    if named.secret is not None:
        yield f"It names {visible_line(named.secret, _SHOWN_WORD)}, a file that usually holds keys or passwords."
    if named.unchecked is not None:
        yield named.unchecked


def _named_files(command: str, workspace: Path, search_path: str) -> dict[str, list[object]]:
    """The files that words of the command may stand for, each as it is now: programs on the PATH, files by path.

    More words than mean files are taken for one; that is harmless. Contents are bound by their status: any change of
    a file gives it another ctime.
    """
    found: dict[str, list[object]] = {}
    words = dict.fromkeys(["bash", *re.findall(r"[^\s;|&<>()\"'`$=]+", command)])
    for word in list(words)[:_BOUND_WORDS]:
        program = None if "/" in word else shutil.which(word, path=search_path)
        for path in (program, workspace / word):
            if path is not None and (identity := _identity(Path(path))):
                found[f"{word} {path}" if path is program else word] = identity
    return found


def _identity(path: Path) -> list[object]:
    """Where a path leads and what is there; empty if there is nothing. A folder's contents do not count."""
    try:
        status = path.stat()
        real = os.path.realpath(path)
    except (OSError, ValueError):
        return []
    if stat.S_ISDIR(status.st_mode):
        return [real, status.st_dev, status.st_ino]
    return [real, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


# --- what runs --------------------------------------------------------------------------------------------------------


@tool(risk="execute", assess=_assess)
async def bash_exec(
    command: str,
    context: ToolContext,
    timeout: Annotated[float | None, Field(ge=0.05, le=86_400)] = None,
) -> ToolOutput:
    """Run a command with bash in the workspace; gives its output (standard output and error) and exit code.

    There is no input. What the command leaves running is ended with it.

    Args:
        command: The command line or script for `bash -c`.
        timeout: Seconds after which the command is ended, if that is sooner than the general limit for tools.
    """
    environment = _environment()
    excerpt = Excerpt(_HEAD_BYTES, _TAIL_BYTES)
    progress = Progress(
        lambda text: context.emit("tool_progress", {"output": text}), every=context.clock.real(_PROGRESS_SECONDS)
    )

    def take(chunk: bytes) -> None:
        excerpt.add(chunk)
        progress.add(chunk)

    running = start_command(
        [_bash(environment), "-c", "--", _checked(command)],
        cwd=context.workspace.resolve(),
        environment=environment,
        call_id=context.call_id,
        on_output=take,
    )
    end: CommandEnd | None = None
    try:
        if context.started is not None and (process := await running.begun()) is not None:
            await context.started(asdict(process))
        async with asyncio.timeout(None if timeout is None else context.clock.real(timeout)):
            end = await running.wait()
        return _report(excerpt, _told(end))
    except TimeoutError:
        report = _report(excerpt, f"the command was ended after {timeout:g} s, before it was done")
        raise ToolError(report.text) from None
    except asyncio.CancelledError:  # a stop, or the engine's own limit: what was printed is told all the same
        return _report(excerpt, "ended before it was done")
    finally:
        progress.stop()
        running.end()
        if context.afterwards is None or (end is not None and not end.left_running):
            await running.gone()
        else:  # the answer does not wait for processes that take their time to end
            context.afterwards(running.gone())


def _checked(command: str) -> str:
    if not command.strip() or "\0" in command:
        raise ToolError("the command is empty or holds a NUL; give a command line for bash")
    if len(command.encode()) > _COMMAND_BYTES:
        raise ToolError(
            f"the command is longer than {_COMMAND_BYTES:,} bytes; write it into a file with file_write and run that"
        )
    return command


def _environment() -> dict[str, str]:
    """Ours without secrets, without what bash would run first, and without what waits for a person."""
    return {name: value for name, value in child_environment(_QUIET).items() if not _START_UP.fullmatch(name)}


def _bash(environment: Mapping[str, str]) -> str:
    path = shutil.which("bash", path=environment.get("PATH"))
    if path is None:
        raise ToolError("there is no bash on this machine's PATH; install it to run commands")
    return os.path.abspath(path)


def _told(end: CommandEnd) -> str:
    how = f"exit code {end.exit_code}" if end.exit_code >= 0 else f"ended by {_signal_name(-end.exit_code)}"
    if not end.left_running:
        return how
    many = "1 process was" if end.left_running == 1 else f"{end.left_running} processes were"
    return f"{how}; {many} still running in the background and ended with the command"


def _signal_name(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def _report(excerpt: Excerpt, how: str) -> ToolOutput:
    output = excerpt.text()
    if output and not output.endswith("\n"):
        output += "\n"
    return ToolOutput(f"{output}[{how}]" if output else f"(no output)\n[{how}]", excerpt.truncated)
