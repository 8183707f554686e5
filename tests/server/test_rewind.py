"""Rewinding a session over HTTP: the conversation and the files that the agent changed, and undo."""

from __future__ import annotations

import os
import sqlite3
import zlib
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from agenticx import builtin_tools
from agenticx.llms import ScriptedModel
from agenticx.sessions.log.records import FileEdited, FileFact
from agenticx.testing import call, check_grammar, hang, say
from tests.support.server.conversations import log, messages, run_turn
from tests.support.server.running_studio import IN_A_FILE, RunningStudio, StudioMaker

pytestmark = pytest.mark.anyio

AGENT = {"permission_mode": "auto", "tools": builtin_tools()}


def write(path: str, content: str) -> Any:
    return call("file_write", {"path": path, "content": content})


async def rewind(studio: RunningStudio, session_id: str, message_id: str | None) -> dict[str, Any]:
    answer = await try_to_rewind(studio, session_id, message_id)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def try_to_rewind(studio: RunningStudio, session_id: str, message_id: str | None) -> httpx.Response:
    return await studio.client.post(f"/api/sessions/{session_id}/rewind", json={"message_id": message_id})


def outcomes(done: dict[str, Any]) -> dict[str, str]:
    return {file["path"]: file["outcome"] for file in done["files"]}


def files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


def ids(history: Sequence[dict[str, Any]]) -> list[str]:
    return [message["message_id"] for message in history]


def three_turns() -> ScriptedModel:
    edit = call("file_edit", {"path": "a.txt", "old_text": "first", "new_text": "second"})
    return ScriptedModel(
        [
            *([write("a.txt", "first\n"), write("deep/b.txt", "b\n")], "one done"),
            *([edit], "two done"),
            *([write("old.txt", "overwritten\n")], "three done"),
            *("four done", "five done"),
        ]
    )


async def test_a_rewind_restores_the_conversation_and_the_files_and_can_be_undone(
    make_studio: StudioMaker,
) -> None:
    model = three_turns()
    async with make_studio(model, **AGENT) as studio:
        (studio.workspace / "old.txt").write_text("the person's\n")
        (studio.workspace / "other.txt").write_text("nobody's business\n")
        session_id = await studio.session()
        await run_turn(studio, session_id, "alpha", "beta", "gamma")
        history, all_done = await messages(studio, session_id), files(studio.workspace)
        assert all_done == {
            "a.txt": "second\n",
            "deep/b.txt": "b\n",
            "old.txt": "overwritten\n",
            "other.txt": "nobody's business\n",
        }
        done_one = ids(history)[[message["content"] for message in history].index("one done")]
        done = await rewind(studio, session_id, done_one)
        assert done == {
            "rewound_to": done_one,
            "undo": {"message_id": history[-1]["message_id"]},
            "files": [
                {"path": "a.txt", "outcome": "restored", "reason": None},
                {"path": "old.txt", "outcome": "restored", "reason": None},
            ],
        }
        assert files(studio.workspace) == all_done | {"a.txt": "first\n", "old.txt": "the person's\n"}
        assert await messages(studio, session_id) == history[: ids(history).index(done_one) + 1]
        (frame,) = [event for event in await log(studio, session_id) if event["type"] == "session_changed"]
        assert (frame["data"], frame["turn_id"]) == ({"rewound_to": done_one}, None)
        check_grammar(await log(studio, session_id))
        found = [(await studio.client.get(f"/api/sessions?q={word}")).json()["sessions"] for word in ("alpha", "gamma")]
        assert [len(sessions) for sessions in found] == [1, 0]

        undone = await rewind(studio, session_id, **done["undo"])
        assert (outcomes(undone), undone["undo"]) == (
            {"a.txt": "restored", "old.txt": "restored"},
            {"message_id": done_one},
        )
        assert files(studio.workspace) == all_done
        assert await messages(studio, session_id) == history
        assert len((await studio.client.get("/api/sessions?q=gamma")).json()["sessions"]) == 1

        emptied = await rewind(studio, session_id, None)
        assert outcomes(emptied) == {"a.txt": "removed", "deep/b.txt": "removed", "old.txt": "restored"}
        assert files(studio.workspace) == {"old.txt": "the person's\n", "other.txt": "nobody's business\n"}
        assert await messages(studio, session_id) == []
        assert (await rewind(studio, session_id, None))["files"] == []
        await rewind(studio, session_id, history[0]["message_id"])
        assert await messages(studio, session_id) == history[:1]
        await run_turn(studio, session_id, "delta")
        assert [message["content"] for message in await messages(studio, session_id)] == ["alpha", "delta", "four done"]
        check_grammar(await log(studio, session_id))


