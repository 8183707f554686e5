"""A cache of models by name."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable

from agenticx.llms.base import ChatModel, close_model
from agenticx.provider_keys import key_store

__all__ = ["ModelCache"]

_MAX_MODELS = 64


class ModelCache:
    """A cache of the 64 models used last, made on first use; no name means that of `default()`, called once.

    It is emptied whenever the stored keys change, so that no turn begins with an old key.
    """

    def __init__(self, make: Callable[[str], ChatModel], default: Callable[[], str]) -> None:
        self._make = make
        self._default = default
        self._default_name = ""
        self._models: OrderedDict[str, ChatModel] = OrderedDict()
        self._keys = key_store()
        self._keys_version = self._keys.version
        self._outdated: deque[ChatModel] = deque(maxlen=_MAX_MODELS)

    def get(self, name: str | None) -> ChatModel:
        """Return the model of that name; raises an `AgenticXError` that lists the known ones for an unknown name."""
        if (version := self._keys.version) != self._keys_version:
            self._keys_version = version
            self._outdated.extend(self._models.values())  # turns may still use them
            self._models.clear()
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
        for model in (*self._outdated, *self._models.values()):
            await close_model(model)
