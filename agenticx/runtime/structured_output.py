"""The typed output that ends a turn: how the model is asked for it, and how its answer is validated.

A model that can be held to a schema (`takes_output_schema`) answers in JSON. Any other model gives its answer as the
arguments of a call of `submit_output`. No tool runs it, but it is in the log and the history like any other call. An
answer that does not fit is reported back to the model with its problems, twice at most (`MAX_REPAIRS`); the next one
ends the turn with `provider.bad_reply`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import from_json, to_json

from agenticx import user_code
from agenticx.errors import AgenticXError, InvalidArguments, ModelError
from agenticx.llms.arguments import parse_arguments
from agenticx.llms.base import ChatModel, ModelRequest, OutputSchema, Reply, ToolSchema, takes_output_schema
from agenticx.messages import ToolCall, ToolOutcome
from agenticx.runtime.output_schemas import schema_check

__all__ = ["MAX_REPAIRS", "OutputCallResult", "OutputType", "TurnOutput"]

MAX_REPAIRS = 2
"""The number of further attempts after an answer that does not fit."""

TOOL_NAME = "submit_output"
ACCEPTED = "Accepted as the answer."
NOT_ALONE = "Rejected: other calls were made with it. When you have their results, make this call alone."
OUTPUT_CUT = "Rejected: the output limit cut the answer. Give a shorter one."
_DESCRIPTION = "Give the answer. Call this once and alone, when the answer is known; it ends the work."
_MAX_PROBLEMS = 10
_WRAPPED_KEY = "value"


class OutputType:
    """The type of a requested output: anything that pydantic can validate, or a JSON Schema as a dict.

    Models are asked for a JSON object; a type that is not one (`list[City]`, `int`, a union) is asked for as the
    field `value` of an object. `value` of this class is the object that was accepted last; for a JSON Schema it is the
    JSON value. Raises `TypeError` for a type that pydantic cannot validate or that has no JSON Schema, and `ValueError`
    as `check_output_schema` does.
    """

    def __init__(self, type_: Any) -> None:
        self.value: Any = None
        self._read_json: Callable[[bytes], tuple[Any, Any]]
        if isinstance(type_, Mapping):
            given = dict(cast("Mapping[str, Any]", type_))
            self._read_json = _schema_reader(given)  # first, as it checks the schema
            self.name, schema = str(given.get("title") or "output"), _resolve_root(given)
        else:
            self.name, adapter, schema = _adapter_of(type_)
            self._read_json = partial(_read_with, adapter)
        self._is_wrapped = schema.get("type") != "object"
        if self._is_wrapped:
            schema = _wrap(schema)
        self.schema = OutputSchema(re.sub(r"[^A-Za-z0-9_-]", "_", self.name)[:64], schema)

    def read_answer(self, text: str) -> Any:
        """Return the output in the text of an answer as `read` does; a code fence around all of it is left out."""
        if not text.strip():
            raise InvalidArguments("the answer is empty")
        return self.read(_strip_fence(text))

    def read(self, text: str) -> Any:
        """Return the JSON value of the output in `text`, and keep the validated object as `value`.

        A value that is not in the field `value` it was asked for is accepted too. Raises `InvalidArguments` with the
        problems of `text` if it does not fit.
        """
        try:
            return self._read(text)
        except InvalidArguments as exc:
            problem = str(exc).replace("the arguments are", "the answer is").replace("the arguments", "the answer")
            raise InvalidArguments(problem) from exc

    def _read(self, text: str) -> Any:
        if not self._is_wrapped:
            return self._accept(parse_arguments(text))
        try:
            return self._accept(_wrapped_value(text))
        except InvalidArguments as exc:
            problem = exc
        try:
            return self._accept(_bare_value(text))
        except InvalidArguments:
            raise problem from None

    def _accept(self, value: Any) -> Any:
        try:
            return user_code.call_sync(self._validate, to_json(value), what=f"output_type {self.name}")
        except InvalidArguments:
            raise
        except AgenticXError as exc:  # raised by a validator of the type
            raise InvalidArguments(str(exc)) from exc

    def _validate(self, json: bytes) -> Any:
        self.value, data = self._read_json(json)
        return data


def _adapter_of(type_: Any) -> tuple[str, TypeAdapter[Any], dict[str, Any]]:
    """Return the name, the validator and the JSON Schema of a type; raise `TypeError`."""
    name = getattr(type_, "__name__", None) or str(type_)
    if isinstance(type_, str | bytes):  # pydantic would run a str as code
        raise TypeError(f"output_type must be a type, such as a BaseModel class, not {type(type_).__name__}")
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(type_)
        return name, adapter, _resolve_root(adapter.json_schema())
    except (PydanticUserError, NameError) as exc:
        reason = str(exc).partition(". ")[0]
        raise TypeError(f"output_type must be a type that pydantic validates, not {name}: {reason}") from exc


def _read_with(adapter: TypeAdapter[Any], json: bytes) -> tuple[Any, Any]:
    """Return the object that JSON is read as, and the JSON value of that; raise `InvalidArguments`."""
    try:
        value = adapter.validate_json(json)
    except ValidationError as exc:
        raise InvalidArguments(_describe_errors(exc)) from exc
    return value, from_json(adapter.dump_json(value, by_alias=True, warnings=False), allow_inf_nan=False)


def _schema_reader(schema: Mapping[str, Any]) -> Callable[[bytes], tuple[Any, Any]]:
    check = schema_check(schema)

    def read(json: bytes) -> tuple[Any, Any]:
        value = from_json(json, allow_inf_nan=False)
        check(value)
        return value, value

    return read


@dataclass(frozen=True, slots=True)
class OutputCallResult:
    """The result of a `submit_output` call."""

    outcome: ToolOutcome
    text: str


class TurnOutput:
    """The requested output of one turn and the attempts at it.

    Without a type nothing is requested and every answer is accepted. `data` is the output's field of the `final` event,
    empty if there is no output.
    """

    def __init__(self, output_type: Any, model: ChatModel, tool_names: Sequence[str]) -> None:
        is_read = output_type is None or isinstance(output_type, OutputType)
        self._type: OutputType | None = output_type if is_read else OutputType(output_type)
        self.is_requested = self._type is not None
        self.data: Mapping[str, Any] = {}
        self._tool: ToolSchema | None = None
        self._problems: list[str] = []
        self.set_model(model, tool_names)

    def set_model(self, model: ChatModel, tool_names: Sequence[str]) -> None:
        """Ask `model`, with tools of these names, for the output from now on."""
        if self._type is None or takes_output_schema(model, self._type.schema, with_tools=bool(tool_names)):
            self._tool = None
        else:
            self._tool = _submit_tool(self._type, tool_names)

    @property
    def tool_names(self) -> Sequence[str]:
        """The name of the tool that takes the object.

        Empty if the model answers in JSON, or if no object is requested.
        """
        return [] if self._tool is None else [self._tool.name]

    def extend_request(self, request: ModelRequest) -> ModelRequest:
        """Return the request with the tool or the schema that asks for the object."""
        if self._type is None:
            return request
        if self._tool is not None:
            return replace(request, tools=[*request.tools, self._tool])
        return replace(request, output_schema=self._type.schema)

    def is_submitted_by(self, calls: Sequence[ToolCall]) -> bool:
        """Return whether all of these calls submit the object, so that no tool runs."""
        return self._tool is not None and all(call.name == self._tool.name for call in calls)

    def submit_calls(self, calls: Sequence[ToolCall], *, cut: bool) -> Mapping[str, OutputCallResult]:
        """Submit the calls of a reply and return the result of each `submit_output` call by its id.

        A call is accepted as the object only if it is the only call of the reply.
        """
        if self._tool is None:
            return {}
        output_calls = [call for call in calls if call.name == self._tool.name]
        if len(calls) > 1:
            return {call.id: OutputCallResult("error", NOT_ALONE) for call in output_calls}
        return {call.id: self._submit_call(call, cut=cut) for call in output_calls}

    def submit_text(self, reply: Reply) -> str | None:
        """Submit a reply without calls.

        Returns its problem as a reminder for the model, or None if it can be the answer.
        """
        if self._type is None or not reply.is_whole:
            return None
        problem = self._store(self._type.read_answer, reply.text)
        if problem is None:
            return None
        if self._tool is not None:
            return f"the answer must come as a call of {self._tool.name}, and in text it is not usable: {problem}"
        schema = to_json(dict(self._type.schema.schema)).decode()
        return f"the answer is not usable: {problem}\nGive one JSON object of this schema and nothing else:\n{schema}"

    @property
    def is_complete(self) -> bool:
        """True if the object has been received."""
        return bool(self.data)

    def check_attempts(self) -> None:
        """Raise `ModelError` if there is no object and the model has used all of its attempts."""
        if len(self._problems) > MAX_REPAIRS and not self.data:
            assert self._type is not None
            tries = f"{len(self._problems)} tries; the last: {self._problems[-1]}"
            raise ModelError(f"the model gave no usable {self._type.name} in {tries}", code="provider.bad_reply")

    def _submit_call(self, call: ToolCall, *, cut: bool) -> OutputCallResult:
        assert self._type is not None
        problem = self._record_problem(OUTPUT_CUT) if cut else self._store(self._type.read, call.arguments)
        if problem is None:
            return OutputCallResult("ok", ACCEPTED)
        return OutputCallResult("invalid_arguments", OUTPUT_CUT if cut else f"Rejected: {problem}")

    def _store(self, read: Callable[[str], Any], text: str) -> str | None:
        """Store the object that `read` finds in `text` and return None, or record and return its problem."""
        try:
            self.data = self.data or {"output": read(text)}
        except InvalidArguments as exc:
            return self._record_problem(str(exc))
        return None

    def _record_problem(self, problem: str) -> str:
        self._problems.append(problem)
        return problem


def _submit_tool(type_: OutputType, used_names: Sequence[str]) -> ToolSchema:
    name = TOOL_NAME
    while name in used_names:
        name += "_"
    schema = type_.schema.schema
    return ToolSchema(name, " ".join(filter(None, [_DESCRIPTION, schema.get("description")])), schema)


def _resolve_root(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema with the definition in place that its root refers to, as the schemas of recursive types do."""
    reference = schema.get("$ref")
    if not (isinstance(reference, str) and reference.startswith("#/$defs/")):
        return schema
    definitions = cast("dict[str, dict[str, Any]]", schema["$defs"])
    return {**definitions[reference.rpartition("/")[2]], "$defs": definitions}


