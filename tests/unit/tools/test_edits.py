"""Tests of the tools that change files: atomic writes, bound to the question, no lost changes."""

from __future__ import annotations

import hashlib
import os
import signal
import stat

import pytest

from agenticx.errors import ToolError
from agenticx.tools.builtin import bash_exec, file_edit, file_read, file_search, file_write
from tests.support.forked import Process
from tests.support.program import PROGRAM
from tests.support.verdicts import decide

pytestmark = pytest.mark.anyio


async def test_a_new_file_is_created_with_its_folders(runner) -> None:
    assessment = runner.assess(file_write, path="a/b/c.txt", content="one\ntwo\n")
    assert (assessment.risk, assessment.question, assessment.reasons, assessment.path, assessment.protected) == (
        "write",
        "Create a/b/c.txt?",
        ("It creates a file: 2 lines, 8 bytes.",),
        "a/b/c.txt",
        False,
    )
    assert assessment.diff == "--- a/b/c.txt\n+++ a/b/c.txt\n@@ -0,0 +1,2 @@\n+one\n+two"
    assert runner.files() == {}

    assert await runner.call(file_write, path="a/b/c.txt", content="one\ntwo\n") == "Created a/b/c.txt (8 bytes)."
    assert runner.files() == {"a/b/c.txt": "one\ntwo\n"}


async def test_a_count_of_one_is_singular(runner) -> None:
    assert runner.assess(file_write, path="z.txt", content="z").reasons == ("It creates a file: 1 line, 1 byte.",)
    assert await runner.call(file_write, path="z.txt", content="z") == "Created z.txt (1 byte)."


async def test_an_overwrite_shows_its_diff_and_keeps_the_permissions(runner) -> None:
    script = runner.workspace / "run.sh"
    script.write_text("echo 1\n")
    script.chmod(0o750)

    assessment = runner.assess(file_write, path="run.sh", content="echo 2\n")
    assert (assessment.question, assessment.diff) == (
        "Overwrite run.sh?",
        "--- run.sh\n+++ run.sh\n@@ -1 +1 @@\n-echo 1\n+echo 2",
    )
    assert await runner.call(file_write, path="run.sh", content="echo 2\n") == "Overwrote run.sh (7 bytes)."
    assert stat.S_IMODE(script.stat().st_mode) == 0o750
    assert runner.files() == {"run.sh": "echo 2\n"}


async def test_an_edit_replaces_exactly_the_given_text(runner) -> None:
    (runner.workspace / "f").write_text("a = 1\nb = 1\n")

    assessment = runner.assess(file_edit, path="f", old_text="b = 1", new_text="b = 2")
    assert assessment.diff == "--- f\n+++ f\n@@ -1,2 +1,2 @@\n a = 1\n-b = 1\n+b = 2"
    assert await runner.call(file_edit, path="f", old_text="b = 1", new_text="b = 2") == "Replaced 1 occurrence in f."
    assert await runner.call(file_edit, path="f", old_text=" = ", new_text="=", replace_all=True) == (
        "Replaced 2 occurrences in f."
    )
    assert runner.files() == {"f": "a=1\nb=2\n"}


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        (
            {"old_text": "zzz", "new_text": ""},
            "old_text does not occur in 'f'; read the file and copy the text exactly",
        ),
        (
            {"old_text": "x  y", "new_text": ""},
            "old_text does not occur in 'f' as it is written: spaces, tabs or line breaks differ; "
            "read the file and copy the text exactly",
        ),
        (
            {"old_text": "twice", "new_text": ""},
            "old_text occurs 2 times in 'f' (lines 2, 4); give more of the text around it, or set replace_all",
        ),
        (
            {"old_text": "", "new_text": "x"},
            "old_text is empty; give the text to replace, or create a file with file_write",
        ),
        ({"old_text": "x y", "new_text": "x y"}, "old_text and new_text are the same; there is nothing to change"),
        ({"path": "none", "old_text": "a", "new_text": "b"}, "'none' does not exist; list_files shows what does"),
        (
            {"path": "binary", "old_text": "a", "new_text": "b"},
            "'binary' is a binary file, so it cannot be edited as text",
        ),
    ],
)
async def test_an_impossible_edit_is_refused_before_the_user_is_asked(runner, edit, sentence) -> None:
    (runner.workspace / "f").write_text("x y\ntwice\nz\ntwice\n")
    (runner.workspace / "binary").write_bytes(b"a\0")
    with pytest.raises(ToolError) as assessed:
        runner.assess(file_edit, **{"path": "f", **edit})
    with pytest.raises(ToolError) as run:
        await runner.call(file_edit, **{"path": "f", **edit})
    assert [str(assessed.value), str(run.value)] == [sentence, sentence]


