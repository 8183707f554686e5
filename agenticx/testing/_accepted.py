"""The accepted connections of a test server, all closed when the server ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

__all__ = ["AcceptedConnections"]

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class AcceptedConnections:
    """A connection callback for `asyncio.start_server` that serves each connection in a task, until `end`.

    A socket left open would raise a ResourceWarning when it is garbage collected, possibly during another test.
    """

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._open: dict[asyncio.Future[None], asyncio.StreamWriter] = {}
        self._ended = False

    def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._ended:  # accepted by the loop just before the server was closed
            writer.transport.abort()
            return
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._open[task] = writer
        task.add_done_callback(self._open.pop)

    async def end(self, *servers: asyncio.Server) -> None:
        """Close the servers, cancel all tasks and close all connections."""
        await _stop_accepting(servers)
        for server in servers:
            server.close()
        self._ended = True
        tasks, writers = list(self._open), list(self._open.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in writers:  # a task cancelled before its first step has not closed its connection
            writer.transport.abort()
        for server in servers:
            await server.wait_closed()


async def _stop_accepting(servers: Sequence[asyncio.Server]) -> None:
    """Let the servers accept nothing more, and make the transports of what they have accepted.

    The selector loop makes a transport one iteration after the accept. It fails to, and leaves the socket open, if the
    server is closed in between (https://github.com/python/cpython/issues/109564).
    """
    loop = asyncio.get_running_loop()
    if isinstance(loop, asyncio.SelectorEventLoop):
        for server in servers:
            for listening in server.sockets:
                loop.remove_reader(listening.fileno())
        await asyncio.sleep(0)