def _wrap(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object with one field, `value`, of this schema."""
    definitions = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    return {"type": "object", "properties": {_WRAPPED_KEY: inner}, "required": [_WRAPPED_KEY], **definitions}


def _wrapped_value(text: str) -> Any:
    fields = parse_arguments(text)
    if _WRAPPED_KEY not in fields:
        raise InvalidArguments(f"{_WRAPPED_KEY}: Field required")
    return fields[_WRAPPED_KEY]


def _bare_value(text: str) -> Any:
    """Return the one JSON value that `text` is, by the rules for arguments."""
    fields = parse_arguments(f'{{"{_WRAPPED_KEY}":{text}\n}}')
    if len(fields) != 1:
        raise InvalidArguments("the answer must be one JSON value")
    return fields[_WRAPPED_KEY]


def _describe_errors(exc: ValidationError) -> str:
    errors = exc.errors(include_url=False, include_input=False, include_context=False)
    descriptions = [f"{'.'.join(str(step) for step in error['loc']) or 'it'}: {error['msg']}" for error in errors]
    more = [f"and {len(descriptions) - _MAX_PROBLEMS} more"] if len(descriptions) > _MAX_PROBLEMS else []
    return "; ".join([*descriptions[:_MAX_PROBLEMS], *more])


def _strip_fence(text: str) -> str:
    """Return the text without a code fence around all of it; many models add one unasked."""
    fenced = re.fullmatch(r"\s*```\w*\n(.*?)\n?```\s*", text, re.DOTALL)
    return fenced[1] if fenced else text
