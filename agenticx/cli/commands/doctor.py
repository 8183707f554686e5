"""The `agx doctor` command: checks of the installation that change nothing."""

from __future__ import annotations

import asyncio
import json
import platform
import stat
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from shlex import quote
from typing import Any, Literal
from urllib.parse import urlsplit

from agenticx import __version__
from agenticx.cli.client.discovery import server_with_pid
from agenticx.cli.exit_codes import DONE, FAILED
from agenticx.cli.options import current_folder, enabled_tools, known_tools
from agenticx.credentials.provider_keys import ProviderKey
from agenticx.credentials.server_token import read_token, token_path
from agenticx.errors import AgenticXError, SettingsError, StoreError
from agenticx.home_permissions import check_home, check_mode
from agenticx.llms.model_catalog import Capability, ModelCatalog, Provider, load_model_catalog
from agenticx.llms.providers.key_check import KeyCheck, check_key
from agenticx.llms.providers.resolve import (
    ModelInfo,
    default_model_spec,
    find_model_facts,
    is_offline,
    list_models,
    resolve_wire,
)
from agenticx.llms.transport.hosts import is_loopback
from agenticx.llms.transport.proxy_settings import proxy_problems, read_proxies
from agenticx.permissions.advice import advise_all
from agenticx.permissions.rule_stores import FileRules, refuse_unused_file
from agenticx.permissions.trusted_files import TrustUnusable, open_trust
from agenticx.resource_exhaustion import exhausted_error
from agenticx.sandbox.options import sandbox_options
from agenticx.sandbox.probe import find_sandbox
from agenticx.sessions.store.factory import (
    check_file,
    database_path,
    probe_store_owner,
    read_workers,
    using_shared_state,
)
from agenticx.sessions.store.workers import describe_workers
from agenticx.settings import Settings, load_settings, provider_setting
from agenticx.tools.agents_files import find_agents_files
from agenticx.tools.plurals import pluralize
from agenticx.tools.visible import visible_line

__all__ = ["Finding", "configure", "run", "run_checks"]

Status = Literal["ok", "note", "problem"]

CheckResult = tuple[str, Literal["ok", "note"]]
"""A sentence and its status: `note` for what does not exist yet or needs attention, else `ok`."""

_SHOWN_RULES = 5
_RESPONSE_TIMEOUT = 5.0  # seconds
_TRIED_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check; a `note` is worth knowing, a `problem` should be repaired."""

    topic: str
    text: str
    status: Status = "ok"


_EPILOG = """\
Keys are named, never shown. Nothing leaves this machine unless --online is given: then each key that is set or stored
is sent to its own provider, with one request that costs nothing. Keys of providers that were moved to this machine, as
with OPENAI_BASE_URL=http://127.0.0.1:…, are tested in any case.

exit codes: 0 no problem found, 1 a problem found, 2 usage"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments and help texts of `agx doctor` to its parser."""
    parser.epilog = _EPILOG
    parser.add_argument("--online", action="store_true", help="test keys at providers that are not on this machine")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: Namespace) -> int:
    """Run `agx doctor` and return its exit code."""
    results = list(run_checks(online=arguments.online))
    with suppress(BrokenPipeError):  # the reader closed the pipe; the exit code still reports the problems
        if arguments.json:
            print(json.dumps({"findings": [asdict(finding) for finding in results], "settings": _settings_report()}))
        else:
            _print(results)
    return FAILED if any(finding.status == "problem" for finding in results) else DONE


def _print(results: list[Finding]) -> None:
    marks: Mapping[Status, str] = {"ok": "ok", "note": "--", "problem": "!!"}
    for finding in results:
        print(f"{marks[finding.status]}  {finding.topic:<12} {visible_line(finding.text, 2_000)}")


def run_checks(*, online: bool = False) -> Iterator[Finding]:
    """Yield the finding of every check, cheap and certain ones first; only `online` contacts other machines."""
    yield Finding("agenticx", f"{__version__} in {Path(__file__).parents[2]}")
    yield Finding("python", f"{platform.python_version()} ({sys.executable}) on {platform.platform()}")
    try:
        settings = load_settings(project=current_folder())
    except SettingsError as exc:
        yield Finding("settings", str(exc), "problem")
        return
    yield from _check_settings(settings)
    yield _run_check("tools", lambda: _check_tools(settings))
    yield from _check_instructions(settings)
    home = _check_home(settings.home)
    yield home
    sentences = (sentence for sentence in check_home(settings.home) if sentence != home.text)
    yield from (Finding("home", sentence, "note") for sentence in sentences)
    yield _run_check("token", lambda: _check_token(settings))
    if settings.postgres_urls:
        yield from _check_workers(settings)
    else:
        yield _run_check("store", lambda: _check_store(settings))
    yield _run_check("rules", lambda: _check_rules(settings))
    yield from _check_proxies()
    yield from _check_models(settings, online)
    yield _check_sandbox(settings)


