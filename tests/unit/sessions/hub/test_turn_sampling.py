"""A turn with sampling, an output schema and a model of its own, also queued and after a restart."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from agenticx.llms import Sampling, ScriptedModel, UnsupportedSampling
from agenticx.runtime import ConfirmAnswer
from agenticx.sessions import Hub, SessionRecord, Store, TurnRequest
from agenticx.settings import load_settings
from agenticx.testing import call, collect, say
from agenticx.tools import tool
from tests.support.sessions import SessionHarness, wait_for_event, wait_for_turn_end
from tests.support.timeouts import PatientClock

pytestmark = pytest.mark.anyio

OWN = Sampling(temperature=0.25, stop=["END", "\n"], extra_body={"cache": {"on": True}})
QUEUED = Sampling(seed=7, reasoning_effort="low")


class Picky(ScriptedModel):
    """A model that takes no seed."""

    def sampling_problems(self, sampling: Sampling) -> Mapping[Any, str]:
        return {} if sampling.seed is None else {"seed": "takes no `seed`"}


async def test_the_sampling_of_a_turn_is_in_all_its_calls_also_after_a_restart(harness: SessionHarness) -> None:
    hub = await harness.open(call("note", {"text": "one"}))
    session_id = harness.session_id
    await hub.start(session_id, TurnRequest(input="one", sampling=OWN))
    await wait_for_event(harness.store, session_id, "confirm_required")
    queued = TurnRequest(input="two", when_busy="queue", sampling=QUEUED, output_schema={"type": "integer"})
    await hub.submit(session_id, queued)
    assert [request.sampling for request in harness.model.requests] == [OWN]
    await harness.close(hub)

    hub = await harness.open("one done", '{"value": 2}', "three done")
    (question,) = await hub.open_requests(session_id)
    await hub.answer(question.id, ConfirmAnswer(approved=True), digest=question.digest)
    events = await wait_for_turn_end(harness.store, session_id, ends=2)
    assert json.loads(events[-1].frame_json)["data"]["output"] == 2
    await hub.start(session_id, TurnRequest(input="three"))
    await wait_for_turn_end(harness.store, session_id, ends=3)
    assert [request.sampling for request in harness.model.requests] == [OWN, QUEUED, Sampling()]
    await harness.close(hub)


@tool(risk="write")
def note(text: str) -> str:
    """Write a note."""
    return f"noted {text}"


async def open_with_models(open_store: Callable[[], Store], home: Any, models: Mapping[str, Any]) -> Hub:
    """Open a hub with models by name, of which `usual` is the default."""
    hub = Hub(
        open_store(),
        models=lambda name: models[name or "usual"],
        tools=lambda _: [note],
        settings=load_settings({"home": home}, environ={}),
        clock=PatientClock(),
    )
    await hub.recover()
    return hub


async def test_a_turn_that_is_resumed_keeps_its_own_model(tmp_path: Any, open_store: Callable[[], Store]) -> None:
    models = {"usual": ScriptedModel(), "own": ScriptedModel([call("note", {"text": "x"})])}
    hub = await open_with_models(open_store, tmp_path, models)
    session = SessionRecord(workspace=str(tmp_path), created_at="2026-01-01T00:00:00.000Z")
    await hub.store.create(session)
    await hub.start(session.id, TurnRequest(input="one", model="own"))
    await wait_for_event(hub.store, session.id, "confirm_required")
    await hub.close()
    await hub.store.aclose()

    models = {"usual": ScriptedModel(), "own": ScriptedModel([say("done")])}
    hub = await open_with_models(open_store, tmp_path, models)
    (question,) = await hub.open_requests(session.id)
    await hub.answer(question.id, ConfirmAnswer(approved=True), digest=question.digest)
    await wait_for_turn_end(hub.store, session.id)
    assert [len(model.requests) for model in models.values()] == [0, 1]
    await hub.close()
    await hub.store.aclose()


async def test_sampling_that_a_turn_cannot_have_is_refused_before_anything_is_stored(
    tmp_path: Any, open_store: Callable[[], Store]
) -> None:
    hub = await open_with_models(open_store, tmp_path, {"usual": Picky(), "easy": ScriptedModel(["hi"])})
    session = SessionRecord(workspace=str(tmp_path), created_at="2026-01-01T00:00:00.000Z")
    await hub.store.create(session)
    with pytest.raises(UnsupportedSampling, match="scripted takes no `seed`"):
        await anext(hub.run_turn(session.id, "go", sampling=QUEUED))
    wrong: Any = {"seed": 7}
    with pytest.raises(TypeError, match="sampling must be a Sampling, not dict"):
        await anext(hub.run_turn(session.id, "go", sampling=wrong))
    assert await hub.store.log.head(session.id) == 0
    events = await collect(hub.run_turn(session.id, "go", model="easy", sampling=QUEUED))
    assert events[-1].type == "final"
    await hub.close()
    await hub.store.aclose()
