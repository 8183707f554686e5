"""The record of attached files that a model refused, which later requests leave out."""

from __future__ import annotations

from collections.abc import Sequence

from agenticx.errors import ModelError
from agenticx.llms.file_refusals import SentFile, find_refused, find_too_large, mark_refused
from agenticx.logs import get_logger
from agenticx.messages import Message, RefusedFile, UserMessage
from agenticx.runtime.turn import Turn

__all__ = ["record_refused_files"]

_log = get_logger(__name__)


def record_refused_files(turn: Turn, error: ModelError) -> None:
    """Record the files that `error` refuses in the session, and name them in its message; nothing if it refuses none.

    The record is in the newest message of the user, so that it is stored and forked with the conversation, and a rewind
    to before the refusal removes it.
    """
    messages, model = turn.session.messages, turn.answering_model or turn.agent.model.name
    files = _refused_files(messages, model, error)
    if not files:
        return
    _mark_newest(messages, mark_refused(files, model))
    names = [file.attachment.name for file in files]
    error.args = (f"{error}; from the next message on {model} gets a note instead of {', '.join(map(repr, names))}",)
    _log.warning("a model refuses attached files; a note in the prompt replaces them", model=model, files=names)


def _refused_files(messages: Sequence[Message], model: str, error: ModelError) -> list[SentFile]:
    if error.code == "context_overflow":  # also after compaction, which keeps the files of the current request
        return find_too_large(messages, model, error)
    return find_refused(messages, model, error)


def _mark_newest(messages: list[Message], marks: tuple[RefusedFile, ...]) -> None:
    """Add the marks to the newest message of the user."""
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if isinstance(message, UserMessage) and not message.injected:
            messages[index] = message.model_copy(update={"refused_files": (*message.refused_files, *marks)})
            return
