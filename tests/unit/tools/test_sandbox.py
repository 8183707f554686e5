"""Tests of the sandbox for commands: what a hostile command reaches in it, and what honest ones need.

Each attack also runs without the sandbox, as a control: there it must succeed.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

import pytest

from agenticx.errors import ToolError
from agenticx.sandbox import SandboxOptions, find_sandbox
from agenticx.sandbox.bubblewrap import MAX_MOUNTS, Profile, wrap
from agenticx.tools.builtin import bash_exec, file_write
from agenticx.tools.shell import launch as launching
from agenticx.tools.shell.command_reader import read_commands
from agenticx.tools.shell.git_reads import read_git_arguments
from agenticx.tools.shell.git_repositories import GitRepositories
from agenticx.tools.shell.launch import Launch, prepare
from agenticx.tools.shell.protected_files import find_protected_files
from agenticx.tools.shell.sandboxing import RequestedAccess, read_only_launcher
from tests.support.timeouts import PatientClock, wait_until

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there is a sandbox on Linux only"),
]

MODES = ("auto", "off")
CANARY = "canary-of-the-token"


@pytest.fixture
def machine(tmp_path, monkeypatch, sandbox, make_runner):
    """Return a factory of runners on a machine with a home folder, AGX_HOME, a token and a repository."""
    return make_machine(tmp_path, monkeypatch, sandbox, make_runner)


@pytest.fixture
def weak_machine(tmp_path, monkeypatch, landlock, make_runner):
    """Return the same where bubblewrap does not work."""
    return make_machine(tmp_path, monkeypatch, landlock, make_runner)


def make_machine(tmp_path, monkeypatch, sandbox, make_runner):
    home = tmp_path / "me"
    for folder in (home / ".ssh", home / ".cargo", home / ".local/bin", sandbox.home, tmp_path / "work/sub"):
        folder.mkdir(parents=True)
    (home / ".ssh/id_ed25519").write_text(CANARY)
    (home / ".bashrc").write_text("true\n")
    (sandbox.home / "token").write_text(CANARY)
    (tmp_path / "token-file").write_text(CANARY)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("AGX_TOKEN_FILE", str(tmp_path / "token-file"))
    work = tmp_path / "work"
    subprocess.run(["git", "init", "-q", work], check=True)
    for key in ("name", "email"):
        subprocess.run(["git", "-C", work, "config", f"user.{key}", "me"], check=True)
    (work / ".env").write_text("A=1\n")
    (work / ".github/workflows").mkdir(parents=True)
    (work / ".github/workflows/ci.yml").write_text("on: push\n")

    def make(**options):
        roots = (sandbox.home, tmp_path / "token-file")
        return make_runner(work, protected_roots=roots, sandbox=replace(sandbox, **options))

    return make


@contextmanager
def victim() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "1000"]) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def server() -> Iterator[int]:
    """Yield the port of a server of this machine's loopback that accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


# A script writes, so that no command names what it attacks; prints "done" if it had its effect.
ATTACKS = {
    "read the token in AGX_HOME": "grep -l canary {tmp}/agx-home/*",
    "read the token file": "grep -l canary {tmp}/tok*",
    "read a key of the home folder": "grep -rl canary {tmp}/me",
    "read the environment of the server": "tr '\\0' '\\n' </proc/{pid}/environ | grep -q HOME",
    "read the memory of the server": "head -c 1 /proc/{pid}/maps | grep -q .",
    "reach its files through its folder": "grep -l canary /proc/{pid}/root{tmp}/tok*",
    "kill a process": "kill -0 {pid}",
    "trace a process": "python3 -c 'import ctypes as c; assert c.CDLL(None).ptrace(16, {pid}, 0, 0) == 0'",
    "use a server of this machine": "exec 3<>/dev/tcp/127.0.0.1/{port}",
}
CHANGES = {
    "write a start-up file": "echo evil >> ~/.bash[r]c",
    "write a script of the home folder": "x=.loc; echo evil > ~/${x}al/bin/ls",
    "write outside of the workspace": "echo evil > ../written",
    "write a hook": "x=.gi; echo evil > ${x}t/hooks/pre-commit",
    "change the configuration of git": "git config core.pager evil",
    "change it in place": 'python3 -c \'open(".g" + "it/config", "a").write("[core]pager=evil")\'',
    "write attributes": "x=.gi; mkdir -p ${x}t/info; echo '* filter=evil' > ${x}t/info/attributes",
    "rename the repository away": "x=.gi; mv ${x}t old; git init -q; git config core.pager evil",
    "rename the folder of hooks": "x=.gi; mv ${x}t/hooks old; mkdir ${x}t/hooks; echo evil > ${x}t/hooks/pre-commit",
    "another folder for the configuration": "x=.gi; echo ../evil > ${x}t/commondir",
    "link to the configuration": "x=.gi; ln ${x}t/config here && echo '[core]pager=evil' >> here",
    "change an environment file": "x=.en; echo evil >> ${x}v",
    "move the folder of a workflow away": "x=.gith; mv ${x}ub old",
    "rename the folder of a workflow": "x=.gith; mv ${x}ub o; mkdir -p ${x}ub/workflows; echo evil >${x}ub/workflows/c",
    "make a settings file of an editor": "x=.vsc; mkdir sub/${x}ode; echo evil > sub/${x}ode/tasks.json",
    "make an environment file": "x=.env; echo evil > sub/${x}rc",
    "make a link to one": "echo evil > plain; x=.env; ln -s ../plain sub/${x}rc",
    "make a hostile repository": "git init -q sub; git -C sub config core.fsmonitor evil",
    "make a bare one": "git init -q --bare sub/any; git -C sub/any config core.fsmonitor evil",
    "unmount it": "x=.gi; unshare -Urm umount ${x}t/config; git config core.pager evil",
}


