"""What a wrapper around a model passes on, so that each wrapper only says what it changes."""

from __future__ import annotations

from agenticx.llms.base import ChatModel, OutputSchema, close_model, takes_output_schema

__all__ = ["Wrapper"]


class Wrapper:
    """The base of a model around another one; `stream` is up to the wrapper."""

    def __init__(self, model: ChatModel) -> None:
        self._model = model

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def context_window(self) -> int | None:
        return self._model.context_window

    def takes_output_schema(self, output: OutputSchema, *, with_tools: bool) -> bool:
        return takes_output_schema(self._model, output, with_tools=with_tools)

    async def aclose(self) -> None:
        await close_model(self._model)
