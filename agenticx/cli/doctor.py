"""`agx doctor`: what this installation has, lacks and uses; it changes nothing and opens no store."""

from __future__ import annotations

import asyncio
import json
import platform
import shutil
import stat
import sys
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from agenticx.cli.exit_codes import DONE, FAILED
from agenticx.errors import SettingsError
from agenticx.llms.catalog import default_model_spec, list_models
from agenticx.settings import Settings, load_settings, provider_setting

__all__ = ["Finding", "configure", "findings", "run"]

Status = Literal["ok", "note", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at. A `note` is worth knowing, a `problem` is worth repairing."""

    topic: str
    text: str
    status: Status = "ok"


def configure(parser: ArgumentParser) -> None:
    parser.epilog = "Keys are named, never shown.\n\nexit codes: 0 no problem found, 1 a problem found, 2 usage"
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: Namespace) -> int:
    found = list(findings())
    if arguments.json:
        print(json.dumps({"findings": [asdict(finding) for finding in found], "settings": _settings_report()}))
    else:
        _print(found)
    return FAILED if any(finding.status == "problem" for finding in found) else DONE


def _print(found: list[Finding]) -> None:
    marks: Mapping[Status, str] = {"ok": "ok", "note": "--", "problem": "!!"}
    for finding in found:
        print(f"{marks[finding.status]}  {finding.topic:<12} {finding.text}")


def findings() -> Iterator[Finding]:
    """Look at everything, the cheap and certain first."""
    yield Finding("agenticx", f"{version('agenticx')} in {Path(__file__).parents[1]}")
    yield Finding("python", f"{platform.python_version()} ({sys.executable}) on {platform.platform()}")
    try:
        settings = load_settings(project=Path.cwd())
    except SettingsError as exc:
        yield Finding("settings", str(exc), "problem")
        return
    yield from _changed_settings(settings)
    yield _private("home", settings.home, "is made at the first start", wanted=0o700)
    yield _private("token", settings.token_file or settings.home / "token", "is made by `agx serve`", wanted=0o600)
    yield from _models(settings)
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
    project = load_settings(environ={"AGX_HOME": str(settings.home)}, project=Path.cwd())
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
        settings = load_settings(project=Path.cwd())
    except SettingsError:
        return None
    sources = _sources(settings)
    values = settings.model_dump(mode="json") | ({"store_url": "(set)"} if settings.store_url else {})
    return {name: {"value": value, "source": sources.get(name, "default")} for name, value in values.items()}


# --- files ------------------------------------------------------------------------------------------------------------


def _private(topic: str, path: Path, absent: str, *, wanted: int) -> Finding:
    """Whether a path is the person's alone."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return Finding(topic, f"{path} {absent}", "note")
    except OSError as exc:
        return Finding(topic, f"{path} cannot be looked at: {exc.strerror}", "problem")
    if mode & 0o077 and sys.platform != "win32":
        return Finding(topic, f"{path} has mode {mode:04o}, so others can read it: chmod {wanted:o}", "problem")
    return Finding(topic, f"{path} (mode {mode:04o})")


# --- models -----------------------------------------------------------------------------------------------------------


def _models(settings: Settings) -> Iterator[Finding]:
    """Which keys are set (by name, never by value), which local servers answer, and what that makes the default."""
    models = asyncio.run(list_models(settings))
    keys = sorted({model.why.partition(" ")[0] for model in models if model.why.endswith(" is set")})
    yield Finding("keys", ", ".join(keys)) if keys else Finding("keys", "no provider's key is set", "note")
    servers = Counter((model.provider, model.why) for model in models if "local server" in model.why)
    for (provider, why), count in servers.items():
        yield Finding("servers", f"{provider}: {why}, {count} models")
    if not servers:
        yield Finding("servers", "no local model server answers", "note")
    spec, reason = default_model_spec(settings)
    yield Finding("model", f"{spec} ({reason})", "note" if spec == "demo" and not settings.model else "ok")


# --- the sandbox ------------------------------------------------------------------------------------------------------


def _sandbox() -> Finding:
    bubblewrap = shutil.which("bwrap")
    found = (
        f"bubblewrap is at {bubblewrap}, but not used by this release" if bubblewrap else "bubblewrap is not installed"
    )
    power = "an approved shell command has your full power and could read the server's token"
    return Finding("sandbox", f"{found}: {power}", "note")