def guard_rails(tmp: Path) -> dict[str, str]:
    """Return the contents of the files that decide what runs, as far as they are evil, have changed or are gone."""
    work = tmp / "work"
    patterns = ("**/.git/**/*", "**/.env*", "**/.vscode/**/*", "**/.github/workflows/*", "sub/any/**/*")
    files = [path for pattern in patterns for path in work.glob(pattern)]
    files += [tmp / "written", *(tmp / "me").rglob("*")]
    texts = {str(path.relative_to(tmp)): path.read_text("utf-8", "replace") for path in files if path.is_file()}
    if not (work / ".github/workflows/ci.yml").exists():
        texts[".github/workflows/ci.yml"] = "gone, which is evil too"
    return {name: text for name, text in texts.items() if "evil" in text}


@pytest.mark.promise("E4")
@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
async def test_a_command_reaches_nothing_outside_of_the_sandbox(machine, tmp_path, attack) -> None:
    with victim() as process, server() as port:
        command = attack.format(tmp=tmp_path, pid=process.pid, port=port)
        results = [await machine(mode=mode).call(bash_exec, command=f"{command} && echo done") for mode in MODES]
    assert ["done\n" in result for result in results] == [False, True], results


# Options of bubblewrap that a broken sandbox lacks, each with its number of values; an attack that then succeeds; and
# whether AgenticX's own files are hidden.
FOLDERS = {"--tmpfs": 1, "--remount-ro": 1}
BROKEN_SANDBOXES = {
    "shares the network": ({"--unshare-net": 0}, "use a server of this machine", True),
    "shares the processes": ({"--unshare-pid": 0}, "kill a process", True),
    "empties no folder": (FOLDERS, "read a key of the home folder", True),
    "hides no file": (FOLDERS, "read the token file", False),
}


@pytest.mark.promise("E4")
@pytest.mark.parametrize("broken", BROKEN_SANDBOXES)
async def test_an_attack_detects_a_broken_sandbox(machine, tmp_path, monkeypatch, broken) -> None:
    lacking, attack, hides = BROKEN_SANDBOXES[broken]

    def wrap_badly(program: str, profile: Profile, command: list[str]) -> list[str]:
        options = iter(wrap(program, profile if hides else replace(profile, private=()), command))
        kept = list[str]()
        for option in options:
            if option in lacking:
                list(islice(options, lacking[option]))
            else:
                kept.append(option)
        return kept

    monkeypatch.setattr(launching, "wrap", wrap_badly)
    with victim() as process, server() as port:
        command = ATTACKS[attack].format(tmp=tmp_path, pid=process.pid, port=port)
        result = await machine().call(bash_exec, command=f"{command} && echo done")
    assert "done\n" in result, result


@pytest.mark.promise("E4")
async def test_a_command_has_no_capability_and_is_in_another_user_namespace(machine) -> None:
    """Root has all capabilities, and bubblewrap makes it no user namespace unless it is asked to."""
    command = "grep -E '^Cap(Inh|Prm|Eff|Bnd|Amb)' /proc/self/status | cut -f 2 | sort -u; readlink /proc/self/ns/user"
    capabilities, namespace, ending = (await machine().call(bash_exec, command=command)).splitlines()
    assert (capabilities, ending) == ("0" * 16, "[exit code 0]")
    assert namespace != os.readlink("/proc/self/ns/user")


@pytest.mark.promise("I1")
async def test_a_configuration_of_git_is_seen_in_the_sandbox_unless_it_has_a_credential(machine, tmp_path) -> None:
    name = "[user]\n\tname = me\n"
    files = {
        name: True,
        f"{name}[core]\n\tpager = less\n": True,
        f"{name}[http]\n\textraHeader = X-Gate: hunter2\n": False,
        f'{name}[url "https://me:hunter2@git.example.com/"]\n\tinsteadOf = https://git.example.com/\n': False,
        f"{name}[github]\n\ttoken = ghp_0123456789abcdefABCDEF0123456789abcd\n": False,
        name + "# \n" * 100_000: False,  # too large to be looked through
    }
    places = [tmp_path / "me" / place for place in (".gitconfig", ".config/git/config")]
    places[1].parent.mkdir(parents=True)
    for content, visible in files.items():
        for place in places:
            place.write_text(content)
        result = await machine().call(bash_exec, command="head -n 2 ~/.gitconf* ~/.config/git/conf*")
        assert (content[:99], result.count("name = me")) == (content[:99], 2 if visible else 0)


