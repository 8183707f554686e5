"""Rows for tools: arguments, commands, files and outputs, before and while a tool runs."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Generator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from agenticx import Assessment
from agenticx.errors import InvalidArguments, ToolError
from agenticx.llms import GrowingArguments
from agenticx.llms.reply_limits import MAX_VALUES
from agenticx.messages import clean_text
from agenticx.permissions import Call, Rule, decide
from agenticx.permissions.explain import explain, explain_decider, explain_read
from agenticx.permissions.kinds import fixed_words, runs_project_code, why_too_wide, why_without_kind
from agenticx.permissions.offers import describe, is_narrower, offer_rules
from agenticx.sandbox.explain import explain_failure
from agenticx.secret_detection import (
    holds_credentials,
    holds_keys,
    is_secret_file,
    is_secret_folder,
    may_hold_credentials,
    may_hold_keys,
)
from agenticx.tools import FunctionTool, ToolContext, tool
from agenticx.tools.artifacts.paths import check_artifact_path, is_artifact_path
from agenticx.tools.artifacts.preview import FilePreview, preview
from agenticx.tools.base import CommandPart, ShellCommand
from agenticx.tools.builtin import bash_exec, file_edit, file_write
from agenticx.tools.command_output import HeadTailBuffer, TerminalLines
from agenticx.tools.critical_folders import (
    CriticalFolders,
    assess_deletion,
    deletion_reason,
    find_deleted_critical_folder,
    names_deletion,
    strip_match_all_globs,
)
from agenticx.tools.diffs import unified_diff
from agenticx.tools.ignore import IgnoreRules
from agenticx.tools.lines import count_lines, is_valid_utf8, iter_lines
from agenticx.tools.patterns import LinearPattern, compile_file_globs, compile_glob, compile_pattern
from agenticx.tools.protected import is_instruction, protected_part, protected_settings_part
from agenticx.tools.schema import CallSchema, read_signature
from agenticx.tools.shell.assessment import assess_command
from agenticx.tools.shell.braces import expand_braces, has_braces
from agenticx.tools.shell.command_reader import read_commands
from agenticx.tools.shell.deletion_commands import (
    deleting_actions,
    find_deletes_all,
    is_filter,
    is_narrowed,
    split_find,
)
from agenticx.tools.shell.deletions import find_critical_deletion, find_deletion
from agenticx.tools.shell.file_system_cache import FileSystemCache, UncheckableError
from agenticx.tools.shell.git_reads import read_git_arguments
from agenticx.tools.shell.git_revisions import NamedObject, Readings, read_revision
from agenticx.tools.shell.globs import is_glob, simplify_classes
from agenticx.tools.shell.grammar import find_unread, parse_command
from agenticx.tools.shell.harmless_commands import ReadCheck
from agenticx.tools.shell.lost_moves import find_lost_move
from agenticx.tools.shell.named_paths import EXAMINED_COMMAND_BYTES, EXAMINED_WORD_BYTES, examine
from agenticx.tools.shell.path_words import find_named_paths
from agenticx.tools.shell.protected_changes import find_protected_change
from agenticx.tools.shell.quoting import remove_quoting
from agenticx.tools.shell.read_only_programs import can_only_read, read_arguments
from agenticx.tools.shown_names import entries_shown_as, name_forms
from agenticx.tools.text_files import (
    FileText,
    Replacement,
    decode_text,
    differs_in_blanks,
    is_binary,
    line_ends,
    replace_text,
    to_utf8_lines,
    utf16_encoding,
    with_line_end,
)
from agenticx.tools.visible import (
    begun_flag,
    control_pictures,
    escape_controls,
    is_one_line,
    visible,
    visible_line,
    visible_path,
    without_invisible,
)
from tests.linear.case import LinearCase, Make
from tests.linear.commands import SHELL_COMMANDS
from tests.linear.llm_cases import parsed
from tests.linear.texts import JSON, LINES, TEXTS, repeated

__all__ = ["TOOL_CASES"]

_HERE = Path(tempfile.gettempdir())
_PATH = 3_000  # characters of a path, or of a word that is checked as a path
_CONTEXT = ToolContext(workspace=_HERE)


@tool(risk="read")
def _take(a: list[int], b: Annotated[dict[str, list[str]], Field(description="any")], text: str = "") -> str:
    """Take anything."""
    return f"{a}{b}{text}"


def _refusing(function: Callable[..., object], *values: Any) -> object:
    try:
        return function(*values)
    except (InvalidArguments, ToolError, OSError, ValueError):
        return None


def _assessed(function: FunctionTool, name: str, **others: str) -> Callable[[str], object]:
    """Return a function that assesses a call of a tool whose argument `name` is the text."""
    return lambda text: _refusing(function.assess, {**others, name: text}, _CONTEXT)


COMMANDS: dict[str, Make] = {
    **TEXTS,
    "plain words": repeated("a.txt ", head="cat "),
    "one quoted word": repeated("a", head="cat '", tail="'"),
    "odd words": repeated(".1f* "),
    "paths": repeated("/a/b/../c "),
    "one path": repeated("a/", head="cat "),
    "parents": repeated("../", head="cat "),
    "hidden globs": repeated(".g?* "),
    "braces": repeated("{a,b}", head="echo "),
    "one brace": repeated("a,", head="echo {", tail="}"),
    "homes": repeated("~ "),
    "variables": repeated("$HOME"),
    "folders": repeated("cd a;"),
    "different words": lambda size: " ".join(f"w{number}" for number in range(size // 6)),
    "different globs": lambda size: " ".join(f"w{number}*" for number in range(size // 7)),
}


_DELETIONS: dict[str, Make] = {
    **{name: lambda size, make=make: f"rm -rf {make(size)}" for name, make in COMMANDS.items()},
    "substitutions": repeated("$(a)", head="rm -rf "),
    "open substitutions": repeated("$(ls ", head="rm -rf "),
    "pipes": repeated("|xargs rm", head="find ."),
    "growing variables": repeated("A=$A$A;", head="A=aa;", tail="rm -rf $A"),
    "users": repeated("~a ", head="rm -rf "),
    "tests": repeated("-o -name x ", head="find ", tail="-delete"),
    "stars": repeated("*", head="rm -rf "),
    "classes": repeated("[!", head="rm -rf "),
    "defaults": repeated("${A:-", head="rm -rf "),
    "new folders": repeated("$(mktemp ", head="rm -rf "),
    "calls": repeated("rmtree(", head="python -c "),
    "mentions": repeated("rm ", head="ln "),
    "readers": repeated("| read a ", head=f"find {'x ' * 2000}"),
    "deletions of find": repeated("-delete ", head="find . -name x "),
    "redirections": repeated("1> ", head="rm "),
}


def _find_deletion(find: Callable[..., object], text: str) -> object:
    try:
        return find(text[:EXAMINED_COMMAND_BYTES], _HERE, {}, FileSystemCache())
    except UncheckableError:
        return None


def _decided(text: str) -> object:
    """Decide about a command of one part with these words, explain it, and look at what a yes to it could store."""
    words = tuple(text.split())[:100_000] or ("",)
    part = CommandPart(words, len(words))
    assessment = Assessment(risk="execute", shell=ShellCommand(text, (part,), (words,)))
    call = Call(tool="bash_exec", assessment=assessment, arguments={"command": text}, workspace=Path("/work"))
    rules = [
        Rule.model_validate({"decision": decision, "tool": "bash_exec", "command": command, "scope": "user"})
        for decision, command in (("deny", "git push"), ("allow", "git log"), ("allow", "pytest"))
    ]
    verdict, offer = decide("default", call, rules=rules), offer_rules(call, rules)
    fixed_words(part)
    why_without_kind(part)
    for rule in offer.shown:
        is_narrower(rule, offer)
        describe(rule)
        why_too_wide(rule)
    return explain(call, verdict, rules), list(explain_read(call, verdict))


def _pairs(make: Make) -> Make:
    """Return a maker of a text and a copy of it that is changed in the middle."""

    def pair(size: int) -> tuple[str, str]:
        text = make(size // 2)
        half = len(text) // 2
        return text, f"{text[:half]}changed\n{text[half:]}"

    return pair


_CHANGES: dict[str, Make] = {
    **{name: _pairs(make) for name, make in TEXTS.items()},
    **{f"new, {name}": (lambda size, make=make: ("", make(size))) for name, make in TEXTS.items()},
    "every line": lambda size: ("a\n" * (size // 4), "b\n" * (size // 4)),
    "lines in turn": lambda size: ("a\nb\n" * (size // 8), "b\na\n" * (size // 8)),
    "different lines": lambda size: (
        "".join(f"{number}\n" for number in range(size // 14)),
        "".join(f"{number}x\n" for number in range(size // 14)),
    ),
}


def _excerpt(chunks: list[bytes]) -> Generator[None]:
    excerpt = HeadTailBuffer(8_000, 16_000)
    for chunk in chunks:
        excerpt.add(chunk)
        yield
    excerpt.text()
    yield


def _lined(text: str) -> object:
    """Count the lines of a file, and read its second half."""
    content = text.encode("utf-8", "surrogatepass")
    lines = count_lines(content)
    return is_valid_utf8(content), [*islice(iter_lines(content, lines // 2, 2_000), 2_000)]


def _decoded(text: str) -> object:
    """Decode the text as a file in both encodings, and change its line ends."""
    text = clean_text(text)
    contents = [text.encode(), f"\ufeff{text}".encode("utf-16-le")]
    return [(decode_text(content), to_utf8_lines(content)) for content in contents], line_ends(
        with_line_end(text, "\r\n")
    )


def _replaced(text: str) -> object:
    """Replace single line ends, and half of the text, in a text of mixed line ends."""
    mixed, half = f"{text}\r\n\n", text[: len(text) // 2]
    return [
        replace_text(mixed, old, new, every=True, max_chars=9 * len(mixed))
        for old, new in (("\n", "a\nb"), (f"{half}\n", f"{half}\n\n"), ("\r\n", "\n"))
    ], differs_in_blanks(mixed, f"{half} .")


def _shown(text: str) -> object:
    """Look for a name among many, and return the forms of a path."""
    names = [text[start : start + 80] for start in range(0, len(text), 80)]
    return _refusing(entries_shown_as, text[:80].replace(" ", "\u202f"), names), _refusing(name_forms, text[:_PATH])


def _ignored(text: str) -> object:
    rules = IgnoreRules().with_rules(text[: 256 * 1024], "")
    return rules.ignores("a/b/c.txt", is_folder=False)


def _validated(arguments: Any) -> object:
    return _refusing(_take.validate, arguments)


def _searched(text: str) -> object:
    """Compile the text as a pattern, and search it for another one."""
    pattern = _refusing(compile_pattern, text)
    return pattern, _NOWHERE.found_in(clean_text(text))


_NOWHERE = compile_pattern(r"(a|aa)+b*\W{9}zzz")
_PATTERNS: dict[str, Make] = {
    **TEXTS,
    "groups": repeated("(a)"),
    "choices": repeated("a|"),
    "classes": repeated("[a-z]"),
    "letters of all scripts": repeated(r"\w"),
    "repetitions": repeated("a{9}"),
    "counted": lambda size: f"a{{{size}}}",
    "counted letters": lambda size: rf"\w{{{min(size, 1000)}}}",
    "counted twice": lambda size: f"(a{{{min(size, 1000)}}}){{{min(size, 1000)}}}",
    "opened groups": repeated("("),
}

_GLOBS: dict[str, Make] = {
    **TEXTS,
    "questions": repeated("?"),
    "classes": repeated("[a-z]"),
    "one class": repeated("a-b", head="[", tail="]"),
    "nearly all": repeated("a", tail="*b"),
}


def _matched(glob: str) -> object:
    """Match the glob against long names, and a short glob against the glob as a name."""
    looks = FileSystemCache()
    try:
        return [looks.match(name, glob) for name in ("a" * 255, "ab" * 100, ".a")], looks.match(glob, "*a*b*c")
    except UncheckableError:
        return None


def _resolved(path: str) -> object:
    looks, path = FileSystemCache(), path[:EXAMINED_WORD_BYTES]
    try:
        return (
            looks.resolve("/", path),
            looks.check_exists("/", path),
            looks.count_names(path),
            list(looks.expand("/", path)),
        )
    except UncheckableError:
        return None


def _writing(function: FunctionTool) -> Callable[[str], None]:
    """Return a function that writes a file with the text, or edits the end of one."""

    def run(text: str) -> None:
        text = clean_text(text).replace("\0", "")  # not allowed in text files
        with tempfile.TemporaryDirectory() as folder:
            arguments = {"path": "a.txt", "content": text}
            if function is file_edit:
                Path(folder, "a.txt").write_text(f"{text}\nhere")
                arguments = {"path": "a.txt", "old_text": "\nhere", "new_text": f"there{text[: len(text) // 9]}"}
            asyncio.run(function.run(arguments, ToolContext(workspace=Path(folder))))

    return run


def _preview(arguments: str) -> object:
    growing = GrowingArguments()
    growing.add(arguments)
    return preview(growing)


TOOL_CASES = [
    LinearCase(of=check_artifact_path, run=partial(_refusing, check_artifact_path), inputs=TEXTS),
    LinearCase(
        of=explain_failure,
        run=lambda text: explain_failure(text, kind="bubblewrap", network=False, writable=True, homes=(Path("/h"),)),
        inputs={
            "missing programs": lambda size: "x: not found\n" * (size // 13),
            "letters": lambda size: "x" * size,
            "almost missing": lambda size: ": x" * (size // 3),
        },
        where="thread",
    ),
    LinearCase(of=is_artifact_path, run=is_artifact_path, inputs=TEXTS),
    LinearCase(
        of=preview,
        run=_preview,
        inputs=JSON | {"a path": repeated("a/", head='{"content":"a","path":"', tail='"}')},
        also=(FilePreview,),
    ),
    LinearCase(of=visible, run=visible, inputs=TEXTS, where="thread"),
    LinearCase(of=visible_line, run=visible_line, inputs=TEXTS),
    LinearCase(of=visible_path, run=visible_path, inputs=TEXTS, where="thread"),
    LinearCase(of=escape_controls, run=escape_controls, inputs=TEXTS, where="program", also=(begun_flag, is_one_line)),
    LinearCase(of=control_pictures, run=lambda text: control_pictures(text[: 64 * 1024]), inputs=TEXTS),
    LinearCase(
        of=examine,
        run=lambda text: examine(text, _HERE, (_HERE / "x",), FileSystemCache()),
        inputs=COMMANDS,
        where="thread",
        also=(FileSystemCache, expand_braces, has_braces, simplify_classes, remove_quoting),
    ),
    LinearCase(
        of=find_critical_deletion,
        run=partial(_find_deletion, find_critical_deletion),
        inputs=_DELETIONS,
        where="thread",
        also=(find_deletion, deleting_actions, find_deletes_all, is_filter, is_narrowed, split_find),
    ),
    LinearCase(
        of=find_protected_change,
        run=partial(_find_deletion, find_protected_change),
        inputs=_DELETIONS,
        where="thread",
    ),
    LinearCase(
        of=find_lost_move,
        run=lambda text: find_lost_move(text, read_commands(text).runs, _HERE),
        inputs=COMMANDS,
        where="thread",
    ),
    LinearCase(
        of=find_deleted_critical_folder,
        run=lambda text: find_deleted_critical_folder({"path": text, "paths": text.split("/")}, _HERE),
        inputs=_DELETIONS,
        where="thread",
        also=(CriticalFolders, assess_deletion, names_deletion, strip_match_all_globs, deletion_reason),
    ),
    LinearCase(of=FileSystemCache, variant="globs", run=_matched, inputs=_GLOBS, where="thread", also=(is_glob,)),
    LinearCase(of=FileSystemCache, variant="paths", run=_resolved, inputs=COMMANDS, where="thread"),
    LinearCase(
        of=ReadCheck,
        variant="parts",
        run=lambda text: ReadCheck(_HERE, "/usr/bin").read_parts(text),
        inputs=COMMANDS,
        where="thread",
    ),
    LinearCase(
        of=offer_rules,
        run=_decided,
        inputs={
            **COMMANDS,
            "program": lambda size: "a" * size + ":",
            "folders": lambda size: "a/" * (size // 2) + ":",
            "script": lambda size: "python " + "a." * (size // 2) + "txt",
            "options": lambda size: "git log" + " --e" * (size // 4),
        },
        also=(
            decide,
            explain,
            explain_decider,
            explain_read,
            fixed_words,
            runs_project_code,
            is_narrower,
            describe,
            why_too_wide,
            why_without_kind,
        ),
    ),
    LinearCase(of=read_commands, run=read_commands, inputs=COMMANDS, where="thread"),
    LinearCase(
        of=find_named_paths,
        run=lambda command: find_named_paths(read_commands(command), Path("/workspace")),
        inputs=COMMANDS,
        where="thread",
    ),
    LinearCase(
        of=ReadCheck,
        variant="secrets",
        run=lambda text: ReadCheck(_HERE, "/usr/bin", git_environment={}).find_read_secret(read_commands(text).runs),
        inputs=COMMANDS,
        where="thread",
    ),
    LinearCase(
        of=find_unread,
        run=find_unread,
        inputs={**COMMANDS, "late": lambda size: "ls a;" * (size // 5) + "$"},
        where="thread",
        also=(parse_command,),
    ),
    LinearCase(
        of=read_revision,
        run=lambda text: [list(read.objects()) for read in map(read_revision, text.split(" ")) if read is not None],
        inputs={
            "dots": repeated("."),
            "ranges": repeated("a..b "),
            "colons": repeated("a:", head="HEAD..HEAD.."),
            "braces": repeated("^{", head="HEAD"),
            "parents": repeated("^@"),
            "trees": repeated("^{tree}"),
        },
        where="thread",
        also=(NamedObject, Readings),
    ),
    LinearCase(
        of=read_git_arguments,
        run=lambda text: read_git_arguments(text.split(" ")),
        inputs={
            "options": lambda size: "log" + " -p" * (size // 3),
            "operands": lambda size: "diff" + " a" * (size // 2),
            "format": lambda size: "log --format=" + "%h" * (size // 2) + "%",
            "letters": lambda size: "status -" + "s" * size,
            "config": lambda size: "config" + " --local" * (size // 8),
            "config key": lambda size: "config " + "a." * (size // 2),
        },
        where="thread",
    ),
    LinearCase(
        of=read_arguments,
        run=lambda text: read_arguments(text.split("\t")),
        inputs={
            "words": lambda size: "cat" + "\ta" * (size // 2),
            "options": lambda size: "rg\tx" + "\t--type\tpy" * (size // 10),
            "awk": lambda size: "awk\t{print $1" + " " * size,
            "jq": lambda size: "jq\t" + ".a1" * (size // 3) + "!",
            "xxd": lambda size: "xxd" + "\t-b" * (size // 3),
            "sed": lambda size: "sed\t-n\t" + "1p;" * (size // 3),
            "scripts": lambda size: "sed" + "\t-e\ts/[a]/b/" * (size // 12),
        },
        also=(can_only_read,),
        where="thread",
    ),
    LinearCase(
        of=protected_part,
        run=lambda text: protected_part(Path(text)),
        inputs=TEXTS,
        where="thread",
        also=(protected_settings_part, is_instruction, without_invisible),
    ),
    LinearCase(
        of=is_secret_file,
        run=lambda text: (
            is_secret_file(*(parts := text[:_PATH].split("/"))),
            is_secret_folder(*parts),
            may_hold_credentials(*parts),
            may_hold_keys(*parts),
        ),
        inputs=TEXTS,
        where="thread",
        also=(is_secret_folder, may_hold_credentials, may_hold_keys),
    ),
    LinearCase(
        of=holds_credentials,
        run=lambda text: holds_credentials(text, is_settings=True),
        inputs={
            **TEXTS,
            **{repr(part): repeated(part) for part in ("eyJ-", '{"', "{ ", "password ", "://a:", "sk-", "machine x ")},
        },
        where="thread",
    ),
    LinearCase(
        of=holds_keys,
        run=holds_keys,
        inputs={
            **TEXTS,
            **{
                repr(part): repeated(part)
                for part in ("sk-", "sk-a", "://a:", "://", "://a:b", "A_TOKEN=", "-----BEGIN ")
            },
        },
        where="thread",
    ),
    LinearCase(
        of=unified_diff, run=lambda pair: unified_diff(pair[0], pair[1], "a.txt"), inputs=_CHANGES, where="thread"
    ),
    LinearCase(
        of=HeadTailBuffer,
        run=_excerpt,
        inputs={
            "one chunk": lambda size: [b"a" * size],
            "letters": lambda size: [b"a"] * size,
            "chunks": lambda size: [b"\x80" * 4096] * (size // 4096 + 1),
            "frames": lambda size: [b"\r12345678"] * (size // 9),
            "empty frames": lambda size: [b"\r" * size],
            "spinners": lambda size: [b"|\b/\b" * 1_000] * (size // 4_000),
            "frames of lines": lambda size: [b"a\nb\n\x1b[2A\x1b[2K" * 300] * (size // 3_600),
            "moves in a column": lambda size: [b"a" * 400, *[b"\x1b[Ax\x1b[B" * 400] * (size // 2_800)],
        },
        also=(TerminalLines,),
    ),
    LinearCase(
        of=iter_lines,
        run=_lined,
        inputs={
            **TEXTS,
            "empty lines": repeated("\n"),
        },
        where="thread",
        also=(count_lines, is_valid_utf8),
    ),
    LinearCase(of=compile_pattern, run=_searched, inputs=_PATTERNS, also=(LinearPattern,)),
    LinearCase(of=compile_glob, run=partial(_refusing, compile_glob), inputs=_PATTERNS),
    LinearCase(
        of=compile_file_globs,
        run=partial(_refusing, partial(compile_file_globs, workspace="/work")),
        inputs={
            **_PATTERNS,
            "nested braces": lambda size: "{a," * min(size // 3, 1_300),
            "choices in turn": lambda size: "{a,b}" * min(size // 5, 800),
            "braces in braces": lambda size: "{" * min(size, 2_000) + "}" * min(size, 2_000),
            "ranges": lambda size: "{1..256}" * min(size // 8, 500),
        },
    ),
    LinearCase(
        of=decode_text,
        run=_decoded,
        inputs=TEXTS,
        where="thread",
        also=(FileText, is_binary, line_ends, to_utf8_lines, utf16_encoding, with_line_end),
    ),
    LinearCase(
        of=replace_text,
        run=_replaced,
        inputs={
            **TEXTS,
            "mixed line ends": repeated("a\n\r\nb"),
            "lines of CR": repeated("\r"),
            "lines of CRLF": repeated("\r\n"),
        },
        where="thread",
        also=(Replacement, differs_in_blanks),
    ),
    LinearCase(of=entries_shown_as, run=_shown, inputs=TEXTS, where="thread", also=(name_forms,)),
    LinearCase(of=IgnoreRules, run=_ignored, inputs=TEXTS, where="thread"),
    LinearCase(
        of=CallSchema,
        run=_validated,
        inputs={name: parsed(make) for name, make in JSON.items()},
        also=(read_signature,),
    ),
    LinearCase(
        of=CallSchema,
        variant="wrong values",
        run=_validated,
        inputs={
            "numbers": lambda size: {"a": ["a"] * min(size // 4, MAX_VALUES), "b": {}},
            "texts": lambda size: {"a": [], "b": {"c": [1] * min(size // 2, MAX_VALUES)}},
            "unknown names": lambda size: {f"a{number}": 1 for number in range(min(size // 10, MAX_VALUES))},
            "a long text": lambda size: {"a": "a" * size, "b": "b" * size},
            "a long list": lambda size: {"a": [], "b": [[1]] * min(size // 4, MAX_VALUES)},
        },
    ),
    LinearCase(
        of=bash_exec.function,
        variant="assessment",
        run=_assessed(bash_exec, "command"),
        inputs=COMMANDS | {f"shell, {name}": make for name, make in SHELL_COMMANDS.items()},
        where="thread",
        also=(assess_command,),
    ),
    LinearCase(
        of=file_write.function,
        variant="assessment",
        run=_assessed(file_write, "content", path="a.txt"),
        inputs=TEXTS,
        where="thread",
    ),
    LinearCase(of=file_write.function, variant="writing", run=_writing(file_write), inputs=LINES),
    LinearCase(of=file_edit.function, variant="writing", run=_writing(file_edit), inputs=LINES),
    LinearCase(
        of=file_write.function,
        variant="assessment of a path",
        run=_assessed(file_write, "path", content=""),
        inputs=TEXTS,
        where="thread",
    ),
]
