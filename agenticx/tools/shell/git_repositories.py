"""The check that git runs no program while it reads a repository.

1. Each key of the repository's own configuration must be on a list of keys that name no program. The configuration of
   the user and of the system is trusted, unless it names a program in the workspace.
2. The repository belongs to the workspace and is complete: `.git` is a folder, or the file of a linked worktree or
   submodule to which the repository points back. It has no links to other folders, and no objects of other
   repositories.
3. It has no hook `post-index-change`, which runs when `git status` refreshes the index.
4. Its submodules pass the same checks, since `git status` and `git diff` enter them.

Git itself is asked, with calls that run no programs: `git rev-parse` for paths, and `git config --list`, first without
included files. Another command could change the repository between two calls. So the calls run in a read-only sandbox
where there is one: it writes and sends nothing, and reads only what a command could read.
"""

from __future__ import annotations

import os
import re
import selectors
import shlex
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from agenticx.secret_detection import holds_credentials, is_secret_file
from agenticx.tools.base import Obstacle
from agenticx.tools.shell.git_reads import GitRead
from agenticx.tools.shell.git_revisions import EMPTY_TREES, Readings, read_revision
from agenticx.tools.unfollowed_paths import open_folder, read_small_file
from agenticx.tools.visible import visible_line

__all__ = ["GitRepositories"]

_SECONDS = 3.0  # of all calls for one assessment
_MAX_BYTES = 1024 * 1024
_MAX_INPUT_BYTES = 16 * 1024  # a pipe takes as much at once
_MAX_INDEX_BYTES = 64 * 1024 * 1024
_READ_BYTES = 64 * 1024
_MAX_SUBMODULES = 20
_MAX_LINK_BYTES = 10_000
_PATHS = ("rev-parse", "--show-toplevel", "--absolute-git-dir", "--git-common-dir")
_HOOK = "hooks/post-index-change"
_LIST_SETTINGS = ("config", "--list", "--show-scope", "--no-includes", "-z")
_LIST_INCLUDED_SETTINGS = ("config", "--list", "--show-scope", "--includes", "-z")
_SEPARATOR = b"\0\0\0"  # the end of one entry, and two more: no entry is empty
_SHELL = "/bin/sh"
_OPTIONS = ("--no-pager", "--no-optional-locks")

# Keys of a repository's own configuration that name no program and no file. `*` is any text.
_INERT_KEYS = """
    advice.* branch.* color.* column.* checkout.defaultremote checkout.guess checkout.workers
    commit.cleanup commit.gpgsign commit.status commit.verbose
    core.abbrev core.autocrlf core.bigfilethreshold core.checkstat core.commentchar
    core.commitgraph core.compression core.deltabasecachelimit core.eol core.filemode core.fscache
    core.hidedotfiles core.hookspath core.ignorecase core.logallrefupdates core.longpaths core.loosecompression
    core.maxtreedepth core.multipackindex core.packedgitlimit core.packedgitwindowsize core.precomposeunicode
    core.preloadindex core.protecthfs core.protectntfs core.quotepath core.repositoryformatversion core.safecrlf
    core.sharedrepository core.symlinks core.trustctime core.untrackedcache core.whitespace
    diff.algorithm diff.autorefreshindex diff.colormoved diff.colormovedws diff.context diff.indentheuristic
    diff.interhunkcontext diff.mnemonicprefix diff.noprefix diff.renamelimit diff.renames diff.statgraphwidth
    diff.statnamewidth diff.suppressblankempty diff.wserrorhighlight
    extensions.objectformat extensions.preciousobjects extensions.refstorage extensions.relativeworktrees
    extensions.worktreeconfig feature.manyfiles fetch.parallel fetch.prune fetch.prunetags
    gc.aggressivedepth gc.aggressivewindow gc.auto gc.autodetach gc.autopacklimit gc.pruneexpire gc.reflogexpire
    gc.reflogexpireunreachable gc.writecommitgraph gui.* index.skiphash
    index.threads index.version init.defaultbranch lfs.repositoryformatversion log.abbrevcommit log.date log.decorate
    log.follow log.mailmap maintenance.auto maintenance.strategy merge.conflictstyle merge.ff merge.renamelimit
    merge.renames merge.stat merge.log pack.threads pack.window pack.windowmemory pull.ff pull.rebase
    push.autosetupremote push.default push.followtags rebase.autosquash rebase.autostash rebase.updaterefs
    receive.denycurrentbranch remote.*.fetch remote.*.gh-resolved remote.*.mirror remote.*.prune remote.*.push
    remote.*.pushurl remote.*.skipdefaultupdate remote.*.skipfetchall remote.*.tagopt remote.*.url remote.pushdefault
    rerere.autoupdate rerere.enabled status.branch status.relativepaths status.short status.showstash
    status.showuntrackedfiles submodule.*.active submodule.*.url submodule.active tag.gpgsign tag.sort user.email
    user.name user.signingkey user.useconfigonly
"""
_INERT_KEY = re.compile("|".join(re.escape(key).replace(r"\*", ".*") for key in _INERT_KEYS.split()), re.DOTALL)
_NO_PROGRAM_VALUES: Mapping[str, frozenset[str]] = {
    "core.bare": frozenset({"false"}),
    "core.fsmonitor": frozenset({"false", "no", "off", "0", ""}),
}
# Keys of the user's configuration with programs that run while git reads.
_PROGRAM_KEY = re.compile(
    r"core\.fsmonitor|diff\.external|diff\..*\.(?:command|textconv)|filter\..*\.(?:clean|process|smudge)"
    r"|gpg\.(?:.*\.)?program",
    re.DOTALL,
)
_NO_REPOSITORY = "the workspace is not the top of a git repository, or the settings of that include other files"
# Options and paths of `git clean` without effects on others.
_KNOWN_OF_CLEAN = re.compile(r"-[dfnqxX]+|--(?:dry-run|force|quiet)|[\w.][\w./-]*")
# Modes of an index entry: of a submodule, and of a folder that stands for all files in it.
_SUBMODULE_MODE = (0o160000).to_bytes(4, "big")
_FOLDER_MODE = (0o040000).to_bytes(4, "big")


