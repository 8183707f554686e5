"""The record of attached files that a model refused; later requests leave them out."""

from __future__ import annotations

from collections.abc import Sequence

from agenticx.errors import ModelError
from agenticx.llms.file_refusals import (
    SentFile,
    find_refused,
    find_suspected,
    find_too_large,
    is_vague,
    mark_refused,
)
from agenticx.logs import get_logger
from agenticx.messages import AssistantMessage, Message, RefusedFile, UserMessage, files_of
from agenticx.runtime.turn import Turn

__all__ = ["record_refused_files"]

_log = get_logger(__name__)


def record_refused_files(turn: Turn, error: ModelError) -> None:
    """Record the files that `error` refuses, if any, in the session, and name them in the error's message.

    The record is in the user's newest message, so that it is stored and forked with the conversation, and a rewind to
    before the refusal removes it. An error without a reason makes the files of its request suspected; if it comes again
    without them, they are sent again.
    """
    messages, model = turn.session.messages, turn.answering_model or turn.agent.model.name
    suspected = False
    files = _refused_files(messages, model, error)
    if not files and is_vague(error):
        if names := _remove_suspicion(messages, model):
            error.args = (
                f"{error}; that is not for {_listed(names)}, which {model} gets again from the next message on",
            )
            _log.warning("a model refuses a request also without the suspected files", model=model, files=names)
            return
        files, suspected = find_suspected(messages, model, error), True
    if not files:
        return
    _mark_newest(messages, mark_refused(files, model, suspected=suspected))
    names = [file.attachment.name for file in files]
    cause = "; perhaps it cannot read an attached file" if suspected else ""
    error.args = (f"{error}{cause}; from the next message on {model} gets a note instead of {_listed(names)}",)
    _log.warning("a model refuses attached files; a note in the prompt replaces them", model=model, files=names)


def _refused_files(messages: Sequence[Message], model: str, error: ModelError) -> list[SentFile]:
    if error.code == "context_overflow":  # also after compaction, which keeps the files of the current request
        return find_too_large(messages, model, error)
    return find_refused(messages, model, error)


def _remove_suspicion(messages: list[Message], model: str) -> list[str]:
    """Remove the marks of suspected files of `model` since its last reply; return the names of the files."""
    names, attachments = (
        list[str](),
        {message.message_id: files_of(message) for message in messages},
    )
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if isinstance(message, AssistantMessage):
            break  # the request without the files was accepted
        if not isinstance(message, UserMessage):
            continue
        removed = [mark for mark in message.refused_files if mark.suspected and mark.model == model]
        if removed:
            kept = tuple(mark for mark in message.refused_files if mark not in removed)
            messages[index] = message.model_copy(update={"refused_files": kept})
            names += [attachments[mark.message_id][mark.index].name for mark in removed]
    return names


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))


def _mark_newest(messages: list[Message], marks: tuple[RefusedFile, ...]) -> None:
    """Add the marks to the newest message of the user."""
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if isinstance(message, UserMessage) and not message.injected:
            messages[index] = message.model_copy(update={"refused_files": (*message.refused_files, *marks)})
            return
