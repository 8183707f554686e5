"""Compiled modules of tests: where they are stored, and that the workers of pytest-xdist compile each of them once."""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest

FORBIDDEN = "PYTHONDONTWRITEBYTECODE"


def keep_aside(folder: Path) -> None:
    """Store compiled modules in `folder`, in child processes too, if PYTHONDONTWRITEBYTECODE is set.

    Without it each process would compile all modules again.
    """
    if sys.dont_write_bytecode:
        os.environ.pop(FORBIDDEN, None)
        os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = str(folder)
        sys.dont_write_bytecode = False


def import_share(folder: Path) -> None:
    """Import this worker's share of the test modules in `folder`, so that the workers compile different ones.

    Workers import all test modules when they collect, in the same order. In a fresh clone each would compile all of
    them, since none is a step ahead of the others.
    """
    worker, workers = os.environ.get("PYTEST_XDIST_WORKER", ""), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if not worker:
        return
    paths = sorted(folder.rglob("test_*.py"))
    for path in paths[int(worker.removeprefix("gw")) :: workers]:
        with suppress(Exception, pytest.skip.Exception):  # the collection reports it
            importlib.import_module(".".join(path.relative_to(folder.parent).with_suffix("").parts))
