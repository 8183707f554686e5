"""A strict grammar of shell commands: it reads a text only where bash reads it in the same way.

It has simple commands of plain or quoted ASCII words, also `[ … ]`, joined by `;`, `&&`, `||`, `|` and newlines, with
comments and with redirections of the null device. Only `*` and `?` are expanded; there are no assignments and no
reserved words. A command with anything else is not read. Tests compare the grammar with bash.

For rules that allow by first words, `any_text` adds quoted words with line breaks and characters of any language, such
as commit messages, and a here document at the end whose delimiter is quoted.
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
_REDIRECTION = r"(?:2>&1|2?>[ \t]*/dev/null|<[ \t]*/dev/null)(?=[ \t\n;|&]|\Z)"
# What bash expands or ends a quote with is ASCII, whatever the encoding is.
_SINGLE_QUOTED_TEXT = r"'[^']*'"
_DOUBLE_QUOTED_TEXT = r'"(?:\\?[\t !#%-\[\]-_a-~]|\n|[^\x00-\x7f])*"'
_HERE_DOCUMENT = r"<<[ \t]*(?P<quote>['\"])(?P<end>[A-Za-z_]+)(?P=quote)[ \t]*\n(?:[^\n]*\n)*?(?P=end)(?=\n|\Z)"


def _tokens_with(single_quoted: str, double_quoted: str, redirection: str) -> re.Pattern[str]:
    return re.compile(
        r"(?P<blank>[ \t]+)|(?P<newline>\n)|(?P<operator>&&|\|\||;|\|)|(?P<comment>#[\t -~]*)"
        rf"|(?P<redirection>{redirection})"
        rf"|(?P<word>{_BRACKET}|(?:{_PLAIN}|{single_quoted}|{double_quoted})+)"
    )


_TOKEN = _tokens_with(_SINGLE_QUOTED, _DOUBLE_QUOTED, _REDIRECTION)
_TOKEN_OF_ANY_TEXT = _tokens_with(_SINGLE_QUOTED_TEXT, _DOUBLE_QUOTED_TEXT, f"{_REDIRECTION}|{_HERE_DOCUMENT}")
_PART = re.compile(rf"""'([^']*)'|"([^"]*)"|({_PLAIN}+|[\[\]])""")
_ACTIVE = re.compile(r"[*?]")

Operator = Literal["", ";", "&&", "||", "|"]


@dataclass(frozen=True, slots=True)
class Word:
    """A word without its quotes.

    `is_glob` is True if bash replaces the word by the names of matching files, `is_bare` if no part of it is quoted.
    """

    text: str
    is_glob: bool = False
    is_bare: bool = True


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """The words of one command without its redirections; `after` is the operator in front of it."""

    words: tuple[Word, ...]
    after: Operator = ""


def parse_command(command: str, *, any_text: bool = False) -> tuple[SimpleCommand, ...] | None:
    r"""Return the simple commands of a command line, None if the grammar does not have it.

    With `any_text` quoted words and here documents may have all printable characters, tabs and line breaks.

    >>> [[word.text for word in part.words] for part in parse_command("cd src && ls 2>/dev/null | head -n 3") or ()]
    [['cd', 'src'], ['ls'], ['head', '-n', '3']]
    >>> parse_command("echo $HOME")
    """
    if any_text and not all(map(_is_text, command)):
        return None
    tokens = _tokens(command, _TOKEN_OF_ANY_TEXT if any_text else _TOKEN)
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
    """Return a clause about the first part of a command that the grammar does not have, None if it has all.

    Quoted text of any language is reported last.

    >>> find_unread("ls > files.txt"), find_unread("PAGER=less git log")
    ('a redirection to a file', 'an assignment before its program')
    """
    is_first, position, kind = True, 0, "blank"
    while position < len(command):
        token = _TOKEN_OF_ANY_TEXT.match(command, position)
        if token is None or token.lastgroup is None or (token.lastgroup in _WORDS and kind in _WORDS):
            return _UNREAD.get(command[position]) or _unread_character(command[position])
        kind, position = token.lastgroup, token.end()
        if kind == "word" and is_first and _NO_PROGRAM.fullmatch(token[0]):
            return "an assignment before its program" if "=" in token[0] else f"the shell's word `{token[0]}`"
        is_first = kind in ("operator", "newline") or (is_first and kind in ("blank", "comment"))
    if parse_command(command) is not None:
        return None
    if (hidden := next((char for char in command if not _is_text(char)), None)) is not None:
        return _unread_character(hidden)
    if parse_command(command, any_text=True) is not None:
        return "a quoted text or a here document with line breaks or characters other than plain ones"
    if "\\" in command:
        return "a backslash in a pattern, an operator without a command, or too many commands"
    return f"an operator without a command, or more than {_MAX_COMMANDS} commands"


def _unread_character(char: str) -> str:
    return f"the character {visible_line(char, 20)!r}"


def _is_text(char: str) -> bool:
    return char.isprintable() or char in "\t\n"


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
    "'": "a quote that is not closed",
    '"': "a quoted text in which bash expands something, or a quote that is not closed",
}


def _tokens(command: str, pattern: re.Pattern[str]) -> list[tuple[str, str]] | None:
    """Return the kinds and texts of the tokens; None for an unknown token, or for two words without a blank between."""
    tokens, position, previous = list[tuple[str, str]](), 0, "blank"
    while position < len(command):
        token = pattern.match(command, position)
        kind = None if token is None else token.lastgroup
        if token is None or kind is None:
            return None
        if kind in _WORDS and previous in _WORDS:
            return None
        tokens.append((kind, token[0]))
        position, previous = token.end(), kind
    return tokens


_NO_PROGRAM = re.compile(
    r"(?:case|coproc|do|done|elif|else|esac|fi|for|function|if|in|select|then|time|until|while)|[A-Za-z_]\w*\+?=.*",
    re.DOTALL,
)
"""A reserved word, or an assignment, whose quoted text may have line breaks."""

_WORDS = frozenset({"word", "redirection", "comment"})
_OPERATORS: dict[str, Operator] = {";": ";", "&&": "&&", "||": "||", "|": "|"}


def _word(text: str) -> Word:
    parts = list(_PART.finditer(text))
    is_glob = any(_ACTIVE.search(part[3] or "") for part in parts)
    is_bare = all(part[3] is not None for part in parts)
    return Word("".join(part[1] or part[2] or part[3] or "" for part in parts), is_glob, is_bare)
