"""The benchmarks run at the smallest scale; their figures are not judged."""

from __future__ import annotations

import shutil

import pytest

from tests.benchmarks.__main__ import measure
from tests.benchmarks.paced_streams import Load, Token, tokens_of
from tests.benchmarks.rows import Row, Scale, table
from tests.benchmarks.server_rows import carried
from tests.support.postgres.cluster import requires_postgres
from tests.support.server.chromium import CHROMIUM

SMALL = Scale(
    repeats=1,
    tokens=50,
    paced_tokens=10,
    turns=2,
    rounds=2,
    messages=20,
    team_messages=10,
    readers=3,
    sessions=3,
    notes=20,
    streams=(1, 2),
    further_streams=(),
    stock_streams=(2,),
    stream_tokens=10,
    workers=(1, 2),
    job_seconds=0.3,
    snapshot_seconds=0.5,
    page_events=100,
    page_tokens=20,
)


@pytest.mark.parametrize(
    ("section", "names"),
    [
        (
            "engine",
            [
                "provider byte → RuntimeEvent, burst, per token",
                "tool round (instant tool)",
                "fixed cost of a turn",
                "history, per message and model call",
            ],
        ),
        (
            "wires",
            [
                f"provider byte → delta, {wire}, burst, per chunk"
                for wire in ("openai_chat", "openai_responses", "anthropic", "gemini", "ollama")
            ],
        ),
        (
            "store",
            [
                "durable append at 50 streaming sessions, per event",
                "a bare group commit of 50 streams, per row",
                "commit of a message after 10 others",
                "commit of a message after 10,000 others",
                "commit of a file's revision after 10 others",
                "commit of a file's revision after 2,000 others",
                "wait for the log at 32 streaming sessions, median",
                "wait for the log at 32 streaming sessions, 99 of 100",
                "rows of an answer of 2,000 tokens",
                "sessions of 4 turns in a GB",
                "open a log of 1,250 events",
                "resume at the tail of 1,250 events",
                "replay from the disk",
                "replay of all sessions from the disk",
                "list of sessions during a replay, the longest of 20",
            ],
        ),
        (
            "studio",
            [
                "provider byte → durable log → SSE byte, burst, per token",
                "provider byte → durable log → SSE byte, paced, per token",
                "fan-out to 1 readers, per event and reader",
                "fan-out to 10 readers, per event and reader",
                "fan-out to 3 readers, per event and reader",
                "memory per idle session",
                "memory per open stream",
            ],
        ),
        (
            "teams",
            [
                "a message in a team of 5, beside autogen-agentchat",
                "tokens of a speech of 2, second half of 50",
                "tokens of a speech of 5, second half of 50",
                "tokens of a speech of 10, second half of 50",
            ],
        ),
        (
            "notes",
            [
                "first index of 20 notes, CPU",
                "memory of the first index of 20 notes",
                "index of 20 notes",
                "rescan of 20 notes without changes, CPU",
                "search in 20 notes, CPU, p50",
                "search in 20 notes limited to half of them, CPU, p50",
                "search in 20 notes, p99",
                "a token of a streaming turn beside an index run, p99 added",
            ],
        ),
        (
            "artifacts",
            [
                "a call of create_file with a live preview, per token",
                "bytes of its artifact events",
                "4 options at once, beside one",
            ],
        ),
        pytest.param(
            "commands",
            ["assessment of a command without git", "assessment of git status"],
            marks=pytest.mark.skipif(shutil.which("git") is None, reason="no git is installed"),
        ),
        pytest.param(
            "page",
            [
                "page: first paint",
                "a page of the guide, without JavaScript: first paint",
                "page: JavaScript before the first message, as it is sent",
                "page: all JavaScript, which is loaded by the time it is idle",
                "page, a session of a few events: its newest turn is shown",
                "page, a session of a few events: it has all turns",
                "the same events, read without showing them",
                "page, 200 tokens per second: main thread, per token",
                "the same text in one text node",
                "page, 200 tokens per second: longest task",
                "the same text in one text node: longest task",
                "page, 200 tokens per second: 95th frame of 100",
                "the same text in one text node: 95th frame of 100",
                "page, 200 tokens per second: 95th key of 100, until it is painted",
                "the same text in one text node: 95th key of 100",
                "page, 200 tokens per second: elements at the end",
                "page, a turn: layout shift while it streams",
                "page, a turn: layout shift when it ends",
                "page, a decision: from its event until it is painted",
                "a frame without a change",
                "page, four variants at once: 95th frame of 100",
                "page, a few events: opened and shown",
                "page, a few events: folded, without elements",
                "page, a few events: longest task",
                "page, a few events: elements",
                "page, a few events: heap",
                "page, no events: heap",
                "page, a few events: 95th frame of 100 while scrolling",
                "an empty page: 95th frame of 100",
            ],
            marks=pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
        ),
        ("imports", ["import Agent", "import AgentRuntime", "memory after it"]),
        (
            "server",
            [
                "a paced stream through agx serve, CPU per token",
                "a paced stream through agx serve, p50",
                "a paced stream through agx serve, p99",
                "2 paced streams through agx serve, CPU per token",
                "2 paced streams through agx serve, p50",
                "2 paced streams through agx serve, p99",
                "10-ms streams through agx serve on one core, p99 ≤ 50 ms",
                "2 paced streams through agx serve, httpx readers, CPU per token",
                "2 paced streams through agx serve, httpx readers, p50",
                "2 paced streams through agx serve, httpx readers, p99",
            ],
        ),
    ],
)
@pytest.mark.cases(quick=0)
def test_every_figure_is_measured(section: str, names: list[str]) -> None:
    assert [row.name for row in measure(section, SMALL)] == names