@pytest.mark.promise("H3")
@pytest.mark.parametrize("attack", CHANGES)
async def test_a_command_in_the_sandbox_changes_no_guard_rail(machine, tmp_path, attack) -> None:
    result = await machine().call(bash_exec, command=CHANGES[attack])
    assert guard_rails(tmp_path) == {}, result
    assert (tmp_path / "work/.git/HEAD").exists()
    assert (tmp_path / "work/.git/config").read_text().count("[") == 2
    await machine(mode="off").call(bash_exec, command=CHANGES[attack])
    assert guard_rails(tmp_path) != {}


async def test_a_command_that_only_reads_can_write_nothing(machine, tmp_path) -> None:
    runner = machine()
    runner.context = replace(runner.context, permitted_risk="read")
    before = {path: path.lstat().st_mtime_ns for path in tmp_path.rglob("*")}
    places = [".", ".git", "sub", "~", "~/.local/bin", "/usr", "/etc", "/var/lib"]
    command = "; ".join(f"touch {place}/x && echo wrote {place}" for place in places)
    assert "wrote" not in await runner.call(bash_exec, command=command)
    result = await runner.call(bash_exec, command="git status --short; sort <<<b; ls; echo $GIT_OPTIONAL_LOCKS")
    assert result == "?? .env\n?? .github/\nb\nsub\n0\n[exit code 0]"
    assert {path: path.lstat().st_mtime_ns for path in tmp_path.rglob("*")} == before


async def test_writing_beside_the_workspace_fails_instead_of_being_lost(machine, tmp_path) -> None:
    result = await machine().call(bash_exec, command="touch t.txt ../u.txt")
    assert ("Read-only file system" in result, "[exit code 1]" in result) == (True, True)
    assert ((tmp_path / "work/t.txt").exists(), (tmp_path / "u.txt").exists()) == (True, False)


async def test_honest_work_goes_on_in_the_sandbox(machine, tmp_path) -> None:
    runner = machine()
    (runner.workspace / "test_one.py").write_text("def test_one(tmp_path):\n    (tmp_path / 'x').touch()\n")
    packages = Path(pytest.__file__).parents[1]
    for command, result in {
        "git add test_one.py && git commit -qm One && git log --format=%s": "One\n[exit code 0]",
        "git checkout -qb other && git rm -q test_one.py && git commit -qm Two && git checkout -q -": "(no output)\n"
        "[exit code 0]",
        f"{sys.executable} -m venv --without-pip .venv && .venv/bin/python -c 'print(1)'": "1\n[exit code 0]",
        f"PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 PYTHONPATH={packages} .venv/bin/python -m pytest -q | grep -o '1 passed'": (
            "1 passed\n[exit code 0]"
        ),
        "mkdir -p ~/.cache/x ~/.cargo/registry && touch /tmp/x && ls -A ~/.cargo": "registry\n[exit code 0]",
        "git init -q made && ls -A made": ".git\n[exit code 0]",
        "python3 -c 'import multiprocessing as m; print(m.Pool(2).map(abs, [-1]))'": "[1]\n[exit code 0]",
    }.items():
        assert await runner.call(bash_exec, command=command) == result


async def test_a_linked_working_tree_commits_to_its_repository_but_cannot_configure_it(machine, tmp_path) -> None:
    runner = machine()
    work, linked = runner.workspace, tmp_path / "linked"
    subprocess.run(["git", "-C", work, "commit", "-qm", "0", "--allow-empty"], check=True)
    subprocess.run(["git", "-C", work, "worktree", "add", "-q", linked], check=True)
    runner.context = replace(runner.context, workspace=linked)
    command = "echo > a && git add a && git commit -qm One && git config core.pager evil"
    assert "could not write config file" in await runner.call(bash_exec, command=command)
    log = subprocess.run(["git", "-C", linked, "log", "--format=%s"], capture_output=True, check=True)
    assert log.stdout == b"One\n0\n"
    assert guard_rails(tmp_path) == {}


