"""Calls of user code: the caller gets a value or one error of our tree, within the limit."""

from __future__ import annotations

import asyncio
import gc
import inspect
import sys
import threading

import pytest

from agenticx import user_code
from agenticx.errors import ToolError, UserCodeError
from agenticx.threads import run_in_thread
from tests.support.jumping_clock import LoopClock
from tests.support.timeouts import PATIENCE, wait_until

pytestmark = pytest.mark.anyio


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no")


class OutsideException(BaseException):
    """An exception like those that native extensions raise when they panic."""


async def outcome(function, *args, limit=PATIENCE):
    try:
        return await user_code.call(function, *args, what="it", limit=limit)
    except UserCodeError as exc:
        return exc.kind, str(exc)


def raising(exc):
    def plain():
        raise exc

    async def coroutine():
        raise exc

    return [plain, coroutine]


async def test_plain_functions_coroutines_and_awaitables_all_give_their_value():
    async def coroutine(value):
        return value

    assert await user_code.call(lambda value: value + 1, 1, what="it") == 2
    assert await user_code.call(coroutine, 1, what="it") == 1
    assert await user_code.call(lambda: coroutine(3), what="it") == 3


async def test_a_plain_function_does_not_run_on_the_loops_thread():
    assert await user_code.call(threading.get_ident, what="it") != threading.get_ident()


