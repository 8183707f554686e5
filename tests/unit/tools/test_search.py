"""Tests of the search tool: matching lines, ignored files, limits and patterns that cannot hang."""

from __future__ import annotations

import asyncio
import os

import pytest

from agenticx.errors import ToolError
from agenticx.tools.builtin import file_search, list_files
from agenticx.tools.ignore import IgnoreRules
from agenticx.tools.patterns import compile_file_globs, compile_glob, compile_pattern
from tests.support.timeouts import PATIENCE

pytestmark = pytest.mark.anyio


@pytest.fixture
def project(runner):
    for name, text in {
        "a.py": "import os\nprint('Hello')\n",
        "src/b.ts": "// hello\nconst x = 1;\r\n",
        "src/deep/c.py": "hello = 1\n",
        "build/out.py": "hello\n",
        "keep.log": "hello\n",
        "x.log": "hello\n",
        ".gitignore": "build/\n*.log\n!keep.log\n",
        "src/.gitignore": "/deep\n",
        ".git/config": "hello\n",
        ".hidden/d.txt": "hello\n",
    }.items():
        path = runner.workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    (runner.workspace / "binary").write_bytes(b"hello\0")
    (runner.workspace / "link").symlink_to("a.py")
    return runner


async def test_matching_lines_come_with_path_and_number_in_order(project) -> None:
    assert await project.call(file_search, pattern="hello") == (
        ".hidden/d.txt:1:hello\nkeep.log:1:hello\nsrc/b.ts:1:// hello\n"
        "[not searched: 1 binary, unreadable or very large file]"
    )


async def test_options_narrow_and_widen_a_search(project) -> None:
    assert await project.call(file_search, pattern="HELLO", ignore_case=True, glob="*.py") == "a.py:2:print('Hello')"
    assert await project.call(file_search, pattern="print('", literal=True, path="a.py") == "a.py:2:print('Hello')"
    assert await project.call(file_search, pattern="hello", path="src") == "src/b.ts:1:// hello"
    assert await project.call(file_search, pattern="hello", glob="src/**/*.ts") == "src/b.ts:1:// hello"
    assert await project.call(file_search, pattern=r"1;$") == (
        "src/b.ts:2:const x = 1;\n[not searched: 1 binary, unreadable or very large file]"
    )
    assert await project.call(file_search, pattern="nowhere", glob="*.ts") == "[no match in 1 file]"


async def test_a_given_folder_is_searched_with_the_ignore_rules_of_the_folders_above_it(project) -> None:
    assert await project.call(file_search, pattern="hello", path="src/deep") == "src/deep/c.py:1:hello = 1"


async def test_many_matches_are_cut_and_counted(runner) -> None:
    (runner.workspace / "f").write_text("x\n" * 300)
    lines = (await runner.call(file_search, pattern="x", limit=3)).splitlines()
    assert lines == ["f:1:x", "f:2:x", "f:3:x", "[297 further matches; narrow the pattern, path or glob]"]
    (runner.workspace / "f").write_text("y" * 5_000)
    assert await runner.call(file_search, pattern="y$") == f"f:1:{'y' * 300}… [5,000 characters]"


async def test_huge_and_unreadable_files_are_skipped_and_counted(runner) -> None:
    with (runner.workspace / "big").open("wb") as file:
        file.write(b"hello\n" * 10)
        file.seek(5 * 1024**2)
        file.write(b"hello\n")
    os.mkfifo(runner.workspace / "pipe")
    assert await runner.call(file_search, pattern="hello") == (
        "[no match in 0 files]\n[not searched: 2 binary, unreadable or very large files]"
    )


@pytest.mark.promise("I1")
async def test_files_that_usually_hold_secrets_are_not_searched_and_named(runner) -> None:
    for name in (".env", "a.txt", "conf/server.pem", ".ssh/config"):
        (runner.workspace / name).parent.mkdir(exist_ok=True)
        (runner.workspace / name).write_text("hello")
    (runner.workspace / "notes").symlink_to(".env")
    sentence = "not searched, because such files usually hold keys or passwords"
    assert await runner.call(file_search, pattern="hello") == (
        f"a.txt:1:hello\n[{sentence}: .env, .ssh/config, conf/server.pem]"
    )
    for path in (".env", "notes"):
        assert await runner.call(file_search, pattern="hello", path=path) == (
            f"[no match in 0 files]\n[{sentence}: .env]"
        )


