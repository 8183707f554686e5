"""The catalogue of providers and models: the shipped file, the user's overrides, and errors in them."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from agenticx.errors import SettingsError
from agenticx.llms import ChatDialect, resolve_model, resolve_wire
from agenticx.llms.base import inline_forms
from agenticx.llms.model_catalog import ModelCatalog, ModelFacts, load_model_catalog
from agenticx.settings import load_settings


@pytest.fixture
def user_models_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of the user's models.toml, which does not exist yet."""
    monkeypatch.setenv("AGX_HOME", str(tmp_path))
    return tmp_path / "models.toml"


def facts_of(catalog: ModelCatalog, spec: str) -> ModelFacts:
    provider, _, model = spec.partition(":")
    return catalog.model_facts(catalog.providers[provider], model)


# --- the shipped file -------------------------------------------------------------------------------------------------


def test_every_default_model_except_a_router_has_facts(user_models_file: Path) -> None:
    catalog = load_model_catalog()
    defaults = [f"{provider.name}:{provider.model}" for provider in catalog.providers.values() if provider.model]
    assert [spec for spec in defaults if not facts_of(catalog, spec).is_known] == ["openrouter:openrouter/auto"]
    assert len(catalog.models) > 80


def test_every_price_has_a_date_and_a_source(user_models_file: Path) -> None:
    prices = {spec: facts.price for spec, facts in load_model_catalog().models.items() if facts.price}
    assert len(prices) > 50
    for spec, price in prices.items():
        assert price.source.startswith("https://"), spec
        assert date(2026, 9, 1) <= price.read <= date.today(), spec
        assert price.until is None or price.until >= price.read, spec
        assert price.cached is None or price.cached < price.input <= price.output, spec
        assert price.over is None or (price.over.input > price.input and price.over.output > price.output), spec


def test_every_dialect_has_sources(user_models_file: Path) -> None:
    dialects = {name: provider for name, provider in load_model_catalog().providers.items() if provider.dialect}
    assert list(dialects) == ["openrouter", "deepseek", "mistral", "moonshot", "perplexity", "zai"]
    for name, provider in dialects.items():
        assert provider.dialect_sources, name
        assert all(source.startswith("https://") for source in provider.dialect_sources), name


def test_dialects_that_return_and_need_reasoning(user_models_file: Path) -> None:
    dialects = {name: provider.dialect or ChatDialect() for name, provider in load_model_catalog().providers.items()}
    assert [name for name, dialect in dialects.items() if dialect.returns_reasoning] == [
        "openrouter",
        "deepseek",
        "moonshot",
        "zai",
    ]
    assert [name for name, dialect in dialects.items() if dialect.needs_reasoning] == ["deepseek", "moonshot"]
    assert [name for name, dialect in dialects.items() if dialect.files] == ["openrouter"]
    held = {name: dialect.output_schemas for name, dialect in dialects.items() if dialect.output_schemas}
    assert held == {"mistral": "without_tools"}


def test_every_window_is_the_sum_of_input_and_output(user_models_file: Path) -> None:
    for spec, facts in load_model_catalog().models.items():
        assert facts.capabilities is not None or facts.price is not None, spec
        if facts.input and facts.window and facts.output:
            assert facts.input + facts.output == facts.window, spec


@pytest.mark.parametrize(
    ("spec", "same_as"),
    [
        ("openai:gpt-5.4-2026-03-05", "openai:gpt-5.4"),
        ("openai-chat:gpt-4o-2024-08-06", "openai:gpt-4o"),
        ("anthropic:claude-sonnet-4-5-20250929", "anthropic:claude-sonnet-4-5"),
        ("ollama:qwen3:8b", "ollama:qwen3"),
        ("ollama-chat:gemma3:27b-it-qat", "ollama:gemma3"),
    ],
)
def test_a_snapshot_or_a_size_has_the_facts_of_its_model(spec: str, same_as: str, user_models_file: Path) -> None:
    catalog = load_model_catalog()
    assert facts_of(catalog, spec) == facts_of(catalog, same_as)
    assert same_as in catalog.models


def test_a_name_that_only_starts_like_a_known_model_is_unknown(user_models_file: Path) -> None:
    unknown = facts_of(load_model_catalog(), "openai:gpt-5.4-turbo")
    assert (unknown.is_known, unknown.input_window, unknown.price) == (False, None, None)
    assert [unknown.supports("tools"), unknown.supports("parallel"), unknown.supports("vision")] == [True, True, False]


# --- the user's file --------------------------------------------------------------------------------------------------


def test_a_user_s_row_overrides_only_its_own_fields(user_models_file: Path) -> None:
    user_models_file.write_text('[models."openai:gpt-4o"]\nprice = { input = 1.1, output = 2, read = 2026-11-01 }\n')
    default, overridden = ModelFacts(), facts_of(load_model_catalog(), "openai-chat:gpt-4o")
    assert (overridden.window, overridden.supports("vision")) == (128_000, True)
    assert overridden.price is not None
    assert (overridden.price.input, overridden.price.output, overridden.price.cached) == (
        Decimal("1.1"),
        Decimal(2),
        None,
    )
    assert overridden.price.source == "https://developers.openai.com/api/docs/pricing"
    assert default.price is None


