"""Search of texts and sums of usage, in each store."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from agenticx import UserMessage
from agenticx.clocks import Clock, SystemClock
from agenticx.errors import SessionNotFound
from agenticx.messages import AssistantMessage, Message, SystemMessage, ToolCall, ToolMessage, clean_text
from agenticx.runtime import EventType, RuntimeEvent
from agenticx.sessions import (
    DailyUsage,
    ListedSession,
    MemoryStore,
    SearchExcerpt,
    SessionRecord,
    ShardedStore,
    SqliteStore,
    StateChange,
    Store,
    UsageCounts,
)
from agenticx.sessions.store.search import SEARCH_VERSION, SearchQuery
from agenticx.sessions.store.sqlite import (
    _search,  # what a process does that dies half-way is not to be seen from outside
)
from tests.support.commits import append, delete, update
from tests.support.lanes import Count
from tests.support.stores import created_at, in_pages
from tests.support.two_hubs import UnreliableStore

pytestmark = pytest.mark.anyio

CHANGED = RuntimeEvent(EventType.SESSION_CHANGED, {})


def in_memory(_folder: Path, clock: Clock | None = None) -> Store:
    return MemoryStore(clock)


def in_a_file(folder: Path, clock: Clock | None = None) -> Store:
    return SqliteStore(folder / "sessions.db", clock=clock)


def over_a_network(_folder: Path, clock: Clock | None = None) -> Store:
    return UnreliableStore(MemoryStore(clock), random.Random(0), repeats=True)


def over_two_databases(folder: Path, clock: Clock | None = None) -> Store:
    return ShardedStore([("memory", in_memory(folder, clock)), ("file", in_a_file(folder, clock))])


STORES: list[Callable[..., Store]] = [in_memory, in_a_file, over_a_network, over_two_databases]


async def session_with(store: Store, *messages: Message, name: str | None = None, **fields: Any) -> str:
    record = SessionRecord(name=name, workspace="/tmp", created_at=created_at(), **fields)
    await store.create(record)
    await say(store, record.id, *messages)
    return record.id


async def say(
    store: Store,
    session_id: str,
    *messages: Message,
    keep: int | None = None,
    removed: Collection[str] = (),
) -> None:
    place = len((await store.log.state(session_id)).messages)
    change = StateChange(messages, keep_messages=place if keep is None else keep, removed_texts=removed)
    await append(store, session_id, None, [CHANGED], state=change)


async def test_a_search_shows_where_each_session_was_found(store: Store) -> None:
    asked = UserMessage(content="Where do I set the\ntime-out of the confirm gate?")
    answered = AssistantMessage(
        content="With AGX_CONFIRM_TIMEOUT_SECONDS. " + "x" * 100 + " The confirmation " + "y" * 200
    )
    one = await session_with(store, asked, answered, name="About time")
    await session_with(store, UserMessage(content="Nothing of that kind"))
    two = await session_with(store, name="Confirm everything")
    assert await store.catalog.sessions(query="confirm") == [
        ListedSession(await store.catalog.get(two), None, [SearchExcerpt(None, "name", "", "Confirm", " everything")]),
        ListedSession(
            await store.catalog.get(one),
            None,
            [
                SearchExcerpt(asked.message_id, "user", "Where do I set the time-out of the ", "confirm", " gate?"),
                SearchExcerpt(
                    answered.message_id,
                    "assistant",
                    "With AGX_",
                    "CONFIRM",
                    "_TIMEOUT_SECONDS. " + "x" * 100 + " T…",
                ),
            ],
        ),
    ]


@pytest.mark.parametrize("filling", ["word ", "字", "x"])
async def test_an_excerpt_deep_in_a_long_text_is_exact(store: Store, filling: str) -> None:
    befores = dict[str, str]()
    for offset in (0, 3_990, 7_999, 8_000, 12_345, 150_000):
        before = (filling * 200_000)[:offset]
        id_ = await session_with(store, UserMessage(content=f"{before} Größe der 会议 {filling * 1000}"))
        befores[id_] = before
    matches = {hit.id: hit.matches for hit in await store.catalog.sessions(query="grosse 会议")}
    assert matches.keys() == befores.keys()
    for id_, (match,) in matches.items():
        expected = ((befores[id_] + " ")[-5:], "Größe", " der 会议 ")
        assert (match.before[-5:], match.found, match.after[:8]) == expected
    matches = {hit.id: hit.matches for hit in await store.catalog.sessions(query="会议")}
    assert matches.keys() == befores.keys()
    for match, *_ in matches.values():
        assert (match.before[-10:], match.found) == ("Größe der ", "会议")


QUERIES: list[tuple[str, list[str], list[str]]] = [
    ("Confirm the gate", ["CONF", "gate conf", "confirm the", "co ga t"], ["firm", "confirms", "gates"]),
    ("Größe der Straße, déjà vu", ["grosse", "grösse", "STRASSE", "deja", "Déjà"], ["groesse"]),
    ("call file_write(path)", ["file_write", "file-write", "write path", "file_wri"], ["write_file", "filewrite"]),
    ("明天的会议室在三楼", ["会议", "会", "议室", "会议室 三楼"], ["议会", "会室"]),
    ("プロジェクトの会議", ["会議", "ジェクト", "の"], ["議会"]),
    ("프로젝트회의에서", ["회의", "회", "프로젝트"], ["의회"]),
    ("ห้องประชุม", ["ประชุม", "ห้อง"], ["ชุมประ"]),
    ("mixed中文text", ["中文", "mixed", "text", "mixed中文"], ["ixed"]),
    ("Party 🎉 tonight", ["🎉", "party 🎉"], ["🎂"]),
    ("cafe\u0301 ＦＵＬＬ ﬁne", ["café", "cafe", "full", "fine"], []),
    ('say "AND" OR NOT (this) NEAR *', ['"and"', "or", "NOT", "near", "(this)", "*this*"], ["that"]),
    ("x" * 500, ["x" * 300, "x"], ["x" * 20 + "y"]),
    ("", [], ["", "   ", "++", "!", "a"]),
]
"""Texts, each with queries that find it and queries that do not."""


async def test_a_query_finds_the_texts_that_have_its_terms(store: Store) -> None:
    ids = [await session_with(store, UserMessage(content=text)) for text, _, _ in QUERIES]
    for id_, (_, found_by, not_found_by) in zip(ids, QUERIES, strict=True):
        for query in found_by:
            assert id_ in {one.id for one in await store.catalog.sessions(query=query)}, query
        for query in not_found_by:
            assert id_ not in {one.id for one in await store.catalog.sessions(query=query)}, query


async def test_all_terms_must_occur_in_one_text_of_the_user_or_the_model(store: Store) -> None:
    await session_with(
        store,
        UserMessage(content="apples"),
        AssistantMessage(content="pears"),
        UserMessage(content="reminder", injected=True),
        ToolMessage(tool_call_id="c", name="t", content="listing"),
        ToolMessage(tool_call_id="d", name="ask_user", content="No answer: nobody"),
        AssistantMessage(tool_calls=(ToolCall(id="e", name="ask_user", arguments="{nobody"),)),
        SystemMessage(content="summary"),
    )
    found = {query: len(await store.catalog.sessions(query=query)) for query in ("apples", "pears", "apples pears")}
    assert found == {"apples": 1, "pears": 1, "apples pears": 0}
    assert [await store.catalog.sessions(query=query) for query in ("reminder", "listing", "nobody", "summary")] == [
        []
    ] * 4


@pytest.mark.ci_lane
async def test_both_stores_return_the_same_results(tmp_path: Path, rng: random.Random, count: Count) -> None:
    alphabets = [
        "ab",
        "aB é",
        "ab_-. ",
        "会议 a",
        "가나 다",
        "กา ab",
        'a"*():^+- AND OR NOT',
        "\u0301e\u200d🎉❤\ufe0f a",
        "ßſﬁ½ ²",
    ]
    stores: list[Store] = [in_memory(tmp_path), in_a_file(tmp_path)]
    texts = ["".join(rng.choices(rng.choice(alphabets), k=rng.randint(1, 12))) for _ in range(150)]
    names: list[dict[str, int]] = []
    for store in stores:
        names.append({await session_with(store, UserMessage(content=text)): place for place, text in enumerate(texts)})
    for _ in range(count(40, 300, 5_000)):
        query = "".join(rng.choices(rng.choice(alphabets), k=rng.randint(1, 5)))
        found: list[list[tuple[int, list[tuple[str, str, str]]]]] = []
        for store, known in zip(stores, names, strict=True):
            hits = await store.catalog.sessions(query=query, limit=200)
            found.append(
                [(known[hit.record.id], [(one.before, one.found, one.after) for one in hit.matches]) for hit in hits]
            )
        assert found[0] == found[1], query
    for store in stores:
        await store.aclose()


ALPHABETS = [
    "ab",
    "aB é-_.\n",
    "会议室 a",
    "가나 กา ab",
    "a\"*():^+- & | ! <-> \\ '",
    "\u0301e\u200d🎉❤\ufe0f a\U00020000",
    "ßſﬁ½ ² İIı",
    "a b\0\x1b01\ud800",
]

LONG_TEXTS = ["ﷲﷴﷵﷶﷷ", "abcdefghij", "会议室", "ab"]


def long_text(rng: random.Random, words: str) -> str:
    """Return a text whose 200,000 characters that a search looks at are words of seven of these characters."""
    return " ".join("".join(rng.choices(words, k=7)) for _ in range(25_000)) + " beyond"


@pytest.mark.parametrize("store", [in_a_file, pytest.param("postgres", marks=pytest.mark.ci_lane)], indirect=True)
async def test_a_search_finds_exactly_the_texts_that_match(store: Store, rng: random.Random, count: Count) -> None:
    """The first of `LONG_TEXTS` has more words, the second more pairs of words than a `tsvector` can hold."""
    short = ("".join(rng.choices(rng.choice(ALPHABETS), k=rng.randint(1, 20))) for _ in range(count(20, 1_000, 10_000)))
    texts = [*short, *(long_text(rng, words) for words in LONG_TEXTS[: count(1, 4, 4)])]
    stored = dict[str, str]()
    for text in texts:
        record = SessionRecord(workspace="/tmp", created_at=created_at())
        await store.create(record, state=StateChange([UserMessage(content=text)], keep_messages=0))
        stored[record.id] = clean_text(text)
    wanted = list(stored.values())
    for number in range(count(6, 30, 300)):
        if number % 2:
            query = "".join(rng.choices(rng.choice(ALPHABETS), k=rng.randint(1, 5)))
        else:  # a piece of a text, also a long one
            text = rng.choice(wanted[-1:] if rng.random() < 0.2 else wanted)
            start = rng.randrange(len(text))
            query = text[start : start + rng.randint(1, rng.choice([4, 10, 100]))]
            query = f"{query[: len(query) // 2]} {query[len(query) // 2 :]}" if rng.random() < 0.5 else query
        terms = SearchQuery.parse(query)
        found = {hit.id for hit in await store.catalog.sessions(query=query, limit=20_000)}
        assert found == {id_ for id_, text in stored.items() if terms.matches(text)}, query


async def test_found_sessions_come_in_the_order_and_the_pages_of_the_list(store: Store) -> None:
    ids = [await session_with(store, UserMessage(content="same words")) for _ in range(5)]
    await update(store, replace(await store.catalog.get(ids[1]), pinned=True))
    await update(store, replace(await store.catalog.get(ids[3]), archived=True))

    async def found(**wanted: Any) -> list[int]:
        return [ids.index(one.record.id) for one in await store.catalog.sessions(query="word", **wanted)]

    assert await found() == [1, 4, 2, 0]
    assert await found(limit=2) == [1, 4]
    assert await found(before=ids[4]) == [2, 0]
    assert await found(archived="only") == [3]
    assert await found(archived="with", limit=3) == [1, 4, 3]
    assert await found(before="ses_unknown") == []


async def test_a_new_name_is_found_and_the_old_one_is_not(store: Store) -> None:
    session_id = await session_with(store, name="Old name")
    for name, queries in (("Other", {"old": 0, "other": 1}), (None, {"other": 0}), ("Third", {"third": 1})):
        await update(store, replace(await store.catalog.get(session_id), name=name))
        assert {query: len(await store.catalog.sessions(query=query)) for query in queries} == queries


async def test_compacted_messages_are_found_until_their_texts_are_removed(store: Store) -> None:
    first, second, third = (UserMessage(content=text) for text in ("alpha", "beta", "gamma"))
    session_id = await session_with(store, first, second, name="Letters")
    await say(store, session_id, SystemMessage(content="[compacted]"), second, third, keep=0)
    queries = ("alpha", "beta", "gamma", "letters")
    assert [len(await store.catalog.sessions(query=query)) for query in queries] == [1, 1, 1, 1]
    await say(store, session_id, keep=2, removed=[third.message_id])
    assert [len(await store.catalog.sessions(query=query)) for query in queries] == [1, 1, 0, 1]
    await say(store, session_id, third, removed=[first.message_id])
    assert [len(await store.catalog.sessions(query=query)) for query in queries] == [0, 1, 1, 1]


async def test_an_index_of_another_version_is_rebuilt(tmp_path: Path) -> None:
    store = in_a_file(tmp_path)
    session_id = await session_with(store, UserMessage(content="会议"))
    await store.aclose()
    with closing(sqlite3.connect(tmp_path / "sessions.db", isolation_level=None)) as connection:
        connection.execute("UPDATE meta SET value = 'older' WHERE key = 'search'")
        connection.execute("INSERT INTO found (found) VALUES ('delete-all')")
    again = in_a_file(tmp_path)
    assert [one.id for one in await again.catalog.sessions(query="议")] == [session_id]
    await again.aclose()
    with closing(sqlite3.connect(tmp_path / "sessions.db")) as connection:
        assert connection.execute("SELECT value FROM meta WHERE key = 'search'").fetchall() == [(SEARCH_VERSION,)]


async def test_deleted_text_is_erased_from_the_index_during_other_writes(tmp_path: Path) -> None:
    store = in_a_file(tmp_path)
    others = [await session_with(store, UserMessage(content=f"common words {number} and more")) for number in range(60)]
    secrets = ("zyxwvutsecret", "秘密会议")
    gone = await session_with(store, UserMessage(content=f"my {secrets[0]} is {secrets[1]}"), name="zyxwvutsname")
    for number in range(60):
        await say(store, others[number], AssistantMessage(content=f"later words {number}"))
    assert len(await store.catalog.sessions(query="zyxwvut")) == 1
    writing = [say(store, session_id, UserMessage(content="meanwhile")) for session_id in others[:50]]
    await asyncio.gather(delete(store, gone), *writing)
    bytes_left = b"".join(path.read_bytes() for path in sorted(tmp_path.iterdir()))
    assert [word for word in ("zyxwvut", "yxwvutsecret", "秘密会议", "秘") if word.encode() in bytes_left] == []
    assert (
        await store.catalog.sessions(query="zyxwvut"),
        len(await store.catalog.sessions(query="meanwhile", limit=100)),
    ) == ([], 50)
    await store.aclose()


async def test_a_deletion_interrupted_by_a_crash_is_completed_at_the_next_start(tmp_path: Path) -> None:
    store = in_a_file(tmp_path)
    gone = await session_with(store, UserMessage(content="zyxwvutsecret"))
    await session_with(store, UserMessage(content="stays"))
    await store.aclose()
    with closing(sqlite3.connect(tmp_path / "sessions.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA secure_delete = ON")
        (number,) = connection.execute("SELECT number FROM sessions WHERE id = ?", (gone,)).fetchone()
        _search.remove_session(connection, number)
        _search.mark_purge_pending(connection)
        connection.execute("DELETE FROM sessions WHERE number = ?", (number,))
    again = in_a_file(tmp_path)
    assert [path.name for path in tmp_path.iterdir() if b"zyxwvut" in path.read_bytes()] == []
    assert len(await again.catalog.sessions(query="stays")) == 1
    await again.aclose()


# --- usage ------------------------------------------------------------------------------------------------------------


class Calendar(SystemClock):
    """A clock with real time on a day that a test chooses."""

    day = 1

    def now(self) -> datetime:
        return datetime(2026, 3, self.day, 23, 59, tzinfo=UTC)


def used(model: str, into: int | None = 10, out: int | None = 2, **more: Any) -> RuntimeEvent:
    return RuntimeEvent(EventType.USAGE, {"input_tokens": into, "output_tokens": out, "model": model, **more})


@pytest.mark.parametrize("make", STORES)
async def test_usage_is_summed_by_session_day_and_model_until_a_deletion(
    make: Callable[..., Store], tmp_path: Path
) -> None:
    calendar = Calendar()
    store = make(tmp_path, calendar)
    one, two = [await session_with(store) for _ in range(2)]

    async def spend(session_id: str, *events: RuntimeEvent) -> None:
        await append(store, session_id, None, events)

    async def usage(**options: Any) -> Sequence[DailyUsage]:
        """Return the usage, oldest first, and that of `one` before that of `two` on the same day."""
        found = await store.catalog.usage(**options)
        assert [row.day for row in found] == sorted(row.day for row in found)
        return sorted(found, key=lambda row: (row.day, row.session_id != one))

    await spend(one, used("a", cost_usd="0.1"), used("a", cost_usd="0.2", cached_tokens=5), used("b"))
    calendar.day = 2
    await spend(one, used("a", None, None), used("a", 1, 1, reasoning_tokens=7))
    await spend(two, used("a", cost_usd="0.0000001"))
    priced = UsageCounts(calls=2, input_tokens=20, output_tokens=4, cached_tokens=5, cost_usd=Decimal("0.3"))
    rows = [
        DailyUsage(session_id=one, day="2026-03-01", model="a", counts=priced),
        DailyUsage(
            session_id=one,
            day="2026-03-01",
            model="b",
            counts=UsageCounts(calls=1, unpriced=1, input_tokens=10, output_tokens=2),
        ),
        DailyUsage(
            session_id=one,
            day="2026-03-02",
            model="a",
            counts=UsageCounts(calls=2, uncounted=1, unpriced=2, input_tokens=1, output_tokens=1, reasoning_tokens=7),
        ),
        DailyUsage(
            session_id=two,
            day="2026-03-02",
            model="a",
            counts=UsageCounts(calls=1, input_tokens=10, output_tokens=2, cost_usd=Decimal("1E-7")),
        ),
    ]
    assert await usage() == rows
    assert await usage(session_id=two) == rows[3:]
    assert await store.catalog.costs([one, two, "ses_unknown"]) == {one: Decimal("0.3"), two: Decimal("1E-7")}
    assert await store.catalog.costs([two]) == {two: Decimal("1E-7")}
    assert await usage(since="2026-03-02") == rows[2:]
    assert await usage(until="2026-03-01", session_id=one) == rows[:2]
    with pytest.raises(SessionNotFound):
        await store.catalog.usage(session_id="ses_unknown")

    past = [event._replace(session_id="ses_fork") for event in await store.log.read(one, 0, 100)]
    fork = SessionRecord(id="ses_fork", workspace="/tmp", created_at="2026-01-01T00:00:00.000Z")
    await store.create(fork, initial_events=in_pages(past))
    assert await usage() == rows
    await delete(store, two)
    assert await usage() == rows[:3]
    await store.aclose()
