"""The notes, questions and cases of the folder that AGX_KNOWLEDGE names."""

from __future__ import annotations

import base64
import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest

__all__ = ["knowledge_folder", "knowledge_rows", "write_odd_vault"]

_MISSING = "no notes and questions: set AGX_KNOWLEDGE to the folder that has vault_questions.jsonl"


@cache
def _folder() -> Path | None:
    given = os.environ.get("AGX_KNOWLEDGE")
    found = Path(given) if given else Path(__file__).parents[3] / "../shared/data/knowledge"
    return found if (found / "vault_questions.jsonl").is_file() else None


def knowledge_folder() -> Path:
    """Return the folder; skip the test if there is none."""
    return _folder() or pytest.skip(_MISSING)


def knowledge_rows(name: str) -> list[Any]:
    """Return the rows of a file of the folder, JSON or one JSON value per line; skip the test without it."""
    text = (knowledge_folder() / name).read_text(encoding="utf-8")
    if not name.endswith(".jsonl"):
        return json.loads(text)
    return [json.loads(line) for line in text.split("\n") if line]  # a string may hold U+2028, a line end of splitlines


def write_odd_vault(root: Path) -> list[dict[str, Any]]:
    """Write the vault of `odd_vault.json` below `root` and return its rows."""
    rows = knowledge_rows("odd_vault.json")
    for row in rows:
        path = root / row["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        if "symlink_to" in row:
            path.symlink_to(row["symlink_to"])
        elif row.get("fifo"):
            os.mkfifo(path)
        elif "base64" in row:
            path.write_bytes(base64.b64decode(row["base64"]))
        else:
            path.write_bytes((row["text"] * row.get("repeat", 1)).encode())
    return rows
