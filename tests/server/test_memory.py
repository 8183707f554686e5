"""The memory over HTTP: entries are listed and removed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agenticx.knowledge import UserMemory
from tests.support.server.running_studio import IN_A_FILE, StudioMaker

pytestmark = [pytest.mark.anyio, pytest.mark.shares_secrets]


async def test_entries_are_listed_and_removed(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        assert (await studio.client.get("/api/memory")).json() == {"entries": []}
        save = studio.services.notes.memory.save
        entry, _ = await asyncio.to_thread(save, "Likes tea.", saved_at="2026-01-02T00:00:00.000Z", session_id="ses_1")
        row = {"id": entry.id, "text": "Likes tea.", "saved_at": "2026-01-02T00:00:00.000Z", "session_id": "ses_1"}
        assert (await studio.client.get("/api/memory")).json() == {"entries": [row]}
        removing = f"/api/memory/{entry.id}"
        assert (await studio.client.delete(removing)).status_code == 204
        again = await studio.client.delete(removing)
        assert (again.status_code, again.json()["code"]) == (404, "memory_not_found")
        assert (await studio.client.get("/api/memory")).json() == {"entries": []}


@IN_A_FILE
async def test_a_damaged_file_cannot_be_read_or_changed(make_studio: StudioMaker, tmp_path: Path) -> None:
    async with make_studio() as studio:
        file = tmp_path / "home/memory.jsonl"
        entry, _ = UserMemory(file.parent).save("Likes tea.", saved_at="2026-01-02T00:00:00.000Z")
        removing = f"/api/memory/{entry.id}"
        assert (await studio.client.delete(removing)).status_code == 204
        assert file.read_bytes() == b""
        file.write_text("damaged")
        for answer in (await studio.client.get("/api/memory"), await studio.client.delete(removing)):
            assert (answer.status_code, answer.json()["code"]) == (503, "memory_unusable")
