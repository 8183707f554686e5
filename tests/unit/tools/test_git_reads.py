"""Tests that calls of git count as harmless only where they read, and the repository makes git run no program."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from agenticx.permissions import PermissionMode
from agenticx.tools.builtin import bash_exec
from tests.support.verdicts import decide

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.promise("H4"),
    pytest.mark.skipif(shutil.which("git", path="/usr/bin:/bin") is None, reason="no git in the system's folders"),
]


@dataclass
class Repository:
    """A repository in the workspace of a runner, and a program that leaves a mark where it runs."""

    runner: object
    folder: Path
    mark: Path

    @property
    def program(self) -> str:
        """A command of a shell that leaves the mark; it gives its input, or its files, as they are."""
        return f"touch {self.mark}; cat"

    def git(self, *words: str, folder: Path | None = None) -> str:
        return git(folder or self.folder, *words)

    def config(self, key: str, value: str, *words: str) -> None:
        self.git("config", *words, key, value)

    def write(self, path: str, text: str) -> Path:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def script(self, path: str) -> Path:
        file = self.write(path, f"#!/bin/sh\ntouch {self.mark}\n")
        file.chmod(0o755)
        return file

    def decide(self, command: str, mode: PermissionMode = "default") -> str:
        return decide(mode, self.runner.assess(bash_exec, command=command)).decision

    def run(self, command: str) -> None:
        environment = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "GIT_PAGER": "cat"}
        subprocess.run(
            ["/bin/bash", "-c", command],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=60,
        )


def git(folder: Path, *words: str) -> str:
    options = ["-c", "protocol.file.allow=always", "-c", "init.defaultBranch=main"]
    done = subprocess.run(
        ["/usr/bin/git", *options, *words], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=True
    )
    return done.stdout.decode().strip()


def commit(folder: Path) -> None:
    git(folder, "init", "--quiet")
    (folder / "src").mkdir()
    (folder / "src" / "a.py").write_text("first\n")
    (folder / "README.md").write_text("read me\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "first")
    git(folder, "tag", "v1.0")
    (folder / "src" / "a.py").write_text("first\nsecond\n")
    git(folder, "commit", "--quiet", "--all", "--message", "second")
    git(folder, "remote", "add", "origin", "https://git.example/a.git")
    (folder / "src" / "a.py").write_text("first\nthird\n")


@pytest.fixture
def repository(runner, monkeypatch, tmp_path) -> Repository:
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text("[user]\n\tname = A\n\temail = a@b.example\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    commit(runner.workspace)
    return Repository(runner, runner.workspace, tmp_path / "mark")


READS = r"""
git status
git status -sb
git status --porcelain=v1 -z
git diff
git diff --stat
git diff --check
git diff --cached --name-only
git diff HEAD~1 -- src
git diff HEAD src/a.py
git diff main...HEAD
git log
git log -p -3 -- src
git log --oneline --graph --all --decorate -20
git log -n 5 --format='%h %an %s'
git log --since='2 weeks ago' --author A --stat
git log v1.0..HEAD --no-merges
git show
git show HEAD --stat
git show v1.0
git show HEAD:src/a.py
git show HEAD:README.md HEAD
git show :/second
git show 'HEAD^{/sec:*ond}'
git show 'HEAD^!'
git show :README.md
git diff HEAD~1..HEAD
git diff ^HEAD~1 HEAD
git diff HEAD~1 HEAD -- ':(top)src'
git diff 4b825dc642cb6eb9a060e54bf8d69288fbee4904 HEAD
git diff HEAD:README.md HEAD:src/a.py
cd src && git diff ../README.md && git show HEAD:./a.py HEAD:../README.md
git show -s --format=%B HEAD~1
git branch
git branch -avv
git branch --show-current
git branch --list 'fix/*'
git branch --merged main
git branch --sort=-committerdate --format='%(refname:short)'
git blame -L 1,2 src/a.py
git rev-parse --abbrev-ref HEAD
git ls-files
git ls-files --others --exclude-standard
git ls-tree -r --name-only HEAD
git describe --tags --always --dirty
git shortlog -sn HEAD
git remote -v
git remote get-url origin
git tag --list 'v*'
git tag -n5 --sort=-version:refname
git stash list
git reflog -10
git reflog show HEAD
git config --get user.name
git config remote.origin.url
git grep -rn first -- src
git grep -n /etc/passwd
git cat-file -p HEAD:README.md
git merge-base main HEAD
git rev-list --count HEAD
git for-each-ref --format='%(refname)' refs/heads
git worktree list
git symbolic-ref --short HEAD
git --version
git --no-pager log -3
git -C src log -1
git -C . status
cd src && git status && git diff ../README.md
git status && git diff | head -50; git log -3 2>/dev/null
"""


def test_reads_of_a_plain_repository_are_allowed(repository) -> None:
    assert [command for command in READS.strip().splitlines() if repository.decide(command) != "allow"] == []


ASKED = r"""
# other subcommands, and subcommands that write
git
git help log
git add .
git commit -m x
git push
git fetch origin
git pull
git clone x
git checkout main
git switch main
git restore src
git reset --hard
git clean -n
git gc
git stash
git stash pop
git stash drop
git stash push
git ls-remote
git submodule status
git submodule foreach ls
git branch new
git branch -D main
git branch -m new
git branch -d main
git branch -f main HEAD
git branch -a new
git branch --edit-description
git branch -u origin/main
git branch --unset-upstream
git branch --list --delete main
git tag v2
git tag -d v1.0
git tag -a v2 -m x
git tag -n v2
git tag -v v1.0
git tag -5
git remote add x y
git remote show origin
git remote update
git remote -v update
git remote remove origin
git reflog expire --all
git reflog expire --expire=now --all
git reflog -5 expire
git reflog delete 'HEAD@{0}'
git worktree add ../x
git worktree prune
git symbolic-ref HEAD refs/heads/x
git symbolic-ref -d HEAD
git config user.name x
git config --unset user.name
git config --edit
git config -e
git config --add a.b c
git config --file x --list
git config --get-urlmatch a.b c
git config --get core.sshcommand x
git bisect run ls
git difftool
git mergetool
git archive HEAD
git format-patch HEAD
git bundle create x HEAD
git hash-object -w x
git update-index --refresh
git read-tree HEAD
git notes add
git filter-branch
git rebase -i
git daemon
git instaweb
git verify-commit HEAD
git status-x
gi status
git-status
# options before the subcommand
git -p log
git --paginate log
git -c core.pager=x log
git -c diff.external=./x diff
git --exec-path=. status
git --exec-path
git --git-dir=.git status
git --git-dir .git status
git --work-tree=.. status
git --work-tree .. status
git --bare log
git --config-env=core.pager=PATH log
git --namespace=x log
git --literal-pathspecs log
git -C .. status
git -C ../other status
git -C /tmp status
git -C src -C .. status
git -C
git -C src
git -C '' status
git -C nowhere status
git -Csrc status
git --no-pager
git --help
git status --help
git --html-path
# options that run, write, or read other files
git diff --ext-diff
git log -p --ext-diff
git show --ext-diff
git diff --textconv
git show --textconv HEAD
git blame --textconv src/a.py
git grep --textconv x
git cat-file --textconv HEAD:src/a.py
git cat-file --filters HEAD:src/a.py
git cat-file --batch
git diff --output=x
git diff --output x
git log --output=x
git log -p --output-directory=x
git diff --outp=x
git diff --no-index -- a b
git diff --no-index src README.md
git diff README.md /etc/passwd
git diff /dev/null /etc/passwd
git diff ../outside README.md
git diff README.md link/secret
git diff -O/etc/passwd
git diff -Oorder
git diff --submodule
git diff --submodule=diff
git diff -l5
git log --show-signature
git log --format=%G?
git log --format='%h %GG'
git log --pretty=format:%GS
git log --pretty='%(trailers)'
git show --format=%G?
git rev-list --format=%G? HEAD
git for-each-ref --format='%(signature)'
git for-each-ref --sort=signature
git for-each-ref --format='%(contents:signature)'
git for-each-ref --shell
git branch --format='%(signature:key)'
git tag --list --format='%(signature)'
git log --remerge-diff
git log --diff-merges=remerge
git log --stdin
git log -L1,2:src/a.py
git log --format
git log --author
git log --author --output=x
git log -n --output=x
git log -S --output=x
git log --ref
git grep --open-files-in-pager=./x first
git grep -O first
git grep -O./x first
git grep -nO first
git grep -f /etc/passwd
git grep -f x first
git grep --no-index first
git grep --recurse-submodules first
git grep --ext-grep first
git grep
git blame --contents /etc/passwd src/a.py
git blame -S revs src/a.py
git blame --ignore-revs-file /etc/passwd src/a.py
git blame --ignore-revs-file=x src/a.py
git blame ../outside
git ls-files -X /etc/passwd
git ls-files --exclude-from=x
git ls-files --exclude-per-directory=x
git ls-files --recurse-submodules
git check-ignore --stdin
git rev-parse --parseopt
git rev-parse --git-path x
git rev-parse --resolve-git-dir /tmp
git describe --dirt
git shortlog --group=trailer:x
git status --ignore-submodules=none
git status --no-optional-locks
git status -sX
git status --verbos
git ls-tree HEAD:../x/../..
# secrets
git show HEAD:.env
git show ':.env'
git show ':0:.env'
git show HEAD:src/.env.local
git show HEAD:README.md HEAD:.env
git cat-file -p HEAD:.env
git cat-file blob HEAD:.env
git diff HEAD:README.md HEAD:.env
git diff .env
git log -p -- .env
git log -p -- ':(top).env'
git blame .env
git blame HEAD -- id_rsa
git grep x -- .env
git grep x HEAD:.env
git show HEAD:.ssh/id_ed25519
git show HEAD:.ssh/config
git show HEAD:.netrc
git show :2:.npmrc
git cat-file -p HEAD:.gnupg/pubring.kbx
git config --list
git config --list --show-origin
git config --get credential.helper --show-origin x
# around it
git status > x
git log | sh
git log | xargs git show
git log | tee x
git status &
env git status
GIT_DIR=x git status
PAGER=./x git log
sudo git status
command git status
./git status
/usr/bin/git status
cd src && git push
cd .git && git log
cd .git && git status
git -C .git log
cd nested && git status
git -C nested status
cd nested/deep && git log
cd bare && git log
git -C bare log
git -C link status
"""


def test_every_other_call_is_asked_about(repository) -> None:
    """`git config --list` because it shows the user's own configuration, which has a helper for passwords."""
    git(repository.folder, "config", "--global", "credential.helper", "store")
    outside = repository.folder.with_name("outside")
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (repository.folder / "link").symlink_to(outside)
    (repository.folder / "nested" / "deep").mkdir(parents=True)
    git(repository.folder / "nested", "init", "--quiet")
    git(repository.folder, "init", "--quiet", "--bare", "bare")
    assert repository.decide("git status") == "allow"  # with all this beside it
    commands = [line for line in ASKED.splitlines() if line and line[:2] != "# "]
    assert [command for command in commands if repository.decide(command) != "ask"] == []


