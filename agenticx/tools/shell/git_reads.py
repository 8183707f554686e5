"""Calls of git that only read a repository.

This is an accept-list: for each subcommand the exact names of the options that write nothing, run no program, read no
file that they name and do not leave the repository. `git_repositories` checks the configuration of the repository,
which may have git run other programs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

__all__ = ["GitRead", "read_git_arguments"]

_Shown = Literal["always", "unless summarized", "if asked", "never"]
_Operands = Literal["any", "listed", "none"]


@dataclass(frozen=True, slots=True)
class GitRead:
    """A call of git that only reads.

    - `folder` is the folder of `-C`.
    - `names` are the words that may name files, revisions, or files in revisions.
    - `shows` is the subcommand if it shows contents of files, else "".
    - `objects` are the words before `--` that may name an object, `paths` the words behind it.
    - `listing` are the other arguments of a call that lists the files whose contents are shown.
    - `keys` is the key of the configuration whose values are shown, "*" for all, in the given `scope`.
    """

    folder: str = ""
    names: tuple[str, ...] = ()
    shows: str = ""
    objects: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    listing: tuple[str, ...] = ()
    keys: str | None = None
    scope: str | None = None
    needs_repository: bool = True


@dataclass(frozen=True, slots=True)
class _Subcommand:
    """The options of a subcommand, and when it shows contents of files.

    `options` has the form of each option's value: "" none, "=" attached, "[=]" attached or none, "[n]" an attached
    number or none, ":" attached or the next word, "[:]" attached, or the next word if there is one. `bundles` allows
    `-sb` for `-s -b`. `operands="listed"` allows operands only with an option of `lists`: without one git would create
    a branch or tag of that name.
    """

    options: Mapping[str, str]
    bundles: bool = False
    operands: _Operands = "any"
    most: int = 1_000
    lists: frozenset[str] = frozenset()
    shows: _Shown = "never"
    refs: bool = False


def _subcommand(
    *options: str,
    bundles: bool = False,
    operands: _Operands = "any",
    most: int = 1_000,
    lists: str = "",
    shows: _Shown = "never",
    refs: bool = False,
) -> _Subcommand:
    """Return a subcommand; options are written as in `-s --stat[=] --format= -n: -n[n] --merged[:]`."""
    matches = [_SPELLING.fullmatch(option) for option in " ".join(options).split()]
    forms = {match[1]: match[2] for match in matches if match is not None}
    return _Subcommand(forms, bundles, operands, most, frozenset(lists.split()), shows, refs)


_SPELLING = re.compile(r"(--?[A-Za-z0-9-]+)(=|\[=\]|\[n\]|:|\[:\]|)")

_SUMMARIES = frozenset(
    {"--stat", "--numstat", "--shortstat", "--dirstat", "--summary", "--compact-summary", "--raw", "--name-only"}
    | {"--name-status", "--no-patch", "--quiet", "-s"}
)
_PATCHES = frozenset(
    {"-p", "-u", "--patch", "-U", "--unified", "--patch-with-stat", "--patch-with-raw", "--word-diff", "--color-words"}
    | {"-W", "--function-context", "--binary", "-c", "--cc", "-m"}
)
_PICKAXES = frozenset({"-S", "-G"})
_DIFF = """
    -p -u --patch -s --no-patch -U: --unified= --patch-with-stat --patch-with-raw --raw --minimal --patience --histogram
    --diff-algorithm= --stat[=] --compact-summary --numstat --shortstat --summary --dirstat[=] -z --name-only
    --name-status --color[=] --no-color --color-moved[=] --no-color-moved --word-diff[=] --color-words[=] --no-renames
    -M -C --find-renames[=] --find-copies[=] --find-copies-harder --diff-filter= -S: -G: --pickaxe-all --pickaxe-regex
    -R -a --text --ignore-cr-at-eol --ignore-space-at-eol -b --ignore-space-change -w --ignore-all-space
    --ignore-blank-lines -W --function-context --inter-hunk-context= --no-ext-diff --no-textconv --src-prefix=
    --dst-prefix= --no-prefix --full-index --binary --abbrev[=] --no-abbrev --indent-heuristic
"""
_COMMITS = """
    -n: --max-count: --skip: --since: --after: --until: --before: --author: --committer: --grep: --all-match
    --invert-grep -i --regexp-ignore-case -E --extended-regexp -F --fixed-strings -P --perl-regexp --merges --no-merges
    --min-parents= --max-parents= --first-parent --all --branches[=] --tags[=] --remotes[=] --reflog --not --cherry
    --cherry-pick --cherry-mark --left-only --right-only --left-right --boundary --ancestry-path --full-history
    --simplify-merges --simplify-by-decoration --dense --sparse --date-order --author-date-order --topo-order --reverse
    --no-walk --abbrev-commit --no-abbrev-commit --abbrev[=] --date= --relative-date --parents --children