@dataclass(frozen=True, slots=True)
class _Setting:
    scope: str
    key: str
    value: str | None

    @property
    def is_inert(self) -> bool:
        """Return whether the setting names no program, nor a file that is read."""
        accepted = _NO_PROGRAM_VALUES.get(self.key)
        if accepted is not None:
            return self.value is not None and self.value.lower() in accepted
        return _INERT_KEY.fullmatch(self.key) is not None


def _has_repository(folder: Path) -> bool:
    """Return whether the folder may be in a repository."""
    return any(os.path.lexists(above / ".git") for above in (folder, *folder.parents))


@dataclass(slots=True)
class GitRepositories:
    """The repository of a workspace, as the commands of one assessment read it.

    `workspace` is resolved, `program` is the path of git, and `environment` is the environment of the commands.
    `find_launcher` returns the words that start a read-only sandbox, () without one; the words of git follow them.
    """

    workspace: Path
    program: str
    environment: Mapping[str, str]
    find_launcher: Callable[[], Sequence[str]] = tuple[str, ...]
    _checked: dict[Path, str | None] = field(default_factory=dict[Path, "str | None"])
    _launcher: Sequence[str] | None = None
    _submodule_count: int = 0
    _deadline: float = field(default_factory=lambda: time.monotonic() + _SECONDS)

    def find_obstacle(self, read: GitRead, folder: Path) -> Obstacle | None:
        """Return None if a call in `folder` runs no program and shows no secrets, else the obstacle.

        `folder` is a resolved path of the workspace.
        """
        if not read.needs_repository:
            return None
        if folder not in self._checked:
            self._checked[folder] = self._find_program(folder, self.workspace)
        if (obstacle := self._checked[folder]) is not None:
            return Obstacle(obstacle, is_unlisted=bool(read.shows) and _has_repository(folder))
        if any(map(_names_secret, read.names)):
            return Obstacle("it names a file that usually holds keys or passwords", is_secret=bool(read.shows))
        if read.keys is not None and not self._shows_no_credentials(read.keys, read.scope, folder):
            return Obstacle("the settings that it shows may have keys or passwords in them")
        return self._find_shown_secret(read, folder) if read.shows else None

    def removed_by_clean(self, options: Sequence[str], folder: Path) -> Sequence[str] | None:
        """Return the paths that `git clean` with these options would remove, relative to `folder`; None if unknown.

        That is for an unknown option, or where git could run a program. A name that git quotes stays quoted.
        """
        if not _has_repository(folder):
            return ()
        if not all(map(_KNOWN_OF_CLEAN.fullmatch, options)) or not self.program:
            return None
        if any(word == "--dry-run" or (word[:1] == "-" != word[1:2] and "n" in word) for word in options):
            return ()
        if self._find_program(folder, self.workspace) is not None:
            return None
        if self._launcher and any("X" in word for word in options if word.startswith("-")):
            return None  # -X removes ignored files only, and the sandbox may hide the user's list of them
        words = ["-c", "core.quotePath=false", "clean", "--dry-run", "--no-quiet", *options]
        listed = self._run(words, folder, environment={"LC_ALL": "C"})
        if listed is None:
            return None
        lines = os.fsdecode(listed).splitlines()
        return [line.removeprefix("Would remove ") for line in lines if line.startswith("Would remove ")]

    def _find_program(self, folder: Path, top: Path) -> str | None:
        """Return None if the repository of `top`, found from `folder`, has git run no program, else a clause."""
        found = self._run_each([_LIST_SETTINGS, [*_PATHS, "--git-path", "index", "--git-path", _HOOK]], folder)
        settings = None if found is None else self._with_included(_read_settings(found[0]), folder)
        if found is None or settings is None:
            return _NO_REPOSITORY
        lines = os.fsdecode(found[1]).split("\n")
        if len(lines) != 6 or lines[0] != str(top):
            return _NO_REPOSITORY
        git_folder, common, index, hook = (folder / line for line in lines[1:5])
        common = Path(os.path.normpath(common))
        if not _is_complete(top, git_folder, common, settings):
            return "the repository has parts elsewhere, or links in it"
        if any(os.path.lexists(path) for path in (hook, top / lines[4])):
            return "the repository has a hook post-index-change, which git would run"
        others = (setting for setting in settings if setting.key != "core.worktree")
        if (setting := next((one for one in others if not self._is_accepted(one)), None)) is not None:
            return f"with the setting {visible_line(setting.key, 100)}, git may run a program"
        return None if self._are_submodules_inert(top, index) else "git may run a program for a submodule"

    @property
    def _users_scopes(self) -> frozenset[str]:
        """The scopes of the configuration that is trusted; not the user's if the home folder is in the workspace."""
        homes = [self.environment.get(name) for name in ("HOME", "XDG_CONFIG_HOME")]
        if any(home and Path(os.path.realpath(home)).is_relative_to(self.workspace) for home in homes):
            return frozenset({"system"})
        return frozenset({"global", "system"})

    def _is_accepted(self, setting: _Setting) -> bool:
        if setting.scope not in self._users_scopes:
            return setting.is_inert
        if setting.value is None or not _PROGRAM_KEY.fullmatch(setting.key):
            return True
        return not any(map(self._is_in_workspace, re.split(r"[\s'\"=;|&()]+", setting.value)))

    def _is_in_workspace(self, word: str) -> bool:
        """Return whether a word of a user's command may name a file of the workspace, or a program found there."""
        if "/" in word and not word.startswith("/"):
            return not word.startswith("~/")
        path = word if word.startswith("/") else shutil.which(word, path=self.environment.get("PATH", ""))
        return path is not None and Path(os.path.realpath(path)).is_relative_to(self.workspace)

    def _settings(self, folder: Path) -> tuple[_Setting, ...] | None:
        """Return the configuration with the files that the user's includes; None if the repository's includes files."""
        listed = self._run(_LIST_SETTINGS, folder)
        return None if listed is None else self._with_included(_read_settings(listed), folder)

    def _with_included(self, settings: tuple[_Setting, ...] | None, folder: Path) -> tuple[_Setting, ...] | None:
        if settings is None or not any(setting.key.startswith(("include.", "includeif.")) for setting in settings):
            return settings
        if any(setting.key.startswith("include") and setting.scope not in self._users_scopes for setting in settings):
            return None
        listed = self._run(_LIST_INCLUDED_SETTINGS, folder)
        return None if listed is None else _read_settings(listed)

    def _are_submodules_inert(self, top: Path, index: Path) -> bool:
        has_submodules = _may_have_submodules(index)
        if not has_submodules:
            return has_submodules is False
        listed = self._run(["ls-files", "--stage", "-z"], top)
        if listed is None:
            return False
        for entry in listed.split(b"\0"):
            if not entry.startswith(b"160000 "):
                continue
            folder = top / os.fsdecode(entry.partition(b"\t")[2])
            if not os.path.lexists(folder / ".git"):
                continue
            self._submodule_count += 1
            if self._submodule_count > _MAX_SUBMODULES or os.path.realpath(folder) != str(folder):
                return False
            if self._find_program(folder, folder) is not None:
                return False
        return True

    # --- what is shown ------------------------------------------------------------------------------------------------

    def _shows_no_credentials(self, keys: str, scope: str | None, folder: Path) -> bool:
        settings = self._settings(folder)
        if settings is None:
            return False
        if keys.startswith("remote."):  # `url.BASE.insteadOf` changes the addresses that are shown
            return not any(
                _has_credentials(setting) for setting in settings if setting.key.startswith(("remote.", "url."))
            )
        first, _, rest = keys.partition(".")
        middle, dot, last = rest.rpartition(".")
        key = f"{first.lower()}.{middle}{dot}{last.lower()}"
        shown = [
            setting
            for setting in settings
            if (keys == "*" or setting.key == key) and (scope is None or setting.scope == scope)
        ]
        return all(setting.is_inert and not _has_credentials(setting) for setting in shown)

    def _find_shown_secret(self, read: GitRead, folder: Path) -> Obstacle | None:
        """Return None if a call shows no contents of secret files, else the obstacle."""
        words: Sequence[str] = read.objects
        if words and read.shows != "stash show":  # it takes only commits, and their numbers
            found = self._find_listed(read, folder)
            if isinstance(found, Obstacle):
                return found
            words = found
        if read.shows == "cat-file" or (read.objects and not words):
            return None
        return self._find_listed_secret([*read.listing, *words, *(["--", *read.paths] if read.paths else [])], folder)

    def _find_listed(self, read: GitRead, folder: Path) -> Sequence[str] | Obstacle:
        """Return the words for which files are to be listed, such as commits; else an object that may have secrets."""
        named = {word: readings for word in read.objects if (readings := read_revision(word)) is not None}
        types = self._types(named.values(), folder)
        if types is None or len(named) < len(set(read.objects)):
            return Obstacle("the objects that it names cannot be looked up")
        prefix, takes_folders = os.path.relpath(folder, self.workspace), read.shows != "diff"
        for word, readings in named.items():
            for one in readings.objects():
                if (obstacle := one.find_obstacle(types, prefix, takes_folders=takes_folders)) is not None:
                    return obstacle
            if not (readings.is_pathspec or readings.names_any(types) or os.path.lexists(folder / word)):
                return Obstacle(f"`{visible_line(word, 100)}` names neither a commit nor a file of the workspace")
        has_files = read.shows in ("cat-file", "show")  # with a word for a file they show that file and nothing else
        return [word for word in read.objects if not (has_files and named[word].is_file(types))]

    def _types(self, readings: Iterable[Readings], folder: Path) -> Mapping[str, str] | None:
        """Return the types of the existing objects by their expressions; None if git fails."""
        objects = [one for named in readings for one in named.objects()]
        expressions = dict.fromkeys(text for one in objects for text in (one.expression, one.commit))
        given = "".join(f"{text}\n" for text in expressions).encode("utf-8", "surrogateescape")
        found = self._run(["cat-file", "--batch-check=%(objectname) %(objecttype)"], folder, given)
        lines = [] if found is None else os.fsdecode(found).split("\n")[:-1]
        if len(lines) != len(expressions):
            return None
        types = dict[str, str]()
        for text, line in zip(expressions, lines, strict=True):
            name, _, kind = line.rpartition(" ")
            if kind != "missing":
                types[text] = "empty tree" if name in EMPTY_TREES else kind
        return types

    def _find_listed_secret(self, words: Sequence[str], folder: Path) -> Obstacle | None:
        """Return None if a call that lists the names of files lists no secret file."""
        listed = self._run(words, folder)
        if listed is None:
            return Obstacle("not all that it would show can be checked")
        names = dict.fromkeys(re.split(r"[\0\n]+", os.fsdecode(listed)))
        if (secret := next(filter(_names_secret, names), None)) is not None:
            shown = visible_line(secret, 200)
            return Obstacle(f"it would show `{shown}`, which usually holds keys or passwords", is_secret=True)
        return None

    # --- calls --------------------------------------------------------------------------------------------------------

    def _run(
        self, words: Sequence[str], folder: Path, given: bytes = b"", environment: Mapping[str, str] | None = None
    ) -> bytes | None:
        """Return the output of a call of git; None if it fails, takes too long, or writes too much.

        `given` is its input; `environment` is added to that of the commands.
        """
        return self._call([self.program, "-C", str(folder), *_OPTIONS, *words], given, environment)

    def _run_each(self, calls: Sequence[Sequence[str]], folder: Path) -> list[bytes] | None:
        """Return the outputs of calls, all but the last one with `-z`, in one sandbox; None as `_run` does."""
        script = " && printf '\\0\\0' && ".join(shlex.join([self.program, *_OPTIONS, *words]) for words in calls)
        output = self._call([_SHELL, "-c", f'cd "$0" && {script}', str(folder)])
        outputs = [] if output is None else output.split(_SEPARATOR)
        return outputs if len(outputs) == len(calls) else None

    def _call(
        self, words: Sequence[str], given: bytes = b"", environment: Mapping[str, str] | None = None
    ) -> bytes | None:
        if len(given) > _MAX_INPUT_BYTES or time.monotonic() > self._deadline:
            return None
        if self._launcher is None:
            self._launcher = self.find_launcher()
        try:
            process = subprocess.Popen(
                [*self._launcher, *words],
                cwd=self.workspace,
                env={**self.environment, **(environment or {})},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except (OSError, ValueError):
            return None
        with process:
            try:
                return _output(process, given, self._deadline)
            finally:
                if process.poll() is None:
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)


