"""Sampling: its values, the order of precedence, and models that do not take it."""

from __future__ import annotations

from typing import Any

import pytest

import agenticx
from agenticx import UserMessage
from agenticx.errors import ModelError
from agenticx.llms import (
    ModelRequest,
    RetryingModel,
    Sampling,
    ScriptedModel,
    UnsupportedSampling,
    adapt,
    complete,
    resolve_model,
)
from agenticx.llms.model_catalog import ModelFacts
from agenticx.llms.sampling import check_sampling
from agenticx.llms.wrappers.capabilities import CapabilityModel
from agenticx.llms.wrappers.sampling import FallbackSamplingModel, SampledModel
from agenticx.settings import Settings, load_settings
from agenticx.testing import FakeOpenAIServer, fail

pytestmark = pytest.mark.anyio

HELLO = [UserMessage(content="hello")]


@pytest.fixture
def settings(tmp_path: Any) -> Settings:
    return load_settings({}, environ={"AGX_HOME": str(tmp_path)})


# --- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"temperature": 2.1}, ValueError, "temperature must be from 0 to 2, not 2.1"),
        ({"temperature": float("nan")}, ValueError, "temperature must be from 0 to 2, not nan"),
        ({"temperature": True}, TypeError, "temperature must be a number from 0 to 2, not True"),
        ({"top_p": -1}, ValueError, "top_p must be from 0 to 1, not -1"),
        ({"max_output_tokens": 0}, ValueError, "max_output_tokens must be from 1 to 2147483647, not 0"),
        ({"max_output_tokens": 10**30}, ValueError, "max_output_tokens must be from 1 to 2147483647, not 1000000"),
        ({"max_output_tokens": 10**5000}, ValueError, "from 1 to 2147483647, not a number of 16610 bits"),
        ({"max_output_tokens": 1.0}, TypeError, "max_output_tokens must be a whole number, not 1.0"),
        ({"seed": 2**63}, ValueError, "seed must be from -9223372036854775808 to 9223372036854775807"),
        ({"stop": []}, ValueError, "stop must have at least one text, and none that is empty"),
        ({"stop": ["a", ""]}, ValueError, "stop must have at least one text, and none that is empty"),
        ({"stop": "\ud800"}, ValueError, "stop must not contain half of a surrogate pair"),
        ({"stop": ["a", "b\udfff"]}, ValueError, "stop must not contain half of a surrogate pair"),
        ({"stop": 5}, TypeError, "stop must be a text or a list of texts, not 5"),
        ({"reasoning_effort": "lots"}, ValueError, "reasoning_effort must be one of none, minimal, low, medium, high"),
        ({"extra_body": [1]}, TypeError, "extra_body must be a dict whose keys are texts"),
        ({"extra_body": {"a": ["\ud800"]}}, ValueError, "extra_body must not contain half of a surrogate pair"),
        ({"extra_body": {"a": {1}}}, ValueError, "extra_body must be JSON"),
    ],
)
def test_a_value_out_of_range_is_refused_with_what_is_right(
    values: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as raised:
        Sampling(**values)
    assert message in str(raised.value)


def test_one_stop_text_is_a_list_of_one_and_an_extra_body_is_a_copy_that_is_not_shown() -> None:
    extra = {"secret": ["a"]}
    sampling = agenticx.Sampling(stop="END", extra_body=extra)
    extra["secret"].append("b")
    assert (sampling.stop, sampling.extra_body) == (("END",), {"secret": ["a"]})
    assert repr(sampling) == "Sampling(stop=('END',), extra_body={…})"


def test_later_sampling_takes_precedence_field_by_field_and_extra_bodies_are_merged() -> None:
    model = Sampling(temperature=0, seed=1, extra_body={"a": 1, "b": {"x": 1}})
    turn = Sampling(temperature=1, stop="END", extra_body={"b": {"y": 2}})
    assert model.updated(turn) == Sampling(temperature=1, seed=1, stop=["END"], extra_body={"a": 1, "b": {"y": 2}})
    assert (bool(model), bool(Sampling()), model.updated(Sampling())) == (True, False, model)


# --- models -----------------------------------------------------------------------------------------------------------


async def test_a_models_own_sampling_is_in_its_requests_and_that_of_a_request_takes_precedence(
    settings: Settings,
) -> None:
    async with FakeOpenAIServer(["one", "two"]) as server:
        model = resolve_model(
            "vllm:m", base_url=server.base_url, settings=settings, sampling=Sampling(temperature=0.1, seed=3)
        )
        for sampling in (Sampling(), Sampling(temperature=0.9)):
            assert (await complete(model, ModelRequest(messages=HELLO, sampling=sampling)))[1] is None
        bodies = [request.json for request in server.requests]
    assert [(body["temperature"], body["seed"]) for body in bodies] == [(0.1, 3), (0.9, 3)]


def test_a_model_is_not_made_with_sampling_that_it_does_not_take(settings: Settings) -> None:
    with pytest.raises(UnsupportedSampling) as raised:
        resolve_model("openai:gpt-5.4", api_key="k", settings=settings, sampling=Sampling(seed=7))
    assert raised.value.fields == ("seed",)
    assert str(raised.value) == "openai:gpt-5.4 takes no `seed` (the Responses API has no such parameter)"
    with pytest.raises(ValueError, match="demo takes no `temperature`"):
        resolve_model("demo", settings=settings, sampling=Sampling(temperature=0))


def test_a_model_without_reasoning_takes_no_effort() -> None:
    plain, unknown = ModelFacts(capabilities=("tools",)), ModelFacts()
    with pytest.raises(UnsupportedSampling, match="the catalogue says that it does not reason"):
        check_sampling(CapabilityModel(ScriptedModel(), plain), Sampling(reasoning_effort="low"))
    check_sampling(CapabilityModel(ScriptedModel(), plain), Sampling(reasoning_effort="none"))
    check_sampling(CapabilityModel(ScriptedModel(), unknown), Sampling(reasoning_effort="low"))


class Duck:
    """A model of another library."""

    model = "m"

    def invoke(self, messages: Any, **options: Any) -> str:
        return str(sorted(options))


async def test_a_duck_typed_model_takes_none_and_is_not_called_with_it() -> None:
    sampling = Sampling(temperature=0, max_output_tokens=9)
    _, error = await complete(adapt(Duck()), ModelRequest(messages=HELLO, sampling=sampling))
    assert str(error) == (
        "Duck:m takes no `temperature` (set it on the model object itself); "
        "takes no `max_output_tokens` (set it on the model object itself)"
    )


async def test_a_fallback_gets_what_it_takes_of_the_sampling_and_the_rest_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Half(ScriptedModel):
        def sampling_problems(self, sampling: Sampling) -> Any:
            return {"seed": "takes no `seed`"} if sampling.seed is not None else {}

    error = ModelError("gone", code="provider.auth")
    first, fallback = ScriptedModel([fail(error)] * 2, name="first"), Half(["hi"] * 2, name="second")
    own = Sampling(temperature=0.5, seed=1, extra_body={"a": 1})
    model = RetryingModel(SampledModel(first, own), [SampledModel(FallbackSamplingModel(fallback), own)])
    for _ in range(2):
        assert (await complete(model, ModelRequest(messages=HELLO)))[1] is None
    assert [request.sampling for request in first.requests] == [own] * 2
    assert [request.sampling for request in fallback.requests] == [Sampling(temperature=0.5)] * 2
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert line == ("a fallback model does not take all of the sampling model='second' left_out=['seed', 'extra_body']")
