"""The details for clients in the result of a tool, and in the question about a call."""

from __future__ import annotations

from typing import Any

import pytest

from agenticx.assembly import default_tools
from agenticx.llms import ScriptedModel
from agenticx.testing import call
from tests.support.server.running_studio import StudioMaker

pytestmark = pytest.mark.anyio


async def test_results_of_file_tools_and_commands_say_what_they_did(make_studio: StudioMaker) -> None:
    model = ScriptedModel(
        [
            call("file_write", {"path": "a.py", "content": "one\ntwo\n"}),
            call("file_edit", {"path": "a.py", "old_text": "two", "new_text": "zwei\ndrei"}),
            call("file_read", {"path": "a.py", "offset": 2}),
            call("bash_exec", {"command": "exit 3"}),
            call("bash_exec", {"command": "kill -9 $$"}),
            call("file_write", {"path": "long.txt", "content": "line\n" * 9_000}),
            call("file_read", {"path": "none"}),
            "Done.",
        ]
    )
    async with make_studio(model, tools=default_tools(), permission_mode="auto", sandbox="off") as studio:
        session_id = await studio.session()
        await studio.turn(session_id)
        frames = await studio.events_until(session_id, "final")
        cwd = str(studio.workspace.resolve())
    results: list[Any] = [frame.data["data"].get("data") for frame in frames if frame.type == "tool_result"]
    long = results[5]
    assert results == [
        {
            "kind": "edit",
            "path": "a.py",
            "diff": "--- a.py\n+++ a.py\n@@ -0,0 +1,2 @@\n+one\n+two",
            "added": 2,
            "removed": 0,
            "diff_cut": False,
            "unchanged_below": 0,
        },
        {
            "kind": "edit",
            "path": "a.py",
            "diff": "--- a.py\n+++ a.py\n@@ -1,2 +1,3 @@\n one\n-two\n+zwei\n+drei",
            "added": 2,
            "removed": 1,
            "diff_cut": False,
            "unchanged_below": 0,
        },
        {"kind": "read", "path": "a.py", "line_start": 2, "lines": 2},
        {"kind": "command", "exit_code": 3, "cwd": cwd},
        {"kind": "command", "exit_code": None, "cwd": cwd},
        long,
        None,
    ]
    assert (long["added"], long["removed"], long["diff_cut"], len(long["diff"]) < 21_000) == (9_000, 0, True, True)


async def test_a_confirmation_names_the_folder_of_a_command_and_says_that_its_diff_is_cut(
    make_studio: StudioMaker,
) -> None:
    calls = [
        call("bash_exec", {"command": "touch x"}),
        call("file_write", {"path": "long.txt", "content": "line\n" * 9_000}),
    ]
    async with make_studio(ScriptedModel([*calls, "Done."]), tools=default_tools(), sandbox="off") as studio:
        session_id, contexts, wholes = await studio.session(), list[dict[str, Any]](), list[dict[str, Any]]()
        cursor = (await studio.turn(session_id)).json()["cursor"]
        for _ in calls:
            frames = await studio.events_until(session_id, "confirm_required", cursor=cursor)
            asked, cursor = frames[-1].data["data"], frames[-1].id
            contexts.append(asked["context"])
            wholes.append((await studio.client.get(f"/api/confirms/{asked['id']}/diff")).json())
            yes = {"approved": True, "digest": asked["digest"]}
            await studio.client.post(f"/api/confirms/{asked['id']}", json=yes)
        await studio.events_until(session_id, "final", cursor=cursor)
        late = await studio.client.get(f"/api/confirms/{asked['id']}/diff")
        assert (late.status_code, late.json()["code"]) == (410, "confirm_closed")
        cwd = str(studio.workspace.resolve())
    assert (wholes[0], len(wholes[1].pop("diff").splitlines())) == (
        {"path": None, "diff": None, "diff_cut": False},
        9_003,
    )
    assert wholes[1] == {"path": "long.txt", "diff_cut": False}
    shown = [(context.get("cwd"), context.get("diff_cut")) for context in contexts]
    assert shown == [(cwd, None), (None, True)]
