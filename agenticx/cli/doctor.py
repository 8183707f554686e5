"""`agx doctor`: what this installation has, lacks and uses; it changes nothing and makes nothing."""

from __future__ import annotations

import asyncio
import json
import platform
import shutil
import stat
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from agenticx.cli.exit_codes import DONE, FAILED
from agenticx.cli.looking import Seen, look_at_store, look_at_token
from agenticx.cli.options import current_folder, enabled_tools
from agenticx.errors import AgenticXError, SettingsError
from agenticx.llms.catalog import ModelInfo, default_model_spec, find_model_facts, list_models, resolve_model
from agenticx.llms.facts import Capability, ModelCatalog, ModelFacts, Provider, load_model_catalog
from agenticx.llms.key_check import KeyCheck, check_key
from agenticx.llms.loopback import is_loopback
from agenticx.settings import Settings, load_settings, provider_setting
from agenticx.tools.visible import visible_line

__all__ = ["Finding", "configure", "findings", "run"]

Status = Literal["ok", "note", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at. A `note` is worth knowing, a `problem` is worth repairing."""

    topic: str
    text: str
    status: Status = "ok"


_EPILOG = """\
Keys are named, never shown. Nothing leaves this machine unless --online is given: then each key that is set is sent to
its own provider, with one request that costs nothing. Keys of providers that were moved to this machine, as with
OPENAI_BASE_URL=http://127.0.0.1:…, are tested in any case.

exit codes: 0 no problem found, 1 a problem found, 2 usage"""


def configure(parser: ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("--online", action="store_true", help="test keys at providers that are not on this machine")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: Namespace) -> int:
    found = list(findings(online=arguments.online))
    with suppress(BrokenPipeError):  # whoever has read enough: what was found stays found
        if arguments.json:
            print(json.dumps({"findings": [asdict(finding) for finding in found], "settings": _settings_report()}))
        else:
            _print(found)
    return FAILED if any(finding.status == "problem" for finding in found) else DONE


def _print(found: list[Finding]) -> None:
    marks: Mapping[Status, str] = {"ok": "ok", "note": "--", "problem": "!!"}
    for finding in found:
        print(f"{marks[finding.status]}  {finding.topic:<12} {visible_line(finding.text, 2_000)}")


def findings(*, online: bool = False) -> Iterator[Finding]:
    """Look at everything, the cheap and certain first; only with `online` beyond this machine."""
    yield Finding("agenticx", f"{version('agenticx')} in {Path(__file__).parents[1]}")
    yield Finding("python", f"{platform.python_version()} ({sys.executable}) on {platform.platform()}")
    try:
        settings = load_settings(project=current_folder())
    except SettingsError as exc:
        yield Finding("settings", str(exc), "problem")
        return
    yield from _changed_settings(settings)
    yield _looked_at("tools", lambda: _tools(settings))
    yield _home(settings.home)
    yield _looked_at("token", lambda: look_at_token(settings))
    yield _looked_at("store", lambda: asyncio.run(look_at_store(settings)))
    yield from _models(settings, online)
    yield _sandbox()


# --- settings ---------------------------------------------------------------------------------------------------------


def _changed_settings(settings: Settings) -> Iterator[Finding]:
    sources = _sources(settings)
    if not sources:
        yield Finding("settings", "all at their defaults")
    for name, source in sources.items():
        value = "(set)" if name == "store_url" else getattr(settings, name)  # a store's URL may hold a password
        yield Finding("settings", f"{name} = {value} from {source}")


def _sources(settings: Settings) -> dict[str, str]:
    """Where each setting that is not at its default comes from."""
    user = load_settings(environ={"AGX_HOME": str(settings.home)})
    project = load_settings(environ={"AGX_HOME": str(settings.home)}, project=current_folder())
    default = Settings.model_validate({})
    sources: dict[str, str] = {}
    for name in Settings.model_fields:
        variable = f"AGX_{name.upper()}"
        if provider_setting(variable) is not None:
            sources[name] = variable
        elif getattr(project, name) != getattr(user, name):
            sources[name] = "the project's settings file"
        elif name != "home" and getattr(user, name) != getattr(default, name):
            sources[name] = str(settings.home / "settings.toml")
    return sources


def _settings_report() -> dict[str, dict[str, Any]] | None:
    """Every setting with its value and source; None where they cannot be loaded."""
    try:
        settings = load_settings(project=current_folder())
    except SettingsError:
        return None
    sources = _sources(settings)
    values = settings.model_dump(mode="json") | ({"store_url": "(set)"} if settings.store_url else {})
    return {name: {"value": value, "source": sources.get(name, "default")} for name, value in values.items()}


def _tools(settings: Settings) -> Seen:
    names = [tool.schema.name for tool in enabled_tools(settings)]
    return f"new sessions have {', '.join(names) or 'none'}", "ok"


# --- files ------------------------------------------------------------------------------------------------------------


def _home(path: Path) -> Finding:
    """Whether the folder is the person's alone."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return Finding("home", f"{path} is made at the first start", "note")
    except OSError as exc:
        return Finding("home", f"{path} cannot be looked at: {exc.strerror}", "problem")
    if mode & 0o077 and sys.platform != "win32":
        return Finding("home", f"{path} has mode {mode:04o}, so others can read it: chmod 700", "problem")
    return Finding("home", f"{path} (mode {mode:04o})")


def _looked_at(topic: str, look: Callable[[], Seen]) -> Finding:
    """What `look` says; what it raises is a problem."""
    try:
        return Finding(topic, *look())
    except AgenticXError as exc:
        return Finding(topic, str(exc), "problem")


# --- models -----------------------------------------------------------------------------------------------------------


def _models(settings: Settings, online: bool) -> Iterator[Finding]:
    """Which keys are set and whether they work, which local servers answer, and what that makes the default."""
    try:
        facts, models = load_model_catalog(), asyncio.run(list_models(settings))
    except SettingsError as exc:
        yield Finding("models", str(exc), "problem")
        return
    yield from _keys(facts, online)
    servers = {model.source: model.provider for model in models if "local server" in model.source}
    for why, provider in servers.items():
        names = ", ".join(model.spec for model in models if model.source == why)
        yield Finding("servers", f"{provider}: {why}: {names}")
    if not servers:
        yield Finding("servers", "no local model server answers", "note")
    yield from _in_use(settings)
    for model in models:
        yield from _abilities(model, settings)


def _in_use(settings: Settings) -> Iterator[Finding]:
    """The model of new sessions and those that stand in for it; one that no turn could use is a problem."""
    spec, reason = default_model_spec(settings)
    asked_for: Status = "ok" if settings.model or spec != "demo" else "note"
    standing_in = [("fallback", name, "the setting AGX_FALLBACK_MODELS") for name in settings.fallback_models]
    for topic, name, why in [("model", spec, reason), *standing_in]:
        try:
            resolve_model(name)
        except SettingsError as exc:
            yield Finding(topic, f"{name} ({why}): {exc}", "problem")
        else:
            yield Finding(topic, f"{name} ({why})", asked_for)


def _keys(facts: ModelCatalog, online: bool) -> Iterator[Finding]:
    """The variables that are set, by name, and what the provider says to them."""
    set_keys: dict[str, tuple[str, Provider]] = {}
    for provider in facts.providers.values():
        if found := provider.find_key():
            set_keys.setdefault(found[0], (found[1], provider))
    if not set_keys:
        yield Finding("keys", "no provider's key is set", "note")
    for variable, (key, provider) in set_keys.items():
        if online or is_loopback(urlsplit(provider.effective_base_url()).hostname or ""):
            yield _tested(variable, asyncio.run(check_key(provider, key)))
        else:
            yield Finding("keys", f"{variable} is set; --online tests it at {provider.effective_base_url()}")


def _tested(variable: str, check: KeyCheck) -> Finding:
    statuses: Mapping[str, Status] = {"accepted": "ok", "refused": "problem", "unclear": "note"}
    return Finding("keys", f"{variable} {check.text}", statuses[check.outcome])


def _abilities(model: ModelInfo, settings: Settings) -> Iterator[Finding]:
    """What a model can do, as far as anybody says."""
    if model.spec == "demo" or not _means_something(model.spec):
        return
    facts = model.facts
    if not facts.is_known:
        own = settings.home / "models.toml"
        yield Finding("abilities", f"{model.spec}: {ModelFacts.ASSUMPTION} (a row in {own} says more)", "note")
        return
    can = [words for ability, words in _ABILITIES.items() if facts.supports(ability)]
    if not facts.supports("tools"):
        can.append("gets tools in its prompt")
    if facts.input_window:
        can.append(f"takes {facts.input_window:,} tokens")
    if (price := facts.price) is not None:
        can.append(f"costs ${price.input} and ${price.output} per million tokens in and out, read on {price.read}")
    yield Finding("abilities", f"{model.spec}: {', '.join(can)}")


def _means_something(spec: str) -> bool:
    try:
        find_model_facts(spec)
    except SettingsError:  # told of the model in use
        return False
    return True


_ABILITIES: Mapping[Capability, str] = {
    "tools": "calls tools",
    "parallel": "several at once",
    "vision": "sees images",
    "reasoning": "thinks",
    "structured_output": "keeps to a schema",
}


# --- the sandbox ------------------------------------------------------------------------------------------------------


def _sandbox() -> Finding:
    bubblewrap = shutil.which("bwrap")
    found = (
        f"bubblewrap is at {bubblewrap}, but not used by this release" if bubblewrap else "bubblewrap is not installed"
    )
    power = "an approved shell command has your full power and could read the server's token"
    return Finding("sandbox", f"{found}: {power}", "note")
