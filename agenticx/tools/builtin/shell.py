"""The shell tool: it runs a command in the workspace, in a sandbox, and terminates it with all its descendants."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import Field

from agenticx.errors import ToolError
from agenticx.sandbox.proxy import HostProxy
from agenticx.threads import run_in_thread
from agenticx.tools.base import ToolOutput
from agenticx.tools.command_output import HeadTailBuffer, ProgressEmitter
from agenticx.tools.context import ToolContext
from agenticx.tools.processes import CommandExit, RunningCommand, start_command
from agenticx.tools.registry import tool
from agenticx.tools.result_data import CommandEnd
from agenticx.tools.shell.assessment import assess_command
from agenticx.tools.shell.command_reader import CommandReading, read_commands
from agenticx.tools.shell.environment import command_environment, find_bash
from agenticx.tools.shell.launch import Launch, prepare
from agenticx.tools.shell.sandboxing import RequestedAccess

__all__ = ["bash_exec"]

_HEAD_BYTES = 8_000
_TAIL_BYTES = 16_000
_MAX_COMMAND_BYTES = 100_000
_PROGRESS_SECONDS = 0.1
_MAX_LOOKED_UP_WORDS = 1_000
_DOWNLOADERS = frozenset(
    {"aria2c", "curl", "elinks", "http", "https", "links", "lynx", "nc", "ncat", "w3m", "wget", "xh"}
)
_MAY_HIDE_FAILURES = re.compile(r"[|;\n]")  # the exit code is that of another part
_SIGNALLED = 128  # a shell adds the number of the signal that ended a command


@tool(risk="execute", assess=assess_command)
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
    requested = RequestedAccess.of({"network": network, "unsandboxed": unsandboxed})
    workspace = context.workspace.resolve()
    reading = await run_in_thread(read_commands, command, name="agx reading a command")
    sources = await run_in_thread(_sources, reading, requested, workspace, name="agx reading a command")
    try:
        if not requested.hosts:
            output = await _run(command, reading, context, timeout, requested)
        else:
            async with HostProxy(requested.hosts, context.clock) as proxy:
                output = await _run(command, reading, context, timeout, requested, proxy)
    except ToolError as exc:
        raise exc.quoting(sources) from None
    return replace(output, sources=sources)


def _sources(reading: CommandReading, requested: RequestedAccess, workspace: Path) -> tuple[str, ...]:
    """Return a name for the texts of others in the output of a command: from the network, or other folders."""
    if requested.hosts:
        return (f"what a command read from {', '.join(map(str, requested.hosts))}",)
    if requested.network or any((words[0] or "").rpartition("/")[2] in _DOWNLOADERS for words in reading.runs if words):
        return ("what a command read from the network",)
    named = dict.fromkeys(word for words in reading.runs for word in words[1:] if word)
    if any(_is_outside(word, workspace) for word in list(named)[:_MAX_LOOKED_UP_WORDS]):
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
    command: str,
    reading: CommandReading,
    context: ToolContext,
    timeout: float | None,
    requested: RequestedAccess,
    proxy: HostProxy | None = None,
) -> ToolOutput:
    environment = command_environment()
    buffer = HeadTailBuffer(_HEAD_BYTES, _TAIL_BYTES)
    progress = ProgressEmitter(
        lambda text: context.emit("tool_progress", {"output": text}), interval=context.clock.real(_PROGRESS_SECONDS)
    )

    def on_output(chunk: bytes) -> None:
        buffer.add(chunk)
        progress.add(chunk)

    workspace = context.workspace.resolve()
    bash, text = find_bash(environment, workspace), _check_command(command)
    prepared = partial(prepare, text, bash, environment, context, requested, reading=reading, proxy=proxy)
    launch = await run_in_thread(prepared, name="agx preparing a command")
    try:
        running = start_command(
            launch.arguments,
            cwd=workspace,
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
        details = CommandEnd(exit_code=end.exit_code if end.exit_code >= 0 else None, cwd=str(workspace))
        return replace(_report(output, truncated, _exit_text(end, launch), notes), details=details)
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
