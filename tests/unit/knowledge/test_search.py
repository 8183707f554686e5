"""Search in notes: questions to public vaults, filters, phrases, and results as the notes are now."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agenticx.knowledge import VaultIndex, search_notes
from tests.support.knowledge.questions import answer_questions

NOTES = {
    "Work/Heron.md": "---\ntags: project\n---\n# Heron\n\nThe budget for the lease is 40,000 EUR.\n",
    "Work/Crane.md": "# Crane #project/old\n\nThe lease of the crane ends in May. The budget is open.\n",
    "House/Lease.md": "# Lease\n\nSee [[Heron]]. The landlord lives in Lisbon.\n",
    "日記/京都.md": "# 京都\n\n清水寺は朝7時に行くのが良い。\n",
}


@pytest.fixture
def index(tmp_path: Path) -> VaultIndex:
    for path, text in NOTES.items():
        file = tmp_path / "vault" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    index = VaultIndex(tmp_path / "vault", tmp_path / "index.db")
    index.refresh()
    return index


@pytest.mark.ci_lane
def test_questions_find_the_passages_that_answer_them(tmp_path: Path) -> None:
    shares = answer_questions(tmp_path)

    assert shares.span >= 0.80
    assert shares.note >= 0.84
    assert shares.languages >= 8 / 9


@pytest.mark.parametrize(
    ("query", "options", "found"),
    [
        ("lease", {}, ["House/Lease.md", "Work/Crane.md", "Work/Heron.md"]),
        ("what is the", {}, ["Work/Crane.md", "Work/Heron.md", "House/Lease.md"]),  # stop words alone are words
        ('"budget for the lease"', {}, ["Work/Heron.md"]),
        ('"budget of the lease"', {}, []),
        ("budget [[Heron]]", {}, ["Work/Heron.md"]),
        ("[[heron]]", {}, ["Work/Heron.md", "Work/Heron.md"]),
        ("budget #project", {}, ["Work/Crane.md", "Work/Heron.md"]),
        ("budget #project/old", {}, ["Work/Crane.md"]),
        ("budget", {"tags": ["project"]}, ["Work/Crane.md", "Work/Heron.md"]),
        ("lease", {"path": "Work"}, ["Work/Crane.md", "Work/Heron.md"]),
        ("lease", {"path": "work/heron"}, ["Work/Heron.md"]),
        ("lease", {"path": "**/*e.md"}, ["House/Lease.md", "Work/Crane.md"]),
        ("lease", {"limit": 1}, ["House/Lease.md"]),
        ("lease", {"since": datetime(2100, 1, 1, tzinfo=UTC)}, []),
        ("清水寺", {}, ["日記/京都.md"]),
        ("京都の朝", {}, ["日記/京都.md"]),
        ("?! … ()", {}, []),
        ('"""" [[ #', {}, []),
        ("NEAR(a b) OR NOT * ^lease", {}, ["House/Lease.md", "Work/Crane.md", "Work/Heron.md"]),
    ],
)
def test_queries_and_their_filters(index: VaultIndex, query: str, options: dict[str, Any], found: list[str]) -> None:
    assert sorted(result.passage.path for result in search_notes(index, query, **options)) == sorted(found)


def test_a_result_is_read_from_the_note_as_it_is_now(index: VaultIndex) -> None:
    file = index.root / "Work/Heron.md"
    file.write_text(file.read_text().replace("40,000", "50,000"))
    stale = search_notes(index, "budget EUR lease")
    index.refresh()
    fresh = search_notes(index, "budget EUR lease", path="Work/Heron.md")

    assert ["Heron" in result.passage.path for result in stale] == [False, False]
    assert (fresh[0].passage.line_start, fresh[0].passage.line_end) == (4, 6)
    assert fresh[0].passage.text == "# Heron\n\nThe budget for the lease is 50,000 EUR."
    assert fresh[0].matched == ("budget", "eur", "lease")


def test_words_in_another_form_and_tags_in_another_spelling_match(index: VaultIndex) -> None:
    (index.root / "Cafe.md").write_text("---\ntags: [Cafe\u0301/, '#one']\n---\nHe was leasing houses.\n")
    index.refresh()

    (result,) = search_notes(index, "leases of a house, lisbon", path="cafe")
    assert result.matched == ("leases", "house")
    for tag in ("Caf\u00e9", "#cafe\u0301", "ONE/"):
        assert [result.passage.path for result in search_notes(index, "leasing", tags=[tag])] == ["Cafe.md"], tag


