"""Promise C6: a retry is invisible or absent, whatever fails, wherever it fails, over real sockets."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from agenticx.clocks import Clock, ScaledClock
from agenticx.errors import ModelError
from agenticx.llms import RetryingModel, RetryPolicy, ThinkBlockModel, ToolFallbackModel, close_model
from agenticx.messages import AssistantMessage
from agenticx.runtime import AgentRuntime, Session, StopSignal
from agenticx.settings import Settings, load_settings
from agenticx.testing import check_grammar
from tests.support.faults.failures import GOOD, REFUSED, TLS_FAILED, random_fault, random_silence
from tests.support.faults.provider import FaultyProvider, ProviderFault, Stream, make_stream, provider
from tests.support.jumping_clock import VIRTUAL_TIME_OVER_SOCKETS, LoopClock
from tests.support.timeouts import PATIENCE
from tests.support.wires.wires import WIRES

pytestmark = pytest.mark.anyio

SPEED, STANDING = 200, 0.01
CEILING = 20.0
AT_ONCE = 16
MILLISECOND = 0.001  # what a time of day leaves out


@dataclass
class RecordingClock:
    """A clock that records the times of day it returned, with the true ones, and the waits it was asked for."""

    usual: Clock = field(default_factory=lambda: ScaledClock(SPEED))
    reported_times: list[tuple[datetime, datetime]] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    before_wait: Callable[[int], Awaitable[None]] | None = None

    def monotonic(self) -> float:
        return self.usual.monotonic()

    def now(self) -> datetime:
        self.reported_times.append((self.usual.now(), datetime.now(UTC)))
        return self.reported_times[-1][0]

    def real(self, seconds: float) -> float:
        return self.usual.real(seconds)

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        if self.before_wait is not None:
            await self.before_wait(len(self.waits))
        await self.usual.sleep(seconds)


@dataclass
class RetryCase:
    """A chain of models, the behaviour of each request by request, and the retries allowed."""

    seed: int
    attempts: int
    wires: list[str]
    scripts: list[list[ProviderFault]]
    streams: list[list[Stream]]
    refusals: int = 0
    stopped: bool = False
    silent: bool = False

    def clock(self) -> Clock:
        """Return the clock of the case: real time where a wait must be stopped or silence must differ from slowness."""
        return ScaledClock(STANDING) if self.stopped else LoopClock() if self.silent else ScaledClock(SPEED)

    def __str__(self) -> str:
        chain = [
            f"{wire}: {[fault.name for fault in script]}" for wire, script in zip(self.wires, self.scripts, strict=True)
        ]
        return "\n  ".join([f"case {self.seed}, {self.attempts} attempts, stopped: {self.stopped}", *chain])


@dataclass
class Expected:
    """The outcome by the contract: the requests of each model, the waits and counts of the attempts, and the end."""

    asked: list[int]
    usages: list[tuple[int, ...]] = field(default_factory=list)  # how many usage events each attempt may have
    waits: list[ProviderFault | None] = field(default_factory=list)  # what each is for; None: another model, at once
    text: str = ""
    fault: ProviderFault = GOOD
    stopped: bool = False

    @property
    def code(self) -> str | None:
        return "stopped" if self.stopped else self.fault.code


def some_case(seed: int, wire: str, *, silent: bool = False) -> RetryCase:
    """Return the reproducible case of a seed; if it is `silent`, so is the first model."""
    rng = random.Random(seed)
    attempts, models = rng.randint(1, 4), rng.choices([1, 2, 3], [5, 3, 2])[0]
    case = RetryCase(seed, attempts, [wire, *rng.choices(list(WIRES), k=models - 1)], [], [])
    for number, name in enumerate(case.wires):
        streams = [
            make_stream(name, [f"m{number}r{request}w{word} " for word in range(rng.randint(1, 4))])
            for request in range(attempts)
        ]
        faults = [random_fault(rng, name, one) if rng.random() < 0.75 else GOOD for one in streams]
        case.scripts.append(faults)
        case.streams.append(streams)
    first = case.scripts[0]
    match -1 if silent else rng.randrange(12):
        case -1:
            case.silent = True
            first[0] = random_silence(rng, wire, case.streams[0][0])
        case 0:
            case.refusals = rng.randint(1, attempts)
            first[: case.refusals] = [REFUSED] * case.refusals
        case 1:
            first[:] = [TLS_FAILED] * attempts
        case 2 if not any(asks_for_short_wait(fault) for script in case.scripts for fault in script):
            case.stopped = True
        case _:
            pass
    return case


def asks_for_short_wait(fault: ProviderFault) -> bool:
    """Return True if it asks for a wait that may already be over on a slow machine."""
    return fault.dates is not None and (fault.retry_after or 0) < CEILING


def expected(case: RetryCase) -> Expected:
    """Return the outcome by the contract, independent of the code."""
    result = Expected([0] * len(case.wires))
    for model, script in enumerate(case.scripts):
        for number, fault in enumerate(script):
            result.fault, result.asked[model] = fault, number + 1
            stream = case.streams[model][number]
            result.text = stream.text_before(fault.boundary)
            is_last = model + 1 == len(case.wires)
            result.usages.append(allowed_usages(fault, stream, is_last=is_last))
            if fault.code is None or result.text:
                return result
            patient = fault.retry_after is None or fault.retry_after <= CEILING
            if not (fault.retryable and patient and number + 1 < case.attempts):
                break
            result.waits.append(fault)
            if case.stopped and fault.retry_after != 0:
                result.stopped = True
                return result
        if not result.fault.fallback_allowed or model + 1 == len(case.wires):
            return result
        result.waits.append(None)
    raise AssertionError("unreachable")


def allowed_usages(fault: ProviderFault, stream: Stream, *, is_last: bool) -> tuple[int, ...]:
    """Return how many usage events an attempt may have; `is_last` says that its model has no fallback."""
    if not stream.has_counts_before(fault.boundary):
        return (0,)
    if stream.text_before(fault.boundary):
        return (1,)
    if fault.code == "timeout.first_chunk" and is_last:  # the turn's clock ends the call, whose counts are held back
        return (0,)
    return (0, 1) if fault.may_overtake else (1,)


Retrying = Callable[[Sequence[Any], RetryPolicy, Clock], Any]


def usual(models: Sequence[Any], policy: RetryPolicy, clock: Clock) -> Any:
    return RetryingModel(models[0], models[1:], policy, clock)


@dataclass
class CaseRun:
    """The record of a case: the client's events, the clock's times, and the times of requests."""

    events: list[Any]
    clock: RecordingClock
    arrivals: list[list[float]]
    session: Session

    def announced(self, number: int, moment: str) -> tuple[float, datetime]:
        """Return how far `moment` was ahead of the clock's `number`th time of day, and when that was returned."""
        reported, true = self.clock.reported_times[number]
        return (datetime.fromisoformat(moment) - reported).total_seconds(), true


