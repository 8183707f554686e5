"""Properties of the SQLite store alone: persistence, size on disk, and one process at a time."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import sqlite3
import subprocess
import threading
from collections.abc import AsyncGenerator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from agenticx import UserMessage
from agenticx.errors import SettingsError, StoreError
from agenticx.runtime import EventType, RuntimeEvent
from agenticx.sessions import (
    Commit,
    Lease,
    OwnedElsewhere,
    OwnershipLost,
    Position,
    SessionRecord,
    SessionState,
    SqliteStore,
    StateChange,
    StoredEvent,
    TurnRecord,
    open_store,
    read_log_pages,
)
from agenticx.sessions.log.records import ChildTurnSaved
from agenticx.sessions.store.factory import database_path
from agenticx.sessions.store.owner import probe_owner_pid
from agenticx.sessions.store.sqlite.projections import check_projections
from agenticx.settings import load_settings
from tests.support.commits import add_fact, append, delete, load
from tests.support.forked import Process
from tests.support.program import PROGRAM
from tests.support.stores import began, session_in

pytestmark = pytest.mark.anyio


def record() -> SessionRecord:
    return SessionRecord(workspace="/tmp", tools=("file_read",), created_at="2026-01-01T00:00:00.000Z")


def token(number: int) -> RuntimeEvent:
    return RuntimeEvent(EventType.TOKEN, {"text": f"word {number} ", "message_id": "m", "offset": number})


def final() -> RuntimeEvent:
    usage = {"input_tokens": None, "output_tokens": None}
    return RuntimeEvent(EventType.FINAL, {"text": "", "message_id": "m", "reason": "answer", "usage": usage})


async def interleaved(store: SqliteStore, rounds: int) -> tuple[str, str]:
    """Create two sessions that stream at the same time, the first one's turn being over."""
    one, two = record(), record()
    for made in (one, two):
        await store.create(made)
    turn = TurnRecord(id="turn_1", session_id=one.id, input="x", client_turn_id="c")
    for number in range(rounds):
        await append(store, one.id, "turn_1", [token(number)], begins=None if number else turn)
        await append(store, two.id, "turn_2", [token(number), token(number)])
    await append(store, one.id, "turn_1", [final()])
    return one.id, two.id


async def store_with_open_turn(folder: Path) -> tuple[SqliteStore, Lease]:
    """Create a session with an open turn, whose rows are not packed yet."""
    store, made = SqliteStore(folder / "sessions.db"), record()
    await store.create(made)
    lease = await store.ownership.claim(made.id)
    turn = TurnRecord(id="turn_1", session_id=made.id, input="x")
    await lease.commit(Commit(turn_id=turn.id, begins=turn, events=[token(0)]))
    return store, lease


async def everything(store: SqliteStore, session_id: str, at_once: int) -> Sequence[StoredEvent]:
    events: list[StoredEvent] = []
    while more := await store.log.read(session_id, len(events), at_once):
        events += more
    return events


async def test_a_reopened_store_reads_the_same_bytes(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "sessions.db")
    one, two = await interleaved(store, 600)
    before = {session_id: await everything(store, session_id, 10_000) for session_id in (one, two)}
    before_all = await store.log.read_all(Position(0), 10_000)
    turn = TurnRecord(id="turn_3", session_id=two, input="x")
    kept = StateChange([UserMessage(content="x")], {"todos": "[1]"})
    await append(store, two, "turn_3", [token(0)], state=kept, begins=turn)
    call = began("call_1", "turn_3")
    await add_fact(store, two, call)
    left = await load(store, two)
    known = (store.log.log_id, await store.log.position(), await store.log.head(one), await store.catalog.get(one))
    await store.aclose()

    again = SqliteStore(tmp_path / "sessions.db")
    assert (
        again.log.log_id,
        await again.log.position(),
        await again.log.head(one),
        await again.catalog.get(one),
    ) == known
    assert await everything(again, one, 7) == before[one]
    assert (await everything(again, two, 1000))[:-1] == before[two]
    paged: list[StoredEvent] = []
    while more := await again.log.read_all(paged[-1].position if paged else Position(0), 100):
        paged += more
    assert paged[:-1] == list(before_all)
    assert await load(again, two) == left
    assert (left.main_turn, left.open_facts) == (replace(turn, after_seq=1200), [call])
    assert left.state == await again.log.state(two) == SessionState([*kept.messages], {"todos": "[1]"})
    known_turn = await again.log.turn(one, client_turn_id="c")
    assert known_turn is not None
    assert known_turn.id == "turn_1"
    await again.aclose()


