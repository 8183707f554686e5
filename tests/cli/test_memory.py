"""`agx memory`: entries listed and removed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agenticx.knowledge import UserMemory


def test_entries_are_listed_and_removed(agx: Any, tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert agx("memory", "list").stderr == "agx memory: nothing is remembered\n"
    tea, _ = UserMemory(home).save("Likes tea.\nAnd cats.", saved_at="2026-01-02T00:00:00.000Z", session_id="ses_1")
    cat, _ = UserMemory(home).save("Has a cat.", saved_at="2026-01-03T00:00:00.000Z")
    assert agx("memory").stdout == (
        f"{tea.id}  2026-01-02  Likes tea.⟨U+000A⟩And cats.\n{cat.id}  2026-01-03  Has a cat.\n"
    )
    row = {"id": tea.id, "text": "Likes tea.\nAnd cats.", "saved_at": "2026-01-02T00:00:00.000Z", "session_id": "ses_1"}
    removed = agx("memory", "remove", tea.id, "--json")
    assert (removed.returncode, json.loads(removed.stdout)) == (0, row)
    assert [json.loads(line)["id"] for line in agx("memory", "list", "--json").stdout.splitlines()] == [cat.id]
    unknown = agx("memory", "remove", tea.id)
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert unknown.stderr == f"agx: the memory has no entry '{tea.id}'; `agx memory list` shows those that it has\n"

    (home / "memory.jsonl").write_text("{\n")
    damaged = agx("memory", "list")
    assert (damaged.returncode, damaged.stdout) == (1, "")
    assert "memory.jsonl' is damaged: line 1 is no JSON; repair that line, or delete the file\n" in damaged.stderr
