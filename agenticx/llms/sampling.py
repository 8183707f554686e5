"""The parameters of model calls that an application sets, and the refusal of parameters that a model lacks."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Protocol, cast, get_args

from agenticx.argument_types import is_encodable
from agenticx.call_errors import explain_calls
from agenticx.errors import ModelError

__all__ = [
    "NO_SAMPLING",
    "ReasoningEffort",
    "Sampling",
    "SamplingField",
    "UnsupportedSampling",
    "check_sampling",
    "sampling_problems",
]

ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]

SamplingField = Literal["temperature", "top_p", "max_output_tokens", "stop", "seed", "reasoning_effort", "extra_body"]

_MAX_SEED = 2**63
_MAX_OUTPUT_TOKENS = 2**31 - 1  # a 32-bit field at some providers; no model has as many


@explain_calls
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Sampling:
    """The parameters of model calls; a parameter that is None is left to the model, or to a less specific `Sampling`.

    A turn's sampling takes precedence over the runtime's, and that over the model's, field by field; the top-level keys
    of `extra_body` are merged. The summary of a long history is requested with the model's sampling alone. `extra_body`
    is added to the JSON of a request as it is: its objects are merged with the request's, and it cannot replace any
    other field. A model that has no such parameter refuses it by name
    (`UnsupportedSampling`) before any request is made.

    >>> Sampling(temperature=0.2, stop="END").updated(Sampling(temperature=0.7))
    Sampling(temperature=0.7, stop=('END',))

    Raises `TypeError` or `ValueError` for a value of another type or out of range.
    """

    temperature: float | None = None
    """From 0 to 2; some providers accept less."""

    top_p: float | None = None
    """From 0 to 1."""

    max_output_tokens: int | None = None
    """The limit of a reply, with its reasoning where the provider counts that."""

    stop: Sequence[str] | None = None
    """The texts that end a reply: one, or several."""

    seed: int | None = None
    """A number for repeatable replies, as far as the provider can repeat them."""

    reasoning_effort: ReasoningEffort | None = None
    """The effort of models that reason; each provider accepts some of the values."""

    extra_body: Mapping[str, Any] | None = None
    """More keys of the request's JSON, for parameters of one provider; they are not sent to fallback models."""

    def __post_init__(self) -> None:
        _check_number("temperature", self.temperature, 0, 2)
        _check_number("top_p", self.top_p, 0, 1)
        _check_integer("max_output_tokens", self.max_output_tokens, 1, _MAX_OUTPUT_TOKENS)
        _check_integer("seed", self.seed, -_MAX_SEED, _MAX_SEED - 1)
        if self.reasoning_effort is not None and self.reasoning_effort not in get_args(ReasoningEffort):
            efforts = ", ".join(get_args(ReasoningEffort))
            raise ValueError(f"reasoning_effort must be one of {efforts}, not {self.reasoning_effort!r}")
        if self.stop is not None:
            object.__setattr__(self, "stop", _stop_texts(self.stop))
        if self.extra_body is not None:
            object.__setattr__(self, "extra_body", _json_object(self.extra_body))

    def __repr__(self) -> str:
        """Return the parameters that are set; the values of an extra body may be private."""
        shown = ((name, "{…}" if name == "extra_body" else repr(value)) for name, value in self.items())
        return f"Sampling({', '.join(f'{name}={text}' for name, text in shown)})"

    def __bool__(self) -> bool:
        """Return True if a parameter is set."""
        return any(True for _ in self.items())

    def items(self) -> Iterator[tuple[SamplingField, Any]]:
        """Yield the name and value of each parameter that is set."""
        for each in fields(self):
            if (value := getattr(self, each.name)) is not None:
                yield cast("SamplingField", each.name), value

    def updated(self, later: Sampling) -> Sampling:
        """Return the parameters of `later`, and these where it has none."""
        changes = dict[str, Any](later.items())
        if self.extra_body and later.extra_body:
            changes["extra_body"] = {**self.extra_body, **later.extra_body}
        return replace(self, **changes) if changes else self

    def without(self, names: Collection[str]) -> Sampling:
        """Return the same sampling with the parameters of these names not set."""
        return replace(self, **dict.fromkeys(names, None)) if names else self


def _check_number(name: str, value: object, least: float, most: float) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number from {least} to {most}, not {value!r}")
    if not least <= value <= most:  # not a number is out of every range
        raise ValueError(f"{name} must be from {least} to {most}, not {value!r}")


def _check_integer(name: str, value: object, least: int, most: int) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number, not {value!r}")
    if not least <= value <= most:
        raise ValueError(f"{name} must be from {least} to {most}, not {_shortened(value)}")


def _stop_texts(value: object) -> tuple[str, ...]:
    """Return the stop texts; one text alone is accepted as well."""
    texts = (value,) if isinstance(value, str) else value
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in cast("Sequence[object]", texts)):
        raise TypeError(f"stop must be a text or a list of texts, not {value!r}")
    if not texts or not all(cast("Sequence[str]", texts)):
        raise ValueError(f"stop must have at least one text, and none that is empty, not {value!r}")
    if not all(map(is_encodable, cast("Sequence[str]", texts))):
        raise ValueError("stop must not contain half of a surrogate pair")
    return tuple(cast("Sequence[str]", texts))


def _shortened(number: int) -> str:
    """Return a number for an error message; one of very many digits could not even be printed."""
    return str(number) if number.bit_length() <= 128 else f"a number of {number.bit_length()} bits"


def _json_object(value: object) -> dict[str, Any]:
    """Return a copy of an extra body; its values are not repeated in errors, as they may be private."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in cast("Mapping[object, Any]", value)):
        raise TypeError("extra_body must be a dict whose keys are texts")
    try:
        text = json.dumps(dict(cast("Mapping[str, Any]", value)), allow_nan=False, ensure_ascii=False)
        text.encode()
        return json.loads(text)
    except UnicodeEncodeError:
        raise ValueError("extra_body must not contain half of a surrogate pair") from None
    except (TypeError, ValueError, RecursionError) as exc:
        raise ValueError(f"extra_body must be JSON: {exc}") from exc


NO_SAMPLING = Sampling()
"""The sampling of most requests; code on the path of every message compares with it rather than calling a method."""


# --- models that do not take a parameter ------------------------------------------------------------------------------


class UnsupportedSampling(ModelError, ValueError):
    """Sampling that a model does not take; raised before any request. `fields` are the names of the parameters."""

    def __init__(self, message: str, *, fields: Collection[SamplingField]) -> None:
        super().__init__(message, code="provider.bad_request", provider_type="unsupported_sampling")
        self.fields = tuple(fields)


class _NamedModel(Protocol):
    @property
    def name(self) -> str: ...


def sampling_problems(model: _NamedModel, sampling: Sampling) -> Mapping[SamplingField, str]:
    """Return the parameters of `sampling` that `model` does not take, each with a clause that says so.

    Calls the model's method of the same name; a model that has none takes no parameter.
    """
    find: Any = getattr(model, "sampling_problems", None)
    return {name: f"takes no `{name}`" for name, _ in sampling.items()} if find is None else find(sampling)


def check_sampling(model: _NamedModel, sampling: Sampling) -> None:
    """Raise `UnsupportedSampling` if `model` does not take all parameters of `sampling`; the message names them."""
    if sampling and (problems := sampling_problems(model, sampling)):
        raise UnsupportedSampling(f"{model.name} {'; '.join(problems.values())}", fields=list(problems))