@pytest.mark.promise("I1")
@pytest.mark.parametrize("mode", ["default", "accept_edits", "auto"])
async def test_an_edit_of_a_file_with_secrets_does_not_tell_its_content_unasked(runner, mode) -> None:
    (runner.workspace / "credentials.json").write_text("CANARY\nCANARY\n")
    (runner.workspace / "notes").hardlink_to(runner.workspace / "credentials.json")
    (runner.workspace / "binary.key").write_bytes(b"\xff")
    for path in ("credentials.json", "notes", "binary.key"):
        for old in ("CANARY", "canary", "CANARY\n CANARY", "CANARY\nCANARY"):
            assessment = runner.assess(file_edit, path=path, old_text=old, new_text="x")
            assert decide(mode, assessment).decision == "ask"
            assert assessment.reasons[-1].startswith("It usually holds keys or passwords, and the model learns")
    absent = runner.assess(file_edit, path="notes", old_text="canary", new_text="x")
    assert absent.reasons[0].startswith("It changes nothing: old_text does not occur in 'notes'")
    runner.context.state.files[str(runner.workspace / "notes")] = (0, 0)  # as if it was read before
    for tool, arguments in ((file_write, {"content": "x"}), (file_edit, {"old_text": "CANARY\nC", "new_text": "x"})):
        with pytest.raises(ToolError, match=r"so nothing was done\. Read it again first\.$"):
            await runner.call(tool, path="notes", **arguments)


# --- line ends and encodings ------------------------------------------------------------------------------------------

