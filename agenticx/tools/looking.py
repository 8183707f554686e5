"""Guess whether a shell command only looks at things: for loop detection, while permission needs `simple_commands`."""

from __future__ import annotations

import re

__all__ = ["seems_to_look"]

_COMMAND_CHARS = 2_000
_PROGRAMS = frozenset(
    [
        *("ack", "ag", "awk", "cat", "cd", "cmp", "column", "cut", "date", "df", "diff", "du", "egrep", "fd", "fgrep"),
        *(
            "file",
            "find",
            "grep",
            "head",
            "jq",
            "jobs",
            "less",
            "ls",
            "nl",
            "pgrep",
            "ps",
            "pwd",
            "rg",
            "sleep",
            "sort",
        ),
        *("stat", "strings", "tail", "test", "tr", "tree", "type", "uniq", "wc", "whereis", "which", "zgrep"),
    ]
)
_SUBCOMMANDS = {
    "docker": frozenset(["images", "inspect", "logs", "ps", "stats"]),
    "gh": frozenset(["issue", "pr", "run", "search", "workflow"]),
    "git": frozenset(["blame", "describe", "diff", "grep", "log", "ls-files", "reflog", "rev-parse", "show", "status"]),
    "kubectl": frozenset(["describe", "get", "logs", "top"]),
    "systemctl": frozenset(["is-active", "is-enabled", "list-units", "show", "status"]),
}
_GH_VERBS = frozenset(["checks", "diff", "list", "status", "view", "commits", "code", "issues", "prs", "repos"])
_HARMLESS_REDIRECTION = re.compile(r"[12&]?>&1|[12&]?>\s?/dev/null")
_SEPARATOR = re.compile(r"\|\||&&|[|;\n]")
_CHANGES = re.compile(r"[>`&]|\$\(|\s-(?:delete|exec(?:dir)?|ok|fprintf?)\b|\s--output\b|\bsystem\(")


def seems_to_look(command: str) -> bool:
    """Return whether every part of `command` is a well-known search, listing, reading or waiting.

    >>> seems_to_look("grep -rn tax src 2>/dev/null | head"), seems_to_look("find . -name x -delete")
    (True, False)
    """
    if len(command) > _COMMAND_CHARS:
        return False
    parts = _SEPARATOR.split(_HARMLESS_REDIRECTION.sub(" ", command))
    return any(part.strip() for part in parts) and all(map(_looks, parts))


def _looks(part: str) -> bool:
    words = part.split()
    if not words:
        return True
    if _CHANGES.search(part):
        return False
    program, rest = words[0], [word for word in words[1:] if not word.startswith("-")]
    if program not in _SUBCOMMANDS:
        return program in _PROGRAMS
    if not rest or rest[0] not in _SUBCOMMANDS[program]:
        return False
    return program != "gh" or (len(rest) > 1 and rest[1] in _GH_VERBS)
