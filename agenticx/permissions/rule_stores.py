"""Stores of the rules of a user: `AGX_HOME/permissions.toml`, or the database that several workers share.

The file has one `[[rules]]` table per rule and mode 0600; it may be edited by hand. A writer takes turns with others by
a lock, and writes a new file that takes its place.
"""

from __future__ import annotations

import json
import os
import shlex
import threading
import tomllib
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from agenticx.clocks import Clock, SystemClock, rfc3339
from agenticx.errors import AgenticXError, InvalidArguments, SettingsError, StoreError, error_text
from agenticx.messages import new_id
from agenticx.permissions.rules import Rule, rule_from
from agenticx.private_files import acquire_lock, file_signature, read_regular_file, replace_file

if TYPE_CHECKING:
    from agenticx.shared_state.state import SharedState

__all__ = [
    "IMPORTED_FILE",
    "FileRules",
    "RuleStore",
    "RulesUnusable",
    "SharedRules",
    "UnknownRule",
    "file_rules",
    "open_rules",
    "read_rule_file",
    "refuse_unused_file",
]

_FILE = "permissions.toml"
IMPORTED_FILE = "permissions.imported.toml"
"""The name that the file gets when its rules have been moved to a database."""
_MAX_RULES = 2_000
_MAX_FILE_BYTES = 4_000_000
_LOCK_SECONDS = 5.0
_SECONDS_OF_COPY = 0.5
_PREFIX = "rule/"


class RulesUnusable(AgenticXError):
    """Raised when the rules cannot be read or stored; the message says what would be right."""


class UnknownRule(AgenticXError):
    """Raised for an id of no rule."""


class RuleStore(Protocol):
    """The rules of scope workspace and user, oldest first. All methods block, and raise `RulesUnusable`."""

    def list(self) -> Sequence[Rule]:
        """Return all rules."""
        ...

    def add(self, rules: Iterable[Rule]) -> Sequence[Rule]:
        """Add rules and return them as stored, with an id and a time; no rule is stored twice."""
        ...

    def remove(self, rule_id: str) -> Rule:
        """Remove the rule of that id and return it; raises `UnknownRule`."""
        ...

    def replace(self, rules: Iterable[Rule]) -> Sequence[Rule]:
        """Replace all stored rules by these, and return them."""
        ...


def _content(rule: Rule) -> str:
    """Return all of a rule but its id, time and origin, as JSON."""
    return rule.model_dump_json(exclude={"id", "created_at", "origin"})


def _merged(stored: Sequence[Rule], added: Iterable[Rule], clock: Clock) -> tuple[list[Rule], list[Rule]]:
    """Return all rules, and the stored form of each given rule, added now or stored before."""
    rules, own = list(stored), list[Rule]()
    by_content = {_content(rule): rule for rule in reversed(rules)}
    for rule in added:
        _check_scope(rule)
        content = _content(rule)
        known = by_content.get(content)
        if known is None:
            given = {"id": rule.id or new_id("rul"), "created_at": rule.created_at or rfc3339(clock.now())}
            known = by_content[content] = rule.model_copy(update=given)
            rules.append(known)
        own.append(known)
    if len(rules) > _MAX_RULES:
        raise RulesUnusable(f"there are {len(rules):,} rules; at most {_MAX_RULES:,} can be stored: remove some")
    if len({rule.id for rule in rules}) < len(rules):
        raise InvalidArguments("two rules have the same id")
    return rules, own


def _without(rules: Sequence[Rule], rule_id: str) -> tuple[list[Rule], Rule]:
    removed = next((rule for rule in rules if rule.id == rule_id), None)
    if removed is None:
        raise UnknownRule(f"no rule has the id {rule_id[:100]!r}; `agx permissions list` shows them")
    return [rule for rule in rules if rule is not removed], removed


