"""The check of states that applications load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

__all__ = ["STATE_VERSION", "checked_state"]

STATE_VERSION = 1


def checked_state(state: object, kind: str, owner: str) -> Mapping[str, Any]:
    """Return the state of a `kind` that was saved by this version; raises ValueError for anything else."""
    if not isinstance(state, Mapping):
        raise ValueError(f"the state of {owner} must be a mapping, as save_state returns it, not a {type(state)}")
    fields = cast("Mapping[str, Any]", state)
    found, version = fields.get("type"), fields.get("version")
    if (found, type(version), version) != (kind, int, STATE_VERSION):
        own = f"the state of {owner} is of {kind!r}, version {STATE_VERSION}"
        raise ValueError(f"the state is of {found!r}, version {version!r}; {own}")
    return fields
