"""The parts of a session's state: its permissions, tool state, files and options, as JSON by name."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple, TypeVar, cast

from agenticx.logs import get_logger
from agenticx.permissions.rules import Rule
from agenticx.runtime import Session
from agenticx.runtime.session import Option
from agenticx.tools.artifacts.files import Artifact, Artifacts, KeptRevision
from agenticx.tools.context import ToolState

__all__ = [
    "ENCODING_ERRORS",
    "Parts",
    "PartsChange",
    "StateParts",
    "decode_replacement_counts",
    "decode_tool_state",
    "encode_state",
    "encode_tool_state",
    "load_files",
    "load_state",
]

Parts = Mapping[str, str]
"""The JSON of each part of a session's state by its name; a part with its default value is left out.

Each value of a collection is a part, for example each file that was read: the name `files:"/tmp/a.txt"` has the kind
and, in JSON, the key: of a mapping, the place in a list, or a path and a revision. Parts are in the order of adding.
"""

ENCODING_ERRORS = (TypeError, ValueError, RecursionError)
"""Raised for values that JSON does not have, such as an object, NaN, a lone surrogate or a cycle."""

T = TypeVar("T")

_Key = str | int | tuple[str, int] | None

_log = get_logger(__name__)


# --- decoding ---------------------------------------------------------------------------------------------------------


def load_state(session: Session, parts: Parts) -> None:
    """Give a session all that its parts say; raises an error of `DECODE_ERRORS`."""
    values = _Values(parts)
    session.rules[:] = _rules(values)
    if size := values.one("incompressible", list[int]()):
        session.size_at_failed_compaction = (size[0], size[1])
    session.state = _tool_state(values)
    _load_files(session, values)


def decode_rules(parts: Parts) -> list[Rule]:
    """Return the rules that the user gave for the session; raises an error of `DECODE_ERRORS`."""
    return _rules(_Values(parts))


def _rules(values: _Values) -> list[Rule]:
    return list(map(Rule.model_validate, values.one("rules", list[dict[str, Any]]())))


def load_files(session: Session, parts: Parts) -> None:
    """Give a session the files and options of its parts, and nothing else; raises an error of `DECODE_ERRORS`."""
    _load_files(session, _Values(parts))


def decode_tool_state(parts: Parts) -> ToolState:
    """Return the state of the tools; raises an error of `DECODE_ERRORS`."""
    return _tool_state(_Values(parts))


def decode_replacement_counts(parts: Parts) -> tuple[int, int]:
    """Return how many of the first messages replace how many compacted ones; raises an error of `DECODE_ERRORS`."""
    messages, compacted = json.loads(parts.get("front", "[0,0]"))
    return messages, compacted


class _Values:
    """The values of parts by kind and key; a part that is the only one of its kind has the key None."""

    def __init__(self, parts: Parts) -> None:
        self._by_kind: dict[str, dict[Any, Any]] = {}
        for name, text in parts.items():
            kind, key = _split(name)
            self._by_kind.setdefault(kind, {})[key] = json.loads(text)

    def one(self, kind: str, default: T) -> T:
        value = self._by_kind.get(kind, {}).get(None, default)
        if not isinstance(value, type(default)):
            raise TypeError(f"the part {kind!r} has a value of another type")
        return value

    def keyed(self, kind: str) -> dict[Any, Any]:
        return {key: value for key, value in self._by_kind.get(kind, {}).items() if key is not None}


def _tool_state(values: _Values) -> ToolState:
    return ToolState(
        todos=values.one("todos", list[dict[str, str]]()),
        scratchpad=values.keyed("scratchpad"),
        files={path: (seen[0], seen[1]) for path, seen in values.keyed("files").items()},
        context_variables=values.keyed("context_variables"),
        passages=list(values.keyed("passages").values()),
        sources=values.one("sources", list[str]()),
    )


def _load_files(session: Session, values: _Values) -> None:
    paths = values.keyed("artifacts").items()
    kept = (
        KeptRevision(Artifact(path, revision, size, sha256, media_type), old_since, is_own)
        for (path, revision), (size, sha256, media_type, old_since, is_own) in values.keyed("revisions").items()
    )
    session.artifacts = Artifacts.restored(
        session.artifacts.contents,
        kept,
        numbers={path: last for path, (last, _) in paths},
        current={path: current for path, (_, current) in paths if current is not None},
    )
    session.next_option, session.is_option_due = values.one("options", list[Any]((1, False)))
    session.options = [
        Option(number, model, turn_id, run_id, session.artifacts.branch_of(files), text)
        for number, (model, turn_id, run_id, files, text) in values.keyed("options").items()
    ]


# --- encoding ---------------------------------------------------------------------------------------------------------


def encode_state(session: Session, replacement_counts: tuple[int, int]) -> dict[str, str]:
    """Return the parts of a session's state, see `decode_replacement_counts`; raises one of `ENCODING_ERRORS`."""
    return StateParts().changes(session, replacement_counts).changed