@requires_postgres
@pytest.mark.cases(quick=0)
@pytest.mark.parametrize("section", ["postgres"])
def test_every_figure_of_postgres_is_measured(section: str) -> None:
    names = [
        *("stored", "client CPU per commit", "server CPU per commit", "commit, p50", "commit, p99"),
        *("server CPU per commit with a reader", "reader, p50", "reader, p99"),
        *(f"{side} CPU of packing per commit, after its turn" for side in ("client", "server")),
    ]
    assert [row.name for row in measure(section, SMALL)] == [
        *(f"1 PostgreSQL worker, {name}" for name in names),
        *(f"2 PostgreSQL workers, {name}" for name in names),
        "server CPU per commit under a snapshot of 0.5 s",
        "1,000 token events in PostgreSQL",
    ]


def test_the_streams_carried_are_the_most_up_to_which_all_are_in_time() -> None:
    late = {20: 5, 1: 2, 60: 60, 100: 40}
    assert carried({streams: Load(90, 1, p99, 0.5) for streams, p99 in late.items()}) == 20


def test_a_token_arrives_with_the_piece_in_which_its_stamp_is_complete() -> None:
    first, second = b"%019d" % 5, b"%019d" % 7
    pieces = [(10, b"head " + first + b" " + second[:4]), (20, second[4:]), (30, b" end " + first + b" " + second)]
    assert tokens_of(pieces, 2) == [Token(sent=5, arrived=10), Token(sent=7, arrived=20)]
    with pytest.raises(RuntimeError, match="4 of 5 tokens arrived"):
        tokens_of(pieces, 5)


def test_a_figure_is_compared_with_the_budgets_as_a_ratio_to_its_floor_or_directly() -> None:
    rows = [
        Row(name="token", value=30, unit="µs", floor=2, first_light=15, goal=3),
        Row(name="streams", value=150, unit="streams", first_light=150, goal=500, at_least=True),
        Row(name="import", value=0.4, unit="s", first_light=0.35),
    ]
    assert [line.split() for line in table(rows).splitlines()] == [
        ["measured", "×", "floor", "first", "light", "goal"],
        ["token", "30", "µs", "15.0×", "≤", "15×", "met", "≤", "3×", "MISSED"],
        ["streams", "150", "streams", "≥", "150", "met", "≥", "500", "MISSED"],
        ["import", "0.4", "s", "≤", "0.35", "MISSED", "–"],
    ]
