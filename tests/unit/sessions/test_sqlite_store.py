"""Properties of the SQLite store alone: persistence, size on disk, and one process at a time."""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import subprocess
import threading
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from agenticx.errors import SettingsError, StoreError
from agenticx.messages import SystemMessage, UserMessage
from agenticx.runtime.events import EventType, RuntimeEvent
from agenticx.sessions import (
    Commit,
    Fact,
    OwnedElsewhere,
    OwnershipLost,
    SessionRecord,
    SessionState,
    SqliteStore,
    StateChange,
    StoredEvent,
    TurnRecord,
)
from agenticx.sessions.store.factory import database_path, open_store
from agenticx.sessions.store.records import Position, encode_events
from agenticx.sessions.store.sqlite import probe_owner_pid
from agenticx.sessions.store.sqlite._segments import encode_segments
from agenticx.sessions.store.sqlite.migrations import MIGRATIONS, migrate
from agenticx.settings import load_settings
from tests.support.commits import add_fact, append, delete, load
from tests.support.forked import Process
from tests.support.program import PROGRAM

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
    kept = StateChange([UserMessage(content="x")], "{}")
    await append(store, two, "turn_3", [token(0)], state=kept, begins=turn)
    began = Fact(kind="call_began", key="call_1", turn_id="turn_3", data={"name": "bash_exec"})
    await add_fact(store, two, began)
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
    assert (left.running, left.open_facts) == (replace(turn, after_seq=1200), [began])
    assert left.state == await again.log.state(two) == SessionState([*kept.messages], "{}")
    known_turn = await (await again.ownership.claim(one)).turn(client_turn_id="c")
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


async def test_a_long_answer_takes_few_rows_and_few_bytes(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "sessions.db")
    one, _ = await interleaved(store, 2000)
    frames = sum(len(event.frame_json) for event in await everything(store, one, 1000))
    await store.aclose()
    with closing(sqlite3.connect(tmp_path / "sessions.db")) as connection:
        query = "SELECT count(*), sum(length(body)) FROM events JOIN sessions ON number = session WHERE id = ?"
        rows, size = connection.execute(query, (one,)).fetchone()
    assert rows < 20
    assert size < frames / 8


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
    store = SqliteStore(tmp_path / "sessions.db")
    made = record()
    await store.create(made)
    lease = await store.ownership.claim(made.id)
    await lease.commit(Commit(events=[token(0)]))
    with closing(sqlite3.connect(tmp_path / "sessions.db")) as connection:
        line = connection.execute("SELECT body FROM fresh").fetchone()[0]
        for place in (2, 3):
            connection.execute("INSERT INTO fresh VALUES (?, 1, ?, ?)", (place, place, b"%d" % place + line[1:]))
        connection.commit()
    with pytest.raises(OwnershipLost):
        await lease.commit(Commit(events=[token(3)]))
    assert lease.lost.is_set()
    assert (await store.log.head(made.id), await store.log.position()) == (3, 3)
    await append(store, made.id, None, [token(3)])
    assert [event.position for event in await store.log.read_all(Position(0), 10)] == [1, 2, 3, 4]
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
    (tmp_path / "sessions.db").rename(tmp_path / "away.db")
    if replaced:
        (tmp_path / "sessions.db").write_bytes((tmp_path / "away.db").read_bytes())
    for refused in (store.create(record()), append(store, made.id, None, [token(0)]), store.check()):
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


