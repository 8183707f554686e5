"""The sampling that a wire can send: its parameters, their values, and the keys that it sets itself."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from agenticx.llms.sampling import ReasoningEffort, Sampling, SamplingField

__all__ = ["SamplingRules"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingRules:
    """The parameters of a wire, and how they are put into its requests.

    `api` is the subject of a refusal. `parameters` maps each field that the wire has to its key; a key within an object
    is written with dots, as in `options.seed`. `efforts` maps its levels of effort to their values. `other_keys` are
    the other keys that the wire sets; an extra body can replace neither these nor the parameters. Fields in `renamed`
    are sent under another name if the server refuses the first one.
    """

    api: str
    parameters: Mapping[SamplingField, str]
    efforts: Mapping[ReasoningEffort, Any]
    other_keys: Collection[str]
    max_temperature: float = 2
    min_output_tokens: int = 1
    renamed: Collection[SamplingField] = ()

    def problems(self, sampling: Sampling) -> dict[SamplingField, str]:
        """Return the fields that cannot be sent, each with a clause that says what the wire takes."""
        found: dict[SamplingField, str] = {}
        for name, value in sampling.items():
            if (clause := self._problem(name, value)) is not None:
                found[name] = clause
        return found

    def add_to(self, body: dict[str, Any], sampling: Sampling) -> None:
        """Set the fields of `sampling` in a request's `body`, then the keys of its extra body."""
        for name, value in sampling.items():
            if name == "reasoning_effort":
                value = self.efforts[value]
            if name in self.parameters:
                _set(body, self.parameters[name].split("."), [*value] if name == "stop" else value)
        _merge(body, sampling.extra_body or {})

    def is_about(self, error_text: str, sampling: Sampling) -> bool:
        """Return whether a server's error names a parameter that `sampling` sets, so that only its user can help."""
        keys = [self.parameters[name] for name, _ in sampling.items() if name in self.parameters.keys() - self.renamed]
        for key, value in (sampling.extra_body or {}).items():
            keys += [key, *(cast("dict[str, Any]", value) if isinstance(value, dict) else ())]
        return any(_key_pattern(key).search(error_text) for key in keys if key)

    def _problem(self, name: SamplingField, value: Any) -> str | None:
        if name == "extra_body":
            return self._extra_body_problem(value)
        if name not in self.parameters:
            return f"takes no `{name}` ({self.api} has no such parameter)"
        if name == "temperature" and value > self.max_temperature:
            return f"takes a `temperature` from 0 to {self.max_temperature:g}, not {value:g}"
        if name == "max_output_tokens" and value < self.min_output_tokens:
            return f"takes `max_output_tokens` from {self.min_output_tokens}, not {value}"
        if name == "reasoning_effort" and value not in self.efforts:
            return f"takes a `reasoning_effort` of {', '.join(self.efforts)}, not {value}"
        return None

    def _extra_body_problem(self, extra: Mapping[str, Any]) -> str | None:
        own = {*self.parameters.values(), *self.other_keys}
        objects = {key.partition(".")[0] for key in own if "." in key} - own
        taken: list[str] = [key for key in extra if key in own]
        for key in objects.intersection(extra):
            if not isinstance(extra[key], dict):
                return f"takes only an object as `{key}` of `extra_body`"
            taken += [f"{key}.{inner}" for inner in extra[key] if f"{key}.{inner}" in own]
        names = ", ".join(f"`{key}`" for key in sorted(taken))
        return f"takes no {names} in `extra_body` (the request has its own)" if taken else None


def _set(body: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Set the value at `path` of nested objects; missing ones are added."""
    *outer, last = path
    for key in outer:
        body = body.setdefault(key, {})
    body[last] = value


def _merge(body: dict[str, Any], extra: Mapping[str, Any]) -> None:
    """Add the keys of `extra`; an object is merged with the body's object of that key."""
    for key, value in extra.items():
        before = body.get(key)
        body[key] = {**before, **value} if isinstance(before, dict) and isinstance(value, dict) else value


def _key_pattern(key: str) -> re.Pattern[str]:
    """Return the pattern of a parameter's name in an error: `topP` may be written `top_p`, its object left out."""
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+", key.rpartition(".")[2]) or [re.escape(key)]
    name = r"[\W_]*".join(words)
    return re.compile(rf"(?<![a-z]){name}(?![a-z])", re.IGNORECASE)