@pytest.mark.parametrize(
    ("exc", "text"),
    [
        (ValueError("bad"), "it raised ValueError: bad"),
        (ValueError(), "it raised ValueError"),
        (SystemExit(3), "it raised SystemExit: 3"),
        (OutsideException("panic"), "it raised OutsideException: panic"),
        (asyncio.CancelledError(), "it was cancelled by its own code"),
        (TimeoutError("mine"), "it raised TimeoutError: mine"),
        (Unprintable(), "it raised Unprintable: (its message cannot be read)"),
        (ExceptionGroup("two", [ValueError("a")]), "it raised ExceptionGroup: two (1 sub-exception)"),
        (ValueError("x" * 10_000), f"it raised ValueError: {'x' * 500}… (10000 characters)"),
        (ValueError("login with password=hunter22"), "it raised ValueError: login with password=[hidden]"),
        (ValueError("half \ud800"), "it raised ValueError: half \ufffd"),
        (RecursionError("deep"), "it raised RecursionError: deep"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
async def test_any_exception_becomes_a_user_code_error(exc, text):
    for function in raising(exc):
        assert await outcome(function) == ("raised", text)


async def test_code_called_in_place_runs_in_the_callers_task_and_raises_its_own_exceptions():
    async def coroutine(value):
        return asyncio.current_task(), value

    assert await user_code.call_in_place(threading.get_ident, what="it") == threading.get_ident()
    assert await user_code.call_in_place(coroutine, 1, what="it") == (asyncio.current_task(), 1)
    assert (await user_code.call_in_place(lambda: coroutine(2), what="it"))[1] == 2
    error = KeyError("own")
    for function in raising(error):
        with pytest.raises(KeyError) as caught:
            await user_code.call_in_place(function, what="it")
        assert caught.value is error


@pytest.mark.parametrize("exc", [SystemExit(3), OutsideException("panic"), asyncio.CancelledError()], ids=repr)
async def test_code_called_in_place_cannot_end_the_program_or_cancel_its_caller(exc):
    for function in raising(exc):
        with pytest.raises(UserCodeError, match=r"^it (raised|was cancelled by its own code)") as caught:
            await user_code.call_in_place(function, what="it")
        assert caught.value.__cause__ is exc


async def test_a_cancellation_of_the_caller_passes_through_code_called_in_place():
    task = asyncio.ensure_future(user_code.call_in_place(asyncio.Event().wait, what="it"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_stop_iteration_is_an_error_too():
    kind, text = await outcome(lambda: next(iter(())))
    assert (kind, "StopIteration" in text) == ("raised", True)


async def test_agenticx_errors_are_raised_unchanged():
    error = ToolError("say it differently")
    for function in raising(error):
        with pytest.raises(ToolError) as caught:
            await user_code.call(function, what="it")
        assert caught.value is error


async def test_code_that_hangs_is_cancelled_at_its_limit():
    ended = asyncio.Event()

    async def hang():
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    assert await outcome(hang, limit=0.05) == ("timed_out", "it did not answer within 0.05 s")
    assert ended.is_set()


async def test_code_that_ignores_cancellation_is_abandoned():
    release = asyncio.Event()

    async def stubborn():
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    begun = LoopClock().monotonic()
    assert await outcome(stubborn, limit=0.05) == ("timed_out", "it did not answer within 0.05 s")
    assert LoopClock().monotonic() - begun == pytest.approx(0.05 + user_code.GRACE_SECONDS)
    release.set()


async def test_a_thread_that_blocks_is_abandoned():
    release = threading.Event()
    assert await outcome(release.wait, limit=0.05) == ("timed_out", "it did not answer within 0.05 s")
    release.set()


def thread_called(name):
    """Return the newest thread of that name; one of an earlier test may be about to end."""
    return [thread for thread in threading.enumerate() if thread.name == name][-1]


@pytest.mark.parametrize("delivered", [False, True], ids=["afterwards", "before the cancellation"])
async def test_the_coroutine_that_an_abandoned_call_returned_is_closed(delivered):
    loop, called, release = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    async def never_awaited():
        pass

    result = never_awaited()

    def function():
        loop.call_soon_threadsafe(called.set)
        release.wait(PATIENCE)
        return result

    task = asyncio.create_task(run_in_thread(function, name="agx abandoned"))
    await called.wait()
    if delivered:  # the loop is blocked until the thread has ended, so that delivery comes first, then cancellation
        thread = thread_called("agx abandoned")
        release.set()
        thread.join(PATIENCE)
        loop.call_soon(task.cancel)
    else:
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    release.set()
    await wait_until(lambda: inspect.getcoroutinestate(result) == inspect.CORO_CLOSED)


def test_the_coroutine_that_a_call_returned_after_the_end_of_its_loop_is_closed():
    called, release = threading.Event(), threading.Event()

    async def never_awaited():
        pass

    result = never_awaited()

    def function():
        called.set()
        release.wait(PATIENCE)
        return result

    async def abandon():
        task = asyncio.create_task(run_in_thread(function, name="agx abandoned"))
        while not called.is_set():
            await asyncio.sleep(0)
        task.cancel()

    asyncio.run(abandon())
    release.set()
    for thread in threading.enumerate():
        if thread.name == "agx abandoned":
            thread.join(PATIENCE)
    assert inspect.getcoroutinestate(result) == inspect.CORO_CLOSED


@pytest.mark.parametrize("steps", range(5))
@pytest.mark.parametrize("cancelled", [False, True])
@pytest.mark.cases(quick=2)
def test_the_coroutine_that_a_call_returned_is_taken_or_closed_at_whatever_step_its_loop_ends(steps, cancelled):
    called, release, taken = threading.Event(), threading.Event(), []

    async def never_awaited():
        pass

    result = never_awaited()

    def function():
        called.set()
        release.wait(PATIENCE)
        return result

    async def call():
        taken.append(await run_in_thread(function, name="agx late"))

    async def leave():
        task = asyncio.create_task(call())
        while not called.is_set():
            await asyncio.sleep(0)
        if cancelled:
            task.cancel()
            await asyncio.wait({task})
        thread = thread_called("agx late")
        release.set()
        thread.join(PATIENCE)
        for _ in range(steps):
            await asyncio.sleep(0)

    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda _loop, _context: None)  # it is told of a task that has not ended
    loop.run_until_complete(leave())
    loop.close()
    gc.collect()
    assert taken == [result] or inspect.getcoroutinestate(result) == inspect.CORO_CLOSED
    assert not (cancelled and taken)
    result.close()


async def test_an_exception_after_the_cancellation_is_not_reported():
    complaints, release = [], threading.Event()
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))

    def function():
        release.wait(PATIENCE)
        raise ValueError("too late")

    assert await outcome(function, limit=0.05) == ("timed_out", "it did not answer within 0.05 s")
    release.set()
    await wait_until(lambda: all(thread.name != "agx it" for thread in threading.enumerate()))
    await asyncio.sleep(0.01)
    gc.collect()
    assert complaints == []


async def test_results_after_the_limit_are_not_reported():
    complaints = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))

    async def late():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ValueError("too late") from None

    assert (await outcome(late, limit=0.05))[0] == "timed_out"
    await asyncio.sleep(0)
    assert complaints == []


async def test_cancelling_the_caller_cancels_the_called_code():
    begun, ended = asyncio.Event(), asyncio.Event()

    async def hang():
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = asyncio.create_task(user_code.call(hang, what="it"))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_without_a_limit_there_is_no_timeout():
    async def soon():
        await asyncio.sleep(0)
        return "done"

    assert await user_code.call(soon, what="it") == "done"


def test_call_sync_converts_exceptions_too():
    assert user_code.call_sync(lambda: 1, what="it") == 1
    with pytest.raises(UserCodeError, match="it raised SystemExit: 1"):
        user_code.call_sync(sys.exit, 1, what="it")
    with pytest.raises(ToolError):
        user_code.call_sync(raising(ToolError("mine"))[0], what="it")
