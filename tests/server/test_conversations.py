"""Forks, exports and usage over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from agenticx import builtin_tools
from agenticx.llms import ScriptedModel
from agenticx.testing import call, check_grammar, hang, outline, say, usage
from tests.support.server.conversations import log, messages, run_turn
from tests.support.server.running_studio import RunningStudio, StudioMaker

pytestmark = pytest.mark.anyio


async def fork(studio: RunningStudio, session_id: str, message_id: str | None = None) -> dict[str, Any]:
    body = {} if message_id is None else {"message_id": message_id}
    answer = await studio.client.post(f"/api/sessions/{session_id}/fork", json=body)
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == f"/api/sessions/{answer.json()['id']}"
    return answer.json()


def start_conversation() -> ScriptedModel:
    two_calls = ["Both.", call("note", {"text": "a"}, id="call_a"), call("note", {"text": "b"}, id="call_b")]
    return ScriptedModel(["First answer.", two_calls, "Second answer.", "Third answer.", "Of the fork."])


async def test_a_fork_has_the_whole_conversation_and_a_log_of_its_own(make_studio: StudioMaker) -> None:
    model = start_conversation()
    async with make_studio(model, permission_mode="auto") as studio:
        session_id = await studio.session(name="Old", tools=["note"])
        await run_turn(studio, session_id, "one", "two")
        before = await log(studio, session_id)
        made = await fork(studio, session_id)
        old = (await studio.client.get(f"/api/sessions/{session_id}")).json()
        differing = {
            "id": made["id"],
            "name": "Old (fork)",
            "forked_from": session_id,
            "created_at": made["created_at"],
            "updated_at": made["created_at"],
        }
        assert made == old | differing
        copied = await log(studio, made["id"])
        check_grammar(copied)
        assert [event["seq"] for event in copied] == list(range(1, len(before) + 1))
        assert {event["session_id"] for event in copied} == {made["id"]}
        assert {event["turn_id"] for event in copied} & {event["turn_id"] for event in before} == set()
        same = ("type", "data", "agent_id", "ts")
        assert [[event[key] for key in same] for event in copied] == [[event[key] for key in same] for event in before]
        assert await messages(studio, made["id"]) == await messages(studio, session_id)

        await run_turn(studio, made["id"], "three")
        assert [message.content for message in model.requests[-1].messages if message.role != "system"][-2:] == [
            "Second answer.",
            "three",
        ]
        check_grammar(await log(studio, made["id"]))
        assert await log(studio, session_id) == before
        found = (await studio.client.get("/api/sessions?q=first")).json()["sessions"]
        assert [session["id"] for session in found] == [made["id"], session_id]


@pytest.mark.parametrize(
    ("place", "roles", "last_turn"),
    [
        (0, "u", ["turn_started", "error"]),
        (1, "ua", ["turn_started", "round_start", "token", "final"]),
        (2, "uau", ["turn_started", "error"]),
        (3, "uauatt", ["turn_started", "round_start", "token", *["tool_call"] * 2, *["tool_result"] * 2, "error"]),
        (4, "uauatt", ["turn_started", "round_start", "token", *["tool_call"] * 2, *["tool_result"] * 2, "error"]),
        (6, "uauatta", None),
    ],
)
@pytest.mark.cases(quick=2)
async def test_a_fork_at_a_message_ends_with_it_as_if_the_turn_had_been_stopped(
    make_studio: StudioMaker, place: int, roles: str, last_turn: list[str] | None
) -> None:
    model = start_conversation()
    async with make_studio(model, permission_mode="auto") as studio:
        session_id = await studio.session()
        await run_turn(studio, session_id, "one", "two")
        original = await messages(studio, session_id)
        made = await fork(studio, session_id, original[place]["message_id"])
        forked = await messages(studio, made["id"])
        assert "".join(message["role"][0] for message in forked) == roles
        assert forked[: place + 1] == original[: place + 1]
        assert all("before this call ran" in message["content"] for message in forked[place + 1 :])
        events = await log(studio, made["id"])
        check_grammar(events)
        if last_turn is not None:
            of_last = [event for event in events if event["turn_id"] == events[-1]["turn_id"]]
            kinds = [kind for kind in outline(of_last) if kind not in ("tool_call_delta", "confirm_required")]
            assert [kind for kind in kinds if kind != "confirm_response"] == last_turn
        await run_turn(studio, made["id"], "three")
        check_grammar(await log(studio, made["id"]))
        prompt = [message for message in model.requests[-1].messages if message.role != "system"]
        assert [message.content for message in prompt if message.role == "user"][-1] == "three"
        assert sum(message.role == "tool" for message in prompt) == roles.count("t")


async def test_a_running_session_can_be_forked_and_both_stay_independent(make_studio: StudioMaker) -> None:
    model = ScriptedModel([[call("note", {"text": "x"}, id="call_a")], [say("half "), hang()], "whole"])
    async with make_studio(model) as studio:
        session_id = await studio.session()
        await studio.turn(session_id, "go")
        await studio.events_until(session_id, "confirm_required")
        made = await fork(studio, session_id)
        events = await log(studio, made["id"])
        check_grammar(events)
        assert outline(events)[-3:] == ["confirm_response", "tool_result", "error"]
        assert (await studio.client.get("/api/confirms")).json()["confirms"][0]["session_id"] == session_id
        assert made["running_turn_id"] is None
        (question,) = (await studio.client.get("/api/confirms")).json()["confirms"]
        yes = {"approved": True, "digest": question["digest"]}
        assert (await studio.client.post(f"/api/confirms/{question['id']}", json=yes)).status_code == 200
        await studio.events_until(session_id, "token")
        again = await fork(studio, session_id)
        assert [message["content"] for message in await messages(studio, again["id"])] == ["go", "", "noted x", "half "]
        check_grammar(await log(studio, again["id"]))


async def test_a_fork_inherits_no_permissions_and_counts_no_usage_twice(make_studio: StudioMaker) -> None:
    asks = [call("note", {"text": "x"}), usage(10, 2)]
    async with make_studio(ScriptedModel([asks, "a", asks, hang()])) as studio:
        session_id = await studio.session()
        await studio.turn(session_id, "go")
        await studio.events_until(session_id, "confirm_required")
        (question,) = (await studio.client.get("/api/confirms")).json()["confirms"]
        yes = {"approved": True, "digest": question["digest"], "remember": "session"}
        assert (await studio.client.post(f"/api/confirms/{question['id']}", json=yes)).status_code == 200
        await studio.events_until(session_id, "final")
        before = (await studio.client.get("/api/usage")).json()["total"]
        made = await fork(studio, session_id)
        assert (await studio.client.get("/api/usage")).json()["total"] == before
        cursor = (await studio.turn(made["id"], "go")).json()["cursor"]
        frames = await studio.events_until(made["id"], "confirm_required", cursor=cursor)
        assert frames[-1].type == "confirm_required"


async def test_an_invalid_fork_or_export_is_a_problem_with_a_sentence(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        session_id = await studio.session()
        path = f"/api/sessions/{session_id}"
        for answer, status, code in (
            (await studio.client.post(f"{path}/fork", json={"message_id": "msg_x"}), 404, "message_not_found"),
            (await studio.client.post(f"{path}/fork", json={"at": 1}), 422, "invalid_body"),
            (await studio.client.get(f"{path}/export?format=pdf"), 422, "bad_format"),
            (await studio.client.get("/api/usage?since=yesterday"), 422, "bad_day"),
            (await studio.client.get("/api/usage?until=2026-02-30"), 422, "bad_day"),
            (await studio.client.get("/api/usage?session_id=ses_x"), 404, "session_not_found"),
            (await studio.client.get("/api/confirms?session_id=ses_x"), 404, "session_not_found"),
        ):
            assert (answer.status_code, answer.json()["code"]) == (status, code)
            assert answer.json()["detail"].endswith((".", "'msg_x'", "'ses_x'"))
        empty = await fork(studio, session_id)
        assert await messages(studio, empty["id"]) == []


async def test_what_ran_with_edited_arguments_stands_in_the_next_request_and_in_every_record(
    make_studio: StudioMaker,
) -> None:
    model = ScriptedModel([call("bash_exec", {"command": "touch hello"}), "done"])
    async with make_studio(model, tools=builtin_tools(), permission_mode="default") as studio:
        session_id = await studio.session()
        await studio.turn(session_id, "go")
        await studio.events_until(session_id, "confirm_required")
        (asked,) = (await studio.client.get("/api/confirms")).json()["confirms"]
        edited = {"approved": True, "digest": asked["digest"], "arguments": {"command": "touch edited"}}
        assert (await studio.client.post(f"/api/confirms/{asked['id']}", json=edited)).status_code == 200
        frames = await studio.events_until(session_id, "final")

        (shown,) = [frame.data["data"]["result"] for frame in frames if frame.type == "tool_result"]
        line = 'The user ran this call with other arguments: {"command": "touch edited"}\n'
        assert shown.startswith(line)
        assert [path.name for path in studio.workspace.rglob("*") if path.is_file()] == ["edited"]
        assert model.requests[1].messages[-1].content == shown
        messages = (await studio.client.get(f"/api/sessions/{session_id}/messages")).json()["messages"]
        assert [message["content"] for message in messages if message["role"] == "tool"] == [shown]
        assert line in (await studio.client.get(f"/api/sessions/{session_id}/export?format=markdown")).text


async def test_a_session_is_exported_as_its_log_and_as_markdown(make_studio: StudioMaker) -> None:
    model = ScriptedModel(
        [["I will.", call("note", {"text": "```\n# no heading"}, id="call_a")], "# Done\n\n*Really.*"]
    )
    async with make_studio(model, permission_mode="auto") as studio:
        session_id = await studio.session(name="Notes *and* more")
        await run_turn(studio, session_id, "Write it.")
        answer = await studio.client.get(f"/api/sessions/{session_id}/export?format=jsonl")
        assert answer.headers["content-type"] == "application/jsonl"
        assert answer.headers["content-disposition"] == f'attachment; filename="{session_id}.jsonl"'
        frames = await studio.events_until(session_id, "final")
        sent = [frame.raw.partition(b"data: ")[2] for frame in frames if frame.id is not None]
        assert answer.content == b"".join(line + b"\n" for line in sent)
        newer = await studio.client.get(f"/api/sessions/{session_id}/export?after={len(sent) - 1}")
        assert newer.content == sent[-1] + b"\n"
        assert (await studio.client.get(f"/api/sessions/{session_id}/export?after={len(sent)}")).content == b""
        answer = await studio.client.get(f"/api/sessions/{session_id}/export?format=markdown")
        assert answer.headers["content-type"] == "text/markdown; charset=utf-8"
        created = (await studio.client.get(f"/api/sessions/{session_id}")).json()["created_at"]
        assert answer.text == (
            f"# Notes \\*and\\* more\n\n*{created}, `{session_id}`*\n\n"
            "## You\n\nWrite it.\n\n## Assistant\n\nI will.\n\n**note**\n\n"
            '````json\n{\n  "text": "```\\n# no heading"\n}\n````\n\n````\nnoted ```\n# no heading\n````\n\n'
            "# Done\n\n*Really.*\n"
        )


async def test_usage_is_reported_in_total_by_day_by_session_and_by_model(make_studio: StudioMaker) -> None:
    model = ScriptedModel([["a", usage(10, 2)], ["b", usage(5, 1)], "c"])
    async with make_studio(model) as studio:
        ids = [await studio.session(), await studio.session()]
        await run_turn(studio, ids[0], "one", "two")
        await run_turn(studio, ids[1], "three")
        report = (await studio.client.get("/api/usage")).json()
        day = report["days"][0]["day"]

        def sums(calls: int, into: int, out: int, uncounted: int) -> dict[str, Any]:
            return {
                "calls": calls,
                "input_tokens": into,
                "output_tokens": out,
                "cached_tokens": 0,
                "reasoning_tokens": 0,
                "cost_usd": None,
                "calls_without_counts": uncounted,
                "calls_without_cost": calls,
            }

        first, second = sums(2, 15, 3, 0), sums(1, 0, 0, 1)
        assert report == {
            "total": sums(3, 15, 3, 1),
            "days": [{"day": day} | sums(3, 15, 3, 1)],
            "sessions": [{"session_id": ids[0]} | first, {"session_id": ids[1]} | second],
            "models": [{"model": "scripted"} | sums(3, 15, 3, 1)],
            "agents": [{"agent_id": "meta"} | sums(3, 15, 3, 1)],
            "rows": [
                {"day": day, "session_id": ids[0], "model": "scripted", "agent_id": "meta"} | first,
                {"day": day, "session_id": ids[1], "model": "scripted", "agent_id": "meta"} | second,
            ],
        }
        assert (await studio.client.get(f"/api/usage?session_id={ids[1]}")).json()["total"] == second
        assert (await studio.client.get("/api/usage?since=9999-01-01")).json()["rows"] == []