BOM = "\ufeff"
CRLF, LF, CR, MIXED = "one\r\ntwo\r\nthree\r\n", "one\ntwo\nthree\n", "one\rtwo\rthree\r", "one\ntwo\r\nthree\rfour\n"
EDITED = {
    "lines of CRLF": (CRLF, "one\ntwo\n", "1\n2\n", "1\r\n2\r\nthree\r\n"),
    "new lines in CRLF": (CRLF, "two", "two\n2", "one\r\ntwo\r\n2\r\nthree\r\n"),
    "CRLF as given": (CRLF, "two\r\nthree", "two\r\n3", "one\r\ntwo\r\n3\r\n"),
    "LF beside a given CRLF": (CRLF, "two\r\n", "2\r\n2\n", "one\r\n2\r\n2\r\nthree\r\n"),
    "a break before CRLF": (CRLF, "\ntwo", "\n2", "one\r\n2\r\nthree\r\n"),
    "lines of LF, given as CRLF": (LF, "one\r\ntwo", "1\n2", "1\n2\nthree\n"),
    "LF lines, both given as CRLF": (LF, "one\r\ntwo", "1\r\n1\r\n2", "1\n1\n2\nthree\n"),
    "CRLF for one line of LF": (LF, "two", "2\r\n2", "one\n2\n2\nthree\n"),
    "CRLF for lines of mixed ends": (MIXED, "one\r\ntwo", "1\r\n1\r\ntwo", "1\n1\ntwo\r\nthree\rfour\n"),
    "lines of CR": (CR, "one\ntwo\n", "1\n\n2\n", "1\r\r2\rthree\r"),
    "an exact copy of mixed ends": (MIXED, "one\ntwo\r\nthree", "1\n2\r\n3", "1\n2\r\n3\rfour\n"),
    "mixed ends as LF": (MIXED, "one\ntwo\nthree\nfour", "one\ntwo\n3\nfour", "one\ntwo\r\n3\rfour\n"),
    "the LF region": (MIXED, "one", "one\n1", "one\n1\ntwo\r\nthree\rfour\n"),
    "the CRLF region": (MIXED, "two\n", "two\n2\n", "one\ntwo\r\n2\r\nthree\rfour\n"),
    "the CR region": (MIXED, "three\nf", "3\n3\nf", "one\ntwo\r\n3\r3\rfour\n"),
    "one CRLF in an LF file": ("one\ntwo\r\nthree\n", "two\nthree\n", "two\nthree\n3\n", "one\ntwo\r\nthree\n3\n"),
    "the one as given": ("x\ny\r\nx\r\ny", "x\ny", "z\nz", "z\nz\r\nx\r\ny"),
    "CRLF to LF": (CRLF, "one\r\ntwo\r\n", "one\ntwo\n", "one\ntwo\nthree\r\n"),
    "LF to CRLF": (LF, "two\n", "two\r\n", "one\ntwo\r\nthree\n"),
    "after the last line end": (f"{MIXED}end", "end", "end\n", f"{MIXED}end\n"),
    "a byte order mark": (f"{BOM}{CRLF}", "one\n", "1\n", f"{BOM}1\r\ntwo\r\nthree\r\n"),
    "each line of mixed ends": ("a\nb\r\nc\nd\n", "a\nb\nc", "A\nB\nC", "A\nB\r\nC\nd\n"),
    "more lines of mixed ends": ("a\nb\r\nc\nd\n", "a\nb\nc\n", "A\nx\ny\nb\nC\n", "A\nx\ny\nb\r\nC\nd\n"),
    "fewer lines of mixed ends": ("a\r\nb\nc\r\nd\n", "a\nb\nc\nd", "A\nc\nD", "A\r\nc\r\nD\n"),
    "lines in another order": ("a\nb\r\nc\rd\n", "a\nb\nc\nd\n", "c\nd\na\nb\n", "c\rd\na\nb\n"),
    "all ends of lines": (MIXED, "one\ntwo\nthree\nfour\n", "1\n2\n3\n4\n5\n", "1\n2\r\n3\r4\n5\n"),
}


@pytest.mark.parametrize(("before", "old", "new", "after"), EDITED.values(), ids=EDITED)
async def test_an_edit_keeps_line_ends_byte_order_mark_and_encoding(runner, before, old, new, after) -> None:
    for encoding in ("utf-8", "utf-16-le", "utf-16-be"):
        mark = BOM if encoding != "utf-8" and not before.startswith(BOM) else ""
        edit = {"path": encoding, "old_text": old, "new_text": new}
        (runner.workspace / encoding).write_bytes(f"{mark}{before}".encode(encoding))
        binding = runner.assess(file_edit, **edit).binding
        assert await runner.call(file_edit, **edit) == f"Replaced 1 occurrence in {encoding}."
        content = (runner.workspace / encoding).read_bytes()
        assert content.decode(encoding) == f"{mark}{after}"
        assert binding["after"] == hashlib.sha256(content).hexdigest()


async def test_an_edit_keeps_a_byte_order_mark_also_if_the_old_text_names_it_and_says_so(runner) -> None:
    (runner.workspace / "f").write_bytes(f"{BOM}a\n".encode())
    edit = {"path": "f", "old_text": f"{BOM}a", "new_text": "A"}
    assert runner.assess(file_edit, **edit).reasons == ("It changes one place of the file.", _BOM_KEPT)
    assert await runner.call(file_edit, **edit) == f"Replaced 1 occurrence in f. {_BOM_KEPT}"
    assert (runner.workspace / "f").read_bytes() == f"{BOM}A\n".encode()
    with pytest.raises(ToolError, match="differ in the byte order mark only, which an edit keeps"):
        await runner.call(file_edit, path="f", old_text=BOM, new_text="")