"""
_LOG = f"""
    {_COMMITS} {_DIFF} --oneline --pretty[=] --format= --graph --no-graph --decorate[=] --no-decorate
    --decorate-refs= --decorate-refs-exclude= --follow --full-diff --source --use-mailmap --mailmap --no-mailmap
    --no-notes --log-size --cc -c -m --walk-reflogs -g --clear-decorations
"""
_REFS = """
    --contains[:] --no-contains[:] --merged[:] --no-merged[:] --points-at[:] --sort: --format= --color[=] --no-color
"""
_FORMATS = frozenset(
    {"--format", "--pretty", "--oneline", "--graph", "--log-size", "--color", "--color-words", "--check"}
)

_SUBCOMMANDS: Mapping[str, _Subcommand] = {
    "blame": _subcommand(
        "-b -c -e -f -l -L: -M -C -n -p -s -t -w --root --date= --show-email --show-name --show-number --porcelain",
        "--line-porcelain --incremental --abbrev= --color-lines --color-by-age --since= --first-parent --score-debug",
    ),
    "branch": _subcommand(
        f"{_REFS} -a -r -v -i --all --remotes --verbose --show-current --list --abbrev= --no-abbrev --column[=]",
        "--no-column --ignore-case",
        bundles=True,
        operands="listed",
        lists="--list",
        refs=True,
    ),
    "cat-file": _subcommand("-t -s -e -p", most=1),
    "check-ignore": _subcommand("-q -v -n --quiet --verbose --non-matching --no-index"),
    "count-objects": _subcommand("-v -H --verbose --human-readable", bundles=True, operands="none"),
    "describe": _subcommand(
        "--all --tags --contains --abbrev= --always --long --exact-match --first-parent --dirty[=] --broken[=]",
        "--match= --exclude= --candidates=",
    ),
    "diff": _subcommand(
        f"{_DIFF} --check --cached --staged --merge-base --exit-code --quiet", shows="unless summarized"
    ),
    "for-each-ref": _subcommand(f"{_REFS} --count= --ignore-case", refs=True),
    "grep": _subcommand(
        "-i -v -w -r -E -F -G -P -n -l -L -c -o -p -W -e: -A: -B: -C: -m: --ignore-case --invert-match --word-regexp",
        "--extended-regexp --fixed-strings --perl-regexp --line-number --column --files-with-matches --name-only",
        "--files-without-match --count --only-matching --show-function --function-context --after-context=",
        "--before-context= --context= --max-depth= --max-count= --heading --break --color[=] --no-color --cached",
        "--full-name --all-match --and --or --not --no-textconv -I --untracked",
        bundles=True,
        shows="always",
    ),
    "log": _subcommand(_LOG, shows="if asked"),
    "ls-files": _subcommand(
        "-c -d -m -o -i -s -u -k -t -v -z -x: --cached --deleted --modified --others --ignored --stage --unmerged",
        "--killed --exclude= --exclude-standard --full-name --error-unmatch --directory --no-empty-directory",
        "--abbrev[=] --eol --deduplicate",
        bundles=True,
    ),
    "ls-tree": _subcommand(
        "-r -d -t -l -z --long --name-only --name-status --object-only --full-name --full-tree --abbrev[=]",
        bundles=True,
    ),
    "merge-base": _subcommand("-a --all --octopus --independent --is-ancestor --fork-point"),
    "name-rev": _subcommand("--tags --all --name-only --always --refs= --exclude="),
    "reflog": _subcommand(_LOG, shows="if asked"),
    "remote": _subcommand("-v --verbose", operands="none"),
    "rev-list": _subcommand(f"{_COMMITS} --count --oneline --pretty[=] --format= --objects --timestamp"),
    "rev-parse": _subcommand(
        "--show-toplevel --show-prefix --show-cdup --git-dir --git-common-dir --absolute-git-dir --is-inside-git-dir",
        "--is-inside-work-tree --is-bare-repository --is-shallow-repository --show-object-format --abbrev-ref[=]",
        "--short[=] --symbolic --symbolic-full-name --verify -q --quiet --all --branches[=] --tags[=] --remotes[=]",
        "--revs-only --no-revs --flags --no-flags --show-superproject-working-tree --end-of-options",
    ),
    "shortlog": _subcommand(f"-s -e --summary --numbered --email {_COMMITS}".replace(" -n:", " -n"), bundles=True),
    "show": _subcommand(_LOG, shows="unless summarized"),
    "show-ref": _subcommand("--head --heads --branches --tags -d --dereference -s --hash[=] --verify --abbrev[=] -q"),
    "stash list": _subcommand(_LOG, shows="if asked"),
    "stash show": _subcommand(_DIFF, shows="always", most=1),
    "status": _subcommand(
        "-s -b -v -z -u -uno -unormal -uall --short --branch --show-stash --porcelain[=] --long --verbose",
        "--untracked-files[=] --ignored[=] --column[=] --no-column --ahead-behind --no-ahead-behind --renames",
        "--no-renames --find-renames[=]",
        bundles=True,
    ),
    "symbolic-ref": _subcommand("-q --quiet --short", most=1),
    "tag": _subcommand(
        f"{_REFS} -l --list -n[n] -i --ignore-case --column[=] --no-column",
        operands="listed",
        lists="-l --list",
        refs=True,
    ),
    "worktree list": _subcommand("-v -z --verbose --porcelain", operands="none"),
}


def read_git_arguments(words: Sequence[str]) -> GitRead | None:
    """Return what a call of git reads, None if it is not known to be harmless; `words` follow the word `git`."""
    pending, folder = list(words)[::-1], ""
    while pending:
        match pending.pop():
            case "--no-pager" | "-P" | "--no-optional-locks":
                pass
            case "-C" if pending and not folder and pending[-1]:
                folder = pending.pop()
            case name:
                read = _read_subcommand(name, pending[::-1])
                return None if read is None else replace(read, folder=folder)
    return None


def _read_subcommand(name: str, words: list[str]) -> GitRead | None:
    match name, words:
        case (("--version" | "version"), []):
            return GitRead(needs_repository=False)
        case "config", _:
            return _read_config(words)
        case "remote", ["get-url", remote] if _NAME.fullmatch(remote):
            return GitRead(keys=f"remote.{remote}.url")
        case ("stash", [nested, *words]) | ("worktree", [nested, *words]):
            name = f"{name} {nested}"
        case "reflog", ["show", *rest]:
            words = rest
        case "reflog", _:
            parsed = _parse(_SUBCOMMANDS[name], words)
            if parsed is None or parsed.operands not in ([], ["HEAD"]):
                return None  # another operand may be a subcommand, such as `expire`
        case _:
            pass
    subcommand = _SUBCOMMANDS.get(name)
    if subcommand is None:
        return None
    parsed = _parse(subcommand, words)
    return None if parsed is None else _read(name, subcommand, parsed)


@dataclass(slots=True)
class _Parsed:
    """The parsed words of a subcommand: options with their words, operands before `--`, and paths after it."""

    options: list[tuple[str, tuple[str, ...]]]
    operands: list[str]
    paths: list[str]

    @property
    def names(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.options)


def _parse(subcommand: _Subcommand, words: Sequence[str]) -> _Parsed | None:
    parsed, pending = _Parsed([], [], []), list(words)[::-1]
    while pending:
        word = pending.pop()
        if word == "--":
            parsed.paths = pending[::-1]
            break
        if not word.startswith("-"):
            parsed.operands.append(word)
            continue
        options = _options(subcommand, word, pending)
        if options is None:
            return None
        parsed.options += options
    return parsed


def _options(subcommand: _Subcommand, word: str, pending: list[str]) -> list[tuple[str, tuple[str, ...]]] | None:
    """Return the options in a word; an option may take the next of the `pending` words as its value."""
    forms = subcommand.options
    match forms.get(word):
        case "" | "[=]" | "[n]":
            return [(word, (word,))]
        case ":" | "[:]" as form:
            if not pending and form == "[:]":
                return [(word, (word,))]
            if not pending or pending[-1].startswith("-") or not _is_harmless_value(subcommand, word, pending[-1]):
                return None
            return [(word, (word, pending.pop()))]
        case _:
            pass
    if word.startswith("--"):
        name, equals, value = word.partition("=")
        takes_value = equals and forms.get(name, "") in ("=", "[=]", ":", "[:]")
        return [(name, (word,))] if takes_value and _is_harmless_value(subcommand, name, value) else None
    if forms.get("-n") == ":" and word[1:].isdigit():
        return [("-n", (word,))]
    name, value = word[:2], word[2:]
    if value and (forms.get(name) == ":" or (forms.get(name) == "[n]" and value.isdigit())):
        return [(name, (word,))]
    letters = [f"-{letter}" for letter in word[1 : _MAX_LETTERS + 2]]
    if subcommand.bundles and 1 < len(letters) <= _MAX_LETTERS and all(forms.get(letter) == "" for letter in letters):
        return [(letter, (letter,)) for letter in letters]
    return None


_MAX_LETTERS = 10
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
# Without %G?, which runs gpg, and %(trailers).
_LOG_FORMAT = re.compile(
    r"(?:t?format:)?(?:[^%]|%(?:%|[HhTtPpsSfbBdDenmMN]|[ac][nNeElLdDrtiIsh]|g[DdnNeEs]|x[0-9a-fA-F]{2}|C(?:red|green"
    r"|blue|reset)|C\([a-z0-9, ]+\)|[<>]+\([0-9a-z, ]+\)|w\([0-9, ]*\)))*"
)
# Without %(signature), which runs gpg.
_REF_FORMAT = re.compile(
    r"(?:[^%]|%(?:%|[0-9a-f]{2}|\((?:align|color|end|HEAD|author|authordate|authorname|committer|committerdate"
    r"|committername|contents:subject|creator|creatordate|deref|else|if|objectname|objecttype|push|refname|subject"
    r"|symref|tagger|taggerdate|taggername|then|upstream|v|version|worktreepath)(?:[:=][^()]*)?\)))*"
)


def _is_harmless_value(subcommand: _Subcommand, name: str, value: str) -> bool:
    if name not in ("--format", "--pretty", "--sort"):
        return True
    pattern = _REF_FORMAT if subcommand.refs else _LOG_FORMAT
    return pattern.fullmatch(f"%({value.lstrip('-')})" if name == "--sort" else value) is not None


def _read(name: str, subcommand: _Subcommand, parsed: _Parsed) -> GitRead | None:
    operands, options = parsed.operands, parsed.names
    if len(operands) + len(parsed.paths) > subcommand.most:
        return None
    if operands or parsed.paths:
        if subcommand.operands == "none":
            return None
        if subcommand.operands == "listed" and options.isdisjoint(subcommand.lists):
            return None
    revisions = operands
    if name == "grep" and "-e" not in options:
        if not operands:
            return None
        revisions = operands[1:]  # the first operand is the pattern
    read = GitRead(names=(*revisions, *parsed.paths), keys="remote.*" if name == "remote" else None)
    if not _shows_contents(name, subcommand, options):
        return read
    if name == "show" and not options.isdisjoint(_REFERENCES):
        return None  # a tag may point to a file
    listing = (*_listing(name, parsed), *operands[: len(operands) - len(revisions)])
    return replace(read, shows=name, objects=tuple(revisions), paths=tuple(parsed.paths), listing=listing)


_REFERENCES = frozenset({"--all", "--branches", "--tags", "--remotes", "--reflog"})


def _shows_contents(name: str, subcommand: _Subcommand, options: frozenset[str]) -> bool:
    if name == "cat-file":
        return "-p" in options
    if subcommand.shows != "never" and not options.isdisjoint(_PICKAXES):
        return True  # it says which commits, and files, have a text
    match subcommand.shows:
        case "always":
            return True
        case "unless summarized":
            return options.isdisjoint(_SUMMARIES) or not options.isdisjoint(_PATCHES)
        case "if asked":
            return not options.isdisjoint(_PATCHES)
        case "never":
            return False


def _listing(name: str, parsed: _Parsed) -> tuple[str, ...]:
    """Return the words of a call that lists the names of the files, without options for the form of the list."""
    added = ["-l", "-z", "--full-name"] if name == "grep" else ["--name-only", "-z", "--no-relative"]
    left_out = _FORMATS if name in ("grep", "stash show") else _FORMATS | _PATCHES - _MERGES
    options = [word for option, words in parsed.options if option not in left_out for word in words]
    if name not in ("diff", "grep", "stash show"):
        options.append("--format=")
    return (*name.split(), *added, *options)


_MERGES = frozenset({"-c", "--cc", "-m"})  # they decide which files of a merge are listed
_CONFIG_KEY = re.compile(r"[A-Za-z][A-Za-z0-9-]*\.(?:[A-Za-z0-9_./:-]+\.)?[A-Za-z][A-Za-z0-9-]*")
_CONFIG_FLAGS = frozenset({"--show-origin", "--show-scope", "--null", "-z"})


def _read_config(words: Sequence[str]) -> GitRead | None:
    """Return what a `git config --get KEY` or `--list` reads; with two operands it would write."""
    scopes = [word for word in words if word in ("--local", "--global", "--worktree", "--system")]
    if len(scopes) > 1:
        return None
    scope = scopes[0].removeprefix("--") if scopes else None
    match [word for word in words if word not in scopes and word not in _CONFIG_FLAGS]:
        case ["--list"] | ["-l"]:
            return GitRead(keys="*", scope=scope)
        case ["--get" | "--get-all" | "--bool" | "--int", key] | [key] if _CONFIG_KEY.fullmatch(key):
            return GitRead(keys=key, scope=scope)
        case _:
            return None
