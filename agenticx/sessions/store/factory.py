"""The store that the settings name, and its file."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agenticx.clocks import Clock, SystemClock
from agenticx.errors import SettingsError, StoreError, error_text
from agenticx.home_permissions import check_home
from agenticx.logs import get_logger
from agenticx.permissions.rule_stores import refuse_unused_file
from agenticx.resource_exhaustion import raise_if_exhausted
from agenticx.sessions.store.base import Store, StoreReader
from agenticx.sessions.store.blobs import BlobFolder
from agenticx.sessions.store.configuration import configuration_digests
from agenticx.sessions.store.copies import CopyableStore
from agenticx.sessions.store.owner import probe_owner_pid
from agenticx.sessions.store.sharded import ShardedStore
from agenticx.sessions.store.sqlite import SqliteStore
from agenticx.sessions.store.sqlite.check import FileState, check_database
from agenticx.sessions.store.sqlite.projections import check_projections
from agenticx.sessions.store.sqlite.reader import SqliteReader
from agenticx.sessions.store.workers import WorkersReport
from agenticx.setting_validators import split_postgres_urls
from agenticx.settings import Settings
from agenticx.shared_state.state import SharedState
from agenticx.threads import run_in_thread

if TYPE_CHECKING:
    from agenticx.sessions.store.postgres import PostgresStore

__all__ = [
    "MEMORY_URL",
    "absolute_url",
    "check_databases",
    "check_file",
    "check_logs",
    "database_path",
    "open_copyable_stores",
    "open_shared_state",
    "open_store",
    "open_store_reader",
    "probe_store_owner",
    "purge_databases",
    "read_workers",
    "using_shared_state",
]

_log = get_logger(__name__)

_FILE_NAME = "sessions.db"
_SNAPSHOTS = "snapshots"
_SQLITE = "sqlite:///"
MEMORY_URL = "memory://"
"""The URL of a store in memory, which the settings cannot name."""


def open_store(settings: Settings, clock: Clock | None = None, *, shared: SharedState | None = None) -> Store:
    """Open the store of `AGX_STORE_URL`, by default the database in AGX_HOME; this process owns it from now on.

    `shared` is its shared state, if it is open already; the store closes it. Files of AGX_HOME that the user's group
    may change are logged.

    Raises `OwnedElsewhere` while another process owns the store, `StoreError` for a file that cannot be used. Raises
    `SettingsError` for a path that cannot be resolved, for a missing folder other than AGX_HOME, for permission rules
    in AGX_HOME that a database replaces, and as `check_home` does.
    """
    for sentence in check_home(settings.home):
        _log.warning("AGX_HOME is not private", reason=sentence)
    if settings.postgres_urls:
        refuse_unused_file(settings.home)
        with ExitStack() as closing:
            if shared is None and (shared := open_shared_state(settings, clock)) is not None:
                closing.callback(shared.close)
            store = _open_postgres(settings, clock, shared)
            closing.pop_all()
            return store
    path = database_path(settings)
    _check_folder(path, settings)
    return SqliteStore(path, clock=clock, blobs=_blobs(settings))


def _check_folder(path: Path, settings: Settings) -> None:
    """Raise `SettingsError` for a database in a folder that is not there: with a mistyped path it would be empty."""
    folder = path.parent
    if folder.is_relative_to(_resolve(settings.home, "AGX_HOME")):
        return
    try:
        folder.stat()
    except FileNotFoundError as exc:
        text = f"{str(folder)!r}, the folder of the store {path.name!r}, is not there; create it first"
        raise SettingsError(text) from exc
    except OSError:  # reported where the file is opened
        return


def _open_postgres(settings: Settings, clock: Clock | None, shared: SharedState | None) -> Store:
    """Open the store in the database of AGX_STORE_URL, as one of its workers; raises `StoreError`, `SettingsError`."""
    stores = _open_databases(settings, clock, shared)
    return stores[0] if len(stores) == 1 else _sharded(stores, clock)


def _sharded(stores: Sequence[PostgresStore], clock: Clock | None) -> ShardedStore:
    return ShardedStore([(store.name, store) for store in stores], clock=clock)


def _open_databases(settings: Settings, clock: Clock | None, shared: SharedState | None) -> Sequence[PostgresStore]:
    with _naming_extra():
        from agenticx.sessions.store.postgres import KnownTimelines, PostgresStore, check_databases
    urls, timeout, polls = settings.postgres_urls, settings.store_timeout_seconds, settings.store_poll
    check_databases(urls, clock=clock or SystemClock(), timeout=timeout, is_pooled=polls)
    return [
        PostgresStore(
            url,
            clock=clock,
            blobs=_blobs(settings),
            shared=shared if url == urls[0] else None,
            timeout=timeout,
            lease=settings.store_lease_seconds,
            polls=polls,
            timelines=KnownTimelines(settings.home / "store-timelines.json"),
            configuration=partial(configuration_digests, settings),
        )
        for url in urls
    ]


def open_shared_state(
    settings: Settings, clock: Clock | None = None, *, only_reads: bool = False
) -> SharedState | None:
    """Open the shared state of the workers of a PostgreSQL store; return None for any other store. Blocks.

    With `only_reads` the database must have its tables, and is not changed. Raises `StoreError`, `SettingsError`.
    """
    if not settings.postgres_urls:
        return None
    with _naming_extra():
        from agenticx.sessions.store.postgres import PostgresValues
    values = PostgresValues(
        settings.postgres_urls[0],
        clock=clock,
        timeout=settings.store_timeout_seconds,
        is_pooled=settings.store_poll,
        creates=not only_reads,
    )
    try:
        return SharedState(values, settings, clock, only_reads=only_reads)
    except BaseException:
        values.close()
        raise


@contextmanager
def _naming_extra() -> Generator[None]:
    """Raise `SettingsError` for packages of the extra that are missing."""
    try:
        yield
    except ImportError as exc:
        raise SettingsError(
            "the URL of the store names PostgreSQL, for which packages are missing: install the extra `postgres`, for"
            " example by pip install '.[postgres]' in the folder of AgenticX"
        ) from exc


@contextmanager
def using_shared_state(settings: Settings, *, only_reads: bool = False) -> Generator[SharedState | None]:
    """Yield the shared state, if the store has one; its keys of providers are in use while the block runs.

    With `only_reads` nothing is changed in the database; an empty one has no shared state.
    """
    with ExitStack() as closing:
        is_empty = only_reads and bool(settings.postgres_urls) and next(iter(read_workers(settings).values())) is None
        shared = None if is_empty else open_shared_state(settings, only_reads=only_reads)
        if shared is not None:
            closing.callback(shared.close)
        yield shared


def open_store_reader(settings: Settings) -> StoreReader:
    """Open the store for reading while another process may own it; raises `StoreError` if it cannot be read."""
    if settings.postgres_urls:
        return _open_postgres(settings, None, None)
    return SqliteReader(database_path(settings), blobs=_blobs(settings))


def probe_store_owner(settings: Settings) -> int | None:
    """Return the id of the process that owns the store, or None; 0 if the owner has not written its id yet.

    A PostgreSQL database has no owner: its workers own single sessions.
    """
    if settings.postgres_urls:
        return None
    return probe_owner_pid(database_path(settings))


def read_workers(settings: Settings) -> Mapping[str, WorkersReport | None]:
    """Return the report on the workers of each PostgreSQL database by its name, None for an empty one; blocks.

    Changes nothing. Raises `StoreError` for a database that a worker would refuse, `SettingsError`.
    """
    with _naming_extra():
        from agenticx.sessions.store.postgres import read_report
    return dict(read_report(url, SystemClock()) for url in settings.postgres_urls)


def check_file(settings: Settings) -> FileState:
    """Return the state of the store's file without changing it; raises as `open_store`, for an owned file too."""
    path = database_path(settings)
    _check_folder(path, settings)
    return check_database(path)


