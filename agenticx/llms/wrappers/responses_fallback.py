"""A wrapper that uses Chat Completions at a gateway that lacks Responses."""

from __future__ import annotations

from collections.abc import Callable

from agenticx.errors import ModelError
from agenticx.llms.base import ChatModel, ModelRequest, close_model
from agenticx.llms.opening import OpenReply, open_reply
from agenticx.llms.wrappers.base import ModelWrapper
from agenticx.logs import get_logger

__all__ = ["ResponsesFallbackModel"]

_log = get_logger(__name__)


class ResponsesFallbackModel(ModelWrapper):
    """A model on Responses, whose server may know Chat Completions only.

    If the server says that it has no such endpoint, the request is sent again over Chat Completions, by the model that
    `make_chat` returns. Once that model has replied, it gets all later requests. If the server refuses both, or has no
    such model, nothing changes. An output schema that Chat Completions cannot take is left out of the second request.
    """

    def __init__(self, responses: ChatModel, make_chat: Callable[[], ChatModel]) -> None:
        super().__init__(responses)
        self._responses = responses
        self._make_chat = make_chat
        self._chat: ChatModel | None = None

    def __repr__(self) -> str:
        return repr(self._model)

    async def open(self, request: ModelRequest) -> OpenReply:
        """Open the model's reply; before the first batch the request may be sent again, as Chat Completions."""
        model = self._model
        try:
            return await open_reply(model, request)
        except ModelError as error:
            if model is not self._responses or not error.lacks_endpoint:
                raise
            refusal = error
        return await self._open_chat(request, refusal)

    async def aclose(self) -> None:
        for model in (self._responses, self._chat):
            if model is not None:
                await close_model(model)

    async def _open_chat(self, request: ModelRequest, refusal: ModelError) -> OpenReply:
        """Open the reply over Chat Completions; raise `refusal` if the server lacks that, too."""
        if self._chat is None:
            self._chat = self._make_chat()
        chat = self._chat
        try:
            reply = await open_reply(chat, request)
        except ModelError as error:
            raise refusal if error.lacks_endpoint else error from None
        if self._model is not chat:  # another call may have switched already
            self._model = chat
            _log.warning(
                "the server has no Responses; using Chat Completions from now on",
                model=self.name,
                answer=f"HTTP {refusal.status}",
            )
        return reply