# --- repositories that run a program ----------------------------------------------------------------------------------

COMMANDS = """
git status
git status --porcelain
git diff
git diff HEAD~1
git diff --stat
git log -p
git log --format='%h %s'
git show
git show HEAD:src/a.py
git blame src/a.py
git describe --always --dirty
git grep -n first
git ls-files -m
git stash list
git branch -vv
cd src && git status
cd sub && git status
cd sub && git diff
git -C sub log -p
""".strip().splitlines()


def attribute(repository: Repository, text: str) -> None:
    repository.write(".gitattributes", text)


def fsmonitor(repository: Repository) -> None:
    repository.config("core.fsmonitor", str(repository.script("../monitor")))


def external_diff(repository: Repository) -> None:
    repository.config("diff.external", str(repository.script("../external")))


def diff_command(repository: Repository) -> None:
    attribute(repository, "*.py diff=evil\n")
    repository.config("diff.evil.command", str(repository.script("../external")))


def textconv(repository: Repository) -> None:
    attribute(repository, "*.py diff=evil\n")
    repository.config("diff.evil.textconv", repository.program)


def textconv_of_info(repository: Repository) -> None:
    repository.write(".git/info/attributes", "*.py diff=evil\n")
    repository.config("diff.evil.textconv", repository.program)


