"""Search by meaning: the vectors of a vault's passages, made by an embedding model in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from agenticx.clocks import Clock
from agenticx.errors import ModelError
from agenticx.knowledge.index import VaultIndex
from agenticx.knowledge.registry import EmbeddingConsent, UnknownVault, VaultUnreadable
from agenticx.knowledge.search import Nearest
from agenticx.knowledge.vectors import PassageVectors
from agenticx.logs import get_logger
from agenticx.threads import run_in_thread

__all__ = ["Embedder", "EmbeddingSearch", "EmbeddingStatus", "VaultEmbeddings"]

_CANDIDATES = 60
_BATCH_TEXTS = 32
_TEXT_CHARS = 8_000
_QUERY_SECONDS = 5.0
_BATCH_SECONDS = 120.0
_LONGEST_PAUSE_SECONDS = 60.0
_ATTEMPTS = 6
_REFUSED = frozenset({400, 413, 422})
"""Statuses with which a server refuses a text, such as one that is too long for its model."""

_log = get_logger(__name__)


class Embedder(Protocol):
    """A model that gives vectors for texts, as `agenticx.llms.embeddings.EmbeddingModel` does."""

    @property
    def name(self) -> str:
        """The name of the model, under which its vectors are stored."""
        ...

    @property
    def host(self) -> str:
        """The host to which texts are sent."""
        ...

    @property
    def is_local(self) -> bool:
        """True if texts stay on this machine."""
        ...

    async def embed(self, texts: Sequence[str], *, timeout: float) -> list[list[float]]:
        """Return a vector for each text, all of one length; raises `ModelError`."""
        ...


@dataclass(frozen=True, slots=True)
class EmbeddingStatus:
    """The state of search by meaning in a vault: so many of its passages have been compared with the model's help.

    `problem` says why the model cannot be used now.
    """

    model: str
    host: str
    consent: EmbeddingConsent
    embedded: int
    passages: int
    problem: str | None


@dataclass(frozen=True, slots=True)
class EmbeddingSearch:
    """The search by meaning for one query, None if there is none; `note` says what it lacks, in a sentence."""

    nearest: Nearest | None = None
    note: str | None = None


class VaultEmbeddings:
    """The vectors of one vault's passages, for use on one event loop.

    Text of notes, and queries, are sent to the model's server only once the person has agreed, or if that is this
    machine. What has no vector yet gets one in the background, begun by a search. If the model fails, words alone
    remain, and each search says so.
    """

    def __init__(self, model: Embedder, file: Path, consents: Mapping[str, bool], clock: Clock) -> None:
        self._model = model
        self._file = file
        self._consents = consents
        self._clock = clock
        self._vectors: PassageVectors | None = None
        self._opening = asyncio.Lock()
        self._run: asyncio.Task[None] | None = None
        self._run_version: object = None
        self._embedded = self._passages = 0
        self._problem: str | None = None
        self._retry_at = 0.0
        self._last_query: tuple[str, Sequence[float]] | None = None
        self._dimensions = 0

    @property
    def consent(self) -> EmbeddingConsent:
        """The person's answer, or why there is no question."""
        if self._model.is_local:
            return "not_needed"
        answer = self._consents.get(self._model.host)
        return "needed" if answer is None else "given" if answer else "refused"

    @property
    def host(self) -> str:
        """The host to which texts are sent."""
        return self._model.host

    async def status(self, index: VaultIndex) -> EmbeddingStatus:
        """Return the state as it is now."""
        model, problem = self._model, self._problem

        def count(vectors: PassageVectors) -> tuple[int, int]:
            hashes = [sha256 for (sha256,) in index.query("SELECT DISTINCT sha256 FROM passages")]
            return len(hashes) - len(vectors.lacking(hashes)), len(hashes)

        embedded = passages = 0
        try:
            embedded, passages = await run_in_thread(count, await self._opened(), name="agx embeddings")
        except VaultUnreadable as exc:
            problem = str(exc)
        return EmbeddingStatus(model.name, model.host, self.consent, embedded, passages, problem)

    @property
    def _is_allowed(self) -> bool:
        return self.consent in ("given", "not_needed")

    async def search(self, query: str, index: VaultIndex, *, seconds: float) -> EmbeddingSearch:
        """Return the search by meaning for `query`; passages without a vector are waited for at most `seconds`."""
        if not self._is_allowed:
            return EmbeddingSearch()
        if self._is_paused:
            return EmbeddingSearch(note=self._words_alone)
        await self.refresh(index, seconds=seconds)
        try:
            vector = await self._query_vector(query)
        except ModelError as exc:
            self._report(exc)
            return EmbeddingSearch(note=self._words_alone)
        try:
            vectors = await self._opened()
            if self._dimensions != len(vector):
                self._dimensions = len(vector)
                if await run_in_thread(vectors.keep_length, len(vector), name="agx embeddings"):
                    self._run_version = None
                    await self.refresh(index, seconds=seconds)
        except VaultUnreadable as exc:
            return EmbeddingSearch(note=f"{exc}; the notes are searched by words alone")
        note = None
        if self._problem is not None:
            note = f"{self._problem}; {self._embedded:,} of {self._passages:,} passages are searched by meaning"
        elif self._embedded < self._passages:
            note = f"{self._embedded:,} of {self._passages:,} passages are searched by meaning so far"
        return EmbeddingSearch(partial(self._nearest, vectors, vector), note)

    async def refresh(self, index: VaultIndex, *, seconds: float | None = None) -> bool:
        """Make a vector for each passage without one, for at most `seconds`; return whether this has ended.

        It ends early if the model cannot be used, or may not be used.
        """
        if not self._is_allowed:
            return True
        version = await run_in_thread(index.version, name="agx embeddings")
        is_over = self._run is None or self._run.done()
        if is_over and (version != self._run_version or self._problem is not None):
            self._run_version = version
            self._run = asyncio.create_task(self._embed_lacking(index), name="agx embeddings")
        if self._run is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(None if seconds is None else self._clock.real(seconds)):
                    await asyncio.shield(self._run)
        return self._run is None or self._run.done()

    async def close(self) -> None:
        """End a run and close the file."""
        if self._run is not None:
            self._run.cancel()
            await asyncio.wait({self._run})
        async with self._opening:
            if self._vectors is not None:
                await run_in_thread(self._vectors.close, name="agx embeddings")
                self._vectors = None

    # --- the model ----------------------------------------------------------------------------------------------------

    @property
    def _is_paused(self) -> bool:
        return self._clock.monotonic() < self._retry_at

    @property
    def _words_alone(self) -> str:
        return f"{self._problem}; the notes are searched by words alone"

    def _report(self, error: ModelError) -> None:
        """Remember that the model fails, and leave it alone for a while."""
        if self._problem is None:
            _log.warning("the embedding model cannot be used; notes are searched by words alone", error=str(error))
        self._problem = f"the embedding model cannot be used now ({error})"
        self._retry_at = self._clock.monotonic() + min(error.retry_after or 30.0, _LONGEST_PAUSE_SECONDS)

    async def _query_vector(self, query: str) -> Sequence[float]:
        if self._last_query is None or self._last_query[0] != query:
            (vector,) = await self._embed([query[:_TEXT_CHARS]], _QUERY_SECONDS)
            self._last_query = (query, vector)
        return self._last_query[1]

    async def _embed(self, texts: Sequence[str], seconds: float) -> list[list[float]]:
        limit = self._clock.real(seconds)
        try:
            async with asyncio.timeout(limit):
                return await self._model.embed(texts, timeout=limit)
        except TimeoutError as exc:
            raise ModelError(
                f"{self._model.name} has sent no vectors in {seconds:g} s", code="provider.transport", retryable=True
            ) from exc

    async def _embed_lacking(self, index: VaultIndex) -> None:
        try:
            await self._store_lacking(index)
        except UnknownVault:
            return  # whoever uses it next is told
        except VaultUnreadable as exc:
            if self._problem is None:
                _log.info("vectors cannot be stored", error=str(exc))
            self._problem = str(exc)

    async def _store_lacking(self, index: VaultIndex) -> None:
        vectors = await self._opened()
        lacking = await run_in_thread(self._find_lacking, vectors, index, name="agx embeddings")
        for batch in _batches(lacking):
            if not self._is_allowed:
                return
            texts = await run_in_thread(index.passage_texts, batch, name="agx embeddings")
            texts = {sha256: text[:_TEXT_CHARS] for sha256, text in texts.items()}
            if not texts:
                continue
            try:
                found = await self._embed_patiently(texts)
            except ModelError as exc:
                self._report(exc)
                return
            await run_in_thread(vectors.store, found, name="agx embeddings")
            self._embedded += len(found)
        self._problem = None

    def _find_lacking(self, vectors: PassageVectors, index: VaultIndex) -> list[int]:
        """Return the ids of the passages that have no vector, and delete the vectors of passages that are gone."""
        rows = index.query("SELECT id, sha256 FROM passages ORDER BY id")
        ids = {sha256: passage_id for passage_id, sha256 in reversed(rows)}
        vectors.keep_only(ids.keys())
        lacking = vectors.lacking(ids)
        self._passages, self._embedded = len(ids), len(ids) - len(lacking)
        return [ids[sha256] for sha256 in lacking]

    async def _embed_patiently(self, texts: Mapping[bytes, str]) -> dict[bytes, Sequence[float] | None]:
        """Return the vectors of texts, None for a refused text; raise `ModelError` if the model stays unusable."""
        pause = 1.0
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return dict(zip(texts, await self._embed(list(texts.values()), _BATCH_SECONDS), strict=True))
            except ModelError as exc:
                if exc.status in _REFUSED and len(texts) > 1:
                    return await self._embed_singly(texts, exc)
                if not exc.retryable or attempt == _ATTEMPTS:
                    raise
                await self._clock.sleep(min(exc.retry_after or pause, _LONGEST_PAUSE_SECONDS))
                pause *= 2
        raise AssertionError("the last attempt has returned or raised")

    async def _embed_singly(
        self, texts: Mapping[bytes, str], refusal: ModelError
    ) -> dict[bytes, Sequence[float] | None]:
        found: dict[bytes, Sequence[float] | None] = {}
        for sha256, text in texts.items():
            try:
                (found[sha256],) = await self._embed([text], _BATCH_SECONDS)
            except ModelError as exc:
                if exc.status not in _REFUSED:
                    raise
                found[sha256] = None
        if not any(found.values()):  # not a text is refused, but the request
            raise refusal
        return found

    # --- the vectors --------------------------------------------------------------------------------------------------

    async def _opened(self) -> PassageVectors:
        async with self._opening:
            if self._vectors is None:
                name = f"{self._model.name} at {self._model.host}"
                self._vectors = await run_in_thread(PassageVectors, self._file, name, name="agx embeddings")
            return self._vectors

    def _nearest(
        self, vectors: PassageVectors, vector: Sequence[float], among: Collection[bytes] | None
    ) -> Sequence[bytes]:
        try:
            return vectors.nearest(vector, _CANDIDATES, among)
        except VaultUnreadable:
            return ()


def _batches(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(ids), _BATCH_TEXTS):
        yield ids[start : start + _BATCH_TEXTS]
