"""Sessions with a configured team: each message is the task of a run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agenticx import UserMessage, builtin_tools
from agenticx.attachments import make_attachment
from agenticx.clocks import SystemClock, rfc3339
from agenticx.errors import ModelError
from agenticx.llms import ScriptedModel
from agenticx.runtime import ConfirmAnswer
from agenticx.sessions import Hub, MessageNotFound, TurnRequest, export_markdown, fork
from agenticx.teams import TeamConfigError, UnknownTeam
from agenticx.testing import call, hang, outline, say
from tests.support.sessions import wait_for_event
from tests.support.teams.configured import PAIR, log_of, open_team_hub, shown, speakers, team_file
from tests.support.timeouts import wait_until

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def pair(tmp_path: Path) -> Path:
    return team_file(tmp_path / "home")


async def run(hub: Hub, session_id: str, text: str = "") -> Any:
    """Run a turn and return the data of its last event."""
    return [event async for event in hub.run_turn(session_id, text)][-1].data


def said(messages: list[dict[str, Any]]) -> list[tuple[str | None, str]]:
    """Return the senders and texts of messages; the sender of the user's is None."""
    return [(message.get("sender"), message["content"]) for message in messages]


async def test_a_run_without_a_limit_of_its_own_ends_at_that_of_the_settings(tmp_path: Path) -> None:
    (tmp_path / ".agenticx").mkdir()
    (tmp_path / ".agenticx" / "settings.toml").write_text("team_max_turns = 3")
    never = '[[termination]]\ntype = "text_mention"\ntext = "APPROVE"\n'
    team_file(tmp_path / "home", PAIR.replace("max_turns = 2\n", "") + never)
    async with open_team_hub(tmp_path, ["One.", "Two.", "Three."]) as hub:
        ended = await run(hub, (await hub.create(team="pair")).id, "Write.")
    assert ended["stop_reason"] == "Maximum number of turns 3 reached."


async def test_a_text_that_ends_the_run_may_be_in_its_task_also_with_the_user_as_a_participant(tmp_path: Path) -> None:
    user = PAIR.replace('name = "critic"\nsystem_message = "Judge."', 'name = "user"\nkind = "user"')
    mention = '[[termination]]\ntype = "text_mention"\ntext = "APPROVE"\n'
    team_file(tmp_path / "home", user.replace("max_turns = 2", "max_turns = 1") + mention)
    async with open_team_hub(tmp_path, ["One."]) as hub:
        ended = await run(hub, (await hub.create(team="pair")).id, "Write, and I say APPROVE.")
    assert (ended["text"], ended["stop_reason"]) == ("One.", "Maximum number of turns 1 reached.")


async def test_a_message_is_the_task_of_a_run_in_its_turn(tmp_path: Path) -> None:
    async with open_team_hub(tmp_path, ["A poem.", "Too short."]) as hub:
        session = await hub.create(team="pair")
        assert (await run(hub, session.id, "Write."))["text"] == "Too short."
        log = await log_of(hub, session.id)
        started = [event for event in log if event["type"] == "turn_started"]
        assert [event["agent_id"] for event in started] == ["meta", "writer", "critic"]
        assert {event["data"]["parent_turn_id"] for event in started[1:]} == {started[0]["turn_id"]}
        own = [event for event in log if event["turn_id"] == started[0]["turn_id"]]
        assert outline(own) == [
            *("turn_started", "team_message"),
            *("speaker_selected", "team_message") * 2,
            *("token", "final"),
        ]
        assert own[-1]["data"]["stop_reason"] == "Maximum number of turns 2 reached."
        assert said(await hub.messages(session.id)) == [
            (None, "Write."),
            ("writer", "A poem."),
            ("critic", "Too short."),
        ]
        assert (await hub.store.catalog.get(session.id)).name == "Write."
        (found,) = await hub.store.catalog.sessions(query="short")
        assert (found.record.id, found.record.team) == (session.id, "pair")


async def test_the_next_message_is_the_next_task_and_an_empty_one_goes_on(tmp_path: Path) -> None:
    model = ScriptedModel(["One.", "Two.", "Three.", "Four.", "Five.", "Six."])
    async with open_team_hub(tmp_path, model=model) as hub:
        session = await hub.create(team="pair")
        for task in ("Write.", "", "More."):
            await run(hub, session.id, task)
        assert speakers(await log_of(hub, session.id)) == ["writer", "critic"] * 3
    assert shown(model, 4) == [
        *(("user", "Write."), ("assistant", "One."), ("user", "critic said:\nTwo.")),
        *(("assistant", "Three."), ("user", "critic said:\nFour."), ("user", "More.")),
    ]


