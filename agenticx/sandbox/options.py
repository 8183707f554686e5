"""The user's choices about the sandbox, and the kinds of sandboxes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from agenticx.settings import Settings

__all__ = ["SandboxKind", "SandboxOptions", "sandbox_options"]

SandboxKind = Literal["bubblewrap", "landlock"]


@dataclass(frozen=True, slots=True)
class SandboxOptions:
    """The user's choices: `mode` "off" runs commands without a sandbox.

    `home_paths` are folders and files of the home folder that commands may read, in addition to the known toolchains;
    they are absolute or relative to the home folder. `home` is AGX_HOME: files that a command may not create are moved
    there. None is the default.
    """

    mode: Literal["auto", "off"] = "auto"
    home_paths: tuple[str, ...] = ()
    home: Path | None = None


def sandbox_options(settings: Settings) -> SandboxOptions:
    """Return the choices that the settings have."""
    return SandboxOptions(settings.sandbox, settings.sandbox_home_paths, settings.home)
