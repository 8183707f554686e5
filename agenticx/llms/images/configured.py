"""The image model that the settings name, made on first use."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Sequence
from decimal import Decimal

from agenticx.credentials.provider_keys import key_store
from agenticx.errors import SettingsError
from agenticx.llms.images.api import ImagesApi
from agenticx.llms.images.base import Image, ImageResult
from agenticx.llms.opening_policy import RetryPolicy
from agenticx.llms.providers.resolve import check_image_model, resolve_image_model
from agenticx.settings import ProviderVariables, Settings, provider_variables_key
from agenticx.threads import run_in_thread

__all__ = ["ConfiguredImages"]


class ConfiguredImages:
    """The image model `name`, whose key may be stored later; it is made again after a change of the stored keys.

    A turn of another terminal has one with the variables of that terminal (`using_provider_variables`).

    Raises `SettingsError` for a name that is no image model's. Without a key all its results are errors, and `host` and
    `largest_cost`, which may block, raise `SettingsError`.
    """

    def __init__(self, name: str, settings: Settings) -> None:
        check_image_model(name)
        self.name = name
        self._policy = RetryPolicy(
            attempts=settings.llm_attempts, longest_retry_after=settings.llm_retry_after_ceiling_seconds
        )
        self._keys = key_store()
        self._lock = threading.Lock()
        self._models: dict[ProviderVariables, ImagesApi] = {}
        self._keys_version = self._keys.version
        self._outdated: list[ImagesApi] = []

    @property
    def host(self) -> str:
        """The host that prompts and images are sent to, with its port if that is not the usual one."""
        return self._current().host

    def largest_cost(self) -> Decimal | None:
        """Return the most that one image costs in US dollars, None if its price is unknown."""
        return self._current().largest_cost()

    async def generate(
        self, prompts: Sequence[str], size: str | None = None, transparent: bool = False
    ) -> Sequence[ImageResult]:
        """Return an image for each prompt, in their order."""
        return await self._results(len(prompts), lambda model: model.generate(prompts, size, transparent))

    async def remove_background(self, images: Sequence[Image]) -> Sequence[ImageResult]:
        """Return each image with a transparent background."""
        return await self._results(len(images), lambda model: model.remove_background(images))

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        for model in (*self._outdated, *self._models.values()):
            await model.aclose()

    async def _results(
        self, count: int, call: Callable[[ImagesApi], Awaitable[Sequence[ImageResult]]]
    ) -> Sequence[ImageResult]:
        try:
            model = await run_in_thread(self._current, name="agx images")
        except SettingsError as exc:
            return [ImageResult(error=str(exc))] * count
        return await call(model)

    def _current(self) -> ImagesApi:
        """Return the model; blocks, as the key may be read from the keyring of the operating system."""
        with self._lock:
            if (version := self._keys.version) != self._keys_version:
                self._keys_version = version
                self._outdated += self._models.values()  # calls may still use them
                self._models.clear()
            variables = provider_variables_key()
            if variables not in self._models:
                self._models[variables] = resolve_image_model(self.name, policy=self._policy)
            return self._models[variables]
