"""The object that a turn is to end in: how the model is asked for it, and whether what it gave is one.

A model that can be held to a schema answers in JSON. Any other gives its answer as the arguments of a call that nobody
runs, `submit_output`. What does not fit is told back with what is wrong with it, twice at most.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import from_json, to_json

from agenticx import foreign
from agenticx.errors import AgenticXError, InvalidArguments, ModelError
from agenticx.llms.arguments import parse_arguments
from agenticx.llms.base import ChatModel, ModelRequest, OutputSchema, Reply, ToolSchema, takes_output_schema
from agenticx.messages import ToolCall, ToolOutcome

__all__ = ["REPAIRS", "OutputType", "TurnOutput", "Verdict"]

REPAIRS = 2
"""How often a model may try again after an answer that does not fit."""

TOOL_NAME = "submit_output"
TAKEN = "Taken as the answer."
ALONE = "Not taken: other calls were made beside it. When you have their results, call this once, and nothing else."
CUT = "Not taken: the output limit cut the answer. Give a shorter one."
_DESCRIPTION = "Give the answer. Call this once and alone, when the answer is known; it ends the work."
_FAULTS_TOLD = 10


class OutputType:
    """A pydantic model, dataclass, TypedDict or any other type whose JSON Schema is that of an object.

    Raises `TypeError` for a type that is none.
    """

    def __init__(self, type_: Any) -> None:
        self.name = getattr(type_, "__name__", None) or str(type_)
        try:
            self._adapter: TypeAdapter[Any] = TypeAdapter(type_)
            schema = _resolved(self._adapter.json_schema())
        except (PydanticUserError, NameError) as exc:
            raise TypeError(f"output_type {self.name} cannot be used: {exc}") from exc
        if schema.get("type") != "object":
            raise TypeError(f"output_type {self.name} must be one whose JSON Schema is an object, such as a model")
        self.schema = OutputSchema(re.sub(r"[^A-Za-z0-9_-]", "_", self.name)[:64], schema)

    def read(self, text: str) -> Any:
        """The JSON value of the object in `text`; raises `InvalidArguments` that says what does not fit."""
        try:
            value = parse_arguments(text)
            return foreign.call_sync(self._validated, to_json(value), what=f"output_type {self.name}")
        except InvalidArguments:
            raise
        except AgenticXError as exc:  # of a validator of the type's own
            raise InvalidArguments(str(exc)) from exc

    def _validated(self, json: bytes) -> Any:
        try:
            value = self._adapter.validate_json(json)
        except ValidationError as exc:
            raise InvalidArguments(_sentences(exc)) from exc
        return from_json(self._adapter.dump_json(value, by_alias=True, warnings=False), allow_inf_nan=False)


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a call that is an answer is answered itself."""

    outcome: ToolOutcome
    text: str


class TurnOutput:
    """What one turn asks for and whether it came; without a type it asks for nothing and every answer will do."""

    def __init__(self, output_type: Any, model: ChatModel, tool_names: Sequence[str]) -> None:
        self._type = None if output_type is None else OutputType(output_type)
        self._tool: ToolSchema | None = None
        if self._type is not None and not takes_output_schema(model, self._type.schema, with_tools=bool(tool_names)):
            self._tool = _tool(self._type, tool_names)
        self._values: list[Any] = []
        self._faults: list[str] = []

    @property
    def data(self) -> Mapping[str, Any]:
        """What `final` says of it."""
        return {"output": self._values[0]} if self._values else {}

    @property
    def tool_names(self) -> Sequence[str]:
        """What the model can call to give the object; nothing where it answers in JSON, or in any way."""
        return [] if self._tool is None else [self._tool.name]

    def ask(self, request: ModelRequest) -> ModelRequest:
        """The request, in which the model is asked for the object."""
        if self._type is None:
            return request
        if self._tool is not None:
            return replace(request, tools=[*request.tools, self._tool])
        return replace(request, output_schema=self._type.schema)

    def verdicts(self, calls: Sequence[ToolCall], *, cut: bool) -> Mapping[str, Verdict]:
        """The answers of those calls that are meant to be the object, by their ids; one that stands alone may be it."""
        if self._tool is None:
            return {}
        own = [call for call in calls if call.name == self._tool.name]
        if len(calls) > 1:
            return {call.id: Verdict("error", ALONE) for call in own}
        return {call.id: self._verdict(call, cut=cut) for call in own}

    def fault(self, reply: Reply) -> str | None:
        """What is wrong with a reply without calls, as a reminder for the model; None if it can be the answer."""
        if self._type is None or not reply.is_whole:
            return None
        found = self._take(_unfenced(reply.text)) if reply.text.strip() else self._fail("the answer is empty")
        if found is None:
            return None
        if self._tool is not None:
            return f"the answer must come as a call of {self._tool.name}, and in text it is not usable: {found}"
        schema = to_json(dict(self._type.schema.schema)).decode()
        return f"the answer is not usable: {found}\nGive one JSON object of this schema and nothing else:\n{schema}"

    def settled(self) -> bool:
        """Whether the object is there; raises `ModelError` if it is not and the model has tried often enough."""
        if len(self._faults) > REPAIRS and not self._values:
            assert self._type is not None
            tries = f"{len(self._faults)} tries; the last: {self._faults[-1]}"
            raise ModelError(f"the model gave no usable {self._type.name} in {tries}", code="provider.bad_reply")
        return bool(self._values)

    def _verdict(self, call: ToolCall, *, cut: bool) -> Verdict:
        found = self._fail(CUT) if cut else self._take(call.arguments)
        if found is None:
            return Verdict("ok", TAKEN)
        return Verdict("invalid_arguments", CUT if cut else f"Not taken: {found}")

    def _take(self, text: str) -> str | None:
        """Keep the object in `text`; what is wrong with it, if anything."""
        assert self._type is not None
        try:
            self._values.append(self._type.read(text))
        except InvalidArguments as exc:
            return self._fail(
                str(exc).replace("the arguments are", "the answer is").replace("the arguments", "the answer")
            )
        return None

    def _fail(self, fault: str) -> str:
        self._faults.append(fault)
        return fault


def _tool(type_: OutputType, taken: Sequence[str]) -> ToolSchema:
    name = TOOL_NAME
    while name in taken:
        name += "_"
    schema = type_.schema.schema
    return ToolSchema(name, " ".join(filter(None, [_DESCRIPTION, schema.get("description")])), schema)


def _resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with the definition in place that it refers to as a whole, as those of recursive types do."""
    reference = schema.get("$ref")
    if not isinstance(reference, str):
        return schema
    definitions = cast("dict[str, dict[str, Any]]", schema["$defs"])
    return {**definitions[reference.rpartition("/")[2]], "$defs": definitions}


def _sentences(exc: ValidationError) -> str:
    faults = exc.errors(include_url=False, include_input=False, include_context=False)
    told = [f"{'.'.join(str(step) for step in fault['loc']) or 'it'}: {fault['msg']}" for fault in faults]
    more = [f"and {len(told) - _FAULTS_TOLD} more"] if len(told) > _FAULTS_TOLD else []
    return "; ".join([*told[:_FAULTS_TOLD], *more])


def _unfenced(text: str) -> str:
    """The text without the code fence around all of it, which many models cannot leave out."""
    fenced = re.fullmatch(r"\s*```\w*\n(.*?)\n?```\s*", text, re.DOTALL)
    return fenced[1] if fenced else text