async def test_a_pattern_that_would_hang_a_backtracking_engine_does_not(runner) -> None:
    (runner.workspace / "f").write_text("a" * 100_000 + "!\n")
    (runner.workspace / ".gitignore").write_text("*a*a*a*a*a*a*a*a*a*a*a*a*b\n")
    (runner.workspace / ("a" * 250)).write_text("")
    async with asyncio.timeout(PATIENCE):
        assert await runner.call(file_search, pattern=r"^(a+)+$") == "[no match in 3 files]"


@pytest.mark.parametrize(
    ("pattern", "sentence"),
    [
        ("(", "the pattern '(' cannot be used: unclosed group; to find these very characters, set `literal`"),
        ("", "the pattern is empty; give the text or the regular expression to find"),
        (r"(a)\1", r"the pattern '(a)\\1' cannot be used: backreferences are not supported; write it without them"),
    ],
)
async def test_an_invalid_pattern_is_refused_with_a_reason(runner, pattern, sentence) -> None:
    with pytest.raises(ToolError) as caught:
        await runner.call(file_search, pattern=pattern)
    assert str(caught.value) == sentence


async def test_a_missing_path_is_an_error_not_an_empty_result(runner) -> None:
    with pytest.raises(ToolError, match=r"^'nowhere' does not exist; list_files shows what does$"):
        await runner.call(file_search, pattern="x", path="nowhere")
    for tool, arguments in ((file_search, {"pattern": "x"}), (list_files, {})):
        with pytest.raises(ToolError, match=r"; a path is no glob, which file_search takes$"):
            await runner.call(tool, path="src/*.{ts,tsx}", **arguments)


@pytest.mark.parametrize(
    ("glob", "path", "matches"),
    [
        ("*.py", "a.py", True),
        ("*.py", "a/b.py", False),
        ("**/*.py", "b.py", True),
        ("**/*.py", "a/b/c.py", True),
        ("src/**", "src/a/b", True),
        ("src/**", "srcs/a", False),
        ("a/**/b", "a/b", True),
        ("a/**/b", "a/x/y/b", True),
        ("?.c", "a.c", True),
        ("?.c", "/.c", False),
        ("[a-c]x", "bx", True),
        ("[!a]x", "bx", True),
        ("[!a]x", "ax", False),
        ("a.b", "axb", False),
        (r"\*", "*", True),
        (r"\*", "x", False),
        ("[", "[", True),
        ("a[]b", "a[]b", True),
        ("[]]", "]", True),
        ("[]a]", "a", True),
        ("[!]]", "]", False),
        ("a b~#&-é<>", "a b~#&-é<>", True),
    ],
)
def test_globs_match_as_in_git(glob, path, matches) -> None:
    assert compile_glob(glob).found_in(path) is matches