class FileRules:
    """A `RuleStore` in the file `permissions.toml` of AGX_HOME."""

    def __init__(self, home: Path, clock: Clock | None = None) -> None:
        self.path = home / _FILE
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._copy: tuple[object, Sequence[Rule]] | None = None

    def list(self) -> Sequence[Rule]:
        with self._lock:
            signature = _signature(self.path)
            if self._copy is None or self._copy[0] != signature:
                self._copy = signature, () if signature is None else read_rule_file(self.path)
            return self._copy[1]

    def add(self, rules: Iterable[Rule]) -> Sequence[Rule]:
        with self._changing():
            stored, own = _merged(self.list(), rules, self._clock)
            self._write(stored)
            return own

    def remove(self, rule_id: str) -> Rule:
        with self._changing():
            stored, removed = _without(self.list(), rule_id)
            self._write(stored)
            return removed

    def replace(self, rules: Iterable[Rule]) -> Sequence[Rule]:
        with self._changing():
            stored, _ = _merged((), rules, self._clock)
            self._write(stored)
            return stored

    @contextmanager
    def _changing(self) -> Generator[None]:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = acquire_lock(self.path.with_name(f".{_FILE}.lock"), _LOCK_SECONDS)
        except OSError as exc:
            raise RulesUnusable(f"the rules in {str(self.path)!r} cannot be changed: {error_text(exc)}") from exc
        if descriptor is None:
            raise RulesUnusable(f"the rules in {str(self.path)!r} are being changed by another process; try it again")
        try:
            yield
        finally:
            os.close(descriptor)

    def _write(self, rules: Sequence[Rule]) -> None:
        content = _HEADER + "".join(_table(rule) for rule in rules)
        try:
            replace_file(self.path, content.encode(), self.path.with_name(f".{_FILE}.new"))
        except OSError as exc:
            raise RulesUnusable(f"the rules in {str(self.path)!r} cannot be written: {error_text(exc)}") from exc


_HEADER = "# Rules about calls: `agx permissions` lists, adds and removes them.\n"


def read_rule_file(path: Path) -> Sequence[Rule]:
    """Return the rules of a file. A rule without a `scope` gets `workspace` if it names a workspace, else `user`.

    Raises `RulesUnusable` with the rule's number and the correct form.
    """
    shown = repr(str(path))
    document = _read_document(path, shown)
    if unknown := [name for name in document if name != "rules"]:
        raise RulesUnusable(f"{shown} has {unknown[0]!r}; it has only [[rules]] tables")
    tables: Any = document.get("rules", [])
    if not isinstance(tables, list):
        raise RulesUnusable(f"{shown} has 'rules' that are no [[rules]] tables")
    rules = dict[str, Rule]()
    for number, table in enumerate(cast("list[object]", tables), start=1):
        try:
            rule = _rule_of(table, number)
        except InvalidArguments as exc:
            raise RulesUnusable(f"{shown}, rule {number}: {exc}") from exc
        if rule.id in rules:
            raise RulesUnusable(f"{shown}, rule {number}: another rule has the id {rule.id[:100]!r}; remove that line")
        rules[rule.id] = rule
    return tuple(rules.values())


def _read_document(path: Path, shown: str) -> Mapping[str, object]:
    try:
        return tomllib.loads(read_regular_file(path, _MAX_FILE_BYTES).decode())
    except FileNotFoundError:
        return {}
    except OSError as exc:
        raise RulesUnusable(f"the rules in {shown} cannot be read: {error_text(exc)}") from exc
    except (ValueError, RecursionError) as exc:
        raise RulesUnusable(f"{shown} is no TOML: {exc}; repair it, or move it away") from exc


def _rule_of(table: object, number: int) -> Rule:
    """Return the rule of a table; raises `InvalidArguments`."""
    fields: dict[str, Any] = dict(cast("dict[str, Any]", table)) if isinstance(table, dict) else {}
    if isinstance(text := fields.get("arguments"), str):
        fields["arguments"] = _parsed(text)
    fields.setdefault("id", f"rule-{number}-{_short_digest(fields)}")
    fields.setdefault("scope", "workspace" if "workspace" in fields else "user")
    rule = rule_from(fields)
    _check_scope(rule)
    return rule


def _short_digest(fields: Mapping[str, Any]) -> str:
    """Return a digest of a rule's fields for the id of a rule without one: other rules hardly get the same id."""
    return sha256(json.dumps(fields, sort_keys=True, default=str).encode(errors="replace")).hexdigest()[:8]


def _check_scope(rule: Rule) -> None:
    if rule.scope == "session":
        raise InvalidArguments("a rule of scope session is stored with its session only")
    if rule.scope == "workspace" and rule.workspace is None:
        raise InvalidArguments("a rule of scope workspace has the absolute path of its workspace")


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text  # the rule's check refuses it


