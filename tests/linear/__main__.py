"""The program `python -m tests.linear`: it measures the functions of the table at 1 MB and 2 MB.

It takes three minutes: a megabyte of adversarial input for each function that processes output of a model, a tool or a
file. With `--server` it sends the same through a running server, and prints how quickly `/api/health` answers then.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import statistics
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from studio.server import freeze_startup_memory
from tests.linear.measure import MAX_HOLD, MAX_RATIO, MEGABYTE, Measurement, measure
from tests.linear.server import REPLIES, wait_during
from tests.linear.table import CASES

__all__ = ["main"]


def main() -> None:
    """Measure and print the functions that the arguments select; the exit code is always 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.linear", description=__doc__)
    parser.add_argument("names", nargs="*", help="measure only functions whose names have one of these in them")
    parser.add_argument("--server", action="store_true", help="measure a running server instead")
    arguments = parser.parse_args()
    if arguments.server:
        asyncio.run(_serve())
        return
    names = arguments.names
    chosen = [case for case in CASES if not names or any(name in case.name for name in names)]
    began = time.monotonic()
    freeze_startup_memory()
    logging.disable()
    done: list[Measurement] = []
    print(_line(("", "where", "ms for 1 MB", "held, ms", "2n / n", "", "costliest input", "steepest input")))
    for case in chosen:
        done.append(measure(case))
        print(_row(done[-1]), flush=True)
    print("\n".join(_summary(done, time.monotonic() - began)))


async def _serve() -> None:
    """Print how quickly a server answers while its model writes a megabyte."""
    print(f"{'a megabyte of …':32} {'answers':>8} {'median, ms':>11} {'longest, ms':>12} {'of CPU, ms':>11}  outcomes")
    longest = cpu = 0.0
    with tempfile.TemporaryDirectory() as folder:
        async for waits in wait_during(Path(folder) / "home", list(REPLIES), MEGABYTE):
            longest, cpu = max(longest, *waits.seconds), max(cpu, *waits.cpu)
            figures = (statistics.median(waits.seconds), max(waits.seconds), max(waits.cpu))
            shown = " ".join(f"{1000 * figure:{width}.1f}" for figure, width in zip(figures, (11, 12, 11), strict=True))
            print(f"{waits.name:32} {len(waits.seconds):8} {shown}  {', '.join(waits.outcomes)}", flush=True)
    print(f"\n/api/health answered within {longest * 1000:.0f} ms ({cpu * 1000:.0f} ms of the server's CPU time)")


def _row(one: Measurement) -> str:
    about = "~" if one.estimated else ""
    ratio = "–" if one.ratio is None else f"{one.ratio:.2f}"
    verdict = "MISSED" if one.missed else ""
    cells = (one.case.name, one.case.where, f"{about}{one.seconds * 1000:.1f}", f"{about}{one.hold * 1000:.1f}")
    return _line((*cells, ratio, verdict, one.family, one.steepest if one.ratio else ""))


def _line(cells: Iterable[str]) -> str:
    widths = (58, 8, 12, 10, 7, 7, 34, 0)
    return " ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _summary(done: list[Measurement], seconds: float) -> Iterable[str]:
    missed = [one for one in done if one.missed]
    budgets = f"{MAX_HOLD * 1000:.0f} ms, {MAX_RATIO} ×"
    yield f"\n{len(done)} functions, {len(missed)} over a budget ({budgets}); {seconds:.0f} s"
    served = [one for one in done if one.case.where != "program"]
    if served:
        longest = max(served, key=lambda one: one.hold)
        yield f"longest hold of the event loop by a megabyte: {longest.hold * 1000:.0f} ms ({longest.case.name})"


if __name__ == "__main__":
    main()
