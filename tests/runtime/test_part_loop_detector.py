"""LoopDetector: going round in circles is noticed, working through a list or polling is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenticx.runtime.loop_detector import LoopDetector, LoopVerdict


def verdicts(calls, **thresholds):
    """What the detector says after each of (tool, arguments, result)."""
    detector, said = LoopDetector(**thresholds), []
    for call in calls:
        detector.record_call(*call)
        said.append(detector.check())
    return said


def found(calls, **thresholds):
    """The verdicts that are any, by the number of the call that brought them."""
    told = enumerate(verdicts(calls, **thresholds), 1)
    return {number: (said.level, said.detector) for number, said in told if said is not None}


SAME = ("read", "a", "text")


def test_the_same_call_with_the_same_result_is_warned_of_at_four_and_critical_at_eight():
    assert found([SAME] * 8) == {4: ("warning", "generic_repeat"), 8: ("critical", "generic_repeat")}


def test_two_calls_in_turn_are_ping_pong():
    calls = [("read", "a", "A"), ("read", "b", "B")] * 4
    assert found(calls) == {4: ("warning", "ping_pong"), 8: ("critical", "ping_pong")}


def test_three_calls_in_turn_bring_no_progress():
    calls = [("read", name, name.upper()) for name in "abc"] * 4
    assert found(calls[:11]) == {7: ("warning", "no_progress"), 11: ("critical", "no_progress")}


@pytest.mark.parametrize(
    "calls",
    [
        [("poll", "job", f"{percent} %") for percent in range(50)],
        [("read", f"file {number}", "the same license") for number in range(50)],
        [call for number in range(25) for call in (("edit", f"{number}", "ok"), ("test", "", f"{number} passed"))],
        [call for number in range(25) for call in (("edit", f"{number}", "ok"), ("test", "", "1 failed"))],
    ],
    ids=["polling", "working through a list", "edit and test", "edit and the same failure"],
)
def test_progress_is_no_loop(calls):
    assert found(calls) == {}


def test_something_new_breaks_a_streak_and_the_next_one_is_warned_of_again():
    calls = [SAME] * 5 + [("read", "b", "B")] + [SAME] * 3
    assert found(calls) == {4: ("warning", "generic_repeat")}
    assert found([*calls, SAME]) == {4: ("warning", "generic_repeat"), 10: ("warning", "generic_repeat")}


def test_thresholds_are_those_given():
    assert found([SAME] * 3, warning_threshold=2, critical_threshold=3) == {
        2: ("warning", "generic_repeat"),
        3: ("critical", "generic_repeat"),
    }


@pytest.mark.parametrize(("warning", "critical"), [(1, 8), (5, 4), (0, 0), (-1, 3)])
def test_thresholds_that_make_no_sense_are_refused(warning, critical):
    with pytest.raises(ValueError, match="2 <= warning <= critical"):
        LoopDetector(warning, critical)


def test_a_verdict_is_a_sentence_with_its_count():
    said = LoopVerdict("warning", "generic_repeat", 4).text
    assert said == "the same call gave the same result 4 times in a row"


_calls = st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), st.sampled_from("12"))


@given(st.lists(_calls, max_size=60), st.integers(2, 5), st.integers(0, 5))
def test_whatever_is_called_verdicts_have_a_reason(calls, warning, more):
    critical = warning + more
    for number, said in enumerate(verdicts(calls, warning_threshold=warning, critical_threshold=critical), 1):
        if said is None:
            continue
        assert said.count >= (critical if said.level == "critical" else warning)
        tail = calls[number - said.count : number]
        assert len(tail) == said.count
        match said.detector:
            case "generic_repeat":
                assert len(set(tail)) == 1
            case "ping_pong":
                assert len(set(tail)) == 2
                assert tail[2:] == tail[:-2]
            case "no_progress":
                assert set(tail) <= set(calls[: number - said.count])


@given(st.lists(_calls, max_size=30), _calls)
def test_a_call_repeated_eight_times_is_critical_whatever_came_before(calls, repeated):
    last = verdicts([*calls, *[repeated] * 8])[-1]
    assert last is not None
    assert last.level == "critical"


@given(st.lists(_calls, unique=True))
def test_calls_that_are_all_new_never_make_a_loop(calls):
    assert found(calls) == {}


def test_failing_calls_bring_no_progress_whatever_they_ask_for():
    detector, found = LoopDetector(), {}
    for number in range(1, 9):
        detector.record_call("file_read", f'{{"path": "{number}.txt"}}', f"no file {number}.txt", failed=True)
        if (verdict := detector.check()) is not None:
            found[number] = (verdict.level, verdict.detector)
    assert found == {4: ("warning", "no_progress"), 8: ("critical", "no_progress")}


def test_failures_side_by_side_count_once_and_a_success_ends_the_count():
    detector = LoopDetector()
    for number in range(20):
        detector.record_call("file_read", str(number), f"no file {number}", failed=True, same_round=number > 0)
    assert detector.check() is None
    for number in range(10):
        detector.record_call("file_read", f"a{number}", f"no file a{number}", failed=True)
        detector.record_call("list_files", f"{number}", f"files of {number}", same_round=True)
        assert detector.check() is None
