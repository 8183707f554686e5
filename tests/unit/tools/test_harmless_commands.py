"""Tests that only commands proved simple, read-only and inside the workspace count as harmless."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import pytest

from agenticx.tools.builtin import bash_exec
from agenticx.tools.shell import grammar
from agenticx.tools.shell.grammar import parse_command
from agenticx.tools.shell.harmless_commands import ReadCheck
from agenticx.tools.shell.read_only_programs import read_arguments
from tests.support.lanes import Count
from tests.support.verdicts import decide

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
        "ls -1",
        "ls #x",
        "ls;",
        "ls\tx\n",
        "\nls",
        "# look first\nls",
        "ls && pwd; wc -l notes.md || echo none",
        "ls |\n  head -n 3 # the first",
        "grep -rn 'def main' src 2>/dev/null | head -20",
        "ls >/dev/null 2>&1",
        "cd src && ls -la && cat ../notes.md",
        "cat no*.md src/*.py",
        "ls --color=never",
        "head --bytes=5 notes.md",
        "cat -- notes.md",
        "grep -r hello --include=*.py src",
        "find . -name '*.py' -not -path './node_modules/*' | sort | uniq -c",
        "find src -maxdepth 2 -type d",
        "sed -n '1,5p' notes.md",
        "test -f notes.md && echo yes || echo no",
        "sort -rn notes.md | tr a-z A-Z | cut -d, -f1 | tail -n 1",
        "diff notes.md 'my notes'",
        "printf '%s\\n' a",
        "date +%F",
        "command -v python3",
        "type ls",
        "cat .git/config",
        "cat .github/workflows/ci.yml",
        "ls -lah src",
        "ls -ltr --time-style=long-iso",
        "grep -rn --include '*.py' hello src",
        "grep -nE 'hello|world' --max-count 3 notes.md",
        "egrep -n 'a|b' notes.md",
        "find . -type f -newermt 2024-01-01 -not -path './.git/*' -print -quit",
        "find . -maxdepth 1 -user root -xtype l",
        "head --lines 5 notes.md",
        "tail -n +20 notes.md",
        "cut --delimiter , --fields 1,3 notes.md",
        "sort -t, -k2,2nr notes.md | uniq -c | sort -rn | head -20",
        "tr -d '\\n'",
        "paste -sd, notes.md",
        "join -t , -1 1 -2 2 notes.md 'my notes'",
        "fmt -w 80 notes.md",
        "wc -l notes.md src/*.py",
        "stat -c %s notes.md",
        "file --brief --mime-type notes.md",
        "du -sh --max-depth 1 src",
        "realpath notes.md",
        "sha256sum notes.md",
        "cmp -s notes.md 'my notes'",
        "comm -12 notes.md 'my notes'",
        "xxd -l 64 -g 1 notes.md",
        "hexdump -C -n 64 notes.md",
        "strings -n 8 notes.md",
        "uptime; free -h; uname -a; nproc; arch; id -un; groups",
        "sleep 2 && tail -n 5 notes.md",
        ": nothing",
        "bash --version; make --version; grep --version",
        "tar --version; perl -v | head -n 3; find --version; ls --help 2>&1 | grep -i size; sed --help; bash --help",
        "jq . notes.md",
        "jq -r .name notes.md",
        "jq '.scripts | keys' notes.md",
        "jq '.items[] | select(.size <= 3)' notes.md",
        """jq -c '.items[] | select(.kind == "x") | [.id, .tags[0]]' notes.md""",
        "jq -r '.[].env' notes.md",
        "awk '{print $1}' notes.md",
        "awk -F, '{print $2, $NF}' notes.md",
        "awk -F : '{ print $1 }' notes.md",
        "awk 'NR>=5 && NR<=9' notes.md",
        "awk '/hello/ {print NR, $0}' notes.md",
        """awk '$3 == "x" {print $1 "-" $(NF-1)}' notes.md""",
        "awk '{s+=$1} END {print s}' notes.md",
        "awk '!seen[$0]++' notes.md",
        "cat notes.md~ no~*",
        "echo HEAD~1 main^~2",
        r'grep -rn "hello\|world" src',
        r'grep "hello\.x" notes.md | head',
        "ls > /dev/null 2> /dev/null; cat < /dev/null",
        "[ -f notes.md ] && cat notes.md",
        "[ -d src ] || echo none; [ a = b ]",
        "find . -newer notes.md -name '*.py'",
        "sed 1p notes.md",
        "sed -n '/hello/p' notes.md",
        "sed -n '/a/,/b/p;$=' notes.md",
        "sed -n '/^[A-Z][[:alpha:]]*$/p;s/[0-9]//g' notes.md",
        r"sed -E 's/(a|b)\/c/[\1]/g' notes.md",
        "sed 's|a/b|c|2' notes.md; sed '/^#/d' notes.md; sed '5q' notes.md; sed '$!d' notes.md",
        "sed -e 's/a/b/' -e '1,+2d' notes.md | sed -n 2p",
    ],
)
def test_a_plain_read_only_command_is_allowed(project, command) -> None:
    assessment = project.assess(bash_exec, command=command)
    assert decide("default", assessment).decision == "allow"
    assert assessment.reasons == ("It only looks at files of the workspace.",)


ASKED = r"""
# more than one command
ls &&
; ls
ls;; ls
ls &&& ls
ls | xargs cat
ls | tee x
cat notes.md | sh
pwd && git push
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
ls &
# redirections
>/dev/null
ls >/dev/nullx
ls 1>/dev/null
ls2>&1
ls 3>&1
ls 2>&1x
ls </dev/zero
ls > /dev/null/x
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
cat ''~/x
cat x=~/x
echo x:~
echo a=b:~/x
cat *
cat -*
cat */notes.md
cat s*/../../outside/secret
cat lin*
cat lin*/secret
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
cd
cd - && ls
cd src; cat notes.md
cd src || cat notes.md
cd link && ls
cd .. && ls
cd nowhere && ls
cd notes.md && ls
ls && cd src && ls
cd src && cat ../../outside/secret
cd src | cat
cd src extra && ls
alias x
trap x
[ x ]
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
find . -exec rm {} +
find . -delete
sed -i x notes.md
awk 1 notes.md
sort -o x notes.md
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
rg --pre x y
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
ls --rec
ls --color
sort --compress-prog ./x notes.md
sort --output=x notes.md
sort -ox notes.md
sort -T x notes.md
sort --files0-from=x
uniq notes.md new.txt
find . -fprintf out.txt %p
find . -name
find -L .
find . -newer ../outside/secret
find ../outside
find -files0-from x
sed -n '/a/w new.txt' notes.md
sed -n 1e notes.md
sed -n 1p -i notes.md
head -5c 7
tail -5f notes.md
test -v 'a[$(x)]'
test -R x
test a -a b
printf -v PATH x
printf '%n' PATH
printf '%5n' PATH
date -s 12:00
date 010203042030
date -f notes.md
command ls
command -p ls
type -a
diff src src
diff notes.md ../outside/secret
cmp notes.md /etc/passwd
rg --pre=./x y
rg --pre ./x y
rg -z x
rg -f x y
tree -o x
strings @x
hostname x
file -m x notes.md
file -f notes.md
file -C
wc --files0-from=x
cat --help x
tail -f notes.md
grep --file=/etc/passwd x
ls -
md5sum -c notes.md
du -L src
grep -d recurse x
grep '-f' x
grep "-R" x
du --files0-from=x
tail --follow x
grep -nf x y
# look-alikes of the programs above
jq env notes.md
jq '$ENV' notes.md
jq '$ENV.HOME' notes.md
jq '.|env' notes.md
jq '[env]' notes.md
jq '. env' notes.md
jq '"\(env)"' notes.md
jq -n 'input' notes.md
jq 'include "x"; .' notes.md
jq 'import "x" as x; .' notes.md
jq -f x notes.md
jq --from-file x notes.md
jq -L . . notes.md
jq --slurpfile x /etc/passwd . notes.md
jq --rawfile x /etc/passwd . notes.md
jq --args . x
jq -rf x notes.md
jq 'input_filename, @text, $__prog_args' notes.md
jq 'debug' notes.md
jq 'limit(1; repeat(1))' notes.md
jq '..env' notes.md
jq . /etc/passwd
jq
awk '{system("x")}' notes.md
awk '{print > "x"}' notes.md
awk '{print $1 > "x"}' notes.md
awk '{print $1 >> "x"}' notes.md
awk '{print | "sh"}' notes.md
awk '{print $1 | "sh"}' notes.md
awk '{"x" | getline}' notes.md
awk '{getline < "x"}' notes.md
awk 'BEGIN {system("x")}' notes.md
awk '{print ENVIRON["HOME"]}' notes.md
awk '{print $1; system("x")}' notes.md
awk '{print $1} END {system("x")}' notes.md
awk '{print $system("x")}' notes.md
awk '/a/ system("x") /b/' notes.md
awk '/a[/]system("x") {print}' notes.md
awk 'NR>1 > "x"' notes.md
awk '$1 > "x" {print} {print > "y"}' notes.md
awk '@load "x"; {print}' notes.md
awk '@include "x"' notes.md
awk -f x notes.md
awk -i x '{print}' notes.md
awk -v x=1 '{print}' notes.md
awk -F, -f x notes.md
awk -F -f x notes.md
awk '{print}' -f x
awk '{print}' x=1 notes.md
awk '{print}' /etc/passwd
awk --file=x notes.md
awk -F
gawk -e '{print}' notes.md
gawk -o '{print}' notes.md
gawk -p '{print}' notes.md
gawk '{print $1 |& "/inet/tcp/0/x/80"}' notes.md
nawk '{print}' notes.md
sed -n '1,5w x' notes.md
sed -n '1e x' notes.md
sed '1p;e' notes.md
sed 's/a/b/;w x' notes.md
sed 's/a/b/gw x' notes.md
sed 's/a/b/ e' notes.md
sed 's/a/b/me' notes.md
sed 's/a/b\x2fe' notes.md
sed 's/a/b' notes.md
sed 's/[/]/b/e' notes.md
sed '/[/]e/p' notes.md
sed '/a/e' notes.md
sed '/a/w x' notes.md
sed '/a/r /etc/passwd' notes.md
sed '/a/R x' notes.md
sed '1{e}' notes.md
sed 'y/a/b/e' notes.md
sed 's,a,b,e' notes.md
sed -e 1p -e 'w x' notes.md
sed -e 1p -f x notes.md
sed -ne 1p notes.md -i
sed -n '/a/p' /etc/passwd
sed -s 1p notes.md
sed '#n' notes.md
[ -f notes.md
[ -f notes.md ]x
[ -f ../outside/secret ]
[ -v x ]
[[ -f notes.md ]]
ls > /dev/nullx
ls > ../x
ls 2> /etc/x
cat < notes.md
cat "a\"; rm x #"
cat "no\"*
cat "a\$HOME"
cat "a\`rm x`"
sed -n '1r /etc/passwd' notes.md
sed 's/a/b/e' notes.md
sed 's/a/b/w x' notes.md
sed -i 's/a/b/' notes.md
sed --in-place 1p notes.md
sed -n -i 1p notes.md
sed -n -f x notes.md
sed -n 1p --in-place notes.md
xxd -r notes.md x
xxd -r notes.md
xxd notes.md x
xxd -bl 5 x
xxd -ps 5 x
xxd -p notes.md x
xxd -o 5 notes.md x
tree -Io x y
tree -Po x y
tree -L2 src
tree -R -L 1
tree -aI
tree --fromfile notes.md
tree -l
hexdump -f x notes.md
hexdump /dev/zero
strings @notes.md
strings -n 5 @notes.md
strings --target=x notes.md
sleep infinity
sleep 100
sleep 1 2
sleep 1d
sleep -1
join notes.md /etc/passwd
paste notes.md /etc/passwd
fmt /etc/passwd
shuf -o x notes.md
shuf notes.md --output=x
split notes.md
csplit notes.md 5
dd if=notes.md
install notes.md x
ln -s a b
mkdir x
rmdir x
truncate -s 0 notes.md
chmod 777 notes.md
patch -p1
env
printenv
set
export
declare -p
history
ps aux
less notes.md
zcat notes.md
tar tf a.tar
unzip -l a.zip
ldd notes.md
man -P ./x ls
ag x
ack x
watch ls
script x
time -p ls
setsid ls
parallel ls
fd -x ls
fdfind . -X ls
bat notes.md
ssh x
npm --version
npm ls
cargo --version
go version
pip --version
npm --help
pip3 --help
docker --help
docker --version x
docker -v /:/x
tar --version -cf x .
tar --version=x
tar --help --checkpoint
perl -v x
perl --version -e 1
curl --version -o x
curl --help all
ls --help x
./tar --version
src/ls --help
bin/curl --version
python --version x
python3 -V -c 1
python3 -c 1 --version
node -v x
node -p 1
bash --version -c ls
bash -c ls --version
make -v
make --version x
make -n
make --dry-run
find . -fls x
find . -ok ls
find . -okdir ls
find . -execdir ls
find . -follow
find . -newer
find . -cnewer /etc/passwd
find . -newerma /etc/passwd
find . -samefile /etc/passwd
find . -fprint0 x
find -L . -name x
find -H . -name x
find -D exec .
grep --include
grep --include -f x notes.md
grep --regexp -f /etc/passwd
grep -nr --file x hello
grep --exclude-from x hello
egrep -f x notes.md
head --lines
tail --pid 1 notes.md
tail -F notes.md
sort --key -o notes.md
sort --key 1 -o x notes.md
sort --random-source x notes.md
cut --fields
du --exclude-from x
uptime --container
free -s 1
arch x
b2sum -c notes.md
sum /etc/passwd
# protected, hidden, odd
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
        in_conf = "ask" if name.startswith("conf") else "allow"
        assert decided == ["ask", "ask", "allow", in_conf, in_conf]
        assert decision("grep -r top src") == "allow"
        (project.workspace / name).unlink()
    assert decision("cat conf") == "allow"


@pytest.mark.promise("I1")
def test_what_would_read_a_file_with_secrets_is_asked_about_in_every_mode_however_it_is_written(project) -> None:
    (project.workspace / "sub").mkdir()
    commands = [
        "A=1 grep -r KEY .",
        "time grep -r KEY .",
        "! grep -r KEY .",
        "( grep -r KEY . )",
        "/bin/grep -r KEY .",
        "grep -r KEY $PWD",
        "grep -r KEY . > found.txt",
        "cd sub; grep -r KEY ..",
        "x=$(grep -r KEY .) && echo $x",
    ]

    def decided() -> set[str]:
        return {decide("auto", project.assess(bash_exec, command=command)).decision for command in commands}

    assert decided() == {"allow"}
    (project.workspace / ".env").write_text("KEY=1")
    assert decided() == {"ask"}


@pytest.mark.promise("I1")
def test_a_recursive_search_through_a_private_folder_is_asked_about_in_every_mode(workspace, make_runner) -> None:
    (workspace / "home").mkdir()
    (workspace / "src").mkdir(exist_ok=True)
    runner = make_runner(workspace, protected_roots=(workspace / "home",))
    assert decide("auto", runner.assess(bash_exec, command="grep -r x .")).decision == "ask"
    assert decide("auto", runner.assess(bash_exec, command="grep -r x src")).decision == "allow"
    (workspace / "src" / ".env").touch()
    assert decide("auto", runner.assess(bash_exec, command="grep -r x src")).decision == "ask"


def test_every_command_is_asked_about_if_a_private_folder_lies_in_the_workspace(workspace, make_runner) -> None:
    runner = make_runner(workspace, protected_roots=(workspace / "agx-home",))
    assert decide("default", runner.assess(bash_exec, command="grep -r x .")).decision == "ask"


def test_a_program_that_is_not_in_the_systems_folders_is_asked_about(project, monkeypatch, tmp_path) -> None:
    os.symlink("/bin/sh", tmp_path / "ls")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin")
    assert decide("default", project.assess(bash_exec, command="ls")).decision == "ask"


_AUTHOR = ["-c", "user.name=A", "-c", "user.email=a@b.example"]
WORDS = "ls cat grep echo rm git find sort head test cd notes.md src link .. / /etc/passwd .git - -r -la -f x é if time"
OPERATORS = "2>&1 >/dev/null 2>/dev/null </dev/null $(rm ${x} && || *.md no* --include=*"
CHARACTERS = [*";&|><()$`'\"\\*?[]{},~!#=^%@+:12", *"       ", *"\t\n\r\v\x00\u200b\xa0"]
QUOTED = ['"$(rm x)"', '"`rm x`"', '"${x}"', "'$(rm x)'", "'`rm`'", '"a b"', " #'x\nrm x\n", "\ntime rm x\n"]
BACKSLASHES = [r'"a\|b"', r'"\.', r"\"", r'"\\"', r'"\$(rm x)"', r'"\a"*', '"\\\n"']
SPACED = ["> /dev/null", "2> ", "< ", "[ ", " ]", "["]
PIECES = [*WORDS.split(), *OPERATORS.split(), *CHARACTERS, *QUOTED, *BACKSLASHES, *SPACED]
TEXTS = [
    '"é\n',
    "'ü\n",
    '\n"',
    "\n'",
    "'",
    '"',
    "\\",
    "\\\n",
    "\n",
    "é",
    "$",
    "`",
    " ",
    "$(rm x)",
    "`rm x`",
    "; rm x #",
]
DOCUMENTS = ["<<'E'\n", '<<"E"\n', "<<E\n", "<< 'E' ", "<<\\E\n", "\nE\n", "\nE ", "\nE", "E\n", "rm x\n"]
_CALLED = r"""
set -f
called() {  # without newlines, printf writes all at once, also beside the other commands of a pipeline
    builtin printf '%s\0' "$#" "${@//$'\n'/$'\1'}" >&3
    builtin return "$outcome"
}
for name in $names; do builtin eval "$name() { called $name \"\$@\"; }"; done
command_not_found_handle() { called "$@"; }
evaluate() { ( builtin eval "$1" ); }
unset names name
for text; do
    for outcome in 0 1; do evaluate "$text"; done
    builtin printf '0\0' >&3
done
"""
_BATCH = 250  # commands for one process of bash


def called(commands: Sequence[str], folder: Path, locale: str = "C") -> Iterator[set[tuple[str, ...]]]:
    """Yield the commands that bash runs of each command line, in a subshell: once all succeed, and once all fail."""
    names = "ls cat grep echo rm git find sort head test cd pwd true false printf type command wc tail"
    with tempfile.TemporaryFile() as record:
        script = f"exec 3<&{record.fileno()}\nnames='{names}'\n{_CALLED}"
        subprocess.run(
            ["/bin/bash", "-c", script, "bash", *commands],
            cwd=folder,
            env={"PATH": "/nowhere", "LC_ALL": locale},
            pass_fds=[record.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=60,
            check=False,
        )
        record.seek(0)
        texts = iter(record.read().decode().replace("\1", "\n").split("\0")[:-1])
    run = set[tuple[str, ...]]()
    for count in texts:
        if count == "0":
            yield run
            run = set[tuple[str, ...]]()
        else:
            run.add(tuple(islice(texts, int(count))))


def random_command(rng: random.Random, pieces: Sequence[str] = PIECES) -> str:
    first = rng.choice(("ls ", "cat ", "grep -r x ", "echo ", "find . ", "cd src && ls ", ""))
    return first + "".join(rng.choices(pieces, k=rng.randrange(12)))


def read_wrongly(folder: Path, rng: random.Random, count: int, *, any_text: bool = False) -> Iterator[str]:
    """Yield the commands of `count` generated ones of the grammar of which bash runs others than the grammar says."""
    folder.mkdir()
    pieces = [*PIECES, *4 * TEXTS, *4 * DOCUMENTS] if any_text else PIECES
    generated = (random_command(rng, pieces) for _ in iter(int, 1))
    if any_text:  # those that only this grammar has
        generated = (command for command in generated if parse_command(command) is None)
    read = ((command, parts) for command in generated if (parts := parse_command(command, any_text=any_text)))
    for first in range(0, count, _BATCH):
        batch = list(islice(read, min(_BATCH, count - first)))
        run = called([command for command, _ in batch], folder, rng.choice(("C", "C.UTF-8")))
        for (command, parts), commands in zip(batch, run, strict=True):
            if not commands <= {tuple(word.text for word in part.words) for part in parts}:
                yield command
        yield from (f"one of {batch} writes {path.name}" for path in folder.iterdir())


def test_bash_runs_nothing_but_what_the_grammar_reads(tmp_path: Path, rng: random.Random, count: Count) -> None:
    """bash is the oracle: a command of the grammar runs nothing but what the grammar says, and writes no file."""
    assert list(read_wrongly(tmp_path / "empty", rng, count(250, 20_000, 200_000))) == []


def test_bash_runs_nothing_but_what_the_grammar_of_any_text_reads(
    tmp_path: Path, rng: random.Random, count: Count
) -> None:
    assert list(read_wrongly(tmp_path / "empty", rng, count(100, 20_000, 200_000), any_text=True)) == []


@pytest.mark.ci_lane
@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("_TOKEN", r"?[\t !#%", r"?[\t !#$%"),
        ("_TOKEN", r"(?:\\?[\t", r"(?:\\[\"$`]|\\?[\t"),
        ("_TOKEN", r"\]-_a-~]", r"\]-~]"),
        ("_TOKEN", "[A-Za-z0-9_.", "[A-Za-z0-9_.$({})"),
        ("_TOKEN", "[A-Za-z0-9_.", "[A-Za-z0-9_.!"),
        ("_TOKEN", "[A-Za-z0-9_.", "[A-Za-z0-9_.\\[\\]\\\\"),
        ("_TOKEN", r"[ \t]+", r"[ \t\n]+"),
        ("_TOKEN", r"2?>[ \t]*/dev/null", "2?>[a-z/ ]*"),
        ("_TOKEN", r"#[\t -~]*", r"#[\t\n -~]*"),
        ("_TOKEN", r"|;|\|", r"|;|\||&"),
        ("_NO_PROGRAM", r"(?:case", r"(?!if|time)(?:case"),
        ("_TOKEN_OF_ANY_TEXT", r"]-_a-~]|\n|[^\x00-\x7f]", r"]-_a-~]|\\\n|\n|[^\x00-\x7f]"),
        ("_TOKEN_OF_ANY_TEXT", r"]-_a-~]|\n|[^\x00-\x7f]", r"]-_a-~]|\n|[$(`]|[^\x00-\x7f]"),
        ("_TOKEN_OF_ANY_TEXT", r"(?P=quote)[ \t]*\n", r"(?P=quote)[^\n]*\n"),
        ("_TOKEN_OF_ANY_TEXT", r"(?P<quote>['\"])", r"(?P<quote>['\"]?)"),
        ("_TOKEN_OF_ANY_TEXT", r"(?P=end)(?=\n|\Z)", r"(?P=end)(?=\n| |\Z)"),
        ("_TOKEN_OF_ANY_TEXT", r"(?:[^\n]*\n)*?", r"(?:[^\n]*\n)*"),
    ],
)
def test_bash_detects_a_broken_grammar(tmp_path: Path, rng: random.Random, monkeypatch, name, right, wrong) -> None:
    pattern = getattr(grammar, name).pattern
    assert right in pattern
    monkeypatch.setattr(grammar, name, re.compile(pattern.replace(right, wrong)))
    any_text = name == "_TOKEN_OF_ANY_TEXT"
    assert next(read_wrongly(tmp_path / "empty", rng, 10_000, any_text=any_text), None) is not None