async def test_a_linked_working_tree_is_read_where_its_repository_is_in_the_home_folder(machine, tmp_path) -> None:
    runner = machine()
    repository, linked = tmp_path / "me/repository", tmp_path / "linked"
    subprocess.run(["git", "clone", "-q", runner.workspace, repository], check=True, stderr=subprocess.DEVNULL)
    identity = ["-c", "user.name=me", "-c", "user.email=me"]
    subprocess.run(["git", "-C", repository, *identity, "commit", "-qm", "0", "--allow-empty"], check=True)
    subprocess.run(["git", "-C", repository, "worktree", "add", "-q", linked], check=True)
    runner.context = replace(runner.context, workspace=linked)
    command = "git log --format=%s"
    assert runner.assess(bash_exec, command=command).risk == "read"
    runner.context = replace(runner.context, permitted_risk="read")
    assert await runner.call(bash_exec, command=command) == "0\n[exit code 0]"


@pytest.mark.parametrize("name", ["machine", "weak_machine"])
def test_what_git_runs_while_a_repository_is_judged_reaches_nothing(request, tmp_path, name) -> None:
    """A git that does what a repository could make it do, if that is changed at the same time.

    What it reads or sends is in its output, which is then none that git could have written.
    """
    runner = request.getfixturevalue(name)()
    work = runner.workspace
    git = work / "git"
    with server() as port:
        git.write_text(f"""#!/bin/bash
            (echo evil > {tmp_path}/me/.bashrc; echo evil > {work}/new; grep canary {tmp_path}/tok*
            exec 4<>/dev/tcp/127.0.0.1/{port} && echo sent) 2>/dev/null
            exec /usr/bin/git "$@"
        """)
        git.chmod(0o755)
        launcher = partial(read_only_launcher, runner.context, os.environ)
        git_status = read_git_arguments(["status"])
        assert GitRepositories(work, str(git), os.environ, launcher).find_obstacle(git_status, work) is None
        assert ((tmp_path / "me/.bashrc").read_text(), (work / "new").exists()) == ("true\n", False)
        assert GitRepositories(work, str(git), os.environ).find_obstacle(git_status, work) is not None
        assert ((tmp_path / "me/.bashrc").read_text(), (work / "new").exists()) == ("evil\n", True)


@pytest.mark.parametrize("place", [".git", ".env"])
def test_a_command_does_not_start_where_another_file_was_mounted(machine, tmp_path, place) -> None:
    """As if another command had put a link to the home folder there while bubblewrap looked for what to mount."""
    runner = machine()
    work = runner.workspace
    command = f"cat {work}/.git/.bashrc {work}/.en?; echo started"
    launch = prepare(
        command, "/bin/bash", os.environ, runner.context, RequestedAccess(), reading=read_commands(command)
    )
    mounted = {".git": tmp_path / "me", ".env": tmp_path / "me/.ssh/id_ed25519"}[place]
    index = list(launch.arguments).index(str(work / place))
    for source, starts in ((work / place, True), (mounted, False)):
        arguments = list(launch.arguments)
        arguments[index] = str(source)
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
        assert ("started" in done.stdout, CANARY in done.stdout) == (starts, False)
        assert ("changed while the command was started" in done.stderr) is not starts


async def test_what_a_question_named_may_be_written(machine) -> None:
    runner = machine()
    assert runner.assess(bash_exec, command="echo B=2 >> .env").protected
    assert await runner.call(bash_exec, command="echo B=2 >> .env; cat .env") == "A=1\nB=2\n[exit code 0]"


RUN_IN_ITS_OWN_WORKSPACE = """
import asyncio, sys
from agenticx import AutoApproveConfirmGate, Session
from agenticx.runtime import AgentRuntime
from agenticx.testing import ScriptedModel, call
from agenticx.tools.builtin.shell import bash_exec

command = "touch tools/.venv/x; mv tools/.venv a; mv tools b && mkdir -p tools/.venv; touch y"
model = ScriptedModel([call("bash_exec", {"command": command}), "Done."])
runtime = AgentRuntime(model, AutoApproveConfirmGate(), tools=[bash_exec])
print(asyncio.run(runtime.run("Go.", session=Session(workspace=sys.argv[1]))).output)
"""


async def test_the_environment_in_which_agenticx_runs_cannot_be_changed_or_replaced(machine, tmp_path) -> None:
    work = machine().workspace
    await asyncio.to_thread(
        subprocess.run, [sys.executable, "-m", "venv", "--without-pip", work / "tools/.venv"], check=True
    )
    packages = next((work / "tools/.venv/lib").glob("*/site-packages"))
    (packages / "rest.pth").write_text("\n".join(path for path in sys.path if path))
    python = work / "tools/.venv/bin/python"
    running = [python, "-c", RUN_IN_ITS_OWN_WORKSPACE, work]
    ended = await asyncio.to_thread(subprocess.run, running, capture_output=True, text=True, cwd=work)
    assert ended.returncode == 0, ended.stderr
    assert ((work / "y").exists(), (work / "b").exists()) == (True, False)
    assert (python.exists(), (work / "tools/.venv/x").exists()) == (True, False)