def test_a_provider_of_the_user_comes_last(user_models_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user_models_file.write_text(
        '[providers.my-proxy]\nbase_url = "https://llm.example/v1"\nkeys = ["MY_KEY"]\nmodel = "large"\n'
        'dialect = { short_call_ids = true }\n[models."my-proxy:large"]\nwindow = 1000\n'
    )
    monkeypatch.setenv("MY_PROXY_BASE_URL", "http://127.0.0.1:9/v1")
    catalog = load_model_catalog()
    provider = catalog.providers["my-proxy"]
    assert list(catalog.providers)[-1] == "my-proxy"
    assert (provider.effective_base_url(), provider.dialect and provider.dialect.short_call_ids) == (
        "http://127.0.0.1:9/v1",
        True,
    )
    assert facts_of(catalog, "my-proxy:large").input_window == 1000


def test_the_dialect_of_a_model_overrides_fields_of_its_provider_s(user_models_file: Path) -> None:
    user_models_file.write_text(
        '[models."mistral:x"]\ndialect = { returns_reasoning = true }\n'
        '[models."together:moonshotai/Kimi-K2-Thinking"]\ndialect = { needs_reasoning = true }\n'
    )
    catalog = load_model_catalog()
    usual = catalog.providers["mistral"].dialect
    assert usual is not None
    assert facts_of(catalog, "mistral:x").dialect == replace(usual, returns_reasoning=True)
    assert facts_of(catalog, "together:moonshotai/Kimi-K2-Thinking").dialect == ChatDialect(needs_reasoning=True)
    assert facts_of(catalog, "mistral:y").dialect is None


@pytest.mark.parametrize(
    ("spec", "forms"),
    [
        ("vllm:Qwen/Qwen3-8B", ("hermes",)),
        ("llamacpp:hermes-3-llama-3.1-8b.gguf", ("hermes",)),
        ("lmstudio:mistralai/devstral-small-2507", ("mistral",)),
        ("ollama:qwen2.5:7b", ("hermes",)),
        ("ollama-chat:mistral-small3.2:24b", ("mistral",)),
        ("vllm:openhermes-2.5-mistral-7b", ("hermes", "mistral")),
        ("lmstudio:qwen/qwen3-coder-30b", ("hermes", "function")),
        ("ollama:gpt-oss", ()),
        ("vllm:meta/llama-3", ()),
        ("mistral:mistral-large-latest", ()),
        ("groq:qwen/qwen3.8-27b", ()),
        ("openai:gpt-5", ()),
    ],
)
def test_models_of_local_servers_have_their_forms_of_inline_calls(
    spec: str, forms: tuple[str, ...], user_models_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("MISTRAL_API_KEY", "GROQ_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(variable, "x")
    settings = load_settings({}, environ={"AGX_HOME": str(user_models_file.parent)})
    assert inline_forms(resolve_model(spec, settings=settings)) == inline_forms(resolve_wire(spec)) == forms


def test_tools_are_not_sent_to_models_for_which_their_server_refuses_them(user_models_file: Path) -> None:
    user_models_file.write_text(
        '[models."ollama:deepseek-r1"]\ncapabilities = ["tools"]\n[models."vllm:old"]\nwithout_tools = true\n'
    )
    catalog = load_model_catalog()
    takes_tools = {
        "gemini:gemma-3-27b-it": False,
        "gemini:gemma-3n-e4b-it": False,
        "gemini:gemma-4-31b-it": True,
        "openai-chat:o1-mini-2024-09-12": False,
        "ollama:deepseek-r1:8b": True,
        "vllm:old": False,
        "vllm:deepseek-r1": True,
    }
    assert {spec: facts_of(catalog, spec).supports("tools") for spec in takes_tools} == takes_tools
    assert "tools are put into its prompt" in facts_of(catalog, "gemini:gemma-3-27b-it").assumption


def test_a_model_with_only_inline_calls_is_unknown(user_models_file: Path) -> None:
    assert not facts_of(load_model_catalog(), "vllm:Qwen/Qwen3-8B").is_known


def test_a_user_s_row_overrides_the_forms_of_inline_calls(user_models_file: Path) -> None:
    user_models_file.write_text(
        '[models."vllm:house-model"]\ninline_calls = ["mistral"]\n[models."vllm:qwen3-quiet"]\ninline_calls = []\n'
        '[providers.acme]\nbase_url = "http://10.0.0.9/v1"\ninline_calls = { hermes = ["house"] }\n'
    )
    catalog = load_model_catalog()
    specs = ("vllm:house-model", "vllm:qwen3-quiet", "acme:House-2", "acme:qwen3")
    assert [facts_of(catalog, spec).inline_calls for spec in specs] == [("mistral",), (), ("hermes",), None]


def test_a_changed_file_takes_effect_at_the_next_call(user_models_file: Path) -> None:
    before = facts_of(load_model_catalog(), "ollama:mine").input_window
    user_models_file.write_text('[models."ollama:mine"]\nwindow = 65536\n')
    assert (before, facts_of(load_model_catalog(), "ollama:mine:7b").input_window) == (None, 65536)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[models", "is not TOML: "),
        ("[model.x]", "has a table 'model'; its tables are [providers.NAME], [models.\"NAME:MODEL\"]"),
        ("models = 3", "must be tables, one for each"),
        ('[models]\n"openai:x" = 3', "'openai:x' of models in {path} must be a table"),
        ('[models."gpt-4o"]', '[models."gpt-4o"] in {path}: the name should be provider:model with one of openai, '),
        ('[models."openai-chat:x"]', "the name should be provider:model with one of openai, anthropic, "),
        ('[models."openai:x"]\nwindow = "big"', "window is 'big'; input should be a valid integer"),
        (
            "[providers.x]\nbase_url = 'http://a'\nwithout_tools = ['(']",
            "without_tools.0 is '('; input should be a valid regular expression",
        ),
        ('[models."openai:x"]\nwindow = 0', "window is 0; input should be greater than 0"),
        ('[models."openai:x"]\ncolour = 1', "unknown field 'colour'; a row may have window, input, output, capa"),
        (
            '[models."openai:x"]\ncapabilities = ["fly"]',
            "capabilities.0 is 'fly'; input should be 'tools', 'parallel'",
        ),
        ('[models."openai:x"]\nprice = { input = 1, output = 2 }', "price.read is missing"),
        (
            '[models."openai:x"]\nprice = { input = -1, output = 2, read = 2026-01-01 }',
            "price.input is -1; input should be greater than or equal to 0",
        ),
        ('[images."openai:x"]\nread = 2026-01-01', '[images."openai:x"] in {path}: per_image is missing'),
        ("[providers.acme]", "[providers.acme] in {path}: base_url is missing"),
        ('[providers.acme]\nbase_url = "acme"', "base_url is 'acme'; it needs http:// or https:// and a host, as in "),
        (
            '[providers.acme]\nbase_url = "http://x"\nkeys = "ACME_API_KEY"',
            'keys should be a list of names of variables that have a key, such as ["ACME_API_KEY"]',
        ),
        (
            '[models."openai:x"]\nprice = { input = 1, output = 2, read = 2026-01-01, outputs = 3 }',
            "unknown field 'price.outputs'; price may have input, output, cached, cache_write, ",
        ),
        (
            "[providers.xai.files]\nmany_images = { over = 2, pixel = 3 }",
            "unknown field 'files.many_images.pixel'; files.many_images may have over, pixels",
        ),
        ("[providers.xai.files]\nimages = 0", "files.images is 0; input should be greater than 0"),
        ('[providers."A B"]\nbase_url = "http://x"', "a provider's name is made of lower-case letters, digits and -"),
        (
            '[providers.acme]\nbase_url = "http://x"\nmodels_of = "nope"',
            "models_of is 'nope'; it should be one of openai, openai-chat, ",
        ),
        (
            '[providers.acme]\nbase_url = "http://x"\ndialect = { streams = false }',
            "unknown field 'dialect.streams'; dialect may have output_limit, stream_options, ",
        ),
        (
            '[models."vllm:x"]\ninline_calls = ["xml"]',
            "inline_calls.0 is 'xml'; input should be 'hermes', 'mistral' or 'function'",
        ),
        (
            '[providers.acme]\nbase_url = "http://x"\ninline_calls = { xml = ["x"] }',
            "inline_calls.xml is 'xml'; input should be 'hermes', 'mistral' or 'function'",
        ),
    ],
)
def test_the_error_for_an_invalid_row_names_file_row_and_expected_value(
    text: str, sentence: str, user_models_file: Path
) -> None:
    user_models_file.write_text(text)
    with pytest.raises(SettingsError, match=re.escape(sentence.replace("{path}", str(user_models_file)))) as refused:
        load_model_catalog()
    assert str(user_models_file) in str(refused.value)


@pytest.mark.promise("I1")
@pytest.mark.parametrize(
    "keys", ['["ACME_API_KEY", "sk-Canary-123456"]', '"sk-Canary-123456"', '{ a = "sk-Canary-12" }']
)
def test_a_key_in_place_of_its_variable_is_not_repeated_in_the_error(keys: str, user_models_file: Path) -> None:
    user_models_file.write_text(f'[providers.acme]\nbase_url = "http://x"\nkeys = {keys}')
    with pytest.raises(SettingsError, match=r"such as .*ACME_API_KEY") as refused:
        load_model_catalog()
    assert "anary" not in f"{refused.value} {refused.value.__cause__}"


def test_an_unreadable_file_is_named_in_the_error(user_models_file: Path) -> None:
    user_models_file.write_bytes(b"\xff")
    with pytest.raises(SettingsError, match=re.escape(f"{user_models_file} cannot be read: ")):
        load_model_catalog()
