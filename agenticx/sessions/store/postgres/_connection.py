"""Connections to a PostgreSQL server, and the only module that imports asyncpg.

A statement that fails because the server cannot be reached, restarts, or is no primary any more is made again on a new
connection, for as long as the settings say: so what is asked here must be a read, or a write that can be repeated.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from typing import Any, NamedTuple, Protocol, TypeVar, cast
from urllib.parse import unquote, urlsplit
from weakref import WeakKeyDictionary

import asyncpg

from agenticx.clocks import Clock
from agenticx.errors import SettingsError, StoreError
from agenticx.logs import get_logger
from agenticx.resource_exhaustion import raise_if_exhausted
from agenticx.sessions.store.postgres._timelines import KnownTimelines

__all__ = [
    "INDEX_SCANS",
    "AlreadyStored",
    "DiskFull",
    "LockNotAvailable",
    "PostgresConnection",
    "Row",
    "Server",
    "ServerUnavailable",
    "describe_url",
    "end_connection",
    "map_errors",
]

T = TypeVar("T")

Row = Sequence[Any]
"""A row of a result: its columns by index."""

INDEX_SCANS: Mapping[str, str] = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
}
"""Settings of a connection for a few statements that find rows by their keys: one plan is kept as tables grow."""

_CONNECT_SECONDS = 5
_COMPARE_SECONDS = 1.0  # a new connection waits this long for the other hosts of a URL
_SILENT_SECONDS = 1.0  # without an answer for this long, the other hosts are tried too
_CLOSE_SECONDS = 1
_READ_SECONDS = 20.0
_CONNECTIONS = 8
_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.02, 0.5

_TRANSIENT_STATES = frozenset(
    (
        *("57P01", "57P02", "57P03", "57P05"),  # shut down by an administrator, by a crash; starting; idle too long
        "53300",  # too many connections
        *("40001", "40P01"),  # serialization, deadlock
        *("26000", "08003", "08006", "08001", "08004", "08P01"),  # a statement of another connection; connections
    )
)

_READ_ONLY = "25006"

_log = get_logger(__name__)


class ServerUnavailable(StoreError):
    """The server could not be reached, or ended the connection; what it was told may be stored or not."""


class LockNotAvailable(StoreError):
    """A lock that others held for longer than the statement waits."""


class AlreadyStored(StoreError):
    """There is a row with the key of one to be stored."""


class DiskFull(StoreError):
    """Raised if the server's disk is full; statements that need no space still work."""


class PostgresConnection(Protocol):
    """The part of an asyncpg connection that the store uses."""

    async def fetch(self, query: str, *args: Any, timeout: float | None = None) -> list[Row]: ...
    async def execute(self, query: str, *args: Any, timeout: float | None = None) -> str: ...
    async def add_listener(self, channel: str, callback: Callable[..., None]) -> None: ...
    def add_log_listener(self, callback: Callable[..., None]) -> None: ...
    def remove_log_listener(self, callback: Callable[..., None]) -> None: ...
    def add_termination_listener(self, callback: Callable[..., None]) -> None: ...
    def get_server_pid(self) -> int: ...
    async def close(self, *, timeout: float | None = None) -> None: ...
    def is_closed(self) -> bool: ...
    def terminate(self) -> None: ...
    def transaction(self, *, isolation: str | None = None, readonly: bool = False) -> Any: ...


_REFUSALS = {"55P03": LockNotAvailable, "23505": AlreadyStored, "53100": DiskFull}


def describe_url(url: str) -> str:
    """Return a URL as messages name it: without its user, password and options."""
    parts = urlsplit(url)
    return f"postgresql://{parts.netloc.rpartition('@')[2]}{parts.path}"


class _Host(NamedTuple):
    """One of the hosts of a URL; without a port it is the usual one."""

    name: str
    address: str
    port: int | None


def _hosts(url: str) -> Sequence[_Host]:
    """Return the hosts of a URL; a host without an address if the URL names none, as for a Unix socket."""
    hosts = list[_Host]()
    for name in urlsplit(url).netloc.rpartition("@")[2].split(","):
        address, colon, port = name.rpartition(":")
        if not colon or port.endswith("]"):  # of an IPv6 address
            address, port = name, ""
        hosts.append(_Host(name, unquote(address).strip("[]"), int(port) if port.isdecimal() else None))
    return hosts