async def test_the_model_gets_only_the_messages_of_the_current_branch(make_studio: StudioMaker) -> None:
    model = three_turns()
    async with make_studio(model, **AGENT) as studio:
        session_id = await studio.session()
        await run_turn(studio, session_id, "alpha", "beta", "gamma")
        history = await messages(studio, session_id)
        in_the_middle = next(place for place, message in enumerate(history) if message.get("tool_calls"))
        await rewind(studio, session_id, history[in_the_middle]["message_id"])
        assert files(studio.workspace) == {}
        await run_turn(studio, session_id, "delta")
        prompt = [
            (message.role, message.content) for message in model.requests[-1].messages if message.role != "system"
        ]
        never = "Cancelled: the conversation was taken back to a point before this call ran."
        assert prompt == [("user", "alpha"), ("assistant", ""), ("tool", never), ("tool", never), ("user", "delta")]
        await rewind(studio, session_id, history[-1]["message_id"])
        await run_turn(studio, session_id, "epsilon")
        prompt = [
            (message.role, message.content) for message in model.requests[-1].messages if message.role != "system"
        ]
        assert prompt[-3:] == [
            ("tool", "Created old.txt (12 bytes)."),
            ("assistant", "three done"),
            ("user", "epsilon"),
        ]


async def test_files_changed_by_others_are_reported_and_left_unchanged(make_studio: StudioMaker) -> None:
    names = ("changed", "gone", "same", "linked", "folder", "below/moved")
    model = ScriptedModel([[write(f"{name}.txt", "agent\n") for name in names], "done"])
    async with make_studio(model, **AGENT) as studio:
        (studio.workspace / "same.txt").write_text("before\n")
        session_id = await studio.session()
        await run_turn(studio, session_id, "go")
        (studio.workspace / "changed.txt").write_text("person\n")
        (studio.workspace / "gone.txt").unlink()
        outside = studio.workspace.parent / "outside.txt"
        outside.write_text("agent\n")
        (studio.workspace / "linked.txt").unlink()
        (studio.workspace / "linked.txt").symlink_to(outside)
        (studio.workspace / "folder.txt").unlink()
        (studio.workspace / "folder.txt").mkdir()
        elsewhere = studio.workspace.parent / "elsewhere"
        (studio.workspace / "below").rename(elsewhere)
        (studio.workspace / "below").symlink_to(elsewhere)
        done = await rewind(studio, session_id, None)
        assert outcomes(done) == {
            "changed.txt": "left",
            "gone.txt": "unchanged",
            "same.txt": "restored",
            "linked.txt": "left",
            "folder.txt": "left",
            "below/moved.txt": "left",
        }
        assert all((file["reason"] is not None) == (file["outcome"] == "left") for file in done["files"])
        assert (studio.workspace / "changed.txt").read_text() == "person\n"
        assert (studio.workspace / "same.txt").read_text() == "before\n"
        assert outside.read_text() == (elsewhere / "moved.txt").read_text() == "agent\n"
        undone = await rewind(studio, session_id, **done["undo"])
        assert outcomes(undone)["changed.txt"] == "left"
        assert (studio.workspace / "changed.txt").read_text() == "person\n"
        assert (studio.workspace / "same.txt").read_text() == "agent\n"


