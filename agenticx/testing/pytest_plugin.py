"""The pytest plugin: fixtures for scripted turns, which import their modules when they are used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from agenticx.clocks import ScaledClock
    from agenticx.llms.scripted import ScriptedModel
    from agenticx.runtime import Session
    from agenticx.testing.fake_openai import FakeOpenAIServer
    from agenticx.testing.gates import ScriptedGate

__all__ = ["agx_clock", "agx_session", "fake_openai_server", "scripted_gate", "scripted_model"]

_SPEED = 100.0


@pytest.fixture
def agx_session(tmp_path: Path) -> Session:
    """Return a new session whose workspace is the test's `tmp_path`."""
    from agenticx.runtime import Session

    return Session(workspace=tmp_path)


@pytest.fixture
def agx_clock() -> ScaledClock:
    """Return a clock a hundred times as fast as real time: a limit of 60 s expires after 0.6 s."""
    from agenticx.clocks import ScaledClock

    return ScaledClock(_SPEED)


@pytest.fixture
def scripted_model() -> Iterator[Callable[..., ScriptedModel]]:
    """Yield a function that makes models, `scripted_model([say("hi")])`.

    At the end of the test every reply of each must have been used.
    """
    from agenticx.llms.scripted import ScriptedModel

    made: list[ScriptedModel] = []

    def make(*args: Any, **kwargs: Any) -> ScriptedModel:
        made.append(ScriptedModel(*args, **kwargs))
        return made[-1]

    yield make
    for model in made:
        model.assert_done()


@pytest.fixture
def scripted_gate() -> Iterator[Callable[..., ScriptedGate]]:
    """Yield a function that makes gates, `scripted_gate(True, False)`.

    At the end of the test every answer of each must have been used.
    """
    from agenticx.testing.gates import ScriptedGate

    made: list[ScriptedGate] = []

    def make(*answers: Any) -> ScriptedGate:
        made.append(ScriptedGate(*answers))
        return made[-1]

    yield make
    for gate in made:
        gate.assert_done()


@pytest.fixture
def fake_openai_server() -> type[FakeOpenAIServer]:
    """Return the fake provider's class: `async with fake_openai_server([say("hi")]) as server: … server.base_url …`."""
    from agenticx.testing.fake_openai import FakeOpenAIServer

    return FakeOpenAIServer
