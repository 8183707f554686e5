"""Logging of `agx serve` where stderr is slow, full, closed or never read."""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import re
import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from agenticx.logs import bound_ids, configure_logging, get_logger
from studio.log_writer import LogWriter
from tests.support.forked import ROOT, Process
from tests.support.program import PROGRAM
from tests.support.server.agx_processes import agx_serve, environment, outcome
from tests.support.server.running_studio import frames_of, until
from tests.support.server.stream_client import StreamClient
from tests.support.timeouts import PATIENCE, patient_client, wait_until

LOG = get_logger("studio.x")
DATE = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ", re.MULTILINE)


@pytest.fixture(autouse=True)
def restored_logging() -> Generator[None]:
    loggers = [logging.getLogger(name) for name in ("", "agenticx", "studio")]
    before = [(logger.level, logger.handlers[:]) for logger in loggers]
    yield
    for logger, (level, handlers) in zip(loggers, before, strict=True):
        logger.setLevel(level)
        logger.handlers[:] = handlers


class FakeStderr:
    """A stderr that stores what is written, blocks the writing thread on demand, or raises `failure`."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.written = ""
        self._reached = Event()
        self._free = Event()
        self._free.set()

    def write(self, data: bytes) -> None:
        self._reached.set()
        assert self._free.wait(PATIENCE)
        if self.failure is not None:
            raise self.failure
        self.written += DATE.sub("", data.decode())

    @contextmanager
    def blocked(self) -> Generator[None]:
        """Log "held" and run the body while the thread is blocked writing that line."""
        self._free.clear()
        self._reached.clear()
        LOG.info("held")
        assert self._reached.wait(PATIENCE)
        yield
        self._free.set()

    @property
    def lines(self) -> list[str]:
        return self.written.splitlines()


def writer_to(stderr: FakeStderr, **limits: Any) -> LogWriter:
    logging.getLogger().handlers.clear()  # pytest's, which would format lines first
    writer = LogWriter(stderr.write, **limits)
    writer.start()
    configure_logging("info", writer)
    return writer


def test_lines_logged_before_the_first_line_is_given_follow_it() -> None:
    stderr = FakeStderr()
    logging.getLogger().handlers.clear()
    writer = LogWriter(stderr.write)
    configure_logging("info", writer)
    LOG.info("early")
    writer.start("ready")
    assert writer.stop(PATIENCE)
    assert stderr.lines == ["ready", "INFO    studio.x early"]


def test_lines_of_a_program_that_never_became_ready_are_written_at_its_end() -> None:
    stderr = FakeStderr()
    logging.getLogger().handlers.clear()
    writer = LogWriter(stderr.write)
    configure_logging("info", writer)
    LOG.info("early")
    assert writer.stop(PATIENCE)
    assert stderr.lines == ["INFO    studio.x early"]


def logged_numbers(count: int, start: int = 0) -> list[str]:
    return [f"INFO    studio.x line number={number}" for number in range(start, start + count)]


def log_numbers(count: int, start: int = 0) -> None:
    for number in range(start, start + count):
        LOG.info("line", number=number)


def test_lines_of_all_loggers_are_written_in_order_before_stop_returns() -> None:
    stderr = FakeStderr()
    writer = writer_to(stderr)
    with stderr.blocked():
        for number in range(300):
            LOG.info("ours", number=number)
            logging.getLogger("other").warning("number %d", number)
    assert writer.stop(PATIENCE)
    LOG.info("after the end")
    pairs = [(f"INFO    studio.x ours number={number}", f"WARNING other number {number}") for number in range(300)]
    assert stderr.lines == ["INFO    studio.x held", *[line for pair in pairs for line in pair]]


def test_a_line_has_the_ids_and_values_of_the_time_it_was_logged() -> None:
    stderr, names = FakeStderr(), ["a"]
    writer = writer_to(stderr)
    with stderr.blocked():
        with bound_ids(session="ses_1"):
            LOG.info("ours", names=names, error=ValueError(names))
        logging.getLogger("other").warning("%s", names)
        names.append("b")
    assert writer.stop(PATIENCE)
    assert stderr.lines[1:] == [
        "INFO    studio.x ours session='ses_1' names=['a'] error=\"['a']\"",
        "WARNING other ['a']",
    ]


def test_lines_are_redacted_and_formatted_in_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = FakeStderr()
    writer = writer_to(stderr)
    with stderr.blocked():
        LOG.info("ours", model="canary-0123456789", seconds=1.5, tokens=3, error=None, approved=True)
        monkeypatch.setenv("HOUSE_API_KEY", "canary-0123456789")  # set after the line was logged
    assert writer.stop(PATIENCE)
    assert stderr.lines[1:] == [
        "INFO    studio.x ours model='[hidden]' seconds=1.5 tokens=3 error=None approved=True",
    ]


@pytest.mark.promise("I1")
def test_a_traceback_is_written_without_secrets() -> None:
    stderr = FakeStderr()
    writer = writer_to(stderr)
    try:
        raise ValueError("sk-proj-abcdefghijklmnop1234")
    except ValueError:
        LOG.exception("failed", key="abc")
    assert writer.stop(PATIENCE)
    assert stderr.lines[:2] == ["ERROR   studio.x failed key='[hidden]'", "Traceback (most recent call last):"]
    assert stderr.lines[-1] == "ValueError: [hidden]"


def test_lines_are_dropped_and_counted_while_the_queue_is_full() -> None:
    stderr = FakeStderr()
    writer = writer_to(stderr, max_lines=10)
    with stderr.blocked():
        log_numbers(25)
    assert writer.stop(PATIENCE)
    assert stderr.lines == [
        "INFO    studio.x held",
        *logged_numbers(10),
        "WARNING studio.log_writer log lines dropped lines=15",
    ]


@pytest.mark.anyio
async def test_lines_are_queued_again_once_half_of_the_queue_is_free() -> None:
    stderr, dropped = FakeStderr(), "WARNING studio.log_writer log lines dropped lines=15"
    writer = writer_to(stderr, max_lines=10)
    with stderr.blocked():
        log_numbers(25)
    await wait_until(lambda: dropped in stderr.lines)
    log_numbers(5, 25)
    assert writer.stop(PATIENCE)
    assert stderr.lines == ["INFO    studio.x held", *logged_numbers(10), dropped, *logged_numbers(5, 25)]


def test_long_lines_fill_the_queue_by_their_characters() -> None:
    stderr = FakeStderr()
    writer = writer_to(stderr, max_chars=1_000)
    with stderr.blocked():
        for _ in range(3):
            LOG.info("ours", text="x" * 400)
            logging.getLogger("other").warning("%s", "y" * 400)
    assert writer.stop(PATIENCE)
    assert [line.split()[1] for line in stderr.lines] == ["studio.x", "studio.x", "other", "studio.log_writer"]
    assert stderr.lines[-1].endswith("lines=4")


def test_stop_does_not_wait_for_a_blocked_stderr() -> None:
    stderr = FakeStderr()
    writer = writer_to(stderr)
    with stderr.blocked():
        log_numbers(3)
        assert not writer.stop(0.01)
        LOG.info("after the end")


def test_a_write_error_stops_the_writer_and_nothing_else() -> None:
    stderr = FakeStderr(BrokenPipeError())
    writer = writer_to(stderr)
    with stderr.blocked():
        log_numbers(3)
    assert not writer.stop(PATIENCE)
    log_numbers(3)
    assert stderr.lines == []


def test_a_record_that_cannot_be_formatted_is_logged_as_an_error() -> None:
    stderr = FakeStderr()
    writer = writer_to(stderr)
    logging.getLogger("other").warning("%d", "x")
    LOG.info("next")
    assert writer.stop(PATIENCE)
    assert stderr.lines[0].startswith(
        "ERROR   studio.log_writer log line cannot be formatted template='%d' error='TypeE"
    )
    assert stderr.lines[1:] == ["INFO    studio.x next"]


# --- processes --------------------------------------------------------------------------------------------------------

LOGGING = """
import sys
from agenticx.logs import get_logger
from studio.log_writer import background_logging
log = get_logger("studio.x")
with background_logging("info") as announce:
    announce("")
    {body}
    sys.stdin.readline()
    log.info("last")