def _check_instructions(settings: Settings) -> Iterator[Finding]:
    """Yield a note for each AGENTS.md that applies in this folder and is left out, or not trusted."""
    files, trusted = find_agents_files(current_folder(), settings.private_paths), set[str]()
    try:
        if any(file.reason is None for file in files):
            with using_shared_state(settings, only_reads=True) as shared:
                if shared is not None or not settings.postgres_urls:  # an empty database has nothing that is trusted
                    trusted = set(open_trust(settings.home, shared).list())
    except (SettingsError, StoreError, TrustUnusable) as exc:
        yield Finding("instructions", str(exc), "problem")
        return
    for file in files:
        if file.reason is not None:
            yield Finding("instructions", f"{file.path} is left out: {file.reason}", "note")
        elif file.sha256 not in trusted:
            yield Finding("instructions", f"{file.path} is not trusted yet; `agx trust` shows it and asks", "note")


# --- settings ---------------------------------------------------------------------------------------------------------


def _check_settings(settings: Settings) -> Iterator[Finding]:
    sources = _setting_sources(settings)
    if not sources:
        yield Finding("settings", "all at their defaults")
    for name, source in sources.items():
        value = "(set)" if name == "store_url" else getattr(settings, name)  # a store's URL may contain a password
        yield Finding("settings", f"{name} = {value} from {source}")


def _setting_sources(settings: Settings) -> dict[str, str]:
    """Return the source of each setting that differs from its default."""
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
    """Return every setting with its value and source; None if they cannot be loaded."""
    try:
        settings = load_settings(project=current_folder())
    except SettingsError:
        return None
    sources = _setting_sources(settings)
    values = settings.model_dump(mode="json") | ({"store_url": "(set)"} if settings.store_url else {})
    return {name: {"value": value, "source": sources.get(name, "default")} for name, value in values.items()}


def _check_tools(settings: Settings) -> CheckResult:
    names = [tool.schema.name for tool in enabled_tools(settings)]
    return f"new sessions have {', '.join(names) or 'none'}", "ok"


# --- files ------------------------------------------------------------------------------------------------------------


def _check_home(path: Path) -> Finding:
    """Check that the folder is accessible to its owner only, or that it can be created."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return _check_creation(path)
    except OSError as exc:
        return Finding("home", f"{path} cannot be read: {exc.strerror}", "problem")
    if sys.platform != "win32" and (sentence := check_mode(path)) is not None:
        return Finding("home", sentence, "problem")
    if mode & 0o077 and sys.platform != "win32":
        who = "every user" if mode & 0o007 else "its group"
        repair = f"chmod 700 {quote(str(path))}"
        return Finding("home", f"{str(path)!r} has mode {mode:04o}, so {who} has access to it: {repair}", "problem")
    try:
        with tempfile.TemporaryFile(dir=path, buffering=0) as file:
            file.write(bytes(_TRIED_BYTES))  # on a full disk a file can be created, but not written
            return Finding("home", f"{path} (mode {mode:04o})")
    except OSError as exc:
        reason = exhausted_error(exc) or exc.strerror
        return Finding("home", f"AGX_HOME is {str(path)!r}, in which nothing can be written: {reason}", "problem")


def _check_creation(path: Path) -> Finding:
    """Create the folder with its parents, and remove those that were missing."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        path.mkdir(mode=0o700, parents=True)
    except OSError as exc:
        return Finding("home", f"AGX_HOME is {str(path)!r}, which cannot be created: {exc.strerror}", "problem")
    finally:
        for folder in missing:
            with suppress(OSError):  # it was not created, or another process uses it now
                folder.rmdir()
    return Finding("home", f"{path} is created at the first start", "note")


