"""`agx store check`, which compares what is made of the logs of sessions with them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any


def test_a_store_is_compared_with_its_logs(agx: Any, tmp_path: Path) -> None:
    database = tmp_path / "home" / "sessions.db"
    missing = agx("store", "check")
    assert (missing.returncode, missing.stdout) == (0, f"{database} is created on first use\n")
    assert agx("run", "hi").returncode == 0
    same = agx("store", "check")
    assert (same.returncode, same.stdout, same.stderr) == (0, f"{database} agrees with its logs\n", "")
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        (session_id,) = connection.execute("SELECT id FROM sessions").fetchone()
        connection.execute("UPDATE usage SET calls = 7")
    other = agx("store", "check")
    assert (other.returncode, other.stdout) == (1, f"session '{session_id}' differs from its log in its usage\n")