async def test_a_bash_in_the_workspace_is_not_the_one_that_runs_commands(machine, monkeypatch) -> None:
    runner = machine(mode="off")
    planted = runner.workspace / "bin/bash"
    planted.parent.mkdir()
    planted.write_text("#!/bin/sh\necho planted\n")
    planted.chmod(0o755)
    monkeypatch.setenv("PATH", f"{planted.parent}:{os.environ['PATH']}")
    assert await runner.call(bash_exec, command="echo hi") == "hi\n[exit code 0]"
    assert await runner.call(bash_exec, command="bash x") == "planted\n[exit code 0]"
    reasons = runner.assess(bash_exec, command="bash x").reasons
    assert "`bash` is bin/bash, which an earlier command may have written." in reasons


async def test_files_that_the_configuration_of_git_names_are_protected(machine) -> None:
    runner = machine()
    work = runner.workspace
    (work / "tools").mkdir()
    (work / "tools/show.py").write_text("print()\n")
    settings = {
        "core.hooksPath": "tools/hooks",
        "include.path": "../tools/more",
        "diff.x.textconv": "python tools/show.py",
    }
    for key, value in settings.items():
        subprocess.run(["git", "-C", work, "config", key, value], check=True)
    command = (
        "mkdir tools/hooks; echo evil > tools/hooks/pre-commit; echo evil > tools/more; echo evil >> tools/show.py"
    )
    result = await runner.call(bash_exec, command=f"{command}; touch tools/other")
    assert (f"{work}/tools/hooks, {work}/tools/more" in result, "Read-only file system" in result) == (True, True)
    assert sorted(path.name for path in (work / "tools").iterdir()) == ["other", "show.py"]
    assert (work / "tools/show.py").read_text() == "print()\n"
    for path, protected in {"tools/hooks/pre-commit": True, "tools/more": True, "tools/other": False}.items():
        assert runner.assess(file_write, path=path, content="x").protected is protected


@pytest.mark.ci_lane
async def test_commands_leave_no_file_open(machine) -> None:
    runner = machine()
    await runner.call(bash_exec, command="touch x; git status")
    before = sorted(os.listdir("/proc/self/fd"))
    for _ in range(3):
        await runner.call(bash_exec, command="touch x; x=.env; echo > sub/${x}rc; git status")
    assert len(os.listdir("/proc/self/fd")) <= len(before)


async def test_instructions_that_a_command_writes_are_reported(machine) -> None:
    runner = machine()
    work = runner.workspace
    (work / "CLAUDE.md").write_text("Be brief.\n")
    (work / "sub/AGENTS.md").write_text("Be kind.\n")
    command = (
        "echo evil >> CLAUDE.md; mkdir -p .github/instructions; touch .github/instructions/a.md new.md; cat */*.md"
    )
    lines = (await runner.call(bash_exec, command=command)).splitlines()
    written = f"{work}/CLAUDE.md, {work}/.github/instructions/a.md"
    assert lines[:2] == ["Be kind.", "[exit code 0]"]
    assert lines[2] == f"[The command wrote {written}: instructions that agents follow, look at them.]"
    assert "instructions" not in await runner.call(bash_exec, command="touch other.md; cat CLAUDE.md")


async def test_a_new_guard_rail_is_moved_away_and_reported(machine, sandbox) -> None:
    runner = machine()
    result = await runner.call(bash_exec, command="x=.env; echo evil > sub/${x}rc")
    created = runner.workspace / "sub/.envrc"
    moved = next((sandbox.home / "quarantine").rglob(".envrc"))
    assert (moved.read_text(), moved.parent.stat().st_mode & 0o777) == ("evil\n", 0o700)
    assert result == (
        f"(no output)\n[exit code 0]\n[The command created {created}, which may decide what runs on this machine; moved"
        f" to {moved.parents[1]}. A command that names such a file asks the user, and may then create it.]"
    )


async def test_what_others_change_while_a_command_runs_stays(machine) -> None:
    runner = machine()
    work = runner.workspace
    os.mkfifo(work / "go")
    call = asyncio.ensure_future(runner.call(bash_exec, command="echo > started; cat go"))
    await wait_until((work / "started").exists)
    (work / "new").write_text("A=2\n")
    (work / "new").replace(work / ".env")
    (work / ".github/workflows/ci.yml").write_text("on: tag\n")
    (work / "go").write_text("")
    assert await call == "(no output)\n[exit code 0]"
    assert ((work / ".env").read_text(), (work / ".github/workflows/ci.yml").read_text()) == ("A=2\n", "on: tag\n")


async def test_what_a_process_in_the_background_makes_is_moved_away_too(machine, sandbox) -> None:
    runner = machine()
    trap = "trap 'x=.env; echo evil > sub/${x}rc; exit' TERM; echo > armed; exec >/dev/null 2>&1; sleep 1000 & wait"
    await runner.call(bash_exec, command=f"({trap}) & until test -e armed; do :; done")
    await asyncio.gather(*runner.background_tasks)
    assert not (runner.workspace / "sub/.envrc").exists()
    assert list((sandbox.home / "quarantine").rglob(".envrc"))


