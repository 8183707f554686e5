"""Programs that only read, with the options and operands that keep them so.

This is an accept-list: for each program the options that write nothing, run nothing, follow no links in folders and
take no file. Options have their exact names, since an abbreviation may mean another option in another version. Anything
else is not known to be harmless.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["BUILTINS", "Reading", "can_only_read", "read_arguments"]

_VALUES = {"n": re.compile(r"[+-]?[0-9]+[a-zA-Z]{0,3}"), "t": re.compile(r"[\t -~]*")}


@dataclass(frozen=True, slots=True)
class Reading:
    """The paths that a command reads; a recursive reading includes all files in their folders."""

    paths: tuple[str, ...] = ()
    is_recursive: bool = False
    takes_folders: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Program:
    """The arguments that a program takes.

    - `flags` are options of one letter without a value; `has_digits` allows `-5`.
    - `values` and `long` have the kind of each option's value: "n" a number, "t" any text, "" none. The value of a long
      option follows `=`; with "n:" and "t:" it may also be the next word.
    - `attaches` is false if the value of a letter is the next word even if letters follow: `tree -Io PATTERN OUTPUT`.
    - `operands` is the kind of other words, `most` their largest number.
    - `recursive` are the options that read folders with all their contents, "*" if the program always does.
    """

    flags: str = ""
    values: Mapping[str, str] = field(default_factory=dict[str, str])
    long: Mapping[str, str] = field(default_factory=dict[str, str])
    operands: Literal["paths", "texts", "pattern, paths", "files"] = "paths"
    most: int = 1_000
    has_digits: bool = False
    attaches: bool = True
    recursive: frozenset[str] = frozenset()


def _program(
    flags: str = "",
    *,
    values: str = "",
    long: str = "",
    operands: Literal["paths", "texts", "pattern, paths", "files"] = "paths",
    most: int = 1_000,
    has_digits: bool = False,
    attaches: bool = True,
    recursive: str = "",
) -> _Program:
    """Return a program; `values` are as in `c:t n:n`, and `long` as in `bytes=n: color=t quiet`."""
    names = [name.partition("=") for name in long.split()]
    return _Program(
        flags=flags,
        values=dict(value.split(":") for value in values.split()),
        long={name: kind for name, _, kind in names},
        operands=operands,
        most=most,
        has_digits=has_digits,
        attaches=attaches,
        recursive=frozenset(recursive.split()),
    )


_COUNTS = "bytes=n: lines=n: quiet silent verbose"
_DIGEST = _program("bt", long="binary text tag")
_GREP = _program(
    "abcEFGhHiIlLnoPqrsTUvVwxyzZ",
    values="A:n B:n C:n e:t m:n",
    long="after-context=n: before-context=n: color=t colour=t context=n: count exclude=t: exclude-dir=t:"
    " extended-regexp files-with-matches files-without-match fixed-strings ignore-case include=t: invert-match"
    " line-buffered line-number line-regexp max-count=n: no-filename no-messages null only-matching perl-regexp"
    " quiet recursive regexp=t: silent text with-filename word-regexp",
    operands="pattern, paths",
    has_digits=True,
    recursive="r recursive",
)
# `diff` without -r: it follows the links that it finds in folders.
_PROGRAMS: Mapping[str, _Program] = {
    ":": _program(operands="texts"),
    "arch": _program(most=0),
    "b2sum": _DIGEST,
    "basename": _program("az", values="s:t", operands="texts"),
    "cat": _program("AbEenstTuv", long="number show-all show-ends show-tabs squeeze-blank"),
    "cksum": _program(),
    "cmp": _program("bls", values="n:n", long="bytes=n print-bytes quiet silent verbose", operands="files", most=2),
    "column": _program("tx", values="s:t c:n"),
    "comm": _program("123z", operands="files", most=2),
    "cut": _program(
        "snz",
        values="b:t c:t d:t f:t",
        long="bytes=t: characters=t: complement delimiter=t: fields=t: only-delimited output-delimiter=t:",
    ),
    "df": _program("ahHiklPT", long="human-readable inodes local portability total"),
    "diff": _program(
        "abBcdeEinpqstuwyZ",
        values="C:n U:n W:n",
        long="brief color=t context=n ignore-all-space ignore-blank-lines ignore-case ignore-space-change minimal"
        " report-identical-files side-by-side text unified=n width=n",
        operands="files",
        most=2,
        has_digits=True,
    ),
    "dirname": _program("z", operands="texts"),
    "du": _program(
        "0abchkmsx",
        values="d:n t:n",
        long="all apparent-size block-size=t bytes human-readable max-depth=n: one-file-system summarize total",
    ),
    "egrep": _GREP,
    "expand": _program("i", values="t:t", long="initial tabs=t:"),
    "fgrep": _GREP,
    "file": _program("bhi", long="brief mime mime-encoding mime-type no-dereference"),
    "fmt": _program("cstu", values="w:n", long="split-only tagged-paragraph uniform-spacing width=n:"),
    "fold": _program("bs", values="w:n"),
    "grep": _GREP,
    "free": _program("bghkmtwl", long="bytes gibi giga human kibi kilo lohi mebi mega total wide", most=0),
    "groups": _program(operands="texts"),
    "head": _program("qvz", values="c:n n:n", long=_COUNTS, has_digits=True),
    "hexdump": _program("bCcdovx", values="e:t n:n s:n"),
    "hostname": _program(most=0),
    "id": _program("gGnru", operands="texts"),
    "join": _program("i", values="1:n 2:n a:n e:t j:n o:t t:t v:n", operands="files", most=2),
    "ls": _program(
        "1aAbBcCdfFgGhiklmnopqQrRsStuUvxXZ",
        values="I:t T:n w:n",
        long="all almost-all classify color=t directory group-directories-first hide=t human-readable ignore=t"
        " no-group numeric-uid-gid recursive reverse size sort=t time=t time-style=t width=n",
    ),
    "md5sum": _DIGEST,
    "nl": _program("p", values="b:t d:t f:t h:t i:n l:n n:t s:t v:n w:n"),
    "nproc": _program(long="all", most=0),
    "od": _program("abcdfilosvx", values="A:t j:n N:n t:t w:n"),
    "paste": _program("sz", values="d:t", long="delimiters=t: serial zero-terminated"),
    "pwd": _program("LP", most=0),
    "readlink": _program("efmnqsvz"),
    "realpath": _program("eLmPqsz"),
    "rev": _program(),
    "rg": _program(
        "cFHiIlNnoPqsSUvwx",
        values="A:n B:n C:n d:n e:t g:t m:n M:n r:t t:t T:t",
        long="after-context=n: before-context=n: case-sensitive color=t: column context=n: count count-matches files"
        " files-with-matches files-without-match fixed-strings glob=t: heading hidden iglob=t: ignore-case"
        " include-zero invert-match json line-number line-regexp max-columns=n: max-count=n: max-depth=n: multiline"
        " no-heading no-filename no-ignore no-ignore-vcs no-line-number no-messages null only-matching passthru pcre2"
        " quiet regexp=t: replace=t: smart-case sort=t: sortr=t: stats trim type=t: type-list type-not=t: vimgrep"
        " with-filename word-regexp",
        operands="pattern, paths",
        recursive="*",
    ),
    "seq": _program("w", values="f:t s:t", operands="texts"),
    "sha1sum": _DIGEST,
    "sha224sum": _DIGEST,
    "sha256sum": _DIGEST,
    "sha384sum": _DIGEST,
    "sha512sum": _DIGEST,
    "sort": _program(
        "bcCdfghiMmnrRsuVz",
        values="k:t t:t",
        long="dictionary-order field-separator=t: general-numeric-sort human-numeric-sort ignore-case"
        " ignore-leading-blanks key=t: month-sort numeric-sort reverse stable unique version-sort zero-terminated",
    ),
    "stat": _program("ft", values="c:t", long="file-system format=t: printf=t: terse"),
    "sum": _program("rs"),
    "tac": _program("b", values="s:t"),
    "tail": _program("qvz", values="c:n n:n", long=_COUNTS, has_digits=True),
    "tr": _program("cCdst", long="complement delete squeeze-repeats truncate-set1", operands="texts"),
    "tree": _program(
        "aAdDfFghinpqrsStuvUx",
        values="I:t L:n P:t",
        long="dirsfirst du filesfirst gitignore inodes matchdirs noreport prune si sort=t",
        attaches=False,
    ),
    "true": _program(operands="texts"),
    "false": _program(operands="texts"),
    "uname": _program("amnoprsv", long="all kernel-name kernel-release machine operating-system", most=0),
    "unexpand": _program("a", values="t:t", long="all first-only tabs=t:"),
    "uniq": _program("cdDiuz", values="f:n s:n w:n", long="count ignore-case repeated unique", most=1),
    "uptime": _program("ps", long="pretty since", most=0),
    "wc": _program("clmLw", long="bytes chars lines max-line-length words"),
    "which": _program("a", operands="texts"),
    "whoami": _program(most=0),
}

BUILTINS = frozenset({":", "[", "cd", "command", "echo", "false", "printf", "pwd", "test", "true", "type"})
"""Commands of this module that bash itself has; it looks on the PATH for no program of that name."""


def read_arguments(words: Sequence[str]) -> Reading | None:
    """Return what a command reads, None if it is not known to be harmless; `words` begin with the program."""
    name, rest = words[0], list(words[1:])
    if _is_information(name, rest):
        return Reading()
    if name in _READERS:
        return _READERS[name](rest)
    program = _PROGRAMS.get(name)
    return None if program is None else _read(program, rest)


def can_only_read(name: str) -> bool:
    """Return whether a program is known to only read with some arguments."""
    return name in _READERS or name in _PROGRAMS


_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
_DATE = re.compile(r"\+[ -~]*|-u|-I|-R|-Iseconds|--utc|--iso-8601(?:=[a-z]+)?|--rfc-3339=[a-z]+")
_SECONDS = re.compile(r"[0-9]{1,2}(?:\.[0-9]{1,3})?s?")
_STRINGS = _program("afw", values="e:t n:n t:t", long="all bytes=n: print-file-name radix=t:", has_digits=True)
# Of these, the version is printed before any file of the project is read. Not so `cargo`, `go` and `npm`: files of the
# project say which version of them runs, and where `npm` writes its log. And `pip` imports modules along PYTHONPATH.
_VERSIONED = frozenset(
    """
    awk bash cc clang cmake curl date docker find g++ gawk gcc gzip jq make mawk node perl podman python python3 rsync
    ruby sed sleep strings tar wget
    """.split()  # noqa: SIM905
)
_WITHOUT_HELP = frozenset({"docker", "podman"})  # it runs plugins, to list them
_SHORT_VERSION = {"docker": ["-v"], "node": ["-v"], "perl": ["-v"], "python": ["-V"], "python3": ["-V"]}


def _is_information(name: str, rest: Sequence[str]) -> bool:
    """Return whether the only argument of a program asks for its version or its help."""
    if rest == _SHORT_VERSION.get(name):
        return True
    is_known = name in _VERSIONED or name in _PROGRAMS
    return is_known and (rest == ["--version"] or (rest == ["--help"] and name not in _WITHOUT_HELP))


def _read_date(words: Sequence[str]) -> Reading | None:
    return Reading() if all(map(_DATE.fullmatch, words)) else None


def _read_command(words: Sequence[str]) -> Reading | None:
    """Return what a `command -v ls` reads; without an option it would run the program."""
    return _read_names(words[1:]) if words[:1] in (["-v"], ["-V"]) else None


def _read_names(words: Sequence[str]) -> Reading | None:
    return Reading() if words and all(map(_NAME.fullmatch, words)) else None


def _read_sleep(words: Sequence[str]) -> Reading | None:
    return Reading() if len(words) == 1 and _SECONDS.fullmatch(words[0]) else None


def _read_strings(words: Sequence[str]) -> Reading | None:
    """Return what a `strings file` reads; `@file` would be a file with more arguments."""
    return None if any(word.startswith("@") for word in words) else _read(_STRINGS, words)


def _read(program: _Program, words: Sequence[str]) -> Reading | None:
    options, operands, pending = set[str](), list[str](), list(words)[::-1]
    while pending:
        word = pending.pop()
        if word == "--":
            operands += reversed(pending)
            break
        if not word.startswith("-"):
            operands.append(word)
        elif not _take_option(program, word, pending, options):
            return None
    if len(operands) > program.most:
        return None
    is_recursive = "*" in program.recursive or bool(options & program.recursive)
    match program.operands:
        case "texts":
            return Reading()
        case "pattern, paths":
            has_pattern = options & {"e", "regexp", "files"}
            if not has_pattern and not operands:
                return None
            return Reading(tuple(operands if has_pattern else operands[1:]), is_recursive)
        case kind:
            return Reading(tuple(operands), is_recursive, takes_folders=kind == "paths")


def _take_option(program: _Program, text: str, pending: list[str], options: set[str]) -> bool:
    """Take an option, and its value from the `pending` words; return whether they are harmless."""
    if text.startswith("--"):
        name, equals, value = text[2:].partition("=")
        options.add(name)
        kind = program.long.get(name)
        if kind is not None and kind.endswith(":") and not equals and pending and not pending[-1].startswith("-"):
            equals, value = "=", pending.pop()
        if kind is None or bool(equals) != bool(kind):
            return False
        return not kind or _VALUES[kind[0]].fullmatch(value) is not None
    if program.has_digits and text[1:].isdigit():
        return True
    for place, letter in enumerate(text[1:], 2):
        options.add(letter)
        if letter in program.flags:
            continue
        kind = program.values.get(letter)
        if kind and not program.attaches and text[place:]:
            return False
        value = text[place:] or (pending.pop() if kind and pending else None)
        return kind is not None and value is not None and _VALUES[kind].fullmatch(value) is not None
    return text != "-"


def _read_printf(words: Sequence[str]) -> Reading | None:
    """Return what a `printf` reads, nothing; `-v` and `%n` would set variables."""
    is_print = words and not words[0].startswith("-") and re.search(r"%[^%A-Za-z]*n", words[0]) is None
    return Reading() if is_print else None


_FILE_TESTS = frozenset({"-d", "-e", "-f", "-h", "-L", "-r", "-s", "-w", "-x"})
_TEXT_TESTS = frozenset({"-n", "-z"})
_COMPARISONS = frozenset({"=", "==", "!=", "-eq", "-ne", "-lt", "-le", "-gt", "-ge"})


def _read_test(words: Sequence[str]) -> Reading | None:
    """Return what a `test` of one file or text reads, or of two texts; `-v` evaluates what is in an index."""
    match words:
        case [test, path] if test in _FILE_TESTS:
            return Reading((path,))
        case [test, _] if test in _TEXT_TESTS:
            return Reading()
        case [_, comparison, _] if comparison in _COMPARISONS:
            return Reading()
        case _:
            return None


def _read_bracket(words: Sequence[str]) -> Reading | None:
    return _read_test(words[:-1]) if words[-1:] == ["]"] else None


_FIND_FLAGS = frozenset(
    {"-a", "-and", "-depth", "-empty", "-ls", "-mount", "-not", "-o", "-or", "-print", "-print0", "-prune", "-true"}
    | {"-false", "-xdev", "(", ")", "!", "-readable", "-writable", "-executable", "-quit", "-daystart", "-nouser"}
    | {"-nogroup"}
)
_FIND_VALUES = frozenset(
    {"-amin", "-atime", "-cmin", "-ctime", "-iname", "-ipath", "-iregex", "-maxdepth", "-mindepth", "-mmin", "-mtime"}
    | {"-name", "-path", "-perm", "-printf", "-regex", "-regextype", "-size", "-type", "-links"}
    | {"-wholename", "-iwholename", "-user", "-group", "-uid", "-gid", "-inum", "-newermt", "-xtype"}
)


def _read_find(words: Sequence[str]) -> Reading | None:
    """Return what a `find` reads that neither runs nor writes: the names in its folders."""
    count = next((place for place, word in enumerate(words) if word.startswith(("-", "(", "!", ",", ")"))), len(words))
    pending, compared = list(words[count:])[::-1], list[str]()
    while pending:
        word = pending.pop()
        if word in ("-newer", "-anewer", "-cnewer") and pending:
            compared.append(pending.pop())
        elif word in _FIND_VALUES and pending:
            pending.pop()
        elif word not in _FIND_FLAGS:
            return None
    return Reading((*words[:count], *compared))


# Without the commands and the flag that run a program, read or write a file: `e`, `r`, `R`, `w`, `W`. Nor is there a
# character by its number, such as `\x2f`, nor a mark in brackets, which only some versions take for the end.
_SED_PATTERN = r"%(?:[^%\\\n\[]|\[[^]%\\\n]++\]|\\[^\ncdox])*%"
_SED_ADDRESS = rf"(?:[0-9]++|\$|{_SED_PATTERN.replace('%', '/')}I?)"
_SED_SUBSTITUTION = "|".join(
    rf"{_SED_PATTERN}(?:[^%\\\n]|\\[^\ncdox])*%".replace("%", mark) for mark in ("/", r"\|", "#", ",", "@")
)
_SED_COMMAND = (
    rf" *+(?:{_SED_ADDRESS}(?:,[+~]?{_SED_ADDRESS}|~[0-9]++)?)? *+!?+ *+"
    rf"(?:[pd=]|q[0-9]*+|s(?:{_SED_SUBSTITUTION})[gpiI0-9]*+) *+"
)
_SED_SCRIPT = re.compile(rf"{_SED_COMMAND}(?:;{_SED_COMMAND})*;?+")
_SED_OPTIONS = frozenset({"-n", "-E", "-r", "-nE", "-nr", "-En", "-rn", "--quiet", "--silent", "--regexp-extended"})


def _read_sed(words: Sequence[str]) -> Reading | None:
    """Return what a `sed -n 5,9p` or `sed s/a/b/` reads, which prints, deletes, counts or replaces lines."""
    pending, scripts = list(words)[::-1], list[str]()
    while pending and (pending[-1] in _SED_OPTIONS or pending[-1] == "-e"):
        if pending.pop() == "-e" and pending:
            scripts.append(pending.pop())
    if not scripts and pending:
        scripts.append(pending.pop())
    is_known = all(len(script) <= _MAX_PROGRAM_CHARS and _SED_SCRIPT.fullmatch(script) for script in scripts)
    paths = pending[::-1]
    return None if not scripts or not is_known or any(path.startswith("-") for path in paths) else Reading(tuple(paths))


_MAX_PROGRAM_CHARS = 1_000
_AWK_VALUE = r"(?:\$(?:[0-9]++|NF|\(NF-[0-9]++\))|NR|NF|FNR)"
_AWK_TEXT = r'"[^"\\]*+"'
_AWK_TEST = (
    rf"(?:/[^/\\\[\]]++/|{_AWK_VALUE}(?: *+(?:==|!=|>=|<=|>|<) *+(?:[0-9]++|{_AWK_TEXT}))?|!seen\[\$[0-9]++\]\+\+)"
)
_AWK_PRINT = rf"\{{ *+print(?: *+,? *+(?:{_AWK_VALUE}|{_AWK_TEXT}))* *+;? *+\}}"
_AWK_SUM = (
    r"\{ *+(?:sum|s|total|n) *+\+= *+(?:\$(?:[0-9]++|NF)|1) *+;? *+\}"
    r" *+END *+\{ *+print ++(?:sum|s|total|n) *+;? *+\}"
)
_AWK_TESTS = rf"{_AWK_TEST}(?: *+(?:&&|\|\|) *+{_AWK_TEST})*"
_AWK_PROGRAM = re.compile(rf" *+(?:{_AWK_TESTS} *+(?:{_AWK_PRINT})?|{_AWK_PRINT}|{_AWK_SUM}) *+")


def _read_awk(words: Sequence[str]) -> Reading | None:
    """Return what an `awk '{print $1}'` reads: fields, line numbers and texts, compared, printed or added up."""
    pending = list(words)[::-1]
    while pending and pending[-1].startswith("-F"):
        if pending.pop() == "-F" and pending:
            pending.pop()
    if not pending or len(pending[-1]) > _MAX_PROGRAM_CHARS or not _AWK_PROGRAM.fullmatch(pending.pop()):
        return None
    paths = pending[::-1]
    return None if any(path.startswith("-") or "=" in path for path in paths) else Reading(tuple(paths))


_JQ_NAMES = (
    "add all and any ascii_downcase ascii_upcase contains empty endswith false first flatten from_entries group_by has"
    " join keys keys_unsorted last length map map_values max max_by min min_by not null or reverse select sort sort_by"
    " split startswith test to_entries tonumber tostring true type unique unique_by values"
)
# Without `env`, `$ENV`, `input`, `import` and `include`; no text with `\`, which may have a filter in it.
_JQ_FILTER = re.compile(
    r"(?:[ \[\](){}|,:?+-]|[=!<>]=|[<>](?!=)|//|[0-9]++|\"[^\"\\]*+\"|\.[A-Za-z_][A-Za-z0-9_]*+|\.(?![.A-Za-z_])"
    rf"|(?<![A-Za-z0-9_.$@])(?:{'|'.join(_JQ_NAMES.split())})(?![A-Za-z0-9_:]))+"
)
_JQ_FLAGS = frozenset(
    {"--raw-output", "--compact-output", "--sort-keys", "--exit-status", "--slurp", "--monochrome-output"}
)
_JQ_LETTERS = re.compile(r"-[rcSesM]+")


def _read_jq(words: Sequence[str]) -> Reading | None:
    """Return what a `jq .name file` reads, whose filter has only fields, comparisons and plain functions."""
    operands = list[str]()
    for word in words:
        if not word.startswith("-"):
            operands.append(word)
        elif word not in _JQ_FLAGS and not _JQ_LETTERS.fullmatch(word):
            return None
    if not operands or len(operands[0]) > _MAX_PROGRAM_CHARS or not _JQ_FILTER.fullmatch(operands[0]):
        return None
    return Reading(tuple(operands[1:]))


def _read_xxd(words: Sequence[str]) -> Reading | None:
    """Return what an `xxd -l 64 file` reads: it knows no letters in one word, and writes into a second file."""
    pending = list(words)[::-1]
    while len(pending) > 1:
        option = pending.pop()
        if option in ("-c", "-g", "-l", "-s"):
            if not _VALUES["n"].fullmatch(pending.pop()):
                return None
        elif option not in ("-b", "-i", "-p", "-u"):
            return None
    return Reading(tuple(pending), takes_folders=False) if pending and not pending[0].startswith("-") else None


_READERS: Mapping[str, Callable[[Sequence[str]], Reading | None]] = {
    "[": _read_bracket,
    "awk": _read_awk,
    "command": _read_command,
    "date": _read_date,
    "echo": lambda _: Reading(),
    "find": _read_find,
    "gawk": _read_awk,
    "jq": _read_jq,
    "mawk": _read_awk,
    "printf": _read_printf,
    "sed": _read_sed,
    "sleep": _read_sleep,
    "strings": _read_strings,
    "test": _read_test,
    "type": _read_names,
    "xxd": _read_xxd,
}
