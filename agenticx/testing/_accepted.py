"""The connections that a server of a test accepts: none of them outlives it, begun or not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

__all__ = ["AcceptedConnections"]

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class AcceptedConnections:
    """To be given to `asyncio.start_server`: each connection is served by a task of its own, until `end`.

    A socket that is left open warns when it is collected, in whatever test the collector comes by.
    """

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._open: dict[asyncio.Future[None], asyncio.StreamWriter] = {}
        self._ended = False

    def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._ended:  # it came in with the end of the server
            writer.transport.abort()
            return
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._open[task] = writer
        task.add_done_callback(self._open.pop)

    async def end(self) -> None:
        """Break off what is served; to be called once the server is closed."""
        self._ended = True
        tasks, writers = list(self._open), list(self._open.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in writers:  # a task that was cancelled before it began has closed nothing
            writer.transport.abort()