def encode_tool_state(state: ToolState) -> dict[str, str]:
    """Return the parts that `decode_tool_state` reads; raises one of `ENCODING_ERRORS`."""
    return encode_state(Session(state=state), (0, 0))


class PartsChange(NamedTuple):
    """The new and changed parts, and the names of the removed ones.

    A part with a name in both comes after all others of its kind.
    """

    changed: dict[str, str]
    removed: list[str]

    def __bool__(self) -> bool:
        return bool(self.changed or self.removed)


@dataclass(slots=True)
class _Kind:
    """The parts of one kind by key: the values at the last look and their JSON, and the JSON that is stored.

    `is_stored` is true if both were the same at the last look.
    """

    values: dict[_Key, Any] = field(default_factory=dict[_Key, Any])
    texts: dict[_Key, str] = field(default_factory=dict[_Key, str])
    stored: dict[_Key, str] = field(default_factory=dict[_Key, str])
    is_stored: bool = False

    def look(self, now: Mapping[_Key, Any], encode: Callable[[_Key, Any], str]) -> None:
        """Take the current values, and encode the changed ones."""
        before = self.values
        if now == before and (len(now) < 2 or list(now) == list(before)):
            return
        texts = self.texts
        self.texts = {
            key: texts[key] if key in before and before[key] == value else encode(key, value)
            for key, value in now.items()
        }
        self.values = {key: copy(value) for key, value in now.items()}
        self.is_stored = False

    def add_changes(self, name: str, change: PartsChange) -> None:
        """Add the parts to store: the new and changed ones, or all if their order has changed."""
        if self.is_stored:
            return
        texts, stored = self.texts, self.stored
        kept = [key for key in stored if key in texts]
        has_order = list(islice(texts, len(kept))) == kept
        new = {key: text for key, text in texts.items() if stored.get(key) != text} if has_order else texts
        gone = [key for key in stored if key not in texts] if has_order else list(stored)
        change.changed.update({_name(name, key): text for key, text in new.items()})
        change.removed.extend(_name(name, key) for key in gone)
        self.is_stored = not (new or gone)


