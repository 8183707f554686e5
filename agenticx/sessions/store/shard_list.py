"""The list of databases that share the sessions of a store. Each database stores it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from agenticx.errors import SettingsError
from agenticx.sessions.log.damage import map_decode_errors

__all__ = ["ListedDatabase", "ShardListPlace", "ShardListState", "check_shard_list", "shard_list_problem"]


class ListedDatabase(NamedTuple):
    """A database in a list: its `Log.log_id`, and its URL without user, password and options, for messages.

    Only the id counts, so that a database may move to another host.
    """

    log_id: str
    name: str


class ShardListState(NamedTuple):
    """The state of a database before it is used: its `Log.log_id`, whether it has sessions, and its stored list."""

    log_id: str
    has_sessions: bool
    text: str | None


class ShardListPlace(Protocol):
    """The place in a database where its list is stored."""

    async def read(self) -> ShardListState: ...

    async def write(self, text: str) -> str:
        """Store the list unless one is stored, as one step; return the stored list."""
        ...


async def check_shard_list(places: Sequence[tuple[str, ShardListPlace]]) -> None:
    """Store the list of these databases, given with their names, in each of them; the list may have one database.

    Raises `SettingsError`, and stores nothing, if a database has another list. A database with sessions and without a
    list counts as one with a list of itself alone.
    """
    states = await asyncio.gather(*(place.read() for _, place in places))
    given = [ListedDatabase(state.log_id, name) for state, (name, _) in zip(states, places, strict=True)]
    _check(given, given)
    for state, database in zip(states, given, strict=True):
        if state.text is not None:
            _check(_decode(state.text), given)
        elif state.has_sessions:
            _check([database], given)
    # All processes use the same order, so one of several processes that store different lists always finishes.
    by_id = {state.log_id: place for state, (_, place) in zip(states, places, strict=True)}
    for log_id in sorted(by_id):
        _check(_decode(await by_id[log_id].write(json.dumps(given))), given)


def shard_list_problem(stored: Sequence[ListedDatabase], given: Sequence[ListedDatabase]) -> str | None:
    """Return a sentence on what to run instead if the databases of `stored` cannot be used as `given`, else None."""
    stored_ids, given_ids = ([database.log_id for database in each] for each in (stored, given))
    twice = [database.name for database in given if given_ids.count(database.log_id) > 1]
    if twice:
        return f"the URL of the store names one database more than once: {' and '.join(twice)}"
    if stored_ids == given_ids:
        return None
    names = {database.log_id: database.name for database in (*stored, *given)}
    old = " ".join(names[log_id] for log_id in stored_ids)
    if set(stored_ids) == set(given_ids):
        return (
            "the URL of the store names its databases in another order than their sessions were stored in: set it to"
            f' "{old}"'
        )
    new = " ".join(names[log_id] for log_id in given_ids)
    return (
        f'the URL of the store names "{new}", but sessions are stored in "{old}" as one list: set it to that list'
        f' again, or copy the sessions to a list of new, empty databases, agx store copy "{old}" "NEW URLS", and set'
        " it to that (each URL with its user and password)"
    )


def _check(stored: Sequence[ListedDatabase], given: Sequence[ListedDatabase]) -> None:
    if (problem := shard_list_problem(stored, given)) is not None:
        raise SettingsError(problem)


def _decode(text: str) -> list[ListedDatabase]:
    with map_decode_errors("the list of databases"):
        return [ListedDatabase(log_id, name) for log_id, name in json.loads(text)]