def check_logs(settings: Settings) -> list[str]:
    """Return a sentence for each table of a session that differs from its log; raises `StoreError`."""
    return check_projections(database_path(settings), has_owner=probe_store_owner(settings) is not None)


@asynccontextmanager
async def open_copyable_stores(
    settings: Settings, source_url: str, target_url: str
) -> AsyncGenerator[tuple[CopyableStore, CopyableStore, str]]:
    """Open two stores by their URLs for a copy of sessions, and yield them with the name of the target.

    Contents that are not in a database are in AGX_HOME. A source in a file has them in the folder `snapshots` next to
    the file, if there is one. Raises `StoreError`, `OwnedElsewhere`, `SettingsError`.
    """
    source_url, target_url = absolute_url(source_url), absolute_url(target_url)
    if source_url == target_url:
        raise SettingsError("FROM_URL and TO_URL are the same store")
    async with AsyncExitStack() as closing:
        stores = list[CopyableStore]()
        for url in (source_url, target_url):
            store = await run_in_thread(_open_copyable, settings, url, url == source_url, name="agx opening")
            closing.push_async_callback(store.aclose)
            stores.append(store)
        name = target_url.removeprefix(_SQLITE) if target_url.startswith(_SQLITE) else _name_of(target_url)
        yield stores[0], stores[1], name


