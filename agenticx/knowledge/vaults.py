"""Vaults in use: their indexes, brought up to date in the background, and searches in them."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from agenticx.clocks import Clock, SystemClock
from agenticx.errors import SettingsError
from agenticx.knowledge.index import IndexState, VaultIndex
from agenticx.knowledge.registry import UnknownVault, VaultRecord, VaultRegistry, VaultUnreadable
from agenticx.knowledge.search import FoundPassage, search_notes
from agenticx.knowledge.vault import VaultMissing
from agenticx.knowledge.words import query_words
from agenticx.logs import get_logger
from agenticx.settings import ProviderVariables, provider_variables_key
from agenticx.threads import run_in_thread

if TYPE_CHECKING:
    from agenticx.knowledge.embeddings import Embedder, EmbeddingStatus, VaultEmbeddings
    from agenticx.llms.embeddings import EmbeddingModel

__all__ = ["NoteSearch", "Vault", "VaultSummary", "Vaults"]

T = TypeVar("T")

_SEARCH_SECONDS = 1.0
"""The time for which a search waits for the index; then it answers from what is there."""

_NO_WORDS = "the query has no word; give words, a phrase in double quotes, [[Note]] or #tag"

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class NoteSearch:
    """The results of a search, with the state of the index that was searched: fewer indexed than total if it is behind.

    `problem` is a sentence if the vault's folder cannot be read, without which no passage can be found in its notes, as
    their texts are read anew by each search; or if the index cannot be brought up to date, and its last state is
    searched. `embedding_note` is one if search by meaning is on, but was not or only partly possible, and `query_note`
    if the query has nothing to search for.
    """

    results: list[FoundPassage]
    state: IndexState
    problem: str | None = None
    embedding_note: str | None = None
    query_note: str | None = None


@dataclass(frozen=True, slots=True)
class VaultSummary:
    """The numbers of indexed notes, and of files that are skipped or notes that have a defect."""

    notes: int
    problems: int


class Vault:
    """One vault, for use on one event loop; everything that blocks runs in threads.

    `problem` says why its folder cannot be read, or the index cannot be read or brought up to date, if that is so; what
    needs an index that cannot be read raises `VaultUnreadable`, and `UnknownVault` once the vault has been removed.
    """

    def __init__(
        self,
        record: VaultRecord,
        file: Path,
        clock: Clock,
        embedders: _Embedders,
        make_embeddings: Callable[[Embedder], VaultEmbeddings],
    ) -> None:
        self.record = record
        self.problem: str | None = None
        self._is_missing = False
        self._embedders = embedders
        self._make_embeddings = make_embeddings
        self._embeddings: dict[ProviderVariables, VaultEmbeddings] = {}
        self._file = file
        self._clock = clock
        self._index: VaultIndex | None = None
        self._was_rebuilt_told = False
        self._opening = asyncio.Lock()
        self._refresh: asyncio.Task[None] | None = None
        self._stopped = threading.Event()

    @property
    def state(self) -> Literal["indexing", "ready", "missing"]:
        """The state of the vault: its index is behind, or up to date as far as known, or it cannot be read."""
        if self._is_missing:
            return "missing"
        is_running = self._refresh is not None and not self._refresh.done()
        return "indexing" if is_running or self._index is None or not self._index.is_complete else "ready"

    @property
    def was_rebuilt(self) -> bool:
        """True if the index was damaged or old, so that it was made anew."""
        return self._index is not None and self._index.was_rebuilt

    def report_rebuilt(self) -> bool:
        """Return True once if the index was made anew."""
        was_told, self._was_rebuilt_told = self._was_rebuilt_told, self.was_rebuilt
        return self.was_rebuilt and not was_told

    @property
    def embeddings(self) -> VaultEmbeddings | None:
        """The search by meaning, None unless an embedding model is set and can be used."""
        embedder, key = self._embedders.current, self._embedders.key
        if embedder is not None and key not in self._embeddings:
            self._embeddings[key] = self._make_embeddings(embedder)
        return self._embeddings.get(key)

    @property
    def embedding_problem(self) -> str | None:
        """A clause that says why an embedding model that is set cannot be used, None if it can."""
        return self._embedders.problem

    @property
    def opened_index(self) -> VaultIndex | None:
        """The index, if it has been opened."""
        return self._index

    async def index(self) -> VaultIndex:
        """Return the opened index; raises `VaultUnreadable`."""
        async with self._opening:
            if self._stopped.is_set():
                raise UnknownVault(f"the vault {self.record.name!r} has been removed, or closed")
            if self._index is None:
                try:
                    self._index = await run_in_thread(VaultIndex, self.record.path, self._file, name="agx vault")
                except VaultUnreadable as exc:
                    raise self._unreadable(exc) from exc
                if self._index.was_rebuilt:
                    _log.info("the index of a vault was damaged or old, and is made anew", vault=self.record.name)
            return self._index

    async def refresh(
        self,
        *,
        seconds: float | None = None,
        report: Callable[[IndexState], None] | None = None,
        with_embeddings: bool = False,
    ) -> None:
        """Bring the index up to date with the folder as it is at this moment or later, waiting at most `seconds`.

        If that is not possible, `problem` says so. A run that takes longer goes on in the background. `report` is
        called on the event loop after each batch. `with_embeddings` passages get their vectors afterwards, in the
        background; else only a search has them made.
        """
        try:
            index = await self.index()
        except VaultUnreadable:  # `problem` says so
            return
        limit = None if seconds is None else self._clock.real(seconds)
        try:
            async with asyncio.timeout(limit):
                if self._refresh is not None:  # its scan may have been earlier than this moment
                    await asyncio.shield(self._refresh)
                self._refresh = asyncio.create_task(
                    self._run(index, report, with_embeddings=with_embeddings), name="agx vault refresh"
                )
                await asyncio.shield(self._refresh)
        except TimeoutError:
            return

    async def search(
        self,
        query: str,
        *,
        limit: int = 8,
        per_note: int = 2,
        path: str | None = None,
        tags: Iterable[str] = (),
        since: datetime | None = None,
        report: Callable[[IndexState], None] | None = None,
    ) -> NoteSearch:
        """Search the vault's notes as they are now; see `search_notes`. Raises `VaultUnreadable`.

        If bringing the index up to date takes over a second, the answer is from what is there so far, after a call of
        `report`.
        """
        index = await self._caught_up(report)
        nearest, note = None, self.embedding_problem
        if self.embeddings is not None and query_words(query):
            by_meaning = await self.embeddings.search(query, index, seconds=_SEARCH_SECONDS)
            nearest, note = by_meaning.nearest, by_meaning.note
        options: dict[str, Any] = {
            "limit": limit,
            "per_note": per_note,
            "path": path,
            "tags": tuple(tags),
            "since": since,
            "nearest": nearest,
        }
        results, state = await self._read(lambda index: (search_notes(index, query, **options), index.state()), index)
        query_note = None if results or query_words(query) else _NO_WORDS
        return NoteSearch(results, state, self.problem, note, query_note)

    async def summary(self) -> VaultSummary:
        """Return the numbers of notes and problems as the index has them now, zeros if it cannot be read."""
        try:
            return await self._read(lambda index: VaultSummary(index.state().indexed, len(index.problems())))
        except VaultUnreadable:
            return VaultSummary(0, 0)

    async def embedding_status(self) -> EmbeddingStatus | None:
        """Return the state of search by meaning, None if no embedding model is set, or it or the index is unusable."""
        try:
            return None if self.embeddings is None else await self.embeddings.status(await self.index())
        except VaultUnreadable:
            return None

    async def call(
        self, function: Callable[[VaultIndex], T], *, report: Callable[[IndexState], None] | None = None
    ) -> T:
        """Return `function(index)`, called in a thread, with the index brought up to date as for a search.

        Raises `VaultUnreadable`.
        """
        return await self._read(function, await self._caught_up(report))

    async def close(self) -> None:
        """End a run of the index and close its files."""
        self._stopped.set()
        for embeddings in self._embeddings.values():
            await embeddings.close()
        if self._refresh is not None:
            await asyncio.wait({self._refresh})
        async with self._opening:
            if self._index is not None:
                await run_in_thread(self._index.close, name="agx vault")
                self._index = None

    async def _caught_up(self, report: Callable[[IndexState], None] | None) -> VaultIndex:
        """Return the index, brought up to date as far as a search waits for it; `report` is told what is missing."""
        await self.refresh(seconds=_SEARCH_SECONDS)
        index = await self.index()
        if report is not None and self.state == "indexing":
            report(await self._read(VaultIndex.state, index))
        return index

    async def _read(self, function: Callable[[VaultIndex], T], index: VaultIndex | None = None) -> T:
        """Return `function(index)`, called in a thread; raises `VaultUnreadable`."""
        index = await self.index() if index is None else index
        try:
            return await run_in_thread(function, index, name="agx vault")
        except VaultUnreadable as exc:
            raise self._unreadable(exc) from exc

    def _unreadable(self, error: VaultUnreadable) -> VaultUnreadable:
        """Return the error with the name of the vault, and keep its message in `problem`."""
        named = VaultUnreadable(f"the index of the vault {self.record.name!r} cannot be read ({error})")
        self._report(str(named), is_missing=True)
        return named

    async def _run(
        self, index: VaultIndex, report: Callable[[IndexState], None] | None, *, with_embeddings: bool
    ) -> None:
        loop = asyncio.get_running_loop()

        def report_from_thread(state: IndexState) -> None:
            if report is not None:
                loop.call_soon_threadsafe(report, state)

        try:
            await run_in_thread(
                index.refresh, stopped=self._stopped.is_set, report=report_from_thread, name="agx vault index"
            )
        except UnknownVault:
            return  # whoever uses it next is told
        except VaultMissing as exc:
            self._report(str(exc), is_missing=True)
        except (VaultUnreadable, sqlite3.Error, OSError) as exc:
            self._report(f"the index of the vault {self.record.name!r} cannot be brought up to date ({exc})")
        else:
            self.problem, self._is_missing = None, False
            if with_embeddings and self.embeddings is not None:
                await self.embeddings.refresh(index, seconds=0)

    def _report(self, problem: str, *, is_missing: bool = False) -> None:
        """Keep why the last state is used, or why there is none."""
        if self.problem is None:
            _log.info("a vault cannot be read or brought up to date", vault=self.record.name, problem=problem)
        self.problem, self._is_missing = problem, is_missing


class Vaults:
    """The vaults of a user, for use on one event loop. Other loops and processes may add and remove some meanwhile.

    With an embedding model, given by name or as it is, notes are also found by meaning. Text of a vault is sent to a
    model elsewhere only after `allow_embeddings`. `worker` is that of `VaultRegistry`.
    """

    def __init__(
        self,
        home: Path,
        *,
        clock: Clock | None = None,
        embedding_model: Embedder | str | None = None,
        worker: str | None = None,
    ) -> None:
        self.registry = VaultRegistry(home, worker=worker)
        self._clock = clock or SystemClock()
        self._open: dict[str, Vault] = {}
        self._changing = asyncio.Lock()
        self._embedders = _Embedders(embedding_model)
        self._consents: dict[str, dict[str, bool]] = {}

    async def list(self) -> list[Vault]:
        """Return all vaults, ordered by name."""
        records = await run_in_thread(lambda: self._prepared(self.registry.list()), name="agx vaults")
        if self._open.keys() - {record.id for record in records}:
            async with self._changing:
                await self._close_removed()
        return [self._vault(record) for record in records]

    async def find(self, name: str) -> Vault:
        """Return the vault of that id or name; raises `UnknownVault`."""
        try:
            (record,) = await run_in_thread(lambda: self._prepared([self.registry.find(name)]), name="agx vaults")
        except UnknownVault:
            async with self._changing:
                await self._close_removed()
            raise
        return self._vault(record)

    async def add(self, path: Path, name: str | None = None) -> tuple[Vault, bool]:
        """Add a vault, or return the one of that folder, and whether it is new.

        Raises `InvalidVault`, or `VaultUnreadable` if it cannot be stored.
        """
        async with self._changing:
            record, is_new = await run_in_thread(self.registry.add, path, name, name="agx vaults")
            await run_in_thread(self._prepared, [record], name="agx vaults")
            return self._vault(record), is_new

    def look_up(self, record: VaultRecord, function: Callable[[VaultIndex], T]) -> T:
        """Return `function(index)` for the index of a vault as it is, not brought up to date; blocks.

        Raises `VaultUnreadable`.
        """
        vault = self._open.get(record.id)
        index = None if vault is None else vault.opened_index
        try:
            if index is not None:
                return function(index)
            with closing(VaultIndex(record.path, self.registry.index_file(record))) as opened:
                return function(opened)
        except (sqlite3.Error, OSError) as exc:
            raise VaultUnreadable(f"the index of the vault {record.name!r} cannot be read: {exc}") from exc

    async def allow_embeddings(self, vault: Vault, *, allowed: bool) -> None:
        """Remember whether text of a vault may be sent to the server of the embedding model; raises `VaultUnreadable`.

        Does nothing if no embedding model can be used, or its server is on this machine.
        """
        if vault.embeddings is None or vault.embeddings.consent == "not_needed":
            return
        host = vault.embeddings.host
        await run_in_thread(self.registry.set_embedding_consent, vault.record, host, allowed=allowed, name="agx vaults")
        await run_in_thread(self._prepared, [vault.record], name="agx vaults")

    async def remove(self, vault: Vault) -> None:
        """Forget a vault and delete its index, never a note; raises `VaultUnreadable` if that is not possible."""
        async with self._changing:
            try:
                await run_in_thread(self.registry.remove, vault.record, name="agx vaults")
            finally:
                await self._close_removed()
            await vault.close()

    async def _close_removed(self) -> None:
        """Close the vaults that this or another process has removed."""
        known = {record.id for record in await run_in_thread(self.registry.list, name="agx vaults")}
        removed = [self._open.pop(vault_id) for vault_id in [*self._open] if vault_id not in known]
        await asyncio.gather(*(vault.close() for vault in removed))

    async def close(self) -> None:
        """Close all indexes, and the connections of an embedding model that was given by name."""
        vaults, self._open = list(self._open.values()), {}
        await asyncio.gather(*(vault.close() for vault in vaults))
        await self._embedders.aclose()

    def _prepared(self, records: Sequence[VaultRecord]) -> Sequence[VaultRecord]:
        """Return the records, with the embedding model and the consents for these vaults known; blocks."""
        if not self._embedders.is_set:
            return records
        self._embedders.make()
        for record in records:
            consents = self._consents.setdefault(record.id, {})
            stored = self.registry.embedding_consents(record)
            for host in [*consents]:
                if host not in stored:  # the vault was removed and added again
                    del consents[host]
            consents.update(stored)
        return records

    def _vault(self, record: VaultRecord) -> Vault:
        vault = self._open.get(record.id)
        if vault is None:
            make = partial(self._embeddings, record)
            vault = Vault(record, self.registry.index_file(record), self._clock, self._embedders, make)
            self._open[record.id] = vault
        vault.record = record  # it may have been removed and added with another name
        return vault

    def _embeddings(self, record: VaultRecord, embedder: Embedder) -> VaultEmbeddings:
        from agenticx.knowledge.embeddings import VaultEmbeddings  # it imports numpy

        consents = self._consents.setdefault(record.id, {})
        return VaultEmbeddings(embedder, self.registry.vectors_file(record), consents, self._clock)


class _Embedders:
    """The embedding model of the vaults.

    One that is given by name is made once for the turns of this process, and once for the turns of each other terminal
    that it runs with the provider variables of that terminal.
    """

    def __init__(self, model: Embedder | str | None) -> None:
        self._model = model
        self._made: dict[ProviderVariables, Embedder] = {}
        self._problems: dict[ProviderVariables, str] = {}

    @property
    def key(self) -> ProviderVariables:
        """The provider variables for which the model is made."""
        return provider_variables_key() if isinstance(self._model, str) else ()

    @property
    def is_set(self) -> bool:
        """True if there is to be a model."""
        return self._model is not None

    @property
    def current(self) -> Embedder | None:
        """The model once `make` has made it, None if none is set or it cannot be used."""
        return self._made.get(self.key)

    @property
    def problem(self) -> str | None:
        """A clause that says why the model cannot be used, None if it can or none is set."""
        return self._problems.get(self.key)

    def make(self) -> None:
        """Make the model if that is not done; blocks. If it cannot be used, `problem` says why."""
        key = self.key
        if self._model is None or key in self._made:
            return
        try:
            self._made[key] = _resolve(self._model)
            self._problems.pop(key, None)
        except SettingsError as exc:
            problem = f"the notes are searched by words alone: {exc}"
            if problem != self._problems.get(key):
                _log.warning("notes are searched by words alone", reason=str(exc))
            self._problems[key] = problem

    async def aclose(self) -> None:
        """Close the connections of a model that was given by name."""
        if isinstance(self._model, str):
            for embedder in self._made.values():
                await cast("EmbeddingModel", embedder).aclose()


def _resolve(model: Embedder | str) -> Embedder:
    """Return an embedding model; raise `SettingsError` if it, or numpy, is missing."""
    if find_spec("numpy") is None:
        raise SettingsError("search by meaning needs numpy; install it, or agenticx with the extra 'embeddings'")
    if not isinstance(model, str):
        return model
    from agenticx.llms.providers.resolve import resolve_embedding_model  # it imports the HTTP client

    return resolve_embedding_model(model)