class StateParts:
    """The stored parts of one session's state, and the search for changes since.

    Only changed values are encoded. The values of tools and applications are compared each time, as there is no other
    way to know whether they have changed.
    """

    def __init__(self) -> None:
        self._kinds = defaultdict[str, _Kind](_Kind)
        self._changed_files: dict[str | tuple[str, int], None] | None = None  # None: any may have changed

    @classmethod
    def of(cls, session: Session, replacement_counts: tuple[int, int]) -> StateParts:
        """Return the parts of a session with no unstored change; raises one of `ENCODING_ERRORS`."""
        parts = cls()
        parts.mark_stored(parts.changes(session, replacement_counts).changed)
        return parts

    def changes(self, session: Session, replacement_counts: tuple[int, int]) -> PartsChange:
        """Return the changes of the session that are not stored; raises one of `ENCODING_ERRORS`."""
        state, change = session.state, PartsChange({}, [])
        size, counts = session.size_at_failed_compaction, replacement_counts
        self._look_at_one("rules", [rule.to_json() for rule in session.rules], change)
        self._look_at_one("todos", state.todos, change)
        self._look("scratchpad", state.scratchpad, _encode_value, change)
        self._look("files", state.files, _encode_value, change)
        self._look("context_variables", self._variables(state.context_variables), lambda _, text: text, change)
        self._look("passages", dict(enumerate(state.passages)), _encode_value, change)
        self._look_at_one("sources", state.sources, change)
        self._look_at_one("incompressible", size, change)
        self._look_at_one("front", counts if any(counts) else None, change)
        self._look_at_files(session, change)
        return change

    def rule_changes(self, session: Session) -> PartsChange:
        """Return the changes of the session's rules that are not stored."""
        change = PartsChange({}, [])
        self._look_at_one("rules", [rule.to_json() for rule in session.rules], change)
        return change

    def file_changes(self, session: Session) -> PartsChange:
        """Return the changes of the session's files and options that are not stored."""
        change = PartsChange({}, [])
        self._look_at_files(session, change)
        return change

    def mark_stored(self, changed: Parts, removed: Sequence[str] = ()) -> None:
        """Take a change, which is stored, as the base of the next one."""
        for name in removed:
            kind, key = _split(name)
            self._kinds[kind].stored.pop(key, None)
        for name, text in changed.items():
            kind, key = _split(name)
            self._kinds[kind].stored[key] = text

    def reset_to(self, parts: Parts) -> None:
        """Replace the stored parts by these."""
        for kind in self._kinds.values():
            kind.stored, kind.is_stored = {}, False
        self._changed_files = None
        self.mark_stored(parts)

    def _look_at_one(self, kind: str, value: Any, change: PartsChange) -> None:
        """Look at the only part of its kind, without one if there is no value; it may have been changed in place."""
        self._look(kind, {None: _dump(value)} if value else {}, lambda _, text: text, change)

    def _look(self, kind: str, now: Mapping[Any, Any], encode: Callable[[_Key, Any], str], change: PartsChange) -> None:
        parts = self._kinds[kind]
        parts.look(now, encode)
        parts.add_changes(kind, change)

    def _variables(self, variables: Mapping[Any, Any]) -> dict[_Key, str]:
        """Return the JSON of the application's own variables; a variable that is not JSON is lost with the process."""
        known, texts = self._kinds["context_variables"].values, dict[_Key, str]()
        for name, value in variables.items():
            try:
                text = json.dumps(value, allow_nan=False, separators=(",", ":"))
                (key,) = json.loads(_dump({name: None})) if not isinstance(name, str) else (name,)
                if known.get(key) != text:
                    json.loads(text)  # which values that are too deep do not survive
            except ENCODING_ERRORS:
                _log.debug("context variable is not JSON; it is lost when the process ends", name=name)
            else:
                texts[key] = text
        return texts

    def _look_at_files(self, session: Session, change: PartsChange) -> None:
        self._look_at_revisions(session.artifacts, change)
        options: dict[_Key, Any] = {
            each.number: (each.model, each.turn_id, each.run_id, each.artifacts.version, each.text)
            for each in session.options
        }
        next_, is_due = session.next_option, session.is_option_due
        numbers: dict[_Key, Any] = {} if (next_, is_due) == (1, False) else {None: (next_, is_due)}
        by_number = {each.number: each for each in session.options}

        def encode(key: _Key, value: Any) -> str:
            return _dump(value if key is None else _option_row(by_number[cast("int", key)]))

        self._look("options", {**numbers, **options}, encode, change)

    def _look_at_revisions(self, artifacts: Artifacts, change: PartsChange) -> None:
        """Look at the files that have changed since they were stored."""
        changed = artifacts.take_changes()
        if self._changed_files is None:
            stored = [key for kind in ("artifacts", "revisions") for key in self._kinds[kind].stored]
            self._changed_files = dict.fromkeys([*artifacts.keys(), *cast("list[Any]", stored)])
        self._changed_files |= dict.fromkeys(changed)
        for key in list(self._changed_files):
            kind, row = _file_row(artifacts, key)
            text = None if row is None else _dump(row)
            if text == self._kinds[kind].stored.get(key):
                del self._changed_files[key]
            elif text is None:
                change.removed.append(_name(kind, key))
            else:
                change.changed[_name(kind, key)] = text


def _file_row(artifacts: Artifacts, key: str | tuple[str, int]) -> tuple[str, list[Any] | None]:
    """Return the kind and the value of the part of a path, or of a revision."""
    if isinstance(key, str):
        last = artifacts.numbers.get(key)
        return "artifacts", None if last is None else [last, artifacts.current.get(key)]
    if (kept := artifacts.kept(*key)) is None:
        return "revisions", None
    artifact = kept.artifact
    return "revisions", [artifact.size, artifact.sha256, artifact.media_type, kept.old_since, kept.is_own]


def _option_row(option: Option) -> list[Any]:
    return [option.model, option.turn_id, option.run_id, option.artifacts.branch_data(), option.text]


def _encode_value(_: _Key, value: Any) -> str:
    return _dump(value)


def _name(kind: str, key: _Key) -> str:
    return kind if key is None else f"{kind}:{_dump(key)}"


def _split(name: str) -> tuple[str, Any]:
    """Return the kind and the key of a part."""
    kind, has_key, text = name.partition(":")
    key = json.loads(text) if has_key else None
    return kind, tuple(cast("list[Any]", key)) if isinstance(key, list) else key


_dump = json.JSONEncoder(separators=(",", ":")).encode