def textconv_of_attributes_file(repository: Repository) -> None:
    repository.config("core.attributesFile", str(repository.write("../attributes", "*.py diff=evil\n")))
    repository.config("diff.evil.textconv", repository.program)


def clean_filter(repository: Repository) -> None:
    attribute(repository, "*.py filter=evil\n")
    repository.config("filter.evil.clean", repository.program)


def filter_process(repository: Repository) -> None:
    attribute(repository, "*.py filter=evil\n")
    repository.config("filter.evil.process", repository.program)


def hook(repository: Repository) -> None:
    repository.script(".git/hooks/post-index-change")
    os.utime(repository.folder / "README.md")


def hooks_path(repository: Repository) -> None:
    repository.script("tools/post-index-change")
    repository.config("core.hooksPath", "tools")
    os.utime(repository.folder / "README.md")


def included(repository: Repository) -> None:
    script = repository.script("../monitor")
    repository.config("include.path", str(repository.write("../more", f"[core]\n\tfsmonitor = {script}\n")))


def included_if(repository: Repository) -> None:
    script = repository.script("../monitor")
    more = repository.write("../more", f"[core]\n\tfsmonitor = {script}\n")
    repository.config(f"includeIf.gitdir:{repository.folder}/.path", str(more))


def worktree_config(repository: Repository) -> None:
    repository.config("extensions.worktreeConfig", "true")
    repository.config("core.fsmonitor", str(repository.script("../monitor")), "--worktree")


