"""The sampling of turns: the runtime's, replaced by the turn's, refused before the turn begins."""

from __future__ import annotations

import pytest

from agenticx.llms import Sampling, UnsupportedSampling
from agenticx.runtime import AgentRuntime, AutoApproveConfirmGate
from agenticx.testing import ScriptedModel, call, say
from agenticx.tools import tool

RUNTIME = Sampling(temperature=0.2, seed=1, extra_body={"a": 1, "b": 1})


class Picky(ScriptedModel):
    """A model that takes no seed."""

    def sampling_problems(self, sampling):
        return {} if sampling.seed is None else {"seed": "takes no `seed`"}


@tool(risk="read")
def look() -> str:
    """Look."""
    return "seen"


@pytest.mark.anyio
async def test_the_sampling_of_a_turn_is_in_all_its_calls_and_only_there(play):
    model = ScriptedModel([call("look"), say("done"), say("again")])
    runtime = play.runtime(model, sampling=RUNTIME)
    turn = Sampling(temperature=1, stop="END", extra_body={"b": 2})
    await runtime.run("go", play.session(), tools=[look], sampling=turn)
    await runtime.run("go", play.session())

    merged = Sampling(temperature=1, seed=1, stop=["END"], extra_body={"a": 1, "b": 2})
    assert [request.sampling for request in model.requests] == [merged, merged, RUNTIME]


@pytest.mark.anyio
async def test_sampling_that_the_model_does_not_take_is_refused_before_the_first_event(play):
    session = play.session()
    runtime = play.runtime(Picky(), sampling=Sampling(temperature=0))
    with pytest.raises(UnsupportedSampling, match="scripted takes no `seed`"):
        await anext(runtime.run_turn("go", session, sampling=Sampling(seed=7)))
    with pytest.raises(TypeError, match="sampling must be a Sampling, not dict"):
        await anext(runtime.run_turn("go", session, sampling={"seed": 7}))
    assert session.messages == []
    with pytest.raises(UnsupportedSampling, match="scripted takes no `seed`"):
        play.runtime(Picky(), sampling=Sampling(seed=7))


def test_run_sync_takes_sampling(play):
    model = ScriptedModel([say("hi")])
    runtime = AgentRuntime(model, AutoApproveConfirmGate(), settings=play.settings(), sampling=RUNTIME)
    assert runtime.run_sync("go", play.session(), sampling=Sampling(seed=9)).text == "hi"
    assert (model.requests[0].sampling.seed, model.requests[0].sampling.temperature) == (9, 0.2)