def _signature(path: Path) -> object:
    try:
        return file_signature(path)
    except OSError as exc:
        raise RulesUnusable(f"the rules in {str(path)!r} cannot be read: {error_text(exc)}") from exc


def _table(rule: Rule) -> str:
    fields = rule.model_dump(exclude_none=True, mode="json")
    if rule.arguments is not None:
        fields["arguments"] = json.dumps(rule.arguments)  # TOML has no null
    # The JSON of texts, booleans and lists of texts is TOML, but for DEL.
    texts = {name: json.dumps(value, ensure_ascii=False) for name, value in fields.items()}
    return "\n[[rules]]\n" + "".join(f"{name} = {text}\n" for name, text in texts.items()).replace("\x7f", "\\u007f")


class SharedRules:
    """A `RuleStore` in the shared state of several workers, encrypted; reads may be up to half a second old.

    Without AGX_SECRET_FILE there are no rules, and no rule can be stored.
    """

    def __init__(self, shared: SharedState, clock: Clock | None = None) -> None:
        self._shared = shared
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._copy: tuple[float, Sequence[Rule]] | None = None

    def list(self) -> Sequence[Rule]:
        with self._lock:
            now = self._clock.monotonic()
            if self._copy is None or now - self._copy[0] > _SECONDS_OF_COPY:
                self._copy = now, self._read()
            return self._copy[1]

    def add(self, rules: Iterable[Rule]) -> Sequence[Rule]:
        stored = self._read()
        _, own = _merged(stored, rules, self._clock)
        known = {rule.id for rule in stored}
        for rule in own:
            if rule.id not in known:
                self._put(rule)
        self._forget()
        return own

    def remove(self, rule_id: str) -> Rule:
        _, removed = _without(self._read(), rule_id)
        with _unusable_errors():
            self._shared.values.take(_PREFIX + rule_id)
        self._forget()
        return removed

    def replace(self, rules: Iterable[Rule]) -> Sequence[Rule]:
        old = self._read()
        stored, _ = _merged((), rules, self._clock)
        for rule in stored:  # first, so that no call is allowed or denied by neither the old ones nor the new ones
            self._put(rule)
        kept = {rule.id for rule in stored}
        with _unusable_errors():
            for rule in old:
                if rule.id not in kept:
                    self._shared.values.take(_PREFIX + rule.id)
        self._forget()
        return stored

    def _read(self) -> Sequence[Rule]:
        if not self._shared.has_secret:
            return ()
        with _unusable_errors():
            secret = self._shared.secret
            rules = [
                Rule.model_validate_json(secret.unseal(name, sealed))
                for name, sealed in self._shared.values.items(_PREFIX).items()
            ]
        return tuple(sorted(rules, key=lambda rule: (rule.created_at, rule.id)))

    def _put(self, rule: Rule) -> None:
        name = _PREFIX + rule.id
        with _unusable_errors():
            sealed = self._shared.secret.seal(name, rule.model_dump_json(exclude_none=True).encode())
            self._shared.values.put(name, sealed)

    def _forget(self) -> None:
        with self._lock:
            self._copy = None


@contextmanager
def _unusable_errors() -> Generator[None]:
    try:
        yield
    except (SettingsError, StoreError, ValueError) as exc:
        raise RulesUnusable(f"the rules in the database cannot be used: {exc}") from exc


@lru_cache(maxsize=8)
def file_rules(home: Path) -> FileRules:
    """Return the rules of AGX_HOME for all turns without a hub, so that the file is parsed again only if it changed."""
    return FileRules(home)


def open_rules(home: Path, shared: SharedState | None, clock: Clock | None = None) -> RuleStore:
    """Return the rules of the user: of AGX_HOME, or of the place that several workers share."""
    return FileRules(home, clock) if shared is None else SharedRules(shared, clock)


def refuse_unused_file(home: Path) -> None:
    """Raise `SettingsError` if AGX_HOME has rules that a worker of a database would not use; blocks."""
    file = FileRules(home).path
    try:
        rules = read_rule_file(file)
    except RulesUnusable as exc:
        raise SettingsError(f"the workers of a database have their rules about calls in it, and {exc}") from exc
    if rules:
        raise SettingsError(
            f"{str(file)!r} has rules about calls, which would not hold: the store is a database, in which its"
            f" workers have them; `agx permissions import {shlex.quote(str(file))}` moves them there"
        )