def signature(repository: Repository, head: str = "") -> None:
    raw = repository.git("cat-file", "commit", "HEAD")
    first, _, message = raw.partition("\n\n")
    signed = f"{first}\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----\n\n{message}\n"
    made = repository.git("hash-object", "-t", "commit", "-w", str(repository.write("../commit", signed)))
    repository.git("update-ref", "HEAD", made)
    repository.config("gpg.program", str(repository.script("../gpg")))


def shown_signature(repository: Repository) -> None:
    signature(repository)
    repository.config("log.showSignature", "true")


def signature_in_format(repository: Repository) -> None:
    signature(repository)
    repository.config("format.pretty", "%h %G?")


def promisor(repository: Repository) -> None:
    blob = repository.git("rev-parse", "HEAD:src/a.py")
    (repository.folder / ".git/objects" / blob[:2] / blob[2:]).unlink()
    repository.config("core.sshCommand", str(repository.script("../ssh")))
    repository.config("remote.origin.url", "ssh://git.example/a.git")
    repository.config("remote.origin.promisor", "true")
    repository.config("core.repositoryFormatVersion", "1")
    repository.config("extensions.partialClone", "origin")


def submodule(repository: Repository) -> None:
    """A submodule whose own configuration runs a program, which `git status` of the repository enters."""
    add_submodule(repository)
    script = str(repository.script("../monitor"))
    repository.git("config", "core.fsmonitor", script, folder=repository.folder / "sub")


def submodule_of_submodule(repository: Repository) -> None:
    other = add_submodule(repository)
    deep = other.with_name("deep")
    deep.mkdir()
    commit(deep)
    sub = repository.folder / "sub"
    repository.git("submodule", "add", "--quiet", str(deep), "deep", folder=sub)
    repository.git("commit", "--quiet", "--message", "deep", folder=sub)
    repository.git("config", "core.fsmonitor", str(repository.script("../monitor")), folder=sub / "deep")


def submodule_hook(repository: Repository) -> None:
    add_submodule(repository)
    attributes = repository.folder / "sub" / ".gitattributes"
    attributes.write_text("* filter=evil\n")
    (repository.folder / "sub" / "src" / "a.py").write_text("changed\n")
    repository.git("config", "filter.evil.clean", repository.program, folder=repository.folder / "sub")


