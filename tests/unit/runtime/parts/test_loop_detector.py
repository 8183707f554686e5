"""LoopDetector: repetition is detected; working through a list and polling are not loops."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenticx.runtime import LoopDetector, LoopVerdict, RecordedCall


def verdicts(calls, **thresholds):
    """Return the detector's verdict after each of (tool, arguments, result)."""
    detector, found = LoopDetector(**thresholds), []
    for call in calls:
        detector.record_call(*call)
        found.append(detector.check())
    return found


def found(calls, **thresholds):
    """Return the verdicts that are not None, by the number of the call after which they came."""
    numbered = enumerate(verdicts(calls, **thresholds), 1)
    return {number: (verdict.level, verdict.detector) for number, verdict in numbered if verdict is not None}


SAME = ("read", "a", "text")


def test_the_same_call_with_the_same_result_is_warned_of_at_four_and_critical_at_eight():
    assert found([SAME] * 8) == {4: ("warning", "generic_repeat"), 8: ("critical", "generic_repeat")}


def test_two_alternating_calls_are_ping_pong():
    calls = [("read", "a", "A"), ("read", "b", "B")] * 4
    assert found(calls) == {4: ("warning", "ping_pong"), 8: ("critical", "ping_pong")}


def test_three_alternating_calls_are_no_progress():
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


def test_the_given_thresholds_apply():
    assert found([SAME] * 3, warning_threshold=2, critical_threshold=3) == {
        2: ("warning", "generic_repeat"),
        3: ("critical", "generic_repeat"),
    }


@pytest.mark.parametrize(("warning", "critical"), [(1, 8), (5, 4), (0, 0), (-1, 3)])
def test_invalid_thresholds_are_refused(warning, critical):
    with pytest.raises(ValueError, match="2 <= warning <= critical"):
        LoopDetector(warning, critical)


def test_a_verdict_is_a_sentence_with_its_count():
    verdict = LoopVerdict("warning", "generic_repeat", 4).text
    assert verdict == "the same call gave the same result 4 times in a row"


_calls = st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), st.sampled_from("12"))


@given(st.lists(_calls, max_size=60), st.integers(2, 5), st.integers(0, 5))
def test_every_verdict_has_a_reason(calls, warning, more):
    critical = warning + more
    for number, verdict in enumerate(verdicts(calls, warning_threshold=warning, critical_threshold=critical), 1):
        if verdict is None:
            continue
        assert verdict.count >= (critical if verdict.level == "critical" else warning)
        tail = calls[number - verdict.count : number]
        assert len(tail) == verdict.count
        match verdict.detector:
            case "generic_repeat":
                assert len(set(tail)) == 1
            case "ping_pong":
                assert len(set(tail)) == 2
                assert tail[2:] == tail[:-2]
            case "no_progress":
                assert set(tail) <= set(calls[: number - verdict.count])


@given(st.lists(_calls, max_size=30), _calls)
def test_a_call_repeated_eight_times_is_critical_whatever_came_before(calls, repeated):
    last = verdicts([*calls, *[repeated] * 8])[-1]
    assert last is not None
    assert last.level == "critical"


@given(st.lists(_calls, unique=True))
def test_calls_that_are_all_new_are_never_a_loop(calls):
    assert found(calls) == {}


def test_failing_calls_bring_no_progress_whatever_they_ask_for():
    detector, found = LoopDetector(), {}
    for number in range(1, 9):
        detector.record_call("file_read", f'{{"path": "{number}.txt"}}', f"no file {number}.txt", failed=True)
        if (verdict := detector.check()) is not None:
            found[number] = (verdict.level, verdict.detector)
    assert found == {4: ("warning", "no_progress"), 8: ("critical", "no_progress")}


def rounds_found(rounds, **thresholds):
    """Return the verdicts that are not None, by the number of the round; a round is a list of `RecordedCall`s."""
    detector, found = LoopDetector(**thresholds), {}
    for number, calls in enumerate(rounds, 1):
        detector.record_round(calls)
        if (verdict := detector.check()) is not None:
            found[number] = (verdict.level, verdict.detector)
    return found


def one(tool="search", arguments="", result="", outcome="ok", read_only=True):
    return RecordedCall(tool=tool, arguments=arguments, result=result, outcome=outcome, read_only=read_only)


def test_failures_side_by_side_count_once_and_a_success_ends_the_count():
    many = [one("file_read", f"{n}", f"no file {n}", "error") for n in range(20)]
    assert rounds_found([many] * 3) == {}
    assert (
        rounds_found(
            [
                [one("file_read", f"{n}", "no file", "error"), one("list_files", f"{n}", f"a{n}.py, b{n}.py")]
                for n in range(10)
            ]
        )
        == {}
    )


