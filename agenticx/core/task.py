"""Tasks for agents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from agenticx.call_errors import ExplainedModel
from agenticx.core.agent import Agent

__all__ = ["Task"]

if TYPE_CHECKING:
    _AnyAgent = Agent[Any, Any]
else:
    _AnyAgent = Agent  # for pydantic, which would copy an agent to make it one of `Agent[Any, Any]`


class Task(ExplainedModel, BaseModel):
    """A task.

    Its `description` is the user message of the run. `expected_output` describes the answer and becomes part of the
    system prompt. `agent` does the task if the executor is given none. `context` has texts and other tasks that are put
    before the description, a task with its result if the same executor has run it.

    `output_type` is anything that pydantic can validate; the result is then an object, and a run without one fails.
    There is no object, and `ExecutionResult.output` is None, if `case_resolved` ends the run, or if it returns calls
    that were not run.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    id: str = Field(default_factory=lambda: str(uuid4()))
    description: str
    expected_output: str = ""
    agent: _AnyAgent | None = None
    context: Annotated[Sequence[Task | str], AfterValidator(tuple)] = ()
    output_type: Any = None