async def play_case(case: RetryCase, settings: Settings, retrying: Retrying = usual) -> CaseRun:
    clocks = {"llm_invoke_timeout_seconds": 200, "llm_heartbeat_timeout_seconds": 200} if case.silent else {}
    settings = settings.model_copy(update=clocks)
    policy, session, stop = RetryPolicy(attempts=case.attempts, longest_retry_after=CEILING), Session(), StopSignal()
    clock = RecordingClock(case.clock())
    async with AsyncExitStack() as stack:
        chain: list[FaultyProvider] = []
        for number, wire in enumerate(case.wires):
            refusals = case.refusals if number == 0 else 0
            answered = (
                case.scripts[number][refusals:] or [GOOD],
                case.streams[number][refusals:] or [make_stream(wire, "x")],
            )
            made, listen = await stack.enter_async_context(provider(wire, *answered, refusals=refusals))
            chain.append(made)
            if number == 0:
                open_first = listen

        async def before_wait(number: int) -> None:
            if number == case.refusals:
                await open_first()

        clock.before_wait = before_wait
        chain[0].speaks_http = case.scripts[0][0] is not TLS_FAILED
        models = [one.model("http" if one.speaks_http else "https") for one in chain]
        for model in models:
            stack.push_async_callback(close_model, model)
        model = retrying([ToolFallbackModel(ThinkBlockModel(model)) for model in models], policy, clock)
        runtime = AgentRuntime(model, settings=settings, clock=clock)
        seen: list[Any] = []
        async for event in runtime.run_turn("hi", session, stop):
            seen.append(event)
            if event.type == "token":
                shown = "".join(event.data["text"] for event in seen if event.type == "token")
                for one in chain:
                    one.report_shown(shown)
            elif case.stopped and waits(event, clock):
                stop.set()
        return CaseRun(seen, clock, [one.arrivals for one in chain], session)