async def test_a_database_from_before_search_is_indexed(tmp_path: Path) -> None:
    path, made, named = tmp_path / "sessions.db", record(), replace(record(), name="A name", pinned=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrate(connection, "2026-01-01T00:00:00.000Z", MIGRATIONS[:1])
        for one in (named, made):
            connection.execute("INSERT INTO sessions (id, record) VALUES (?, ?)", (one.id, json.dumps(asdict(one))))
        said = (UserMessage(content="会议"), UserMessage(content="reminder", injected=True), SystemMessage(content="x"))
        for place, message in enumerate(said):
            connection.execute("INSERT INTO messages VALUES (2, ?, ?)", (place, message.model_dump_json()))
    store = SqliteStore(path)
    found = [[one.record.id for one in await store.catalog.search(query)] for query in ("议", "name", "reminder", "x")]
    assert found == [[made.id], [named.id], [], []]
    assert list(await store.catalog.sessions()) == [named, made]
    await delete(store, made.id)
    await store.aclose()


async def test_a_database_from_before_compacted_messages_stores_them_from_now_on(tmp_path: Path) -> None:
    path, made = tmp_path / "sessions.db", record()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrate(connection, "2026-01-01T00:00:00.000Z", MIGRATIONS[:2])
        connection.execute("INSERT INTO sessions (id, record) VALUES (?, ?)", (made.id, json.dumps(asdict(made))))
        said = SystemMessage(content="[compacted] Summary of 9 earlier messages:\nx")
        connection.execute("INSERT INTO messages VALUES (1, 0, ?)", (said.model_dump_json(),))
    store = SqliteStore(path)
    assert list((await store.log.state(made.id)).messages) == [said]
    assert await store.log.compacted_messages(made.id) == ()
    kept = StateChange([], compacted=[said], keep_compacted=0)
    await append(store, made.id, None, [final()], state=kept)
    await store.aclose()
    again = SqliteStore(path)
    assert await again.log.compacted_messages(made.id) == (said,)
    await again.aclose()


def add_frame(
    connection: sqlite3.Connection, position: int, session: int, seq: int, turn: str, type_: str, data: dict[str, Any]
) -> None:
    """Store an event in a row of its own, as it is appended."""
    event = RuntimeEvent(EventType(type_), data)
    (stored,) = encode_events(f"ses_{session}", turn, [event], seq=seq - 1, position=position - 1, ts="2026-01-01")
    (segment,) = encode_segments([stored], compressed=False)
    connection.execute("INSERT INTO fresh VALUES (?, ?, ?, ?)", (position, session, seq, segment.body))


def write_journal_database(path: Path) -> None:
    """Write a database of the release before facts.

    In session 1 a turn waits for an answer, in session 2 one was claimed only, and session 3 is idle.
    """
    journal = [
        (1, "turn_1", "asked", "cnf_1", {"id": "cnf_1", "digest": "d"}),
        (1, "turn_1", "answered", "cnf_1", {"approved": True}),
        (1, "turn_1", "closed", "cnf_1", {"approved": True, "by": "user"}),
        (1, "turn_1", "began", "turn_1 c", {"call_id": "c", "name": "note", "arguments": {}}),
        (1, "turn_1", "process", "turn_1 c", {"call_id": "c", "pid": 7}),
        (1, "turn_1", "asked", "cnf_2", {"id": "cnf_2", "digest": "d"}),
        (1, "turn_9", "posted", "ses_1 m", {"message": {}}),
        (2, "turn_2", "named", "turn_2", {"name": "x"}),
        (3, "turn_3", "taken", "ses_3 m", {"state": "started", "after_seq": 0}),
        (3, "turn_3", "told", "turn_3", {}),
    ]
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrate(connection, "2026-01-01T00:00:00.000Z", MIGRATIONS[:3])
        for number in (1, 2, 3):
            made = replace(record(), id=f"ses_{number}")
            running = f"turn_{number}" if number < 3 else None
            connection.execute(
                "INSERT INTO sessions (id, record, running) VALUES (?, ?, ?)",
                (made.id, json.dumps(asdict(made)), running),
            )
        turns = [
            (1, "turn_1", "c1", "one", "", 1),
            (2, "turn_2", "c2", "two", "", None),
            (3, "turn_3", "c3", "x", "", 0),
        ]
        connection.executemany(
            "INSERT INTO turns (session, id, client_turn_id, input, attached, after_seq) VALUES (?, ?, ?, ?, ?, ?)",
            turns,
        )
        connection.executemany(
            "INSERT INTO journal (session, turn, kind, key, data) VALUES (?, ?, ?, ?, ?)",
            ((*entry, json.dumps(data)) for *entry, data in journal),
        )
        add_frame(connection, 1, 1, 1, "turn_0", "token", token(0).data)
        for seq, id_ in ((2, "cnf_1"), (3, "cnf_2")):
            add_frame(
                connection, seq, 1, seq, "turn_1", "confirm_required", {"id": id_, "question": "?", "context": {}}
            )


async def test_the_facts_of_a_journal_are_those_of_the_sessions(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    write_journal_database(path)
    store = SqliteStore(path)
    loaded = await load(store, "ses_1")
    assert loaded.running == TurnRecord(id="turn_1", session_id="ses_1", input="one", client_turn_id="c1", after_seq=1)
    assert [(fact.kind, fact.key) for fact in loaded.open_facts] == [
        ("question_asked", "cnf_1"),
        ("question_answered", "cnf_1"),
        ("question_closed", "cnf_1"),
        ("call_began", "turn_1 c"),
        ("process_started", "turn_1 c"),
        ("question_asked", "cnf_2"),
        ("message_posted", "ses_1 m"),
    ]
    assert (loaded.open_facts[3].data["name"], loaded.facts_damaged, loaded.last_seq) == ("note", False, 3)
    (question,) = await store.catalog.open_questions()  # its fact does not say where the event is
    assert (question.seq, json.loads(question.frame_json)["data"]["id"]) == (3, "cnf_2")
    assert await store.catalog.session_of("question_asked", "cnf_2") == "ses_1"
    assert await store.catalog.running_turns(["ses_1", "ses_2", "ses_3"]) == {"ses_1": "turn_1"}
    assert [session_id async for session_id in store.ownership.orphans()] == ["ses_2"]  # `load` has claimed `ses_1`

    claimed = await store.ownership.claim("ses_2")
    assert await claimed.turn(client_turn_id="c2") is None
    again = await claimed.load()
    assert (again.running, [fact.kind for fact in again.open_facts]) == (None, ["name_derived"])
    turn = TurnRecord(id="turn_5", session_id="ses_2", input="two", client_turn_id="c2")
    announced = Fact(kind="name_announced", key="turn_2", turn_id="turn_2")
    await claimed.commit(Commit(turn_id="turn_5", events=[token(0)], begins=turn, facts=[announced]))
    assert (await claimed.load()).open_facts == []
    idle = await store.ownership.claim("ses_3")
    assert await idle.fact("message_taken", "ses_3 m") is not None
    assert await idle.fact("name_announced", "turn_3") is not None
    await store.aclose()


async def test_a_database_of_a_newer_release_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    await SqliteStore(path).aclose()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO migrations VALUES ('9999 what is to come', '2027-01-01T00:00:00Z')")
        connection.commit()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="newer AgenticX"):
        SqliteStore(path)
    assert path.read_bytes() == before
    assert {one.name for one in tmp_path.iterdir()} == {"sessions.db", "sessions.db.owner"}


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
    assert (list(await again.catalog.sessions()), os.listdir(tmp_path)) == ([made], [name])
    await again.aclose()


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("folder", "is a folder, no database"),
        ("pipe", "is no regular file, no database"),
        ("text", "the file is not a database; name another one in AGX_STORE_URL"),
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
        ("sqlite:///~nobody-here/x.db", "AGX_STORE_URL is not a valid path: "),
        ("sqlite:///a\0b", "AGX_STORE_URL is not a valid path: "),
    ],
)
async def test_a_url_that_names_no_usable_file_is_refused_with_a_message(url: str, said: str) -> None:
    with pytest.raises((StoreError, SettingsError), match=said):
        open_store(load_settings({"store_url": url}, environ={}))


async def test_a_damaged_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    store = SqliteStore(path)
    await interleaved(store, 2000)
    await store.aclose()
    content = bytearray(path.read_bytes())
    content[8192:20480] = os.urandom(12288)
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"damaged|malformed"):
        SqliteStore(path)