def _run_check(topic: str, check: Callable[[], CheckResult]) -> Finding:
    """Return the result of `check` as a finding; an `AgenticXError` that it raises is a problem."""
    try:
        return Finding(topic, *check())
    except AgenticXError as exc:
        return Finding(topic, str(exc), "problem")


# --- the token and the store ------------------------------------------------------------------------------------------


def _check_token(settings: Settings) -> CheckResult:
    """Report the token file; raise `SettingsError` for one that `agx serve` refuses."""
    path = token_path(settings)
    try:
        read_token(settings)
    except FileNotFoundError:
        return f"{path} is created by `agx serve`", "note"
    return f"{path} (mode {stat.S_IMODE(path.stat().st_mode):04o})", "ok"


def _check_store(settings: Settings) -> CheckResult:
    """Report the owner of the store, or the state of its database if it has no owner.

    Raise `StoreError` or `SettingsError` for a store that no process could open, `ServerUnresponsive` if its owner is a
    server that does not answer.
    """
    path, pid = database_path(settings), probe_store_owner(settings)
    if pid is None:
        match check_file(settings):
            case "missing":
                return f"{path} is created on first use", "note"
            case "has unapplied log":
                return f"{path} has a write-ahead log that is applied at the next start", "note"
            case "intact":
                return f"{path} is intact", "ok"
    server = asyncio.run(server_with_pid(settings, pid, response_timeout=_RESPONSE_TIMEOUT))
    if server is None:
        return f"{path} belongs to {f'process {pid}' if pid else 'another process'}", "ok"
    return f"{path} belongs to the server at {server.url} (process {pid}), which answers", "ok"


# --- workers of a database --------------------------------------------------------------------------------------------


def _check_rules(settings: Settings) -> CheckResult:
    """Report the rules about calls; raise `RulesUnusable` for a file that denies all calls, `SettingsError`."""
    if settings.postgres_urls:
        refuse_unused_file(settings.home)
        return "those of the workers are in the database: `agx permissions list`", "ok"
    store = FileRules(settings.home)
    rules = store.list()
    if not rules:
        return "none; `agx permissions add` and the answer a to a question add some", "ok"
    notes = [f"{rule_id}: {clauses[0]}" for rule_id, clauses in advise_all(rules, known_tools(settings)).items()]
    text = f"{pluralize(len(rules), 'rule')} in {store.path}"
    return "; ".join((text, *notes[:_SHOWN_RULES])), "note" if notes else "ok"


def _check_workers(settings: Settings) -> Iterator[Finding]:
    """Report the workers of the store's databases, and what waits for one."""
    try:
        reports = read_workers(settings)
    except (SettingsError, StoreError) as exc:
        yield Finding("store", str(exc), "problem")
        return
    for name, report in reports.items():
        if report is None:
            yield Finding("store", f"{name} is empty: its tables are created on first use", "note")
            continue
        for sentence, is_fine in describe_workers(report):
            yield Finding("store", sentence, "ok" if is_fine else "note")


# --- proxies ----------------------------------------------------------------------------------------------------------


def _check_proxies() -> Iterator[Finding]:
    """Report the proxies for requests to providers, without their logins, and what of their settings is ignored."""
    for proxy in read_proxies():
        yield Finding("proxies", f"{proxy.variable} is {proxy.host}")
    for problem in proxy_problems():  # one that a model in use needs is a problem of that model
        yield Finding("proxies", problem, "note")


# --- models -----------------------------------------------------------------------------------------------------------


def _check_models(settings: Settings, online: bool) -> Iterator[Finding]:
    """Check keys, local model servers, the models in use, and describe what each model can do."""
    with ExitStack() as stack:
        try:
            stack.enter_context(using_shared_state(settings, only_reads=True))
        except (SettingsError, StoreError) as exc:
            yield Finding("keys", str(exc), "problem")
            return
        try:
            catalog, models = load_model_catalog(), asyncio.run(list_models(settings))
        except SettingsError as exc:
            yield Finding("models", str(exc), "problem")
            return
        yield from _check_keys(catalog, online)
        yield from _check_model_servers(models)
        yield from _check_models_in_use(settings)
        for model in models:
            provider = catalog.providers.get(model.provider)
            defaults = (settings.model, provider and f"{provider.name}:{provider.model}")
            if provider is None or not provider.keys or model.spec in defaults:
                yield from _describe_capabilities(model, settings)


