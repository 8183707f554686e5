"""What is known of providers and models: `config/models.toml`, and your own `models.toml` in AGX_HOME over it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agenticx.errors import SettingsError
from agenticx.llms._row_mistakes import row_mistakes
from agenticx.llms.base import InlineForm
from agenticx.llms.chat_dialect import ChatDialect
from agenticx.llms.ollama_host import ollama_url
from agenticx.llms.pricing import Price
from agenticx.settings import config_layers, provider_key, provider_setting

__all__ = ["ASSUMED", "Ability", "Facts", "ModelFacts", "Provider", "WireName", "load_facts"]

WireName = Literal["chat", "responses", "anthropic", "gemini", "ollama"]

Ability = Literal["tools", "parallel", "vision", "reasoning", "structured_output"]

ASSUMED: tuple[Ability, ...] = ("tools", "parallel")
"""What a model can do as long as nobody says: most take tools, and one that refuses them gets them in its prompt."""

_SNAPSHOT = re.compile(r"-(\d{4}-\d\d-\d\d|20\d{6}|latest)$")


_Word = Annotated[str, Field(min_length=1)]
_Variable = Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]*$")]


class Provider(BaseModel):
    """A server and the wire it speaks. `model` is what it is used with when nobody names one.

    Without `keys` it needs none; a `local` one is asked on its usual port which models it has. Where `models_of` names
    another provider, it is the same models, the same variable moves it, and its facts are told there. `key_check` is a
    path under the base URL that answers only to a good key, "" if there is none. `dialect_sources`
    say where it was read what its `dialect` says. `inline_calls` has, for each form in which models write calls into
    their text, the words in the names of the models that do, where the server leaves the calls there.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = ""
    wire: WireName = "chat"
    base_url: str = Field(pattern=r"^https?://\S+$")
    keys: tuple[_Variable, ...] = ()
    model: str | None = None
    models_of: str | None = None
    local: bool = False
    key_check: str = Field("/models", pattern=r"^(/\S*)?$")
    price_source: str = ""
    dialect: ChatDialect | None = None
    dialect_sources: tuple[str, ...] = ()
    inline_calls: Mapping[InlineForm, tuple[_Word, ...]] = {}

    @property
    def base_variable(self) -> str:
        """The variable that moves it elsewhere, such as OPENAI_BASE_URL."""
        return f"{self.models_of or self.name}_BASE_URL".upper().replace("-", "_")

    def key_set(self) -> tuple[str, str] | None:
        """The variable that has its key, and the key."""
        return next(((name, key) for name in self.keys if (key := provider_key(name))), None)

    def moved(self) -> str | None:
        """Where the person says that it is."""
        place = provider_setting(self.base_variable)
        if self.base_variable != "OLLAMA_BASE_URL":
            return place
        place = place or provider_setting("OLLAMA_HOST")
        return place and ollama_url(place) + ("/v1" if self.wire == "chat" else "")

    def where(self) -> str:
        return self.moved() or self.base_url


