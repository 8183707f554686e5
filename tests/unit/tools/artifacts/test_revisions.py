"""Old revisions of files of a session: how many are kept, and which go first."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Collection

import pytest

from agenticx.runtime import Option, Session
from agenticx.sessions.log.tool_state import encode_state, load_files
from agenticx.tools.artifacts.files import MAX_OLD_BYTES, MAX_OLD_REVISIONS, Artifacts, MemoryContents, UnknownArtifact

pytestmark = pytest.mark.anyio

MEGABYTE = 1024 * 1024


def kept(artifacts: Artifacts, path: str) -> list[int]:
    return sorted(each.revision for each in artifacts.revisions if each.path == path)


async def written(artifacts: Artifacts, path: str, count: int, content: bytes = b"x") -> None:
    for number in range(count):
        await artifacts.write(path, b"%d %s" % (number, content))


async def test_those_go_first_that_were_current_least_recently_and_what_is_current_stays() -> None:
    artifacts = Artifacts()
    first = await artifacts.write("first.html", b"once")
    option = artifacts.branch_of({})
    await option.write("option.html", b"of an option")
    await written(artifacts, "a.html", MAX_OLD_REVISIONS + 11)
    assert kept(artifacts, "a.html") == list(range(11, MAX_OLD_REVISIONS + 12))
    await artifacts.write("first.html", b"again")  # its first revision was current until now
    assert kept(artifacts, "a.html") == list(range(12, MAX_OLD_REVISIONS + 12))
    assert kept(artifacts, "first.html") == [1, 2]
    assert kept(artifacts, "option.html") == [1]
    assert await artifacts.read(artifacts.find("first.html", 1)) == b"once"
    artifacts.return_to({"first.html": 1, "a.html": 1})
    assert artifacts.listed() == [first]
    assert (await artifacts.write("a.html", b"")).revision == MAX_OLD_REVISIONS + 12


async def test_what_is_dropped_is_said_and_its_content_deleted_unless_another_revision_has_it() -> None:
    artifacts = Artifacts()
    count = MAX_OLD_BYTES // MEGABYTE + 3
    await artifacts.write("copy.html", b"0 " + bytes(MEGABYTE))
    await written(artifacts, "a.html", count, bytes(MEGABYTE))
    assert kept(artifacts, "a.html") == list(range(4, count + 1))
    await artifacts.remove_dropped()
    stored = [artifacts.contents.read(hashlib.sha256(b"%d " % n + bytes(MEGABYTE)).hexdigest()) for n in range(6)]
    assert [content is not None for content in stored] == [True, False, False, True, True, True]
    for revision, reason in {
        2: r"^'a.html' has no revision 2; it has 84, .*103\. Others .* a session keeps 500 old revisions, 104,857,600 ",
        count + 1: "^'a.html' has no revision 104; it has 84, ",
    }.items():
        with pytest.raises(UnknownArtifact, match=reason):
            artifacts.find("a.html", revision)


async def test_the_order_outlives_the_process() -> None:
    artifacts = Artifacts()
    await artifacts.write("b.html", b"1")
    await written(artifacts, "a.html", MAX_OLD_REVISIONS)
    await artifacts.write("b.html", b"2")  # so that the first revision of a.html is the next to go
    option = artifacts.branch_of({"current": {"a.html": 2}, "own": {"a.html": [2]}})
    session = Session(artifacts=artifacts)
    session.options = [Option(1, "demo", "turn_1", "turn_0", option)]
    parts, again = encode_state(session, (0, 0)), Session(artifacts=Artifacts(artifacts.contents))
    load_files(again, parts)
    loaded = again.artifacts
    assert (loaded.current, encode_state(again, (0, 0))) == (artifacts.current, parts)
    await written(loaded, "a.html", 4)
    assert (kept(loaded, "a.html")[:3], kept(loaded, "b.html")) == ([2, 5, 6], [1, 2])


class SlowlyRemoved(MemoryContents):
    """Contents whose removal takes some steps of the event loop."""

    async def remove(self, sha256: Collection[str]) -> None:
        for _ in range(10):
            await asyncio.sleep(0)
        await super().remove(sha256)


async def test_a_content_that_is_written_again_while_it_is_removed_stays() -> None:
    artifacts = Artifacts(SlowlyRemoved())
    await written(artifacts, "a.html", MAX_OLD_REVISIONS + 5)
    removing = asyncio.create_task(artifacts.remove_dropped())
    await asyncio.sleep(0)
    again = await artifacts.write("b.html", b"0 x")
    await removing
    assert await artifacts.read(again) == b"0 x"
    await artifacts.remove_dropped()
    assert await artifacts.read(again) == b"0 x"
