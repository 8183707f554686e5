"""The catalogue of providers and models: `config/models.toml` and the user's in AGX_HOME.

A row of the user's file overrides the fields that it has.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Any, Literal, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from agenticx.credentials.provider_keys import KeySource, ProviderKey, find_key, find_key_source
from agenticx.errors import SettingsError
from agenticx.llms.base import InlineForm
from agenticx.llms.file_limits import FileLimits
from agenticx.llms.prices import ImagePrice, LongInputRates, Price
from agenticx.llms.transport.hosts import ollama_url
from agenticx.llms.wires.chat_dialect import ChatDialect
from agenticx.settings import config_layers, provider_setting

__all__ = [
    "ASSUMED_CAPABILITIES",
    "Capability",
    "ModelCatalog",
    "ModelFacts",
    "Provider",
    "WireName",
    "load_model_catalog",
    "row_error_messages",
]

WireName = Literal["chat", "responses", "anthropic", "gemini", "ollama"]
Capability = Literal["tools", "parallel", "vision", "reasoning", "structured_output"]
ASSUMED_CAPABILITIES: tuple[Capability, ...] = ("tools", "parallel")
"""Capabilities assumed of a model without a list of them: if its server refuses tools, they are put in the prompt."""
_SNAPSHOT = re.compile(r"-(\d{4}-\d\d-\d\d|20\d{6}|latest)$")
_NonEmptyText = Annotated[str, Field(min_length=1)]
_VariableName = Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]*$")]


class Provider(BaseModel):
    """A row of a provider: its server, its wire and its default `model`.

    - `keys` are the variables that may hold its key (a key may also be stored); without variables it needs no key.
    - A `local` server is asked for its models on its usual port.
    - `models_of` names another provider with the same models; their facts and the variable that overrides the base URL
      are that provider's.
    - `key_check` is a path under the base URL that answers only to a valid key, "" if there is none.
    - `dialect_sources` cite the documentation of its `dialect`; `files` are its limits for attached files.
    - `inline_calls` maps each form of calls in text that the server does not parse to parts of the names of the models
      that write it.
    - `without_tools` are regular expressions for the names of models whose tools the server refuses.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = ""
    wire: WireName = "chat"
    base_url: str = Field(pattern=r"^https?://\S+$")
    keys: tuple[_VariableName, ...] = ()
    model: str | None = None
    models_of: str | None = None
    local: bool = False
    key_check: str = Field("/models", pattern=r"^(/\S*)?$")
    price_source: str = ""
    dialect: ChatDialect | None = None
    dialect_sources: tuple[str, ...] = ()
    files: FileLimits | None = None
    inline_calls: Mapping[InlineForm, tuple[_NonEmptyText, ...]] = {}
    without_tools: tuple[re.Pattern[str], ...] = ()

    @property
    def base_url_variable(self) -> str:
        """The variable that overrides its base URL, for example OPENAI_BASE_URL."""
        return f"{self.models_of or self.name}_BASE_URL".upper().replace("-", "_")

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables that may hold its key or its base URL."""
        host = ("OLLAMA_HOST",) if self.base_url_variable == "OLLAMA_BASE_URL" else ()
        return (*self.keys, self.base_url_variable, *host)

    def find_key(self) -> ProviderKey | None:
        """Return its key, see `provider_keys.find_key`; None if it has none."""
        return find_key(self.keys)

    def key_source(self) -> KeySource | None:
        """Return the source of its key, without reading the keyring; None if it has none."""
        return find_key_source(self.keys)

    def base_url_override(self) -> str | None:
        """Return the base URL that the user has configured, else None; `OLLAMA_HOST` counts for Ollama as well."""
        address = provider_setting(self.base_url_variable)
        if self.base_url_variable != "OLLAMA_BASE_URL":
            return address
        address = address or provider_setting("OLLAMA_HOST")
        return address and ollama_url(address) + ("/v1" if self.wire == "chat" else "")

    def effective_base_url(self) -> str:
        return self.base_url_override() or self.base_url


class ModelFacts(BaseModel):
    """A row of a model; the fields are the keys of models.toml, None means unknown.

    - `output` is the maximum output, and `window` the maximum input, in tokens. If `input` is given, that is the
      maximum input, and `window` limits input and output together.
    - `capabilities` are by default `ASSUMED_CAPABILITIES`.
    - `dialect` is its provider's with the changes of the row.
    - `inline_calls` are the forms of the calls that it writes into its text, by default its provider's.
    - `without_tools` is true if its server refuses tools, so that they are put into its prompt; without `capabilities`
      the expressions of its provider apply, too.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    window: int | None = Field(default=None, gt=0)
    input: int | None = Field(default=None, gt=0)
    output: int | None = Field(default=None, gt=0)
    capabilities: tuple[Capability, ...] | None = None
    price: Price | None = None
    dialect: ChatDialect | None = None
    inline_calls: tuple[InlineForm, ...] | None = None
    without_tools: bool = False

    @property
    def is_known(self) -> bool:
        return self.model_copy(update={"inline_calls": None, "without_tools": False}) != _UNKNOWN

    @property
    def assumption(self) -> str:
        """A clause that says what is assumed about a model that is not known."""
        sent = "files" if self.without_tools else "tools and files"
        refused = "tools are put into its prompt, as its server refuses them with such models, " * self.without_tools
        return (
            f"its capabilities, window and price are unknown: {refused}{sent} are sent until its server refuses them, "
            "and it may make several calls at once"
        )

    @property
    def input_window(self) -> int | None:
        """The number of input tokens that it accepts, None if unknown."""
        return self.input or self.window

    def supports(self, capability: Capability) -> bool:
        if capability == "tools" and self.without_tools:
            return False
        return capability in (ASSUMED_CAPABILITIES if self.capabilities is None else self.capabilities)

    def lacks(self, capability: Capability) -> bool:
        """Return whether the capability is known to be missing; False if nothing is known."""
        return self.capabilities is not None and capability not in self.capabilities


