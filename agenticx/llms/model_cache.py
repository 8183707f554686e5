"""A cache of models by name."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from agenticx.llms.base import ChatModel, close_model

__all__ = ["ModelCache"]

_MAX_MODELS = 64


class ModelCache:
    """A cache of the 64 models used last, made on first use; no name means that of `default()`, called once."""

    def __init__(self, make: Callable[[str], ChatModel], default: Callable[[], str]) -> None:
        self._make = make
        self._default = default
        self._default_name = ""
        self._models: OrderedDict[str, ChatModel] = OrderedDict()

    def get(self, name: str | None) -> ChatModel:
        """Return the model of that name; raises an `AgenticXError` that lists the known ones for an unknown name."""
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
        """Close the connections of all cached models."""
        for model in self._models.values():
            await close_model(model)
