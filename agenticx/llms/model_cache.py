"""Models by name: a cache, and the models of an application together with the catalogue's."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, cast

from agenticx.credentials.provider_keys import key_store
from agenticx.errors import SettingsError, StoreError
from agenticx.llms.assembly import resolve_model
from agenticx.llms.base import ChatModel, close_model
from agenticx.llms.duck_typed.model import adapt
from agenticx.llms.model_catalog import ModelFacts
from agenticx.llms.providers.resolve import ModelInfo, default_model_spec, find_model_facts, list_models, load_wire
from agenticx.logs import get_logger
from agenticx.settings import ProviderVariables, Settings, provider_variables_key
from agenticx.threads import run_in_thread

__all__ = ["ModelCache", "ModelSource", "NamedModels", "OwnModels", "own_models"]

_MAX_MODELS = 64

_log = get_logger(__name__)


class ModelCache:
    """A cache of the 64 models used last, made on first use; without a name, the model named by `default()`.

    It is emptied whenever the stored keys change, so that no turn begins with an old key. Models made with the
    variables of a terminal (`using_provider_variables`) are used with the same variables only.
    """

    def __init__(self, make: Callable[[str], ChatModel], default: Callable[[], str]) -> None:
        self._make = make
        self._default = default
        self._default_names: dict[ProviderVariables, str] = {}
        self._models: OrderedDict[tuple[str, ProviderVariables], ChatModel] = OrderedDict()
        self._keys = key_store()
        self._keys_version = self._keys.version
        self._outdated: deque[ChatModel] = deque(maxlen=_MAX_MODELS)

    def get(self, name: str | None) -> ChatModel:
        """Return the model of that name; raises an `AgenticXError` with the known names for an unknown one."""
        if (version := self._keys.version) != self._keys_version:
            self._keys_version = version
            self._outdated.extend(self._models.values())  # turns may still use them
            self._models.clear()
        variables = provider_variables_key()
        if not name and variables not in self._default_names:
            self._default_names[variables] = self._default()
        key = name or self._default_names[variables], variables
        if key not in self._models:
            self._models[key] = self._make(key[0])
            if len(self._models) > _MAX_MODELS:
                self._models.popitem(last=False)
        self._models.move_to_end(key)
        return self._models[key]

    async def aclose(self) -> None:
        """Close the connections of all cached models."""
        for model in (*self._outdated, *self._models.values()):
            await close_model(model)


ModelSource = Mapping[str, Any] | Callable[[str | None], ChatModel]
"""Models of an application: a mapping of names to models or to names of the catalogue, or a function that returns the
model of a name (None: the default)."""


OwnModels = Mapping[str, ChatModel | str] | Callable[[str | None], ChatModel]
"""The same, checked by `own_models`."""


def own_models(given: ModelSource) -> OwnModels:
    """Return the models of an application, with duck-typed ones adapted; raises `TypeError` for anything else."""
    if isinstance(given, Mapping):
        models = cast("Mapping[str, Any]", given)
        return {name: model if isinstance(model, str) else adapt(model) for name, model in models.items()}
    if not callable(given):
        raise TypeError(f"models must be a mapping of names to models or a function of a name, not {given!r}")
    return given


class NamedModels(ModelCache):
    """The models of a hub by name; `default` is used where no name is given, `default_reason` explains the choice.

    `own` has models of the application; they are not closed here. The models of a mapping are added to the catalogue's,
    and the first is the default unless the settings name one; a function replaces the catalogue.
    The constructor may send requests to local model servers, so it must not be called on the event loop. After a change
    of the stored keys, `refresh` chooses the default again.
    """

    def __init__(
        self, settings: Settings, resolve: Callable[[str], ChatModel] | None = None, *, own: OwnModels | None = None
    ) -> None:
        self._own: Mapping[str, ChatModel | str] = {}
        self._find_own: Callable[[str | None], ChatModel] | None = None
        if isinstance(own, Mapping):
            self._own = cast("Mapping[str, ChatModel | str]", own)
        else:
            self._find_own = own
        self._settings = settings
        keys = key_store()
        self._keys_read = keys.version
        with suppress(SettingsError, StoreError):  # reported where a stored key is needed
            keys.read_all()
        self.default, self.default_reason = self._choose_default(settings)
        super().__init__(resolve or partial(resolve_model, settings=settings), lambda: self.default)

    def get(self, name: str | None) -> ChatModel:
        if self._find_own is not None:
            return self._find_own(name)
        spec = name or self.default
        own = self._own.get(spec, spec)
        return super().get(own) if isinstance(own, str) else own

    async def refresh(self) -> None:
        """Read changed stored keys in a thread, for up to seconds, and choose the default again.

        If they cannot be read, the default stays and a warning is logged.
        """
        version = self._keys.version
        if version == self._keys_read or self._find_own is not None:
            return
        chosen = await run_in_thread(self._choose_again, name="agx-probe")
        self._keys_read = version
        self.default, self.default_reason = chosen

    async def list_all(self, settings: Settings, *, available_only: bool) -> list[ModelInfo]:
        """Return all models, or only the available ones; the application's own come first."""
        if self._find_own is not None:
            return [self._own_info(self.default)]
        own = [self._own_info(name) for name in self._own]
        known = await list_models(settings, available_only=available_only)
        return [*own, *(model for model in known if model.spec not in self._own)]

    def info(self, name: str) -> ModelInfo:
        """Return the model of that name, also if no list has it; raises as `get` does."""
        model = self.get(name)
        if self._find_own is not None or not isinstance(own := self._own.get(name, name), str):
            return self._own_info(name)
        facts = find_model_facts(own)
        if facts.input_window is None:
            facts = facts.model_copy(update={"window": model.context_window})
        return ModelInfo(name, own.partition(":")[0], "it was named", facts)

    def check_names(self, settings: Settings) -> None:
        """Raise `SettingsError` for a name that is no model's; a missing key is accepted.

        The names in the settings are checked, and the names in `own`.
        """
        named = [model for model in self._own.values() if isinstance(model, str)]
        chosen = (settings.model, *settings.fallback_models) if self._find_own is None else ()
        for name in (*named, *(name for name in chosen if name not in self._own)):
            if name:
                find_model_facts(name)

    def _choose_default(self, settings: Settings) -> tuple[str, str]:
        if self._find_own is not None:
            return settings.model or self._find_own(None).name, "the choice of the application"
        if self._own and not settings.model:
            return next(iter(self._own)), "the first model of the application"
        return default_model_spec(settings)

    def _choose_again(self) -> tuple[str, str]:
        try:
            self._keys.read_all()
            chosen = self._choose_default(self._settings)
        except (SettingsError, StoreError) as exc:
            _log.warning("the stored keys cannot be used; the default model stays", reason=str(exc))
            return self.default, self.default_reason
        with suppress(SettingsError):  # reported by the turn that uses the model
            load_wire(chosen[0])
        return chosen

    @staticmethod
    def _own_info(name: str) -> ModelInfo:
        return ModelInfo(name, "application", "a model of the application", ModelFacts())
