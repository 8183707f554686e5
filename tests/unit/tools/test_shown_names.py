"""Tests of file names in their shown form, which means the real entry in every tool and question."""

from __future__ import annotations

import json
import os

import pytest

from agenticx import load_attachment
from agenticx.attachments import make_attachment
from agenticx.cli.commands.message_input import PendingAttachments, load_attachments
from agenticx.errors import AttachmentRefused, ToolError
from agenticx.runtime.user_requests.request_text import confirm_lines
from agenticx.tools.builtin import file_edit, file_read, file_search, file_write, list_files
from agenticx.tools.paths import resolve_as_shown
from tests.support.timeouts import longest_hold
from tests.support.verdicts import decide

pytestmark = pytest.mark.anyio

ODD_NAMES = {
    "macOS screenshot": "Shot 10.00.00\u202fAM.png",
    "no-break space": "a\u00a0b.txt",
    "ideographic space": "\u6f22\u3000\u5b57.txt",
    "emoji": "\u2764\ufe0f.md",
    "family": "\U0001f468\u200d\U0001f469\u200d\U0001f467.txt",
    "joiner": "\u0646\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
    "soft hyphen": "co\u00adop",
    "newline": "a\nb",
    "latin-1": os.fsdecode(b"caf\xe9.txt"),
    "Shift-JIS": os.fsdecode(b"\x93\xfa\x96{.txt"),
    "escape": "a\x1b[2Jb",
    "direction": "a\u202egpj.exe",
    "many blanks": "a" + " " * 40 + "b",
    "in itself": "a\u202f⟨U+202F⟩b",
}


@pytest.mark.promise("E6")
@pytest.mark.parametrize("name", ODD_NAMES.values(), ids=ODD_NAMES)
async def test_a_name_as_listed_means_the_real_file_in_every_tool(runner, name) -> None:
    folder = runner.workspace / f"{name[:80]} in"
    folder.mkdir()
    (folder / name).write_text("one\n")
    [shown_folder] = (await runner.call(list_files)).splitlines()
    [shown] = (await runner.call(list_files, path=shown_folder)).splitlines()
    assert (shown != f"{folder.name}/{name}", shown.isprintable()) == (True, True)

    assert await runner.call(file_read, path=shown) == "one\n"
    assert await runner.call(file_search, pattern="one", path=shown_folder) == f"{shown}:1:one"
    assert await runner.call(file_search, pattern="one", path=shown) == f"{shown}:1:one"
    assert await runner.call(file_search, pattern="one", glob=shown) == f"{shown}:1:one"
    for tool, arguments in ((file_edit, {"old_text": "one", "new_text": "two"}), (file_write, {"content": "three"})):
        assessment = runner.assess(tool, path=shown, **arguments)
        assert (assessment.path, assessment.binding["path"]) == (shown, str(folder / name))
        assert assessment.question in (f"Edit {shown}?", f"Overwrite {shown}?")
        json.dumps(assessment.question).encode()
        context = {"path": assessment.path, "arguments": {"path": shown, **arguments}, "tool": tool.schema.name}
        lines = [line.text for line in confirm_lines(assessment.question, context)]
        assert sum(shown in line for line in lines) == 1
        assert f" {shown}" in await runner.call(tool, path=shown, **arguments)
    await runner.call(file_write, path=f"{shown_folder}new.txt", content="")
    assert sorted(os.listdir(folder)) == sorted([name, "new.txt"])
    assert (os.listdir(runner.workspace), (folder / name).read_text()) == ([folder.name], "three")


async def test_a_name_as_long_as_possible_is_written_and_read_as_shown(runner) -> None:
    name = "\u6f22\u3000" * 42
    (runner.workspace / name).write_text("one")
    shown = await runner.call(list_files)
    assert await runner.call(file_write, path=shown, content="two") == f"Overwrote {shown} (3 bytes)."
    assert (await runner.call(file_read, path=shown), os.listdir(runner.workspace)) == ("two", [name])


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("Shot 10.00.00\u202fAM.png", "Shot 10.00.00 AM.png"),
        ("a\u00a0b\u3000c", "a b⟨U+3000⟩c"),
        ("cafe\u0301", "caf\u00e9"),
        ("caf\u00e9 1", "cafe\u0301 1"),
        (os.fsdecode(b"caf\xe9 x"), "caf\ufffd x"),
    ],
)
async def test_a_name_as_a_terminal_copies_it_means_the_only_such_file(runner, name, given) -> None:
    (runner.workspace / name).write_text("one")
    assert await runner.call(file_read, path=given) == "one"
    assert await runner.call(file_search, pattern="one", glob=given) != "one"
    await runner.call(file_write, path=given, content="two")
    assert os.listdir(runner.workspace) == [name]


async def test_a_name_that_exists_or_that_no_entry_is_shown_as_means_itself(runner) -> None:
    (runner.workspace / "a\u202fb").write_text("blank")
    (runner.workspace / "a⟨U+202F⟩b").write_text("brackets")
    assert await runner.call(file_read, path="a⟨U+202F⟩b") == "brackets"
    assert await runner.call(file_read, path="a\u202fb") == "blank"
    await runner.call(file_write, path="c⟨U+202F⟩d", content="")
    await runner.call(file_write, path="ab", content="")
    assert sorted(os.listdir(runner.workspace)) == ["ab", "a\u202fb", "a⟨U+202F⟩b", "c⟨U+202F⟩d"]


