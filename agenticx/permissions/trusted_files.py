"""The contents of AGENTS.md files that the user trusts, and the files of a prompt that lack that trust.

1. The user trusts a content, by its SHA-256 digest, not a path: a changed file is not trusted, a copy of a trusted file
   is.
2. Trust is kept in `AGX_HOME/trusted_files.json` (mode 0600), which no tool can access, or in the database that several
   workers share. Writers take turns by a lock; each writes a new file and renames it over the old one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from agenticx.clocks import Clock, SystemClock, rfc3339
from agenticx.errors import AgenticXError, SettingsError, StoreError, error_text
from agenticx.logs import get_logger
from agenticx.private_files import acquire_lock, file_signature, read_regular_file, replace_file
from agenticx.tools.agents_files import digests_by_name, find_agents_files, instructions_prompt

if TYPE_CHECKING:
    from agenticx.shared_state.state import SharedState

__all__ = [
    "Digest",
    "FileTrust",
    "Instructions",
    "SharedTrust",
    "TrustStore",
    "TrustUnusable",
    "TrustedFile",
    "open_trust",
    "read_instructions",
]

_FILE = "trusted_files.json"
_MAX_FILE_BYTES = 4_000_000
_LOCK_SECONDS = 5.0
_SECONDS_OF_COPY = 0.5
_PREFIX = "trusted_file/"

_log = get_logger(__name__)

Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$", description="The SHA-256 digest of a content, in hexadecimal.")]


class TrustUnusable(AgenticXError):
    """Raised when what is trusted cannot be read or stored; the message says what would be right."""


class TrustedFile(BaseModel):
    """A trusted content, with the path of the file that had it and the time (RFC 3339, UTC) when it was trusted."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sha256: Digest
    path: str = ""
    trusted_at: str = ""


class TrustStore(Protocol):
    """The trusted contents by their digests. All methods block, and raise `TrustUnusable`."""

    def list(self) -> Mapping[str, TrustedFile]:
        """Return all, oldest first."""
        ...

    def add(self, sha256: str, path: str) -> TrustedFile:
        """Trust a content, and return it as it is stored; one that is trusted already stays as it is."""
        ...

    def remove(self, digests: Iterable[str]) -> Sequence[TrustedFile]:
        """Remove the trust in these contents; return those that were trusted."""
        ...


@dataclass(frozen=True, slots=True)
class Instructions:
    """The AGENTS.md files of a prompt: their text in the prompt, and the digest of each file by its name.

    The name is relative to the workspace. Without a `trust` store no file is trusted.
    """

    prompt: str = ""
    digests: Mapping[str, str] = field(default_factory=dict[str, str])
    trust: TrustStore | None = field(default=None, repr=False)

    def untrusted(self) -> Sequence[str]:
        """Return the names of the files that the user does not trust now; all if the store is unusable. Blocks."""
        if not self.digests or self.trust is None:
            return tuple(self.digests)
        try:
            trusted = self.trust.list()
        except TrustUnusable as exc:
            _log.warning("instructions count as not trusted", reason=str(exc))
            return tuple(self.digests)
        return tuple(name for name, digest in self.digests.items() if digest not in trusted)


def read_instructions(workspace: Path, private: Iterable[Path], trust: TrustStore | None) -> Instructions:
    """Return the AGENTS.md files that apply in a workspace, each read once for its text and its digest; blocks.

    `private` are paths of AgenticX's own data.
    """
    files = find_agents_files(workspace, private)
    return Instructions(instructions_prompt(files), digests_by_name(workspace, files), trust)


