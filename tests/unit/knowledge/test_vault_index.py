"""The index of a vault: notes and their passages, and its content after any changes."""

from __future__ import annotations

import random
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agenticx.knowledge import VaultIndex, VaultMissing, parse_note, search_notes
from tests.support.knowledge.data import write_odd_vault
from tests.support.lanes import Count


def indexed(root: Path, file: Path) -> VaultIndex:
    index = VaultIndex(root, file)
    index.refresh()
    return index


def content(index: VaultIndex) -> dict[str, list[tuple[Any, ...]]]:
    """Return all that an index has, without ids and versions of files."""
    of_note, order = "JOIN notes ON notes.id = note_id", "ORDER BY notes.path, line_start, cut_start"
    selected = {
        "notes": "path, title, sha256, problem, structure FROM notes ORDER BY path",
        "passages": f"path, heading, headings, line_start, line_end, passages.sha256 FROM passages {of_note} {order}",
        "texts": f"path, text FROM texts {of_note} ORDER BY path",
        "tags": f"path, tag FROM tags {of_note} ORDER BY path, tag",
        "links": f"path, target_key FROM links {of_note} ORDER BY path, target_key",
        "words": f"path, line_start, term, col, offset FROM word_terms JOIN passages ON passages.id = doc {of_note} "
        f"{order}, col, offset",
        "names": "path, term, col, offset FROM name_terms JOIN notes ON notes.id = doc ORDER BY path, col, offset",
    }
    for table, terms in (("words", "word_terms"), ("names", "name_terms")):
        index.query(f"CREATE VIRTUAL TABLE IF NOT EXISTS temp.{terms} USING fts5vocab(main, {table}, instance)")
    return {table: index.query(f"SELECT {selection}") for table, selection in selected.items()}


def test_each_odd_file_is_indexed_or_skipped_with_its_problem(tmp_path: Path) -> None:
    rows = write_odd_vault(tmp_path / "vault")
    index = indexed(tmp_path / "vault", tmp_path / "index.db")

    notes, problems = {note.path for note in index.all_notes()}, index.problems()
    assert {
        row["path"]: ("indexed" if row["path"] in notes else "skipped", problems.get(row["path"])) for row in rows
    } == {row["path"]: (row["expect"], row["problem"]) for row in rows}
    hidden = {"quail", "rhea", "emu"}
    for row in rows:
        for word in re.findall(r"hello (\w+)", row.get("text", ""))[:1]:
            found = [result.passage.path for result in search_notes(index, word)]
            assert (row["path"] in found) == (row["expect"] == "indexed"), (row["path"], found, hidden)
    assert [note.path for note in index.find_notes("name")] == ["other/name.md", "same/name.md"]
    assert [note.path for note in index.find_notes("NFD-Café")] == [next(path for path in notes if "nfd" in path)]
    assert search_notes(index, "empty")[0].passage.path == "empty.md"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["lf", "crlf", "cr"])
def test_a_passage_is_a_section_with_the_lines_that_an_editor_shows(end: str) -> None:
    text = (
        "---\ntags: [a]\n---\n# Title\n\nfirst\n\n## Part\n\n- second\n\n```\n# no heading\n```\n\n" + "x" * 1300 + "\n"
    )
    note = parse_note("n.md", text.replace("\n", end))

    assert [(p.heading, p.headings, p.line_start, p.line_end) for p in note.passages] == [
        (None, (), 1, 3),
        ("Title", ("Title",), 4, 6),
        ("Part", ("Title", "Part"), 8, 16),
    ]
    assert note.passages[1].text(note.lines) == "# Title\n\nfirst"
    assert (note.title, note.tags) == ("Title", ("a",))


def test_long_sections_are_split_at_blank_lines_outside_of_fences_and_short_neighbours_joined() -> None:
    paragraph = "word " * 100 + "\n\n"
    fence = "```\n" + "code\n\n" * 400 + "```\n\n"
    text = f"# One\n\n{paragraph * 6}# Two\n\n{fence}# Three\n\nshort\n\n# Four\n\nshort\n"
    note = parse_note("n.md", text)

    texts = [span.text(note.lines) for span in note.passages]
    assert [(span.heading, len(text)) for span, text in zip(note.passages, texts, strict=True)] == [
        ("One", 1511),
        ("One", 1504),
        ("Two", 2414),
        ("Three", 29),
    ]
    assert "".join(texts).count("```") == 2
    assert texts[-1] == "# Three\n\nshort\n\n# Four\n\nshort"


