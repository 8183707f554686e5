"""The detector's figures on the labelled corpus, and real turns that end as the corpus says."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Any

import pytest

from agenticx.errors import InvalidArguments, ToolError
from agenticx.llms import ToolSchema
from agenticx.runtime import AgentHook, Block, ConfirmGate
from agenticx.testing import call
from agenticx.tools import Assessment, ToolContext
from tests.benchmarks import loop_corpus as loops

ALL = [sequence for file in loops.FILES for sequence in loops.corpus(file)]
LATEST = 24
"""No loop goes on for more rounds than a read whose result stays unchanged."""


def test_the_corpus_is_large_balanced_and_without_duplicates():
    honest = sum(sequence.label == "honest" for sequence in ALL)
    assert len(ALL) >= 200
    assert honest / len(ALL) == pytest.approx(0.5, abs=0.02)
    assert len({sequence.title for sequence in ALL}) == len(ALL)
    assert len({repr(sequence.rounds) for sequence in ALL}) == len(ALL)


@pytest.mark.ci_lane
def test_precision_recall_and_detection_delay_are_within_limits():
    figures = loops.measure(ALL)
    assert figures.precision >= 0.97, loops.misses(ALL)
    assert figures.recall >= 0.79, loops.misses(ALL)
    assert figures.latest <= LATEST


# --- in real turns ----------------------------------------------------------------------------------------------------


class Recorded:
    """The answers of a sequence, returned by the part of a turn that gave them: tool, gate or hook."""

    def __init__(self, sequence: loops.Labelled) -> None:
        self._answers: dict[tuple[str, str], deque[Mapping[str, Any]]] = defaultdict(deque)
        for answer in (answer for calls in sequence.rounds for answer in calls):
            self._answers[answer["tool"], repr(answer["arguments"])].append(answer)

    def next_of(self, name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._answers[name, repr(dict(arguments))][0]

    def take(self, name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._answers[name, repr(dict(arguments))].popleft()


class RecordedTool:
    """A tool that returns the recorded results."""

    timeout = None

    def __init__(self, name: str, recorded: Recorded) -> None:
        self.schema = ToolSchema(name=name, description="Recorded.", parameters={"type": "object"})
        self.read_only = name in loops.READ_ONLY
        self._recorded = recorded

    def assess(self, arguments: Mapping[str, Any], context: ToolContext) -> Assessment:
        answer = self._recorded.next_of(self.schema.name, arguments)
        command = arguments["command"] if self.schema.name == loops.SHELL else None
        asks = command is not None or answer.get("outcome") == "denied"
        return Assessment(risk="execute" if asks else "read", command=command)

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return dict(arguments)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        answer = self._recorded.take(self.schema.name, arguments)
        if "state" in answer:
            context.state.scratchpad["state"] = answer["state"]
        if "artifact" in answer:
            context.emit("artifact", {"path": "a.svg", "content": answer["artifact"], "final": True})
        match answer.get("outcome", "ok"):
            case "ok":
                return answer["result"]
            case "invalid_arguments":
                raise InvalidArguments(answer["result"].removeprefix("Invalid arguments: "))
            case _:
                raise ToolError(answer["result"])


class Refusing(ConfirmGate):
    """A gate, and a hook, that refuse the calls that were refused in the recording."""

    def __init__(self, recorded: Recorded) -> None:
        self._recorded = recorded

    async def request_confirm(self, question: str, context: Mapping[str, Any]) -> bool:
        name, arguments = context["tool"], context["arguments"]
        if self._recorded.next_of(name, arguments).get("outcome") != "denied":
            return True
        self._recorded.take(name, arguments)
        return False

    def hook(self) -> AgentHook:
        recorded = self._recorded

        class Blocking(AgentHook):
            async def before_tool_call(self, name: str, arguments: Mapping[str, Any], context: object) -> Block | None:
                if recorded.next_of(name, arguments).get("outcome") != "blocked":
                    return None
                return Block(recorded.take(name, arguments)["result"].removeprefix("Blocked: "))

        return Blocking()


@pytest.mark.anyio
@pytest.mark.parametrize("sequence", ALL[::6], ids=lambda sequence: sequence.title)
@pytest.mark.cases(quick=16)
async def test_a_turn_ends_as_the_detector_decides(play, sequence):
    recorded = Recorded(sequence)
    warned, ended, verdict = loops.judge(sequence)
    played = sequence.rounds if ended is None else sequence.rounds[:ended]
    script = [[call(one["tool"], one["arguments"]) for one in calls] for calls in played]
    known = {one["tool"] for calls in played for one in calls if one.get("outcome") != "unknown_tool"}
    run = await play(
        [*script, *([] if ended else ["done"])],
        tools=[RecordedTool(name, recorded) for name in sorted(known)],
        gate=Refusing(recorded),
        hooks=[Refusing(recorded).hook()],
        max_tool_rounds=200,
        settings={"compaction_threshold_messages": 10_000, "compaction_threshold_chars": 10_000_000},
    )

    assert run.outline[-1] == ("final:answer" if ended is None else "error:loop_detected")
    assert [event.data["code"] for event in run.events_of("error")] == ["loop_warning"] * len(warned) + [
        "loop_detected"
    ] * (ended is not None)
    if verdict is not None:
        assert run.terminal["detector"] == verdict.detector