async def test_large_events_are_read_in_small_batches_of_at_least_one(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "sessions.db")
    made = record()
    await store.create(made)
    large = RuntimeEvent(EventType.TOKEN, {"text": "x" * 100_000, "message_id": "m", "offset": 0})
    for turn in (None, "turn_1"):  # the first stays as it was appended, the second is packed at its end
        seq = await store.log.head(made.id)
        await append(store, made.id, turn, [large] * 20 + ([final()] if turn else []))
        await store.aclose()
        store = SqliteStore(tmp_path / "sessions.db")
        place, position = 0, Position(0)
        while place < seq + 20:
            some = await store.log.read(made.id, place, 512)
            of_all = await store.log.read_all(position, 512)
            assert 1 <= len(some) <= 5
            assert [event.seq for event in of_all] == [event.seq for event in some]
            assert some[0].seq == place + 1
            place, position = some[-1].seq, of_all[-1].position
    await store.aclose()


async def test_positions_are_not_reused_after_the_newest_session_was_deleted(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "sessions.db")
    _, two = await interleaved(store, 3)
    last = await store.log.position()
    await delete(store, two)
    await store.aclose()
    again = SqliteStore(tmp_path / "sessions.db")
    assert await again.log.position() == last
    await again.aclose()


@pytest.mark.ci_lane
async def test_a_long_answer_takes_few_rows_and_few_bytes(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "sessions.db")
    one, _ = await interleaved(store, 2000)
    frames = sum(len(event.frame_json) for event in await everything(store, one, 1000))
    await store.aclose()
    with closing(sqlite3.connect(tmp_path / "sessions.db")) as connection:
        query = "SELECT count(*), sum(length(body)) FROM segments JOIN sessions ON number = session WHERE id = ?"
        rows, size = connection.execute(query, (one,)).fetchone()
    assert rows < 20
    assert size < frames / 8


async def test_a_value_that_changes_often_is_stored_once(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "sessions.db")
    one = await session_in(store)
    for number in range(20):
        saved = ChildTurnSaved(key="t", turn_id="t", messages=(UserMessage(content=f"m{number}"),), state={})
        parts = {"variable:a": f'"{number}"', "todos": "[]"} if number % 2 else {"variable:a": f'"{number}"'}
        await append(store, one, None, [], facts=[saved], state=StateChange(parts=parts))
    assert [*(await store.log.state(one)).parts.items()] == [("variable:a", '"19"'), ("todos", "[]")]
    await store.aclose()
    with closing(sqlite3.connect(tmp_path / "sessions.db")) as connection:
        kinds = dict(connection.execute("SELECT kind, count(*) FROM records GROUP BY kind").fetchall())
    assert kinds == {"session_changed": 1, "part_changed": 2, "child_turn_saved": 1}
    assert check_projections(tmp_path / "sessions.db") == []


async def test_deleted_data_is_in_no_file(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "sessions.db")
    made = record()
    await store.create(made)
    secret = "a-word-that-stands-nowhere-else"
    told = RuntimeEvent(EventType.TOKEN, {"text": secret, "message_id": "m", "offset": 0})
    await append(store, made.id, None, [told], state=StateChange([UserMessage(content=secret)]))
    await delete(store, made.id)
    assert [path.name for path in tmp_path.iterdir() if secret.encode() in path.read_bytes()] == []
    await store.aclose()


@pytest.mark.ci_lane
async def test_the_space_of_deleted_sessions_is_freed(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "sessions.db")
    kept, made = record(), record()
    large = RuntimeEvent(EventType.TOKEN, {"text": os.urandom(500_000).hex(), "message_id": "m", "offset": 0})
    for one in (kept, made):
        await store.create(one)
    await append(store, kept.id, None, [token(0)])
    small = (tmp_path / "sessions.db").stat().st_size
    for _ in range(10):
        await append(store, made.id, None, [large])
    await delete(store, made.id)
    assert (tmp_path / "sessions.db").stat().st_size < small + 500_000
    assert len(await store.log.read(kept.id, 0, 10)) == 1
    await store.aclose()


async def test_files_of_the_store_are_accessible_to_their_owner_only(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "home" / "sessions.db")
    await store.create(record())
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "home").iterdir()}
    assert set(modes.values()) == {0o600}
    assert (tmp_path / "home").stat().st_mode & 0o777 == 0o700
    await store.aclose()


@pytest.mark.promise("A5")
async def test_a_second_owner_is_refused_with_the_process_id_of_the_first(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "sessions.db")
    with pytest.raises(OwnedElsewhere, match=f"process {os.getpid()}") as refused:
        SqliteStore(tmp_path / "sessions.db")
    assert refused.value.pid == os.getpid()
    await store.aclose()
    await SqliteStore(tmp_path / "sessions.db").aclose()


