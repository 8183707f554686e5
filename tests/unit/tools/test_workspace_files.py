"""Files of a workspace found by name: their order, what is left out, and a missing workspace."""

from __future__ import annotations

from pathlib import Path

import pytest

from agenticx.errors import ToolError
from agenticx.tools.workspace_files import find_files


def make(root: Path, *paths: str, text: str = "x") -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def found(root: Path, query: str = "", *, limit: int = 50, private: tuple[Path, ...] = ()) -> list[str]:
    return [file.path for file in find_files(root, query, limit=limit, private=private).files]


def test_names_that_begin_with_the_query_come_first_then_names_and_then_paths_that_have_it(tmp_path: Path) -> None:
    make(tmp_path, "src/app/main.py", "src/App.tsx", "docs/my-app.md", "src/application.py", "other.txt")
    assert found(tmp_path, "app") == ["src/App.tsx", "src/application.py", "docs/my-app.md", "src/app/main.py"]
    assert found(tmp_path, "SRC app py") == ["src/app/main.py", "src/application.py"]
    assert found(tmp_path, "nothing") == []
    assert found(tmp_path)[0] == "other.txt"


def test_ignored_private_and_linked_files_are_left_out_and_secret_ones_are_marked(tmp_path: Path) -> None:
    root, outside, home = tmp_path / "work", tmp_path / "outside", tmp_path / "work" / "home"
    make(outside, "a.txt")
    make(root, "a.txt", ".git/a.txt", "build/a.txt", "sub/a.txt", "sub/skipped/a.txt", "sub/a.log", "home/a.txt")
    make(root, ".gitignore", text="build/\n*.log\n")
    make(root, "sub/.gitignore", text="skipped\n")
    make(root, "keys/id_rsa", "line\nbreak.txt")
    (root / "linked").symlink_to(outside)
    (root / "a-link.txt").symlink_to(outside / "a.txt")
    (root / "inside.txt").symlink_to(root / "a.txt")
    assert found(root, "a.", private=(home,)) == ["a.txt", "sub/a.txt"]
    matches = find_files(root, "", limit=50, private=(home,))
    assert [file.path for file in matches.files if file.is_secret] == ["keys/id_rsa"]
    assert [file.path for file in matches.files if "break" in file.path] == ["line⟨U+000A⟩break.txt"]


def test_a_list_is_complete_unless_there_are_more_matches_than_its_limit(tmp_path: Path) -> None:
    make(tmp_path, "a.py", "b.py")
    assert [find_files(tmp_path, "py", limit=limit).complete for limit in (1, 2)] == [False, True]


def test_a_missing_workspace_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="cannot be resolved"):
        find_files(tmp_path / "none", "", limit=5)


def test_a_search_ends_in_time_among_folders_without_files(tmp_path: Path) -> None:
    make(tmp_path, *(f"empty{number}/deeper/last.py" for number in range(3)))
    matches = find_files(tmp_path, "py", limit=5, seconds=0)
    assert (matches.files, matches.complete) == ([], False)
