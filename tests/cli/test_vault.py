"""`agx vault` and `agx mode`: notes added, searched and forgotten, and the mode of a prompt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agenticx.knowledge import VaultRegistry
from tests.support.knowledge.embedding_server import embedding_server


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "Notes"
    folder.mkdir()
    (folder / "Lease.md").write_text("# Lease\n\nIt ends in May 2027.\n\x1b[31m\n")
    (folder / "link.md").symlink_to("Lease.md")
    return folder


def test_a_vault_is_added_searched_and_forgotten(agx: Any, notes: Path) -> None:
    added = agx("vault", "add", str(notes), "--json")
    vault = json.loads(added.stdout)
    assert (added.returncode, added.stderr) == (0, "")
    assert vault == {
        "id": vault["id"],
        "name": "Notes",
        "path": str(notes),
        "notes": 1,
        "problems": 2,
        "state": "ready",
    }
    again = agx("vault", "add", str(notes))
    assert again.stdout == f"Notes  {notes}  1 note, 2 problems  ready\n"
    assert again.stderr == f"agx vault: {notes} is the vault 'Notes' already\n"

    found = agx("vault", "search", "Notes", "when does the lease end")
    assert (found.returncode, found.stdout) == (
        0,
        "Lease.md:1  Lease\n    # Lease\n    It ends in May 2027.\n    ⟨U+001B⟩[31m\n\n",
    )
    row = json.loads(agx("vault", "search", vault["id"], "lease", "--json").stdout)
    assert (row["path"], row["line_start"], row["line_end"], row["matched"]) == ("Lease.md", 1, 4, ["lease"])
    assert agx("vault", "search", "Notes", "?!").stderr.startswith("agx vault: the query has no word; give words")
    missing = agx("vault", "search", "Notes", "penguin")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert agx("vault", "problems", "Notes").stdout == (
        "Lease.md: has control characters; indexed\nlink.md: a symbolic link; not followed\n"
    )

    (notes / "utf16.md").write_text("It ends in June.", encoding="utf-16")
    told = agx("vault", "problems", "Notes").stdout.splitlines()[-1]
    assert (
        told == "utf16.md: not UTF-8; indexed as UTF-16 if a byte order mark says so, else with replacement characters"
    )

    (notes / "utf16.md").unlink()
    assert agx("vault", "remove", "Notes").returncode == 0
    assert agx("vault").stderr == "agx vault: there is no vault; `agx vault add PATH` adds a folder of notes\n"
    assert sorted(path.name for path in notes.iterdir()) == ["Lease.md", "link.md"]


@pytest.mark.ci_lane
def test_a_missing_folder_and_an_unusable_index_are_said(agx: Any, notes: Path, tmp_path: Path) -> None:
    (tmp_path / "Other").mkdir()
    (tmp_path / "Other/Flat.md").write_text("The lease.")
    for folder in (notes, tmp_path / "Other"):
        agx("vault", "add", str(folder))
    notes.rename(tmp_path / "away")
    for command in (["search", "Notes", "lease"], ["problems", "Notes"]):
        done = agx("vault", *command)
        assert done.returncode == 1
        assert "Notes' is missing" in done.stderr
        assert "last state" not in done.stderr
        assert "nothing found" not in done.stderr
        assert "no problems" not in done.stderr
    assert agx("ask", "When does the lease end?").stderr.startswith(f"agx ask: the folder '{notes}' of the vault")

    registry = VaultRegistry(tmp_path / "home")
    index = registry.index_file(registry.find("Other"))
    for file in index.parent.glob("index.db*"):
        file.unlink()
    index.mkdir()
    listed = agx("vault", "list")
    assert listed.returncode == 0
    assert [line.split()[-1] for line in listed.stdout.splitlines()] == ["missing", "missing"]
    assert "remove what is there: it is made anew from the notes" in listed.stderr
    rows = [json.loads(line) for line in agx("vault", "list", "--json").stdout.splitlines()]
    assert [(row["name"], row["state"], "problem" in row) for row in rows] == [
        ("Notes", "missing", True),
        ("Other", "missing", True),
    ]
    registry_file = index.with_name("vault.json")
    record = registry_file.read_bytes()
    registry_file.write_text("[]")
    assert f"{registry_file} is damaged; remove its folder" in agx("vault", "list").stderr
    registry_file.write_bytes(record)
    searched = agx("vault", "search", "Other", "lease")
    assert (searched.returncode, "Traceback" in searched.stderr) == (1, False)


def test_what_cannot_be_a_vault_is_refused_with_what_would_be_right(agx: Any, notes: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    for path, words in {
        "/": "is too much for a vault",
        str(tmp_path.parent): "holds or lies in the folder of AgenticX",
        str(home): "holds or lies",
        str(notes / "Lease.md"): "is not a folder",
        str(notes / "no"): "does not exist",
        "/proc/self": "belongs to the system",
    }.items():
        refused = agx("vault", "add", path)
        assert (refused.returncode, refused.stdout) == (2, ""), path
        assert words in refused.stderr
    assert agx("vault", "search", "nope", "x").stderr.startswith(
        "agx: unknown vault 'nope'; known vaults: none; add one"
    )


WITHOUT_RIGHTS = "from tests.support.unreplaceable import drop_file_capabilities; drop_file_capabilities()"
FULL_DISK = """
from pathlib import Path
from tests.support.faults.disk import Disk, arm, install
install(Disk("trace", "control"))
arm(Path("control"), "ENOSPC", {nth}, seconds=6000)
"""


@pytest.mark.ci_lane
def test_a_vault_that_cannot_be_removed_is_an_error(agx: Any, notes: Path, tmp_path: Path) -> None:
    agx("vault", "add", str(notes))
    vaults = tmp_path / "home/vaults"
    vaults.chmod(0o500)
    kept = agx("vault", "remove", "Notes", prepare=WITHOUT_RIGHTS)
    assert (kept.returncode, kept.stdout) == (1, "")
    assert kept.stderr.startswith("agx: the vault 'Notes' is not removed: ")
    assert kept.stderr.endswith("Permission denied; make it writable\n")
    vaults.chmod(0o700)
    assert agx("vault", "search", "Notes", "lease").returncode == 0
    assert agx("vault", "remove", "Notes").returncode == 0


@pytest.mark.ci_lane
def test_without_the_right_to_write_the_last_state_is_searched(agx: Any, notes: Path, tmp_path: Path) -> None:
    agx("vault", "add", str(notes))
    folders = [tmp_path / "home", tmp_path / "home/vaults", *(tmp_path / "home/vaults").glob("vault_*")]
    for file in folders[-1].iterdir():
        file.chmod(0o400)
    for folder in folders:
        folder.chmod(0o500)
    listed = agx("vault", prepare=WITHOUT_RIGHTS)
    assert (listed.returncode, listed.stderr) == (0, "")
    assert listed.stdout.endswith("1 note, 2 problems  ready\n")
    (notes / "Flat.md").write_text("The lease of the flat.")
    found = agx("vault", "search", "Notes", "lease", prepare=WITHOUT_RIGHTS)
    assert (found.returncode, found.stdout.count("Lease.md:1")) == (0, 1)
    assert "cannot be brought up to date" in found.stderr
    assert "Permission denied; make it writable" in found.stderr
    assert found.stderr.count("\n") == 2
    for folder in folders:
        folder.chmod(0o700)


@pytest.mark.ci_lane
@pytest.mark.parametrize("nth", [1, 30])
def test_a_full_disk_is_said_and_the_other_vaults_are_searched(agx: Any, notes: Path, tmp_path: Path, nth: int) -> None:
    agx("vault", "add", str(notes))
    large = tmp_path / "Large"
    large.mkdir()
    for number in range(700):
        (large / f"{number}.md").write_text(f"# Lease {number}\n" + "some words of it\n" * 50)
    prepare = f"import sys; sys.path.insert(0, {str(Path.cwd())!r})\n{FULL_DISK.format(nth=nth)}"
    added = agx("vault", "add", str(large), prepare=prepare)
    assert added.returncode == 1
    assert "index.db' cannot be used: No space left on device; free some space" in added.stderr
    assert "Traceback" not in added.stderr
    assert added.stdout.split()[-1] in ("missing", "indexing")

    listed = agx("vault", "list", prepare=prepare)
    assert (listed.returncode, "Traceback" in listed.stderr) == (0, False)
    assert [line.split()[0] for line in listed.stdout.splitlines()] == ["Large", "Notes"]
    assert listed.stdout.endswith("1 note, 2 problems  ready\n")
    assert agx("vault", "search", "Notes", "lease", prepare=prepare).stdout.startswith("Lease.md:1  Lease\n")
    assert agx("vault", "rescan", "Large").stdout.endswith("700 notes  ready\n")


@pytest.mark.ci_lane
def test_a_vault_keeps_its_name_and_an_index_that_is_made_anew_is_said(agx: Any, notes: Path, tmp_path: Path) -> None:
    agx("vault", "add", str(notes))
    again = agx("vault", "add", str(notes), "--name", "Mine")
    assert again.stderr == f"agx vault: {notes} is the vault 'Notes' already; it keeps that name until it is removed\n"
    (index,) = (tmp_path / "home/vaults").glob("*/index.db")
    index.write_bytes(b"garbage" * 5_000)
    searched = agx("vault", "search", "Notes", "lease")
    assert searched.stderr == "agx vault: the index of 'Notes' was damaged or old, and was made anew\n"
    notes.rename(tmp_path / "away")
    for command in (["search", "Notes", "lease"], ["problems", "Notes"], ["rescan", "Notes"]):
        missing = agx("vault", *command)
        assert (missing.returncode, missing.stderr.count("\n")) == (1, 1)
        assert missing.stderr.startswith("agx vault: ")
    asked = agx("ask", "What do my notes say about the lease?").stderr
    assert (asked.startswith("agx ask: the folder"), asked.count("missing"), "WARNING" in asked) == (True, 1, False)


@pytest.mark.ci_lane
def test_the_mode_of_a_prompt_is_explained(agx: Any) -> None:
    explained = json.loads(agx("mode", "explain", "What do my notes say about the lease?", "--vault", "--json").stdout)
    assert explained == {"kind": "vault", "reason": "it asks about your notes", "certain": True}
    assert agx("mode", "explain", "Hello!").stdout == "chat: it is small talk\n"


def test_a_message_for_notes_is_not_sent_without_a_vault(agx: Any) -> None:
    done = agx("chat", stdin="/vault When does it end?\n")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "not sent: there is no vault of notes; `agx vault add PATH` adds one\n"


@pytest.mark.ci_lane
def test_a_command_before_a_message_of_a_chat_chooses_its_mode(agx: Any, notes: Path) -> None:
    agx("vault", "add", str(notes))
    lines = ["/vault", "/vault When does it end?", "/chat  What do my notes say?", "/agent What do my notes say?"]
    done = agx("chat", stdin="\n".join([*lines, "What is a lease?\n"]))
    assert "/vault TEXT sends the message TEXT in mode vault\n" in done.stderr

    events = [json.loads(line) for line in agx("sessions", "export", "last").stdout.splitlines()]
    started = [event["data"] for event in events if event.get("type") == "turn_started"]
    assert [(data["input"], data["mode"], data["mode_reason"] == "the user chose it") for data in started] == [
        ("When does it end?", "vault", True),
        ("What do my notes say?", "chat", True),
        ("What do my notes say?", "agent", True),
        ("What is a lease?", "chat", False),
    ]


def test_an_answer_from_notes_is_followed_by_its_citations(agx: Any, notes: Path) -> None:
    (notes / "Flat.md").write_text("# Flat\n\nThe lease ends in May 2027.\n")
    agx("vault", "add", str(notes))
    answered = agx("ask", "When does the lease end?")
    assert answered.returncode == 0
    assert answered.stdout.endswith(" verified  Flat.md:3  The lease ends in May 2027.\n")
    without = agx("ask", "Hello!")
    assert without.returncode == 0
    assert without.stderr.endswith("no sentence of the answer is cited from a note\n")
    assert "[^" not in without.stdout
    for arguments in (["add", ""], ["search", "Notes", " "]):
        refused = agx("vault", *arguments)
        assert (refused.returncode, "it must not be empty" in refused.stderr) == (2, True)


@pytest.mark.ci_lane
def test_search_by_meaning_is_set_up_at_the_command_line(agx: Any, notes: Path) -> None:
    pytest.importorskip("numpy", reason="needs numpy, of the extra embeddings")
    agx.environment |= {"AGX_EMBEDDING_MODEL": "openai:vectors", "OPENAI_API_KEY": "sk-canary-long-enough-4711"}
    added = agx("vault", "add", str(notes))
    assert "is not sent to api.openai.com until you allow it with `agx vault embeddings Notes allow`" in added.stderr
    refused = agx("vault", "embeddings", "Notes", "refuse")
    assert refused.stdout == "Notes  openai:vectors at api.openai.com  refused  0 of 1 passage compared by meaning\n"
    assert agx("vault", "search", "Notes", "lease").stderr == ""

    with embedding_server() as server:
        agx.environment |= {"AGX_EMBEDDING_MODEL": "ollama:vectors", "OLLAMA_HOST": server.address}
        found = agx("vault", "search", "Notes", "what does my landlord want")
        assert (found.returncode, found.stdout.splitlines()[0]) == (0, "Lease.md:1  Lease")
    unreachable = agx("vault", "search", "Notes", "what does my landlord want")
    assert "the embedding model cannot be used now" in unreachable.stderr
    assert agx("vault", "rescan", "Notes").returncode == 0
    shown = json.loads(agx("vault", "embeddings", "Notes", "--json").stdout)
    assert (shown["consent"], shown["embedded"], shown["passages"]) == ("not_needed", 1, 1)
    del agx.environment["AGX_EMBEDDING_MODEL"]
    assert "name one in AGX_EMBEDDING_MODEL" in agx("vault", "embeddings", "Notes").stderr


@pytest.mark.ci_lane
def test_citations_of_several_vaults_name_them_and_an_unknown_number_is_said(
    agx: Any, notes: Path, provider: Any
) -> None:
    other = notes.parent / "Other"
    other.mkdir()
    (other / "Lease.md").write_text("# Lease\n\nThe lease costs 900 EUR.\n")
    agx("vault", "add", str(notes))
    agx("vault", "add", str(other))
    answer = "It ends in May 2027 [^1]. It costs 900 EUR [^2]. `[^8]` is code, “a [^7]” quoted, [^99] is nothing."
    delta = {"choices": [{"index": 0, "delta": {"content": answer}, "finish_reason": "stop"}]}
    provider.events(json.dumps(delta), "[DONE]")
    agx.environment |= {"OPENAI_API_KEY": "sk-canary-long-enough-4711", "OPENAI_BASE_URL": provider.base_url}
    asked = agx("ask", "What do my notes say about the lease?", "-m", "openai-chat:x")
    lines = asked.stdout.splitlines()[-2:]
    assert {line.partition("  ")[2].partition(":")[0] for line in lines} == {"Notes", "Other"}
    assert asked.stderr.endswith("without a passage of a note: [^99]\n")
