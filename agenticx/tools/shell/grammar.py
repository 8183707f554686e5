"""A strict grammar of shell commands, in which each text means to bash what it means here.

Simple commands of plain or quoted ASCII words, also `[ … ]`, joined by `;`, `&&`, `||`, `|` and newlines, with comments
and with redirections of the null device. There is no expansion but that of `*` and `?`, no assignment, and no reserved
word: what is not plainly in the grammar is not read at all. Tests compare it with bash.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from agenticx.tools.visible import visible_line

__all__ = ["SimpleCommand", "Word", "find_unread", "parse_command"]

_MAX_COMMANDS = 100

_PLAIN = (
    r"(?:[A-Za-z0-9_./:,@%+=^*?-]|(?<=[A-Za-z0-9_^])~)"  # bash expands `~` at the start of a word, and after = and :
)
_SINGLE_QUOTED = r"'[\t -&(-~]*'"
# Without what bash expands between these quotes; a backslash before another character stays one.
_DOUBLE_QUOTED = r'"(?:\\?[\t !#%-\[\]-_a-~])*"'
_BRACKET = r"(?<![^ \t\n;|&])[\[\]](?=[ \t\n;|&]|\Z)"  # as a word of its own it is no pattern
_TOKEN = re.compile(
    r"(?P<blank>[ \t]+)|(?P<newline>\n)|(?P<operator>&&|\|\||;|\|)|(?P<comment>#[\t -~]*)"
    r"|(?P<redirection>(?:2>&1|2?>[ \t]*/dev/null|<[ \t]*/dev/null)(?=[ \t\n;|&]|\Z))"
    rf"|(?P<word>{_BRACKET}|(?:{_PLAIN}|{_SINGLE_QUOTED}|{_DOUBLE_QUOTED})+)"
)
_PART = re.compile(rf"""'([^']*)'|"([^"]*)"|({_PLAIN}+|[\[\]])""")
_ACTIVE = re.compile(r"[*?]")

Operator = Literal["", ";", "&&", "||", "|"]


@dataclass(frozen=True, slots=True)
class Word:
    """A word without its quotes; `is_glob` says that bash replaces it by the names of files, if some match.

    `is_bare` is False if a part of it is quoted.
    """

    text: str
    is_glob: bool = False
    is_bare: bool = True


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """The words of one command, its redirections left out; `after` is the operator before it."""

    words: tuple[Word, ...]
    after: Operator = ""


def parse_command(command: str) -> tuple[SimpleCommand, ...] | None:
    r"""Return the simple commands of a command line, None if the grammar does not have it.

    >>> [[word.text for word in part.words] for part in parse_command("cd src && ls 2>/dev/null | head -n 3") or ()]
    [['cd', 'src'], ['ls'], ['head', '-n', '3']]
    >>> parse_command("echo $HOME")
    """
    tokens = _tokens(command)
    if tokens is None:
        return None
    commands, words = list[SimpleCommand](), list[Word]()
    after: Operator = ""
    for kind, text in [*tokens, ("newline", "")]:
        match kind:
            case "word":
                if not words and _NO_PROGRAM.fullmatch(text):
                    return None
                word = _word(text)
                if word.is_glob and "\\" in word.text:
                    return None  # in a pattern, a quoted backslash is another one
                words.append(word)
            case "operator" | "newline" if words:
                commands.append(SimpleCommand(tuple(words), after))
                words, after = [], _OPERATORS.get(text, ";")
            case "operator" | "redirection" if not words:
                return None
            case _:
                pass
    return tuple(commands) if after in ("", ";") and len(commands) <= _MAX_COMMANDS else None


def find_unread(command: str) -> str | None:
    """Return a clause about the first thing in a command that the grammar does not have, None if it has all.

    >>> find_unread("ls > files.txt"), find_unread("PAGER=less git log")
    ('a redirection to a file', 'an assignment before its program')
    """
    is_first, position, kind = True, 0, "blank"
    while position < len(command):
        token = _TOKEN.match(command, position)
        if token is None or token.lastgroup is None or (token.lastgroup in _WORDS and kind in _WORDS):
            return _UNREAD.get(command[position]) or f"the character {visible_line(command[position], 20)!r}"
        kind, position = token.lastgroup, token.end()
        if kind == "word" and is_first and _NO_PROGRAM.fullmatch(token[0]):
            return "an assignment before its program" if "=" in token[0] else f"the shell's word `{token[0]}`"
        is_first = kind in ("operator", "newline") or (is_first and kind in ("blank", "comment"))
    if parse_command(command) is not None:
        return None
    if "\\" in command:
        return "a backslash in a pattern, an operator without a command, or too many commands"
    return f"an operator without a command, or more than {_MAX_COMMANDS} commands"


_UNREAD = {
    "$": "a `$`, which bash expands",
    "`": "a command in backticks",
    "<": "a redirection of a file",
    ">": "a redirection to a file",
    "&": "a `&`",
    "(": "parentheses",
    ")": "parentheses",
    "{": "braces",
    "}": "braces",
    "[": "a pattern with brackets",
    "]": "a pattern with brackets",
    "\\": "a backslash",
    "!": "a `!`",
    "~": "a `~`, which bash expands",
    "'": "a quoted text with characters other than plain ones, or a quote that is not closed",
    '"': "a quoted text in which bash expands something, or a quote that is not closed",
}


def _tokens(command: str) -> list[tuple[str, str]] | None:
    """Return the kinds and texts of the tokens; None if the command has any other, or two words without a blank."""
    tokens, position, previous = list[tuple[str, str]](), 0, "blank"
    while position < len(command):
        token = _TOKEN.match(command, position)
        kind = None if token is None else token.lastgroup
        if token is None or kind is None:
            return None
        if kind in _WORDS and previous in _WORDS:
            return None
        tokens.append((kind, token[0]))
        position, previous = token.end(), kind
    return tokens


_NO_PROGRAM = re.compile(
    r"(?:case|coproc|do|done|elif|else|esac|fi|for|function|if|in|select|then|time|until|while)|[A-Za-z_]\w*\+?=.*"
)
"""A reserved word, or an assignment."""

_WORDS = frozenset({"word", "redirection", "comment"})
_OPERATORS: dict[str, Operator] = {";": ";", "&&": "&&", "||": "||", "|": "|"}


def _word(text: str) -> Word:
    parts = list(_PART.finditer(text))
    is_glob = any(_ACTIVE.search(part[3] or "") for part in parts)
    is_bare = all(part[3] is not None for part in parts)
    return Word("".join(part[1] or part[2] or part[3] or "" for part in parts), is_glob, is_bare)