_UNKNOWN = ModelFacts()


@dataclass(frozen=True, slots=True)
class ModelCatalog:
    """All known providers by name, in their order as default provider, and models by `provider:model`.

    `images` has the prices of image models; these are not listed as models for a conversation.
    """

    providers: Mapping[str, Provider]
    models: Mapping[str, ModelFacts]
    images: Mapping[str, ImagePrice]

    def model_facts(self, provider: Provider, model: str) -> ModelFacts:
        """Return the facts of a model, by its name or without a suffix for a dated snapshot or (Ollama) a size."""
        family = provider.models_of or provider.name
        names = [model, _SNAPSHOT.sub("", model)]
        if self.providers[family].wire == "ollama":
            names.append(model.partition(":")[0])
        facts = next((self.models[spec] for name in names if (spec := f"{family}:{name}") in self.models), _UNKNOWN)
        name, changes = model.lower(), dict[str, Any]()
        if facts.inline_calls is None:
            words = provider.inline_calls or self.providers[family].inline_calls
            forms = tuple(form for form, parts in words.items() if any(part in name for part in parts))
            changes |= {"inline_calls": forms} if forms else {}
        if facts.capabilities is None:
            expressions = provider.without_tools or self.providers[family].without_tools
            changes |= {"without_tools": True} if any(known.search(name) for known in expressions) else {}
        return facts.model_copy(update=changes) if changes else facts

    def image_price(self, provider: Provider, model: str) -> ImagePrice | None:
        """Return the price of an image model, by its name or without a suffix for a dated snapshot; None if unknown."""
        family = provider.models_of or provider.name
        specs = (f"{family}:{name}" for name in (model, _SNAPSHOT.sub("", model)))
        return next((self.images[spec] for spec in specs if spec in self.images), None)


def load_model_catalog() -> ModelCatalog:
    """Read both files; a row of the user's file overrides the fields that it has, a price as a whole.

    Raises `SettingsError` that names the file, the row and the expected value.
    """
    return _parse_layers(tuple((str(path), text) for path, text in config_layers("models.toml")))


# --- reading ----------------------------------------------------------------------------------------------------------

_Row = TypeVar("_Row", Provider, ModelFacts, ImagePrice)


@dataclass(frozen=True, slots=True)
class _LayeredRow:
    """A row merged from both files, and the path of the last file that has it."""

    values: dict[str, Any]
    path: str


@lru_cache(maxsize=2)
def _parse_layers(layers: tuple[tuple[str, str], ...]) -> ModelCatalog:
    providers: dict[str, _LayeredRow] = {}
    models: dict[str, _LayeredRow] = {}
    images: dict[str, _LayeredRow] = {}
    for path, text in layers:
        tables = _parse_tables(path, text)
        _merge_table(providers, tables.get("providers", {}), f"providers in {path}", path)
        _merge_table(models, tables.get("models", {}), f"models in {path}", path)
        _merge_table(images, tables.get("images", {}), f"images in {path}", path)
    valid = {name: _read_provider(name, row, providers) for name, row in providers.items()}
    return ModelCatalog(
        valid,
        {spec: _read_model(spec, row, valid) for spec, row in models.items()},
        {spec: _read_image_price(spec, row, valid) for spec, row in images.items()},
    )


def _parse_tables(path: str, text: str) -> dict[str, Any]:
    try:
        tables = tomllib.loads(text, parse_float=Decimal)
    except (tomllib.TOMLDecodeError, RecursionError) as exc:
        raise SettingsError(f"{path} is not TOML: {exc}") from exc
    for name in tables:
        if name not in ("providers", "models", "images"):
            expected = '[providers.NAME], [models."NAME:MODEL"] and [images."NAME:MODEL"]'
            raise SettingsError(f"{path} has a table {name!r}; its tables are {expected}")
    return tables