class Server:
    """A PostgreSQL server, or several of which one is the primary, with a pool of connections to it.

    A failed statement is repeated for `timeout` nominal seconds. With `is_pooled`, a pooler may give each transaction
    another connection, so no state is kept in one; the first connection finds out if there is a pooler. `timelines` are
    the newest timelines that earlier processes have written.
    """

    def __init__(
        self,
        url: str,
        *,
        clock: Clock,
        timeout: float = 30.0,
        is_pooled: bool = False,
        timelines: KnownTimelines | None = None,
    ) -> None:
        self.url = url
        self.name = describe_url(url)
        self.is_pooled = is_pooled
        self._is_direct = False  # True once it is known that there is no pooler
        self._known_timelines = timelines or KnownTimelines()
        self.timeout = timeout
        self._clock = clock
        self._idle: list[PostgresConnection] = []
        self._free = asyncio.Semaphore(_CONNECTIONS)
        self._hosts = _hosts(url)
        self._host: _Host | None = None  # the primary, while it is known
        self.error: ServerUnavailable | None = None
        """The error of the last attempt, None if that succeeded."""
        self.full: DiskFull | None = None
        """The last error of a full disk, until somebody finds that there is space again."""
        self._timeline = 0
        self._timelines = dict[_Host, int]()
        self._made = WeakKeyDictionary[PostgresConnection, int]()  # connections, with their timelines
        self._late = set[object]()  # the attempts that have waited for long
        self._looking: asyncio.Task[None] | None = None
        self._closed = False
        self.loop: asyncio.AbstractEventLoop | None = None  # the event loop of its connections

    async def connect(self, settings: Mapping[str, str] | None = None) -> PostgresConnection:
        """Return a new connection to the primary; raises `ServerUnavailable`, `StoreError`.

        The connection has these `settings`, except through a pooler, as poolers refuse settings.

        Of several hosts the primary of the newest timeline is used: writes to an earlier primary that was started again
        would be lost. The first connection compares the hosts, and so does the next connection after each failure. A
        host that refuses is tried again while other hosts do not answer, since a standby may be promoted meanwhile.
        """
        self.loop = asyncio.get_running_loop()
        if self._host is not None or len(self._hosts) == 1:
            return await self._connect_to(self._host or self._hosts[0], settings)
        attempts = {self._begin_connecting(host, settings): host for host in self._hosts}
        newest: PostgresConnection | None = None
        try:
            done, errors = await self._wait_for_primary(attempts, settings)
            for task in done:
                if self._timelines[attempts[task]] == self._timeline:
                    newest, self._host = task.result(), attempts[task]
            if newest is None:
                refused = next((exc for exc in errors if not isinstance(exc, ServerUnavailable)), None)
                raise refused or ServerUnavailable("; ".join(dict.fromkeys(map(str, errors))))
            return newest
        finally:
            for task in attempts:
                task.cancel()
            for made in await asyncio.gather(*attempts, return_exceptions=True):
                if not isinstance(made, BaseException) and made is not newest:
                    made.terminate()

    def _begin_connecting(self, host: _Host, settings: Mapping[str, str] | None) -> asyncio.Task[PostgresConnection]:
        return asyncio.create_task(self._connect_to(host, settings), name="agx store connecting")

    async def _wait_for_primary(
        self, attempts: dict[asyncio.Task[PostgresConnection], _Host], settings: Mapping[str, str] | None
    ) -> tuple[Sequence[asyncio.Task[PostgresConnection]], Sequence[BaseException]]:
        """Return the attempts that have connected to a primary, and errors; failed attempts are repeated meanwhile."""
        deadline, errors = asyncio.get_running_loop().time() + _CONNECT_SECONDS, list[BaseException]()
        while True:
            done, waiting = await asyncio.wait(attempts, timeout=_COMPARE_SECONDS)
            errors += [exc for task in done if (exc := task.exception()) is not None]
            made = [task for task in done if task.exception() is None]
            if made or not waiting or (errors and asyncio.get_running_loop().time() > deadline):
                return made, errors
            for task in done:
                host = attempts.pop(task)
                attempts[self._begin_connecting(host, settings)] = host

    async def _connect_to(self, host: _Host, settings: Mapping[str, str] | None) -> PostgresConnection:
        is_first = not self._is_direct and not self.is_pooled
        connection = await self._open(host, settings)
        if not is_first or self.is_pooled:
            return connection
        await end_connection(connection)  # it has no settings and keeps no statements, as a pooler might be there
        return await self._open(host, settings)

    async def _open(self, host: _Host, settings: Mapping[str, str] | None) -> PostgresConnection:
        given = {"application_name": "agenticx"}
        if settings is not None and self._is_direct:
            given |= settings
        name = self.name if len(self._hosts) == 1 else f"postgresql://{host.name}"
        where = {} if len(self._hosts) == 1 else {"host": host.address, "port": host.port}
        async with map_errors(name):
            connection = cast(
                PostgresConnection,
                await asyncpg.connect(  # pyright: ignore[reportUnknownMemberType]
                    self.url,
                    **cast(Any, where),
                    timeout=_CONNECT_SECONDS,
                    target_session_attrs=cast(Any, "any"),
                    statement_cache_size=100 if self._is_direct else 0,
                    server_settings=given,
                ),
            )
        try:
            await self._check_primary(connection, host, name)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def _check_primary(self, connection: PostgresConnection, host: _Host, name: str) -> None:
        """Raise `ServerUnavailable` for a standby, and for an earlier primary after a failover."""
        async with map_errors(name):
            query = """SELECT pg_is_in_recovery(), CASE WHEN pg_is_in_recovery() THEN '0'
                       ELSE substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END, pg_backend_pid(),
                       (SELECT system_identifier::text FROM pg_control_system())"""
            ((in_recovery, timeline, pid, system),) = await connection.fetch(query, timeout=_CONNECT_SECONDS)
        if not self._is_direct and not self.is_pooled:
            self._is_direct = connection.get_server_pid() == pid  # a pooler says another one
            self.is_pooled = not self._is_direct
            if self.is_pooled:
                _log.warning("the database is behind a pooler: it is polled, and cannot be purged", server=name)
        if in_recovery:
            raise ServerUnavailable(f"{name} is a standby, which cannot be written")
        known = self._known_timelines
        newest = max(self._timeline, known.newest(system))
        if (number := int(timeline, 16)) < newest:
            raise ServerUnavailable(
                f"{name} is an earlier primary (timeline {number}): another one took its place (timeline {newest}), and"
                " what is written here would be lost; end it, or make it a standby"
                + ("" if self._timeline == newest else f", or delete {known.path} to go back to it")
            )
        if number > self._timeline:
            self._end_connections(before=number)
        self._made[connection] = number
        self._timeline = self._timelines[host] = number
        await known.note(system, number)

    async def compare_hosts(self) -> None:
        """Find out whether another host has become the primary, even if the host in use still answers."""
        if len(self._hosts) > 1:
            await asyncio.gather(*(self._probe(host) for host in self._hosts if host != self._host))

    def _end_connections(self, *, before: int) -> None:
        """End the connections to servers of earlier timelines; their statements are repeated elsewhere.

        The host of such a server may have lost power: then its connections do not fail, and would be waited for.
        """
        self._host = None
        for connection in [made for made, timeline in self._made.items() if timeline < before]:
            connection.terminate()

    def _look_again(self) -> None:
        """Have the next connection find the primary."""
        self._host = None
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.terminate()

    def _note_late(self, attempt: object) -> None:
        self._late.add(attempt)
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_for_promoted(), name="agx store hosts")

    async def _look_for_promoted(self) -> None:
        """Probe the other hosts until one of them has become the primary, or no attempt is late any more."""
        try:
            while self._late:
                await self.compare_hosts()
                await asyncio.sleep(_COMPARE_SECONDS)
        finally:
            self._looking = None

    async def _probe(self, host: _Host) -> None:
        with suppress(StoreError, SettingsError):
            await end_connection(await self._connect_to(host, None))

    @asynccontextmanager
    async def connection(self, *, is_urgent: bool = False) -> AsyncGenerator[PostgresConnection]:
        """Lend a connection of the pool and translate its errors; a failed connection is not used again.

        With `is_urgent` it is lent at once, in addition to those that the pool allows.
        """
        async with nullcontext() if is_urgent else self._free:
            connection = await self._take()
            try:
                async with map_errors(self.name):
                    yield connection
            except BaseException:
                connection.terminate()
                raise
            if self._closed or connection.is_closed():
                connection.terminate()
            else:
                self._idle.append(connection)

    async def _take(self) -> PostgresConnection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return await self.connect()

    async def fetch(self, query: str, *args: Any, is_urgent: bool = False) -> list[Row]:
        """Return the rows of a statement; it is repeated while the server cannot be reached.

        With `is_urgent` it does not wait for a connection while slow statements have all those of the pool.
        """

        async def read(connection: PostgresConnection) -> list[Row]:
            return await connection.fetch(query, *args, timeout=_READ_SECONDS)

        return await self.use(read, is_urgent=is_urgent)

    async def use(
        self,
        work: Callable[[PostgresConnection], Awaitable[T]],
        *,
        is_snapshot: bool = False,
        is_urgent: bool = False,
    ) -> T:
        """Return the result of `work`; it is repeated while the server cannot be reached.

        With `is_snapshot`, all its queries see one snapshot of the database, and `work` can only read. For `is_urgent`
        see `fetch`.
        """

        async def attempt() -> T:
            async with self.connection(is_urgent=is_urgent) as connection:
                if is_snapshot:
                    async with connection.transaction(isolation="repeatable_read", readonly=True):
                        return await work(connection)
                if self.is_pooled:
                    async with connection.transaction():
                        return await work(connection)
                return await work(connection)

        return await self.retry(attempt)

    async def retry(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `attempt`; after each `ServerUnavailable` try again, until `timeout` has passed."""
        deadline = self._clock.monotonic() + self.timeout
        pause, failure = _PAUSE_SECONDS, ServerUnavailable(f"{self.name} has not answered for {self.timeout:g} seconds")
        while True:
            late: asyncio.TimerHandle | None = None
            if len(self._hosts) > 1:
                late = asyncio.get_running_loop().call_later(_SILENT_SECONDS, self._note_late, attempt)
            try:
                async with asyncio.timeout(self._clock.real(deadline - self._clock.monotonic())):
                    result = await attempt()
            except (ServerUnavailable, TimeoutError) as exc:
                self._look_again()
                if isinstance(exc, ServerUnavailable):
                    failure = exc
                self.error = failure
                if self._closed or self._clock.monotonic() >= deadline:
                    raise failure from exc.__cause__
                if pause == _PAUSE_SECONDS:
                    _log.warning("the database cannot be reached; trying again", server=self.name, error=str(exc))
            except DiskFull as exc:
                self.full = exc
                raise
            else:
                self.error = None
                return result
            finally:
                if late is not None:
                    late.cancel()
                    self._late.discard(attempt)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, _MAX_PAUSE_SECONDS)

    async def close(self) -> None:
        """End all connections."""
        self._closed = True
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        idle, self._idle = self._idle, []
        for connection in idle:
            await end_connection(connection)


async def end_connection(connection: PostgresConnection | None) -> None:
    """Say to the server that a connection ends, and end it."""
    if connection is not None:
        with suppress(
            asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError
        ):
            await connection.close(timeout=_CLOSE_SECONDS)
        connection.terminate()
        await asyncio.sleep(0)  # the event loop closes the socket in this iteration


@asynccontextmanager
async def map_errors(name: str) -> AsyncGenerator[None]:
    """Raise the errors of asyncpg as `ServerUnavailable`, `StoreError` or `SettingsError`."""
    try:
        yield
    except asyncpg.PostgresError as exc:
        state = cast("str | None", getattr(exc, "sqlstate", None)) or ""
        if state == _READ_ONLY:
            reason = "it is a standby, or default_transaction_read_only is on"
            raise ServerUnavailable(f"{name} cannot be written ({exc}): {reason}") from exc
        if state in _TRANSIENT_STATES:
            raise ServerUnavailable(f"{name}: {exc}") from exc
        if state[:2] in ("28", "3D"):  # the user or the password, the database
            raise SettingsError(f"the URL of the store is refused by {name}: {exc}") from exc
        refusal = _REFUSALS.get(state, StoreError)
        raise refusal(f"{name} refuses: {exc} (SQLSTATE {state})") from exc
    except asyncpg.exceptions.ClientConfigurationError as exc:
        raise SettingsError(f"the URL of the store cannot be used: {exc}") from exc
    except (asyncpg.InterfaceError, asyncpg.InternalClientError) as exc:
        if isinstance(exc, ValueError):  # of an argument
            raise StoreError(f"{name} cannot store this: {exc}") from exc
        raise ServerUnavailable(f"{name}: the connection is closed ({exc})") from exc
    except (OSError, TimeoutError, EOFError) as exc:
        raise_if_exhausted(exc)
        raise ServerUnavailable(f"{name} cannot be reached: {str(exc) or type(exc).__name__}") from exc