def nested_repository(repository: Repository) -> None:
    nested = repository.folder / "sub"
    nested.mkdir()
    commit(nested)
    repository.git("config", "core.fsmonitor", str(repository.script("../monitor")), folder=nested)


def embedded_bare_repository(repository: Repository) -> None:
    """A folder that git takes for a repository, although there is no `.git`: its files can be committed."""
    made = repository.folder.with_name("made")
    made.mkdir()
    commit(made)
    made.joinpath(".git").rename(repository.folder / "sub")
    for key, value in (("core.bare", "false"), ("core.worktree", str(repository.folder))):
        repository.git("config", "--file", "sub/config", key, value)
    repository.git("config", "--file", "sub/config", "core.fsmonitor", str(repository.script("../monitor")))


def folder_elsewhere(repository: Repository) -> None:
    elsewhere = repository.folder.with_name("elsewhere")
    (repository.folder / ".git").rename(elsewhere)
    repository.write(".git", f"gitdir: {elsewhere}\n")
    repository.git("config", "core.fsmonitor", str(repository.script("../monitor")))


def common_folder_elsewhere(repository: Repository) -> None:
    elsewhere = repository.folder.with_name("elsewhere")
    shutil.copytree(repository.folder / ".git", elsewhere)
    repository.write(".git/commondir", str(elsewhere))
    repository.git("config", "core.fsmonitor", str(repository.script("../monitor")))


def users_monitor_by_relative_path(repository: Repository) -> None:
    repository.script("tools/monitor")
    repository.config("core.fsmonitor", "tools/monitor", "--global")


def users_filter_in_workspace(repository: Repository) -> None:
    attribute(repository, "*.py filter=mine\n")
    repository.config("filter.mine.clean", f"sh {repository.script('tools/clean')}", "--global")


def add_submodule(repository: Repository) -> Path:
    other = repository.folder.with_name("other")
    other.mkdir()
    commit(other)
    repository.git("submodule", "add", "--quiet", str(other), "sub")
    repository.git("commit", "--quiet", "--message", "submodule")
    return other


HOSTILE: list[Callable[[Repository], None]] = [
    fsmonitor,
    external_diff,
    diff_command,
    textconv,
    textconv_of_info,
    textconv_of_attributes_file,
    clean_filter,
    filter_process,
    hook,
    hooks_path,
    included,
    included_if,
    worktree_config,
    shown_signature,
    signature_in_format,
    promisor,
    submodule,
    submodule_of_submodule,
    submodule_hook,
    nested_repository,
    embedded_bare_repository,
    folder_elsewhere,
    common_folder_elsewhere,
    users_monitor_by_relative_path,
    users_filter_in_workspace,
]


@pytest.mark.parametrize("hostile", HOSTILE)
def test_no_call_that_is_allowed_runs_a_program_of_the_repository(repository, hostile) -> None:
    """Some are allowed where the program does not run; without the check, at least one of the calls runs it."""
    hostile(repository)
    repository.mark.unlink(missing_ok=True)
    allowed = [command for command in COMMANDS if repository.decide(command) == "allow"]
    for command in allowed:
        repository.run(command)
    assert not repository.mark.exists(), allowed
    for command in COMMANDS:
        repository.run(command)
    assert repository.mark.exists()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("core.worktree", ".."),
        ("core.worktree", "/"),
        ("core.bare", "true"),
        ("core.pager", "./x"),
        ("pager.log", "./x"),
        ("alias.status", "!./x"),
        ("core.editor", "./x"),
        ("core.sshCommand", "./x"),
        ("core.askPass", "./x"),
        ("core.gitProxy", "./x"),
        ("core.alternateRefsCommand", "./x"),
        ("core.excludesFile", "/etc/passwd"),
        ("credential.helper", "!./x"),
        ("gpg.program", "./x"),
        ("gpg.ssh.program", "./x"),
        ("interactive.diffFilter", "./x"),
        ("hook.x.command", "./x"),
        ("merge.x.driver", "./x"),
        ("remote.origin.uploadpack", "./x"),
        ("remote.origin.vcs", "x"),
        ("remote.origin.promisor", "false"),
        ("sequence.editor", "./x"),
        ("submodule.x.update", "!./x"),
        ("submodule.recurse", "true"),
        ("trailer.x.command", "./x"),
        ("uploadpack.packObjectsHook", "./x"),
        ("diff.x.xfuncname", "x"),
        ("blame.ignoreRevsFile", "/etc/passwd"),
        ("mailmap.file", "/etc/passwd"),
        ("include.path", "/nowhere"),
        ("somebody.key", "x"),
    ],
)
def test_a_setting_of_the_repository_that_is_not_known_to_be_inert_is_asked_about(repository, key, value) -> None:
    repository.config(key, value)
    assert {repository.decide(command) for command in ("git status", "git log", "git diff")} == {"ask"}