class FileTrust:
    """A `TrustStore` in the file `trusted_files.json` of AGX_HOME."""

    def __init__(self, home: Path, clock: Clock | None = None) -> None:
        self.path = home / _FILE
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._copy: tuple[object, Mapping[str, TrustedFile]] | None = None

    def list(self) -> Mapping[str, TrustedFile]:
        with self._lock, self._unusable_errors("read"):
            signature = file_signature(self.path)
            if self._copy is None or self._copy[0] != signature:
                self._copy = signature, {} if signature is None else _read(self.path)
            return self._copy[1]

    def add(self, sha256: str, path: str) -> TrustedFile:
        with self._changing():
            stored = self.list()
            if (known := stored.get(sha256)) is not None:
                return known
            added = _new(sha256, path, self._clock)
            self._write({**stored, sha256: added})
            return added

    def remove(self, digests: Iterable[str]) -> Sequence[TrustedFile]:
        with self._changing():
            kept = dict(self.list())
            removed = [kept.pop(digest) for digest in dict.fromkeys(digests) if digest in kept]
            if removed:
                self._write(kept)
            return removed

    @contextmanager
    def _changing(self) -> Generator[None]:
        with self._unusable_errors("changed"):
            descriptor = acquire_lock(self.path.with_name(f".{_FILE}.lock"), _LOCK_SECONDS)
        if descriptor is None:
            raise TrustUnusable(f"{str(self.path)!r} is being changed by another process; try it again")
        try:
            yield
        finally:
            os.close(descriptor)

    def _write(self, files: Mapping[str, TrustedFile]) -> None:
        content = _FILES.dump_json(list(files.values()), indent=1)
        with self._unusable_errors("written"):
            replace_file(self.path, content + b"\n", self.path.with_name(f".{_FILE}.new"))

    @contextmanager
    def _unusable_errors(self, done: str) -> Generator[None]:
        try:
            yield
        except OSError as exc:
            raise TrustUnusable(f"{str(self.path)!r} cannot be {done}: {error_text(exc)}") from exc


_FILES = TypeAdapter(list[TrustedFile])


def _read(path: Path) -> Mapping[str, TrustedFile]:
    """Return the contents of a file; raises `OSError`, and `TrustUnusable` for another file than `_write` writes."""
    content = read_regular_file(path, _MAX_FILE_BYTES)
    try:
        return {one.sha256: one for one in _FILES.validate_json(content)}
    except ValidationError as exc:
        reason = exc.errors(include_url=False)[0]["msg"]
        raise TrustUnusable(f"{str(path)!r} is damaged ({reason}); move it away, and trust the files again") from exc


def _new(sha256: str, path: str, clock: Clock) -> TrustedFile:
    return TrustedFile(sha256=sha256, path=path, trusted_at=rfc3339(clock.now()))


class SharedTrust:
    """A `TrustStore` in the place that several workers share, encrypted there; its copy is half a second old at most.

    Without AGX_SECRET_FILE nothing is trusted, and nothing can be.
    """

    def __init__(self, shared: SharedState, clock: Clock | None = None) -> None:
        self._shared = shared
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._copy: tuple[float, Mapping[str, TrustedFile]] | None = None

    def list(self) -> Mapping[str, TrustedFile]:
        with self._lock:
            now = self._clock.monotonic()
            if self._copy is None or now - self._copy[0] > _SECONDS_OF_COPY:
                self._copy = now, self._read()
            return self._copy[1]

    def add(self, sha256: str, path: str) -> TrustedFile:
        if (known := self._read().get(sha256)) is not None:
            return known
        added, name = _new(sha256, path, self._clock), _PREFIX + sha256
        with _unusable_errors():
            self._shared.values.put(name, self._shared.secret.seal(name, added.model_dump_json().encode()))
        self._forget()
        return added

    def remove(self, digests: Iterable[str]) -> Sequence[TrustedFile]:
        stored = self._read()
        removed = [stored[digest] for digest in dict.fromkeys(digests) if digest in stored]
        with _unusable_errors():
            for one in removed:
                self._shared.values.take(_PREFIX + one.sha256)
        self._forget()
        return removed

    def _read(self) -> Mapping[str, TrustedFile]:
        if not self._shared.has_secret:
            return {}
        with _unusable_errors():
            secret = self._shared.secret
            files = [
                TrustedFile.model_validate_json(secret.unseal(name, sealed))
                for name, sealed in self._shared.values.items(_PREFIX).items()
            ]
        return {one.sha256: one for one in sorted(files, key=lambda one: (one.trusted_at, one.sha256))}

    def _forget(self) -> None:
        with self._lock:
            self._copy = None


@contextmanager
def _unusable_errors() -> Generator[None]:
    try:
        yield
    except (SettingsError, StoreError, ValueError) as exc:
        raise TrustUnusable(f"the trusted files in the database cannot be used: {exc}") from exc


def open_trust(home: Path, shared: SharedState | None, clock: Clock | None = None) -> TrustStore:
    """Return the contents that the user trusts: of AGX_HOME, or of the place that several workers share."""
    return FileTrust(home, clock) if shared is None else SharedTrust(shared, clock)
