"""Rules of the user over HTTP: stored by answers, listed, replaced, revoked, shared, and explained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from agenticx import builtin_tools
from agenticx.llms import ScriptedModel
from agenticx.testing import call
from agenticx.tools import tool
from tests.support.server.running_studio import IN_A_FILE, RunningStudio, StudioMaker

pytestmark = [pytest.mark.anyio, pytest.mark.shares_secrets]

EXPLAIN = "/api/permissions/explain"


def write(path: str) -> Any:
    return call("file_write", {"path": path, "content": "x"})


async def run_until_asked(studio: RunningStudio, session_id: str) -> dict[str, Any]:
    """Start a turn and return the confirmation that it waits for."""
    cursor = (await studio.turn(session_id)).json()["cursor"]
    asked = await studio.events_until(session_id, "confirm_required", cursor=cursor)
    return asked[-1].data["data"]


async def run_turn(studio: RunningStudio, session_id: str) -> list[str]:
    """Run a turn that nobody is asked about and return the types of its events."""
    cursor = (await studio.turn(session_id)).json()["cursor"]
    return [frame.type for frame in await studio.events_until(session_id, "final", cursor=cursor)]


async def answer(studio: RunningStudio, asked: dict[str, Any], **fields: Any) -> httpx.Response:
    body = {"approved": True, "digest": asked["digest"], **fields}
    return await studio.client.post(f"/api/confirms/{asked['id']}", json=body)


async def stored_rules(studio: RunningStudio, query: str = "") -> list[dict[str, Any]]:
    return (await studio.client.get(f"/api/permissions{query}")).json()["rules"]


async def test_always_holds_in_all_sessions_of_the_workspace_until_it_is_revoked(
    make_studio: StudioMaker, tmp_path: Path
) -> None:
    (tmp_path / "other/src").mkdir(parents=True)
    names = ["src/a.py", "src/b.py", "src/c.py", "src/d.py"]
    model = ScriptedModel([reply for name in names for reply in (write(name), "done")])
    async with make_studio(model, tools=builtin_tools()) as studio:
        first, second, elsewhere = (
            await studio.session(),
            await studio.session(),
            await studio.session(workspace=str(tmp_path / "other")),
        )
        asked = await run_until_asked(studio, first)
        assert asked["context"]["kinds"] == ["edit files in src/"]
        given = await answer(studio, asked, remember="always")
        rule = {"decision": "allow", "tool": "edit", "path": "src/**", "scope": "workspace"}
        rule["workspace"] = str(studio.workspace.resolve())
        assert (given.status_code, given.json()["rules"]) == (200, [rule])
        assert (await answer(studio, asked, remember="always")).json() == given.json()
        frames = await studio.events_until(first, "final")
        assert [frame.data["data"]["rules"] for frame in frames if frame.type == "confirm_response"] == [[rule]]

        assert "confirm_required" not in await run_turn(studio, second)
        stored = await stored_rules(studio, f"?session_id={second}")
        assert [{name: one[name] for name in rule} for one in stored] == [rule]
        assert await stored_rules(studio, f"?workspace={tmp_path / 'other'}") == []
        assert await stored_rules(studio) == stored
        asked = await run_until_asked(studio, elsewhere)
        await answer(studio, asked, approved=False)
        await studio.events_until(elsewhere, "final")

        revoked = await studio.client.delete(f"/api/permissions/{stored[0]['id']}")
        assert (revoked.status_code, revoked.json()) == (200, stored[0])
        again = await studio.client.delete(f"/api/permissions/{stored[0]['id']}")
        assert (again.status_code, again.json()["code"]) == (404, "rule_not_found")
        await run_until_asked(studio, second)


async def test_a_rule_of_a_session_is_listed_with_it_and_revoked_while_its_turn_runs(make_studio: StudioMaker) -> None:
    script = [write("src/a.py"), write("src/b.py"), write("lib/c.py"), write("src/d.py"), "done"]
    async with make_studio(ScriptedModel(script), tools=builtin_tools()) as studio:
        session_id = await studio.session()
        cursor = (await studio.turn(session_id)).json()["cursor"]
        async with studio.events(session_id, cursor=cursor) as frames:
            asked = [frame.data["data"] async for frame in _until_asked(frames)][-1]
            assert (await answer(studio, asked, remember="session")).json()["rules"][0]["scope"] == "session"
            asked = [frame.data["data"] async for frame in _until_asked(frames)][-1]
            assert asked["context"]["path"] == "lib/c.py"
            (rule,) = await stored_rules(studio, f"?session_id={session_id}")
            assert (rule["path"], rule["scope"], await stored_rules(studio)) == ("src/**", "session", [])
            assert (await studio.client.delete(f"/api/permissions/{rule['id']}")).json() == rule
            assert (await studio.client.delete(f"/api/permissions/{rule['id']}")).status_code == 404
            await answer(studio, asked)
            asked = [frame.data["data"] async for frame in _until_asked(frames)][-1]
        assert asked["context"]["path"] == "src/d.py"
        assert await stored_rules(studio, f"?session_id={session_id}") == []


async def _until_asked(frames: Any) -> Any:
    async for frame in frames:
        yield frame
        if frame.type == "confirm_required":
            return


async def test_an_answer_stores_no_more_than_was_shown(make_studio: StudioMaker) -> None:
    script = [call("bash_exec", {"command": "git commit -m a && pytest -q"}), write(".git/config"), "done"]
    async with make_studio(ScriptedModel(script), tools=builtin_tools()) as studio:
        session_id = await studio.session()
        asked = await run_until_asked(studio, session_id)
        commit, tests = asked["context"]["rules"]
        assert [commit["command"], tests["command"]] == ["git commit", "pytest"]
        for refused, field in (
            ({"rule": {**commit, "command": "git"}}, None),
            ({"rule": {**commit, "decision": "deny"}}, None),
            ({"rules": [commit, {**tests, "tool": "*"}]}, "rules.1"),
            ({"rule": commit, "rules": [tests]}, "rules"),
            ({"rule": {"scope": "user"}}, "rule"),
            ({"rule": commit, "remember": "once"}, None),
        ):
            problem = await answer(studio, asked, **{"remember": "always", **refused})
            assert (problem.status_code, problem.json()["code"], problem.json().get("field")) == (
                422,
                "bad_rule",
                field,
            )
        assert (await studio.client.get("/api/confirms")).json()["confirms"] != []
        narrow = [{**commit, "scope": "user"}, {**tests, "command": "pytest -q"}]
        given = (await answer(studio, asked, remember="always", rules=narrow)).json()
        assert [(rule["command"], rule["scope"]) for rule in given["rules"]] == [
            ("git commit", "user"),
            ("pytest -q", "workspace"),
        ]

        (asked,) = await _next_confirms(studio, asked["id"])
        assert asked["context"]["decided_by"] == "protected"
        problem = await answer(studio, asked, remember="session")
        assert (problem.status_code, problem.json()["code"]) == (422, "remember_unavailable")
        assert (await answer(studio, asked, approved=False, remember="session")).json()["remember"] == "once"


async def _next_confirms(studio: RunningStudio, earlier: str) -> list[dict[str, Any]]:
    while True:
        confirms = (await studio.client.get("/api/confirms")).json()["confirms"]
        if [one["id"] for one in confirms] not in ([], [earlier]):
            return confirms


@IN_A_FILE
async def test_rules_are_replaced_and_a_damaged_file_is_reported(make_studio: StudioMaker, tmp_path: Path) -> None:
    async with make_studio(tools=builtin_tools()) as studio:
        rules = [
            {"decision": "deny", "tool": "bash_exec", "command": "git push", "scope": "user"},
            {"decision": "ask", "tool": "*", "scope": "workspace", "workspace": str(tmp_path)},
        ]
        stored = (await studio.client.put("/api/permissions", json={"rules": rules})).json()
        assert stored["mode"] == "default"
        assert [{name: one[name] for name in rule} for one, rule in zip(stored["rules"], rules, strict=True)] == rules
        assert all(one["id"] and one["created_at"] for one in stored["rules"])
        again = (await studio.client.put("/api/permissions", json={"rules": stored["rules"]})).json()
        assert again == stored == (await studio.client.get("/api/permissions")).json()
        for wrong in (
            {"tool": "x"},
            {"decision": "allow", "tool": "x"},
            {"decision": "deny", "tool": "x", "scope": "session"},
        ):
            problem = (await studio.client.put("/api/permissions", json={"rules": [wrong]})).json()
            assert (problem["code"], problem["status"]) == ("bad_rule", 422)
        useless = {"decision": "allow", "tool": "memory_save", "scope": "user"}
        problem = (await studio.client.put("/api/permissions", json={"rules": [*stored["rules"], useless]})).json()
        assert (problem["code"], problem["field"]) == ("bad_rule", "rules.2")
        assert problem["detail"].startswith("'rules.2': no rule can allow memory_save: ")
        later = {"decision": "allow", "tool": "bash_exec", "command": "git push origin", "scope": "user"}
        answer = (await studio.client.put("/api/permissions", json={"rules": [*stored["rules"], later]})).json()
        assert [one["origin"] for one in answer["rules"]] == ["http"] * 3
        assert list(answer["warnings"]) == [answer["rules"][2]["id"]]
        assert answer["warnings"][answer["rules"][2]["id"]][0].startswith("it has no effect: the rule rul_")
        (tmp_path / "home/permissions.toml").write_text("[[rules")
        for damaged in (
            await studio.client.get("/api/permissions"),
            await studio.client.delete(f"/api/permissions/{stored['rules'][0]['id']}"),
        ):
            assert (damaged.status_code, damaged.json()["code"]) == (503, "rules_unusable")


@tool(risk="write")
def mail(to: str) -> str:
    """Send a mail."""
    return "sent"


async def test_a_verdict_is_explained_without_running_the_call(make_studio: StudioMaker, tmp_path: Path) -> None:
    async with make_studio(tools=[*builtin_tools(), mail]) as studio:
        rule = {"decision": "deny", "tool": "bash_exec", "command": "git push", "scope": "user"}
        (stored,) = (await studio.client.put("/api/permissions", json={"rules": [rule]})).json()["rules"]
        session_id = await studio.session(permission_mode="accept_edits")

        async def explained(**body: Any) -> httpx.Response:
            return await studio.client.post(EXPLAIN, json=body)

        push = {"tool": "bash_exec", "arguments": {"command": "sh -c 'git push'"}}
        denied = (await explained(**push, permission_mode="auto")).json()
        assert (denied["decision"], denied["rule"]) == ("deny", stored)
        assert denied["reasons"][0].startswith("The user's rule denies it")
        writing = {"tool": "file_write", "arguments": {"path": "a.txt", "content": "x"}}
        assert [
            (await explained(**writing, **given)).json()["decision"]
            for given in ({}, {"session_id": session_id}, {"permission_mode": "plan"})
        ] == ["ask", "allow", "deny"]
        assert not (studio.workspace / "a.txt").exists()
        mailing = (await explained(tool="mail", arguments={"to": "Eve"}, session_id=session_id)).json()
        assert (mailing["decision"], mailing["rule"]) == ("ask", "accept_edits")
        assert "changes of files of the workspace that the tool names" in mailing["reasons"][1]
        problems = [
            await explained(tool="nope", arguments={}),
            await explained(tool="bash_exec", arguments={"cmd": "ls"}),
            await explained(**push, workspace=str(tmp_path / "gone")),
            await explained(**push, session_id="ses_x"),
        ]
        assert [problem.json()["code"] for problem in problems] == [
            "unknown_tool",
            "invalid_body",
            "bad_workspace",
            "session_not_found",
        ]


@tool(risk="execute")
def run_code(code: str) -> str:
    """Run code."""
    return "done"


@tool(risk="read", untrusted=True)
def read_page() -> str:
    """Read a page."""
    return "page"


@IN_A_FILE
async def test_a_verdict_is_explained_as_in_a_session_with_texts_of_others(make_studio: StudioMaker) -> None:
    code = {"tool": "run_code", "arguments": {"code": "1"}, "permission_mode": "auto"}
    model = ScriptedModel([call("read_page", {}), "done"])
    for opening in range(2):  # the session is in memory, and then read from the log
        async with make_studio(model, tools=[run_code, read_page]) as studio:
            if opening == 0:
                session_id = await studio.session()
                await run_turn(studio, session_id)
            found = [
                (await studio.client.post(EXPLAIN, json={**code, **given})).json()
                for given in ({}, {"session_id": session_id})
            ]
            assert [one["rule"] for one in found] == ["auto", "untrusted"]
            assert any("(read_page)" in reason for reason in found[1]["reasons"])


async def test_trusting_a_file_answers_the_confirmation_that_waits_because_of_it(make_studio: StudioMaker) -> None:
    async with make_studio(ScriptedModel([call("run_code", {"code": "1"}), "done"]), tools=[run_code]) as studio:
        folder = studio.workspace / "app"
        for made in (studio.workspace / ".git", folder):
            made.mkdir()
        (studio.workspace / "AGENTS.md").write_text("Use tabs.")
        session_id = await studio.session(permission_mode="auto", workspace=str(folder))
        asked = await run_until_asked(studio, session_id)
        assert asked["context"]["decided_by"] == "untrusted"
        url = f"/api/sessions/{session_id}/trust"
        (file,) = (await studio.client.get(url)).json()["files"]
        shown = {"path": "../AGENTS.md", "text": "Use tabs.", "cut": False, "trusted": False}
        assert {name: file[name] for name in shown} == shown
        assert (await studio.client.post(url, json={"sha256": "0" * 64})).json()["code"] == "unknown_digest"
        wrong = await studio.client.post(url, json={"sha256": "x"})
        assert wrong.json()["detail"].startswith("'sha256' must have 64 hexadecimal digits")
        assert (await studio.client.post(url, json={"sha256": file["sha256"]})).json()["files"][0]["trusted"]
        frames = await studio.events_until(session_id, "final")
        answers = [frame.data["data"] for frame in frames if frame.type == "confirm_response"]
        assert [(one["approved"], one["by"]) for one in answers] == [(True, "policy")]


async def test_a_change_of_the_mode_answers_the_confirmations_that_it_decides(make_studio: StudioMaker) -> None:
    script = [write("a.txt"), "done", write("b.txt"), "done"]
    async with make_studio(ScriptedModel(script), tools=builtin_tools()) as studio:
        session_id, outcomes = await studio.session(), list[Any]()
        for mode in ("accept_edits", "plan"):
            await studio.client.patch(f"/api/sessions/{session_id}", json={"permission_mode": "default"})
            cursor = (await studio.turn(session_id)).json()["cursor"]
            await studio.events_until(session_id, "confirm_required", cursor=cursor)
            changed = await studio.client.patch(f"/api/sessions/{session_id}", json={"permission_mode": mode})
            assert changed.status_code == 200
            frames = await studio.events_until(session_id, "final", cursor=cursor)
            answers = [frame.data["data"] for frame in frames if frame.type == "confirm_response"]
            results = [frame.data["data"]["outcome"] for frame in frames if frame.type == "tool_result"]
            outcomes.append((*[(one["approved"], one["by"]) for one in answers], *results))
        assert outcomes == [((True, "policy"), "ok"), ((False, "policy"), "denied")]


@IN_A_FILE
async def test_mode_auto_is_not_resumed_in_silence(make_studio: StudioMaker) -> None:
    script = [reply for name in ("a", "b", "c", "d", "e") for reply in (write(f"{name}.txt"), "done")]
    model = ScriptedModel([*script[:-2], [write("e.txt"), write("f.txt")], "done"])
    async with make_studio(model, tools=builtin_tools()) as studio:
        session_id = await studio.session(permission_mode="auto")
        assert "confirm_required" not in await run_turn(studio, session_id)
    async with make_studio(model, tools=builtin_tools()) as studio:
        for approved in (False, True):
            cursor = (await studio.turn(session_id)).json()["cursor"]
            started, *_, asked = await studio.events_until(session_id, "confirm_required", cursor=cursor)
            assert started.data["data"]["permission_mode"] == "auto"
            context = asked.data["data"]["context"]
            assert (context["decided_by"], "rules" in context) == ("resumed", False)
            assert context["reasons"][-1].startswith("The session was in mode auto before the program was restarted")
            await answer(studio, asked.data["data"], approved=approved)
            await studio.events_until(session_id, "final", cursor=cursor)
        assert "confirm_required" not in await run_turn(studio, session_id)
    async with make_studio(model, tools=builtin_tools()) as studio:
        cursor = (await studio.turn(session_id)).json()["cursor"]
        await studio.events_until(session_id, "confirm_required", cursor=cursor)
        await studio.client.patch(f"/api/sessions/{session_id}", json={"permission_mode": "auto"})
        frames = await studio.events_until(session_id, "final", cursor=cursor)
        answers = [frame.data["data"] for frame in frames if frame.type == "confirm_response"]
        assert {(one["approved"], one["by"]) for one in answers} == {(True, "policy")}
    assert sorted(path.name for path in studio.workspace.iterdir()) == ["a.txt", "c.txt", "d.txt", "e.txt", "f.txt"]
