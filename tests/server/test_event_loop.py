"""The selector of the server's event loop reports ready sockets a few at a time."""

from __future__ import annotations

import asyncio
import selectors
import socket
from contextlib import ExitStack

import pytest

from studio.event_loop import BatchingSelector, new_event_loop


@pytest.fixture
def ready():
    """Return a selector with 40 sockets that can be read."""
    with ExitStack() as stack:
        selector = stack.enter_context(BatchingSelector())
        for _ in range(40):
            left, right = socket.socketpair()
            stack.enter_context(left)
            stack.enter_context(right)
            selector.register(left.fileno(), selectors.EVENT_READ)
            right.send(b"x")
        yield selector


def files(ready: list[tuple[selectors.SelectorKey, int]]) -> set[int]:
    return {key.fd for key, _ in ready}


def test_all_ready_sockets_are_reported_once_in_batches(ready):
    batches = [files(ready.select(0)) for _ in range(3)]

    assert [len(batch) for batch in batches] == [16, 16, 8]
    assert set.union(*batches) == set(ready.get_map())
    assert len(ready.select(0)) == 16, "they are still readable"


def test_a_socket_that_is_no_longer_registered_is_not_reported(ready):
    first = files(ready.select(0))
    removed = next(fd for fd in ready.get_map() if fd not in first)
    ready.unregister(removed)

    assert removed not in files(ready.select(0)) | files(ready.select(0))


def test_a_changed_registration_is_reported_with_its_new_events_only(ready):
    first = files(ready.select(0))
    changed = next(fd for fd in ready.get_map() if fd not in first)
    ready.modify(changed, selectors.EVENT_WRITE)

    rest = [*ready.select(0), *ready.select(0)]
    assert changed not in files(rest)
    again = [*ready.select(0), *ready.select(0), *ready.select(0)]
    assert [events for key, events in again if key.fd == changed] == [selectors.EVENT_WRITE]


def test_two_hundred_connections_at_once_are_all_answered():
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        writer.close()

    async def ask(port: int, number: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"%d\n" % number)
        answer = await reader.read()
        writer.close()
        return answer

    async def main() -> list[bytes]:
        async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            return await asyncio.gather(*(ask(port, number) for number in range(200)))

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        assert runner.run(main()) == [b"%d\n" % number for number in range(200)]