def _open_copyable(settings: Settings, url: str, must_exist: bool) -> CopyableStore:
    if url.startswith(_SQLITE):
        path = Path(url.removeprefix(_SQLITE))
        if must_exist and not path.exists():
            raise StoreError(f"there is no store in {path}")
        _check_folder(path, settings)
        beside = path.parent / _SNAPSHOTS
        has_own = must_exist and beside.is_dir()
        return _copyable(SqliteStore(path, blobs=BlobFolder(beside) if has_own else _blobs(settings)))
    stores = _open_databases(settings.model_copy(update={"store_url": url}), None, None)
    if len(stores) == 1:
        return _copyable(stores[0])
    sharded, copies = _sharded(stores, None), {id(store): store.copies for store in stores}
    return CopyableStore(
        databases=[*copies.values()],
        copies_of=lambda session_id: copies[id(sharded.shard(session_id))],
        blobs=sharded.blobs,
        aclose=sharded.aclose,
    )


def _copyable(store: SqliteStore | PostgresStore) -> CopyableStore:
    return CopyableStore(
        databases=[store.copies], copies_of=lambda _: store.copies, blobs=store.blobs, aclose=store.aclose
    )


def _name_of(url: str) -> str:
    with _naming_extra():
        from agenticx.sessions.store.postgres import describe_url
    return " ".join(map(describe_url, split_postgres_urls(url)))


def check_databases(settings: Settings, progress: Callable[[int, int], None]) -> Mapping[str, Sequence[str] | None]:
    """Return a sentence for each damage of each PostgreSQL database by its name, None for one without tables; blocks.

    Workers may run meanwhile. `progress` is called with the number of checked sessions and the number of all sessions
    of the database. Raises `StoreError`, `SettingsError`.
    """
    with _naming_extra():
        from agenticx.sessions.store.postgres import check_database
    timeout, clock = settings.store_timeout_seconds, SystemClock()
    return dict(check_database(url, clock, timeout=timeout, progress=progress) for url in settings.postgres_urls)


def purge_databases(settings: Settings) -> Mapping[str, Sequence[str]]:
    """Remove all bytes of deleted sessions from each PostgreSQL database; return what is left, with reasons; blocks.

    Raises `StoreError`, `SettingsError`.
    """
    with _naming_extra():
        from agenticx.sessions.store.postgres import purge_database
    timeout, clock, is_pooled = settings.store_timeout_seconds, SystemClock(), settings.store_poll
    return dict(purge_database(url, clock, timeout=timeout, is_pooled=is_pooled) for url in settings.postgres_urls)


def database_path(settings: Settings) -> Path:
    """Return the resolved path of the embedded store's file, the same one for all paths and links that lead to it.

    Raises `SettingsError` for a store that has no file, and for a path that cannot be resolved.
    """
    if settings.postgres_urls:
        raise SettingsError("the URL of the store names PostgreSQL: there is no file; this is about sqlite:///PATH")
    url = settings.store_url
    if url is None:
        return _resolve(settings.home / _FILE_NAME, "AGX_HOME")
    return _resolve(Path(url.removeprefix(_SQLITE)), "the URL of the store")


def _blobs(settings: Settings) -> BlobFolder:
    return BlobFolder(settings.home / _SNAPSHOTS)


def absolute_url(url: str) -> str:
    """Return the URL of a store, for SQLite with the resolved path; raise `SettingsError` for any other URL."""
    try:
        if split_postgres_urls(url):
            return url
    except ValueError as exc:  # the message does not show the URL
        raise SettingsError(f"the URL of a store {exc}") from None
    path = url.removeprefix(_SQLITE)
    if not path or (path == url and url.startswith("sqlite:")):
        problem = "the path is missing" if not path else "three slashes are before the path"
        raise SettingsError(f"the URL of a store in a file is {_SQLITE}PATH, such as {_SQLITE}chat.db: {problem}")
    if path == url:
        scheme, separator, _ = url.partition("://")  # the rest may hold a password
        given = f"one of {scheme!r}" if separator else "a path alone"
        raise SettingsError(
            f"the URL of a store is sqlite:///PATH, postgresql://USER:PASSWORD@HOST/DATABASE or {MEMORY_URL},"
            f" not {given}"
        )
    if "?" in path:
        raise SettingsError(
            f"the URL of a store takes no options, such as the one after '?'; it is {_SQLITE}PATH alone"
        )
    return f"{_SQLITE}{_resolve(Path(path), 'the URL of the store')}"


def _resolve(path: Path, source: str) -> Path:
    try:
        return path.expanduser().resolve()
    except (OSError, RuntimeError, ValueError) as exc:  # an unknown user's home, a symlink loop, a NUL
        raise_if_exhausted(exc)
        raise SettingsError(f"{source} is not a valid path: {error_text(exc)}") from exc