async def test_a_confirm_of_a_participant_is_asked_at_the_gate_of_the_session(tmp_path: Path) -> None:
    ran: list[str] = []

    def post(text: str) -> str:
        """Post a text."""
        ran.append(text)
        return "posted"

    team_file(tmp_path / "home", PAIR.replace('"Write."', '"Write."\ntools = ["post"]'))
    async with open_team_hub(tmp_path, [call("post", {"text": "x"}), "Posted.", "Good."], tools=[post]) as hub:
        session = await hub.create(team="pair")
        running = asyncio.create_task(run(hub, session.id, "Post x."))
        asked = await wait_for_event(hub.store, session.id, "confirm_required")
        assert asked["agent_path"] == ["meta", "writer"]
        (question,) = await hub.open_requests(session.id)
        await hub.answer(question.id, ConfirmAnswer(approved=True), digest=question.digest)
        assert (await running)["text"] == "Good."
        assert ran == ["x"]


async def test_the_calls_of_participants_are_messages_before_their_speeches(tmp_path: Path) -> None:
    def look(at: str) -> str:
        """Look at something."""
        return f"{at}: red"

    team_file(tmp_path / "home", PAIR.replace('"Write."', '"Write."\ntools = ["look"]'))
    script = [[say("Let me look."), call("look", {"at": "rose"}, id="c1")], "A red rose.", "Good."]
    async with open_team_hub(tmp_path, script, tools=[look]) as hub:
        session = await hub.create(team="pair", permission_mode="auto")
        await run(hub, session.id, "Write.")
        messages = await hub.messages(session.id)
        calls = messages[1]["message_id"]
        assert [{key: row[key] for key in row if key not in ("message_id", "created_at")} for row in messages] == [
            {"role": "user", "content": "Write."},
            {
                "role": "assistant",
                "content": "Let me look.",
                "sender": "writer",
                "tool_calls": [{"id": "c1", "name": "look", "arguments": {"at": "rose"}}],
            },
            {"role": "tool", "content": "rose: red", "tool_call_id": "c1", "outcome": "ok", "is_error": False},
            {"role": "assistant", "content": "A red rose.", "sender": "writer"},
            {"role": "assistant", "content": "Good.", "sender": "critic"},
        ]
        assert "\n\n## writer\n\nLet me look.\n\n**look**\n\n```json\n" in await export_markdown(hub.store.log, session)
        with pytest.raises(MessageNotFound, match="is part of a speech; take the speech that follows it"):
            await hub.rewind(session.id, calls)
        await hub.rewind(session.id, messages[3]["message_id"])
        assert await hub.messages(session.id) == messages[:4]
        await hub.rewind(session.id, messages[0]["message_id"])
        assert await hub.messages(session.id) == messages[:1]


async def test_the_calls_of_a_speech_that_was_stopped_are_messages_too(tmp_path: Path) -> None:
    started = asyncio.Event()

    async def wait() -> str:
        """Wait."""
        started.set()
        await asyncio.Event().wait()
        return ""

    team_file(tmp_path / "home", PAIR.replace('"Write."', '"Write."\ntools = ["wait"]'))
    async with open_team_hub(tmp_path, [call("wait", id="c1")], tools=[wait]) as hub:
        session = await hub.create(team="pair", permission_mode="auto")
        running = asyncio.create_task(run(hub, session.id, "Write."))
        await started.wait()
        await hub.stop(session.id)
        await running
        rows = await hub.messages(session.id)
    assert [(row["role"], row.get("sender"), row.get("tool_call_id")) for row in rows] == [
        *(("user", None, None), ("assistant", "writer", None), ("tool", None, "c1"))
    ]


async def test_a_stopped_run_goes_on_with_the_speaker_that_was_stopped(tmp_path: Path) -> None:
    model = ScriptedModel(["One.", hang(), "Two.", "Three."])
    async with open_team_hub(tmp_path, model=model) as hub:
        session = await hub.create(team="pair")
        running = asyncio.create_task(run(hub, session.id, "Write."))
        await wait_until(lambda: len(model.requests) >= 2)
        await hub.stop(session.id)
        assert (await running)["code"] == "stopped"
        assert said(await hub.messages(session.id)) == [(None, "Write."), ("writer", "One.")]
        assert (await run(hub, session.id))["text"] == "Three."
        assert speakers(await log_of(hub, session.id)) == ["writer", "critic", "critic", "writer"]
    assert shown(model, 2) == [("user", "Write."), ("user", "writer said:\nOne."), ("user", "Continue.")]


async def test_the_next_process_makes_the_team_from_the_log(tmp_path: Path) -> None:
    async with open_team_hub(tmp_path, ["One.", "Two."]) as hub:
        session = await hub.create(team="pair")
        await run(hub, session.id, "Write.")
    model = ScriptedModel(["Three.", "Four."])
    async with open_team_hub(tmp_path, model=model) as hub:
        await run(hub, session.id)
    assert shown(model, 0) == [("user", "Write."), ("assistant", "One."), ("user", "critic said:\nTwo.")]


