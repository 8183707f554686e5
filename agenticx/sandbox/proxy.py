"""The proxy through which a command in bubblewrap reaches its hosts, and nothing else.

The command has a network of its own, with a loopback only. A launcher in the sandbox (`_proxy_launcher.py`) opens a
port and passes the listening socket to this process. So the connections of the command arrive here, and only this
process looks names up and connects to servers. CONNECT works for all protocols; for HTTP without TLS, one request per
connection is forwarded.

1. A server is reached if the call names its host and port. Its address must be public, or named by the call too: a name
   that somebody points at this machine, its networks or a cloud's metadata service reaches nothing. The proxy connects
   to the address that it has checked.
2. The content of a TLS connection is not visible. If many sites share servers, for example behind a CDN, a command
   could reach another site there than the site that it names.
"""

from __future__ import annotations

import _socket
import asyncio
import os
import re
import socket
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from agenticx.clocks import Clock
from agenticx.errors import ResourcesExhausted, ToolError
from agenticx.sandbox.hosts import Address, Host, is_public, read_address
from agenticx.threads import run_in_thread

__all__ = ["HostProxy", "launcher_files", "proxied", "proxy_environment"]

_LAUNCHER = Path(__file__).with_name("_proxy_launcher.py")
_PORT = 3128
_LOOPBACK = ("localhost", "127.0.0.1", "::1")

_MAX_CONNECTIONS = 64
_MAX_LOOKUPS = 8
_MAX_ADDRESSES = 4
_BACKLOG = 16  # connections that one iteration of the event loop accepts
_BUFFER_BYTES = 64 * 1024  # also the most that the head of a request may have
_HEAD_SECONDS = 15.0
_CONNECT_SECONDS = 10.0
_IDLE_SECONDS = 300.0
_CLOSE_SECONDS = 5.0
_MAX_NOTES = 10
_TOO_SLOW = f"it does not answer within {_CONNECT_SECONDS:g} s"

_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_CONNECT = re.compile(rb"CONNECT (\S{1,300}) HTTP/1\.[01]")
_FORWARD = re.compile(rb"([A-Z]{1,20}) (?i:http)://([^/?#\s@]{1,300})([/?][!-~]*)? HTTP/1\.[01]")
_HOP_HEADERS = frozenset({b"connection", b"host", b"keep-alive", b"proxy-authorization", b"proxy-connection"})


def proxied(descriptor: int, command: Sequence[str]) -> list[str]:
    """Return the arguments that run `command` in a sandbox with a proxy, given by its `HostProxy.descriptor`."""
    return [_interpreter(), "-I", "-S", str(_LAUNCHER), str(descriptor), str(_PORT), *command]


def launcher_files() -> tuple[Path, ...]:
    """Return the files and folders that the launcher needs to be readable in the sandbox."""
    library = sysconfig.get_config_var("INSTSONAME") or ""
    folders = (sysconfig.get_config_var("LIBDIR") or "", os.path.join(sys.base_exec_prefix, sys.platlibdir))
    names = [_interpreter(), os.path.dirname(os.__file__), str(_LAUNCHER)]
    names += [os.path.join(folder, library) for folder in folders if library]
    names += [os.path.dirname(path) for path in (getattr(_socket, "__file__", None),) if path is not None]
    return tuple(dict.fromkeys(Path(name).resolve() for name in names if os.path.exists(name)))


