"""A transport for the many small calls of a fault test, at a fifth of the work of httpx's own."""

from __future__ import annotations

import asyncio

import httpx

from tests.support.timeouts import PATIENCE

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class LightTransport(httpx.AsyncBaseTransport):
    """An HTTP/1.1 transport with kept connections, for whole answers of known length; a cut is an `httpx.ReadError`."""

    def __init__(self) -> None:
        self._idle: list[Connection] = []
        self._closed = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        connection: Connection | None = None
        try:
            async with asyncio.timeout(PATIENCE):
                connection = self._idle.pop() if self._idle else await _connect(request.url)
                response = await _exchange(request, *connection)
        except BaseException as exc:
            if connection is not None:
                connection[1].transport.abort()
            if isinstance(exc, OSError | EOFError) and not isinstance(exc, TimeoutError):
                raise httpx.ReadError(str(exc), request=request) from exc
            raise
        if self._closed:
            connection[1].transport.abort()
        else:
            self._idle.append(connection)
        return response

    async def aclose(self) -> None:
        self._closed = True
        for _, writer in self._idle:
            writer.transport.abort()
        self._idle.clear()


async def _connect(url: httpx.URL) -> Connection:
    return await asyncio.open_connection(url.host, url.port)


async def _exchange(
    request: httpx.Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> httpx.Response:
    head = b"".join(b"%b: %b\r\n" % header for header in request.headers.raw)
    line = b"%b %b HTTP/1.1\r\n" % (request.method.encode(), request.url.raw_path)
    writer.write(b"%b%b\r\n%b" % (line, head, request.content))
    status, *lines = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
    headers = [(name.strip(), value.strip()) for name, _, value in (one.partition(b":") for one in lines if one)]
    response = httpx.Response(int(status.split()[1]), headers=headers, request=request)
    body = await reader.readexactly(int(response.headers["content-length"]))
    return httpx.Response(response.status_code, headers=headers, content=body, request=request)