async def test_all_occurrences_are_replaced_whatever_their_line_ends(runner) -> None:
    (runner.workspace / "f").write_bytes(b"x\ny\r\nx\r\ny\rx\ry")
    (runner.workspace / "g").write_bytes(b"\nx\r\ny\nx\ry")
    (runner.workspace / "h").write_bytes(b"a\nb")
    edit = {"path": "f", "old_text": "x\ny", "new_text": "x\n-\ny"}
    with pytest.raises(ToolError, match=r"^old_text occurs 2 times in 'g' \(lines 2, 4\)"):
        runner.assess(file_edit, **{**edit, "path": "g"})
    assert await runner.call(file_edit, **edit, replace_all=True) == "Replaced 3 occurrences in f."
    assert (runner.workspace / "f").read_bytes() == b"x\n-\ny\r\nx\r\n-\r\ny\rx\r-\ry"
    with pytest.raises(
        ToolError, match=r"^old_text and new_text differ in line ends only, which the file has already$"
    ):
        runner.assess(file_edit, path="h", old_text="a\r\nb", new_text="a\nb")


_CRLF_KEPT = "The line ends of the file, CRLF, are kept."
_BOM_KEPT = "The byte order mark is kept."
WRITTEN = {
    "LF over CRLF": (CRLF, "1\n2\n", "1\r\n2\r\n", [_CRLF_KEPT]),
    "one line over CRLF": (CRLF, "1", "1", []),
    "CRLF over CRLF": (CRLF, "1\r\n", "1\r\n", []),
    "LF and CRLF over CRLF": (
        CRLF,
        "1\r\n2\n",
        "1\r\n2\n",
        ["The line ends of the file change from CRLF to LF and CRLF."],
    ),
    "CRLF over LF": (LF, "1\r\n", "1\r\n", ["The line ends of the file change from LF to CRLF."]),
    "LF over CR": (CR, "1\n", "1\n", ["The line ends of the file change from CR to LF."]),
    "LF over mixed ends": (MIXED, "1\n", "1\n", ["The line ends of the file change from LF and CRLF and CR to LF."]),
    "LF over one CRLF": ("a\r\nb\n", "1\n", "1\n", ["The line ends of the file change from LF and CRLF to LF."]),
    "over a byte order mark": (f"{BOM}{LF}", "1\n", f"{BOM}1\n", [_BOM_KEPT]),
    "over CRLF and a byte order mark": (f"{BOM}{CRLF}", "1\n", f"{BOM}1\r\n", [_CRLF_KEPT, _BOM_KEPT]),
    "a byte order mark over one": (f"{BOM}{LF}", f"{BOM}1\n", f"{BOM}1\n", []),
    "over LF": (LF, "1\n", "1\n", []),
}


@pytest.mark.parametrize(("before", "content", "after", "notes"), WRITTEN.values(), ids=WRITTEN)
async def test_an_overwritten_file_keeps_crlf_and_byte_order_mark_and_says_so(
    runner, before, content, after, notes
) -> None:
    (runner.workspace / "f").write_bytes(before.encode())
    assessment = runner.assess(file_write, path="f", content=content)
    assert list(assessment.reasons[1:]) == notes
    size = len(after.encode())
    result = " ".join([f"Overwrote f ({size} byte{'s' * (size != 1)}).", *notes])
    assert await runner.call(file_write, path="f", content=content) == result
    written = (runner.workspace / "f").read_bytes()
    assert written == after.encode()
    assert assessment.binding["after"] == hashlib.sha256(written).hexdigest()


@pytest.mark.ci_lane
async def test_a_text_that_is_too_frequent_in_mixed_line_ends_is_refused(runner) -> None:
    (runner.workspace / "f").write_bytes(b"\r\n\n" * 600_000)
    with pytest.raises(ToolError, match="occurs more than 1,000,000 times in 'f', which is too often in a file of"):
        await runner.call(file_edit, path="f", old_text="\n", new_text="\nb", replace_all=True)


