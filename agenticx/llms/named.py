"""Models by the names that people give them, each made once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from agenticx.llms.base import ChatModel, close_model

__all__ = ["ModelCache"]

_MAX_MODELS = 64


class ModelCache:
    """Makes models as they are asked for and keeps the latest 64; no name means `default()`, which is asked once."""

    def __init__(self, make: Callable[[str], ChatModel], default: Callable[[], str]) -> None:
        self._make = make
        self._default = default
        self._default_name = ""
        self._models: OrderedDict[str, ChatModel] = OrderedDict()

    def get(self, name: str | None) -> ChatModel:
        """The model of that name; raises an `AgenticXError` that says which names there are."""
        if not name and not self._default_name:
            self._default_name = self._default()
        spec = name or self._default_name
        if spec not in self._models:
            self._models[spec] = self._make(spec)
            if len(self._models) > _MAX_MODELS:
                self._models.popitem(last=False)
        self._models.move_to_end(spec)
        return self._models[spec]

    async def aclose(self) -> None:
        """End the connections of those that keep any."""
        for model in self._models.values():
            await close_model(model)