def _check_model_servers(models: Sequence[ModelInfo]) -> Iterator[Finding]:
    servers = {model.source: model.provider for model in models if "local server" in model.source}
    for source, provider in servers.items():
        names = ", ".join(model.spec for model in models if model.source == source)
        yield Finding("servers", f"{provider}: {source}: {names}")
    if not servers:
        yield Finding("servers", "no local model server answers", "note")


def _check_models_in_use(settings: Settings) -> Iterator[Finding]:
    """Check the default model and the fallback models; one that no turn could use is a problem."""
    spec, reason = default_model_spec(settings)
    status: Status = "ok" if settings.model or spec != "demo" else "note"
    fallbacks = [("fallback", name, "the setting AGX_FALLBACK_MODELS") for name in settings.fallback_models]
    for topic, name, source in [("model", spec, reason), *fallbacks]:
        try:
            resolve_wire(name)
        except SettingsError as exc:
            yield Finding(topic, f"{name} ({source}): {exc}", "problem")
        else:
            yield Finding(topic, f"{name} ({source})", status)


def _check_keys(catalog: ModelCatalog, online: bool) -> Iterator[Finding]:
    """Report the keys that are set or stored, by name, and the provider's verdict on each that may be tested."""
    keys: dict[str, tuple[ProviderKey, Provider]] = {}
    for provider in catalog.providers.values():
        if found := provider.find_key():
            keys.setdefault(found.variable, (found, provider))
        elif provider.key_source() == "keyring":
            text = f"the key of {provider.name} cannot be read from the keyring; is it locked, or the extra missing?"
            yield Finding("keys", text, "problem")
    if not any(provider.key_source() for provider in catalog.providers.values()):
        yield Finding("keys", "no provider's key is set or stored", "note")
    for key, provider in keys.values():
        if online or is_loopback(urlsplit(provider.effective_base_url()).hostname or ""):
            yield _key_finding(key, asyncio.run(check_key(provider, key.value)))
        else:
            yield Finding("keys", f"{key.reason}; --online tests it at {provider.effective_base_url()}")


def _key_finding(key: ProviderKey, check: KeyCheck) -> Finding:
    statuses: Mapping[str, Status] = {"accepted": "ok", "refused": "problem", "unclear": "note"}
    return Finding("keys", f"{key.name} {check.text}", statuses[check.outcome])


def _describe_capabilities(model: ModelInfo, settings: Settings) -> Iterator[Finding]:
    """Describe the capabilities of a model, as far as they are known."""
    if is_offline(model.spec) or not _is_known_model(model.spec):
        return
    facts = model.facts
    if not facts.is_known:
        user_file = settings.home / "models.toml"
        yield Finding("capabilities", f"{model.spec}: {facts.assumption} (add a row to {user_file})", "note")
        return
    texts = [words for capability, words in _CAPABILITY_TEXTS.items() if facts.supports(capability)]
    if not facts.supports("tools"):
        texts.append("gets tools in its prompt")
    if facts.input_window:
        texts.append(f"takes {facts.input_window:,} tokens")
    if (price := facts.price) is not None:
        texts.append(f"costs ${price.input} and ${price.output} per million tokens in and out, read on {price.read}")
    yield Finding("capabilities", f"{model.spec}: {', '.join(texts)}")


def _is_known_model(spec: str) -> bool:
    try:
        find_model_facts(spec)
    except SettingsError:  # reported by `_check_models_in_use`
        return False
    return True


_CAPABILITY_TEXTS: Mapping[Capability, str] = {
    "tools": "calls tools",
    "parallel": "several at once",
    "vision": "sees images",
    "reasoning": "thinks",
    "structured_output": "follows a schema",
}


# --- the sandbox ------------------------------------------------------------------------------------------------------


def _check_sandbox(settings: Settings) -> Finding:
    status = find_sandbox(sandbox_options(settings))
    if status.kind == "landlock":
        text = "commands can write in the workspace only, and see neither your home folder nor the token"
        return Finding("sandbox", f"Landlock: {text}. {status.reason}", "note")
    if status.kind is not None:
        text = "they can change the workspace only, and have no network unless you allow it"
        return Finding("sandbox", f"{status.reason.removesuffix('.')}: {text}")
    power = "an approved shell command runs with all your permissions and could read the server's token"
    return Finding("sandbox", f"none, so {power}. {status.reason}", "note")
