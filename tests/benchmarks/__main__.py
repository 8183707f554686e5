"""The program `python -m tests.benchmarks`, which prints figures, floors and budgets.

It takes about a minute: CPU time per token, per tool round and per turn, each beside a floor (a raw socket and a JSON
parser) that is measured in the same run. `MISSED` marks a figure above one of this project's budgets, which assume an
idle machine. Its exit code is always 0.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from typing import Any

from tests.benchmarks.peer import peer
from tests.benchmarks.rows import Row, Scale, table

__all__ = ["SECTIONS", "main", "measure"]

FULL = Scale()
QUICK = Scale(
    repeats=3,
    tokens=1_500,
    paced_tokens=60,
    turns=15,
    rounds=10,
    messages=600,
    team_messages=300,
    readers=100,
    sessions=200,
    notes=1_000,
    streams=(1, 20, 150),
    further_streams=(),
    stock_streams=(20,),
    stream_tokens=100,
    workers=(1, 2),
    job_seconds=1,
    snapshot_seconds=10,
    page_events=5_000,
    page_tokens=600,
)


async def _engine(scale: Scale) -> list[Row]:
    from tests.benchmarks.engine import engine_rows

    async with peer() as other:
        return await engine_rows(other, scale)


async def _wires(scale: Scale) -> list[Row]:
    from tests.benchmarks.wire_rows import wire_rows

    async with peer() as other:
        return await wire_rows(other, scale)


async def _store(scale: Scale) -> list[Row]:
    from studio.server import freeze_startup_memory
    from tests.benchmarks.store_rows import store_rows

    freeze_startup_memory()
    return await store_rows(scale)


async def _studio(scale: Scale) -> list[Row]:
    from studio.server import freeze_startup_memory
    from tests.benchmarks.studio_rows import studio_rows

    freeze_startup_memory()
    async with peer() as other:
        return await studio_rows(other, scale)


async def _teams(scale: Scale) -> list[Row]:
    from tests.benchmarks.team_rows import team_rows

    return await team_rows(scale)


async def _notes(scale: Scale) -> list[Row]:
    from tests.benchmarks.note_rows import note_rows

    return await note_rows(scale)


async def _artifacts(scale: Scale) -> list[Row]:
    from tests.benchmarks.artifact_rows import artifact_rows

    return await artifact_rows(scale)


async def _commands(scale: Scale) -> list[Row]:
    from tests.benchmarks.command_rows import command_rows

    return await command_rows(scale)


async def _page(scale: Scale) -> list[Row]:
    from tests.benchmarks.page_rows import page_rows

    return await page_rows(scale)


async def _imports(scale: Scale) -> list[Row]:
    from tests.benchmarks.engine import import_rows

    return import_rows(scale)


async def _streams(_scale: Scale) -> list[Row]:
    from tests.benchmarks.engine import stream_rows

    async with peer() as other:
        return await stream_rows(other)


async def _server(scale: Scale) -> list[Row]:
    from tests.benchmarks.server_rows import server_rows

    return await server_rows(scale)


async def _postgres(scale: Scale) -> list[Row]:
    from tests.benchmarks.postgres_rows import postgres_rows

    return await postgres_rows(scale)


SECTIONS: dict[str, Callable[[Scale], Coroutine[Any, Any, list[Row]]]] = {
    "engine": _engine,
    "wires": _wires,
    "store": _store,
    "studio": _studio,
    "teams": _teams,
    "notes": _notes,
    "artifacts": _artifacts,
    "commands": _commands,
    "page": _page,
    "imports": _imports,
    "streams": _streams,
    "server": _server,
    "postgres": _postgres,
}
SLOW = ("streams", "server")
POSTGRES = "postgres"


def measure(section: str, scale: Scale) -> list[Row]:
    """Return the rows of one section, measured in a process of its own."""
    order = json.dumps([section, asdict(scale)])
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks", "--only", order], stdout=subprocess.PIPE, text=True
    )
    if done.returncode != 0:
        print(f"{section}: failed, see above", file=sys.stderr)
        return []
    return [Row(**fields) for fields in json.loads(done.stdout)]


def main() -> None:
    """Measure and print the sections that the arguments select."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="less of everything: under 20 s, and less exact")
    parser.add_argument("--json", action="store_true", help="print one JSON array instead of the table")
    parser.add_argument(
        "--streams",
        action="store_true",
        help="also many streams of a token per 10 ms, through the library and through `agx serve` (two minutes)",
    )
    parser.add_argument(
        "--postgres",
        action="store_true",
        help="only the store in PostgreSQL, on a server of its own, with 1 to 8 workers (six minutes)",
    )
    parser.add_argument("--only", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.only:
        section, scale = json.loads(arguments.only)
        rows = asyncio.run(SECTIONS[section](Scale(**scale)))
        print(json.dumps([asdict(row) for row in rows]))
        return
    begun = time.monotonic()
    if arguments.postgres:
        names = [POSTGRES]
    else:
        names = [name for name in SECTIONS if name != POSTGRES and (name not in SLOW or arguments.streams)]
    rows = [row for name in names for row in measure(name, QUICK if arguments.quick else FULL)]
    if arguments.json:
        print(json.dumps([{**asdict(row), "judged": row.judged} for row in rows], indent=2))
        return
    print(table(rows))
    busy = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    what = f"Python {platform.python_version()}, {platform.machine()}, {busy}, CPU time of one process"
    print(f"\n{what}; budgets with × are ratios to the floor; {time.monotonic() - begun:.0f} s in all")


if __name__ == "__main__":
    main()