def test_the_usual_settings_of_a_repository_are_allowed(repository) -> None:
    for key, value in {
        "core.autocrlf": "input",
        "core.fsmonitor": "false",
        "core.hooksPath": ".husky/_",
        "core.ignoreCase": "true",
        "branch.main.remote": "origin",
        "branch.main.merge": "refs/heads/main",
        "branch.main.vscode-merge-base": "origin/main",
        "user.email": "b@b.example",
        "commit.gpgSign": "true",
        "pull.rebase": "true",
        "color.ui": "always",
        "lfs.repositoryformatversion": "0",
    }.items():
        repository.config(key, value)
    for key, value in {  # trusted: the user's own
        "alias.st": "status",
        "core.pager": "delta",
        "credential.helper": "store",
        "diff.external": "difft",
        "filter.lfs.process": "git-lfs filter-process",
        "filter.lfs.required": "true",
        "include.path": "~/more",
    }.items():
        repository.config(key, value, "--global")
    assert {repository.decide(command) for command in ("git status", "git log", "git diff --stat")} == {"allow"}


def test_a_linked_worktree_is_read_and_one_that_nobody_linked_is_not(repository, make_runner) -> None:
    linked = repository.folder.with_name("linked")
    repository.git("worktree", "add", "--quiet", str(linked))
    other = Repository(make_runner(linked), linked, repository.mark)
    assert [other.decide(command) for command in ("git status", "git diff", "git log -3")] == ["allow"] * 3
    stolen = repository.folder.with_name("stolen")
    stolen.mkdir()
    shutil.copy(linked / ".git", stolen / ".git")
    assert Repository(make_runner(stolen), stolen, repository.mark).decide("git status") == "ask"
    repository.script(".git/hooks/post-index-change")
    assert other.decide("git status") == "ask"


def test_a_repository_elsewhere_that_does_not_point_back_is_asked_about(repository, make_runner) -> None:
    """The folder looks like a submodule; `core.worktree` of the repository names another one."""
    stolen = repository.folder.with_name("stolen")
    stolen.mkdir()
    (stolen / ".git").write_text(f"gitdir: {repository.folder}/.git\n")
    repository.config("core.worktree", str(repository.folder))
    other = Repository(make_runner(stolen), stolen, repository.mark)
    assert [other.decide(command) for command in ("git log", "git status", "git show")] == ["ask"] * 3
    repository.config("core.worktree", str(stolen))
    assert other.decide("git log") == "allow"


def test_a_program_of_the_user_that_may_lie_in_the_workspace_is_asked_about(repository, monkeypatch) -> None:
    repository.config("filter.mine.clean", "clean", "--global")
    assert repository.decide("git status") == "allow"
    monkeypatch.setenv("PATH", f"/usr/bin:/bin:{repository.folder}/node_modules/.bin")
    assert repository.decide("git status") == "allow"
    repository.script("node_modules/.bin/clean")
    assert repository.decide("git status") == "ask"


def test_submodules_without_programs_are_allowed(repository, make_runner) -> None:
    add_submodule(repository)
    assert [repository.decide(command) for command in ("git status", "git diff", "git show")] == ["allow"] * 3
    assert repository.decide("cd sub && git status") == "ask"  # another repository
    inside = repository.folder / "sub"
    assert Repository(make_runner(inside), inside, repository.mark).decide("git status") == "allow"


