"""The configuration of a worker as digests: different digests show that workers are configured differently."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from agenticx.settings import Settings

__all__ = ["configuration_digests"]

_OF_THIS_WORKER = {"home", "store_url", "secret_file", "token_file", "log_level"}
_FILES = ("models.toml",)
_FOLDERS = ("agents", "prompts", "teams")
_DIGEST_CHARS = 12
_MAX_FILE_BYTES = 256 * 1024


def configuration_digests(settings: Settings) -> Mapping[str, str]:
    """Return a short digest of each part of the configuration that all workers should have in common; blocks.

    The parts are `settings`, from variables and `settings.toml` and without settings that may differ, and the files and
    folders `models.toml`, `agents`, `prompts` and `teams` of AGX_HOME as they are now.
    """
    shown = settings.model_dump_json(exclude=_OF_THIS_WORKER).encode()
    digests = {"settings": _digest([shown])}
    for name in (*_FILES, *_FOLDERS):
        digests[name] = _digest(_contents(settings.home / name))
    return digests


def _contents(path: Path) -> Iterator[bytes]:
    """Yield the name and the content of a file, or of each file in a folder and its subfolders."""
    files = sorted(path.rglob("[!.]*")) if path.is_dir() else [path]
    for file in files:
        try:
            with file.open("rb") as opened:
                content = opened.read(_MAX_FILE_BYTES)
        except OSError:  # a folder, one that is not there, or what is reported where it is used
            continue
        yield file.relative_to(path).as_posix().encode()
        yield content


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:_DIGEST_CHARS]
