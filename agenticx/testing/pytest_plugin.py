"""The pytest plugin: fixtures for scripted turns; nothing is imported until one of them is used."""

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
    """A fresh session whose workspace is the test's own folder."""
    from agenticx.runtime import Session

    return Session(workspace=tmp_path)


@pytest.fixture
def agx_clock() -> ScaledClock:
    """A clock a hundred times as fast as real time: a limit of 60 s expires after 0.6 s."""
    from agenticx.clocks import ScaledClock

    return ScaledClock(_SPEED)


@pytest.fixture
def scripted_model() -> Iterator[Callable[..., ScriptedModel]]:
    """Makes models, `scripted_model([say("hi")])`; at the end of the test each must have been played to its end."""
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
    """Makes gates, `scripted_gate(True, False)`; at the end of the test every answer must have been asked for."""
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
    """The fake provider's class: `async with fake_openai_server([say("hi")]) as server: … server.base_url …`."""
    from agenticx.testing.fake_openai import FakeOpenAIServer

    return FakeOpenAIServer