"""


def program(body: str) -> tuple[Process, int]:
    """Start a program that runs `body` in `background_logging`, with a pipe of 4,096 bytes as stderr.

    Returns the process and the descriptor to read that pipe.
    """
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    process = Process(PROGRAM, [LOGGING.format(body=body)], cwd=ROOT, env=os.environ, stderr=writing)
    os.close(writing)
    return process, reading


@pytest.mark.ci_lane
def test_a_pipe_read_late_has_the_first_lines_the_dropped_count_and_the_last_line() -> None:
    body = "[log.info('line', number=number) for number in range(12_000)]; print(end='logged', flush=True)"
    process, reading = program(body)
    with process, os.fdopen(reading, encoding="utf-8") as stderr:
        assert process.stdout is not None
        assert process.stdout.read(6) == "logged"
        read = list[str]()
        for line in stderr:
            read.append(DATE.sub("", line).rstrip("\n"))
            if "dropped" in line:
                break
        process.communicate("\n", timeout=PATIENCE)
        assert DATE.sub("", stderr.read()) == "INFO    studio.x last\n"
    kept = len(read) - 1
    assert 10_000 <= kept < 10_200
    assert read == [*logged_numbers(kept), f"WARNING studio.log_writer log lines dropped lines={12_000 - kept}"]


def test_prints_to_stderr_are_queued_in_order_with_the_log_lines() -> None:
    body = (
        "import warnings; log.info('first'); print('a', 'b', file=sys.stderr); print('é', end='', file=sys.stderr);"
        "print(flush=True, file=sys.stderr); warnings.warn('odd', stacklevel=1); print('end', end='', file=sys.stderr)"
    )
    process, reading = program(body)
    with process, os.fdopen(reading, encoding="utf-8") as stderr:
        process.communicate("\n", timeout=PATIENCE)
        first, *printed = DATE.sub("", stderr.read()).splitlines()
    assert (first, printed[:2]) == ("INFO    studio.x first", ["a b", "é"])
    assert printed[2].endswith("UserWarning: odd")
    assert printed[-2:] == ["INFO    studio.x last", "end"]


def test_a_program_whose_stderr_is_not_read_runs_to_its_end() -> None:
    process, reading = program("[print('x' * 1_000, file=sys.stderr) for _ in range(100)]")
    with process:
        process.communicate("\n", timeout=PATIENCE)
        assert process.returncode == 0
    os.close(reading)


def test_a_pipe_that_the_parent_made_non_blocking_gets_every_line() -> None:
    body = "import os; os.set_blocking(2, False); [log.info('line', number=number) for number in range(300)]"
    process, reading = program(body)
    with process, os.fdopen(reading, encoding="utf-8") as stderr:
        read = [DATE.sub("", stderr.readline()).rstrip("\n") for _ in range(300)]
        process.communicate("\n", timeout=PATIENCE)
    assert read == logged_numbers(300)


@pytest.mark.anyio
@pytest.mark.promise("B6")
@pytest.mark.parametrize("reader", ["unread", "closed"])
@pytest.mark.cases(quick=1)
async def test_the_server_works_and_ends_whether_or_not_its_stderr_is_read(tmp_path: Path, reader: str) -> None:
    home = tmp_path / "home"
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    os.write(writing, b"x" * (4096 if reader == "unread" else 1))  # no room even for the line with the address
    if reader == "closed":
        os.close(reading)
    null = subprocess.DEVNULL
    env = environment(home, AGX_LOG_LEVEL="debug")
    arguments = ["serve", "--port", "0"]
    process = Process("agenticx.cli", arguments, cwd=tmp_path, env=env, stdin=null, stdout=null, stderr=writing)
    os.close(writing)
    try:
        note = home / "studio.json"
        await wait_until(note.exists)
        await run_turns(home, sessions=5, turns=12)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, PATIENCE) == 0
    finally:
        process.kill()
    if reader == "unread":
        os.close(reading)


@pytest.mark.ci_lane
@pytest.mark.anyio
@pytest.mark.promise("I1")
async def test_the_debug_log_has_no_lines_of_other_libraries_and_no_event_content(tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "a.txt").write_text("hunter2canary")
    more = {"AGX_LOG_LEVEL": "debug", "AGX_WORKSPACE_ROOT": str(tmp_path / "workspace")}
    async with agx_serve(tmp_path / "home", **more) as served, served.client() as client:
        session = (await client.post("/api/sessions", json={"permission_mode": "auto"})).json()
        path = f"/api/sessions/{session['id']}"
        reader = StreamClient(served.port, f"{path}/events", served.token)
        for text in ("run cat a.txt", "run echo password=hunter2canary"):
            seen = len(reader.frames)
            (await client.post(f"{path}/turns", json={"input": text})).raise_for_status()
            await reader.read(lambda log, seen=seen: b'"type":"final"' in b"".join(log.frames[seen:]))
        assert b"".join(reader.frames).count(b"hunter2canary") >= 2
        served.process.send_signal(signal.SIGTERM)
        code, _, err = await outcome(served.process)
    assert code == 0
    names = {line.split()[3].partition(".")[0] for line in err.splitlines()}
    assert "agenticx" in names <= {"agenticx", "studio"}
    assert "hunter2canary" not in err


async def run_turns(home: Path, *, sessions: int, turns: int) -> None:
    """Run `turns` turns in each of `sessions` sessions at once; a turn logs at least two lines."""
    url: str = json.loads((home / "studio.json").read_text())["url"]
    headers = {"Authorization": f"Bearer {(home / 'token').read_text().strip()}"}
    async with patient_client(url, headers=headers) as client:

        async def one_session(_: int) -> None:
            session: dict[str, Any] = (await client.post("/api/sessions", json={"name": "Named"})).json()
            path = f"/api/sessions/{session['id']}"
            cursor = {}
            for _ in range(turns):
                assert (await client.post(f"{path}/turns", json={"input": "say x"})).status_code == 202
                async with client.stream("GET", f"{path}/events", headers=cursor) as answer:
                    frames = await until(frames_of(answer), "final")
                cursor = {"Last-Event-ID": frames[-1].id or ""}

        await asyncio.gather(*map(one_session, range(sessions)))