async def test_an_abandoned_branch_does_not_affect_the_current_one(make_studio: StudioMaker) -> None:
    contents = ["one\n", "two\n", "three\n"]
    script = [reply for content in contents for reply in ([write("a.txt", content)], f"wrote {content.strip()}")]
    async with make_studio(ScriptedModel(script), **AGENT) as studio:
        session_id = await studio.session()
        await run_turn(studio, session_id, "1", "2")
        two = (await messages(studio, session_id))[-1]["message_id"]
        one = (await messages(studio, session_id))[3]["message_id"]
        await rewind(studio, session_id, one)
        await run_turn(studio, session_id, "3")
        three = (await messages(studio, session_id))[-1]["message_id"]
        assert [message["content"] for message in await messages(studio, session_id) if message["role"] == "user"] == [
            "1",
            "3",
        ]
        for target, content in ((two, "two\n"), (three, "three\n"), (one, "one\n"), (two, "two\n")):
            assert outcomes(await rewind(studio, session_id, target)) == {"a.txt": "restored"}
            assert (studio.workspace / "a.txt").read_text() == content
        made = await studio.client.post(f"/api/sessions/{session_id}/fork", json={})
        events = await log(studio, made.json()["id"])
        check_grammar(events)
        assert await messages(studio, made.json()["id"]) == await messages(studio, session_id)
        assert [event["data"]["input"] for event in events if event["type"] == "turn_started"] == ["1", "2"]


@pytest.mark.ci_lane
async def test_a_fork_can_undo_only_changes_made_before_it(
    make_studio: StudioMaker,
) -> None:
    async with make_studio(three_turns(), **AGENT) as studio:
        session_id = await studio.session()
        await run_turn(studio, session_id, "alpha", "beta")
        made = (await studio.client.post(f"/api/sessions/{session_id}/fork", json={})).json()["id"]
        await run_turn(studio, session_id, "gamma")
        early = (await messages(studio, session_id))[3]["message_id"]
        at_one = await studio.client.post(f"/api/sessions/{session_id}/fork", json={"message_id": early})
        await studio.client.delete(f"/api/sessions/{session_id}")
        done = await rewind(studio, made, None)
        assert outcomes(done) == {"a.txt": "removed", "deep/b.txt": "removed"}
        assert files(studio.workspace) == {"old.txt": "overwritten\n"}
        assert outcomes(await rewind(studio, made, **done["undo"])) == {"a.txt": "restored", "deep/b.txt": "restored"}
        assert (studio.workspace / "a.txt").read_text() == "second\n"
        edits = [
            [fact.path for fact in await studio.services.store.log.facts(id_, FileFact) if isinstance(fact, FileEdited)]
            for id_ in (at_one.json()["id"], made)
        ]
        a, b = str(studio.workspace / "a.txt"), str(studio.workspace / "deep" / "b.txt")
        assert edits == [[a, b], [a, b, a]]
        kept = [path for path in (studio.services.settings.home / "snapshots").rglob("*") if path.is_file()]
        overwritten = zlib.compress(b"overwritten\n", 1)
        assert overwritten not in [path.read_bytes() for path in kept]
        assert {path.stat().st_mode & 0o777 for path in kept} == {0o600}


async def test_a_running_turn_is_not_rewound_and_unknown_messages_are_not_found(make_studio: StudioMaker) -> None:
    async with make_studio(ScriptedModel([[say("a"), hang()]]), **AGENT) as studio:
        session_id = await studio.session()
        await studio.turn(session_id)
        busy = await try_to_rewind(studio, session_id, None)
        assert (busy.status_code, busy.json()["code"]) == (409, "session_busy")
        await studio.client.post(f"/api/sessions/{session_id}/stop")
        await studio.events_until(session_id, "error")
        before = await log(studio, session_id)
        unknown = await try_to_rewind(studio, session_id, "msg_x")
        assert (unknown.status_code, unknown.json()["code"]) == (404, "message_not_found")
        empty = await studio.client.post(f"/api/sessions/{session_id}/rewind", json={})
        assert (empty.status_code, empty.json()["field"]) == (422, "message_id")
        assert await log(studio, session_id) == before
        assert (await try_to_rewind(studio, session_id, None)).status_code == 200


