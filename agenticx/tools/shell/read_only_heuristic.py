"""A heuristic for read-only shell commands, for loop detection; permissions use `harmless_commands`."""

from __future__ import annotations

import re

__all__ = ["seems_read_only"]

_MAX_COMMAND_CHARS = 2_000
_READ_ONLY_PROGRAMS = frozenset(
    [
        *("ack", "ag", "awk", "basename", "cat", "cd", "cksum", "cmp", "column", "cut", "date", "df", "diff", "dig"),
        *("dirname", "du", "egrep", "fd", "fgrep", "file", "find", "free", "grep", "head", "host", "id", "jobs"),
        *("journalctl", "jq", "less", "ls", "lsof", "md5sum", "netstat", "nl", "nslookup", "nvidia-smi", "pg_isready"),
        *("pgrep", "ps", "pwd", "readlink", "realpath", "rg", "seq", "sha256sum", "sleep", "sort", "ss", "stat"),
        *("strings", "tac", "tail", "tr", "tree", "type", "uname", "uniq", "uptime", "wait", "wc", "whereis", "which"),
        *("whoami", "zgrep"),
        *("bjobs", "qstat", "sacct", "sinfo", "squeue"),
        *(":", "[", "[[", "echo", "exit", "expr", "false", "printf", "test", "true"),
    ]
)
_READ_ONLY_SUBCOMMANDS = {
    "compose": frozenset(["images", "logs", "ls", "ps", "top"]),
    "docker": frozenset(["compose", "images", "info", "inspect", "logs", "port", "ps", "stats", "top", "version"]),
    "gh": frozenset(["issue", "pr", "run", "search", "workflow"]),
    "git": frozenset(["blame", "describe", "diff", "grep", "log", "ls-files", "reflog", "rev-parse", "show", "status"]),
    "helm": frozenset(["get", "history", "list", "ls", "status"]),
    "kubectl": frozenset(["cluster-info", "describe", "events", "explain", "get", "logs", "rollout", "top", "wait"]),
    "rollout": frozenset(["history", "status"]),
    "supervisorctl": frozenset(["avail", "status", "tail"]),
    "systemctl": frozenset(["is-active", "is-enabled", "is-failed", "list-units", "list-timers", "show", "status"]),
}
_ALIASES = {"docker-compose": "compose", "podman": "docker"}
_NESTED = frozenset(["compose", "rollout"])
_GH_VERBS = frozenset(
    ["checks", "code", "commits", "diff", "issues", "list", "prs", "repos", "status", "view", "watch"]
)
_OPTIONS_WITH_VALUE = frozenset(["-C", "-H", "-R", "-f", "-n", "--context", "--host", "--namespace", "--repo"])
"""Options before a subcommand that take the next word as their value."""

_PREFIXES = frozenset(["!", "command", "do", "elif", "else", "if", "nice", "sudo", "then", "time", "until", "while"])
_ENDINGS = frozenset(["done", "fi"])
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w{0,60}=")

_QUOTED = re.compile(r"'[^']*'|\"[^\"$`\\]*\"")
_QUOTED_ARE_PROGRAMS = re.compile(r"\bawk\b|\s['\"]-")
_HARMLESS_REDIRECTION = re.compile(r"[12&]?>&[12]|[12&]?>\s?/dev/null|-[a-zA-Z]{0,8}o ?/dev/null|--output[ =]/dev/null")
_SEPARATOR = re.compile(r"\|\||&&|[|;\n]")
_CHANGES = re.compile(r"[>`&]|\$\(|\s-(?:delete|exec(?:dir)?|ok|fprintf?)\b|\s--output\b|\bsystem\(")
_GET = re.compile(r"(?:-X ?|--request[ =])(?:GET|HEAD)\b")
_CURL_CHANGES = re.compile(
    r"\s(?:-[a-zA-Z]*[cdDFKoOQTX]|--(?!compressed|connect-|fail|get\b|head\b|header\b|http|include|insecure|ipv|location"
    r"|max-time|no-|retry|show-error|silent|url|user|verbose|write-out))"
)
_WGET_READS = re.compile(r"\s(?:--spider\b|-[a-zA-Z]{0,4}O ?-(?=\s|\Z))")
_WGET_CHANGES = re.compile(r"\s--(?:post|method|body)")


def seems_read_only(command: str) -> bool:
    """Return whether every part of `command` is a well-known command that searches, lists, reads or waits.

    >>> seems_read_only("grep -rn tax src 2>/dev/null | head"), seems_read_only("find . -name x -delete")
    (True, False)
    """
    if len(command) > _MAX_COMMAND_CHARS:
        return False
    if _QUOTED_ARE_PROGRAMS.search(command) is None:
        command = _QUOTED.sub("_", command)
    parts = _SEPARATOR.split(_HARMLESS_REDIRECTION.sub(" ", command))
    return any(part.strip() for part in parts) and all(map(_part_is_read_only, parts))


def _part_is_read_only(part: str) -> bool:
    words = _without_prefixes(part.split())
    if not words or (len(words) == 1 and words[0] in _ENDINGS):
        return True
    if _CHANGES.search(part):
        return False
    program = words[0].rpartition("/")[2]
    program = _ALIASES.get(program, program)
    match program:
        case "curl":
            return _CURL_CHANGES.search(_GET.sub(" ", part)) is None
        case "wget":
            return _WGET_READS.search(part) is not None and _WGET_CHANGES.search(part) is None
        case "service":
            return len(words) == 3 and words[2] == "status"
        case _ if program in _READ_ONLY_SUBCOMMANDS:
            return _subcommand_is_read_only(program, _operands(words[1:]))
        case _:
            return program in _READ_ONLY_PROGRAMS


def _without_prefixes(words: list[str]) -> list[str]:
    """Return the words from the program's name on, without preceding `if`, `sudo`, `timeout 5` and assignments."""
    start = 0
    while start < len(words):
        if words[start] in _PREFIXES or _ASSIGNMENT.match(words[start]):
            start += 1
        elif words[start] == "timeout":
            start += 2
        else:
            break
    return words[start:]


def _operands(words: list[str]) -> list[str]:
    """Return the words that are neither options nor values of options before a subcommand."""
    operands: list[str] = []
    is_value = False
    for word in words:
        if not is_value and not word.startswith("-"):
            operands.append(word)
        is_value = word in _OPTIONS_WITH_VALUE and (not operands or operands[-1] in _NESTED)
    return operands


def _subcommand_is_read_only(program: str, operands: list[str]) -> bool:
    if not operands or operands[0] not in _READ_ONLY_SUBCOMMANDS[program]:
        return False
    if operands[0] in _NESTED:
        return _subcommand_is_read_only(operands[0], operands[1:])
    return program != "gh" or (len(operands) > 1 and operands[1] in _GH_VERBS)
