"""The memory over HTTP: entries are listed and removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from agenticx.knowledge.memory import UserMemory
from tests.support.server.running_studio import StudioMaker

pytestmark = pytest.mark.anyio


async def test_entries_are_listed_and_removed(make_studio: StudioMaker, tmp_path: Path) -> None:
    async with make_studio() as studio:
        file = tmp_path / "home/memory.jsonl"
        assert (await studio.client.get("/api/memory")).json() == {"entries": []}
        entry, _ = UserMemory(file.parent).save("Likes tea.", saved_at="2026-01-02T00:00:00.000Z", session_id="ses_1")
        row = {"id": entry.id, "text": "Likes tea.", "saved_at": "2026-01-02T00:00:00.000Z", "session_id": "ses_1"}
        assert (await studio.client.get("/api/memory")).json() == {"entries": [row]}
        removing = f"/api/memory/{entry.id}"
        assert (await studio.client.delete(removing)).status_code == 204
        again = await studio.client.delete(removing)
        assert (again.status_code, again.json()["code"], file.read_bytes()) == (404, "memory_not_found", b"")
        file.write_text("damaged")
        for answer in (await studio.client.get("/api/memory"), await studio.client.delete(removing)):
            assert (answer.status_code, answer.json()["code"]) == (503, "memory_unusable")