@pytest.mark.parametrize(
    ("names", "given", "listed"),
    [
        (["a\u00a0b", "a\u202fb"], "a b", "'a⟨U+00A0⟩b' or 'a⟨U+202F⟩b'"),
        (
            ["a\u202f⟨U+00A0⟩", "a⟨U+202F⟩\u00a0"],
            "a⟨U+202F⟩⟨U+00A0⟩",
            r"'a\u202f\u27e8U+00A0\u27e9' or 'a\u27e8U+202F\u27e9\xa0'",
        ),
    ],
)
async def test_a_name_that_may_mean_several_files_is_refused_with_their_names(runner, names, given, listed) -> None:
    for name in names:
        (runner.workspace / name).touch()
    for call in (
        lambda: runner.assess(file_write, path=given, content=""),
        lambda: runner.assess(file_read, path=given),
    ):
        with pytest.raises(ToolError) as caught:
            call()
        assert str(caught.value) == f"the name {given!r} in '.' may mean {listed}; give one of these"
    assert len(os.listdir(runner.workspace)) == 2


@pytest.mark.promise("H3")
async def test_secret_protected_and_private_names_are_judged_on_the_real_entry(workspace, make_runner) -> None:
    outside = workspace.parent / "out"
    for folder in (workspace / ".git\u200c", workspace / "key\u00a0ring", outside):
        folder.mkdir()
        (folder / "a\u202fb.pem").write_text("s3cret")
    (workspace / "link").symlink_to(outside)
    (workspace / "no\u00a0tes").symlink_to("key\u00a0ring/a\u202fb.pem")
    runner = make_runner(workspace)

    for path in ("key⟨U+00A0⟩ring/a⟨U+202F⟩b.pem", "key ring/a b.pem", "no tes"):
        assert decide("auto", runner.assess(file_read, path=path)).decision == "ask"
        assert "s3cret" not in await runner.call(file_search, pattern="s3cret", path=path)
    assert runner.assess(file_write, path=".git⟨U+200C⟩/config", content="").protected
    with pytest.raises(ToolError, match="is outside the workspace"):
        runner.assess(file_read, path="link/a b.pem")
    private = make_runner(workspace, protected_roots=(workspace / "key\u00a0ring",))
    with pytest.raises(ToolError, match=r"^'key⟨U\+00A0⟩ring/none' holds keys, settings or sessions of AgenticX"):
        private.assess(file_read, path="key ring/none")


def test_a_file_that_takes_the_shown_name_after_the_question_changes_the_binding(runner) -> None:
    (runner.workspace / "a\u202fb").touch()
    asked = runner.assess(file_write, path="a b", content="x").binding
    (runner.workspace / "a b").touch()
    assert runner.assess(file_write, path="a b", content="x").binding != asked


@pytest.mark.ci_lane
async def test_a_folder_of_very_many_entries_is_compared_in_a_thread(runner) -> None:
    for number in range(5_000):
        (runner.workspace / f"f\u00e9{number}").touch()
    (runner.workspace / "a\u202fb").write_text("x")
    async with longest_hold() as hold:
        await runner.call(file_write, path="a b", content="y")
    assert ((runner.workspace / "a\u202fb").read_text(), hold.longest < 0.1) == ("y", True)


def test_attachments_are_found_by_their_shown_name_and_keep_it(tmp_path) -> None:
    for number, name in enumerate(ODD_NAMES.values()):
        (tmp_path / name).write_text(f"{number}")
        [attached] = load_attachments([tmp_path / name])
        assert (attached.text, attached.name.isprintable()) == (f"{number}", True)
        assert load_attachments([tmp_path / attached.name]) == (attached,)
        pending = PendingAttachments()
        pending.add(str(tmp_path / attached.name))
        assert pending.take() == (attached,)
    assert load_attachments([tmp_path / "Shot 10.00.00 AM.png"])[0].name == "Shot 10.00.00⟨U+202F⟩AM.png"
    assert make_attachment("\u200eShot\u202fAM.txt", b"x").name == "⟨U+200E⟩Shot⟨U+202F⟩AM.txt"
    (tmp_path / "Shot 10.00.00\u00a0AM.png").touch()
    with pytest.raises(AttachmentRefused, match="may mean 'Shot 10"):
        load_attachments([tmp_path / "Shot 10.00.00 AM.png"])
    with pytest.raises(AttachmentRefused, match="is not a file"):
        load_attachments([tmp_path / "gone.txt"])
    long = tmp_path / ("\u3000" * 80 + ".txt")
    long.write_text("x")
    assert (len(load_attachment(long).name), load_attachment(long).name[-5:]) == (251, "⟩.txt")


def test_names_are_compared_up_to_a_number_of_entries(runner) -> None:
    (runner.workspace / "a\u202fb").touch()
    (runner.workspace / "c").touch()
    with pytest.raises(
        ToolError, match=r"^'\.' has more than 1 entries, too many to find the one that is shown as 'a⟨U"
    ):
        resolve_as_shown("a⟨U+202F⟩b", runner.workspace, lambda _: False, max_names=1)