class ModelFacts(BaseModel):
    """What is known of one model. `window` has input and output together where `input` says what of it may go in;
    `output` is the most that comes out. Without `abilities` it is taken to have those of `ASSUMED`. A `dialect`
    is its provider's with what the row says otherwise. `inline_calls` are the forms in which it writes calls into its
    text; a row that does not say leaves that to its provider's.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    ASSUMPTION: ClassVar[str] = (
        "nothing is known of it: it is given tools and files until its server refuses them, and may make several "
        "calls at once; its window and its price are unknown"
    )

    window: int | None = Field(default=None, gt=0)
    input: int | None = Field(default=None, gt=0)
    output: int | None = Field(default=None, gt=0)
    abilities: tuple[Ability, ...] | None = None
    price: Price | None = None
    dialect: ChatDialect | None = None
    inline_calls: tuple[InlineForm, ...] | None = None

    @property
    def is_known(self) -> bool:
        return self.model_copy(update={"inline_calls": None}) != _UNKNOWN

    @property
    def input_window(self) -> int | None:
        """Input tokens that it takes."""
        return self.input or self.window

    def can(self, ability: Ability) -> bool:
        return ability in (ASSUMED if self.abilities is None else self.abilities)

    def lacks(self, ability: Ability) -> bool:
        """Whether it is known that it cannot."""
        return self.abilities is not None and ability not in self.abilities


_UNKNOWN = ModelFacts()


@dataclass(frozen=True, slots=True)
class Facts:
    """Providers by name, in the order in which a key of theirs makes them the default; models as `provider:model`."""

    providers: Mapping[str, Provider]
    models: Mapping[str, ModelFacts]

    def of(self, provider: Provider, model: str) -> ModelFacts:
        """What is known of a model, under its own name or that of which it is a dated snapshot or a size."""
        family = provider.models_of or provider.name
        names = [model, _SNAPSHOT.sub("", model)]
        if self.providers[family].wire == "ollama":
            names.append(model.partition(":")[0])
        known = next((self.models[spec] for name in names if (spec := f"{family}:{name}") in self.models), _UNKNOWN)
        if known.inline_calls is not None:
            return known
        words = provider.inline_calls or self.providers[family].inline_calls
        forms = tuple(form for form, parts in words.items() if any(part in model.lower() for part in parts))
        return known.model_copy(update={"inline_calls": forms}) if forms else known


def load_facts() -> Facts:
    """What both files say now; a row of yours changes the fields that it has, a price as a whole.

    Raises `SettingsError` that names the file, the row and what would be right.
    """
    return _read(tuple((str(path), text) for path, text in config_layers("models.toml")))


# --- reading ----------------------------------------------------------------------------------------------------------

_Row = TypeVar("_Row", Provider, ModelFacts)


@dataclass(frozen=True, slots=True)
class _Layered:
    """A row as the files have it together, and the file that had the last word."""

    values: dict[str, Any]
    path: str


@lru_cache(maxsize=2)
def _read(layers: tuple[tuple[str, str], ...]) -> Facts:
    providers: dict[str, _Layered] = {}
    models: dict[str, _Layered] = {}
    for path, text in layers:
        tables = _tables(path, text)
        _lay(providers, tables.get("providers", {}), f"providers in {path}", path)
        _lay(models, tables.get("models", {}), f"models in {path}", path)
    known = {name: _provider(name, row, providers) for name, row in providers.items()}
    return Facts(known, {spec: _model(spec, row, known) for spec, row in models.items()})


def _tables(path: str, text: str) -> dict[str, Any]:
    try:
        tables = tomllib.loads(text, parse_float=Decimal)
    except (tomllib.TOMLDecodeError, RecursionError) as exc:
        raise SettingsError(f"{path} is not TOML: {exc}") from exc
    for name in tables:
        if name not in ("providers", "models"):
            tables_are = '[providers.NAME] and [models."NAME:MODEL"]'
            raise SettingsError(f"{path} has a table {name!r}; its tables are {tables_are}")
    return tables


def _lay(rows: dict[str, _Layered], table: object, what: str, path: str) -> None:
    if not isinstance(table, dict):
        raise SettingsError(f"{what} must be tables, one for each")
    for name, values in cast("dict[str, object]", table).items():
        if not isinstance(values, dict):
            raise SettingsError(f"{name!r} of {what} must be a table")
        before = rows[name].values if name in rows else {}
        rows[name] = _Layered({**before, **cast("dict[str, Any]", values)}, path)


def _provider(name: str, row: _Layered, known: Mapping[str, object]) -> Provider:
    where = f"[providers.{name}] in {row.path}"
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", name):
        raise SettingsError(f"{where}: a provider's name is made of lower-case letters, digits and -")
    other = row.values.get("models_of")
    if other is not None and other not in known:
        raise SettingsError(f"{where}: models_of is {other!r}; it should be one of {', '.join(known)}")
    return _checked(Provider, {**row.values, "name": name}, where)


def _model(spec: str, row: _Layered, providers: Mapping[str, Provider]) -> ModelFacts:
    where = f'[models."{spec}"] in {row.path}'
    name, _, model = spec.partition(":")
    provider = providers.get(name)
    if provider is None or not model or provider.models_of:
        own = [name for name, known in providers.items() if not known.models_of]
        raise SettingsError(f"{where}: the name should be provider:model with one of {', '.join(own)}")
    values, price = row.values, row.values.get("price")
    if isinstance(price, dict):
        values = {**values, "price": {"source": provider.price_source, **cast("dict[str, Any]", price)}}
    if isinstance(dialect := values.get("dialect"), dict):
        usual = asdict(provider.dialect or ChatDialect())
        values = {**values, "dialect": {**usual, **cast("dict[str, Any]", dialect)}}
    return _checked(ModelFacts, values, where)


def _checked(kind: type[_Row], values: Mapping[str, Any], where: str) -> _Row:
    try:
        return kind.model_validate(values)
    except ValidationError as exc:
        raise SettingsError(f"{where}: {'; '.join(row_mistakes(kind, exc))}") from None
