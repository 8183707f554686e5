"""A wrapper that checks attached files against the known limits of the provider before they are sent.

A file over a limit in the user's newest message is refused, as the provider would refuse it. A file in an older message
(another model may have accepted it) and a file made by a tool are replaced by a note.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agenticx.errors import ModelError
from agenticx.llms.base import ChatModel, ModelRequest
from agenticx.llms.file_limits import FileFacts, FileLimits, find_over_limits
from agenticx.llms.file_refusals import SentFile, sent_files, with_notes
from agenticx.llms.opening import OpenReply, open_reply
from agenticx.llms.wrappers.base import ModelWrapper
from agenticx.logs import get_logger
from agenticx.messages import AssistantMessage, Message, UserMessage
from agenticx.threads import run_sized

__all__ = ["FileLimitModel"]

_MAX_KNOWN = 1_000

_log = get_logger(__name__)


class FileLimitModel(ModelWrapper):
    """A wrapper that sends no file that is over `limits`."""

    def __init__(self, model: ChatModel, limits: FileLimits) -> None:
        super().__init__(model)
        self._limits = limits
        self._known: dict[int, FileFacts] = {}  # by hash of the content; Python caches a string's hash
        self._left_out: set[int] = set()

    async def open(self, request: ModelRequest) -> OpenReply:
        """Open the inner model's reply; raise `ModelError` for a file of the newest message that is over a limit."""
        files = list(sent_files(request.messages))
        if files:
            unread = sum(len(file.attachment.data) for file in files if hash(file.attachment.data) not in self._known)
            over = await run_sized(find_over_limits, files, self._limits, self._facts, size=unread, name="agx files")
            if over:
                request = replace(request, messages=self._without(request.messages, over))
        return await open_reply(self._model, request)

    def _facts(self, file: SentFile) -> FileFacts:
        key = hash(file.attachment.data)
        if (facts := self._known.get(key)) is None:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            facts = self._known[key] = FileFacts.of(file.attachment)
        return facts

    def _without(self, messages: Sequence[Message], over: Sequence[tuple[SentFile, str]]) -> Sequence[Message]:
        """Return the messages with notes in place of files over a limit; raise for files of the newest message."""
        replies = [index for index, message in enumerate(messages) if isinstance(message, AssistantMessage)]
        new = messages[replies[-1] + 1 if replies else 0 :]
        new_ids = {message.message_id for message in new if isinstance(message, UserMessage) and not message.injected}
        if refused := [(file, reason) for file, reason in over if file.message.message_id in new_ids]:
            clauses = "; ".join(
                f"the file {file.attachment.name!r} cannot be sent: {reason}" for file, reason in refused
            )
            error = ModelError(f"{self.name} was not called, because {clauses}", code="provider.bad_request")
            error.named_files = tuple(file.attachment.data for file, _ in refused)
            raise error
        self._log_new([file for file, _ in over])
        reason = "your server does not accept so large or so many files"
        return with_notes(messages, {file.key for file, _ in over}, reason)

    def _log_new(self, left_out: Sequence[SentFile]) -> None:
        """Log the files that are left out and were not the last time."""
        keys = {hash(file.attachment.data): file.attachment.name for file in left_out}
        if names := [name for key, name in keys.items() if key not in self._left_out]:
            self._left_out = set(keys)
            _log.warning("files over a limit of the provider; a note replaces them", model=self.name, files=names)