def test_equal_calls_of_one_round_count_once():
    same = one("start", "a", "text", read_only=False)
    assert rounds_found([[same] * 50]) == {}
    assert rounds_found([[same] * n for n in (1, 9, 2, 7, 1, 1, 4, 3)]) == {
        4: ("warning", "generic_repeat"),
        8: ("critical", "generic_repeat"),
    }


def test_the_order_of_calls_within_a_round_makes_no_difference():
    pair = [one("start", "a", "A", read_only=False), one("start", "b", "B", read_only=False)]
    assert rounds_found([pair, pair[::-1]] * 4)[8] == ("critical", "generic_repeat")


@pytest.mark.parametrize("result", ["", "[]", "null", "{}", "[no match in 120 files]", "(no output)\n[exit code 1]"])
def test_different_searches_with_empty_results_are_no_progress(result):
    calls = [[one("search", f'{{"query": "word {n}"}}', result)] for n in range(20)]
    assert rounds_found(calls[:8]) == {4: ("warning", "no_progress"), 8: ("critical", "no_progress")}


@pytest.mark.parametrize("result", ['{"total": 0, "items": []}', "user not found", "kommt nicht vor", "找不到"])
def test_the_same_text_for_different_searches_counts_half_whatever_it_says(result):
    calls = [[one("search", f'{{"query": "word {n}"}}', result)] for n in range(17)]
    assert rounds_found(calls) == {9: ("warning", "no_progress"), 17: ("critical", "no_progress")}


def test_a_result_that_repeats_the_arguments_is_no_progress():
    calls = [
        [one("ask", f'{{"q": "subject {n}"}}', f"I know of subject {n} as little as of all else.")] for n in range(17)
    ]
    assert rounds_found(calls) == {9: ("warning", "no_progress"), 17: ("critical", "no_progress")}


@pytest.mark.parametrize("result", ["OK", "{path}: valid", "No issues found.", '{"valid": true}', "0 vulnerabilities"])
def test_checks_that_pass_for_different_subjects_are_progress(result):
    calls = [[one("check", f'{{"path": "src/{n}.py"}}', result.replace("{path}", f"src/{n}.py"))] for n in range(40)]
    assert rounds_found(calls) == {}


@pytest.mark.parametrize(
    "result",
    [
        "false",
        "No.",
        "not valid",
        '{"exists": false}',
        "{path}: 1 warning: line too long",
        "{path}:3:1: F401 unused import",
        "2 problems (0 errors, 2 warnings)",
    ],
)
def test_verdicts_on_different_subjects_are_progress(result):
    calls = [[one("check", f'{{"path": "src/{n}.py"}}', result.replace("{path}", f"src/{n}.py"))] for n in range(40)]
    assert rounds_found(calls) == {}


def test_repeated_verdicts_on_the_same_subject_are_a_loop():
    assert rounds_found([[one("exists", '{"path": "a.py"}', "false")]] * 24)[24] == ("critical", "generic_repeat")


def test_numbers_of_files_looked_through_make_no_miss_new_but_prices_do():
    misses = [
        [one("search", f'{{"q": "subject {n}"}}', f"Went over {100 + n} files, and subject {n} was in none.")]
        for n in range(17)
    ]
    assert rounds_found(misses)[17] == ("critical", "no_progress")
    prices = [[one("shop", f'{{"q": "thing {n}"}}', f"not in stock, {100 + n} EUR")] for n in range(40)]
    assert rounds_found(prices) == {}


@pytest.mark.parametrize("result", ["not ok", '{"ok": false}', "nothing useful"])
def test_a_check_that_does_not_pass_counts_half(result):
    calls = [[one("check", f'{{"n": {n}}}', result)] for n in range(17)]
    assert rounds_found(calls)[17] == ("critical", "no_progress")


def test_failures_that_each_say_something_else_count_half():
    failures = [
        [one("run_python", f'{{"code": "step {n}"}}', f"{name}Error", "error")]
        for n, name in enumerate("ABCDEFGHIJKLMNO")
    ]
    assert rounds_found(failures) == {7: ("warning", "no_progress"), 15: ("critical", "no_progress")}
    alike = [[one("run_python", f'{{"code": "step {n}"}}', f"line {n}: NameError", "error")] for n in range(8)]
    assert rounds_found(alike)[8] == ("critical", "no_progress")