def _interpreter() -> str:
    """Return the path of Python itself, not of a link to it in a virtual environment."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def proxy_environment(hosts: Sequence[Host]) -> dict[str, str]:
    """Return the variables that make programs in the sandbox use the proxy.

    Servers on the sandbox's own loopback are reached directly, unless `hosts` names servers of this machine.
    """
    url = f"http://127.0.0.1:{_PORT}"
    named = {host.name for host in hosts}
    direct = "" if named.intersection(_LOOPBACK) else ",".join(_LOOPBACK)
    values = {"http_proxy": url, "https_proxy": url, "all_proxy": url, "no_proxy": direct}
    return {**values, **{name.upper(): value for name, value in values.items()}, "NODE_USE_ENV_PROXY": "1"}


class HostProxy:
    """The proxy of one command; an async context manager that closes all its connections at the end.

    The command is started with the arguments of `proxied` and inherits `descriptor`; then `start` is called. `notes`
    yields sentences about failed connections. Raises `ToolError` if no socket can be opened.

    An event loop in its own thread serves the connections: a large download would take all the time of a shared loop.
    """

    def __init__(self, hosts: Sequence[Host], clock: Clock) -> None:
        self._hosts = hosts
        self._clock = clock
        try:
            self._loop = asyncio.new_event_loop()
            self._engine, self._launcher = socket.socketpair()
        except OSError as exc:
            raise ToolError(f"the command could not be started: {exc.strerror}") from exc
        self._running: asyncio.Task[None] | None = None
        self._stopped = asyncio.Event()
        self._listening: asyncio.Task[None] | None = None
        self._server: asyncio.Server | None = None
        self._connections = 0
        self._serving = set[asyncio.Task[None]]()
        self._lookups = asyncio.Semaphore(_MAX_LOOKUPS)
        self._notes = dict[str, None]()
        self._left_out = 0

    @property
    def descriptor(self) -> int:
        return self._launcher.fileno()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._launcher.close()
        if self._running is None:
            self._close_loop()
            return
        try:
            self._loop.call_soon_threadsafe(self._stopped.set)
            await self._running
        except ResourcesExhausted:  # there was no thread
            self._close_loop()
            raise

    def start(self) -> None:
        """Accept connections from now on; the command has been started."""
        self._launcher.close()
        self._running = asyncio.ensure_future(run_in_thread(self._run, name="agx proxy of a command"))

    def notes(self) -> Iterator[str]:
        """Yield a sentence for each server that was not reached, at most ten."""
        yield from list(self._notes)  # copied at once: the other thread may add some
        if self._left_out:
            yield f"{self._left_out:,} more connections to other hosts failed."

    # --- in the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve_until_stopped())
        finally:
            self._close_loop()

    def _close_loop(self) -> None:
        self._engine.close()
        self._loop.close()

    async def _serve_until_stopped(self) -> None:
        self._listening = asyncio.ensure_future(self._listen())
        await self._stopped.wait()
        if self._server is not None:
            self._server.close()
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:  # one that was accepting may begin another one
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _listen(self) -> None:
        listener = await self._receive_listener()
        if listener is not None:
            self._server = await asyncio.start_server(
                self._begin, sock=listener, limit=_BUFFER_BYTES, backlog=_BACKLOG, start_serving=False
            )
            await self._server.start_serving()

    async def _receive_listener(self) -> socket.socket | None:
        """Return the listening socket of the launcher, None if the command ended before it sent one."""
        loop, readable = asyncio.get_running_loop(), asyncio.Event()
        self._engine.setblocking(False)
        loop.add_reader(self._engine, readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(self._engine)
        _, descriptors, _, _ = socket.recv_fds(self._engine, 1, 1, socket.MSG_CMSG_CLOEXEC)
        return socket.socket(fileno=descriptors[0]) if descriptors else None

    # --- one connection -----------------------------------------------------------------------------------------------

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection in a task of our own: one of `start_server` logs an error when cancelled."""
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            await self._answer(reader, writer)
            await self._close(writer)
        except OSError:  # either side has closed the connection, or is too slow
            pass
        finally:
            await _abort(writer)
            self._connections -= 1

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._connections > _MAX_CONNECTIONS:
                raise _RefusedError(503, f"the command has {_MAX_CONNECTIONS} connections already")
            request = await self._read_request(reader)
            if request is None:
                return
            upstream = await self._connect(request.host, "http" if request.forwarded else "https")
        except _RefusedError as exc:
            if exc.note is not None:
                self._add_note(exc.note)
            writer.write(exc.response())
            return
        try:
            if request.forwarded:
                upstream[1].write(request.forwarded)
            else:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await self._relay((reader, writer), upstream)
            await self._close(upstream[1])
        finally:
            await _abort(upstream[1])

    def _add_note(self, note: str) -> None:
        if note in self._notes or len(self._notes) < _MAX_NOTES:
            self._notes[note] = None
        else:
            self._left_out += 1

    async def _read_request(self, reader: asyncio.StreamReader) -> _Request | None:
        """Return the request, None if the connection is closed before it is complete."""
        try:
            async with asyncio.timeout(self._clock.real(_HEAD_SECONDS)):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        except asyncio.LimitOverrunError:
            raise _RefusedError(431, f"the head of a request has at most {_BUFFER_BYTES:,} bytes") from None
        return _parse_request(head)

    # --- the server ---------------------------------------------------------------------------------------------------

    async def _connect(self, host: Host, scheme: str) -> _Connection:
        """Return a connection to a host that the call names; raise `_RefusedError` for any other."""
        if not any(one.covers(host) for one in self._hosts):
            named = ", ".join(map(str, self._hosts))
            raise _RefusedError.of(host, f"the call names {named} only; a call that needs it names it too")
        from agenticx.sandbox.upstream import connect_through, find_upstream  # imports urllib.request

        try:
            if (proxy := find_upstream(host, scheme)) is None:
                return await self._connect_directly(host)
            async with asyncio.timeout(self._clock.real(_CONNECT_SECONDS)):
                return await connect_through(proxy, host, limit=_BUFFER_BYTES)
        except OSError as exc:
            raise _RefusedError.failed(host, exc.strerror or _TOO_SLOW) from exc

    async def _connect_directly(self, host: Host) -> _Connection:
        """Return a connection to a host; raise OSError if it cannot be reached, `_RefusedError` if it may not be."""
        addresses = await self._look_up(host)
        allowed = [address for address in addresses if self._may_reach(host, address)]
        if not allowed:
            raise _RefusedError.of(
                host, f"its address {addresses[0]} is not a public one; a call that needs it names the address too"
            )
        failure = OSError()
        for address in allowed[:_MAX_ADDRESSES]:
            try:
                async with asyncio.timeout(self._clock.real(_CONNECT_SECONDS)):
                    return await asyncio.open_connection(str(address), host.port, limit=_BUFFER_BYTES)
            except OSError as exc:
                failure = exc
        raise failure

    async def _look_up(self, host: Host) -> list[Address]:
        """Return the addresses of a host, at least one; raise OSError if there are none."""
        if (address := read_address(host.name)) is not None:
            return [address]
        try:
            async with asyncio.timeout(self._clock.real(_CONNECT_SECONDS)), self._lookups:
                found = await run_in_thread(
                    socket.getaddrinfo, host.name, host.port, type=socket.SOCK_STREAM, name="agx looking up a host"
                )
        except ResourcesExhausted as exc:
            raise _RefusedError.failed(host, str(exc)) from exc
        texts = dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in found)
        return [address for text in texts if (address := read_address(text)) is not None]

    def _may_reach(self, host: Host, address: Address) -> bool:
        """Return whether the command may reach an address of a host that the call names."""
        if is_public(address) or (host.name == "localhost" and address.is_loopback):
            return True
        return any(one.covers(Host(str(address), host.port)) for one in self._hosts)

    # --- the relay ----------------------------------------------------------------------------------------------------

    async def _relay(self, client: _Connection, server: _Connection) -> None:
        """Copy bytes in both directions until both have ended, or nothing has come for a while."""
        limit = _IdleLimit(self._clock.real(_IDLE_SECONDS))
        up = asyncio.ensure_future(_copy(client[0], server[1], limit))
        down = asyncio.ensure_future(_copy(server[0], client[1], limit))
        try:
            await asyncio.gather(up, down)
        finally:
            up.cancel()
            down.cancel()
            await asyncio.gather(up, down, return_exceptions=True)

    async def _close(self, writer: asyncio.StreamWriter) -> None:
        """Close a connection once what was written to it is sent."""
        async with asyncio.timeout(self._clock.real(_CLOSE_SECONDS)):
            writer.close()
            await writer.wait_closed()