@pytest.mark.parametrize(
    ("text", "most"),
    [
        ("".join(f"2026-01-01 line {number} of a log\n" for number in range(3_000)), 2_000),
        ("# Items\n\n" + "".join(f"- item {number}\n  and more\n" for number in range(2_000)), 2_000),
        ("# Table\n\n| a | b |\n|---|---|\n" + "".join(f"| row {n} | {'x' * 50} |\n" for n in range(2_000)), 2_000),
        ("# Rows\n\n| a | b |\n|---|---|\n" + f"| {'cell ' * 1_300} | b |\n" * 9, 6_600),
        ("# Fence\n\n```\n" + "code\n" * 1_500 + "```\n\nAfter.\n", 8_000),
        ("# Long fence\n\n```\n" + "code\n\n" * 3_000 + "```\n\nAfter.\n", 2_000),
        ("# One line of code\n\n```\n" + "var a; " * 9_000 + "\n```\n", 4_000),
        ("# HTML\n\n<table>\n" + "<tr><td>cell</td></tr>\n" * 3_000 + "</table>\n", 2_000),
        ("> quoted line of text\n" * 20_000, 2_000),
        ("word " * 9_000, 4_000),
    ],
    ids=["log", "list", "table", "wide rows", "fence", "long fence", "code in a line", "HTML", "large note", "line"],
)
def test_all_of_a_note_without_blank_lines_is_in_small_passages(text: str, most: int) -> None:
    note = parse_note("n.txt", text)

    texts = [span.text(note.lines) for span in note.passages]
    assert max(map(len, texts)) <= most
    assert len(texts) < 2 + len(text) / 1_000
    assert "".join("".join(texts).split()) == "".join(text.split())
    if "Rows" in text:
        assert all(span.cut is None for span in note.passages)


def test_lists_and_tables_are_split_between_items_and_rows_and_fences_stay_whole() -> None:
    items = "".join(f"- item {number}\n  {'and more ' * 9}\n" for number in range(100))
    fence = "```\n" + "code of some kind\n" * 300 + "```\n"
    note = parse_note("n.md", f"Before.\n{items}\nText of a paragraph.\n{fence}Text.\n" + "line of text\n" * 100)

    texts = [span.text(note.lines) for span in note.passages]
    assert all(text.startswith(("- item", "Before.", "Text")) for text in texts[:-1])
    assert sum(text.count("```") for text in texts if fence.rstrip() in text) == 2


def test_marks_are_read_outside_of_code_only() -> None:
    text = (
        "---\ntags: one, two/deep\naliases: [Other]\n---\n#Three and #four/five, not #12 nor a#b `#code`\n\n"
        "[[Note|shown]] ![[Picture#part]] [text](Sub/file.md#h) ^block-1\n\n```\n#fenced [[fenced]]\n```\n"
    )
    note = parse_note("n.md", text)

    assert (note.tags, note.aliases) == (("one", "two/deep", "three", "four/five"), ("Other",))
    assert (note.links, note.embeds, note.block_ids) == (("Note", "Sub/file.md"), ("Picture",), ("block-1",))


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        (
            "#one, (#two) #three/four. #five-6 #_x 、#日本、",
            "one two three/four five-6 _x 日本",
        ),
        (
            "#Café #cafe\u0301 #हिन्दी",
            "café हिन्दी",
        ),
        ("[Intro](#intro) [x](a.md#part) [[#part]] [[Note#part]]", ""),
        ("[ref]: #intro", ""),
        ('see <a href="#top" style=\'color: #abcdef\'>up</a>, or href="#end"', ""),
        ("#fff #ff00aa #FF00AA80 #fafafa #aabbcc #123 #1984 #/ #- a#b \\#no", ""),
        ("#cafe #facade #bad #deadbeef", "cafe facade bad deadbeef"),
        ("https://x.org/#top https://x.org/a?b=#top ## Part { #part }", ""),
    ],
)
def test_tags_are_those_of_the_text_alone(text: str, tags: str) -> None:
    assert parse_note("n.md", text).tags == tuple(tags.split())


@pytest.mark.parametrize(
    ("line", "aliases"),
    [
        ("aliases: One, Other name ,", ("One", "Other name")),
        ("aliases: [One, 'A, B', 3]", ("One", "A, B", "3")),
        ("alias: One", ("One",)),
        ("aliases: ' , '", ()),
    ],
)
def test_aliases_are_a_list_or_names_with_commas(line: str, aliases: tuple[str, ...]) -> None:
    assert parse_note("n.md", f"---\n{line}\n---\n").aliases == aliases


def test_headings_are_those_of_the_parser_whether_or_not_a_note_needs_it(rng: random.Random, count: Count) -> None:
    pieces = ["# a", "## b #", "#c", "####### d", "#\te\t##", "###", "# #", "x", "- y", "-", "---", "===", "1. z", "1)"]
    pieces += [
        "* * *",
        "-   w",
        "- # v",
        "> u",
        "    t",
        "```",
        "<p>",
        "<!--",
        "-->",
        "\tq",
        "#tag #n",
        "+ r\xa0",
        "\x0c",
    ]
    for _ in range(count(600, 10_000, 100_000)):
        lines = [rng.choice([*pieces[: rng.choice([8, 13, 27])], "", ""]) for _ in range(rng.randint(1, 9))]
        note, parsed = (parse_note("n.md", "\n".join(["q", *lines, *end])) for end in ([], ["", "> a quote"]))
        assert (note.sections, note.tags) == (parsed.sections, parsed.tags), lines