GLOBS = {
    "*.{ts,tsx}": "a.ts app/[id]/p.tsx src/b.tsx",
    "**/*.{ts,tsx}": "a.ts app/[id]/p.tsx src/b.tsx",
    "*.ts{,x}": "a.ts app/[id]/p.tsx src/b.tsx",
    "*.{t{s,sx},js}": "a.js a.ts app/[id]/p.tsx lib/c.js src/b.tsx",
    "*.{ts}": "a.ts",
    "{src,lib}/**": "lib/c.js src/b.tsx src/deep/d1.py",
    "{src/**,*.js}": "a.js lib/c.js src/b.tsx src/deep/d1.py",
    "./src/*.tsx": "src/b.tsx",
    "/src/*.tsx": "src/b.tsx",
    "/work/project/src/*.tsx": "src/b.tsx",
    "/*.js": "a.js",
    "./*.js": "a.js",
    "src/": "src/b.tsx src/deep/d1.py",
    "deep/": "src/deep/d1.py",
    "src/deep/": "src/deep/d1.py",
    "*.ts,*.tsx": "a.ts app/[id]/p.tsx src/b.tsx",
    "*.ts, *.tsx,": "a.ts app/[id]/p.tsx src/b.tsx",
    "one,two.txt": "one,two.txt",
    "d{1..3}.py": "src/deep/d1.py",
    "d{01..10}.py": "",
    "[a-c].{j,t}s": "a.js a.ts lib/c.js",
    "{1..1000000}": "{1..1000000}",
    "app/[id]/*.{ts,tsx}": "app/[id]/p.tsx",
    "[id]": "",
    "{{x}}/*": "{{x}}/y",
    r"\{1..1000000\}": "{1..1000000}",
    "{src,lib": "lib/c.js",
    "../*.js": "",
    "src//*.tsx": "src/b.tsx",
    "src/./deep//./*.py": "src/deep/d1.py",
    "src": "src/b.tsx src/deep/d1.py",
    "./src": "src/b.tsx src/deep/d1.py",
    "deep": "src/deep/d1.py",
    "./deep": "",
    "src/deep": "src/deep/d1.py",
    "{lib,deep}": "lib/c.js src/deep/d1.py",
    "*.ts *.tsx": "a.ts app/[id]/p.tsx src/b.tsx",
    "*.ts;*.tsx": "a.ts app/[id]/p.tsx src/b.tsx",
    "*.ts | src/*": "a.ts src/b.tsx",
    "a* *": "",
    "{a.ts;b.*}": "",
    '"*.ts"': "a.ts",
    "'*.ts' '*.tsx'": "a.ts app/[id]/p.tsx src/b.tsx",
    '"*.ts", "lib/"': "a.ts lib/c.js",
    '["*.ts","*.tsx"]': "a.ts app/[id]/p.tsx src/b.tsx",
    "[ '*.{ts,tsx}', ]": "a.ts app/[id]/p.tsx src/b.tsx",
    "{1..3}.ts": "",
    "/": "a.js a.ts app/[id]/p.tsx lib/c.js one,two.txt src/b.tsx src/deep/d1.py {1..1000000} {{x}}/y",
}


@pytest.mark.parametrize(("glob", "paths"), GLOBS.items())
def test_globs_of_a_search_match_as_in_shells_and_editors(glob, paths) -> None:
    pattern = compile_file_globs(glob, "/work/project")
    assert [path for path in sorted(GLOBS["/"].split()) if pattern.found_in(path)] == paths.split()


async def test_a_glob_that_is_the_name_of_a_file_means_only_that_file(project) -> None:
    for name in ("*.py *.ts", '"*.py"', "src/src"):
        (project.workspace / name).write_text("hello")
    (project.workspace / "src/deep/src").mkdir()
    (project.workspace / "src/deep/src/x").write_text("hello")
    for name in ("*.py *.ts", '"*.py"', "src/src"):
        assert await project.call(file_search, pattern="hello", glob=name) == f"{name}:1:hello"


@pytest.mark.parametrize("glob", ["{a,b}" * 20, "{" * 2_000 + "}" * 2_000, "{1..256}{1..256}", "{a," * 999 + "}" * 999])
def test_braces_that_stand_for_very_many_globs_are_refused(glob) -> None:
    with pytest.raises(ToolError, match=r"stands for too many globs; give one with fewer alternatives in braces$"):
        compile_file_globs(glob, "/work")


def test_a_glob_that_cannot_be_used_is_named() -> None:
    with pytest.raises(ToolError, match=r"^the glob '\[b-a\]' cannot be used; check what is in its brackets$"):
        compile_file_globs("[b-a]", "/work")


async def test_a_glob_that_matches_no_file_is_reported_instead_of_no_match(project) -> None:
    result = await project.call(file_search, pattern="hello", glob="*.{rs,go}")
    assert result.startswith("[the glob '*.{rs,go}' matches none of 7 files, so nothing was searched; a glob is a name")
    assert await project.call(file_search, pattern="nowhere", glob="*.{ts,py}") == "[no match in 2 files]"
    assert await project.call(file_search, pattern="hello", glob=" ") == await project.call(
        file_search, pattern="hello"
    )
    assert (
        await project.call(file_search, pattern="hello", path="src/deep", glob="/*.py") == "src/deep/c.py:1:hello = 1"
    )


