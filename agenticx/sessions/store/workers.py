"""The report on the workers of a store: what they own, what waits for one, and the database."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

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
    """A process that uses the store; one that has died is reported for ten minutes, or until another has replaced it.

    `address` is where it serves, empty if it serves nothing. `started` and `seen`, its last sign of life, are RFC 3339.
    `configuration` has a digest for each part of its configuration, which should be the same at all workers; it is
    empty where this process alone uses the store. `sessions` counts those that it owns, `running_turns` those of them
    with a running turn.
    """

    id: str
    address: str
    host: str
    pid: int
    version: str
    configuration: dict[str, str]
    started: str
    seen: str
    is_alive: bool
    is_this: bool
    sessions: int
    running_turns: int


class HostReport(TypedDict):
    """Sessions of the queue whose workspace is on `host`; without a worker there they wait."""

    host: str
    sessions: int
    has_worker: bool


class OrphanReport(TypedDict):
    """The queue of sessions with work and no living owner.

    `since` is when the first of them lost its owner or began its turn, as RFC 3339; None without any.
    """

    sessions: int
    since: str | None
    hosts: list[HostReport]


class ServerReport(TypedDict):
    """The database: `engine` is `sqlite`, `postgresql` or `memory`.

    `durability` says what an acknowledged commit survives, see `Durability`. Without a server, `version` and `primary`
    are None, as are the numbers of connections, of those that are possible, and of standbys.
    """

    name: str
    engine: str
    version: str | None
    durability: str
    primary: str | None
    connections: int | None
    max_connections: int | None
    standbys: int | None
    size_bytes: int | None


class DeletionReport(TypedDict):
    """Deleted sessions of which rows are left, and parts of tables with bytes of deleted ones, the oldest `since`.

    `log` is why the server's log of writes may keep bytes of them after a purge, None if it does not.
    """

    sessions: int
    partitions: int
    since: str | None
    log: str | None


class WorkersReport(TypedDict):
    """The workers of a store, and its servers, one unless the sessions are spread over several databases.

    `lag_ms` is how long the oldest commit of another worker, of which this one knows, has not been read here.
    """

    workers: list[WorkerReport]
    lag_ms: int
    orphans: OrphanReport
    servers: list[ServerReport]
    deletions: DeletionReport


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
    """Yield the parts of the configuration in which living servers differ, with those that are alike in it."""
    servers = [worker for worker in workers if worker["is_alive"] and worker["address"]]
    for part in dict.fromkeys(part for worker in servers for part in worker["configuration"]):
        places = dict[str, list[str]]()
        for worker in servers:
            if (digest := worker["configuration"].get(part)) is not None:
                places.setdefault(digest, []).append(f"process {worker['pid']} on {worker['host']}")
        if len(places) > 1:
            yield part, "; ".join(f"{', '.join(some)} ({digest})" for digest, some in places.items())