def link_elsewhere(repository: Repository, name: str) -> None:
    """Move a part of the repository outside of the workspace, and leave a link."""
    elsewhere = repository.folder.with_name("elsewhere")
    (repository.folder / name).rename(elsewhere)
    (repository.folder / name).symlink_to(elsewhere)


@pytest.mark.parametrize("name", [".git", ".git/objects", ".git/refs", ".git/HEAD", ".git/config"])
def test_a_repository_with_links_to_other_folders_is_asked_about(repository, name) -> None:
    link_elsewhere(repository, name)
    assert repository.decide("git log") == "ask"


def test_objects_of_another_repository_are_asked_about(repository) -> None:
    repository.write(".git/objects/info/alternates", "/somewhere/objects\n")
    assert repository.decide("git log") == "ask"


def test_a_workspace_that_is_no_repository_or_inside_of_one_is_asked_about(repository, make_runner, tmp_path) -> None:
    inside, outside = repository.folder / "src", tmp_path / "plain"
    outside.mkdir()
    for folder in (inside, outside):
        assert Repository(make_runner(folder), folder, repository.mark).decide("git status") == "ask"
    assert Repository(make_runner(outside), outside, repository.mark).decide("git --version") == "allow"


def test_a_home_folder_in_the_workspace_is_not_trusted(repository, monkeypatch) -> None:
    repository.write("home/.gitconfig", "[diff]\n\texternal = difft\n")
    monkeypatch.setenv("HOME", str(repository.folder / "home"))
    assert repository.decide("git status") == "ask"


def test_an_included_pipe_does_not_hold_the_assessment(repository, tmp_path) -> None:
    os.mkfifo(tmp_path / "pipe")
    repository.config("include.path", str(tmp_path / "pipe"))
    started = time.monotonic()
    assert repository.decide("git status") == "ask"
    assert time.monotonic() - started < 2


@pytest.mark.ci_lane
@pytest.mark.promise("I1")
def test_contents_of_files_with_secrets_are_asked_about_wherever_git_shows_them(repository) -> None:
    repository.write("deploy/.env", "TOKEN=1\n")
    repository.write("deploy/.ssh/config", "HOST\n")
    repository.git("add", ".")
    repository.git("commit", "--quiet", "--message", "secret")
    blob = repository.git("rev-parse", "HEAD:deploy/.env")
    repository.git("tag", "hidden", blob)
    decided = {
        "git show": "ask",
        "git show HEAD~1": "allow",
        "git show --stat": "allow",
        "git log -3": "allow",
        "git log -p -1": "ask",
        "git log -p -1 --graph --oneline": "ask",
        "git log -p -1 HEAD~1": "allow",
        "git log -p -- src": "allow",
        "git log -S TOKEN": "ask",
        "git log -G 'T.KEN' --oneline": "ask",
        "git diff --stat -STOKEN HEAD~1": "ask",
        "git log -S third": "allow",
        "git log -p -- 'deploy/*'": "ask",
        "git diff HEAD~1": "ask",
        "git diff HEAD~1 --name-only": "allow",
        "git diff HEAD~1 -- src": "allow",
        "git diff HEAD~1 -- ':!deploy'": "allow",
        "git diff": "allow",
        "git grep TOKEN": "ask",
        "git grep third": "allow",
        "git grep third HEAD": "allow",
        "git grep TOKEN HEAD": "ask",
        "git grep nowhere": "allow",
        f"git show {blob}": "ask",
        f"git show {blob[:8]}": "ask",
        "git show hidden": "ask",
        f"git diff HEAD:README.md {blob}": "ask",
        f"git cat-file -p {blob}": "ask",
        f"git cat-file -t {blob}": "allow",
        "git cat-file -p HEAD": "allow",
        f"git grep -n TOKEN {blob}": "ask",
    }
    plain = repository.git("rev-parse", "HEAD:README.md")
    folder = repository.git("rev-parse", "HEAD:deploy/.ssh")
    decided |= dict.fromkeys(
        [
            f"git diff {plain}..{blob}",
            f"git diff {plain[:7]}..{blob[:7]}",
            f"git diff {plain}...{blob}",
            f"git diff {plain} {blob}",
            f"git diff ^{blob} HEAD:README.md",
            f"git diff HEAD:README.md..{blob}",
            "git diff HEAD:deploy/.env..HEAD:README.md",
            "git diff HEAD:README.md..:deploy/.env",
            "git diff hidden..v1.0",
            "git diff ..hidden",
            "git diff hidden@{0}..HEAD:README.md",
            "git diff 'hidden^{blob}' HEAD:README.md",
            f"git log -p {plain}..{blob}",
            f"git show {plain}..{blob}",
            "git show --tags",
            "git show --all",
            "git show ':(top)'",
            "git show ':!README.md'",
            "git show :/secret",
            "git show 'HEAD^{/se:*cret}'",
            "git show 'HEAD^!'",
            "git show 'HEAD^{tree}:deploy/.env'",
            "cd deploy && git show HEAD:./.env",
            f"git show {folder}:config",
            f"git cat-file -p {folder}:config",
            f"git diff 4b825dc642cb6eb9a060e54bf8d69288fbee4904 {folder}",
            "git diff 4b825dc642cb6eb9a060e54bf8d69288fbee4904 HEAD:deploy/.ssh",
            f"git grep HOST {folder}",
            "cd deploy/.ssh && git grep HOST HEAD",
            "cd deploy/.ssh && git show HEAD:./config",
            "git diff nosuch",
            "git diff main...nosuch",
        ],
        "ask",
    )
    assert {command: repository.decide(command) for command in decided} == decided
    repository.write("deploy/.env", "TOKEN=2\n")
    assert repository.decide("git diff") == "ask"
    assert repository.decide("git status") == "allow"
    repository.git("stash", "--quiet")
    assert repository.decide("git stash list") == "allow"
    assert repository.decide("git stash show -p") == "ask"