def test_a_workspace_that_is_too_large_to_be_searched_is_said_to_be(machine) -> None:
    workspace = machine().workspace
    found = find_protected_files(workspace)
    assert (workspace / ".env" in found.identities, found.unsearched) == (True, frozenset())
    cut = find_protected_files(workspace, seconds=0)
    assert cut.unsearched == find_protected_files(workspace, max_mounts=1).unsearched == {workspace}
    (sentence,) = Launch([], {}, "bubblewrap", before=cut).clean_up()
    assert sentence.startswith("The workspace has too many folders")


@pytest.mark.ci_lane
async def test_a_command_runs_where_more_files_are_protected_than_can_be_mounted(machine) -> None:
    runner = machine()
    for number in range(MAX_MOUNTS + 100):
        (runner.workspace / f"packages/{number:04}").mkdir(parents=True)
        (runner.workspace / f"packages/{number:04}/.env").write_text("A=1\n")
    result = await runner.call(bash_exec, command="x=.en; for d in packages/*; do echo evil > $d/${x}v; done")
    assert "deeper ones are not protected" in result
    written = [path.read_text() for path in sorted(runner.workspace.glob("packages/*/.env"))]
    assert written[:1_900] == ["A=1\n"] * 1_900
    assert written[-100:] == ["evil\n"] * 100


@pytest.mark.ci_lane
async def test_landlock_is_given_more_paths_than_one_argument_may_hold(weak_machine, tmp_path) -> None:
    names = [f"{number:0100}" for number in range(1_500)]
    runner = weak_machine(home_paths=tuple(names))
    for name in names:
        (tmp_path / "me" / name).mkdir()
    assert await runner.call(bash_exec, command=f"ls -d {tmp_path}/me/{names[-1]} >&2 && echo hi") == (
        f"{tmp_path}/me/{names[-1]}\nhi\n[exit code 0]"
    )


async def test_a_command_that_waits_for_the_network_until_its_time_out_reads_why(machine) -> None:
    runner, command = machine(), "echo 'Temporary failure in name resolution'; sleep 1000"
    clock = PatientClock({0.5: 4.0})  # by then the command has begun on a slow machine, too
    runner.context = replace(runner.context, clock=clock)
    with pytest.raises(ToolError, match="The sandbox has no network"):
        await runner.call(bash_exec, command=command, timeout=0.5)
    await asyncio.gather(*runner.background_tasks)


WRITING = (
    "In the sandbox only the workspace is writable, without files that decide what runs, such as .git/config, hooks and"
    " the virtual environment in which AgenticX runs;"
    " a command that must write elsewhere is called with unsandboxed=true, which asks the user."
)
SERVICES = (
    "The sandbox hides the sockets of this machine's services, such as docker and systemd; a command that needs one is"
    " called with unsandboxed=true, which asks the user."
)
FAILURES = {
    "echo x >> ~/.bashrc": WRITING,
    "exec 3<>/dev/tcp/127.0.0.1/9": "The sandbox has no network, and none of this machine's servers; a command that"
    ' needs them is called with the hosts in network, such as ["pypi.org"], or with network=true, which asks the user.',
    "touch /usr/x": WRITING,
    "cat ~/.ssh/id_ed25519": "The sandbox hides the home folder, except toolchains; a command that needs more of it is"
    " called with unsandboxed=true, which asks the user.",
    "mytool": "The program is in the home folder, which the sandbox hides except toolchains and what the user adds with"
    " the setting AGX_SANDBOX_HOME_PATHS; unsandboxed=true asks the user to run the command without the sandbox.",
    "cat nosuchfile": None,
    "echo 'Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is it running?'; false": SERVICES,
    "echo 'Failed to connect to bus: No such file or directory'; false": SERVICES,
    "echo 'E: setgroups 65534 failed - setgroups (1: Operation not permitted)'; false": WRITING,
    "python3 -c 'import nosuchmodule'": None,
    "python3 -c 'open(\"nosuchfile\")'": None,
}


@pytest.mark.parametrize("command", FAILURES)
async def test_a_failure_that_the_sandbox_explains_says_so(machine, tmp_path, monkeypatch, command) -> None:
    tools = tmp_path / "me/tools"
    tools.mkdir()
    (tools / "mytool").write_text("#!/bin/sh\necho found\n")
    (tools / "mytool").chmod(0o755)
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{tools}")
    lines = (await machine().call(bash_exec, command=command)).splitlines()
    explanation = FAILURES[command]
    assert lines[-1] == (f"[{explanation}]" if explanation else "[exit code 1]")
    if command == "mytool":
        assert await machine(home_paths=("tools",)).call(bash_exec, command=command) == "found\n[exit code 0]"


