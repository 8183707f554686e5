"""The files of vaults: removed while in use, damaged, replaced, and where nothing can be written."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import sqlite3
import stat
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from agenticx.knowledge import (
    InvalidVault,
    UnknownVault,
    UserMemory,
    Vault,
    VaultIndex,
    VaultRegistry,
    Vaults,
    VaultUnreadable,
)
from tests.support.lanes import Count
from tests.support.unreplaceable import unwritable

pytestmark = pytest.mark.anyio


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "Notes"
    folder.mkdir()
    for number in range(20):
        (folder / f"{number}.md").write_text(f"# Zebra {number}\n\nThe text {number}.\n")
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
async def vaults(home: Path) -> AsyncGenerator[Vaults]:
    vaults = Vaults(home)
    yield vaults
    await vaults.close()


def open_files(home: Path) -> set[str]:
    """Return the files below the folder that this process has open, among them deleted ones."""
    names: set[str] = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            names.add(str(descriptor.readlink()))
        except FileNotFoundError:
            continue
    return {name for name in names if name.startswith(str(home))}


async def found(vault: Vault) -> tuple[int, int, int, str]:
    result = await vault.search("zebra", limit=50)
    return len(result.results), result.state.indexed, result.state.total, vault.state


@pytest.mark.ci_lane
async def test_vaults_that_are_added_and_removed_at_once_stay_whole(
    vaults: Vaults, home: Path, notes: Path, tmp_path: Path, rng: random.Random, count: Count
) -> None:
    shutil.copytree(notes, tmp_path / "Other")

    async def change() -> None:
        for _ in range(count(10, 20, 100)):
            try:
                match rng.choice(["add", "remove", "search", "search"]):
                    case "add":
                        vault, _ = await vaults.add(rng.choice([notes, tmp_path / "Other"]))
                        await vault.refresh(seconds=0)
                        await vault.summary()
                    case "remove":
                        await vaults.remove(rng.choice(await vaults.list()))
                    case _:
                        await rng.choice(await vaults.list()).search("zebra")
            except (UnknownVault, IndexError):
                continue

    await asyncio.gather(*(change() for _ in range(12)))
    for folder in (notes, tmp_path / "Other"):
        assert await found((await vaults.add(folder))[0]) == (20, 20, 20, "ready")
    if Path("/proc/self/fd").exists():
        assert [name for name in open_files(home) if "(deleted)" in name or ".removed" in name] == []
    for vault in await vaults.list():
        await vaults.remove(vault)
    assert [name for name in os.listdir(home / "vaults") if name != ".lock"] == []


@pytest.mark.ci_lane
async def test_an_index_that_several_bring_up_to_date_at_once_has_each_note_once(home: Path, notes: Path) -> None:
    for number in range(1_500):
        (notes / f"more {number}.md").write_text(f"# Heron {number}\n")
    record, _ = VaultRegistry(home).add(notes)
    file = VaultRegistry(home).index_file(record)
    indexes = [await asyncio.to_thread(VaultIndex, notes, file) for _ in range(4)]
    states = await asyncio.gather(*(asyncio.to_thread(index.refresh) for index in indexes))
    assert {(state.indexed, state.total) for state in states} == {(1_520, 1_520)}
    for index in indexes:
        index.close()


async def test_a_vault_that_another_process_removes_is_unknown_and_its_files_are_closed(
    vaults: Vaults, home: Path, notes: Path
) -> None:
    vault, _ = await vaults.add(notes)
    assert await found(vault) == (20, 20, 20, "ready")
    elsewhere = VaultRegistry(home)
    elsewhere.remove(vault.record)

    for use in (vault.search("zebra"), vault.summary(), vaults.find(vault.record.name), vaults.remove(vault)):
        with pytest.raises(UnknownVault):
            await use
    assert await vaults.list() == []
    assert open_files(home) == set()

    elsewhere.add(notes, "Again")
    again = await vaults.find("Again")
    assert await found(again) == (20, 20, 20, "ready")
    elsewhere.remove(again.record)
    elsewhere.add(notes, "Again")
    assert await found(again) == (20, 20, 20, "ready")


@pytest.mark.parametrize("damage", ["a table is gone", "the file is gone", "the file is another", "a page is garbage"])
async def test_an_index_that_is_damaged_or_replaced_while_it_is_open_is_made_anew(
    damage: str, vaults: Vaults, notes: Path
) -> None:
    vault, _ = await vaults.add(notes)
    assert await found(vault) == (20, 20, 20, "ready")
    file = vaults.registry.index_file(vault.record)
    match damage:
        case "a table is gone":
            with sqlite3.connect(file) as connection:
                connection.execute("DROP TABLE notes")
            connection.close()
        case "the file is gone":
            for each in file.parent.glob("index.db*"):
                each.unlink()
        case "the file is another":
            file.with_name("new").touch(0o600)
            file.with_name("new").replace(file)
        case _:
            with sqlite3.connect(file) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            connection.close()
            size = file.stat().st_size
            with file.open("r+b") as opened:
                opened.write(b"\xa5" * size)
            (notes / "0.md").write_text("# Zebra, changed\n")
    await vault.summary()
    assert await found(vault) == (20, 20, 20, "ready")
    assert vault.was_rebuilt is (damage != "the file is another")
    assert vault.problem is None


async def test_where_nothing_can_be_written_the_last_state_is_searched(vaults: Vaults, home: Path, notes: Path) -> None:
    vault, _ = await vaults.add(notes)
    assert await found(vault) == (20, 20, 20, "ready")
    await vaults.close()

    vault_folder = home / "vaults" / vault.record.id
    with unwritable(vault_folder):
        (vault_folder / "index.db").chmod(0o400)
        (vault_folder / ".lock").chmod(0o400)
        reading = Vaults(home)
        vault = await reading.find("Notes")
        assert await found(vault) == (20, 20, 20, "ready")  # nothing has changed
        assert vault.problem is None
        (notes / "new.md").write_text("# Zebra, new\n")
        assert await found(vault) == (20, 20, 21, "indexing")
        assert vault.problem is not None
        assert "index.db" in vault.problem
        assert "Permission denied; make it writable" in vault.problem
        (vault_folder / "index.db").chmod(0o600)
        (vault_folder / ".lock").chmod(0o600)
        vault_folder.chmod(0o700)
        assert await found(vault) == (21, 21, 21, "ready")
        assert vault.problem is None
        await reading.close()


async def test_a_vault_that_cannot_be_removed_stays_and_that_is_said(vaults: Vaults, home: Path, notes: Path) -> None:
    vault, _ = await vaults.add(notes)
    await vault.refresh()
    with unwritable(home / "vaults"):
        with pytest.raises(VaultUnreadable, match=r"'Notes' is not removed: .* Permission denied; make it writable"):
            await vaults.remove(vault)
        assert await found(await vaults.find("Notes")) == (20, 20, 20, "ready")
    await vaults.remove(vault)
    assert await vaults.list() == []


@pytest.mark.parametrize("use", ["a vault", "the memory"])
async def test_the_folders_that_are_made_are_readable_by_the_user_alone(use: str, home: Path, notes: Path) -> None:
    before = os.umask(0o022)
    try:
        if use == "a vault":
            VaultRegistry(home).add(notes)
        else:
            UserMemory(home).save("A text.", saved_at="2026-01-01T00:00:00Z")
    finally:
        os.umask(before)
    folders = [home, *(path for path in home.rglob("*") if path.is_dir())]
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o700}


async def test_a_folder_inside_or_around_a_vault_is_no_other_vault(vaults: Vaults, tmp_path: Path, notes: Path) -> None:
    (notes / "Work").mkdir()
    outside = tmp_path / "Notes of others"
    outside.mkdir()
    work, _ = await vaults.add(notes / "Work")
    with pytest.raises(InvalidVault, match=r"holds the vault 'Work' .*`agx vault remove Work`"):
        await vaults.add(notes)
    await vaults.remove(work)
    await vaults.add(notes)
    with pytest.raises(InvalidVault, match=r"lies in the vault 'Notes' .*which has its notes already: search that one"):
        await vaults.add(notes / "Work")
    assert (await vaults.add(outside))[1] is True
    assert (await vaults.add(notes, "Other name"))[0].record.name == "Notes"