@pytest.mark.promise("I1")
def test_a_read_that_would_show_a_file_with_secrets_is_asked_about_in_every_mode(repository) -> None:
    """As if it named the file; what it would read is not known of the last ones."""
    repository.write("deploy/.env", "TOKEN=1\n")
    repository.git("add", ".")
    repository.git("commit", "--quiet", "--message", "secret")
    reads = [
        "grep -r TOKEN .",
        "grep -r TOKEN deploy | head",
        "git show",
        "git log -p -1 | cat",
        "cat src/a.py; git show",
    ]
    reads += ["git show HEAD:deploy/.env", "git grep TOKEN", "git diff HEAD~1"]
    reads += [
        "cd src; git show HEAD",
        "git show > found.txt",
        "git show $(git rev-parse HEAD)",
        "git -c a.b=c show HEAD",
    ]
    unknown = ["tar c . | base64", "find . -exec cat {} +", "git show --stat", "grep -r TOKEN src", "cat new.pem"]
    for command in [*reads, *unknown]:
        assessment = repository.runner.assess(bash_exec, command=command)
        verdict = decide("auto", assessment)
        assert verdict.decision == ("ask" if command in reads else "allow"), command
        if command in reads:
            assert decide("accept_edits", assessment).decision == "ask"
            assert any(".env" in reason for reason in assessment.reasons), command
    for key in ("filter.lfs.clean", "diff.external"):  # a program that git may run keeps from asking git what it shows
        repository.config(key, "true")
        decided = {command: repository.decide(command, "auto") for command in ("git show", "git log -p", "git status")}
        assert decided == {"git show": "ask", "git log -p": "ask", "git status": "allow"}
        repository.git("config", "--unset", key)


@pytest.mark.promise("I1")
def test_an_address_with_a_password_is_asked_about_where_git_shows_it(repository) -> None:
    repository.config("remote.other.url", "https://a:ghp_0123456789abcdefghijABCDEFGHIJ012345@git.example/a.git")
    shown = ["git remote -v", "git remote get-url other", "git config --get remote.other.url"]
    assert [repository.decide(command) for command in shown] == ["ask"] * 3
    assert repository.decide("git status") == "allow"
    repository.git("remote", "remove", "other")
    assert [repository.decide(command) for command in ("git remote -v", "git config --local --list")] == ["allow"] * 2
