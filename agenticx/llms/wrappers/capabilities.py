"""A wrapper that adapts requests to the capabilities of a model and to refusals of its server.

A capability that the catalogue says is missing is not used: files are sent as text, objects are requested as calls, and
the model is asked to make one call at a time. An unknown capability is tried; if the server refuses it and names
the reason, this request and all later ones are changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import cast

from agenticx.errors import ModelError
from agenticx.llms.base import ChatModel, ModelRequest, OutputSchema
from agenticx.llms.downgrades import Downgrade, find_downgrade
from agenticx.llms.message_attachments import content_parts, result_parts
from agenticx.llms.model_catalog import ModelFacts
from agenticx.llms.opening import OpenReply
from agenticx.llms.opening_policy import open_with_downgrades
from agenticx.llms.sampling import Sampling, SamplingField
from agenticx.llms.wrappers.base import ModelWrapper
from agenticx.logs import get_logger
from agenticx.messages import AssistantMessage, Message, ToolMessage, UserMessage, files_of

__all__ = ["CapabilityModel", "attachments_as_text", "split_parallel_calls"]

_log = get_logger(__name__)


class CapabilityModel(ModelWrapper):
    """A wrapper that limits requests to the capabilities that `facts` list."""

    def __init__(self, model: ChatModel, facts: ModelFacts) -> None:
        super().__init__(model)
        self._facts = facts
        self._downgrades = [_FILES_AS_TEXT] if facts.lacks("vision") else []
        self._has_warned = False

    def takes_output_schema(self, output: OutputSchema, *, with_tools: bool) -> bool:
        return not self._facts.lacks("structured_output") and super().takes_output_schema(output, with_tools=with_tools)

    @property
    def output_limit(self) -> int | None:
        return super().output_limit or self._facts.output

    def sampling_problems(self, sampling: Sampling) -> Mapping[SamplingField, str]:
        problems = dict(super().sampling_problems(sampling))
        if self._facts.lacks("reasoning") and sampling.reasoning_effort not in (None, "none"):
            clause = "takes no `reasoning_effort` (the catalogue says that it does not reason)"
            problems.setdefault("reasoning_effort", clause)
        return problems

    async def open(self, request: ModelRequest) -> OpenReply:
        """Open the inner model's reply; a refused request is changed and sent again before the first batch."""
        return await open_with_downgrades(lambda: (self._model, self._adapt(request)), self._try_downgrade)

    def _adapt(self, request: ModelRequest) -> ModelRequest:
        original = request
        if self._facts.lacks("parallel"):
            request = replace(request, parallel_calls=False)
        for downgrade in self._downgrades:
            request = downgrade.apply(request)
        if self._facts.lacks("vision"):
            self._warn_of_hidden_files(original)
        return request

    def _warn_of_hidden_files(self, request: ModelRequest) -> None:
        """Log once that the request has files that this model cannot read."""
        names = [file.name for message in request.messages for file in files_of(message) if file.kind != "text"]
        if names and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "the model does not accept images and PDFs; a note in the prompt replaces them",
                model=self.name,
                files=names,
            )

    def _try_downgrade(self, _model: ChatModel, request: ModelRequest, error: ModelError) -> bool:
        """Apply the downgrade that the refusal calls for; return whether there is one."""
        downgrade = find_downgrade(request, error, (_FILES_AS_TEXT, _SINGLE_CALLS))
        if downgrade is not None and downgrade not in self._downgrades:
            self._downgrades.append(downgrade)
            _log.warning(downgrade.log_message, model=self.name, reason=str(error))
        return downgrade is not None


# --- files ------------------------------------------------------------------------------------------------------------


def attachments_as_text(message: Message) -> Message:
    """Return the message with its attachments as text: text files in full, other files only mentioned."""
    if isinstance(message, ToolMessage) and message.attachments:
        return message.model_copy(update={"content": result_parts(message, ())[0], "attachments": ()})
    if not (isinstance(message, UserMessage) and message.attachments):
        return message
    text = "\n\n".join(part for part in content_parts(message, ()) if isinstance(part, str))
    return message.model_copy(update={"content": text, "attachments": ()})


def _request_with_files_as_text(request: ModelRequest) -> ModelRequest:
    return replace(request, messages=[attachments_as_text(message) for message in request.messages])


_FILES_AS_TEXT = Downgrade(
    re.compile(
        r"not support (\w+ )?(images?(?!/| (?:formats?|types?|sizes?|larger|over)\b)|vision|visual|multi-?modal"
        r"|file inputs?|pdf)"
        r"|endpoints found that support (image|file|pdf)"
        r"|(images?|image_url|image inputs?|vision) (is|are) (only|not) (currently )?(support|enabl|allow|accept)"
        r"|not a (multi-?modal|vision) model|at most 0 image|required for image input"
        r"|unknown variant `(image_url|file)`|unsupported content part type|content'? ?:? (value )?must be a string",
        re.IGNORECASE,
    ),
    _request_with_files_as_text,
    "the model refuses such files; from now on a note in the prompt replaces them",
)
"""Refusals of OpenRouter; Ollama and llama.cpp; OpenAI; Mistral; vLLM; DeepSeek; Groq.

A single unreadable image is refused in other words; they do not match.
"""


# --- calls ------------------------------------------------------------------------------------------------------------


def split_parallel_calls(messages: Sequence[Message]) -> Iterator[Message]:
    """Yield the same history with at most one call in each message, directly followed by its result."""
    results: dict[str, ToolMessage] = {}
    for index, message in enumerate(messages):
        if isinstance(message, AssistantMessage) and len(message.tool_calls) > 1:
            results = _leading_results(messages[index + 1 :])
            for single in _one_message_per_call(message):
                yield single
                if (result := results.get(single.tool_calls[0].id)) is not None:
                    yield result
        elif not (isinstance(message, ToolMessage) and results.get(message.tool_call_id) is message):
            yield message


def _leading_results(messages: Sequence[Message]) -> dict[str, ToolMessage]:
    """Return the results at the beginning of `messages`, by the ids of their calls."""
    leading = takewhile(lambda message: isinstance(message, ToolMessage), messages)
    return {result.tool_call_id: result for result in cast("Iterator[ToolMessage]", leading)}


def _one_message_per_call(message: AssistantMessage) -> Iterator[AssistantMessage]:
    first, *rest = message.tool_calls
    yield message.model_copy(update={"tool_calls": (first,), "provider_state": None})
    for number, call in enumerate(rest, 2):
        id_ = f"{message.message_id}_{number}"
        yield AssistantMessage(tool_calls=(call,), message_id=id_)


def _request_with_single_calls(request: ModelRequest) -> ModelRequest:
    return replace(request, messages=list(split_parallel_calls(request.messages)))


_SINGLE_CALLS = Downgrade(
    re.compile(r"(only )?supports? (only )?(a |one )?single tool.?calls?", re.IGNORECASE),
    _request_with_single_calls,
    "the model takes one call per message; history is sent with one call per message from now on",
)
"""The chat template of Llama 3, on any server, refuses parallel calls anywhere in the history, also of other models."""