@pytest.mark.promise("A5")
@pytest.mark.parametrize("link", ["folder", "file"])
async def test_a_database_has_one_owner_also_through_links(tmp_path: Path, link: str) -> None:
    (tmp_path / "home").mkdir()
    store = SqliteStore(tmp_path / "home" / "sessions.db")
    if link == "folder":
        alias = tmp_path / "alias" / "sessions.db"
        alias.parent.symlink_to(tmp_path / "home")
    else:
        alias = tmp_path / "other.db"
        alias.symlink_to(tmp_path / "home" / "sessions.db")
    assert probe_owner_pid(alias) == os.getpid()
    with pytest.raises(OwnedElsewhere):
        SqliteStore(alias)
    await store.aclose()
    assert (
        database_path(load_settings({"store_url": f"sqlite:///{alias}"}, environ={}))
        == tmp_path / "home" / "sessions.db"
    )


async def test_a_store_reads_the_end_of_the_log_again_after_another_process_wrote(tmp_path: Path) -> None:
    store, lease = await store_with_open_turn(tmp_path)
    with closing(sqlite3.connect(tmp_path / "sessions.db")) as connection:
        line = connection.execute("SELECT body FROM commits").fetchone()[0]
        for place in (2, 3):
            connection.execute(
                "INSERT INTO commits VALUES (?, 1, ?, 'other', ?, ?)",
                (place + 1, place + 1, place, b"%d" % (place + 1) + line[1:]),
            )
        connection.commit()
    with pytest.raises(OwnershipLost):
        await lease.commit(Commit(events=[token(3)]))
    assert lease.lost.is_set()
    assert (await store.log.head(lease.session_id), await store.log.position()) == (3, 4)
    await append(store, lease.session_id, None, [token(3)])
    assert [event.position for event in await store.log.read_all(Position(0), 10)] == [2, 3, 4, 5]
    await store.aclose()


async def test_the_log_is_read_to_its_end_in_the_file_also_before_the_new_events_are_published(tmp_path: Path) -> None:
    store, lease = await store_with_open_turn(tmp_path)
    committing = asyncio.create_task(lease.commit(Commit(turn_id="turn_1", events=[token(1)])))
    await asyncio.sleep(0)
    with closing(sqlite3.connect(tmp_path / "sessions.db")) as connection:
        while connection.execute("SELECT max(last_seq) FROM commits").fetchone() != (2,):
            pass  # the loop does not run, so nothing is published
    assert not committing.done()
    assert [event.seq async for page in read_log_pages(store.log, lease.session_id, 1) for event in page] == [2]
    await committing
    await store.aclose()


async def test_a_commit_follows_what_was_loaded(tmp_path: Path) -> None:
    store, lease = await store_with_open_turn(tmp_path)
    with closing(sqlite3.connect(tmp_path / "sessions.db")) as connection:
        line = connection.execute("SELECT body FROM commits").fetchone()[0]
        connection.execute("INSERT INTO commits VALUES (100, 1, 3, 'other', 2, ?)", (b"100" + line[1:],))
        connection.commit()
    assert (await lease.load()).last_seq == 2
    (event,) = await lease.commit(Commit(events=[token(3)]))
    assert event.seq == 3
    await store.aclose()


@pytest.mark.promise("A5")
async def test_a_store_whose_lock_was_removed_writes_nothing_more(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "sessions.db")
    made = record()
    await store.create(made)
    (tmp_path / "sessions.db.owner").unlink()  # by a person who takes it for litter
    second = SqliteStore(tmp_path / "sessions.db")
    with pytest.raises(StoreError, match=r"lock .* was removed"):
        await append(store, made.id, None, [token(0)])
    with pytest.raises(StoreError, match=r"lock .* was removed"):
        await store.check()
    await append(second, made.id, None, [token(0)])
    await second.aclose()
    await store.aclose()


@pytest.mark.promise("A1")
@pytest.mark.parametrize("replaced", [False, True])
async def test_a_store_whose_file_is_gone_stores_nothing_and_raises(tmp_path: Path, replaced: bool) -> None:
    store = SqliteStore(tmp_path / "sessions.db")
    made = record()
    await store.create(made)
    lease = await store.ownership.claim(made.id)
    (tmp_path / "sessions.db").rename(tmp_path / "away.db")
    if replaced:
        (tmp_path / "sessions.db").write_bytes((tmp_path / "away.db").read_bytes())
    for refused in (
        store.create(record()),
        lease.commit(Commit(events=[token(0)])),
        store.ownership.claim(made.id),
        store.check(),
    ):
        with pytest.raises(StoreError, match="removed or replaced"):
            await refused
    await store.aclose()