def test_a_read_whose_result_alternates_counts_a_third():
    flapping = [[one("health", "", ("up", "down")[n % 2])] for n in range(26)]
    assert rounds_found(flapping) == {14: ("warning", "no_progress"), 26: ("critical", "no_progress")}
    switched = [
        [one("set", str(n % 2), "switched", read_only=False)] if m else [one("get", "", str(n % 2))]
        for n in range(10)
        for m in (1, 0)
    ]
    assert min(rounds_found(switched)) <= 12


def test_a_hit_that_contains_the_words_of_a_miss_is_a_hit():
    found = [
        [one("search", '{"pattern": "not found"}', f"src/a.py:{n}: raise KeyError('not found')")] for n in range(20)
    ]
    assert rounds_found(found) == {}


def test_silent_commands_that_may_change_something_are_progress():
    calls = [[one("bash_exec", f"mv {n} new/", "(no output)\n[exit code 0]", read_only=False)] for n in range(30)]
    assert rounds_found(calls) == {}


def test_denials_by_the_user_are_no_loop_and_counting_restarts_after_them():
    denied = [one("bash_exec", "rm -rf build", "Denied by the user.", "denied", read_only=False)]
    assert rounds_found([denied] * 30) == {}
    same = [one("start", "a", "text", read_only=False)]
    assert rounds_found([*[same] * 3, denied, *[same] * 3]) == {}
    assert rounds_found([*[same] * 3, denied, *[same] * 8])[12] == ("critical", "generic_repeat")


def test_calls_that_a_hook_blocks_again_and_again_are_a_loop():
    blocked = [[one("file_write", f"vendor/{n}", "Blocked: not there", "blocked", read_only=False)] for n in range(8)]
    assert rounds_found(blocked)[8] == ("critical", "no_progress")


@pytest.mark.parametrize(("calls", "detector"), [("a", "generic_repeat"), ("ab", "ping_pong")])
def test_unchanged_reads_have_three_times_the_thresholds_whatever_they_say(calls, detector):
    reads = [[one("look", name, "the text")] for name in calls] * 24
    assert rounds_found(reads[:24]) == {12: ("warning", detector), 24: ("critical", detector)}


def test_only_reads_that_succeed_have_the_thresholds_of_reads():
    assert rounds_found([[one("start", "1", "pending", read_only=False)]] * 8)[8] == ("critical", "generic_repeat")
    assert rounds_found([[one("look", "1", "no file", "error")]] * 8)[8] == ("critical", "generic_repeat")
    mixed = [one("look", "1", "the text"), one("start", "1", "ok", read_only=False)]
    assert rounds_found([mixed] * 8)[8] == ("critical", "generic_repeat")


def test_a_change_of_notes_or_to_dos_and_a_new_artifact_are_progress_and_the_same_ones_are_not():
    def play(record):
        detector = LoopDetector()
        detector.record_state("", "")
        for number in range(8):
            record(detector, number)
            detector.record_round([one("search", f"{number}", "[]")])
            if (verdict := detector.check()) is not None and verdict.level == "critical":
                return verdict.detector
        return None

    assert play(lambda detector, n: detector.record_state(f"note {n}", "")) is None
    assert play(lambda detector, n: detector.record_state("", f"item {n}")) is None
    assert play(lambda detector, n: detector.record_artifact("a.html", f"<p>{n}")) is None
    assert play(lambda detector, n: detector.record_state("", "")) == "no_progress"
    detector = LoopDetector()
    for number in range(10):
        detector.record_artifact("a.html", "<p>")
        detector.record_state("ab"[number % 2], "")
        detector.record_round([one("search", f"{number}", "[]")])
    verdict = detector.check()
    assert verdict is not None
    assert (verdict.level, verdict.detector, verdict.count) == ("critical", "no_progress", 8)


def test_the_same_arguments_in_another_order_and_another_time_of_day_make_no_difference():
    written = ['{"a": 1, "b": 2}', '{"b":2,"a":1}', '{ "a": 1,\n "b": 2 }', '{"a":1, "b":2}']
    results = [f"1 failed in 0.{n}7s at 10:00:0{n}" for n in range(8)]
    calls = [[one("run", text, result, read_only=False)] for text, result in zip(written * 2, results, strict=True)]
    assert rounds_found(calls)[8] == ("critical", "generic_repeat")


@pytest.mark.ci_lane
def test_stored_state_is_bounded():
    detector, text = LoopDetector(), "x" * 100_000
    for number in range(5_000):
        detector.record_round([one("read", f"{number}", f"{number}{text[:10]}")])
        detector.record_artifact("a.html", f"{number}")
    detector.record_round([one("read", text, text)])
    stores = [value for value in vars(detector).values() if isinstance(value, dict)]
    assert [len(store) for store in stores] == [4_096] * 3
    assert max(sys.getsizeof(held) for store in stores for pair in store.items() for held in pair) < 60