async def test_a_diff_is_of_the_bytes_that_are_written(runner) -> None:
    (runner.workspace / "crlf").write_bytes(CRLF.encode())
    (runner.workspace / "lf").write_bytes(LF.encode())
    diffs = [
        runner.assess(file_write, path=path, content=content).diff.split("\n", 3)[3]
        for path, content in (("crlf", LF), ("crlf", "1\ntwo\nthree\n"), ("lf", CRLF))
        if runner.assess(file_write, path=path, content=content).diff
    ]
    changed = "".join(f"-{line}\n" for line in LF.split()) + "".join(f"+{line}⟨U+000D⟩\n" for line in LF.split())
    assert diffs == ["-one\n+1\n two\n three", changed.rstrip("\n")]


OTHER_ENCODINGS = {
    "latin-1": "caf\u00e9\r\n".encode("latin-1"),
    "cp1252": "\u20ac \u201cx\u201d\n".encode("cp1252"),
    "Shift-JIS": "\u65e5\u672c\n".encode("shift_jis"),
    "GBK": "\u4e2d\u6587\n".encode("gbk"),
    "UTF-16 without a mark": "caf\u00e9\n".encode("utf-16-le"),
    "half of UTF-16": b"\xff\xfea\0b",
    "cut UTF-8": "\u00e9".encode()[:1],
    "large": b"\xe9" + b"a" * 16 * 1024 * 1024,
}


@pytest.mark.parametrize("content", OTHER_ENCODINGS.values(), ids=OTHER_ENCODINGS)
async def test_bytes_that_cannot_be_read_are_not_overwritten_by_their_replacement(runner, content) -> None:
    (runner.workspace / "f").write_bytes(content)
    for tool, arguments, words in (
        (
            file_write,
            {"content": "caf\ufffd\n"},
            "they would be lost, so nothing was written; convert the file to UTF-8",
        ),
        (file_edit, {"old_text": "c", "new_text": "d"}, "'f' "),
        (file_edit, {"old_text": "caf\ufffd", "new_text": "d"}, "'f' "),
    ):
        with pytest.raises(ToolError, match=words):
            runner.assess(tool, path="f", **arguments)
        with pytest.raises(ToolError, match=words):
            await runner.call(tool, path="f", **arguments)
    assert (runner.workspace / "f").read_bytes() == content


async def test_a_file_in_another_encoding_is_replaced_by_utf8_only_with_a_word(runner) -> None:
    (runner.workspace / "f").write_bytes(OTHER_ENCODINGS["latin-1"])
    note = "The file is not UTF-8 text, and becomes it."
    assert note in runner.assess(file_write, path="f", content="caf\u00e9\n").reasons
    assert (
        await runner.call(file_write, path="f", content="caf\u00e9\n") == f"Overwrote f (7 bytes). {note} {_CRLF_KEPT}"
    )
    assert (runner.workspace / "f").read_bytes() == "caf\u00e9\r\n".encode()
    (runner.workspace / "g").write_text("\ufffd\n")
    await runner.call(file_edit, path="g", old_text="\ufffd", new_text="\ufffd\ufffd")
    assert await runner.call(file_write, path="g", content="\ufffd") == "Overwrote g (3 bytes)."


async def test_utf16_with_a_mark_and_lines_of_cr_are_read_searched_and_kept(runner) -> None:
    (runner.workspace / "f").write_bytes("\ufeffcaf\u00e9\r\ntwo\r\n".encode("utf-16-le"))
    (runner.workspace / "g").write_bytes(b"one\rtwo\r")
    assert await runner.call(file_read, path="f") == "[the file is UTF-16]\ncaf\u00e9\r\ntwo\r"
    assert await runner.call(file_read, path="g") == "[the lines of the file end with CR]\none\ntwo"
    assert await runner.call(file_search, pattern="^two$") == "f:2:two\ng:2:two"
    assert await runner.call(file_write, path="f", content="1\n") == (
        f"Overwrote f (8 bytes). {_CRLF_KEPT} The byte order mark and the encoding, UTF-16, are kept."
    )
    assert (runner.workspace / "f").read_bytes() == "\ufeff1\r\n".encode("utf-16-le")


