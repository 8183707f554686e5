"""Pages of the stored events of a session, beside its stream."""

from __future__ import annotations

from typing import Any

import pytest

from agenticx.runtime import EventType, RuntimeEvent
from tests.support.commits import append
from tests.support.server.running_studio import StudioMaker, until

pytestmark = pytest.mark.anyio


async def test_the_events_of_a_session_are_read_by_pages_from_its_end_and_a_stream_goes_on_behind_them(
    make_studio: StudioMaker,
) -> None:
    async with make_studio() as studio:
        session_id = await studio.session()
        token = RuntimeEvent(EventType.TOKEN, {"text": "word ", "message_id": "msg_a", "offset": 0})
        await append(studio.services.store, session_id, None, [token] * 1200)
        path, pages = f"/api/sessions/{session_id}/events", list[dict[str, Any]]()
        while not pages or pages[-1]["has_more"]:
            query = f"?until={pages[-1]['before']}" if pages else "?limit=500"
            pages.append((await studio.client.get(path + query)).json())
        numbers = [[event["seq"] for event in page["events"]] for page in pages]
        assert numbers == [[*range(701, 1201)], [*range(201, 701)], [*range(1, 201)]]

        later = (await studio.client.get(f"{path}?from={pages[2]['cursor']}&limit=2")).json()
        assert ([event["seq"] for event in later["events"]], later["has_more"]) == ([201, 202], True)
        both = f"from={pages[1]['before']}&until={later['cursor']}"
        inner = (await studio.client.get(f"{path}?{both}")).json()
        assert ([event["seq"] for event in inner["events"]], inner["has_more"]) == ([201, 202], False)
        none = (await studio.client.get(f"{path}?limit=9&types=final")).json()
        assert (none["events"], none["has_more"]) == ([], True)

        await append(studio.services.store, session_id, None, [token])
        async with studio.events(session_id, cursor=pages[0]["cursor"]) as frames:
            (frame,) = await until(frames, "token")
        page = (await studio.client.get(f"{path}?from={pages[0]['cursor']}")).json()
        assert ([event["seq"] for event in page["events"]], page["cursor"]) == ([1201], frame.id)
        other = await studio.session()
        assert (await studio.client.get(f"/api/sessions/{other}/events?limit=1")).json()["events"] == []
        refused = await studio.client.get(f"/api/sessions/{other}/events?from={frame.id}")
        assert (refused.status_code, refused.json()["code"]) == (422, "bad_cursor")


async def test_a_page_of_large_events_is_cut_before_its_size_is_a_burden(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        session_id = await studio.session()
        path = f"/api/sessions/{session_id}/events"
        start = (await studio.client.get(f"{path}?limit=1")).json()["cursor"]
        token = RuntimeEvent(EventType.TOKEN, {"text": "x" * 1_500_000, "message_id": "msg_a", "offset": 0})
        await append(studio.services.store, session_id, None, [token] * 5)
        last = (await studio.client.get(f"{path}?limit=5")).json()
        first = (await studio.client.get(f"{path}?from={start}")).json()
        assert [[event["seq"] for event in page["events"]] for page in (last, first)] == [[4, 5], [1, 2]]
        assert (last["has_more"], first["has_more"]) == (True, True)