def test_a_large_note_is_read_line_by_line_with_the_same_headings_and_fences() -> None:
    part = "## P\n\n> #tag\n\n````md\n# no heading #code\n```\n````\n\n- item\n\n~~~\n[[no]]\n~~~ \n\n[[Note]]\n\n"
    small, large = parse_note("n.md", part * 50), parse_note("n.md", part * 4_000)
    assert large.sections[:50] == small.sections
    assert (len(large.sections), large.tags, large.links) == (4_000, ("tag",), ("Note",))
    assert (small.tags, small.links) == (large.tags, large.links)
    assert large.passages[:3] == small.passages[:3]


def test_after_changes_of_all_kinds_and_stopped_runs_the_index_equals_a_fresh_one(
    tmp_path: Path, rng: random.Random, count: Count
) -> None:
    root = tmp_path / "vault"
    root.mkdir()
    index = VaultIndex(root, tmp_path / "index.db")
    words = [f"word{number}" for number in range(60)]

    for step in range(count(150, 500, 5_000)):
        notes = sorted(path for path in root.rglob("*.md"))
        target = root / f"{rng.choice('abc')}/{rng.choice('abc')}/n{rng.randrange(40)}.md"
        target.parent.mkdir(parents=True, exist_ok=True)
        text = "".join(rng.choices(["# {}\n", "{} ", "#{} ", "[[n{}]] ", "\n\n", "```\n"], k=12)).format(
            *rng.choices(words, k=12)
        )
        match rng.choice(["write", "write", "edit", "move", "delete"]) if notes else "write":
            case "write":
                target.write_text(text)
            case "edit":
                rng.choice(notes).write_text(text)  # often of the same size within one tick of the clock
            case "move":
                rng.choice(notes).rename(target)
            case _:
                rng.choice(notes).unlink()
        if rng.random() < 0.1:
            index.refresh(stopped=lambda: rng.random() < 0.5)
        if step % 50 == 0:
            (root / "a").mkdir(exist_ok=True)
    index.refresh()

    assert content(index) == content(indexed(root, tmp_path / "fresh.db"))


@pytest.mark.ci_lane
def test_an_index_run_that_is_killed_goes_on_where_it_was(tmp_path: Path, rng: random.Random, count: Count) -> None:
    root, file = tmp_path / "vault", tmp_path / "index.db"
    root.mkdir()
    for number in range(1_200):
        (root / f"n{number}.md").write_text(f"# Note {number}\n\n" + f"text{number} " * 50)
    code = (
        "import sys; from pathlib import Path; from agenticx.knowledge.index import VaultIndex\n"
        "index = VaultIndex(Path(sys.argv[1]), Path(sys.argv[2]))\n"
        "index.refresh(report=lambda state: print(state.indexed, flush=True))\n"
    )
    for _ in range(count(1, 3, 50)):
        command = [sys.executable, "-c", code, str(root), str(file)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
            assert program.stdout is not None
            for _ in range(rng.randint(1, 2)):
                program.stdout.readline()
            program.send_signal(signal.SIGKILL)

    index = indexed(root, file)
    assert index.was_rebuilt is False
    assert content(index) == content(indexed(root, tmp_path / "fresh.db"))


def test_a_vault_whose_folder_vanishes_or_is_empty_keeps_its_last_state(tmp_path: Path) -> None:
    root = tmp_path / "vault"
    root.mkdir()
    (root / "n.md").write_text("zebra")
    index = indexed(root, tmp_path / "index.db")

    root.rename(tmp_path / "away")
    with pytest.raises(VaultMissing, match="cannot be read: No such file"):
        index.refresh()
    root.mkdir()  # as of a disk that is not mounted
    with pytest.raises(VaultMissing, match="is empty now"):
        index.refresh()
    assert [note.path for note in index.all_notes()] == ["n.md"]
    assert search_notes(index, "zebra") == []  # a note that is not there is never quoted
    root.rmdir()
    (tmp_path / "away").rename(root)
    assert index.refresh().indexed == 1
    assert [result.passage.text for result in search_notes(index, "zebra")] == ["zebra"]


@pytest.mark.parametrize("damage", ["garbage", "version", "folder"])
def test_an_index_that_is_damaged_old_or_of_another_folder_is_made_anew(tmp_path: Path, damage: str) -> None:
    root, file = tmp_path / "vault", tmp_path / "index.db"
    root.mkdir()
    (root / "n.md").write_text("zebra")
    index = indexed(root, file)
    if damage == "version":
        index.query("UPDATE state SET value = '0' WHERE name = 'version'")
    index.close()
    if damage == "garbage":
        file.write_bytes(b"SQLite format 3\0" + b"garbage" * 2_000)
    if damage == "folder":
        root = root.rename(tmp_path / "other")

    index = indexed(root, file)
    assert index.was_rebuilt is True
    assert [result.passage.text for result in search_notes(index, "zebra")] == ["zebra"]
