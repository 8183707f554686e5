"""A client process that polls a server's health and reports the latencies.

    python -m tests.linear.polling PORT PID

Each line of standard input ends an interval; for each, one line of JSON is printed: the seconds that each response
took, and the CPU seconds that all threads of the server used meanwhile. Those do not grow when the machine is busy.
"""

from __future__ import annotations

import http.client
import json
import select
import sys
import time
from pathlib import Path

__all__ = ["MEASURED", "cpu_seconds"]

MEASURED = Path("/proc/self/schedstat").exists()
"""True if this system reports CPU time in nanoseconds."""

_PAUSE = 0.005


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of all threads of a process."""
    used = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            used += int((task / "schedstat").read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):  # the thread has ended meanwhile
            continue
    return used / 1e9


def main() -> None:
    port, pid = int(sys.argv[1]), int(sys.argv[2])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    waits: list[tuple[float, float]] = []
    while True:
        began, used = time.monotonic(), cpu_seconds(pid) if MEASURED else 0.0
        connection.request("GET", "/api/health")
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise SystemExit(f"/api/health answered {answer.status}")
        waits.append((time.monotonic() - began, (cpu_seconds(pid) if MEASURED else 0.0) - used))
        if select.select([sys.stdin], [], [], _PAUSE)[0]:
            if not sys.stdin.readline():
                return
            print(json.dumps(waits), flush=True)
            waits = []


if __name__ == "__main__":
    main()