async def test_a_worktree_that_the_sandbox_does_not_allow_is_said_to_be_broken(machine) -> None:
    runner = machine()
    commit = ["-c", "user.name=A", "-c", "user.email=a@b.example", "commit", "-q", "--allow-empty", "-m", "first"]
    subprocess.run(["git", *commit], cwd=runner.workspace, check=True)
    result = await runner.call(bash_exec, command="git worktree add wt")
    assert "`git worktree add` needs unsandboxed=true, which asks the user." in result
    assert "is not a working tree" in await runner.call(bash_exec, command="git worktree prune; git worktree remove wt")


# With exit code 0, as agents see most failures.
HIDDEN = {
    "touch /usr/x 2>&1 | tail -1": WRITING,
    "touch /usr/x || true": WRITING,
    "touch /usr/x; echo done": WRITING,
    "echo 'npm error errno EAI_AGAIN' | tail -5; touch x": FAILURES["exec 3<>/dev/tcp/127.0.0.1/9"],
    "echo 'curl: (6) Could not resolve host: a.example' | tee x": FAILURES["exec 3<>/dev/tcp/127.0.0.1/9"],
    "echo 'src/a.py:3:    raise Error(\"Could not resolve host\")' | tee x": None,
    "echo '+ Read-only file system' | tee x": None,
    "echo '    if \"EAI_AGAIN\" in text:' | tee x": None,
    "touch /usr/x 2>/dev/null | true": None,
}


async def test_lines_of_a_file_that_is_read_are_no_failure(machine) -> None:
    runner = machine()
    (runner.workspace / "log").write_text("x: Read-only file system\n")
    runner.context = replace(runner.context, permitted_risk="read")
    assert await runner.call(bash_exec, command="cat log | head") == "x: Read-only file system\n[exit code 0]"


@pytest.mark.parametrize("command", HIDDEN)
async def test_a_failure_that_the_exit_code_hides_is_explained_if_the_output_clearly_shows_it(machine, command) -> None:
    lines = (await machine().call(bash_exec, command=command)).splitlines()
    explanation = HIDDEN[command]
    assert lines[-2:] == ["[exit code 0]", f"[{explanation}]"] if explanation else lines[-1] == "[exit code 0]"


@pytest.mark.parametrize("name", ["machine", "weak_machine"])
async def test_a_virtual_environment_on_the_path_works_wherever_it_is(request, tmp_path, monkeypatch, name) -> None:
    make = request.getfixturevalue(name)
    with tempfile.TemporaryDirectory(dir="/tmp") as temporary:
        for folder in (tmp_path / "me/env", Path(temporary) / "env"):
            (folder / "bin").mkdir(parents=True)
            (folder / "pyvenv.cfg").write_text("home = /usr/bin\n")
            (folder / "bin/tool").write_text("#!/bin/sh\necho works\n")
            (folder / "bin/tool").chmod(0o755)
            with monkeypatch.context() as patch:
                patch.setenv("PATH", f"{os.environ['PATH']}:{folder}/bin")
                command = f"tool; touch {folder}/x; ls ~/.ssh || echo hidden"
                result = await make().call(bash_exec, command=command)
            assert ("works" in result, "hidden" in result, (folder / "x").exists()) == (True, True, False), result


async def test_a_home_folder_is_no_virtual_environment(machine, tmp_path, monkeypatch) -> None:
    (tmp_path / "me/pyvenv.cfg").write_text("home = /usr/bin\n")
    monkeypatch.setenv("PATH", f"{tmp_path}/me/bin:{os.environ['PATH']}")
    result = await machine().call(bash_exec, command="test -e ~/.ssh || echo hidden")
    assert result == "hidden\n[exit code 0]"


async def test_a_call_may_have_the_network_or_no_sandbox(machine, tmp_path) -> None:
    with server() as port:
        command = f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo done"
        assert await machine().call(bash_exec, command=command, network=True) == "done\n[exit code 0]"
    assert "canary" not in await machine().call(bash_exec, command=f"cat {tmp_path}/tok*", network=True)
    command = "test -e ~/.ssh && echo done"
    assert await machine().call(bash_exec, command=command, unsandboxed=True) == "done\n[exit code 0]"


async def test_a_workspace_that_contains_the_home_folder_is_not_allowed_as_an_edit(machine, tmp_path) -> None:
    runner = machine()
    runner.context = replace(runner.context, workspace=tmp_path)
    assessment = runner.assess(bash_exec, command="make")
    assert (assessment.sandboxed, assessment.contained) == ("bubblewrap", False)
    assert "sees your home folder, which the workspace includes" in assessment.reasons[1]
    assert "canary" not in await runner.call(bash_exec, command="cat agx-h*/token tok*")


BROKEN = {
    "echo 'bwrap: setting up uid map: Permission denied' >&2; exit 1": "(setting up uid map: Permission denied).",
    'echo "bwrap: Can\'t mount proc on /newroot/proc: Operation not permitted" >&2; exit 1': "this is a container with"
    " a masked /proc, in which none can be mounted (Can't mount proc on /newroot/proc: Operation not permitted).",
    "exit 7": "(exit code 7).",
}


