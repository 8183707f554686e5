"""The files that the agent changed in a session, with their diffs, over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from agenticx.assembly import default_tools
from agenticx.llms import ScriptedModel
from agenticx.testing import call
from tests.support.server.running_studio import StudioMaker

pytestmark = pytest.mark.anyio


async def test_changed_files_are_listed_with_diffs_for_the_session_and_for_a_turn(make_studio: StudioMaker) -> None:
    model = ScriptedModel(
        [
            call("file_write", {"path": "a.py", "content": "one\ntwo\n"}, id="call_1"),
            call("file_write", {"path": "long.txt", "content": "a\n" * 7_000}, id="call_2"),
            call("file_write", {"path": "same.txt", "content": "new\n"}, id="call_3"),
            "Made.",
            call("file_edit", {"path": "a.py", "old_text": "two", "new_text": "zwei"}, id="call_4"),
            call("file_write", {"path": "same.txt", "content": "old\n"}, id="call_5"),
            "Changed.",
            call("file_edit", {"path": "a.py", "old_text": "one", "new_text": "eins"}, id="call_6"),
            "Rewound.",
        ]
    )
    async with make_studio(model, tools=default_tools(), permission_mode="auto") as studio:
        (studio.workspace / "same.txt").write_text("old\n")
        session_id, turns = await studio.session(), list[dict[str, Any]]()
        path = f"/api/sessions/{session_id}"
        for text in ("make", "change", "change again"):
            turns.append((await studio.turn(session_id, text)).json())
            await studio.events_until(session_id, "final", cursor=turns[-1]["cursor"])

        async def files(query: str = "") -> list[tuple[Any, ...]]:
            answer = (await studio.client.get(f"{path}/changes{query}")).json()
            return [(one["path"], one["added"], one["removed"], one["tool_call_ids"]) for one in answer["files"]]

        assert await files() == [("a.py", 2, 0, ["call_1", "call_4", "call_6"]), ("long.txt", 7_000, 0, ["call_2"])]
        assert await files(f"?turn_id={turns[1]['turn_id']}") == [
            ("same.txt", 1, 1, ["call_5"]),
            ("a.py", 1, 1, ["call_4"]),
        ]
        messages = (await studio.client.get(f"{path}/messages")).json()["messages"]
        last = next(one for one in messages if one["content"] == "Changed.")
        await studio.client.post(f"{path}/rewind", json={"message_id": last["message_id"]})
        answer = (await studio.client.get(f"{path}/changes?limit=1")).json()
        assert answer == {
            "files": [
                {
                    "path": "a.py",
                    "created": True,
                    "added": 2,
                    "removed": 0,
                    "diff": "--- a.py\n+++ a.py\n@@ -0,0 +1,2 @@\n+one\n+zwei",
                    "diff_cut": False,
                    "unchanged_below": 0,
                    "before": None,
                    "tool_call_ids": ["call_1", "call_4"],
                }
            ],
            "has_more": True,
        }
        (whole,) = (await studio.client.get(f"{path}/changes?path=long.txt")).json()["files"]
        assert (len(whole["diff"].splitlines()), whole["diff_cut"], whole["before"]) == (7_003, False, "")
        (one,) = (await studio.client.get(f"{path}/changes?tool_call_id=call_4")).json()["files"]
        assert (one["before"], one["tool_call_ids"]) == ("one\ntwo\n", ["call_4"])
        (cut,) = [one for one in (await studio.client.get(f"{path}/changes")).json()["files"] if one["diff_cut"]]
        assert (cut["path"], len(cut["diff"]) < 21_000) == ("long.txt", True)
        unknown = await studio.client.get(f"{path}/changes?turn_id=turn_x")
        assert (unknown.status_code, unknown.json()["code"]) == (404, "turn_not_found")
        assert await files("?tool_call_id=call_6") == []  # the rewind has undone it
        turn = turns[0]["turn_id"]
        for query, named in {"call_x": "'call_x'", f"call_4&turn_id={turn}": f"turn {turn!r}"}.items():
            unknown = await studio.client.get(f"{path}/changes?tool_call_id={query}")
            assert (unknown.status_code, unknown.json()["code"]) == (404, "call_not_found")
            assert named in unknown.json()["detail"]
            assert "tool_call" in unknown.json()["hint"]