def waits(event: Any, clock: RecordingClock) -> bool:
    """Return True if the event announces that the same model is asked again later."""
    if event.type != "stall" or event.data["action"] != "retrying":
        return False
    return (datetime.fromisoformat(event.data["retry_at"]) - clock.reported_times[-1][0]).total_seconds() > 0.5


def check_run(case: RetryCase, run: CaseRun) -> None:
    """Check a run against the contract."""
    events, right = run.events, expected(case)
    check_grammar(events)

    shown = "".join(event.data["text"] for event in events if event.type == "token")
    assert shown == right.text, "nothing twice, nothing lost"
    asked = [len(arrivals) for arrivals in run.arrivals]
    asked[0] += min(case.refusals, right.asked[0])
    assert asked == right.asked, "each model is asked as often as the policy says, by nobody else"

    ends = [event for event in events if event.terminal]
    assert len(ends) == 1, "one end"
    if right.code is None:
        assert (ends[0].type, ends[0].data["text"]) == ("final", right.text)
    else:
        assert (ends[0].type, ends[0].data["code"]) == ("error", right.code)
    check_waits(run, right)
    if right.code == right.fault.code and not right.text and right.fault.retry_after is not None:
        check_wait(right.fault, *run.announced(-1, ends[0].data["retry_at"]))

    said = [(one.content, one.partial) for one in run.session.messages if isinstance(one, AssistantMessage)]
    assert said == ([(right.text, right.code is not None)] if right.text else [])
    check_usages(run, right)


def check_usages(run: CaseRun, right: Expected) -> None:
    """Check that each attempt that reported counts has one usage event, before the next attempt is announced."""
    usages = [0]
    for event in run.events:
        if event.type == "usage":
            usages[-1] += 1
        elif event.type == "stall" and event.data["action"] == "retrying":
            usages.append(0)
    usages = usages[: len(right.usages)] if right.stopped and not usages[-1] else usages
    assert len(usages) == len(right.usages), "as many attempts as were announced"
    for found, allowed in zip(usages, right.usages, strict=True):
        assert found in allowed, f"one usage event for each attempt that reported counts: {usages}, {right.usages}"


def check_waits(run: CaseRun, right: Expected) -> None:
    """Check that every wait is announced, of the right length, and kept."""
    retries = [event.data for event in run.events if event.type == "stall" and event.data["action"] == "retrying"]
    said = [run.announced(number, data["retry_at"]) for number, data in enumerate(retries)]
    assert len(said) == len(right.waits)
    for (wait, at), fault in zip(said, right.waits, strict=True):
        check_wait(fault, wait, at)
    if not right.stopped:
        assert run.clock.waits == pytest.approx([wait for wait, _ in said], abs=MILLISECOND)
    if len(right.asked) == 1 and not right.stopped and len(run.arrivals[0]) == len(said) + 1:
        for number, (wait, _) in enumerate(said):
            kept = (run.arrivals[0][number + 1] - run.arrivals[0][number]) / run.clock.real(1)
            assert kept >= wait - 0.05, "what was announced is kept"


def check_wait(fault: ProviderFault | None, wait: float, at: datetime) -> None:
    """Check `wait`, announced `at` that time; a date has whole seconds and is nearer when it is announced."""
    wanted = 0.0 if fault is None else fault.retry_after
    if wanted is None:
        assert 4 - MILLISECOND <= wait <= 10
    elif fault is not None and fault.dates:
        assert max(0.0, (fault.dates[-1] - at).total_seconds()) - MILLISECOND <= wait <= wanted
    else:
        assert wait == pytest.approx(wanted, abs=MILLISECOND)


async def find_failures(
    seeds: Sequence[int], settings: Settings, retrying: Retrying = usual, *, silent: bool = False
) -> list[str]:
    """Play the cases, some at once; return the findings of each that fails."""
    found: list[str] = []
    todo = list(enumerate(seeds))

    async def work() -> None:
        while todo:
            number, seed = todo.pop()
            case = some_case(seed, list(WIRES)[number % len(WIRES)], silent=silent)
            try:
                async with asyncio.timeout(1e6 if silent else PATIENCE):
                    check_run(case, await play_case(case, settings, retrying))
            except (AssertionError, TimeoutError, KeyError) as exc:
                found.append(f"{case}\n  {type(exc).__name__}: {exc}\n  {expected(case)}")

    await asyncio.gather(*(work() for _ in range(len(todo) if silent else AT_ONCE)))
    return found


