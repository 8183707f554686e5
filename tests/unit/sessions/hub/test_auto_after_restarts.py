"""Mode auto after a restart: turns that go on keep their consent, and the first change of a new one is asked about."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agenticx.errors import SessionBusy
from agenticx.runtime import ConfirmAnswer, QuestionAnswer
from agenticx.sessions import Hub, SessionRecord, TurnRequest, fork
from agenticx.testing import call
from tests.support.sessions import SessionHarness, wait_for_event, wait_for_turn_end

pytestmark = [pytest.mark.anyio, pytest.mark.keeps_owner]

ASK = call("ask_user", {"text": "Go on?"})


def note(text: str) -> Any:
    return call("note", {"text": text})


async def open_in_auto(harness: SessionHarness, *script: Any) -> Hub:
    """Open a hub whose session is put into mode auto."""
    hub = await harness.open(*script)
    await hub.change(harness.session_id, {"permission_mode": "auto"})
    return hub


async def answer_question(hub: Hub, session_id: str) -> None:
    (question,) = await hub.open_requests(session_id)
    await hub.answer(question.id, QuestionAnswer(answer="yes"))


async def agree(hub: Hub, session_id: str) -> str:
    """Say yes to the open confirmation and return why it was asked."""
    (asked,) = await hub.open_requests(session_id)
    await hub.answer(asked.id, ConfirmAnswer(approved=True), digest=asked.digest)
    return asked.context["decided_by"]


async def modes(harness: SessionHarness) -> list[tuple[str | None, bool | None]]:
    """Return of each turn the permission mode that its `turn_started` names, and whether that was resumed."""
    events = await harness.store.log.read(harness.session_id, 0, 10_000)
    started = [json.loads(event.frame_json)["data"] for event in events if event.type == "turn_started"]
    return [(data.get("permission_mode"), data.get("permission_mode_resumed")) for data in started]


async def test_a_turn_that_goes_on_keeps_its_consent_and_a_queued_one_asks(harness: SessionHarness) -> None:
    hub, session_id = await open_in_auto(harness, ASK), harness.session_id
    await hub.start(session_id, TurnRequest(input="one"))
    await wait_for_event(harness.store, session_id, "question_asked")
    for text in ("two", "three"):
        await hub.submit(session_id, TurnRequest(input=text, when_busy="queue", permission_mode="auto"))
    await harness.close(hub)

    script = [note("one"), "done", note("two"), note("two again"), "done", note("three"), "done"]
    hub = await harness.open(*script)
    await answer_question(hub, session_id)
    await wait_for_event(harness.store, session_id, "confirm_required")
    assert harness.noted_texts == ["one"]
    assert await agree(hub, session_id) == "resumed"
    events = await wait_for_turn_end(harness.store, session_id, ends=3)
    assert harness.noted_texts == ["one", "two", "two again", "three"]
    assert [event.type for event in events].count("confirm_required") == 1
    assert await modes(harness) == [("auto", None), ("auto", True), ("auto", None)]
    await harness.close(hub)


async def test_a_turn_without_consent_does_not_get_it_by_another_restart(harness: SessionHarness) -> None:
    await harness.close(await open_in_auto(harness))
    session_id = harness.session_id

    hub = await harness.open(ASK)
    await hub.start(session_id, TurnRequest(input="one"))
    await wait_for_event(harness.store, session_id, "question_asked")
    await harness.close(hub)

    hub = await harness.open(note("asked"))
    await answer_question(hub, session_id)
    await wait_for_event(harness.store, session_id, "confirm_required")
    await harness.close(hub)

    hub = await harness.open(ASK)
    assert await agree(hub, session_id) == "resumed"
    await wait_for_event(harness.store, session_id, "question_asked", count=2)
    assert harness.noted_texts == ["asked"]
    await harness.close(hub)

    hub = await harness.open(note("agreed"), "done")
    await answer_question(hub, session_id)
    events = await wait_for_turn_end(harness.store, session_id)
    assert harness.noted_texts == ["asked", "agreed"]
    assert [event.type for event in events].count("confirm_required") == 1
    await harness.close(hub)


async def test_only_a_request_that_is_accepted_and_names_the_mode_is_consent(harness: SessionHarness) -> None:
    hub, session_id = await open_in_auto(harness, note("new"), "done"), harness.session_id
    first = TurnRequest(input="one", client_turn_id="a", permission_mode="auto")
    await hub.start(session_id, first)
    await wait_for_turn_end(harness.store, session_id)
    await harness.close(hub)

    hub = await harness.open(note("asked"), "done", note("named"), "done")
    assert (await hub.submit(session_id, first)).state == "started"  # the turn of before the restart
    await hub.start(session_id, TurnRequest(input="two"))
    await wait_for_event(harness.store, session_id, "confirm_required")
    with pytest.raises(SessionBusy):
        await hub.submit(session_id, TurnRequest(input="three", permission_mode="auto"))
    (asked,) = await hub.open_requests(session_id)
    await hub.answer(asked.id, ConfirmAnswer(approved=False), digest=asked.digest)
    await wait_for_turn_end(harness.store, session_id, ends=2)
    await hub.start(session_id, TurnRequest(input="three", permission_mode="auto"))
    await wait_for_turn_end(harness.store, session_id, ends=3)
    assert harness.noted_texts == ["new", "named"]
    assert await modes(harness) == [("auto", None), ("auto", True), ("auto", None)]
    await harness.close(hub)


async def test_a_fork_has_the_consent_of_the_session_that_it_was_made_from(harness: SessionHarness) -> None:
    await harness.close(await open_in_auto(harness))
    session_id = harness.session_id

    hub = await harness.open(note("asked"), "done", note("created"), "done")
    store = harness.store
    created = SessionRecord(workspace=str(harness.home), permission_mode="auto", created_at="2099-01-01")
    await store.create(created)
    for source, reasons in ((session_id, ["resumed"]), (created.id, [])):
        copy = await fork(store, (await fork(store, source, now="2099-01-01")).id, now="2099-01-01")
        await hub.start(copy.id, TurnRequest(input="Note"))
        for reason in reasons:
            await wait_for_event(store, copy.id, "confirm_required")
            assert await agree(hub, copy.id) == reason
        events = await wait_for_turn_end(store, copy.id)
        assert [event.type for event in events].count("confirm_required") == len(reasons)
    assert harness.noted_texts == ["asked", "created"]
    await harness.close(hub)