async def test_a_rewind_persists_over_a_restart_and_a_deleted_session_leaves_no_snapshot(
    make_studio: StudioMaker,
) -> None:
    async with make_studio(three_turns(), **AGENT) as studio:
        session_id = await studio.session()
        await run_turn(studio, session_id, "alpha", "beta", "gamma")
        history = await messages(studio, session_id)
        await rewind(studio, session_id, history[4]["message_id"])
    model = ScriptedModel(["again"])
    async with make_studio(model, **AGENT) as studio:
        assert await messages(studio, session_id) == history[:5]
        await run_turn(studio, session_id, "delta")
        assert [message.content for message in model.requests[-1].messages if message.role == "user"] == [
            "alpha",
            "delta",
        ]
        done = await rewind(studio, session_id, history[-1]["message_id"])
        assert outcomes(done) == {"a.txt": "restored", "old.txt": "restored"}
        snapshots = studio.services.settings.home / "snapshots"
        kept = [path for path in snapshots.rglob("*") if path.is_file()]
        assert {path.stat().st_mode & 0o777 for path in kept} == {0o600}
        assert {path.stat().st_mode & 0o777 for path in (snapshots, *snapshots.iterdir())} == {0o700}
        assert (await studio.client.delete(f"/api/sessions/{session_id}")).status_code == 204
        assert list(snapshots.iterdir()) == []
        assert (studio.workspace / "a.txt").read_text() == "second\n"


@IN_A_FILE
async def test_a_damaged_list_of_changes_is_503_and_changes_no_file(
    make_studio: StudioMaker,
) -> None:
    async with make_studio(three_turns(), **AGENT) as studio:
        session_id = await studio.session()
        await run_turn(studio, session_id, "alpha", "beta", "gamma")
        history, there = await messages(studio, session_id), files(studio.workspace)
        home = studio.services.settings.home
        with closing(sqlite3.connect(home / "sessions.db", isolation_level=None)) as database:
            damage = (
                "UPDATE records SET data = substr(data, 9) WHERE rev = (SELECT max(rev) FROM records WHERE kind = ?1)"
                " AND kind = ?1"
            )
            assert database.execute(damage, ("file_edited",)).rowcount == 1
        refused = await try_to_rewind(studio, session_id, history[0]["message_id"])
        assert (refused.status_code, refused.json()["code"]) == (503, "storage")
        assert "damaged" in refused.json()["detail"]
        assert (await messages(studio, session_id), files(studio.workspace)) == (history, there)
        assert (await rewind(studio, session_id, history[-2]["message_id"]))["files"] == []
        await run_turn(studio, session_id, "delta")
        made = await studio.client.post(f"/api/sessions/{session_id}/fork", json={})
        assert (await try_to_rewind(studio, made.json()["id"], None)).status_code == 503
        assert files(studio.workspace) == there
        assert (await studio.client.delete(f"/api/sessions/{session_id}")).status_code == 204
        assert list((home / "snapshots").iterdir()) == []


async def test_names_with_hidden_characters_and_bytes_are_shown_in_questions_and_rewinds(
    make_studio: StudioMaker,
) -> None:
    names = ["Shot 10.00\u202fAM.txt", os.fsdecode(b"caf\xe9.txt")]
    given, shown = ["Shot 10.00 AM.txt", "caf⟨U+DCE9⟩.txt"], ["Shot 10.00⟨U+202F⟩AM.txt", "caf⟨U+DCE9⟩.txt"]
    model = ScriptedModel([[*(write(name, "new") for name in given)], "done"])
    async with make_studio(model, tools=builtin_tools()) as studio:
        for name in names:
            (studio.workspace / name).write_text("old")
        session_id = await studio.session()
        cursor = (await studio.turn(session_id, "write them")).json()["cursor"]
        for name in shown:
            frame = (await studio.events_until(session_id, "confirm_required", cursor=cursor))[-1]
            question, cursor = frame.data["data"], frame.id
            assert (question["question"], question["context"]["path"]) == (f"Overwrite {name}?", name)
            answer = {"digest": question["digest"], "approved": True}
            assert (await studio.client.post(f"/api/confirms/{question['id']}", json=answer)).status_code == 200
        await studio.events_until(session_id, "final", cursor=cursor)
        assert files(studio.workspace) == dict.fromkeys(names, "new")
        assert outcomes(await rewind(studio, session_id, None)) == dict.fromkeys(shown, "restored")
        assert files(studio.workspace) == dict.fromkeys(names, "old")