async def test_a_rewind_undoes_and_redoes_the_edits_of_participants(tmp_path: Path) -> None:
    team_file(tmp_path / "home", PAIR.replace('"Write."', '"Write."\ntools = ["file_write"]'))
    script = ["One.", "Two.", [call("file_write", {"path": "poem.txt", "content": "Red."})], "Written.", "Good."]
    async with open_team_hub(tmp_path, script, tools=builtin_tools()) as hub:
        session = await hub.create(team="pair", permission_mode="auto")
        await run(hub, session.id, "Think.")
        thought = (await hub.messages(session.id))[-1]["message_id"]
        await run(hub, session.id, "Write.")
        written = (await hub.messages(session.id))[-1]["message_id"]
        undone = await hub.rewind(session.id, thought)
        assert [(file.path, file.outcome) for file in undone.files] == [("poem.txt", "removed")]
        assert not (tmp_path / "poem.txt").exists()
        await hub.rewind(session.id, written)
        assert (tmp_path / "poem.txt").read_text() == "Red."


async def test_a_team_forgets_what_was_rewound(tmp_path: Path) -> None:
    model = ScriptedModel(["One.", "Two.", "Bad.", "Worse.", "Three.", "Four."])
    async with open_team_hub(tmp_path, model=model) as hub:
        session = await hub.create(team="pair")
        await run(hub, session.id, "Write.")
        last = (await hub.messages(session.id))[-1]["message_id"]
        await run(hub, session.id, "Go wrong.")
        await hub.rewind(session.id, last)
        await run(hub, session.id, "Go right.")
    assert shown(model, 4) == [
        *(("user", "Write."), ("assistant", "One.")),
        *(("user", "critic said:\nTwo."), ("user", "Go right.")),
    ]


async def test_a_team_goes_on_from_the_speech_to_which_its_session_was_rewound(tmp_path: Path) -> None:
    model = ScriptedModel(["One.", "Bad.", "Two.", "Three."])
    async with open_team_hub(tmp_path, model=model) as hub:
        session = await hub.create(team="pair")
        await run(hub, session.id, "Write.")
        first = (await hub.messages(session.id))[1]
        await hub.rewind(session.id, first["message_id"])
        assert said(await hub.messages(session.id)) == [(None, "Write."), ("writer", "One.")]
        assert (await run(hub, session.id, "Go on."))["text"] == "Three."
        assert said(await hub.messages(session.id)) == [
            *((None, "Write."), ("writer", "One."), (None, "Go on.")),
            *(("critic", "Two."), ("writer", "Three.")),
        ]
    assert shown(model, 2) == [("user", "Write."), ("user", "writer said:\nOne."), ("user", "Go on.")]


async def test_a_fork_goes_on_with_the_team_of_its_session(tmp_path: Path) -> None:
    model = ScriptedModel(["One.", "Two.", "Three.", "Four."])
    async with open_team_hub(tmp_path, model=model) as hub:
        session = await hub.create(team="pair")
        await run(hub, session.id, "Write.")
        forked = await fork(hub.store, session.id, now=rfc3339(SystemClock().now()))
        assert forked.team == "pair"
        await run(hub, forked.id, "More.")
        assert speakers(await log_of(hub, forked.id)) == ["writer", "critic"] * 2
        assert speakers(await log_of(hub, session.id)) == ["writer", "critic"]
    assert shown(model, 2) == [
        *(("user", "Write."), ("assistant", "One.")),
        *(("user", "critic said:\nTwo."), ("user", "More.")),
    ]


async def test_a_queued_message_is_the_next_task_and_a_steering_one_is_said_to_the_next_speaker(tmp_path: Path) -> None:
    ran, release = asyncio.Event(), asyncio.Event()

    async def wait() -> str:
        """Wait."""
        ran.set()
        await release.wait()
        return "waited"

    team_file(tmp_path / "home", PAIR.replace('"Write."', '"Write."\ntools = ["wait"]'))
    model = ScriptedModel([call("wait"), "One.", "Two.", "Three.", "Four."])
    async with open_team_hub(tmp_path, model=model, tools=[wait]) as hub:
        session = await hub.create(team="pair", permission_mode="auto")
        running = asyncio.create_task(run(hub, session.id, "Write."))
        await ran.wait()
        queued = await hub.submit(session.id, TurnRequest(input="Then this.", when_busy="queue"))
        steered = await hub.submit(session.id, TurnRequest(input="In prose.", when_busy="steer"))
        assert (queued.state, steered.state) == ("queued", "steered")
        release.set()
        assert (await running)["text"] == "Two."
        await wait_until(lambda: hub.running_turn_id(session.id) is None and len(model.requests) >= 5)
        log = await log_of(hub, session.id)
        assert sum(event["type"] == "steered" for event in log) == 1
        assert speakers(log) == ["writer", "critic"] * 2
    assert shown(model, 2) == [("user", "Write."), ("user", "writer said:\nOne."), ("user", "In prose.")]
    assert shown(model, 3)[-3:] == [("user", "In prose."), ("user", "critic said:\nTwo."), ("user", "Then this.")]