async def test_the_lock_of_a_killed_process_is_taken_over(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from agenticx.sessions import SqliteStore;"
        "store = SqliteStore(Path(sys.argv[1])); print('ready', flush=True); time.sleep(60)"
    )
    with Process(PROGRAM, [script, str(tmp_path / "sessions.db")], cwd=tmp_path, env=os.environ) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "ready\n"
        with pytest.raises(OwnedElsewhere, match=f"process {first.pid}"):
            SqliteStore(tmp_path / "sessions.db")
        first.kill()
    await SqliteStore(tmp_path / "sessions.db").aclose()


async def test_a_briefly_held_lock_that_names_a_dead_process_is_waited_for(tmp_path: Path) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    lock = tmp_path / "sessions.db.owner"
    lock.write_text(json.dumps({"pid": dead.pid, "program": "agx serve"}))
    looking = os.open(lock, os.O_RDWR)
    fcntl.flock(looking, fcntl.LOCK_EX)
    threading.Timer(0.3, os.close, [looking]).start()
    store = SqliteStore(tmp_path / "sessions.db")
    assert probe_owner_pid(tmp_path / "sessions.db") == os.getpid()
    await store.aclose()


async def test_a_file_that_is_no_database_of_ours_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE notes (text)")
        connection.commit()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="another program"):
        SqliteStore(path)
    assert path.read_bytes() == before
    path.write_text("not a database at all, but long enough to look at" * 100)
    with pytest.raises(StoreError, match="file is not a database"):
        SqliteStore(path)


@pytest.mark.parametrize("name", ["50% done", "really?", "c#", "a b", "%41", "ä\udcff"])
async def test_a_database_path_may_have_special_characters(tmp_path: Path, name: str) -> None:
    folder, made = tmp_path / name, record()
    store = SqliteStore(folder / "sessions.db")
    await store.create(made)
    await store.aclose()
    again = SqliteStore(folder / "sessions.db")
    assert ([one.record for one in await again.catalog.sessions()], os.listdir(tmp_path)) == ([made], [name])
    await again.aclose()


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("folder", "is a folder, no database"),
        ("pipe", "is no regular file, no database"),
        ("text", "the file is not a database; name another one in the URL of the store"),
    ],
)
async def test_a_file_that_is_no_database_is_refused_and_no_file_is_created(
    tmp_path: Path, kind: str, said: str
) -> None:
    path = tmp_path / "it"
    match kind:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case _:
            path.write_text("root:x:0:0\n")
    with pytest.raises(StoreError, match=said):
        SqliteStore(path)
    assert os.listdir(tmp_path) == ["it"]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sqlite:////", "'/' is a folder, no database"),
        ("sqlite:////dev/null", "'/dev/null' is no regular file, no database"),
        ("sqlite:///~nobody-here/x.db", "the URL of the store is not a valid path: "),
        ("sqlite:///a\0b", "the URL of the store is not a valid path: "),
    ],
)
async def test_a_url_that_names_no_usable_file_is_refused_with_a_message(url: str, said: str) -> None:
    with pytest.raises((StoreError, SettingsError), match=said):
        open_store(load_settings({"store_url": url}, environ={}))


@pytest.mark.ci_lane
async def test_a_damaged_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    store = SqliteStore(path)
    await interleaved(store, 400)
    await store.aclose()
    content = bytearray(path.read_bytes())
    assert len(content) > 20480
    content[8192:20480] = os.urandom(12288)
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"damaged|malformed"):
        SqliteStore(path)


async def test_the_file_has_nothing_of_a_session_that_was_not_completed(tmp_path: Path) -> None:
    store, made = SqliteStore(tmp_path / "sessions.db"), replace(record(), name="made")
    old = await session_in(store)
    await append(store, old, None, [token(number) for number in range(300)])
    past = [event._replace(session_id=made.id) for event in await store.log.read(old, 0, 300)]
    found = list[int]()

    async def failing() -> AsyncGenerator[Sequence[StoredEvent]]:
        yield past
        with closing(sqlite3.connect(tmp_path / "sessions.db")) as connection:
            found.extend(connection.execute("SELECT count(*) FROM segments WHERE last_seq >= 256").fetchone())
        assert check_projections(tmp_path / "sessions.db", has_owner=True) == []
        raise StoreError("gone")

    with pytest.raises(StoreError, match="gone"):
        await store.create(made, initial_events=failing())
    with closing(sqlite3.connect(tmp_path / "sessions.db")) as connection:
        found.extend(connection.execute("SELECT count(*) FROM segments WHERE last_seq >= 256").fetchone())
        assert connection.execute("SELECT count(*) FROM sessions").fetchone() == (1,)
    assert found == [2, 0]
    await store.aclose()
