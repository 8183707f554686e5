"""A tolerant reading of shell commands for rules that ask or deny: the programs that a command line may run.

Unlike the strict `grammar`, it reads all of bash: quotes, substitutions, here documents, compound commands, and
programs that run others (`sudo`, `env`, `xargs`, `bash -c`, …). A reading is incomplete where bash alone knows what
runs, for example a program in a variable, or where a script runs. What `pytest`, `make` or `npm test` run of the
project is not read. A reading never serves to allow a command.

>>> read_commands('x=$(git push) && sudo -u me env A=1 "rm" -r build').runs[:2]
(('git', 'push'), ('sudo', '-u', 'me', 'env', 'A=1', 'rm', '-r', 'build'))
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from agenticx.tools.shell.inner_commands import ASSIGNMENT, MAX_DEPTH, FoundCommands

__all__ = ["CommandReading", "read_commands"]

_MAX_CHARS = 64 * 1024
_REDIRECTION = re.compile(r"\d*(?:&>>?|<<<|<<-?|<>|>>|>\||[<>]&|[<>](?!\())")
_END_OF_WORD = re.compile(r"[ \t\r\n;|&)]|[<>](?!\()")
_TEST = re.compile(r"\[\[?(?=\s)")
_PLAIN = re.compile(r"[^\s;|&<>()`$\"'\\#*?\[\]{}~]+|#")
_ARITHMETIC = re.compile(r"\(((?:[^()'\"`$\\;\n{}#]++|\$\w|\([^()'\"`$\\;\n{}#]*+\))*)\)\)")
_TWO_WORDS = re.compile(r"\w\s+[\w-]")
_ANSI_C = re.compile(r"(?:[^'\\]|\\.)*", re.DOTALL)
_ESCAPES = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|([0-7]{1,3})|(.))", re.DOTALL)
_NAMED_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "e": "\x1b"}


@dataclass(frozen=True, slots=True)
class CommandReading:
    """The simple commands of a command line, with the commands inside of other commands.

    Each is its words without assignments; None is a word that only bash knows. `is_complete` is False if the line may
    run other commands too, for example code in another language.
    """

    runs: tuple[tuple[str | None, ...], ...]
    is_complete: bool
    mentions: frozenset[str | None] = frozenset()
    """The names in the arguments of unknown programs, which may run their arguments; None stands for any name."""
    read: frozenset[str | None] = frozenset()
    """The files from which input is redirected."""
    written: frozenset[str | None] = frozenset()
    """The files to which output is redirected."""


def read_commands(command: str) -> CommandReading:
    """Return the simple commands that `command` may run, in linear time; a very long command is not read."""
    if len(command) > _MAX_CHARS:
        return CommandReading((), is_complete=False)
    found = FoundCommands(_read_code)
    _Reader(command, found, 0).read()
    return CommandReading(
        tuple(found.runs), found.is_complete, *map(frozenset, (found.mentions, found.read, found.written))
    )


def _read_code(code: str, found: FoundCommands, depth: int) -> None:
    _Reader(code, found, depth).read()


class _Reader:
    """One pass over code of the shell; each substitution is read by the same reader, on a stack of open commands."""

    def __init__(self, code: str, found: FoundCommands, depth: int) -> None:
        self._code = code
        self._found = found
        self._depth = depth
        self._position: int = 0
        self._documents: list[tuple[str, bool, bool]] = []
        """The delimiters of here documents that begin on the next line: quoted, and with leading tabs."""
        self._arithmetic = 0
        """The number of open `((`, in which `<<` may be a shift."""
        self._has_bracket = False
        """True if the simple command has an open `[`, behind which `<<` may be a shift."""

    def read(self) -> None:
        """Read all of the code."""
        while self._position < len(self._code):
            self._read_list("")
            self._position += 1  # a closing parenthesis without an opening one

    def _read_list(self, end: str, nesting: int = 0) -> None:
        """Read commands up to the character `end`, which is left in place."""
        if nesting > MAX_DEPTH:
            self._found.is_complete = False
            self._position = len(self._code)
            return
        words: list[str | None] = []
        code = self._code
        while self._position < len(code):
            char = code[self._position]
            if char == end or (char == ")" and not end):
                break
            if char in " \t\r":
                self._position += 1
            elif code.startswith("\\\n", self._position):
                self._position += 2
            elif char == "#":
                self._found.is_complete &= not self._arithmetic
                newline = code.find("\n", self._position)
                self._position = len(code) if newline < 0 else newline
            elif redirection := _REDIRECTION.match(code, self._position):
                self._position = redirection.end()
                self._read_target(redirection[0].lstrip("0123456789"), nesting)
            elif char in ";|&\n()":
                self._found.add(words, self._depth)
                words, self._has_bracket = [], False
                self._read_operator(char, nesting)
            else:
                words.append(self._read_word(nesting))
        if end and words[:1] == ["case"]:
            self._found.is_complete = False  # the parenthesis may belong to a pattern
        self._found.add(words, self._depth)

    def _read_operator(self, char: str, nesting: int) -> None:
        self._position += 1
        if char == "\n":
            self._skip_documents(nesting)
        elif char == "(":
            self._read_group(nesting)

    def _read_group(self, nesting: int) -> None:
        """Read commands or arithmetic up to the closing parenthesis and over it."""
        arithmetic = _ARITHMETIC.match(self._code, self._position)
        if arithmetic is not None and not _TWO_WORDS.search(arithmetic[1]):
            self._position = arithmetic.end()
            return
        is_double = self._code.startswith("(", self._position)
        self._arithmetic += is_double
        self._read_list(")", nesting + 1)
        self._arithmetic -= is_double
        self._position += 1

    def _read_target(self, operator: str, nesting: int) -> None:
        """Read the word after a redirection."""
        code = self._code
        if operator in ("<<", "<<-") and (self._arithmetic or self._has_bracket):
            self._found.is_complete = False  # a shift rather than a here document
            return
        while self._position < len(code) and code[self._position] in " \t":
            self._position += 1
        begin = self._position
        if begin < len(code) and code[begin] not in ";|&\n<>":
            word = self._read_word(nesting)
            if operator in ("<<", "<<-") and word is not None:
                is_quoted = re.search(r"['\"\\]", code[begin : self._position]) is not None
                self._documents.append((word, is_quoted, operator == "<<-"))
            elif operator in ("<<", "<<-"):
                self._found.is_complete = False
            elif operator == "<":
                self._found.read.add(word)
            elif operator != "<<<" and not (operator in ("<&", ">&") and re.fullmatch(r"\d*-?", word or "x")):
                self._found.written.add(word)

    def _skip_documents(self, nesting: int) -> None:
        """Skip the here documents that begin here; what they substitute is read."""
        documents, self._documents = self._documents, []
        for delimiter, is_quoted, has_tabs in documents:
            begin = self._position
            while self._position < len(self._code):
                newline = self._code.find("\n", self._position)
                line_end = len(self._code) if newline < 0 else newline
                line = self._code[self._position : line_end]
                body_end = self._position
                self._position = min(line_end + 1, len(self._code))
                if (line.lstrip("\t") if has_tabs else line) == delimiter:
                    break
            else:
                body_end = len(self._code)
            body = self._code[begin:body_end]
            if not is_quoted and ("$" in body or "`" in body):
                inner = _Reader(body, self._found, self._depth)
                inner._read_double_quoted(nesting, "")

    def _read_word(self, nesting: int) -> str | None:
        """Read one word and return it without its quotes, None if bash alone knows it."""
        code, begin = self._code, self._position
        if test := _TEST.match(code, begin):
            self._position = test.end()
            return test[0]
        parts: list[str] = []
        is_known = True
        while self._position < len(code) and not _END_OF_WORD.match(code, self._position):
            if code[self._position] == "(" and not (self._position > begin and code[self._position - 1] in "=?*+@!"):
                break
            text = self._read_part(nesting, is_first=self._position == begin)
            is_known &= text is not None
            parts.append(text or "")
        self._position = max(self._position, begin + 1)
        if is_known:
            return "".join(parts)
        assignment = ASSIGNMENT.match(code, begin)
        return None if assignment is None else assignment[0]  # whatever its value is

    def _read_part(self, nesting: int, *, is_first: bool) -> str | None:
        """Read one part of a word: plain text, a quoted text, or something else, for which None is returned."""
        code, char = self._code, self._code[self._position]
        if match := _PLAIN.match(code, self._position):
            self._position = match.end()
            return match[0]
        if char in "'\"\\" or code.startswith(("$'", '$"'), self._position):
            return self._read_quoted(nesting)
        if char in "$`<>":
            self._read_expansion(nesting)
            return None
        self._position += 1
        self._has_bracket |= char == "["
        if char == "(":  # an array, or an extended glob
            self._read_list(")", nesting + 1)
            self._position += 1
            return None
        is_plain = char in "]}" or (char == "{" and is_first and self._is_alone())  # else a glob, a brace or a tilde
        return char if is_plain else None

    def _read_quoted(self, nesting: int) -> str | None:
        code = self._code
        if code[self._position] == "\\":
            self._position += 2
            return code[self._position - 1 : self._position].replace("\n", "")
        if code.startswith("$'", self._position):
            ansi_c = _ANSI_C.match(code, self._position + 2)
            assert ansi_c is not None
            self._position = ansi_c.end() + 1
            return _ESCAPES.sub(_unescaped, ansi_c[0])
        if code[self._position] == "'":
            end = code.find("'", self._position + 1)
            end = len(code) if end < 0 else end
            begin, self._position = self._position + 1, end + 1
            return code[begin:end]
        self._position += 2 if code[self._position] == "$" else 1
        return self._read_double_quoted(nesting, '"')

    def _is_alone(self) -> bool:
        """Return whether a word ends here."""
        return self._code[self._position : self._position + 1] in ("", " ", "\t", "\n", ";")

    def _read_expansion(self, nesting: int, *, is_quoted: bool = False) -> None:
        """Read what follows `$`, a backquote, or `<(`."""
        code = self._code
        opening = code[self._position : self._position + 2]
        if opening[0] == "`":
            end = self._position + 1
            while end < len(code) and code[end] != "`":
                end += 2 if code[end] == "\\" else 1
            inner = re.sub(r"\\([\\`$])", r"\1", code[self._position + 1 : end])
            if nesting >= MAX_DEPTH or self._depth >= MAX_DEPTH:
                self._found.is_complete = False
            else:
                _Reader(inner, self._found, self._depth + 1).read()
            self._position = end + 1
        elif opening in ("$(", "<(", ">("):
            self._position += 2
            self._read_group(nesting)
        elif opening == "${":
            self._position += 2
            self._read_parameter(nesting + 1, is_quoted=is_quoted)
        else:
            name = re.compile(r"\$(?:\w+|[@*#?$!-])?").match(code, self._position)
            self._position = name.end() if name is not None else self._position + 1

    def _read_parameter(self, nesting: int, *, is_quoted: bool) -> None:
        """Read up to the end of `${…}`; substitutions in it are read."""
        code, depth = self._code, 1
        if nesting > MAX_DEPTH or code[self._position : self._position + 1] in (" ", "\t", "\n", "|"):
            self._found.is_complete = False
        while self._position < len(code) and depth:
            char = code[self._position]
            if code.startswith("${", self._position):
                depth += 1
                self._position += 2
            elif char == "'" and is_quoted:
                self._found.is_complete = False  # it is a quote or not, depending on the operator
                self._position += 1
            elif nesting <= MAX_DEPTH and (char in "\\'\"" or code.startswith("$'", self._position)):
                self._read_quoted(nesting + 1)
            elif char == "`" or code.startswith(("$(", "<(", ">("), self._position):
                self._read_expansion(nesting + 1)
            else:
                depth -= char == "}"
                self._position += 1

    def _read_double_quoted(self, nesting: int, end: str) -> str | None:
        """Read up to the quote `end` and over it; return the text, None if bash alone knows it."""
        parts: list[str] = []
        is_known, code = True, self._code
        while self._position < len(code):
            char = code[self._position]
            if char == end:
                self._position += 1
                break
            if char == "\\":
                following = code[self._position + 1 : self._position + 2]
                parts.append(following if following in '$`"\\' else "" if following == "\n" else "\\" + following)
                self._position += 2
            elif char == "`" or (
                char == "$" and re.match(r"\$[\w({@*#?$!-]", code[self._position : self._position + 2])
            ):
                is_known = False
                self._read_expansion(nesting, is_quoted=True)
            else:
                parts.append(char)
                self._position += 1
        return "".join(parts) if is_known else None


def _unescaped(match: re.Match[str]) -> str:
    hexadecimal, unicode, octal, other = match.groups()
    if other is not None:
        return _NAMED_ESCAPES.get(other, other)
    return chr(int(hexadecimal or unicode, 16) if octal is None else int(octal, 8))