@pytest.mark.parametrize(
    ("pattern", "lines"),
    [
        ("^b", [2]), ("c$", [2, 4]), (r"\Ab", [2]), (r"c\z", [2, 4]), ("(?-m)^b", [2]), ("(?i-m:C)$", [2, 4]),
        ("^$", [3]), (r"a\s*$", [1]), (r"[^a]\S", [2, 4]), ("a\nb", []), (r"x\b", [4]),
    ],
)  # fmt: skip
async def test_each_line_is_a_text_of_its_own(project, pattern: str, lines: list[int]) -> None:
    (project.workspace / "lines.txt").write_text("a\nb c\n\n xc.x c", encoding="utf-8")
    found = await project.call(file_search, pattern=pattern, path="lines.txt")
    assert [int(row.split(":")[1]) for row in found.splitlines() if row.startswith("lines.txt")] == lines


def test_a_pattern_is_linear_in_the_text() -> None:
    assert not compile_pattern("(x+x+)+y").found_in("x" * 200_000)


@pytest.mark.parametrize(
    ("rules", "path", "is_folder", "ignored"),
    [
        ("*.o", "a/b.o", False, True),
        ("/a.o", "a.o", False, True),
        ("/a.o", "b/a.o", False, False),
        ("build/", "build", True, True),
        ("build/", "build", False, False),
        ("a/b", "a/b", False, True),
        ("a/b", "x/a/b", False, False),
        ("*.o\n!keep.o", "keep.o", False, False),
        ("# comment\n\n   \n", "comment", False, False),
        (r"\#x", "#x", False, True),
        (r"\!x", "!x", False, True),
        ("x  ", "x", False, True),
        ("**/foo", "a/foo", True, True),
        ("foo/**", "foo/a", False, True),
        ("/", "a", False, False),
        ("*.{ts,tsx}", "a.ts", False, False),
        ("{a,b}", "{a,b}", False, True),
    ],
)
def test_gitignore_rules(rules, path, is_folder, ignored) -> None:
    assert IgnoreRules().with_rules(rules, "").ignores(path, is_folder=is_folder) is ignored


def test_the_rules_of_a_deeper_folder_apply_below_it_and_take_precedence() -> None:
    rules = IgnoreRules().with_rules("*.txt", "").with_rules("!a.txt\nb.md", "sub")
    assert [rules.ignores(p, is_folder=False) for p in ("a.txt", "sub/a.txt", "sub/c.txt", "b.md", "sub/x/b.md")] == [
        True, False, True, False, True,
    ]  # fmt: skip


@pytest.mark.ci_lane
def test_the_last_of_equal_rules_and_the_last_5000_distinct_rules_are_used() -> None:
    again = IgnoreRules().with_rules("*.txt\n!a.txt\n" + "}\n" * 100_000 + "*.txt\n", "")
    assert again.ignores("a.txt", is_folder=False)
    assert len(again.rules) == 3
    many = IgnoreRules().with_rules("first\n" + "".join(f"a{number}\n" for number in range(5_000)), "")
    assert [many.ignores(path, is_folder=False) for path in ("first", "a0", "a4999")] == [False, True, True]


@pytest.mark.parametrize(
    "pattern",
    [r"\w{1000}", r"(\w{30}){30}", r"\w" * 101, "(a{100}){100}", "(((a{9}){9}){9}){99}", r"[\w.]{200}", "a" * 8_193],
    ids=["a count", "counts", "classes", "letters", "deep", "a class", "long"],
)
def test_a_pattern_that_would_take_long_to_compile_is_refused(pattern: str) -> None:
    with pytest.raises(ToolError, match=r"repeats too much|has 8,193 characters"):
        compile_pattern(pattern)


def test_ordinary_patterns_are_compiled() -> None:
    for pattern in (
        r"\b\w+\s*=\s*\d{4}-\d{2}-\d{2}",
        r"[0-9a-f]{64}",
        r"(?i)(todo|fixme)\(\w{1,20}\)",
        r"a{2,}\{9}",
    ):
        assert not compile_pattern(pattern).found_in("")


def test_a_glob_longer_than_any_path_is_refused() -> None:
    with pytest.raises(ToolError, match=r"^the glob has 5,000 characters; give one of at most 4,096$"):
        compile_glob("[" * 5_000)