# --- bound to what was shown ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["content", "link", "created", "folder link"])
def test_a_change_between_question_and_run_changes_the_binding(runner, change) -> None:
    (runner.workspace / "folder").mkdir()
    (runner.workspace / "folder" / "f").write_text("shown")
    (runner.workspace / "other").mkdir()
    (runner.workspace / "other" / "f").write_text("shown")
    path = "new" if change == "created" else "folder/f"
    shown = runner.assess(file_write, path=path, content="x").binding

    match change:
        case "content":
            (runner.workspace / "folder" / "f").write_text("chang")
        case "link":
            (runner.workspace / "folder" / "f").unlink()
            (runner.workspace / "folder" / "f").symlink_to("../other/f")
        case "created":
            (runner.workspace / "new").touch()
        case "folder link":
            (runner.workspace / "folder").rename(runner.workspace / "away")
            (runner.workspace / "folder").symlink_to("other")
    assert runner.assess(file_write, path=path, content="x").binding != shown


def test_touching_a_file_does_not_change_the_binding(runner) -> None:
    (runner.workspace / "f").write_text("same")
    shown = runner.assess(file_write, path="f", content="x").binding
    os.utime(runner.workspace / "f")
    assert runner.assess(file_write, path="f", content="x").binding == shown


@pytest.mark.promise("H2")
async def test_a_file_that_changed_since_it_was_read_is_not_overwritten(runner) -> None:
    (runner.workspace / "f").write_text("one\ntwo\n")
    await runner.call(file_read, path="f")
    (runner.workspace / "f").write_text("one\ntwo\nthree by hand\n")

    for call in (
        runner.call(file_write, path="f", content="one\n2\n"),
        runner.call(file_edit, path="f", old_text="two", new_text="2"),
    ):
        with pytest.raises(ToolError) as caught:
            await call
        assert str(caught.value).startswith(
            "'f' was changed by the user or another program since you last read or wrote it, so nothing was done. "
            "Read it again first. This call would have changed the current file as follows:\n--- f\n+++ f\n@@ -1,3 +1,"
        )
        assert "-two" in str(caught.value)
    assert runner.files() == {"f": "one\ntwo\nthree by hand\n"}

    await runner.call(file_read, path="f")
    assert await runner.call(file_edit, path="f", old_text="two", new_text="2") == "Replaced 1 occurrence in f."
    assert await runner.call(file_edit, path="f", old_text="one", new_text="1") == "Replaced 1 occurrence in f."
    assert runner.files() == {"f": "1\n2\nthree by hand\n"}


@pytest.mark.ci_lane
@pytest.mark.promise("H2")
def test_a_write_that_is_killed_leaves_the_old_file_or_the_new_one(workspace) -> None:
    target = workspace / "f"
    target.write_text("a" * 300_000)
    program = (
        "import sys; from pathlib import Path; from agenticx.tools.paths import replace_file, resolve_in_workspace\n"
        "place = resolve_in_workspace('f', Path(sys.argv[1]))\n"
        "print(flush=True)\n"
        "while True:\n"
        "    for letter in b'ab':\n"
        "        replace_file(place, bytes([letter]) * 300_000)\n"
    )
    for round_ in range(8):
        with Process(PROGRAM, [program, str(workspace)], cwd=workspace, env=os.environ) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            for _ in range(1 + 40 * round_):
                assert target.read_bytes() in (b"a" * 300_000, b"b" * 300_000)
            writer.send_signal(signal.SIGKILL)
        assert target.read_bytes() in (b"a" * 300_000, b"b" * 300_000)


async def test_a_write_that_fails_leaves_nothing_behind(runner) -> None:
    if os.geteuid() == 0:
        (runner.workspace / "f").mkdir()
    else:
        runner.workspace.chmod(0o500)
    with pytest.raises(ToolError):
        await runner.call(file_write, path="f", content="x")
    assert runner.files() == {}


# --- protected --------------------------------------------------------------------------------------------------------


