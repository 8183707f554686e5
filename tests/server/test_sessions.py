"""Sessions, their messages, and the tools and models they can use, over HTTP."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import Any

import pytest

from agenticx import __version__
from agenticx.llms import ScriptedModel
from agenticx.runtime import EventType, RuntimeEvent
from agenticx.sessions import SessionRecord
from agenticx.testing import call, hang, say
from tests.support.commits import append
from tests.support.server.running_studio import RunningStudio, StudioMaker
from tests.support.timeouts import longest_hold

pytestmark = pytest.mark.anyio


async def test_a_session_is_created_from_the_request_and_the_settings(make_studio: StudioMaker) -> None:
    async with make_studio(enabled_tools=["note"], permission_mode="accept_edits") as studio:
        answer = await studio.client.post("/api/sessions", json={"name": "Mine"})
        session = answer.json()
        assert answer.status_code == 201
        assert answer.headers["location"] == f"/api/sessions/{session['id']}"
        assert session["updated_at"] == session["created_at"]
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", session.pop("created_at"))
        assert session == {
            "id": session["id"],
            "name": "Mine",
            "model": None,
            "permission_mode": "accept_edits",
            "workspace": str(studio.workspace.resolve()),
            "tools": ["note"],
            "vaults": None,
            "team": None,
            "system_prompt": None,
            "agent": None,
            "pinned": False,
            "archived": False,
            "forked_from": None,
            "updated_at": session["updated_at"],
            "state": "idle",
            "waiting": 0,
            "running_turn_id": None,
            "running_since": None,
            "last_outcome": None,
            "cost_usd": None,
        }
        bare = await studio.client.post("/api/sessions")
        assert (bare.status_code, bare.json()["name"]) == (201, None)


async def test_a_repeated_creation_returns_the_session_that_the_first_one_made(make_studio: StudioMaker) -> None:
    async with make_studio(ScriptedModel([hang()])) as studio:
        body = {"name": "Mine", "client_session_id": "c1"}
        answers = await asyncio.gather(*(studio.client.post("/api/sessions", json=body) for _ in range(5)))
        first = answers[0].json()
        assert [(answer.status_code, answer.json()) for answer in answers] == [(201, first)] * 5
        assert answers[4].headers["location"] == f"/api/sessions/{first['id']}"
        await studio.client.patch(f"/api/sessions/{first['id']}", json={"name": "Renamed"})
        turn_id = (await studio.turn(first["id"])).json()["turn_id"]
        again = (await studio.client.post("/api/sessions", json=body)).json()
        now = (await studio.client.get(f"/api/sessions/{first['id']}")).json()
        started = (await studio.events_until(first["id"], "turn_started"))[-1].data["ts"]
        assert (now["running_since"], first["running_since"]) == (started, None)
        assert again == now | {"updated_at": again["updated_at"]}  # the turn goes on between the two
        assert (again["id"], again["name"], again["running_turn_id"]) == (first["id"], "Renamed", turn_id)
        assert len((await studio.client.get("/api/sessions")).json()["sessions"]) == 1
        other = await studio.client.post("/api/sessions", json=body | {"client_session_id": "c2"})
        assert other.json()["id"] != first["id"]
        await studio.client.delete(f"/api/sessions/{first['id']}")
        made = await studio.client.post("/api/sessions", json=body)
        assert (made.status_code, made.json()["name"], made.json()["state"]) == (201, "Mine", "idle")
        empty = await studio.client.post("/api/sessions", json={"client_session_id": ""})
        assert (empty.status_code, empty.json()["field"]) == (422, "client_session_id")


async def test_invalid_fields_of_a_session_are_422_with_a_sentence(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        (studio.workspace / "file").write_text("x")
        circle = studio.workspace / "circle"
        circle.symlink_to(circle)
        for field, value, words in (
            ("tools", ["note", "nope"], "unknown tool 'nope'; known tools: note"),
            ("name", "", "'name': a name must have a visible character; null means no name."),
            ("name", " \t\u3000\u200b\n", "'name': a name must have a visible character; null means no name."),
            ("name", "x" * 201, "at most 200 characters"),
            ("model", "nonsense", "'nonsense' is not provider:name"),
            ("model", "nobody:x", "unknown provider 'nobody'"),
            ("team", "nope", "unknown team 'nope'; known teams: review, triage, writer-critic"),
            ("team", "a\0", r"unknown team 'a\x00'; known teams: review, triage, writer-critic"),
            ("team", "../a", "unknown team '../a'"),
            ("agent", "a\0", "agent must not contain the character NUL"),
            ("model", "a\0", "model must not contain the character NUL"),
            ("permission_mode", "yolo", "'default', 'accept_edits', 'plan' or 'auto'"),
            ("workspace", "relative", "is not a folder"),
            ("workspace", str(studio.workspace / "missing"), "is not a folder"),
            ("workspace", str(studio.workspace / "file"), "is not a folder"),
            ("workspace", "/tmp/\0", "is not a folder"),
            ("workspace", "/" + "a" * 300, "is not a folder"),
            ("workspace", str(circle), "is not a folder"),
            ("tools", ["note"] * 501, "at most 500 items"),
            ("system_prompt", "", "must have 1 to 65536 bytes, not 0; null is the usual one"),
            ("system_prompt", "ü" * 32_769, "must have 1 to 65536 bytes, not 65538"),
            ("system_prompt", "x\0", "NUL"),
            ("workspace", str(studio.services.settings.home), "AGX_HOME"),
        ):
            studio.services.settings.home.mkdir(exist_ok=True)
            answer = await studio.client.post("/api/sessions", json={field: value})
            problem = answer.json()
            assert (answer.status_code, problem["field"], words in problem["detail"]) == (422, field, True), problem
        assert (await studio.client.get("/api/sessions")).json() == {"sessions": []}


async def test_a_session_is_moved_to_another_folder_while_no_turn_runs(make_studio: StudioMaker) -> None:
    async with make_studio(ScriptedModel([say("one"), hang()])) as studio:
        old, new = studio.workspace / "old", studio.workspace / "new"
        old.mkdir()
        session_id = await studio.session(workspace=str(old))
        session = f"/api/sessions/{session_id}"
        old.rename(new)
        gone = await studio.turn(session_id)
        assert (gone.status_code, gone.json()["code"]) == (422, "bad_workspace")
        assert f"session {session_id} works in {str(old)!r}, which is not a folder any more" in gone.json()["detail"]
        for folder in (str(old), "relative", "", "/tmp/\0", "/" + "a" * 300, str(studio.services.settings.home), None):
            studio.services.settings.home.mkdir(exist_ok=True)
            refused = await studio.client.patch(session, json={"workspace": folder})
            assert refused.status_code == 422
            assert refused.json()["code"] == ("bad_workspace" if folder is not None else "invalid_body")
        moved = await studio.client.patch(session, json={"workspace": str(new)})
        assert (moved.status_code, moved.json()["workspace"]) == (200, str(new.resolve()))
        await studio.turn(session_id)
        frames = await studio.events_until(session_id, "final")
        assert next(frame.data["data"] for frame in frames if frame.type == "session_changed") == {
            "workspace": str(new.resolve())
        }
        await studio.turn(session_id)
        busy = await studio.client.patch(session, json={"workspace": str(studio.workspace)})
        assert (busy.status_code, busy.json()["code"]) == (409, "session_busy")


async def test_sessions_are_listed_in_pages_and_found_by_name(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        for number in range(5):
            await studio.session(name=f"Session {number}")

        async def names(query: str) -> list[str]:
            answer = await studio.client.get(f"/api/sessions?{query}")
            return [session["name"] for session in answer.json()["sessions"]]

        assert await names("") == [f"Session {number}" for number in (4, 3, 2, 1, 0)]
        assert await names("q=SESSION 3") == ["Session 3"]
        page = (await studio.client.get("/api/sessions?limit=2")).json()["sessions"]
        assert await names(f"before={page[-1]['id']}") == ["Session 2", "Session 1", "Session 0"]
        for limit in ("0", "201", "-1", "x", "1.5", "", "٣"):
            answer = await studio.client.get("/api/sessions", params={"limit": limit})
            assert (answer.status_code, answer.json()["field"]) == (422, "limit")
        for before in ("bad", "", "ses_x"):
            answer = await studio.client.get("/api/sessions", params={"before": before})
            assert (answer.status_code, answer.json()["field"]) == (422, "before")


async def test_sessions_are_found_by_message_text_with_the_matches(make_studio: StudioMaker) -> None:
    async with make_studio(ScriptedModel(["The gate asks first.", "Die Größe zählt."])) as studio:
        ids = [await studio.session(name=name) for name in ("One", "Two")]
        for session_id, text in zip(ids, ("明天的会议室", "What of it?"), strict=True):
            cursor = (await studio.turn(session_id, text)).json()["cursor"]
            await studio.events_until(session_id, "final", cursor=cursor)

        async def found(query: str, **more: str) -> list[tuple[str, list[tuple[str, str, str, str]]]]:
            answer = await studio.client.get("/api/sessions", params={"q": query, **more})
            return [
                (session["name"], [tuple(match.values())[1:] for match in session["matches"]])
                for session in answer.json()["sessions"]
            ]

        assert await found("会议") == [("One", [("user", "明天的", "会议", "室")])]
        assert await found("GATE asks") == [("One", [("assistant", "The ", "gate", " asks first.")])]
        assert await found("grosse") == [("Two", [("assistant", "Die ", "Größe", " zählt.")])]
        assert await found("two") == [("Two", [("name", "", "Two", "")])]
        assert await found("nothing of that") == []
        messages = (await studio.client.get(f"/api/sessions/{ids[0]}/messages")).json()["messages"]
        (one,) = (await studio.client.get("/api/sessions?q=gate")).json()["sessions"]
        assert one["matches"][0]["message_id"] == messages[1]["message_id"]
        blank = (await studio.client.get("/api/sessions", params={"q": "  "})).json()["sessions"]
        assert [session["name"] for session in blank] == ["Two", "One"]
        too_long = await studio.client.get("/api/sessions", params={"q": "x" * 501})
        assert (too_long.status_code, too_long.json()["field"]) == (422, "q")


async def test_pinned_sessions_lead_the_list_and_archived_ones_are_left_out(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        ids = {name: await studio.session(name=name) for name in "abcd"}
        await studio.client.patch(f"/api/sessions/{ids['b']}", json={"pinned": True})
        await studio.client.patch(f"/api/sessions/{ids['c']}", json={"archived": True})

        async def names(query: str) -> str:
            answer = await studio.client.get(f"/api/sessions{query}")
            return "".join(session["name"] for session in answer.json()["sessions"])

        assert [await names(query) for query in ("", "?archived=false", "?archived=true", "?archived=all")] == [
            "bda",
            "bda",
            "c",
            "bdca",
        ]
        assert await names(f"?archived=all&before={ids['d']}&limit=1") == "c"
        assert (await names("?q=c"), await names("?q=c&archived=true")) == ("", "c")
        refused = await studio.client.get("/api/sessions?archived=yes")
        assert (refused.status_code, refused.json()["field"]) == (422, "archived")


async def test_an_unknown_session_is_404_on_every_route(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        for method, path, body in (
            ("GET", "", None),
            ("PATCH", "", {"name": "x"}),
            ("DELETE", "", None),
            ("GET", "/messages", None),
            ("GET", "/export", None),
            ("GET", "/export?format=markdown", None),
            ("POST", "/fork", {}),
            ("POST", "/rewind", {"message_id": None}),
            ("POST", "/turns", {"input": "x"}),
            ("POST", "/stop", {}),
            ("GET", "/events", None),
        ):
            for session_id in ("%2e%2e%2f", "%00", "a" * 5000):
                answer = await studio.client.request(method, f"/api/sessions/{session_id}{path}", json=body)
                assert answer.status_code in (404, 405), (method, path, session_id)
            answer = await studio.client.request(method, f"/api/sessions/ses_unknown{path}", json=body)
            assert (answer.status_code, answer.json()["code"]) == (404, "session_not_found")


async def test_a_changed_session_has_an_event(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        session_id = await studio.session(name="old")
        changes = {"name": "new", "permission_mode": "auto", "tools": ["note"], "pinned": True}
        answer = await studio.client.patch(f"/api/sessions/{session_id}", json=changes)
        assert answer.status_code == 200
        assert {name: answer.json()[name] for name in changes} == changes
        assert (await studio.client.get(f"/api/sessions/{session_id}")).json() == answer.json()
        (frame,) = await studio.events_until(session_id, "session_changed")
        assert (frame.data["data"], frame.data["turn_id"]) == (changes, None)
        refused = await studio.client.patch(f"/api/sessions/{session_id}", json={"tools": ["nope"]})
        assert refused.status_code == 422
        nothing = await studio.client.patch(f"/api/sessions/{session_id}", json={})
        assert nothing.json() == answer.json()


async def test_a_session_names_the_files_of_its_workspace_whose_instructions_the_model_gets(
    make_studio: StudioMaker,
) -> None:
    async with make_studio() as studio:
        path = f"/api/sessions/{await studio.session()}/instructions"
        assert (await studio.client.get(path)).json() == {"files": []}
        (studio.workspace / "AGENTS.md").write_text("Use tabs. " * 4_000)
        assert (await studio.client.get(path)).json() == {"files": ["AGENTS.md (cut)"]}


async def test_a_session_has_a_system_prompt_and_tools_of_its_own_from_the_next_turn_on(
    make_studio: StudioMaker,
) -> None:
    model = ScriptedModel(["one", "two", "three", "of the fork"])
    async with make_studio(model) as studio:
        (studio.workspace / "AGENTS.md").write_text("Use tabs.")
        session_id = await studio.session(system_prompt="You are brief in {workspace}.", tools=[])

        async def prompt_of_a_turn(session_id: str) -> str:
            cursor = (await studio.turn(session_id)).json()["cursor"]
            await studio.events_until(session_id, "final", cursor=cursor)
            return model.requests[-1].messages[0].content

        brief = f"You are brief in {studio.workspace.resolve()}."
        own = await prompt_of_a_turn(session_id)
        assert own.startswith(brief)
        assert "Use tabs." in own
        assert [tool.name for tool in model.requests[-1].tools] == []
        long = "ü" * 32_768
        changes = {"system_prompt": long, "tools": ["note"]}
        assert (await studio.client.patch(f"/api/sessions/{session_id}", json=changes)).status_code == 200
        assert (await prompt_of_a_turn(session_id)).startswith(long)
        assert [tool.name for tool in model.requests[-1].tools] == ["note"]
        fork = (await studio.client.post(f"/api/sessions/{session_id}/fork", json={})).json()
        usual = await studio.client.patch(f"/api/sessions/{session_id}", json={"system_prompt": None})
        assert (fork["system_prompt"], usual.json()["system_prompt"]) == (long, None)
        assert "You are brief" not in await prompt_of_a_turn(session_id)
        assert (await prompt_of_a_turn(fork["id"])).startswith(long)
        listed = (await studio.client.get("/api/sessions")).json()["sessions"]
        assert ["system_prompt" in session for session in listed] == [False, False]


@pytest.mark.parametrize(
    "odd", ["\n", "\r", "\t", "\0", "\x1b", "\x7f", "\x85", "\u2028", "\u2029", "\u202e", "\u2066"]
)
@pytest.mark.cases(quick=4)
async def test_a_name_is_one_line_without_control_characters(make_studio: StudioMaker, odd: str) -> None:
    async with make_studio() as studio:
        session_id = await studio.session(name="👩‍💻 naïve שלום")
        for refused in (
            await studio.client.patch(f"/api/sessions/{session_id}", json={"name": f"a{odd}b"}),
            await studio.client.post("/api/sessions", json={"name": f"a{odd}"}),
        ):
            assert (refused.status_code, refused.json()["field"]) == (422, "name")
            assert refused.json()["detail"] == "'name': a name must be one line without control characters."
        (kept,) = (await studio.client.get("/api/sessions")).json()["sessions"]
        assert kept["name"] == "👩‍💻 naïve שלום"


async def test_a_session_without_a_name_takes_one_from_its_first_message(make_studio: StudioMaker) -> None:
    async with make_studio(ScriptedModel([[say("a"), hang()], "b", "c", [say("d"), hang()], "e"])) as studio:
        session_id = await studio.session(name=None)

        async def name() -> str | None:
            return (await studio.client.get(f"/api/sessions/{session_id}")).json()["name"]

        await studio.turn(session_id, "# Fix the build\n\nIt fails.")
        assert await name() == "Fix the build"  # while the turn runs
        await studio.events_until(session_id, "token")  # else the next turn might get this reply
        await studio.client.post(f"/api/sessions/{session_id}/stop")
        frames = await studio.events_until(session_id, "session_changed")
        assert [(frame.type, frame.data["turn_id"] is None) for frame in frames[-2:]] == [
            ("error", False),
            ("session_changed", True),
        ]
        assert frames[-1].data["data"] == {"name": "Fix the build"}
        cursor = (await studio.turn(session_id, "Something else")).json()["cursor"]
        await studio.events_until(session_id, "final", cursor=cursor)
        assert await name() == "Fix the build"
        await studio.client.patch(f"/api/sessions/{session_id}", json={"name": None})
        cursor = (await studio.turn(session_id, "A third thing")).json()["cursor"]
        await studio.events_until(session_id, "session_changed", cursor=cursor)
        assert await name() == "A third thing"

        renamed = await studio.session(name=None)
        cursor = (await studio.turn(renamed, "First")).json()["cursor"]
        await studio.client.patch(f"/api/sessions/{renamed}", json={"name": "Mine"})
        await studio.events_until(renamed, "token")
        await studio.client.post(f"/api/sessions/{renamed}/stop")
        await studio.events_until(renamed, "error", cursor=cursor)
        cursor = (await studio.turn(renamed, "Second")).json()["cursor"]
        await studio.events_until(renamed, "final", cursor=cursor)
        changes = [frame.data["data"] for frame in await studio.events_until(renamed, "final") if frame.data]
        assert (await studio.client.get(f"/api/sessions/{renamed}")).json()["name"] == "Mine"
        assert {"name": "First"} not in changes


async def test_folders_of_recent_sessions_are_listed_while_they_exist(
    make_studio: StudioMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with make_studio() as studio:
        folders = [tmp_path / name for name in ("first", "second", "gone")]
        for folder in folders:
            folder.mkdir()
        for folder in (folders[0], *folders, folders[0]):
            await studio.session(workspace=str(folder))
        folders[2].rmdir()
        answer = (await studio.client.get("/api/folders")).json()
        plain = await studio.client.get(f"/api/sessions/{await studio.session()}")
        monkeypatch.setenv("HOME", str(tmp_path))
        below = [
            (await studio.client.post("/api/sessions", json={"workspace": path})).json()["workspace"]
            for path in ("~", "~/first")
        ]
        assert below == [(await studio.client.get("/api/folders")).json()["home"], str(folders[0].resolve())]
    assert answer["default"] == plain.json()["workspace"]
    listed = answer["folders"]
    first, second = (str(folder.resolve()) for folder in folders[:2])
    assert sorted(listed, key=lambda one: one["path"]) == [
        {"path": first, "sessions": 3},
        {"path": second, "sessions": 1},
    ]


async def test_a_deleted_session_is_gone(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        session_id = await studio.session()
        await studio.turn(session_id)
        assert (await studio.client.delete(f"/api/sessions/{session_id}")).status_code == 204
        assert (await studio.client.delete(f"/api/sessions/{session_id}")).status_code == 404
        assert (await studio.client.get("/api/sessions")).json() == {"sessions": []}
        assert studio.workspace.is_dir()


async def test_a_session_has_its_state_and_the_time_of_its_last_event(make_studio: StudioMaker) -> None:
    model = ScriptedModel([call("note", {"text": "x"}), "Noted.", [say("so"), hang()]])
    async with make_studio(model) as studio:
        session_id, other = await studio.session(), await studio.session()
        ends = [("confirm_required", "waiting"), ("final", "idle"), ("token", "running")]
        for text, (type_, state) in zip(("go", "", "again"), ends, strict=True):
            if text:
                cursor = (await studio.turn(session_id, text)).json()["cursor"]
            else:
                (question,) = (await studio.client.get("/api/confirms")).json()["confirms"]
                yes = {"approved": True, "digest": question["digest"]}
                await studio.client.post(f"/api/confirms/{question['id']}", json=yes)
            last = (await studio.events_until(session_id, type_, cursor=cursor))[-1].data
            shown = (await studio.client.get(f"/api/sessions/{session_id}")).json()
            listed = (await studio.client.get("/api/sessions")).json()["sessions"]
            assert [one["state"] for one in listed if one["id"] in (session_id, other)] == ["idle", state]
            assert (shown["state"], shown["updated_at"] >= last["ts"]) == (state, True)
            assert next(one["updated_at"] for one in listed if one["id"] == session_id) >= last["ts"]
            assert (shown["waiting"], shown["last_outcome"]) == {
                "waiting": (1, None),
                "idle": (0, "answer"),
                "running": (0, "answer"),
            }[state]
        await studio.client.post(f"/api/sessions/{session_id}/stop")
        await studio.events_until(session_id, "error", cursor=cursor)
        await studio.client.patch(f"/api/sessions/{session_id}", json={"name": "Other"})
        usage = RuntimeEvent(EventType.USAGE, {"input_tokens": 1, "output_tokens": 1, "model": "m", "cost_usd": "0.25"})
        await append(studio.services.store, other, None, [usage, usage])
        listed = {one["id"]: one for one in (await studio.client.get("/api/sessions")).json()["sessions"]}
        ends = [(listed[id_]["last_outcome"], listed[id_]["cost_usd"]) for id_ in (session_id, other)]
        assert ends == [("stopped", None), (None, "0.50")]
        assert (await studio.client.get(f"/api/sessions/{other}")).json()["cost_usd"] == "0.50"


async def test_messages_contain_each_text_once(make_studio: StudioMaker) -> None:
    model = ScriptedModel([["I will note it.", call("note", {"text": "x"}, id="call_a")], "Noted.", "And again."])
    async with make_studio(model, permission_mode="auto") as studio:
        session_id = await studio.session()
        for text in ("one", "two"):
            cursor = (await studio.turn(session_id, text)).json()["cursor"]
            await studio.events_until(session_id, "final", cursor=cursor)
        messages = (await studio.client.get(f"/api/sessions/{session_id}/messages")).json()["messages"]
        ids = [message.pop("message_id") for message in messages]
        times = [message.pop("created_at") for message in messages]
        assert (len(set(ids)), times) == (len(messages), sorted(times))
        calls = [{"id": "call_a", "name": "note", "arguments": {"text": "x"}}]
        assert messages == [
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "I will note it.", "tool_calls": calls},
            {"role": "tool", "content": "noted x", "tool_call_id": "call_a", "outcome": "ok", "is_error": False},
            {"role": "assistant", "content": "Noted."},
            {"role": "user", "content": "two"},
            {"role": "assistant", "content": "And again."},
        ]
        pages = [
            (await studio.client.get(f"/api/sessions/{session_id}/messages?{query}")).json()
            for query in ("limit=4", f"limit=4&before={ids[2]}", f"before={ids[2]}", f"before={ids[0]}")
        ]
        listed = [([message["message_id"] for message in page["messages"]], page["has_more"]) for page in pages]
        assert listed == [(ids[2:], True), (ids[:2], False), (ids[:2], False), ([], False)]


async def test_an_empty_model_name_is_refused_on_every_route(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        session_id = await studio.session()
        for method, path, body in (
            ("POST", "/api/sessions", {}),
            ("PATCH", f"/api/sessions/{session_id}", {}),
            ("POST", f"/api/sessions/{session_id}/turns", {"input": "hi"}),
        ):
            answer = await studio.client.request(method, path, json={**body, "model": ""})
            assert (path, answer.status_code, answer.json()["field"]) == (path, 422, "model")


async def test_tools_models_and_the_openapi_document_are_listed(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        tool, *_for_subagents = (await studio.client.get("/api/tools")).json()["tools"]
        assert (tool["name"], tool["description"], tool["read_only"]) == ("note", "Write a note.", False)
        assert [(one["title"], one["risk"]) for one in (tool, *_for_subagents)][:2] == [
            ("Note", "write"),
            ("Spawn subagent", "read"),
        ]
        assert list(tool["parameters"]["properties"]) == ["text"]
        models = (await studio.client.get("/api/models")).json()
        assert models["default"] == "scripted"
        (demo,) = [model for model in models["models"] if model["id"] == "demo"]
        assert demo == {
            "id": "demo",
            "provider": "demo",
            "available": True,
            "why": "offline and scripted",
            "context_window": None,
            "max_output_tokens": None,
            "abilities": {
                "tools": True,
                "parallel": False,
                "vision": False,
                "reasoning": False,
                "structured_output": False,
            },
            "price": {"input": "0", "output": "0", "read": "2026-01-01", "source": "no provider is asked"},
            "assumed": None,
        }
        health = {"status": "ok", "version": __version__, "api": 1, "instance": studio.services.instance}
        assert (await studio.client.get("/api/health")).json() == health
        assert (await studio.client.get("/api/ready")).json()["status"] == "ready"


async def test_a_model_is_listed_with_its_limits_capabilities_and_price(
    make_studio: StudioMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-x")
    async with make_studio() as studio:
        models = (await studio.client.get("/api/models")).json()["models"]
    row = next(model for model in models if model["provider"] == "anthropic")
    assert (row["id"], row["available"], row["context_window"], row["max_output_tokens"]) == (
        "anthropic:claude-sonnet-4-5",
        True,
        200_000,
        64_000,
    )
    assert (set(row["abilities"].values()), row["assumed"]) == ({True}, None)
    assert row["price"] == {
        "input": "3.00",
        "cached": "0.30",
        "cache_write": "3.75",
        "output": "15.00",
        "read": "2026-10-03",
        "source": "https://platform.claude.com/docs/en/about-claude/pricing",
    }


async def test_the_openapi_document_names_every_route_and_resolves_every_reference(make_studio: StudioMaker) -> None:
    from studio.routes.table import TABLE

    async with make_studio() as studio:
        answer = await studio.client.get("/openapi.json")
    document = answer.json()
    documented = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert documented == {(route.method, route.path) for route in TABLE}
    references = set(re.findall(r'"\$ref":"#/components/schemas/(\w+)"', answer.text.replace('": "', '":"')))
    assert references
    assert references <= set(document["components"]["schemas"])


async def long_conversation(studio: RunningStudio, messages: int, tokens: int, text: str = "word ") -> str:
    """Create a session whose log has that many messages of that many tokens each, and return its id."""
    session_id = await studio.session()
    for number in range(messages):
        token = RuntimeEvent(EventType.TOKEN, {"text": text, "message_id": f"msg_{number}", "offset": 0})
        await append(studio.services.store, session_id, None, [token] * tokens)
    return session_id


async def test_the_newest_messages_are_listed_unless_more_are_asked_for(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        session_id = await long_conversation(studio, 230, 1)
        pages = list[dict[str, Any]]()
        while not pages or pages[-1]["has_more"]:
            before = f"?before={pages[-1]['messages'][0]['message_id']}" if pages else ""
            pages.append((await studio.client.get(f"/api/sessions/{session_id}/messages{before}")).json())
        ids = [[message["message_id"] for message in page["messages"]] for page in pages]
    numbers = (range(130, 230), range(30, 130), range(30))
    assert ids == [[f"msg_{number}" for number in page] for page in numbers]


@pytest.mark.cases(quick=0)
async def test_a_long_conversation_is_read_without_blocking_the_loop(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        session_id = await long_conversation(studio, 50, 1000)
        async with longest_hold() as hold:
            answer = await studio.client.get(f"/api/sessions/{session_id}/messages")
        assert [len(message["content"]) for message in answer.json()["messages"]] == [5000] * 50
        assert hold.longest < hold.total / 5


async def test_text_with_lone_surrogates_can_be_read_back(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        session_id = await long_conversation(studio, 1, 1, "half a pair: \ud83d")
        answer = await studio.client.get(f"/api/sessions/{session_id}/messages")
        assert [message["content"] for message in answer.json()["messages"]] == ["half a pair: \ud83d"]


async def test_a_session_in_a_folder_with_an_undecodable_name_is_listed(make_studio: StudioMaker) -> None:
    async with make_studio(ScriptedModel([])) as studio:
        folder = os.fsdecode(os.fsencode(studio.workspace) + b"/\xff")
        await studio.services.store.create(SessionRecord(workspace=folder, created_at="2026-01-01T00:00:00.000Z"))
        (listed,) = (await studio.client.get("/api/sessions")).json()["sessions"]
        assert listed["workspace"].endswith("/\ufffd")
        one = await studio.client.get(f"/api/sessions/{listed['id']}")
        assert one.json()["workspace"] == listed["workspace"]
