"""The report on the workers of a store: what they own, what waits for one, and the database."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from agenticx.clocks import rfc3339
from agenticx.version import __version__

__all__ = [
    "DeletionReport",
    "HostReport",
    "OrphanReport",
    "ServerReport",
    "WorkerReport",
    "WorkersReport",
    "describe_workers",
    "merged_reports",
    "single_worker_report",
]

_MEGABYTE = 1_000_000
_PARTS = {"settings": "settings (variables and settings.toml)"}


class WorkerReport(TypedDict):
    """A process that uses the store; a dead worker is reported for ten minutes, or until another one replaces it.

    `address` is the URL at which it serves, empty if it serves nothing. `started` and `seen`, the time of its last
    heartbeat, are RFC 3339. `configuration` has a digest for each part of its configuration; they should be the same at
    all workers, and it is empty if one process alone uses the store. `sessions` counts the sessions that it owns,
    `running_turns` the owned sessions with a running turn.
    """

    id: Annotated[str, Field(description="The id of the process at the store.")]
    address: Annotated[str, Field(description="The address at which it serves.")]
    host: Annotated[str, Field(description="The name of its host.")]
    pid: Annotated[int, Field(description="Its process id.")]
    version: Annotated[str, Field(description="Its version of AgenticX.")]
    configuration: Annotated[dict[str, str], Field(description="Digests of the parts of its configuration.")]
    started: Annotated[str, Field(description="The time of its start.")]
    seen: Annotated[str, Field(description="The time of its last sign of life.")]
    is_alive: Annotated[bool, Field(description="false: it has died.")]
    is_this: Annotated[bool, Field(description="true: it has answered this request.")]
    sessions: Annotated[int, Field(description="The number of sessions that it owns.")]
    running_turns: Annotated[int, Field(description="The number of its running turns.")]


class HostReport(TypedDict):
    """Sessions of the queue whose workspace is on `host`; they wait for a worker on that host."""

    host: Annotated[str, Field(description="The name of the host.")]
    sessions: Annotated[int, Field(description="The number of sessions that wait for it.")]
    has_worker: Annotated[bool, Field(description="true: a living worker is on it.")]


class OrphanReport(TypedDict):
    """The queue of sessions with work and no living owner.

    `since` is when the first of them lost its owner or began its turn, as RFC 3339; None without any.
    """

    sessions: Annotated[int, Field(description="The number of sessions that wait for an owner.")]
    since: Annotated[str | None, Field(description="The time since which the first of them waits.")]
    hosts: Annotated[list[HostReport], Field(description="The sessions that only one host can go on with.")]


class ServerReport(TypedDict):
    """The database: `engine` is `sqlite`, `postgresql` or `memory`.

    `durability` says what an acknowledged commit survives, see `Durability`. Without a server, `version`, `primary` and
    the numbers of connections, possible connections and standbys are None.
    """

    name: Annotated[str, Field(description="The name of the database.")]
    engine: Annotated[str, Field(description="The kind of database.")]
    version: Annotated[str | None, Field(description="The version of its server.")]
    durability: Annotated[str, Field(description="What an acknowledged commit survives.")]
    primary: Annotated[str | None, Field(description="The address of the server that takes writes.")]
    connections: Annotated[int | None, Field(description="The number of open connections.")]
    max_connections: Annotated[int | None, Field(description="The number of connections that the server allows.")]
    standbys: Annotated[int | None, Field(description="The number of connected standbys.")]
    size_bytes: Annotated[int | None, Field(description="The size of the database; null if it is not known.")]


class DeletionReport(TypedDict):
    """Deleted sessions with rows left, and parts of tables with bytes of deleted sessions, the oldest `since`.

    `log` says why the server's write-ahead log may keep such bytes after a purge, None if it does not.
    """

    sessions: Annotated[int, Field(description="The number of deleted sessions of which rows are left.")]
    partitions: Annotated[int, Field(description="The number of parts of tables that are still to be rewritten.")]
    since: Annotated[str | None, Field(description="The time of the oldest deletion.")]
    log: Annotated[str | None, Field(description="Why the server's log may keep bytes of deleted sessions.")]


class WorkersReport(TypedDict):
    """The workers of a store, and its servers: one, or several if the sessions are spread over several databases.

    `lag_ms` is the age of the oldest known commit of another worker that this worker has not read yet.
    """

    workers: Annotated[list[WorkerReport], Field(description="The processes that use the store.")]
    lag_ms: Annotated[int, Field(description="How long the oldest commit of another worker has not been read here.")]
    orphans: Annotated[OrphanReport, Field(description="The sessions that wait for an owner.")]
    servers: Annotated[list[ServerReport], Field(description="The databases.")]
    deletions: Annotated[DeletionReport, Field(description="The deleted sessions of which something is left.")]


def single_worker_report(
    worker_id: str,
    address: str,
    host: str,
    started: datetime,
    now: datetime,
    server: ServerReport,
    *,
    sessions: int,
    running_turns: int,
) -> WorkersReport:
    """Return the report of a store that this process alone uses; it has no queue, as all work is taken up at once."""
    return {
        "workers": [
            {
                "id": worker_id,
                "address": address,
                "host": host,
                "pid": os.getpid(),
                "version": __version__,
                "configuration": {},
                "started": rfc3339(started),
                "seen": rfc3339(now),
                "is_alive": True,
                "is_this": True,
                "sessions": sessions,
                "running_turns": running_turns,
            }
        ],
        "lag_ms": 0,
        "orphans": {"sessions": 0, "since": None, "hosts": []},
        "servers": [server],
        "deletions": {"sessions": 0, "partitions": 0, "since": None, "log": None},
    }


def merged_reports(reports: Sequence[WorkersReport]) -> WorkersReport:
    """Return the report on several databases; a process that uses more than one is one worker, with its first id."""
    workers: dict[tuple[str, int, bool], WorkerReport] = {}
    hosts: dict[str, HostReport] = {}
    for report in reports:
        for worker in report["workers"]:
            known = workers.setdefault((worker["host"], worker["pid"], worker["is_alive"]), {**worker})
            if known["id"] != worker["id"]:
                known["started"] = min(known["started"], worker["started"])
                known["seen"] = min(known["seen"], worker["seen"])
                known["is_this"] = known["is_this"] or worker["is_this"]
                known["sessions"] += worker["sessions"]
                known["running_turns"] += worker["running_turns"]
        for host in report["orphans"]["hosts"]:
            waiting = hosts.setdefault(host["host"], {"host": host["host"], "sessions": 0, "has_worker": True})
            waiting["sessions"] += host["sessions"]
            waiting["has_worker"] = waiting["has_worker"] and host["has_worker"]
    return {
        "workers": [*workers.values()],
        "lag_ms": max(report["lag_ms"] for report in reports),
        "orphans": {
            "sessions": sum(report["orphans"]["sessions"] for report in reports),
            "since": _earliest(report["orphans"]["since"] for report in reports),
            "hosts": [*hosts.values()],
        },
        "servers": [server for report in reports for server in report["servers"]],
        "deletions": {
            "sessions": sum(report["deletions"]["sessions"] for report in reports),
            "partitions": sum(report["deletions"]["partitions"] for report in reports),
            "since": _earliest(report["deletions"]["since"] for report in reports),
            "log": next((log for report in reports if (log := report["deletions"]["log"]) is not None), None),
        },
    }


def _earliest(times: Iterable[str | None]) -> str | None:
    return min((time for time in times if time is not None), default=None)


def describe_workers(report: WorkersReport) -> Iterator[tuple[str, bool]]:
    """Yield the report as sentences, each with False if somebody should act on it."""
    for server in report["servers"]:
        engine = f"{server['engine']} {server['version'] or ''}".rstrip()
        yield f"{server['name']} is {engine} on {server['primary'] or 'this host'}", True
        yield f"an acknowledged commit survives: {server['durability']} ({server['standbys'] or 0} standbys)", True
        yield (
            f"{server['connections']} of {server['max_connections']} connections are in use, and"
            f" {(server['size_bytes'] or 0) / _MEGABYTE:,.1f} MB are stored",
            True,
        )
    if not report["workers"]:
        yield "no worker runs", True
    for worker in report["workers"]:
        state = "is alive" if worker["is_alive"] else "has died"
        yield (
            f"worker {worker['id']} on {worker['host']} (process {worker['pid']}, {worker['address'] or 'no address'},"
            f" AgenticX {worker['version']}) {state}: seen {worker['seen']}, owns {worker['sessions']} sessions,"
            f" runs {worker['running_turns']} turns",
            worker["is_alive"],
        )
    for part, places in _differences(report["workers"]):
        yield f"the workers differ in their {_PARTS.get(part, part)}: {places}", False
    orphans = report["orphans"]
    if orphans["sessions"]:
        yield f"{orphans['sessions']} sessions with work have no owner, the first since {orphans['since']}", False
    for host in orphans["hosts"]:
        if not host["has_worker"]:
            yield f"{host['sessions']} of them wait for a worker on {host['host']}, which has their workspace", False
    deletions = report["deletions"]
    if deletions["sessions"] or deletions["partitions"]:
        yield (
            f"{deletions['sessions']} deleted sessions have rows left, and {deletions['partitions']} parts of tables"
            f" have bytes of deleted ones, since {deletions['since']}: `agx store purge` removes them",
            False,
        )
    if deletions["log"] is not None:
        yield (
            f"the server's log of writes keeps bytes of deleted sessions: {deletions['log']}",
            deletions["since"] is None,
        )


def _differences(workers: Sequence[WorkerReport]) -> Iterator[tuple[str, str]]:
    """Yield each part of the configuration in which living workers differ, with the workers that have each digest."""
    servers = [worker for worker in workers if worker["is_alive"] and worker["address"]]
    for part in dict.fromkeys(part for worker in servers for part in worker["configuration"]):
        places = dict[str, list[str]]()
        for worker in servers:
            if (digest := worker["configuration"].get(part)) is not None:
                places.setdefault(digest, []).append(f"process {worker['pid']} on {worker['host']}")
        if len(places) > 1:
            yield part, "; ".join(f"{', '.join(some)} ({digest})" for digest, some in places.items())
