"""Handoffs of a configured team in a session: between its participants, and to a person outside of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agenticx import UserMessage
from agenticx.attachments import make_attachment
from agenticx.llms import ScriptedModel
from agenticx.sessions import Hub, export_markdown
from agenticx.testing import call, collect, outline
from tests.support.sessions import wait_for_event
from tests.support.teams.configured import DESK, log_of, open_team_hub, shown, speakers, team_file

pytestmark = pytest.mark.anyio

ASKING = """
kind = "swarm"
max_turns = 3
[[participants]]
name = "desk"
system_message = "Ask."
handoffs = ["person"]
[[participants]]
name = "person"
kind = "user"
"""


@pytest.fixture(autouse=True)
def teams(tmp_path: Path) -> None:
    team_file(tmp_path / "home", DESK, "desk")
    team_file(tmp_path / "home", ASKING, "asking")


async def run(hub: Hub, session_id: str, message: str | UserMessage = "") -> Any:
    """Run a turn and return the data of its last event."""
    return [event async for event in hub.run_turn(session_id, message)][-1].data


async def test_the_reason_of_a_handoff_is_in_its_event_and_read_by_the_next_agent(tmp_path: Path) -> None:
    model = ScriptedModel([call("handoff_to_clerk", {"reason": "They want a refund."}), "Paid. DONE"])
    async with open_team_hub(tmp_path, model=model) as hub:
        session = await hub.create(team="desk")
        await run(hub, session.id, "My ticket.")
        log = await log_of(hub, session.id)
        (started, *_) = [event for event in log if event["type"] == "turn_started" and event["agent_id"] == "desk"]
        speech = [event for event in log if event["turn_id"] == started["turn_id"]]
        assert outline(speech)[-2:] == ["handoff", "final"]
        (handoff,) = [event for event in log if event["type"] == "handoff"]
        assert handoff["data"] == {"from_agent": "desk", "to_agent": "clerk", "reason": "They want a refund."}
        messages = [event["data"]["message"] for event in log if event["type"] == "team_message"]
        (message,) = [one for one in messages if one["type"] == "HandoffMessage"]
        assert message["content"] == "Transferred to clerk, adopting the role of clerk immediately."
        assert message["metadata"] == {"reason": "They want a refund."}
        assert (await hub.store.catalog.get(session.id)).agent is None
        texts = [row["content"] for row in await hub.messages(session.id) if row.get("sender") == "desk"]
        assert texts[-1] == f"{message['content']}\nReason: They want a refund."
        exported = await export_markdown(hub.store.log, session)
        assert exported.partition("**handoff")[2] == (
            '\\_to\\_clerk**\n\n```json\n{\n  "reason": "They want a refund."\n}\n```\n\n'
            f"```\n{message['content']}\n```\n\n## clerk\n\nPaid. DONE\n"
        )
    assert shown(model, 1)[-1] == (
        "user",
        "desk said:\nTransferred to clerk, adopting the role of clerk immediately.\nReason: They want a refund.",
    )


async def test_a_person_in_the_team_is_asked_the_question_that_the_handoff_has_as_its_reason(tmp_path: Path) -> None:
    async with open_team_hub(tmp_path, [call("handoff_to_person", {"reason": "Read or change?"})]) as hub:
        session = await hub.create(team="asking")
        events = asyncio.create_task(collect(hub.run_turn(session.id, "The notes.")))
        await wait_for_event(hub.store, session.id, "question_asked")
        (question,) = await hub.open_requests(session.id)
        assert question.text == "user: The notes.\n\ndesk: Read or change?\n\nIt is your turn to speak."
        await hub.stop(session.id)
        await events


async def test_the_next_message_answers_the_agent_that_handed_over_to_a_person_outside(tmp_path: Path) -> None:
    asking = call("handoff_to_customer", {"reason": "Where to?"})
    model = ScriptedModel([call("handoff_to_clerk"), asking, "Booked. DONE"])
    async with open_team_hub(tmp_path, model=model) as hub:
        session = await hub.create(team="desk")
        asked = await run(hub, session.id, "A ticket.")
        assert asked["stop_reason"] == "Handoff to customer from clerk detected."
        assert asked["text"].endswith("\nReason: Where to?")
        assert (await run(hub, session.id, "To Rome."))["text"] == "Booked. DONE"
        log = await log_of(hub, session.id)
        assert speakers(log) == ["desk", "clerk", "clerk"]
        messages = [event["data"]["message"] for event in log if event["type"] == "team_message"]
        (answer,) = [one for one in messages if one["type"] == "HandoffMessage" and one["source"] == "user"]
        assert (answer["content"], answer["target"]) == ("To Rome.", "clerk")
        rows = [(row["role"], row["content"]) for row in await hub.messages(session.id) if row["role"] == "user"]
        assert rows == [("user", "A ticket."), ("user", "To Rome.")]
    assert shown(model, 2)[-1] == ("user", "To Rome.")


async def test_the_answer_reaches_the_agent_after_a_restart_too(tmp_path: Path) -> None:
    async with open_team_hub(tmp_path, [call("handoff_to_customer")]) as hub:
        session = await hub.create(team="desk")
        await run(hub, session.id, "A ticket.")
    model = ScriptedModel(["Booked. DONE"])
    async with open_team_hub(tmp_path, model=model) as hub:
        assert (await run(hub, session.id, "To Rome."))["text"] == "Booked. DONE"
    assert shown(model, 0)[-1] == ("user", "To Rome.")


async def test_files_with_the_answer_reach_the_agent(tmp_path: Path) -> None:
    notes = make_attachment("notes.txt", b"To Rome.")
    model = ScriptedModel([call("handoff_to_customer"), "Booked. DONE"])
    async with open_team_hub(tmp_path, model=model) as hub:
        session = await hub.create(team="desk")
        await run(hub, session.id, "A ticket.")
        await run(hub, session.id, UserMessage(content="See here.", attachments=(notes,)))
        await log_of(hub, session.id)
    *_, files, text = model.requests[1].messages
    assert isinstance(files, UserMessage)
    assert files.attachments == (notes,)
    assert text.content == "See here."


async def test_without_an_answer_the_agent_that_handed_over_goes_on(tmp_path: Path) -> None:
    model = ScriptedModel([call("handoff_to_customer"), "Booked. DONE"])
    async with open_team_hub(tmp_path, model=model) as hub:
        session = await hub.create(team="desk")
        await run(hub, session.id, "A ticket.")
        assert (await run(hub, session.id))["text"] == "Booked. DONE"
    assert shown(model, 1)[-1] == ("user", "Continue.")