@pytest.mark.promise("H3")
def test_a_guard_rail_detects_edits_that_do_not_look_at_names(runner, monkeypatch) -> None:
    def asks(path: str) -> bool:
        return decide("auto", runner.assess(file_write, path=path, content="x")).decision == "ask"

    paths = (".git/hooks/pre-commit", ".env", "AGENTS.md", "conftest.py", ".vscode/tasks.json")
    assert list(map(asks, paths)) == [True] * 5
    for module in ("builtin.edits", "assessments"):
        monkeypatch.setattr(f"agenticx.tools.{module}.protected_part", lambda path: None)
    assert list(map(asks, paths)) == [False] * 5


@pytest.mark.promise("H3")
@pytest.mark.parametrize(
    "path",
    [
        ".git/config",
        ".git/hooks/pre-commit",
        "sub/.git/config",
        ".GIT/config",
        ".git",
        ".bashrc",
        ".zshenv",
        ".profile",
        ".env",
        ".env.local",
        ".envrc",
        ".mcp.json",
        ".vscode/tasks.json",
        ".agenticx/settings.toml",
        ".husky/pre-push",
        ".ssh/authorized_keys",
        ".config/fish/config.fish",
        ".gitmodules",
        ".vimrc",
        ".exrc",
        ".tmux.conf",
        ".gdbinit",
        ".cargo/config.toml",
        ".github/workflows/ci.yml",
        ".gitlab-ci.yml",
        ".local/bin/ls",
        ".config/nvim/init.lua",
        ".config/any/thing",
        ".venv/bin/python",
        "node_modules/.bin/tsc",
        "conftest.py",
        "tests/conftest.py",
        "sitecustomize.py",
        "lib/x.pth",
        "innocent/link/config",
    ],
)
def test_writing_a_file_that_controls_execution_is_asked_about_even_in_auto_mode(workspace, make_runner, path) -> None:
    (workspace / ".git").mkdir()
    (workspace / "innocent").mkdir()
    (workspace / "innocent" / "link").symlink_to("../.git")
    if path == ".git":
        (workspace / ".git").rmdir()
    runner = make_runner(workspace)

    assessment = runner.assess(file_write, path=path, content="x")
    assert assessment.protected
    assert decide("auto", assessment).decision == "ask"
    assert assessment.reasons[-1].endswith("decides what runs on this machine or which calls need approval.")


OTHERS_SETTINGS = """
    lefthook.yml .lefthook.yaml lefthook-local.toml .config/lefthook.json .lefthook-local/pre-commit/x .pnpmfile.mjs
    .pnp.cjs .pnp.loader.mjs mise.toml .mise/config.toml mise.local.toml .mise.local.toml mise.production.toml
    .config/mise/config.toml .pdbrc.py .tmux.conf.local .drone.yml .buildkite/pipeline.yml bunfig.toml .cirrus.yml
    .woodpecker.yml .forgejo/workflows/ci.yml .pre-commit-config.yml .gitpod.yml .replit mcp.json sub/MCP.json
    .gemini/settings.json .kiro/hooks/x .qwen/settings.json .opencode/plugin/x.js opencode.json opencode.jsonc
    .continue/config.yaml .trae/mcp.json .amazonq/cli-agents/x.json .aider.conf.yml .cline/mcp.json .kilocode/mcp.json
    .junie/mcp/mcp.json .crush.json .openhands/setup.sh .idx/dev.nix .github/hooks/x.json Lefthook.YML
    .devcontainer.json captainhook.json .helix/config.toml .lintstagedrc .lintstagedrc.mjs .lintstagedrc.cjs
    simple-git-hooks.json .simple-git-hooks.mjs .dir-locals-2.el .builds/x.yml .lazy.lua .latexmkrc .byebugrc .pylintrc
    .rvmrc .direnvrc .Renviron .flaskenv .claude.json .lfsconfig team.code-workspace hk.pkl .azure-pipelines/x.yml
    .gitlab/x.yml mise-tasks/x .vs/launch.vs.json .run/x.run.xml
    .g\u200cit/config .\ufeffgit/config .git\u2060/config .envrc\ufe0f
"""
INSTRUCTIONS = """
    .cursorrules .clinerules .clinerules/a.md .windsurfrules CLAUDE.md AGENTS.md sub/Agents.md GEMINI.md QWEN.md
    AGENTS.override.md CLAUDE.local.md .goosehints .github/copilot-instructions.md .github/instructions/a.md
    .roorules .roorules-code .agents/skills/a/SKILL.md .github/prompts/a.prompt.md .rules
"""


