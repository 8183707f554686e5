"""Tests that only commands proved simple, read-only and inside the workspace count as harmless."""

from __future__ import annotations

import os
import random
import re
import shlex
from pathlib import Path

import pytest

from agenticx.tools import decide
from agenticx.tools.builtin.shell import bash_exec
from agenticx.tools.shell.simple_commands import is_plainly_harmless
from tests.support.lanes import Count

pytestmark = [pytest.mark.anyio, pytest.mark.promise("H4")]


@pytest.fixture
def project(runner, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    outside = runner.workspace.with_name("outside")
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (runner.workspace / "notes.md").write_text("hello\n")
    (runner.workspace / "src").mkdir()
    (runner.workspace / "my notes").touch()
    (runner.workspace / "link").symlink_to(outside)
    return runner


@pytest.mark.parametrize(
    "command",
    [
        "ls",
        "ls -la",
        " ls  -l src ",
        "ls -l .",
        "pwd",
        "cat notes.md",
        "cat .//notes.md",
        'cat "my notes"',
        "cat 'my notes' notes.md",
        "head -n 5 notes.md",
        "head -5 notes.md",
        "tail -n3 notes.md",
        "wc -l notes.md",
        "grep -rn hello src",
        "grep -i 'two words' notes.md",
        "grep -A3 x notes.md",
        "echo hello world",
        "echo 'a; b | c > d $HOME `x`'",
        "du -sh src",
        "true",
        "whoami",
    ],
)
def test_a_plain_read_only_command_is_allowed(project, command) -> None:
    assessment = project.assess(bash_exec, command=command)
    assert decide("default", assessment).decision == "allow"
    assert assessment.reasons == ("It is one plain command that only looks at files of the workspace.",)


ASKED = r"""
# more than one command
ls; rm x
ls && rm x
ls || rm x
ls | sh
ls & rm x
ls |& sh
(ls)
{ ls; }
! ls
if ls; then rm x; fi
time ls
ls #x
ls;
ls &
# redirections
ls > x
ls >> x
cat < /etc/passwd
cat <<x
cat <<< x
ls 2>x
ls &>x
cat <(rm x)
echo x>notes.md
# substitutions and expansions
echo $(rm x)
echo `rm x`
echo $HOME
echo ${x:=y}
echo "$(rm x)"
echo "`rm x`"
cat "$HOME"
echo $((1))
cat ~/x
cat ~root/x
cat *
cat ?otes.md
cat [n]otes.md
cat {notes.md,/etc/passwd}
echo $'x'
echo $"x"
l\s
cat notes\.md
# wrappers, builtins, environment
env ls
X=1 ls
PATH=. ls
LD_PRELOAD=x ls
sudo ls
nice ls
xargs ls
exec ls
command ls
builtin pwd
eval ls
source x
. x
sh -c ls
bash ls
nohup ls
timeout 1 ls
printf -v x y
export x
cd src
alias x
trap x
test -f x
[ x ]
type ls
busybox ls
stdbuf ls
# programs by path, or that run and write
./ls
/bin/ls
./git
src/ls
git status
git -c core.pager=x log
git log
find .
find . -exec rm {} +
find . -delete
sed -i x notes.md
sed -n 1p notes.md
awk 1 notes.md
sort -o x notes.md
sort notes.md
tee x
uniq a b
rm x
touch x
mv a b
cp a b
python x
node x
make
curl x
tar x
date -s x
less x
more x
vi x
man x
diff src link
xxd a b
file x
tr a b
rg --pre x y
tree -o x
base64 x
openssl
# outside the workspace
cat /etc/passwd
cat ../outside/secret
ls ..
ls /
cat link/secret
ls link
ls link/
cat src/../../x
cat /proc/self/environ
head /dev/zero
grep x /etc/passwd
grep -r x link
wc -l ../x
du /
ls ./..
cat "/etc/passwd"
cat '/etc/passwd'
cat /etc/'passwd'
cat '../x'
# options
grep -f x notes.md
grep -R x src
ls -L src
ls --color=x
wc --files0-from=x
cat --help
tail -f notes.md
grep --file=/etc/passwd x
head --bytes=5 x
cat -- notes.md
ls -
md5sum -c notes.md
du -L src
grep -d recurse x
grep '-f' x
grep "-R" x
du --files0-from=x
tail --follow x
grep -nf x y
# protected, hidden, odd
cat .git/config
cat .env
ｌｓ
LS
'
"
ls 'x
''
'' ls
nosuch
-l
echo é
"""
ODD = [
    "ls\nrm x",
    "ls\rrm x",
    "ls \\\nx",
    "ls\xa0x",
    "ls\u200b",
    "ls \x00",
    "ls \x1b[2K",
    "",
    "   ",
    "ls \u202ex",
    "ls\tx\n",
    "\nls",
    "ls\x0b x",
    "ls\x0cx",
]


@pytest.mark.parametrize("command", [*(line for line in ASKED.splitlines() if line and line[:2] != "# "), *ODD])
def test_every_other_command_is_asked_about(project, command) -> None:
    assert decide("default", project.assess(bash_exec, command=command)).decision == "ask"


@pytest.mark.parametrize(
    "search_path", ["{workspace}:/usr/bin", ".:/usr/bin", ":/usr/bin", "/usr/bin:", "bin:/usr/bin", ""]
)
def test_a_program_that_may_be_shadowed_is_asked_about(project, monkeypatch, search_path) -> None:
    (project.workspace / "ls").write_text("#!/bin/sh\n")
    (project.workspace / "ls").chmod(0o755)
    monkeypatch.setenv("PATH", search_path.format(workspace=project.workspace))
    assert decide("default", project.assess(bash_exec, command="ls")).decision == "ask"


@pytest.mark.parametrize(
    "command", ["cat pipe", "head -n 1 pipe", "grep x pipe", "cat socket-link", "wc notes.md pipe"]
)
def test_reading_a_special_file_is_asked_about(project, command) -> None:
    """Reading a pipe may block forever, or consume data that another program waits for."""
    os.mkfifo(project.workspace / "pipe")
    (project.workspace / "socket-link").symlink_to("pipe")
    assert decide("default", project.assess(bash_exec, command=command)).decision == "ask"


@pytest.mark.promise("I1")
def test_a_recursive_search_through_files_with_secrets_is_asked_about(project) -> None:
    def decision(command: str) -> str:
        return decide("default", project.assess(bash_exec, command=command)).decision

    commands = ["grep -r top .", "grep -r top", "grep -rn -e top src", "grep -r top conf src", "grep -nr top conf"]
    (project.workspace / "conf" / "deep").mkdir(parents=True)
    assert [decision(command) for command in commands] == ["allow"] * 5
    for name in ("conf/deep/server.pem", ".ssh/config"):
        (project.workspace / name).parent.mkdir(exist_ok=True)
        (project.workspace / name).touch()
        decided = [decision(command) for command in commands]
        assert decided == (["ask"] * 5 if name.startswith("conf") else ["ask", "ask", "ask", "allow", "allow"])
        assert decision("grep -r top src") == "allow"
        (project.workspace / name).unlink()
    assert decision("cat conf") == "allow"


def test_every_command_is_asked_about_if_a_private_folder_lies_in_the_workspace(workspace, make_runner) -> None:
    runner = make_runner(workspace, protected_roots=(workspace / "agx-home",))
    assert decide("default", runner.assess(bash_exec, command="grep -r x .")).decision == "ask"


def test_a_program_that_is_not_in_the_systems_folders_is_asked_about(project, monkeypatch, tmp_path) -> None:
    os.symlink("/bin/sh", tmp_path / "ls")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin")
    assert decide("default", project.assess(bash_exec, command="ls")).decision == "ask"


WORDS = "ls cat grep echo rm git find notes.md src link .. / /etc/passwd .git - -r -la -f x é $(rm ${x}"
PIECES = [*WORDS.split(), *";&|><()$`'\"\\*?[]{},~!#=", *"     ", "\t", "\n", "\x00", "\u200b"]


def test_no_generated_command_with_an_active_character_is_allowed(project, rng: random.Random, count: Count) -> None:
    """An independent, cruder check: no active character outside quotes, and no path outside the workspace."""
    allowed = 0
    for _ in range(count(1_000, 20_000, 200_000)):
        command = rng.choice(("ls ", "cat ", "grep ", "echo ", "")) + "".join(rng.choices(PIECES, k=rng.randrange(8)))
        if is_plainly_harmless(command, project.workspace, "/usr/bin:/bin", ()):
            allowed += 1
            assert_harmless(command, project.workspace)
    assert allowed > 100  # the judge had something to judge


def assert_harmless(command: str, workspace: Path) -> None:
    quotes = r"""'[^']*'|"[^"$`\\]*\""""
    assert not set(re.sub(quotes, "", command)) & set(";&|<>()$`\\*?[]{}~!#='\""), command
    assert command.isascii(), command
    assert command.replace("\t", " ").isprintable(), command
    program, *words = shlex.split(command)
    assert program in {"ls", "cat", "grep", "echo"}, command
    if program != "echo":
        assert all(Path(os.path.realpath(workspace / word)).is_relative_to(workspace) for word in words), command