async def test_files_with_the_task_reach_the_participants_and_the_log_has_their_names(tmp_path: Path) -> None:
    picture = make_attachment("notes.txt", b"Roses are red.")
    model = ScriptedModel(["One.", "Two."])
    async with open_team_hub(tmp_path, model=model) as hub:
        session = await hub.create(team="pair")
        message = UserMessage(content="Write.", attachments=(picture,))
        assert [event async for event in hub.run_turn(session.id, message)][-1].type == "final"
        (said,) = [
            event["data"]["message"]
            for event in await log_of(hub, session.id)
            if event["type"] == "team_message" and event["data"]["message"]["source"] == "user"
        ]
        named = {"name": "notes.txt", "media_type": "text/plain", "size": 14, "sha256": picture.digest}
        assert (said["type"], said["content"]) == ("MultiModalMessage", ["Write.", named])
    for request in model.requests:
        (asked,) = [message for message in request.messages if isinstance(message, UserMessage) and message.attachments]
        assert asked.attachments == (picture,)


async def test_a_team_that_is_gone_or_changed_ends_the_turn_and_leaves_the_session_readable(
    tmp_path: Path, pair: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_team_hub(tmp_path, ["One.", "Two.", "Three.", "Four."]) as hub:
        session = await hub.create(team="pair")
        await run(hub, session.id, "Write.")
        pair.write_text(PAIR.replace("critic", "judge"), encoding="utf-8")
        changed = await run(hub, session.id, "More.")
        pair.write_text(PAIR + "speed = 3", encoding="utf-8")
        broken = await run(hub, session.id, "More.")
        pair.write_text(PAIR.replace('"Write."', '"Write."\nmodel = "nobody:none"'), encoding="utf-8")
        unknown = await run(hub, session.id, "More.")
        pair.unlink()
        gone = await run(hub, session.id, "More.")
        assert [(data["code"], data["fatal"]) for data in (changed, broken, unknown, gone)] == [
            ("team_unavailable", True)
        ] * 4
        assert [record for record in caplog.records if record.levelname == "ERROR"] == []
        assert "team 'pair': model 'nobody:none' names the unknown provider 'nobody'" in unknown["text"]
        assert "cannot go on in this session: the session has speeches of ['critic']" in changed["text"]
        assert f"{pair}: participants[1] has the unknown key 'speed'" in broken["text"]
        assert gone["text"].startswith("unknown team 'pair'; known teams: ")
        assert [row["content"] for row in await hub.messages(session.id)][:3] == ["Write.", "One.", "Two."]
        pair.write_text(PAIR, encoding="utf-8")
        assert (await run(hub, session.id))["text"] == "Four."


async def test_the_failure_of_a_participant_has_its_name_and_the_code_of_its_turn(tmp_path: Path) -> None:
    refused = ModelError("no such key", code="provider.auth")
    async with open_team_hub(tmp_path, ["One.", refused]) as hub:
        session = await hub.create(team="pair")
        assert await run(hub, session.id, "Write.") == {
            "text": "team 'pair', participant 'critic': no such key",
            "code": "provider.auth",
            "fatal": True,
            "retryable": False,
        }
        await log_of(hub, session.id)


@pytest.mark.parametrize(
    ("team", "error", "problem"),
    [
        ("nope", UnknownTeam, "unknown team 'nope'; known teams: broken, editors, pair, "),
        ("../pair", UnknownTeam, "unknown team"),
        ("editors", TeamConfigError, r"team 'editors': participant 'writer': .*'file_edit'.* in this session"),
        ("broken", TeamConfigError, r"broken\.toml: kind is missing"),
    ],
)
async def test_a_session_with_a_team_that_cannot_be_used_is_not_created(
    tmp_path: Path, team: str, error: type[Exception], problem: str
) -> None:
    team_file(tmp_path / "home", PAIR.replace('"Write."', '"Write."\ntools = ["file_edit"]'), "editors")
    team_file(tmp_path / "home", "", "broken")
    async with open_team_hub(tmp_path) as hub:
        with pytest.raises(error, match=problem):
            await hub.create(team=team)
        assert await hub.store.catalog.sessions() == []
