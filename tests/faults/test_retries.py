"""Promise C6: a retry is invisible or absent, whatever fails, wherever it fails, over real sockets."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from agenticx.clocks import ScaledClock
from agenticx.errors import ModelError
from agenticx.llms.base import close_model
from agenticx.llms.retrying import RetryingModel, RetryPolicy
from agenticx.llms.think_blocks import ThinkBlockModel
from agenticx.llms.tool_fallback import ToolFallbackModel
from agenticx.messages import AssistantMessage
from agenticx.runtime import AgentRuntime, Session, StopSignal
from agenticx.settings import Settings, load_settings
from agenticx.testing import check_grammar
from tests.faults.failures import GOOD, REFUSED, UNSHAKEN, any_fault, silence
from tests.faults.provider import Fault, Provider, Stream, provider, stream
from tests.wires.wires import WIRES

pytestmark = pytest.mark.anyio

CLOCK = ScaledClock(200)
CEILING = 20.0
AT_ONCE = 16
LATE_SECONDS = 2.0  # by how much a busy machine may be late to look at its watch


@dataclass
class Case:
    """A chain of models, what each does request by request, and what may be done about it."""

    seed: int
    attempts: int
    wires: list[str]
    scripts: list[list[Fault]]
    streams: list[list[Stream]]
    refusals: int = 0
    stopped: bool = False
    silent: bool = False

    @property
    def clock(self) -> ScaledClock:
        """Who stops a wait must come in time."""
        return ScaledClock(1) if self.stopped else CLOCK

    def __str__(self) -> str:
        chain = [
            f"{wire}: {[fault.name for fault in script]}" for wire, script in zip(self.wires, self.scripts, strict=True)
        ]
        return "\n  ".join([f"case {self.seed}, {self.attempts} attempts, stopped: {self.stopped}", *chain])


@dataclass
class Expected:
    """What the contract makes of a case: how often each model is asked, the waits in between, and the end."""

    asked: list[int]
    waits: list[float | None] = field(default_factory=list)  # None: of the policy's own choice, 0: another model
    text: str = ""
    fault: Fault = GOOD
    stopped: bool = False

    @property
    def code(self) -> str | None:
        return "stopped" if self.stopped else self.fault.code


def some_case(seed: int, wire: str) -> Case:
    """The case of a seed, which anybody can have again."""
    rng = random.Random(seed)
    attempts, models = rng.randint(1, 4), rng.choices([1, 2, 3], [5, 3, 2])[0]
    case = Case(seed, attempts, [wire, *rng.choices(list(WIRES), k=models - 1)], [], [])
    for number, name in enumerate(case.wires):
        streams = [
            stream(name, [f"m{number}r{request}w{word} " for word in range(rng.randint(1, 4))])
            for request in range(attempts)
        ]
        faults = [any_fault(rng, name, one) if rng.random() < 0.75 else GOOD for one in streams]
        case.scripts.append(faults)
        case.streams.append(streams)
    first = case.scripts[0]
    match rng.randrange(12):
        case 0:
            case.refusals = rng.randint(1, attempts)
            first[: case.refusals] = [REFUSED] * case.refusals
        case 1:
            first[:] = [UNSHAKEN] * attempts
        case 2:
            case.silent = True
            first[0] = silence(rng, wire, case.streams[0][0])
        case 3:
            case.stopped = True
        case _:
            pass
    return case


def expected(case: Case) -> Expected:
    """By the contract, not by the code."""
    result = Expected([0] * len(case.wires))
    for model, script in enumerate(case.scripts):
        for number, fault in enumerate(script):
            result.fault, result.asked[model] = fault, number + 1
            result.text = case.streams[model][number].said_before(fault.boundary)
            if fault.code is None or result.text:
                return result
            patient = fault.retry_after is None or fault.retry_after <= CEILING
            if not (fault.again and patient and number + 1 < case.attempts):
                break
            result.waits.append(fault.retry_after)
            if case.stopped and fault.retry_after != 0:
                result.stopped = True
                return result
        if not result.fault.elsewhere or model + 1 == len(case.wires):
            return result
        result.waits.append(0.0)
    raise AssertionError("unreachable")


Retrying = Callable[[Sequence[Any], RetryPolicy, ScaledClock], Any]


def usual(models: Sequence[Any], policy: RetryPolicy, clock: ScaledClock) -> Any:
    return RetryingModel(models[0], models[1:], policy, clock)


@dataclass
class Played:
    """What a client saw of a case, each event with the moment it came."""

    events: list[tuple[datetime, Any]]
    arrivals: list[list[float]]
    session: Session


async def played(case: Case, settings: Settings, retrying: Retrying = usual) -> Played:
    clocks = {"llm_invoke_timeout_seconds": 200, "llm_heartbeat_timeout_seconds": 200} if case.silent else {}
    settings = settings.model_copy(update=clocks)
    policy, session, stop = RetryPolicy(attempts=case.attempts, longest_retry_after=CEILING), Session(), StopSignal()
    async with AsyncExitStack() as stack:
        chain: list[Provider] = []
        for number, wire in enumerate(case.wires):
            refusals = case.refusals if number == 0 else 0
            answered = case.scripts[number][refusals:] or [GOOD], case.streams[number][refusals:] or [stream(wire, "x")]
            made, listen = await stack.enter_async_context(provider(wire, *answered, refusals=refusals))
            chain.append(made)
            if number == 0:
                open_first = listen
        chain[0].speaks_http = case.scripts[0][0] is not UNSHAKEN
        models = [one.model("http" if one.speaks_http else "https") for one in chain]
        for model in models:
            stack.push_async_callback(close_model, model)
        model = retrying([ToolFallbackModel(ThinkBlockModel(model)) for model in models], policy, case.clock)
        seen: list[tuple[datetime, Any]] = []
        text, waits = "", 0
        async for event in AgentRuntime(model, settings=settings, clock=case.clock).run_turn("hi", session, stop):
            seen.append((datetime.now(UTC), event))
            if event.type == "stall" and event.data["action"] == "retrying":
                waits += 1
                if waits == case.refusals:
                    await open_first()
                if case.stopped and parsed(event.data["retry_at"]) > seen[-1][0] + timedelta(seconds=0.5):
                    stop.set()
            elif event.type == "token":
                text += event.data["text"]
                for one in chain:
                    one.saw(text)
        return Played(seen, [one.arrivals for one in chain], session)


def judge(case: Case, run: Played) -> None:
    """Hold a run to what the contract says of its case."""
    events, right = [event for _, event in run.events], expected(case)
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
    judge_waits(case, run, right)
    if right.code == right.fault.code and not right.text and right.fault.retry_after is not None:
        moment, end = run.events[-1]
        assert (parsed(end.data["retry_at"]) - moment).total_seconds() == late(right.fault.retry_after)

    said = [(one.content, one.partial) for one in run.session.messages if isinstance(one, AssistantMessage)]
    assert said == ([(right.text, right.code is not None)] if right.text else [])
    assert sum(event.type == "usage" for event in events) <= 1, "an attempt that failed costs nothing"


def judge_waits(case: Case, run: Played, right: Expected) -> None:
    """Every wait is announced, as long as it should be, and kept."""
    retries = [(at, e.data) for at, e in run.events if e.type == "stall" and e.data["action"] == "retrying"]
    said = [(parsed(data["retry_at"]) - at).total_seconds() for at, data in retries]
    assert len(said) == len(right.waits)
    for wait, wanted in zip(said, right.waits, strict=True):
        if wanted is None:
            assert 4 - LATE_SECONDS < wait <= 10
        else:
            assert wait == late(wanted)
    if right.stopped and right.waits[-1] is None:
        assert run.events[-1][0] - retries[-1][0] < timedelta(seconds=LATE_SECONDS), "a stop ends the wait"
    own = [wanted for wanted in right.waits if wanted != 0]
    if len(right.asked) == 1 and len(run.arrivals[0]) == len(own) + 1:
        moments = run.arrivals[0]
        for number, wanted in enumerate(own):
            kept = case.clock.speed * (moments[number + 1] - moments[number])
            assert kept >= (4.0 if wanted is None else wanted - 1) - 0.05, "a date has whole seconds"


def late(seconds: float) -> Any:
    """`seconds`, less what this machine may be late and what a date leaves out."""
    return pytest.approx(max(0.0, seconds - LATE_SECONDS / 2), abs=LATE_SECONDS / 2 + 0.01)


def parsed(moment: str) -> datetime:
    return datetime.fromisoformat(moment)


async def wrongs(seeds: Sequence[int], settings: Settings, retrying: Retrying = usual) -> list[str]:
    """Play the cases, some at once; what is wrong with each that is."""
    found: list[str] = []
    todo = list(enumerate(seeds))

    async def work() -> None:
        while todo:
            number, seed = todo.pop()
            case = some_case(seed, list(WIRES)[number % len(WIRES)])
            try:
                async with asyncio.timeout(30):
                    judge(case, await played(case, settings, retrying))
            except (AssertionError, TimeoutError, KeyError) as exc:
                found.append(f"{case}\n  {type(exc).__name__}: {exc}\n  {expected(case)}")

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return found


@pytest.fixture
def settings(tmp_path):
    long = {f"llm_{name}_seconds": 86_400 for name in ("invoke_timeout", "heartbeat_timeout", "hard_timeout")}
    return load_settings(long | {"llm_first_feedback_seconds": 86_400}, environ={"AGX_HOME": str(tmp_path)})


@pytest.mark.promise("C6")
async def test_a_retry_is_invisible_or_absent(rng, count, settings):
    found = await wrongs([rng.getrandbits(32) for _ in range(count(500, 5_000))], settings)

    assert not found, f"{len(found)} cases are wrong, the first:\n{found[0]}"


async def test_a_refusal_whose_body_never_ends_counts_by_its_status(settings):
    async def busy(exchange):
        exchange.head(429, Retry_After="7")
        exchange.send(b'{"error": {"message": "Slow ')
        await exchange.be_silent()

    async with provider(
        "anthropic", [Fault(name="busy", do=busy, code=None), GOOD], [stream("anthropic", "x")] * 2
    ) as (
        made,
        _,
    ):
        model = usual([made.model()], RetryPolicy(), CLOCK)
        runtime = AgentRuntime(model, settings=settings, clock=CLOCK)
        events = [(datetime.now(UTC), event) async for event in runtime.run_turn("hi", Session())]
        await close_model(model)

    [(moment, stall)] = [(moment, event) for moment, event in events if event.type == "stall"]
    assert (parsed(stall.data["retry_at"]) - moment).total_seconds() == late(7)
    assert events[-1][1].data["text"] == "x"


# --- broken on purpose: each of these must be found -----------------------------------------------------------------


@dataclass(frozen=True)
class AsksAgain:
    """Asks once more, whatever was shown by then."""

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


class Hasty(RetryPolicy):
    """Does not heed what the provider asks for."""

    def wait(self, error, failed):
        wait = super().wait(error, failed)
        return wait and self.shortest_wait


def asks_after_the_first_delta(models, policy, clock):
    return AsksAgain(usual(models, policy, clock))


def asks_in_two_layers(models, policy, clock):
    return usual([usual([model], policy, clock) for model in models], policy, clock)


def does_not_heed_retry_after(models, policy, clock):
    return usual(models, Hasty(attempts=policy.attempts, longest_retry_after=policy.longest_retry_after), clock)


def has_no_ceiling(models, policy, clock):
    return usual(models, replace(policy, longest_retry_after=30), clock)


def asks_once_too_often(models, policy, clock):
    return usual([*models, models[-1]], policy, clock)


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
async def test_a_layer_that_breaks_the_promise_is_found(settings, broken):
    assert await wrongs(range(100, 220), settings, broken)
