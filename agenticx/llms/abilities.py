"""A wrapper that asks a model for no more than it can do: what the catalogue says of it, and what its server refuses.

A model is not asked for what the catalogue says that it lacks: it gets files as text, gives objects as calls, and is
told to make one call at a time. What nobody knows is tried; a refusal that names the reason changes this request and
those after it.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import cast

from agenticx.errors import ModelError
from agenticx.llms._attachments import content_parts
from agenticx.llms._concessions import Downgrade, find_downgrade
from agenticx.llms.base import ChatModel, Delta, ModelRequest, OutputSchema
from agenticx.llms.facts import ModelFacts
from agenticx.llms.wrapping import Wrapper, asked_until_taken
from agenticx.logs import get_logger
from agenticx.messages import AssistantMessage, Message, ToolMessage, UserMessage

__all__ = ["AbleModel", "in_single_calls", "in_text"]

_log = get_logger(__name__)


class AbleModel(Wrapper):
    """`model`, kept to what `facts` say that it can do."""

    def __init__(self, model: ChatModel, facts: ModelFacts) -> None:
        super().__init__(model)
        self._facts = facts
        self._concessions = [_NO_FILES] if facts.lacks("vision") else []
        self._told = False

    def takes_output_schema(self, output: OutputSchema, *, with_tools: bool) -> bool:
        return not self._facts.lacks("structured_output") and super().takes_output_schema(output, with_tools=with_tools)

    def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        """The inner model's batches; a refusal comes before the first of them."""
        return asked_until_taken(lambda: (self._model, self._within(request)), self._concede)

    def _within(self, request: ModelRequest) -> ModelRequest:
        original = request
        if self._facts.lacks("parallel"):
            request = replace(request, parallel_calls=False)
        for concession in self._concessions:
            request = concession.apply(request)
        if self._facts.lacks("vision"):
            self._tell(original)
        return request

    def _tell(self, request: ModelRequest) -> None:
        """Say once that there are files that this model is not shown."""
        users = (message for message in request.messages if isinstance(message, UserMessage))
        names = [file.name for message in users for file in message.attachments if file.kind != "text"]
        if names and not self._told:
            self._told = True
            _log.warning("the model sees no images and PDFs; it is told so", model=self.name, files=names)

    def _concede(self, _model: ChatModel, request: ModelRequest, error: ModelError) -> bool:
        """Whether there is another way to ask than the one that was refused."""
        concession = find_downgrade(request, error, (_NO_FILES, _SINGLE_CALLS))
        if concession is not None and concession not in self._concessions:
            self._concessions.append(concession)
            _log.warning(concession.log_message, model=self.name, reason=str(error))
        return concession is not None


# --- files ------------------------------------------------------------------------------------------------------------


def in_text(message: Message) -> Message:
    """The message with what came with it as text: text files written out, other files only mentioned."""
    if not (isinstance(message, UserMessage) and message.attachments):
        return message
    text = "\n\n".join(piece for piece in content_parts(message, ()) if isinstance(piece, str))
    return message.model_copy(update={"content": text, "attachments": ()})


def _without_files(request: ModelRequest) -> ModelRequest:
    return replace(request, messages=[in_text(message) for message in request.messages])


_NO_FILES = Downgrade(
    re.compile(
        r"not support (\w+ )?(images?|vision|visual|multi-?modal|file inputs?|pdf)"
        r"|endpoints found that support (image|file|pdf)"
        r"|(images?|image_url|image inputs?|vision) (is|are) (only|not) (currently )?(support|enabl|allow|accept)"
        r"|not a (multi-?modal|vision) model|at most 0 image|required for image input"
        r"|unknown variant `(image_url|file)`|unsupported content part type|content'? ?:? (value )?must be a string",
        re.IGNORECASE,
    ),
    _without_files,
    "the model takes no such files; it is told of them in text from now on",
)
"""OpenRouter; Ollama and llama.cpp; OpenAI; Mistral; vLLM; DeepSeek; Groq. An odd picture is refused in other words."""


# --- calls ------------------------------------------------------------------------------------------------------------


def in_single_calls(messages: Sequence[Message]) -> Iterator[Message]:
    """The same history with one call in each message, its result right behind it."""
    results: dict[str, ToolMessage] = {}
    for place, message in enumerate(messages):
        if isinstance(message, AssistantMessage) and len(message.tool_calls) > 1:
            results = _results(messages[place + 1 :])
            for row in _parted(message):
                yield row
                if (result := results.get(row.tool_calls[0].id)) is not None:
                    yield result
        elif not (isinstance(message, ToolMessage) and results.get(message.tool_call_id) is message):
            yield message


def _results(messages: Sequence[Message]) -> dict[str, ToolMessage]:
    """The results that messages begin with, by the ids of their calls."""
    behind = takewhile(lambda message: isinstance(message, ToolMessage), messages)
    return {result.tool_call_id: result for result in cast("Iterator[ToolMessage]", behind)}


def _parted(message: AssistantMessage) -> Iterator[AssistantMessage]:
    first, *rest = message.tool_calls
    yield message.model_copy(update={"tool_calls": (first,), "provider_state": None})
    for place, call in enumerate(rest, 2):
        id_ = f"{message.message_id}_{place}"
        yield AssistantMessage(tool_calls=(call,), message_id=id_)


def _with_single_calls(request: ModelRequest) -> ModelRequest:
    return replace(request, messages=list(in_single_calls(request.messages)))


_SINGLE_CALLS = Downgrade(
    re.compile(r"(only )?supports? (only )?(a |one )?single tool.?calls?", re.IGNORECASE),
    _with_single_calls,
    "the model takes one call in a message; those of its history are parted from now on",
)
"""Templates of Llama 3, whoever serves them, have it so for the whole history, whichever model made the calls."""
