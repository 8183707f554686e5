"""Vaults over HTTP: a folder of notes is added, searched, read and forgotten."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agenticx.knowledge import VaultRegistry
from agenticx.llms import ScriptedModel
from tests.support.knowledge.embedding_server import embedding_server
from tests.support.lanes import Count
from tests.support.server.running_studio import RunningStudio, StudioMaker
from tests.support.timeouts import PATIENCE, PatientClock
from tests.support.unreplaceable import unwritable

pytestmark = pytest.mark.anyio

UNHURRIED = PatientClock({0.2: PATIENCE})
"""A clock on which a list of vaults waits until their indexes are up to date."""


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "Notes"
    (folder / "Work & more").mkdir(parents=True)
    (folder / "Lease.md").write_text("# Lease #house\n\nIt ends in May 2027. See [[Heron]].\n")
    (folder / "Work & more/Heron.md").write_text("---\ntags: [project]\n---\n# Heron\n\nThe lease costs 900 EUR.\n")
    (folder / "link.md").symlink_to("Lease.md")
    return folder


async def get(studio: RunningStudio, where: str, **query: Any) -> tuple[int, Any]:
    answer = await studio.client.get(f"/api/vaults{where}", params=query)
    return answer.status_code, answer.json()


async def add(studio: RunningStudio, **body: Any) -> tuple[int, Any]:
    answer = await studio.client.post("/api/vaults", json=body)
    return answer.status_code, answer.json()


async def test_a_vault_is_added_searched_read_and_forgotten(make_studio: StudioMaker, notes: Path) -> None:
    async with make_studio(clock=UNHURRIED) as studio:
        status, vault = await add(studio, path=str(notes))
        assert (status, vault["name"], vault["path"]) == (201, "Notes", str(notes))
        assert (await add(studio, path=str(notes)))[0] == 200
        at = f"/{vault['id']}"

        status, found = await get(studio, f"{at}/search", q="how many EUR does it cost", limit="1")
        assert (status, found["indexed"], found["total"]) == (200, 2, 2)
        assert [(row["path"], row["line_start"], row["line_end"], row["heading"]) for row in found["results"]] == [
            ("Work & more/Heron.md", 4, 6, "Heron")
        ]
        assert (await get(studio, f"{at}/search", q="lease", tag="house"))[1]["results"][0]["path"] == "Lease.md"
        _, nothing = await get(studio, f"{at}/search", q="?!")
        assert (nothing["results"], nothing["note"].partition(";")[0]) == ([], "the query has no word")
        assert "note" not in (await get(studio, f"{at}/search", q="penguin"))[1]
        assert "note" not in (await get(studio, f"{at}/search", q="", tag="house"))[1]
        assert await get(studio, at) == (200, {**vault, "notes": 2, "problems": 1, "state": "ready"})
        assert (await get(studio, f"{at}/problems"))[1] == {"problems": [{"path": "link.md", "problem": "symlink"}]}

        status, note = await get(studio, f"{at}/notes/Work%20&%20more/Heron.md")
        text = (notes / "Work & more/Heron.md").read_text()
        assert (status, note["text"], note["tags"], note["backlinks"]) == (200, text, ["project"], ["Lease.md"])
        assert (await get(studio, f"{at}/notes/Lease.md"))[1]["links"] == ["Heron"]

        decomposed = notes / "cafe\u0301.md"
        decomposed.write_text("decomposed")
        found = [(await get(studio, f"{at}/notes/caf{end}.md"))[1].get("text") for end in ("%C3%A9", "e%CC%81", "E")]
        assert found == ["decomposed", "decomposed", None]
        decomposed.unlink()

        (notes / "Lease.md").unlink()
        assert (await studio.client.post(f"/api/vaults{at}/rescan")).status_code == 202
        assert (await get(studio, f"{at}/notes/Lease.md"))[1]["code"] == "note_not_found"
        assert (await studio.client.delete(f"/api/vaults{at}")).status_code == 204
        assert await get(studio, "") == (200, {"vaults": []})
        assert (notes / "Work & more/Heron.md").read_text() == text


async def test_bad_input_is_a_problem_that_says_what_would_be_right(make_studio: StudioMaker, notes: Path) -> None:
    async with make_studio(clock=UNHURRIED) as studio:
        for path in ("/", str(notes / "Lease.md"), str(notes / "none"), "a\0b"):
            status, problem = await add(studio, path=path)
            assert (status, problem["code"]) == (422, "bad_vault"), path
        _, vault = await add(studio, path=str(notes), name="Mine")
        at = f"/{vault['id']}"
        for path, query, code in [
            ("/nope", {}, "vault_not_found"),
            (f"{at}/notes/none.md", {}, "note_not_found"),
            (f"{at}/notes/link.md", {}, "note_not_found"),
            (f"{at}/notes/../../etc/passwd", {}, "not_found"),
            (f"{at}/search", {"limit": "0"}, "bad_limit"),
            (f"{at}/search", {"q": "lease", "path": "[z-a]*"}, "bad_path"),
            (f"{at}/search", {"since": "yesterday"}, "bad_day"),
            (f"{at}/search", {"x": "1"}, "unknown_parameter"),
        ]:
            assert (await get(studio, path, **query))[1]["code"] == code, path
        notes.rename(notes.with_name("away"))
        assert (await get(studio, at))[1]["state"] == "missing"
        _, found = await get(studio, f"{at}/search", q="lease")
        assert (found["results"], "cannot be read" in found["problem"]) == ([], True)
        status, problem = await get(studio, f"{at}/notes/Lease.md")
        assert (status, problem["code"], "is missing" in problem["detail"]) == (503, "vault_unreadable", True)
        _, found = await get(studio, f"{at}/problems")
        assert "is missing" in found["problem"]


async def test_a_vault_without_a_usable_index_is_listed_and_the_others_work(
    make_studio: StudioMaker, notes: Path, tmp_path: Path
) -> None:
    other = tmp_path / "Other"
    other.mkdir()
    (other / "Flat.md").write_text("The lease of the flat.")
    async with make_studio(clock=UNHURRIED) as studio:
        broken = VaultRegistry(tmp_path / "home").add(notes)[0]
        VaultRegistry(tmp_path / "home").index_file(broken).mkdir()
        _, works = await add(studio, path=str(other))
        _, again = await add(studio, path=str(notes))
        _, listed = await get(studio, "")
        assert [(row["name"], row["state"], row["notes"]) for row in listed["vaults"]] == [
            ("Notes", "missing", 0),
            ("Other", "ready", 1),
        ]
        assert again == listed["vaults"][0]
        assert "or remove what is there: it is made anew from the notes" in again["problem"]
        for path in ("search?q=lease", "problems", "notes/Lease.md"):
            status, problem = await get(studio, f"/{broken.id}/{path}")
            assert (status, problem["code"], problem["detail"]) == (503, "vault_unreadable", again["problem"])
        assert (await get(studio, f"/{broken.id}"))[0] == 200
        assert (await studio.client.post(f"/api/vaults/{broken.id}/rescan")).status_code == 202
        assert len((await get(studio, f"/{works['id']}/search", q="lease"))[1]["results"]) == 1

        damaged = tmp_path / "home/vaults" / works["id"] / "vault.json"
        record = damaged.read_bytes()
        damaged.write_text("{")
        _, listed = await get(studio, "")
        assert [row["name"] for row in listed["vaults"]] == ["Notes"]
        assert listed["problem"].startswith(f"damaged: {damaged}; remove its folder")
        assert str(damaged) in (await get(studio, f"/{works['id']}"))[1]["detail"]
        damaged.write_bytes(record)

        VaultRegistry(tmp_path / "home").index_file(broken).rmdir()
        assert (await get(studio, f"/{broken.id}/notes/Lease.md"))[0] == 200
        assert "problem" not in (await get(studio, f"/{broken.id}"))[1]
        assert (await studio.client.delete(f"/api/vaults/{broken.id}")).status_code == 204


@pytest.mark.ci_lane
async def test_vaults_that_are_added_and_removed_at_once_stay_whole(
    make_studio: StudioMaker, notes: Path, tmp_path: Path, rng: random.Random, count: Count
) -> None:
    async with make_studio(clock=UNHURRIED) as studio:
        statuses: Counter[int] = Counter()

        async def change() -> None:
            for _ in range(count(6, 12, 60)):
                vaults = (await get(studio, ""))[1]["vaults"]
                at = f"/api/vaults/{vaults[0]['id']}" if vaults else "/api/vaults/none"
                match rng.choice(["add", "add", "remove", "search", "rescan", "problems"]):
                    case "add":
                        answer = await studio.client.post("/api/vaults", json={"path": str(notes)})
                    case "remove":
                        answer = await studio.client.delete(at)
                    case "rescan":
                        answer = await studio.client.post(f"{at}/rescan")
                    case what:
                        answer = await studio.client.get(f"{at}/{what}")
                statuses[answer.status_code] += 1

        await asyncio.gather(*(change() for _ in range(12)))
        assert statuses.keys() <= {200, 201, 202, 204, 404}, statuses
        _, vault = await add(studio, path=str(notes))
        found = (await get(studio, f"/{vault['id']}/search", q="lease"))[1]
        assert (len(found["results"]), found["indexed"], found["total"]) == (2, 2, 2)
        assert (await get(studio, f"/{vault['id']}"))[1]["state"] == "ready"


async def test_a_vault_that_another_process_removes_is_not_found(
    make_studio: StudioMaker, notes: Path, tmp_path: Path
) -> None:
    async with make_studio(clock=UNHURRIED) as studio:
        _, vault = await add(studio, path=str(notes))
        assert len((await get(studio, f"/{vault['id']}/search", q="lease"))[1]["results"]) == 2
        registry = VaultRegistry(tmp_path / "home")
        registry.remove(registry.find("Notes"))
        for where in ("", "/search?q=lease", "/problems", "/notes/Lease.md"):
            assert (await get(studio, f"/{vault['id']}{where}"))[1]["code"] == "vault_not_found"
        assert (await studio.client.delete(f"/api/vaults/{vault['id']}")).status_code == 404
        assert (await add(studio, path=str(notes)))[0] == 201
        assert len((await get(studio, f"/{vault['id']}/search", q="lease"))[1]["results"]) == 2


async def test_a_vault_that_cannot_be_removed_or_is_in_another_is_a_problem(
    make_studio: StudioMaker, notes: Path, tmp_path: Path
) -> None:
    async with make_studio(clock=UNHURRIED) as studio:
        _, vault = await add(studio, path=str(notes))
        status, again = await add(studio, path=str(notes), name="Mine")
        assert (status, again["id"], again["name"]) == (200, vault["id"], "Notes")
        status, problem = await add(studio, path=str(notes / "Work & more"))
        assert (status, problem["code"], "lies in the vault 'Notes'" in problem["detail"]) == (422, "bad_vault", True)
        with unwritable(tmp_path / "home/vaults"):
            answer = await studio.client.delete(f"/api/vaults/{vault['id']}")
            assert (answer.status_code, answer.json()["code"]) == (503, "vault_unreadable")
            assert "'Notes' is not removed" in answer.json()["detail"]
        assert (await get(studio, f"/{vault['id']}/search", q="lease"))[1]["indexed"] == 2


async def test_the_context_of_a_session_has_the_sizes_of_its_layers(make_studio: StudioMaker, notes: Path) -> None:
    model = ScriptedModel(["One.", "Two."])
    async with make_studio(model) as studio:
        session_id = await studio.session(system_prompt="Be brief.")
        path = f"/api/sessions/{session_id}/context"
        before = (await studio.client.get(path)).json()
        await add(studio, path=str(notes))
        turn = {"input": "What about the [[Lease]]?", "mode": "vault"}
        cursor = (await studio.client.post(f"/api/sessions/{session_id}/turns", json=turn)).json()["cursor"]
        await studio.events_until(session_id, "final", cursor=cursor)
        after = (await studio.client.get(path)).json()

    def sizes(context: Any) -> dict[str, int]:
        return {row["layer"]: row["characters"] for row in context["layers"]}

    assert sizes(before) == {"L1 System": 9, "L2 Notes": 0, "L3 Smart": 0, "L4 History": 0, "L5 Raw": 0}
    assert before["messages"] == 0
    pinned = (notes / "Lease.md").read_text().rstrip()
    assert sizes(after) | {"L3 Smart": 0} == {
        "L1 System": 9,
        "L2 Notes": len(pinned),
        "L3 Smart": 0,
        "L4 History": len("What about the [[Lease]]?One."),
        "L5 Raw": 0,
    }
    digests = {row["layer"]: row["sha256"] for row in after["layers"]}
    assert digests["L2 Notes"] == hashlib.sha256(pinned.encode()).hexdigest()
    assert after["tools"]["characters"] > before["tools"]["characters"] > 1_000


async def test_search_by_meaning_waits_for_the_persons_consent(
    make_studio: StudioMaker, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numpy", reason="needs numpy, of the extra embeddings")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-long-enough-4711")
    async with make_studio(embedding_model="openai:text-embedding-3-small") as studio:
        _, vault = await add(studio, path=str(notes))
        status = {"model": "openai:text-embedding-3-small", "host": "api.openai.com", "consent": "needed"}
        assert status.items() <= vault["embeddings"].items()
        at = f"/api/vaults/{vault['id']}"
        refused = await studio.client.patch(at, json={"embeddings": False})
        assert (refused.status_code, refused.json()["embeddings"]["consent"]) == (200, "refused")
        assert (await studio.client.patch(at, json={"embeddings": "yes"})).status_code == 422
        assert (await studio.client.patch("/api/vaults/none", json={"embeddings": True})).status_code == 404

    with embedding_server() as server:
        monkeypatch.setenv("OLLAMA_HOST", server.address)
        async with make_studio(embedding_model="ollama:vectors") as studio:
            _, vault = await add(studio, path=str(notes))
            status, found = await get(studio, f"/{vault['id']}/search", q="what does my landlord want")
            assert (status, len(found["results"])) == (200, 3)  # none of them has a word of the query
            server.status = 503
            status, found = await get(studio, f"/{vault['id']}/search", q="which landlord")
            assert (status, found["results"]) == (200, [])
            assert found["embedding_note"].endswith("the notes are searched by words alone")
            embeddings = (await get(studio, f"/{vault['id']}"))[1]["embeddings"]
            assert (embeddings["consent"], embeddings["embedded"], embeddings["passages"]) == ("not_needed", 3, 3)
            assert embeddings["problem"].startswith("the embedding model cannot be used now")