@pytest.mark.promise("H3")
@pytest.mark.parametrize("path", OTHERS_SETTINGS.split())
def test_settings_of_hook_managers_and_other_agents_are_protected_wherever_named(runner, path) -> None:
    written = runner.assess(file_write, path=path, content="x")
    assert decide("auto", written).decision == "ask"
    assert written.reasons[-1].endswith("decides what runs on this machine or which calls need approval.")
    if not path.startswith(".config"):
        assert runner.assess(bash_exec, command=f"tee {path}").protected


@pytest.mark.promise("H3")
@pytest.mark.parametrize("path", INSTRUCTIONS.split())
def test_instruction_files_of_other_agents_are_protected_against_writing_only(runner, path) -> None:
    written = runner.assess(file_write, path=path, content="x")
    assert decide("auto", written).decision == "ask"
    assert written.reasons[-1].endswith("contains instructions for agents.")
    for command in (f"cat {path}", f"git diff {path}"):
        assert decide("auto", runner.assess(bash_exec, command=command)).decision == "allow"
    assert decide("default", runner.assess(bash_exec, command=f"cat {path}")).decision == "allow"


@pytest.mark.promise("H3")
async def test_private_files_are_neither_changed_nor_revealed_by_a_diff_or_an_error(workspace, make_runner) -> None:
    (workspace / ".agenticx").mkdir()
    for name in (".agenticx/token", "my-token"):
        (workspace / name).write_text("s3cret\n")
    (workspace / "notes").symlink_to("my-token")
    runner = make_runner(workspace, protected_roots=(workspace / ".agenticx", workspace / "my-token"))
    before = runner.files()

    for path in (".agenticx/token", ".agenticx/none", "my-token", "notes"):
        for tool, arguments in (
            (file_write, {"content": "x"}),
            (file_edit, {"old_text": "s3", "new_text": "x"}),
            (file_edit, {"old_text": "not in it", "new_text": "x"}),
        ):
            with pytest.raises(ToolError) as assessed:
                runner.assess(tool, path=path, **arguments)
            with pytest.raises(ToolError) as run:
                await runner.call(tool, path=path, **arguments)
            shown = "my-token" if path == "notes" else path
            sentence = f"'{shown}' holds keys, settings or sessions of AgenticX, which no tool reads or changes"
            assert [str(assessed.value), str(run.value)] == [sentence, sentence]
    assert runner.files() == before


@pytest.mark.promise("H3")
@pytest.mark.parametrize(
    "path",
    [".gitignore", ".github/CODEOWNERS", "git/config", "NOTES.md", "env", ".environment", "refs/a", "Makefile"],
)
def test_ordinary_files_are_not_protected(runner, path) -> None:
    assert not runner.assess(file_write, path=path, content="x").protected


@pytest.mark.promise("H3")
@pytest.mark.parametrize(
    "path", ["sub/HEAD", "HEAD", "sub/head", "bare/config", "bare/CONFIG", "bare/hooks/post-commit", "bare/objects/x"]
)
def test_a_file_that_makes_or_changes_a_bare_repository_is_asked_about(runner, path) -> None:
    """Git runs programs named in the configuration of such a folder, such as `core.fsmonitor`, even on `git status`."""
    (runner.workspace / "bare").mkdir()
    (runner.workspace / "bare" / "HEAD").write_text("ref: refs/heads/main")
    assessment = runner.assess(file_write, path=path, content="x")
    assert decide("accept_edits", assessment).decision == "ask"
    assert assessment.reasons[-1] == (
        "It belongs to a bare git repository, whose configuration decides what runs on this machine."
    )
    assert not runner.assess(file_write, path="bare/notes", content="x").protected
