"""The vaults of a user: folders of notes, remembered below AGX_HOME with their indexes."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import pwd
import re
import shutil
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any, Literal

from agenticx.errors import SettingsError, ToolError, error_text
from agenticx.messages import new_id
from agenticx.private_files import locked_folder, make_folders, replace_file
from agenticx.tools.visible import visible

__all__ = [
    "NOTE_TOOLS",
    "EmbeddingConsent",
    "InvalidVault",
    "UnknownVault",
    "VaultRecord",
    "VaultRegistry",
    "VaultUnreadable",
    "unusable_file",
]

NOTE_TOOLS = frozenset({"note_append", "note_links", "note_list", "note_read", "note_search", "note_write"})
"""The names of the tools that sessions have while there is a vault."""

EmbeddingConsent = Literal["not_needed", "needed", "given", "refused"]
"""The person's consent to send text of notes to the model's server; a server on this machine needs none."""

_MAX_NAME_CHARS = 100
_ID = re.compile(r"vault_[0-9a-f]{12}")
_LOCK_SECONDS = 15.0
_REMOVED = ".removed"
_REMEDIES = {
    errno.ENOSPC: "; free some space",
    errno.EDQUOT: "; free some space",
    errno.EROFS: "; make it writable",
    errno.EACCES: "; make it writable",
    errno.EPERM: "; make it writable",
    errno.EISDIR: "; make it a file, or remove what is there: it is made anew from the notes",
    errno.EIO: "; check the disk, or remove what is there: it is made anew from the notes",
    errno.ETIMEDOUT: ": another process uses it; try again",
}


class InvalidVault(SettingsError):
    """A folder that cannot be a vault, or a name that cannot be its name; the message says what would be right."""


class UnknownVault(ToolError):
    """Raised for a vault that does not exist or was removed; the message lists the vaults, or says how to add one."""


class VaultUnreadable(ToolError):
    """Raised if the index or the folder of a vault cannot be read or written; the message says why, and what to do."""


def unusable_file(path: Path, kind: str, error: OSError) -> VaultUnreadable:
    """Return the error for the user about a file or folder that is kept of a vault."""
    reason, remedy = error_text(error), _REMEDIES.get(error.errno or 0, "")
    return VaultUnreadable(f"the {kind} {visible(str(path))!r} cannot be used: {reason}{remedy}")


@dataclass(frozen=True, slots=True)
class VaultRecord:
    """A vault: its id, which follows from the folder, the name that a person gives it, and the folder."""

    id: str
    name: str
    path: Path


class VaultRegistry:
    """The vaults below AGX_HOME: a folder `vaults/ID` for each, with `vault.json`, the index and the vectors.

    All methods block. Several processes may use one registry: the id of a vault is a digest of its folder's path, so
    that the same folder is added once, each file is written whole, and changes take turns. A change that cannot be
    written raises `VaultUnreadable`. If several workers share the sessions, each has its own vaults, and `worker` is
    the host of this process.
    """

    def __init__(self, home: Path, *, worker: str | None = None) -> None:
        self._home = home
        self._worker = worker
        self._folder = home / "vaults"

    def has_vaults(self) -> bool:
        """Return whether there may be a vault, after one look at the folder."""
        try:
            with os.scandir(self._folder) as entries:
                return any(not entry.name.startswith(".") for entry in entries)
        except OSError:
            return False

    def list(self) -> list[VaultRecord]:
        """Return all vaults, ordered by name; what cannot be read is left out, see `damaged`."""
        try:
            ids = [name for name in os.listdir(self._folder) if not name.startswith(".")]
        except FileNotFoundError:
            return []
        records = (self._read(vault_id) for vault_id in ids)
        return sorted((record for record in records if record is not None), key=lambda record: (record.name, record.id))

    def damaged(self) -> Sequence[Path]:
        """Return the files of vaults that cannot be read, in order."""
        files = sorted(self._folder.glob("[!.]*/vault.json"))
        return [file for file in files if self._read(file.parent.name) is None and file.exists()]

    def find(self, name: str) -> VaultRecord:
        """Return the vault of that id or name; raises `UnknownVault`."""
        records = self.list()
        for record in records:
            if name in (record.id, record.name):
                return record
        known = ", ".join(repr(record.name) for record in records) or "none; add one with `agx vault add PATH`"
        damaged = "".join(f"; {visible(str(file))} is damaged" for file in self.damaged())
        own = (
            ""
            if self._worker is None
            else (
                f"; each worker has vaults of its own, and these are those of the worker on {self._worker!r} with the"
                f" AGX_HOME {visible(str(self._home))!r}: add the same folder on each worker"
            )
        )
        raise UnknownVault(f"unknown vault {visible(name)!r}; known vaults: {known}{damaged}{own}")

    def add(self, path: Path, name: str | None = None) -> tuple[VaultRecord, bool]:
        """Add the vault at `path` and return it with True, or, if the folder is one already, that one with False.

        Without a name it is called as its folder, with a number if that name is taken. Raises `InvalidVault`.
        """
        folder = self._checked_folder(path)
        vault_id = f"vault_{hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]}"
        if (known := self._read(vault_id)) is not None:
            return known, False
        try:
            make_folders(self._folder, self._home)
        except OSError as exc:
            raise unusable_file(self._folder, "folder of the vaults", exc) from exc
        with self._locked():
            records = self.list()
            for record in records:
                if record.id == vault_id:
                    return record, False
            _check_overlap(folder, records)
            names = {record.name for record in records}
            if name is None:
                name = folder.name[:_MAX_NAME_CHARS]
                numbered = (f"{name} {number}" for number in range(2, len(names) + 3))
                name = next(each for each in (name, *numbered) if each not in names)
            else:
                _check_name(name, names)
            record = VaultRecord(vault_id, name, folder)
            self._write(record)
        return record, True

    def remove(self, record: VaultRecord) -> None:
        """Forget a vault and delete its index; its notes are left as they are. Raises `UnknownVault`."""
        folder, aside = self._folder / record.id, self._folder / new_id(_REMOVED)
        try:
            with self._locked(), locked_folder(folder, _LOCK_SECONDS):
                folder.rename(aside)  # at once, for all who use it
        except FileNotFoundError:
            raise UnknownVault(f"the vault {record.name!r} has been removed already") from None
        except (OSError, VaultUnreadable) as exc:
            if not folder.is_dir():
                raise UnknownVault(f"the vault {record.name!r} has been removed already") from exc
            reason = unusable_file(folder, "folder", exc) if isinstance(exc, OSError) else exc
            raise VaultUnreadable(f"the vault {record.name!r} is not removed: {reason}") from exc
        for left in (aside, *self._folder.glob(f"{_REMOVED}*")):  # also of a process that was killed
            try:
                shutil.rmtree(left)
            except FileNotFoundError:
                continue
            except OSError as exc:
                raise VaultUnreadable(
                    f"the vault {record.name!r} is forgotten, but what was kept of it is not deleted: "
                    f"{unusable_file(left, 'folder', exc)}; delete that folder"
                ) from exc

    def index_file(self, record: VaultRecord) -> Path:
        """Return the path of a vault's index."""
        return self._folder / record.id / "index.db"

    def vectors_file(self, record: VaultRecord) -> Path:
        """Return the path of the vectors of a vault's passages."""
        return self._folder / record.id / "vectors.db"

    def embedding_consents(self, record: VaultRecord) -> dict[str, bool]:
        """Return the hosts to which text of a vault may be sent for embeddings (True), or must not be (False)."""
        try:
            values: Any = json.loads((self._folder / record.id / "consents.json").read_bytes())
            return {str(host): answer is True for host, answer in values.items()}
        except (OSError, ValueError, AttributeError):
            return {}

    def set_embedding_consent(self, record: VaultRecord, host: str, *, allowed: bool) -> None:
        """Remember whether text of a vault may be sent to `host` for embeddings; raises `UnknownVault`."""
        with self._locked():
            if self._read(record.id) is None:
                raise UnknownVault(f"the vault {record.name!r} has been removed")
            consents = self.embedding_consents(record) | {host: allowed}
            self._replace(self._folder / record.id, "consents.json", consents)

    def _checked_folder(self, path: Path) -> Path:
        shown = visible(str(path))
        try:
            folder = path.expanduser().resolve(strict=True)
        except (OSError, RuntimeError, ValueError) as exc:
            reason = "does not exist" if isinstance(exc, FileNotFoundError) else f"cannot be used: {error_text(exc)}"
            raise InvalidVault(f"the folder {shown!r} {reason}; give a folder of notes") from exc
        if not folder.is_dir():
            raise InvalidVault(f"{shown!r} is not a folder; give a folder of Markdown or text files")
        if not str(folder).isprintable() and any(not sign.isprintable() and not sign.isspace() for sign in str(folder)):
            raise InvalidVault(f"the path {shown!r} has control characters or is not valid Unicode; rename the folder")
        home = self._home.resolve()
        if folder in (Path(folder.anchor), *_homes()):
            raise InvalidVault(f"{shown!r} is too much for a vault: notes, keys and programs; give the folder of notes")
        if any(folder.is_relative_to(system) for system in ("/proc", "/sys", "/dev")):
            raise InvalidVault(f"{shown!r} belongs to the system; give the folder of notes")
        if folder.is_relative_to(home) or home.is_relative_to(folder):
            raise InvalidVault(
                f"{shown!r} is, holds or lies in the folder of AgenticX {visible(str(home))!r}, which has keys and "
                "sessions; give the folder of notes"
            )
        return folder

    def _read(self, vault_id: str) -> VaultRecord | None:
        try:
            values: Any = json.loads((self._folder / vault_id / "vault.json").read_bytes())
            return VaultRecord(vault_id, str(values["name"]), Path(str(values["path"])))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    @contextmanager
    def _locked(self) -> Generator[None]:
        lock = locked_folder(self._folder, _LOCK_SECONDS)
        try:
            lock.__enter__()
        except OSError as exc:
            raise unusable_file(self._folder, "folder of the vaults", exc) from exc
        try:
            yield
        finally:
            lock.__exit__(None, None, None)

    def _write(self, record: VaultRecord) -> None:
        folder = self._folder / record.id
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as exc:
            raise unusable_file(folder, "folder", exc) from exc
        try:
            self._replace(folder, "vault.json", {"name": record.name, "path": str(record.path)})
        except VaultUnreadable:
            with suppress(OSError):
                folder.rmdir()
            raise

    def _replace(self, folder: Path, name: str, values: Mapping[str, Any]) -> None:
        content = json.dumps(values, indent=2) + "\n"
        try:
            replace_file(folder / name, content.encode(), folder / f".{name}.{os.getpid()}")
        except OSError as exc:
            raise unusable_file(folder / name, "file", exc) from exc