async def _abort(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with suppress(OSError):  # the error that ended the connection
        await writer.wait_closed()


class _IdleLimit:
    """The time until which bytes must come, from either side."""

    def __init__(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self.deadline = 0.0
        self.extend()

    def extend(self) -> None:
        self.deadline = self._loop.time() + self._seconds

    @property
    def is_over(self) -> bool:
        return self._loop.time() >= self.deadline


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit: _IdleLimit) -> None:
    """Copy bytes to their end; raise TimeoutError once neither direction has had any for too long."""
    while True:
        try:
            async with asyncio.timeout_at(limit.deadline):
                chunk = await reader.read(_BUFFER_BYTES)
                writer.write(chunk)
                await writer.drain()
        except TimeoutError:
            if limit.is_over:
                raise
            continue
        if not chunk:
            break
        limit.extend()
    if writer.can_write_eof():
        writer.write_eof()


# --- requests and refusals --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Request:
    """A request to the proxy: the host to connect to, and what is sent there first, empty for CONNECT."""

    host: Host
    forwarded: bytes = b""


def _parse_request(head: bytes) -> _Request:
    """Return the request in a head; raise `_RefusedError` if it is not a valid request."""
    line, *headers = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    if (match := _CONNECT.fullmatch(line)) is not None:
        return _Request(_parse_host(match[1], None))
    if (match := _FORWARD.fullmatch(line)) is None:
        raise _RefusedError(400, "this is a proxy: it takes CONNECT and http:// addresses")
    host, target = _parse_host(match[2], 80), match[3] or b"/"
    kept = [one for one in headers if one.partition(b":")[0].strip().lower() not in _HOP_HEADERS]
    path = target if target.startswith(b"/") else b"/" + target
    first = [match[1] + b" " + path + b" HTTP/1.1", b"Host: " + match[2], b"Connection: close"]
    return _Request(host, b"\r\n".join([*first, *kept, b"", b""]))


def _parse_host(text: bytes, default_port: int | None) -> Host:
    try:
        host = Host.parse(text.decode("ascii", "replace"))
    except ValueError as exc:
        raise _RefusedError(400, str(exc)) from exc
    port = host.port or default_port
    if port is None or host.name.startswith("*"):
        raise _RefusedError(400, "a request names a host and a port, such as example.com:443")
    return Host(host.name, port)


class _RefusedError(Exception):
    """A request that is not answered by a server; `note` is the sentence about it for the result of the call."""

    def __init__(self, status: int, reason: str, note: str | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.note = note

    @classmethod
    def of(cls, host: Host, reason: str) -> _RefusedError:
        note = f"The sandbox refused a connection to {host}: {reason}."
        return cls(403, note, note)

    @classmethod
    def failed(cls, host: Host, reason: str) -> _RefusedError:
        note = f"The sandbox could not connect to {host}: {reason}."
        return cls(502, note, note)

    def response(self) -> bytes:
        body = f"{self}\n".encode()
        return (
            f"HTTP/1.1 {self.status} {_REASONS[self.status]}\r\nContent-Type: text/plain; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        ).encode() + body


_REASONS = {
    400: "Bad Request",
    403: "Forbidden by the sandbox",
    431: "Request Header Fields Too Large",
    502: "Bad Gateway",
    503: "Too many connections",
}