@pytest.fixture
def settings(tmp_path):
    long = {f"llm_{name}_seconds": 86_400 for name in ("invoke_timeout", "heartbeat_timeout", "hard_timeout")}
    return load_settings(long | {"llm_first_feedback_seconds": 86_400}, environ={"AGX_HOME": str(tmp_path)})


@pytest.mark.promise("C6")
async def test_retries_follow_the_policy_and_duplicate_no_output(rng, count, settings):
    found = await find_failures([rng.getrandbits(32) for _ in range(count(40, 500, 5_000))], settings)

    assert not found, f"{len(found)} cases are wrong, the first:\n{found[0]}"


@pytest.mark.promise("C6")
@pytest.mark.parametrize("anyio_backend", [VIRTUAL_TIME_OVER_SOCKETS], ids=["jumping"])
async def test_a_model_that_stalls_is_not_retried(rng, count, settings):
    for _ in range(count(1, 1, 10)):
        found = await find_failures([rng.getrandbits(32) for _ in range(40)], settings, silent=True)
        assert not found, f"{len(found)} cases are wrong, the first:\n{found[0]}"


@pytest.mark.ci_lane
async def test_an_error_response_with_an_endless_body_is_classified_by_its_status(settings):
    async def busy(exchange):
        exchange.head(429, Retry_After="7")
        exchange.send(b'{"error": {"message": "Slow ')
        await exchange.be_silent()

    async with provider(
        "anthropic", [ProviderFault(name="busy", respond=busy, code=None), GOOD], [make_stream("anthropic", "x")] * 2
    ) as (
        made,
        _,
    ):
        clock = RecordingClock()
        model = usual([made.model()], RetryPolicy(), clock)
        runtime = AgentRuntime(model, settings=settings, clock=clock)
        events = [event async for event in runtime.run_turn("hi", Session())]
        await close_model(model)

    [stall] = [event for event in events if event.type == "stall"]
    reported, _ = clock.reported_times[0]
    assert (datetime.fromisoformat(stall.data["retry_at"]) - reported).total_seconds() == pytest.approx(
        7, abs=MILLISECOND
    )
    assert events[-1].data["text"] == "x"


# --- broken on purpose: each of these must be found -----------------------------------------------------------------


@dataclass(frozen=True)
class AskingAgainModel:
    """A model that asks once more, whatever was shown before."""

    model: Any

    @property
    def name(self):
        return self.model.name

    @property
    def context_window(self):
        return None

    async def stream(self, request):
        try:
            async for batch in self.model.stream(request):
                yield batch
        except ModelError as error:
            if not error.retryable:
                raise
            async for batch in self.model.stream(request):
                yield batch


class ImpatientPolicy(RetryPolicy):
    """A policy that ignores the provider's retry-after."""

    def wait(self, error, failed):
        wait = super().wait(error, failed)
        return wait and self.shortest_wait


def asks_after_the_first_delta(models, policy, clock):
    return AskingAgainModel(usual(models, policy, clock))


def asks_in_two_layers(models, policy, clock):
    return usual([usual([model], policy, clock) for model in models], policy, clock)


def does_not_heed_retry_after(models, policy, clock):
    return usual(
        models, ImpatientPolicy(attempts=policy.attempts, longest_retry_after=policy.longest_retry_after), clock
    )


def has_no_ceiling(models, policy, clock):
    return usual(models, replace(policy, longest_retry_after=30), clock)


def asks_once_too_often(models, policy, clock):
    return usual([*models, models[-1]], policy, clock)


@pytest.mark.ci_lane
@pytest.mark.promise("C6")
@pytest.mark.parametrize(
    "broken",
    [
        asks_after_the_first_delta,
        asks_in_two_layers,
        does_not_heed_retry_after,
        has_no_ceiling,
        asks_once_too_often,
    ],
)
@pytest.mark.cases(quick=1)
async def test_a_faulty_retry_layer_is_detected(settings, broken):
    assert await find_failures(range(100, 220), settings, broken)