SED_PIECES = [*"/|#,@\\[]{};!~+$1 abewrpdq=syngIM", r"\/", r"\\", r"\n", r"\x2f", "[a]", "s/a/b/", "/a/", "s|a|b|"]


def test_no_script_of_sed_that_is_read_runs_or_writes_anything(rng: random.Random, count: Count) -> None:
    """`sed --sandbox` refuses the commands and flags that run a program, read or write a file."""
    if "--sandbox" not in subprocess.run(["sed", "--help"], capture_output=True, text=True, check=False).stdout:
        pytest.skip("this sed has no --sandbox")
    read, wanted = 0, count(40, 400, 8_000)
    while read < wanted:
        script = rng.choice(("", "s/", "/a/", "s|", "1")) + "".join(rng.choices(SED_PIECES, k=rng.randrange(9)))
        if read_arguments(["sed", script, "/dev/null"]) is None:
            continue
        read += 1
        words = ["sed", "--sandbox", "--", script, "/dev/null"]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
        assert "sandbox" not in done.stderr, script


def test_no_generated_command_reads_outside_of_the_workspace(project, rng: random.Random, count: Count) -> None:
    """An independent, cruder check of the words."""
    allowed = 0
    for _ in range(count(1_000, 20_000, 200_000)):
        command = random_command(rng)
        read = ReadCheck(project.workspace.resolve(), "/usr/bin:/bin").read_parts(command)
        if read is None or not all(part.is_harmless for part in read):
            continue
        allowed += 1
        parts = [[word.text for word in part.words] for part in parse_command(command) or ()]
        folder = project.workspace / (parts[0][1] if parts[0][0] == "cd" else "")
        for program, *words in parts:
            assert program in {":", "cd", "ls", "cat", "grep", "echo", "find", "sort", "head", "test"}, command
            paths = [word for word in words if word[:1] != "-"] if program in {"ls", "cat", "sort"} else []
            assert all(Path(os.path.realpath(folder / path)).is_relative_to(project.workspace) for path in paths), (
                command
            )
    assert allowed > 50  # the judge had something to judge


def test_the_commands_of_the_corpus_run_silently_or_ask_as_people_expect(project) -> None:
    """They are meant for a clean repository, in which the files that they name exist."""
    for words in (["init", "--quiet"], ["add", "notes.md"], [*_AUTHOR, "commit", "--quiet", "--message", "first"]):
        subprocess.run(["/usr/bin/git", *words], cwd=project.workspace, check=True, timeout=60)
    given = os.environ.get("AGX_COMMAND_CORPUS")
    corpus = Path(given or Path(__file__).parents[3] / "../shared/data/permissions", "commands.jsonl")
    if not corpus.is_file():
        pytest.skip("no commands with what people expect: set AGX_COMMAND_CORPUS to the folder that has commands.jsonl")
    wrong = list[str]()
    for line in map(json.loads, corpus.read_text("utf-8").split("\n")[:-1]):
        command: str = line["command"]
        expected = "allow" if line["expected"] == "allow" else "ask"
        if decide("default", project.assess(bash_exec, command=command)).decision != expected:
            wrong.append(command)
    assert wrong == []
