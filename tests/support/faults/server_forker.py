"""A program that imports AgenticX once and forks studio servers, each a process to be killed.

    python -m tests.support.faults.server_forker

Requests arrive as lines of JSON on standard input (`ServerOptions`). Two lines on standard output answer each: {pid,
port} from the server when it is ready, and {pid, status} from this process when the server has ended. A forked server
starts in a tenth of the time.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agenticx import builtin_tools
from agenticx.llms import ChatModel, NamedModels
from agenticx.logs import configure_logging
from agenticx.sessions import SqliteStore, Store
from agenticx.settings import load_settings
from agenticx.tools import ToolContext, tool
from studio.access import load_or_create_token
from studio.server import StudioServer, listen
from studio.services import make_services
from tests.support.faults import broken, disk
from tests.support.faults.agents_model import AgentsModel
from tests.support.faults.faulty_stores import crashing, failing
from tests.support.faults.plan_model import PlanModel

MARKS = "marks"


@dataclass(frozen=True)
class ServerOptions:
    """The options of a server: its folder, its fault, and settings."""

    home: str
    crash: tuple[str, str, int] | None = None  # point, when, nth
    disk: dict[str, str] | None = None  # what `disk.Disk` takes
    fails: str | None = None  # the control file of a store that fails, see `disk.arm`
    broken: str | None = None  # one of `broken.MUTANTS`
    context_window: int | None = None
    model: str = "plan"  # or "agents"
    settings: dict[str, Any] = field(default_factory=dict[str, Any])


@tool(risk="write")
async def mark(context: ToolContext) -> str:
    """Leave a mark."""
    return await _leave_mark(context)


@tool(risk="read")
async def look(context: ToolContext) -> str:
    """Look around; that it looked is marked too."""
    return await _leave_mark(context)


async def _leave_mark(context: ToolContext) -> str:
    line = f"{context.session_id} {context.call_id}\n".encode()
    file = os.open(context.workspace / MARKS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, line)
    os.close(file)
    await asyncio.sleep(0.002)
    return "marked"


def main() -> None:
    wake, alarm = os.pipe()
    os.set_blocking(alarm, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(alarm)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    children: set[int] = set()
    while True:
        ready, _, _ = select.select([0, wake], [], [])
        if wake in ready:
            os.read(wake, 4096)
            children -= set(_reap())
        if 0 in ready:
            line = sys.stdin.buffer.readline()  # one request at a time: the next is sent when this server is ready
            if not line:
                for pid in children:
                    os.kill(pid, signal.SIGKILL)
                return
            child = os.fork()
            children.add(child)
            if child == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _serve_and_exit(ServerOptions(**json.loads(line)))


def _reap() -> Iterator[int]:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid
        _report({"pid": pid, "status": os.waitstatus_to_exitcode(status)})


def _report(what: dict[str, int]) -> None:
    os.write(1, json.dumps(what).encode() + b"\n")


def _serve_and_exit(options: ServerOptions) -> None:
    home = Path(options.home)
    code = 1
    try:
        errors = os.open(home / "stderr", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(errors, 2)
        asyncio.run(_serve(options, home))
        code = 0
    finally:
        if code:
            traceback.print_exc()
        os._exit(code)


async def _serve(options: ServerOptions, home: Path) -> None:
    workspace = home.parent / "workspace"
    workspace.mkdir(exist_ok=True)
    usual = {"model": "plan", "log_level": "warning", "compaction_threshold_messages": 20}  # so that some are compacted
    given = {"home": home, "workspace_root": workspace, **usual, **options.settings}
    settings = load_settings(given, environ={})
    configure_logging(settings.log_level)
    if options.disk is not None:
        disk.install(disk.Disk(**options.disk))
    listening = listen("127.0.0.1", 0)
    port = listening.getsockname()[1]

    def resolve(_spec: str) -> ChatModel:
        if options.model == "agents":
            return AgentsModel(home.parent / "requests")
        return PlanModel(context_window=options.context_window)

    services = make_services(
        settings,
        token=load_or_create_token(settings),
        store=_store(options, home / "sessions.db"),
        models=NamedModels(settings, resolve),
        tools=[mark, look, *(one for one in builtin_tools() if one.schema.name in ("bash_exec", "ask_user"))],
    )
    broken.services(options.broken, services)
    server = StudioServer(services, lambda: _report({"pid": os.getpid(), "port": port}))
    await server.serve(sockets=[listening])


def _log(*words: object) -> None:
    print(*words, file=sys.stderr, flush=True)


def _store(options: ServerOptions, path: Path) -> Store:
    store: Store = broken.store(options.broken, SqliteStore(path))
    if options.crash is not None:
        store = crashing(store, *options.crash)
    if options.fails is not None:
        store = failing(store, disk.DiskFault(Path(options.fails), _log))
    return store


if __name__ == "__main__":
    main()