def _output(process: subprocess.Popen[bytes], given: bytes, deadline: float) -> bytes | None:
    assert process.stdin is not None
    assert process.stdout is not None
    output = bytearray()
    with suppress(BrokenPipeError):
        process.stdin.write(given)
        process.stdin.close()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while len(output) <= _MAX_BYTES and selector.select(max(0.0, deadline - time.monotonic())):
            chunk = os.read(process.stdout.fileno(), _READ_BYTES)
            if not chunk:
                try:
                    code = process.wait(max(0.0, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    return None
                return bytes(output) if code in (0, 1) else None  # 1: differences, or no matches
            output += chunk
    return None


def _read_settings(listed: bytes) -> tuple[_Setting, ...] | None:
    """Return the settings in the output of `git config --list -z`; None if the repository has none of its own."""
    parts = os.fsdecode(listed).removesuffix("\0").split("\0")
    settings = list[_Setting]()
    for scope, entry in zip(parts[::2], parts[1::2], strict=False):
        key, newline, value = entry.partition("\n")
        settings.append(_Setting(scope, key, value if newline else None))
    has_own = any(setting.scope in ("local", "worktree") for setting in settings)
    return tuple(settings) if has_own and len(parts) % 2 == 0 else None


def _is_complete(top: Path, git_folder: Path, common: Path, settings: Iterable[_Setting]) -> bool:
    """Return whether the repository at `top` has its own files in its folders, and points back to `top`."""
    own = top / ".git"
    has_worktree_key = any(setting.key == "core.worktree" for setting in settings)
    try:
        kind = stat.S_IFMT(own.lstat().st_mode)
        if kind == stat.S_IFDIR:
            points_back = git_folder == common == own and not has_worktree_key
        elif kind == stat.S_IFREG and common == git_folder:
            points_back = has_worktree_key  # a submodule: git has found `top` from there
        elif kind == stat.S_IFREG:
            points_back = not has_worktree_key and git_folder.parent == common / "worktrees"
            points_back = points_back and _points_to(git_folder, own)
        else:
            points_back = False
        return points_back and all(_has_own_files(folder) for folder in {git_folder, common})
    except OSError:
        return False


def _points_to(git_folder: Path, own: Path) -> bool:
    with open_folder(git_folder) as folder:
        content = read_small_file("gitdir", folder, _MAX_LINK_BYTES)
    return os.path.normpath(git_folder / os.fsdecode(content).rstrip("\n")) == str(own)


def _has_own_files(folder: Path) -> bool:
    """Return whether a repository's folder has no links, no shared index and no objects of another repository."""
    if os.path.lexists(folder / "objects/info/alternates") or os.path.lexists(folder / "objects/info/http-alternates"):
        return False
    with os.scandir(folder) as entries:
        return not any(entry.is_symlink() or entry.name.startswith("sharedindex.") for entry in entries)


def _may_have_submodules(index: Path) -> bool | None:
    """Return whether an index may have entries of submodules; None if it cannot be read."""
    try:
        descriptor = os.open(index, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_INDEX_BYTES:
            return None
        overlap = b""
        while chunk := os.read(descriptor, _READ_BYTES):
            content = overlap + chunk
            if _SUBMODULE_MODE in content or _FOLDER_MODE in content:
                return True
            overlap = content[-3:]
        return False
    finally:
        os.close(descriptor)


def _names_secret(name: str) -> bool:
    """Return whether a path, alone or after a revision as in `HEAD:.env`, names a file that usually holds secrets."""
    parts = [name, *name.split(":")[1:]] if ":" in name else [name]
    return any(is_secret_file(*path.split("/")) for path in parts if path)


def _has_credentials(setting: _Setting) -> bool:
    return holds_credentials(f"{setting.key} = {setting.value}", is_settings=True)