@pytest.mark.parametrize("script", BROKEN)
def test_a_sandbox_that_does_not_work_is_named_with_its_reason(tmp_path, monkeypatch, script) -> None:
    program = tmp_path / "bwrap"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    status = find_sandbox(SandboxOptions())
    assert status.kind != "bubblewrap"
    assert status.reason.startswith(f"{program} does not work here: ")
    assert BROKEN[script] in status.reason


def test_without_the_program_or_the_setting_there_is_no_sandbox(tmp_path, monkeypatch) -> None:
    assert find_sandbox(SandboxOptions(mode="off")).reason == "The setting AGX_SANDBOX is off."
    monkeypatch.setenv("PATH", str(tmp_path))
    missing = "bubblewrap is not installed (there is no bwrap on the PATH)."
    assert find_sandbox(SandboxOptions()).reason.startswith(missing)


# --- Landlock, where bubblewrap does not work -------------------------------------------------------------------------


@pytest.mark.promise("E4")
@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
async def test_landlock_keeps_a_command_from_the_token_and_from_other_processes(weak_machine, tmp_path, attack) -> None:
    with victim() as process, server() as port:
        command = attack.format(tmp=tmp_path, pid=process.pid, port=port)
        results = [await weak_machine(mode=mode).call(bash_exec, command=f"{command} && echo done") for mode in MODES]
    assert ["done\n" in result for result in results] == [False, True], results


async def test_landlock_keeps_a_command_from_writing_outside_of_the_workspace(weak_machine, tmp_path) -> None:
    runner = weak_machine()
    places = ["~", "~/.local/bin", "..", "/usr", "/tmp", "/dev"]
    result = await runner.call(
        bash_exec, command="; ".join(f"touch {place}/{tmp_path.name}.x && echo wrote {place}" for place in places)
    )  # new files: Landlock does not keep a command from the times of those that are there
    assert "wrote" not in result
    assert "[The sandbox allows writing in the workspace, in $TMPDIR and in /dev/shm only," in result
    runner.context = replace(runner.context, permitted_risk="read")
    result = await runner.call(
        bash_exec, command="touch x; sort <<<b; cat <<<$GIT_OPTIONAL_LOCKS; test -e x || echo no x"
    )
    assert result.splitlines()[1:4] == ["b", "0", "no x"]


async def test_landlock_reports_changes_that_it_cannot_prevent_and_moves_new_files(weak_machine, landlock) -> None:
    runner = weak_machine()
    change = "git config core.pager evil; x=.en; echo evil > sub/${x}vrc; echo evil >> ${x}v; kill -9 $$"
    lines = (await runner.call(bash_exec, command=change)).splitlines()
    assert lines[1] == "[ended by signal 9 (SIGKILL)]"
    assert lines[2].startswith(f"[The command created {runner.workspace}/sub/.envrc, which may decide what runs")
    changed = f"{runner.workspace}/.git/config, {runner.workspace}/.env"
    assert lines[3] == f"[The command changed {changed}, which may decide what runs on this machine: look at it.]"
    assert "evil" in (runner.workspace / ".git/config").read_text()
    assert "evil" in next((landlock.home / "quarantine").rglob(".envrc")).read_text()


@pytest.mark.ci_lane
async def test_honest_work_goes_on_under_landlock(weak_machine) -> None:
    runner = weak_machine()
    for command, result in {
        "echo > a && git add a && git commit -qm One && git log --format=%s": "One\n[exit code 0]",
        f"{sys.executable} -m venv --without-pip .venv && .venv/bin/python -c 'print(1)'": "1\n[exit code 0]",
        "python3 -c 'import tempfile as t; t.TemporaryFile(); print(2)'": "2\n[exit code 0]",
        "python3 -c 'import multiprocessing as m; print(m.Pool(2).map(abs, [-1]))'": "[1]\n[exit code 0]",
    }.items():
        assert await runner.call(bash_exec, command=command) == result


async def test_a_command_under_landlock_asks_and_says_what_passes(weak_machine, tmp_path) -> None:
    runner = weak_machine()
    assessment = runner.assess(bash_exec, command="make")
    assert (assessment.sandboxed, assessment.contained) == ("landlock", False)
    assert "It is not kept from " in assessment.reasons[1]
    assert "UDP, sockets with a path and changes of .git/config and hooks" in assessment.reasons[1]
    assert "changes of the permissions and times of your other files, writing in /dev/shm, " in assessment.reasons[1]
    with server() as port:
        command = f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo done"
        assert await runner.call(bash_exec, command=command, network=True) == "done\n[exit code 0]"
    runner.context = replace(runner.context, workspace=tmp_path)
    assert runner.assess(bash_exec, command="make").sandboxed is False