def _check_overlap(folder: Path, records: list[VaultRecord]) -> None:
    """Raise `InvalidVault` if notes of the folder would be in two vaults."""
    shown = visible(str(folder))
    for record in records:
        other = f"the vault {record.name!r} ({visible(str(record.path))!r})"
        remedy = f"notes in both would be found twice; `agx vault remove {quote(record.name)}` forgets that one"
        if folder.is_relative_to(record.path):
            raise InvalidVault(f"{shown!r} lies in {other}, which has its notes already: search that one; {remedy}")
        if record.path.is_relative_to(folder):
            raise InvalidVault(f"{shown!r} holds {other}: {remedy}")


def _check_name(name: str, taken: set[str]) -> None:
    if not name.strip() or len(name) > _MAX_NAME_CHARS or not name.isprintable():
        raise InvalidVault(f"the name {visible(name[:200])!r} must have 1 to {_MAX_NAME_CHARS} printable characters")
    if _ID.fullmatch(name):
        raise InvalidVault(f"the name {name!r} looks like the id of a vault; give another name")
    if name in taken:
        raise InvalidVault(f"another vault is called {name!r}; give another name")


def _homes() -> list[Path]:
    """Return the home folder that HOME names and that of the account."""
    homes = [Path.home()]
    with suppress(KeyError):  # an account without an entry, as in some containers
        homes.append(Path(pwd.getpwuid(os.getuid()).pw_dir))
    return [home.resolve() for home in homes]