def test_links_lead_back(index: VaultIndex) -> None:
    (heron,) = index.find_notes("Heron")
    assert index.backlinks(heron) == ["House/Lease.md"]
    assert [note.path for note in index.find_notes("work/heron.md")] == ["Work/Heron.md"]


LINKS = {
    "user/features/templates.md": "# Templates",
    "user/features/a (1).md": "# One",
    "user/start/Work plan.md": "# Plan",
    "other/templates.md": "# Others",
    "user/start/first.md": (
        "[a](../features/templates.md#part) [b](<Work plan.md>) [c](Work%20plan.md 'title') ![d](../features/x.md)\n"
        "[e](../features/a%20(1).md) [f](https://x.org/templates.md)\n[g](../../../templates.md) [[../start/first]]"
    ),
    "other/reference.md": "See [it][1].\n\n[1]: <../user/start/Work plan.md> 'Plan'\n",
    "other/near.md": "[x](./templates.md) [y](user/start/first.md)",
    "wiki.md": "[[features/templates]] [[Work plan]] [[user/../x.md]]",
}


def test_links_lead_to_notes_from_their_folder_and_back(tmp_path: Path) -> None:
    for path, text in LINKS.items():
        file = tmp_path / "vault" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    index = VaultIndex(tmp_path / "vault", tmp_path / "index.db")
    index.refresh()

    backlinks = {note.path: index.backlinks(note) for note in index.all_notes()}
    assert {path: sources for path, sources in backlinks.items() if sources} == {
        "user/features/templates.md": ["user/start/first.md", "wiki.md"],
        "user/features/a (1).md": ["user/start/first.md"],
        "user/start/Work plan.md": ["other/reference.md", "user/start/first.md", "wiki.md"],
        "other/templates.md": ["other/near.md"],
        "user/start/first.md": ["other/near.md"],
    }
    (first,) = index.find_notes("user/start/first.md")
    linked = {name: [note.path for note in index.linked_notes(first.path, name)] for name in first.structure["links"]}
    assert linked == {
        "../features/templates.md": ["user/features/templates.md"],
        "Work plan.md": ["user/start/Work plan.md"],
        "../features/a (1).md": ["user/features/a (1).md"],
        "../../../templates.md": [],
        "../start/first": ["user/start/first.md"],
    }


def test_a_colour_or_anchor_in_a_query_limits_it_to_no_tag(index: VaultIndex) -> None:
    for query in ("color #fff of the lease", "lease [x](#lease)", "lease #12"):
        assert len(search_notes(index, query)) == 3, query
    assert search_notes(index, "lease #nothing") == []


def test_notes_whose_paths_differ_in_suffix_case_or_unicode_form_are_told_apart(tmp_path: Path) -> None:
    names = ["todo.md", "todo.txt", "todo.txt.md", "Cased.md", "cased.md", "caf\u00e9.md", "cafe\u0301.md"]
    for folder in ("", "Sub.md/"):
        (tmp_path / "vault" / folder).mkdir(parents=True, exist_ok=True)
        for name in names:
            (tmp_path / "vault" / folder / name).write_text(f"zebra {folder}{name}\n")
    index = VaultIndex(tmp_path / "vault", tmp_path / "index.db")
    index.refresh()

    for path in (*names, *(f"Sub.md/{name}" for name in names)):
        assert [note.path for note in index.find_notes(path)] == [path]
        assert [note.path for note in index.find_notes(f"./{path}")] == [path]
        assert [result.passage.path for result in search_notes(index, "zebra", path=path)] == [path]
    assert [note.path for note in index.notes_at("todo")] == ["todo.md", "todo.txt"]
    both = ["Sub.md/todo.md", "Sub.md/todo.txt", "todo.md", "todo.txt"]
    assert [note.path for note in index.find_notes("todo")] == both  # a name means the notes of all folders
    assert [note.path for note in index.find_notes("TODO.TXT")] == ["todo.txt"]
    assert [note.path for note in index.find_notes("CASED.md")] == ["Cased.md", "cased.md"]
    assert len(search_notes(index, "zebra", path="sub.md", limit=50)) == len(names)