def _merge_table(rows: dict[str, _LayeredRow], table: object, table_name: str, path: str) -> None:
    if not isinstance(table, dict):
        raise SettingsError(f"{table_name} must be tables, one for each")
    for name, values in cast("dict[str, object]", table).items():
        if not isinstance(values, dict):
            raise SettingsError(f"{name!r} of {table_name} must be a table")
        earlier = rows[name].values if name in rows else {}
        rows[name] = _LayeredRow({**earlier, **cast("dict[str, Any]", values)}, path)


def _read_provider(name: str, row: _LayeredRow, names: Mapping[str, object]) -> Provider:
    location = f"[providers.{name}] in {row.path}"
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", name):
        raise SettingsError(f"{location}: a provider's name is made of lower-case letters, digits and -")
    models_of = row.values.get("models_of")
    if models_of is not None and models_of not in names:
        raise SettingsError(f"{location}: models_of is {models_of!r}; it should be one of {', '.join(names)}")
    return _validated(Provider, {**row.values, "name": name}, location)


def _read_model(spec: str, row: _LayeredRow, providers: Mapping[str, Provider]) -> ModelFacts:
    location = f'[models."{spec}"] in {row.path}'
    provider = _provider_of(spec, location, providers)
    values, price = row.values, row.values.get("price")
    if isinstance(price, dict):
        values = {**values, "price": {"source": provider.price_source, **cast("dict[str, Any]", price)}}
    if isinstance(dialect := values.get("dialect"), dict):
        provider_dialect = asdict(provider.dialect or ChatDialect())
        values = {**values, "dialect": {**provider_dialect, **cast("dict[str, Any]", dialect)}}
    return _validated(ModelFacts, values, location)


def _read_image_price(spec: str, row: _LayeredRow, providers: Mapping[str, Provider]) -> ImagePrice:
    location = f'[images."{spec}"] in {row.path}'
    provider = _provider_of(spec, location, providers)
    return _validated(ImagePrice, {"source": provider.price_source, **row.values}, location)


def _provider_of(spec: str, location: str, providers: Mapping[str, Provider]) -> Provider:
    name, _, model = spec.partition(":")
    provider = providers.get(name)
    if provider is None or not model or provider.models_of:
        provider_names = [name for name, other_provider in providers.items() if not other_provider.models_of]
        raise SettingsError(f"{location}: the name should be provider:model with one of {', '.join(provider_names)}")
    return provider


def _validated(kind: type[_Row], values: Mapping[str, Any], location: str) -> _Row:
    try:
        return kind.model_validate(values)
    except ValidationError as exc:
        raise SettingsError(f"{location}: {'; '.join(row_error_messages(kind, exc))}") from None


_TABLE_FIELDS: Mapping[tuple[int | str, ...], Iterable[str]] = {
    ("files",): FileLimits.model_fields,
    ("files", "many_images"): ("over", "pixels"),
    ("files", "large_window"): ("window", "pdf_pages"),
    ("dialect",): [field.name for field in fields(ChatDialect)],
    ("price",): Price.model_fields,
    ("price", "over"): LongInputRates.model_fields,
}
"""The allowed fields of the tables within a row."""
_EXPECTED_KEY_LIST = 'a list of names of variables that have a key, such as ["ACME_API_KEY"]'


def row_error_messages(kind: type[BaseModel], invalid: ValidationError) -> list[str]:
    """Return a message for each error of a row that was validated as `kind`."""
    return [_message(kind, error) for error in invalid.errors(include_url=False)]


def _message(kind: type[BaseModel], error: ErrorDetails) -> str:
    location = error["loc"]
    name = ".".join(str(part) for part in location if part != "[key]")
    if error["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return f"unknown field {name!r}; {_allowed_fields(kind, location[:-1])}"
    if error["type"] == "missing":
        return f"{name} is missing"
    if location[0] == "keys":
        return f"{'keys' if len(location) == 1 else name} should be {_expected_keys(location)}"
    if location == ("base_url",):
        return (
            f"base_url is {error['input']!r}; it needs http:// or https:// and a host, as in http://127.0.0.1:8080/v1"
        )
    return f"{name} is {error['input']!r}; {error['msg'][:1].lower()}{error['msg'][1:]}"


def _allowed_fields(kind: type[BaseModel], table: tuple[int | str, ...]) -> str:
    if table in _TABLE_FIELDS:
        return f"{'.'.join(map(str, table))} may have {', '.join(_TABLE_FIELDS[table])}"
    return f"a row may have {', '.join(field for field in kind.model_fields if field != 'name')}"


def _expected_keys(location: tuple[int | str, ...]) -> str:
    """Return the expected value of `keys` or of an item; the actual one may be a key and is never repeated."""
    if len(location) == 1:
        return _EXPECTED_KEY_LIST
    return "the name of a variable that has the key, such as ACME_API_KEY, not the key itself"
