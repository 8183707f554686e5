"""Options and fixtures of all tests: lanes, random seeds and the event loop."""

from __future__ import annotations

import gc
import os
import random
import re
import signal
import sys
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.bytecode import import_share, keep_aside
from tests.support.forked import end_briefly
from tests.support.lanes import Count, add_options, lane_of, sample, sample_calls

if TYPE_CHECKING:
    from tests.support.postgres.cluster import Cluster

keep_aside(Path(__file__).parents[1] / ".pytest_cache" / "bytecode")


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return the workers of `-n auto`: more than there are cores, since many tests wait for sockets and processes.

    Each worker takes a tenth of a minute of CPU time to collect the tests, so twice as many would be slower.
    """
    return round(1.5 * (os.cpu_count() or 1))


def pytest_configure(config: pytest.Config) -> None:
    """Prepare the environment, load the Hypothesis profile of the lane, and let programs of the quick lane end briefly.

    Tests without `max_examples` of their own get those of the profile; a failure prints the data that replays it.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background: what tests start would ignore it too
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # likewise under nohup
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    _leave_out_the_user(config)
    from hypothesis import HealthCheck, settings  # large: behind `keep_aside`

    patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
    settings.register_profile("quick", patient, max_examples=10, derandomize=True)
    settings.register_profile("ci", patient, max_examples=100, derandomize=True)
    settings.register_profile("deep", patient, max_examples=5_000)
    settings.load_profile(lane_of(config))
    if lane_of(config) == "quick":
        end_briefly()
        _draw_no_local_constants()
        from tests.support.wires import sdk_types

        sdk_types.check_on_request()


# Variables of the tests themselves.
_TEST_VARIABLES = ("AGX_COMMAND_CORPUS", "AGX_KNOWLEDGE", "AGX_STREAMS", "AGX_TEST_SEED")


def _leave_out_the_user(config: pytest.Config) -> None:
    """Give the tests an empty AGX_HOME, and no settings and keys of whoever runs them."""
    for name in list(os.environ):
        if re.search(r"^AGX_|_API_KEY$|_BASE_URL$|^HF_TOKEN$", name) and name not in _TEST_VARIABLES:
            del os.environ[name]
    home = TemporaryDirectory(prefix="agx-test-home-")
    config.add_cleanup(home.cleanup)
    os.environ["AGX_HOME"] = home.name


def _draw_no_local_constants() -> None:
    """Keep Hypothesis from drawing the constants in the source of whatever modules a worker has imported.

    Ten examples seldom have one of them, other examples would be drawn after each change of the source, and to find
    them takes each worker several seconds in a fresh clone.
    """
    if (providers := sys.modules.get("hypothesis.internal.conjecture.providers")) is not None:
        vars(providers)["is_local_module_file"] = lambda _path: False


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, Any, Any]:
    """Collect tests without looking for garbage, and never look among what is there then."""
    gc.disable()
    try:
        if session.config.args == session.config.getini("testpaths"):
            import_share(Path(__file__).parent)
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Generator[None, None, None]:
    yield
    sample_calls(metafunc)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    sample(config, items)
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: not _uses_a_shared_program(item))


def _uses_a_shared_program(item: pytest.Item) -> bool:
    """Return True for tests with the browser or the PostgreSQL server that a worker starts once.

    They come first, so that one worker gets them all.
    """
    assert isinstance(item, pytest.Function)
    return hasattr(item.module, "browser_tab") or "postgres" in item.fixturenames or "[postgres" in item.nodeid


@pytest.fixture(scope="session")
def count(request: pytest.FixtureRequest) -> Count:
    """Return `count(quick, ci, deep)`, which picks the number of cases for the lane that runs."""
    return Count(lane_of(request.config))


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Return a random generator of the test's own, with the same seed in every run, so that results are comparable.

    With --deep the seed differs in each run. A failing test's report has the seed; AGX_TEST_SEED replays it.
    """
    deep = lane_of(request.config) == "deep"
    own = random.SystemRandom().getrandbits(32) if deep else zlib.crc32(request.node.nodeid.encode())
    seed = int(os.environ.get("AGX_TEST_SEED") or own)
    print(f"replay with AGX_TEST_SEED={seed}")
    return random.Random(seed)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def _postgres() -> Iterator[Cluster]:
    from tests.support.postgres.cluster import Cluster, why_unavailable

    if (reason := why_unavailable()) is not None:
        pytest.skip(reason)
    cluster = Cluster.begin(in_memory=True)
    yield cluster
    cluster.end()


@pytest.fixture
def postgres(_postgres: Cluster) -> Iterator[Cluster]:
    """Return this process's PostgreSQL server, which must not be stopped; the test's databases are dropped at its end.

    It starts with the first test that asks for it. Tests of failures begin a `cluster` of their own.
    """
    yield _postgres
    _postgres.drop_databases()
