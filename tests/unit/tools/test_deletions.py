"""Deletions of the home folder, the workspace or `/` are asked about in mode auto; others are not."""

from __future__ import annotations

import random
import subprocess
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from agenticx import AgentRuntime, Session
from agenticx.sandbox import SandboxOptions
from agenticx.testing import ScriptedGate, ScriptedModel, call, collect
from agenticx.tools import tool
from agenticx.tools.builtin import bash_exec
from agenticx.tools.critical_folders import find_deleted_critical_folder
from agenticx.tools.shell.deletions import find_critical_deletion
from agenticx.tools.shell.file_system_cache import FileSystemCache, UncheckableError
from tests.support.verdicts import decide

pytestmark = [pytest.mark.anyio, pytest.mark.promise("H3")]

WHOLE = r"""
rm -rf ~
rm -r -f ~
rm ~ -rf
rm -fR ~/
rm -rf ~//
rm -r ~/.
rm --recursive --force ~
rm -rf -- ~
rm -rfv ~ | tee log
rm -rf $HOME
rm -rf "$HOME"/
rm -rf "${HOME}"
rm -rf ${HOME:?}/*
rm -rf ~/*
rm -rf ~/.*
rm -rf ~/{*,.*}
rm -rf {~,build}
rm -rf build ~
rm -rf ./
rm -rf .
rm -rf *
rm -rf ./*
rm -rf .[!.]* *
rm -rf ..
rm -rf ../..
rm -rf build/..
rm -rf /*
rm -rf /
rm -rf //
rm -rf --no-preserve-root /
\rm -rf ~
'rm' -rf ~
/bin/rm -rf ~
rm -rf \⏎ ~
echo hi⏎rm -rf ~
cd ~ && rm -rf *
cd && rm -rf .
cd / ; rm -rf *
cd sub && rm -rf ..
cd sub; cd ..; rm -rf *
pushd ~ >/dev/null; rm -rf *
(cd ~; rm -rf .)
(cd build && make); rm -rf *
cd missing; rm -rf *
find ~ -delete
find . -delete
find -delete
find / -delete
find . -mindepth 1 -delete
find . -type f -delete
find . ! -name keep -delete
find . -not -name '*.py' -delete
find . -name '*' -delete
find . -exec rm -rf {} +
find ~ -maxdepth 1 -exec rm -rf {} \;
find . -path ./keep -prune -o -delete
find . -print0 | xargs -0 rm -rf
find ~ -type f | xargs rm
ls | xargs rm -rf
ls -A ~ | xargs -I{} rm -rf ~/{}
ls | grep -v keep | xargs rm -rf
echo ~ | xargs rm -rf
sudo rm -rf ~
sudo -n rm -rf /
sudo -u bob rm -rf ~
env FOO=1 rm -rf ~
env -C ~ rm -rf *
nohup rm -rf ~ &
nice -n 10 rm -rf ~
timeout 5 rm -rf ~
command rm -rf ~
busybox rm -rf ~
npx rimraf .
bash -c "rm -rf ~"
bash -c 'rm -rf "$HOME"'
sh -c "cd ~ && rm -rf *"
sudo bash -c 'rm -rf /*'
su root -c "rm -rf /"
sh -c 'rm -rf "$1"' _ ~
eval "rm -rf ~"
bash <<EOF⏎rm -rf ~⏎EOF
echo "rm -rf ~" | bash
if true; then rm -rf ~; fi
{ rm -rf ~; }
for f in *; do rm -rf "$f"; done
for d in ~ /tmp/x; do rm -rf $d; done
for f in $(ls); do rm -rf $f; done
clean() { rm -rf "$1"; }; clean ~
D=~; rm -rf $D
D="$HOME"; rm -rf "${D}/"*
export D=$HOME && rm -rf "$D"
rm -rf "$UNSET"/*
rm -rf ${UNSET:-~}
rm -rf $(pwd)
rm -rf "$(pwd)"/*
rm -rf `pwd`
rm -rf $PWD
rm -rf "$(git rev-parse --show-toplevel)"
rm -rf $(cat list) ~
rm -rf "<workspace>"
rm -rf '<workspace>/'
rm -rf <home>
rm -rf "$HOME/my work"
rm -rf <link>/
rm -rf "<link>"/*
rm -rf to-home/*
rsync -a --delete empty/ ~/
cd "$HOME" || exit; rm -rf ./*
cd "$(git rev-parse --show-toplevel)" && rm -rf *
cd .. && rm -rf my*
rm -rf "../my work"
rm -rf $(echo ~)
rm -rf "$(realpath .)"
rm -rf "$(dirname "$PWD")"
RM="rm -rf"; $RM ~
set -- ~; rm -rf "$@"
bash -c $'rm -rf ~'
xargs rm -rf <<< ~
printf '%s\0' * | xargs -0 rm -rf
cat <<EOF | sh⏎rm -rf ~⏎EOF
find . \( -type f -o -type d \) -delete
find . -mindepth 1 -maxdepth 1 -not -name .git -exec rm -rf {} +
find ~ -type f -exec shred -u {} +
python3 -c "import shutil; shutil.rmtree('/')"
python3 -c 'import os, shutil; shutil.rmtree(os.path.expanduser("~"))'
python3 -c "shutil.rmtree(Path.home())"
node -e "fs.rmSync('.', {recursive: true})"
rm -rf -- "${HOME:-/nonexist}"
rm -rf "${HOME:?}"
rm -rf "${HOME:?not set}"
rm -rf "${HOME:0}"
rm -rf "${HOME%/}"
rm -rf "${HOME%%/}"
v=HOME; rm -rf "${!v}"
declare -n r=HOME; rm -rf "$r"
D=~; D+=/; rm -rf "$D"
rm -rf "${DIR:-.}"
rm -rf "${1:-.}"
d=$(cd ~; pwd); rm -rf "$d"
rm -rf $(cd .. && pwd)
rm -rf "$(echo ~)"
rm -rf "$(realpath ~)"
rm -rf "$(dirname ~/x)"
rm -rf $(cat list)
rm -rf "$(cat list)"/cache
rm -rf "$(ls build; echo ~)"
printenv HOME | xargs rm -rf
xargs rm -rf < list
cat list | xargs rm -rf
a=(~); rm -rf "${a[@]}"
read d <<< ~; rm -rf "$d"
printf -v d %s ~; rm -rf "$d"
while read d; do rm -rf $d; done <<< ~
while IFS= read -r f; do rm -rf "$f"; done < list
cd /tmp; rm -rf "$OLDPWD"
cd /tmp && rm -rf ~-
rm -rf `ls`
ls | while read f; do rm -rf "$f"; done
rm -rf /proc/$$/cwd/*
rm -rf /proc/self/cwd
rm -rf /proc/self/cwd/../*
>/dev/null rm -rf ~
&>/dev/null rm -rf ~
2>&1 rm -rf ~
2> log rm -rf ~
function g { rm -rf ~; }; g
coproc rm -rf ~
setpriv --no-new-privs rm -rf ~
unshare -r rm -rf ~
script -qc "rm -rf ~" /dev/null
$BASH -c "rm -rf ~"
. /dev/stdin <<< "rm -rf ~"
. ./env.sh; rm -rf "$FOLDER"
bash <(echo "rm -rf ~")
R=r; ${R}m -rf ~
rm -{r,f} ~
O=-rf; rm $O ~
ln -s /bin/rm zap; ./zap -rf ~
alias x='rm -rf'; x ~
echo "rm -rf ~" > x.sh; . ./x.sh
awk 'BEGIN{system("rm -rf ~")}'
python3 -c 'import os;os.system("rm -rf ~")'
python3 -c 'import subprocess;subprocess.run(["rm","-rf","/"])'
python3 -c 'import shutil,sys;shutil.rmtree(sys.argv[1])' build
python3 <<'EOF'⏎import shutil⏎shutil.rmtree(folder)⏎EOF
rm -rf [a-z]*
mv ~ /tmp/x
mv * ../other
trash ~
gio trash .
git rm -rf .
fd . -X rm -rf
fd build -x rm -rf {}
git ls-files | xargs rm
git ls-files -z | xargs -0 rm -f
tar -czf /tmp/a.tgz --remove-files .
find . -mtime +0 -delete
find . -user root -delete
find . -perm -u+w -delete
find . -path './*' -delete
find . -regex '.*' -delete
find . -name '[!x]*' -delete
find . ! \( -name a -o -name b \) -delete
find . -name x -exec rm -rf ~ \;
find "$(cat list)" -delete
$'\x72m' -rf ~
$(which rm) -rf ~
rm `echo -rf` ~
rm "${o:--rf}" ~
rm -rf "$(ls)"/..
rm -rf !(keep)
: "${D:=$HOME}"; rm -rf "$D"
D='*'; rm -rf $D
r{m,x} -rf ~
/bin/r? -rf ~
ln -s "$(command -v rm)" zap; ./zap -rf "$HOME"
python3 -c 'import os; os.system("rm -rf " + os.path.expanduser("~"))'
python3 -c 'import os; h = os.environ["HOME"]; os.system(f"rm -rf {h}")'
python3 -c 'import os;os.execvp("rm",["rm","-rf",os.environ["HOME"]])'
rm -rf "${*:-.}"
pushd /tmp; rm -rf ~1
ls | xargs -I{} mv {} /tmp
find . -name '*' -o -name x | xargs rm -rf
git rm -rf :/
gio remove -f ~
D=$HOME/x; rm -rf "${D%/*}"
cmd="rm -rf ~"; $cmd
f() { local d="${1:-$HOME}"; rm -rf "$d"; }; f
echo "rm -rf ~" | at now
cat > Makefile <<'EOF' && make⏎all:⏎	rm -rf ~⏎EOF
ls | sed 's/^/.\//' | xargs rm -rf
rg --files | xargs rm
git rm -rf '*'
rsync -r --remove-source-files ~/ /tmp/x
zip -rm x.zip .
python3 -c "import subprocess; subprocess.run('rm -rf ~', shell=True)"
python3 -c "from shutil import rmtree as r; r('.')"
ruby -e 'FileUtils.rm_rf "."'
node -e 'require("fs").rm(".", {recursive: true}, () => {})'
"""

ORDINARY = r"""
rm -rf build
rm -rf ./node_modules
rm -rf build/* dist
rm -rf */node_modules
rm -rf **/__pycache__
rm -rf *.egg-info
rm -f *.pyc
rm -rf "$UNSET"
rm -rf ~/.cache/pip
rm -rf "$HOME/.cache/pip"
rm -rf ../other
rm -rf "*"
rm -rf '~'
cd build && rm -rf *
mkdir -p out && cd out && rm -rf *
(cd build && rm -rf ./*)
ls ~ && rm -rf build
cd ~ && ls
find . -name '*.pyc' -delete
find . -type d -empty -delete
find . -type d -name __pycache__ -exec rm -rf {} +
find . -name node_modules -prune -exec rm -rf {} +
find . -name "*.pyc" | xargs rm -f
find build -delete
find . -type f | head
ls build/*.o | xargs rm -f
git clean -fdx
git ls-files -d | xargs git rm
git commit -m "Stop rm -rf ~ from running"
grep -rn "rm -rf /" .
echo "rm -rf ~"
cat > notes.txt <<EOF⏎rm -rf ~⏎EOF
docker run --rm -v ~:/x alpine ls
docker rm -f $(docker ps -aq)
T="$(mktemp -d)"; trap 'rm -rf "$T"' EXIT; rm -rf "$T"/*
T=`mktemp -d` && rm -rf $T/*
B=build; rm -rf $B/*
B=${BUILD:-build}; rm -rf "$B"/*
rm -rf "${BUILD_DIR:?}"/*
for d in a b; do rm -rf $d; done
rm -rf $(find . -name x)
bash -c "rm -rf build"
sudo rm -rf /var/lib/apt/lists/*
rsync -a --delete src/ dst/
npm rm foo && rm -rf node_modules
find . \( -name '*.pyc' -o -name '*.pyo' \) -delete
python3 -c "import shutil; shutil.rmtree('build')"
rm -rf "$(dirname build/x)"
cd .. && rm -rf other*
unlink old-link
git rm -r --cached .
ls build | xargs -I{} rm -rf build/{}
find . -name '*.egg-info' | while read -r d; do rm -rf "$d"; done
for n in $(seq 3); do rm -rf build/run$n; done
rm -rf "${BUILD:-build}"/* "${OUT:?not set}"
O="$(mktemp -d -t x.XXXX)" && cd "$O" && rm -rf ./*
for f in *.log; do rm "$f"; done
rm "$(cat name)"
>/dev/null rm -rf build
function clean { rm -rf build dist; }; clean
ssh host 'cd /srv/app && rm -rf cache'
docker run --rm alpine rm -rf /tmp/x
mv build dist
mv * sub/
tar czf a.tgz --remove-files build
gio trash build
echo "shutil.rmtree(path)"
git log --grep "rm -rf ~"
find . -path './build/*' -delete
rmdir -p build/a
cat list | xargs rm -f
rm -rf "/tmp/x-$$"
OUT=out/$(date +%s); rm -rf "$OUT"
pytest tests/test_rmtree.py && ls ~
cat > clean.sh <<'EOF'⏎#!/bin/bash⏎rm -rf ~/x *⏎EOF
rm -rf venv; python3 -m venv venv; . venv/bin/activate; pip install -e .
D=$(mktemp -d); git clone x "$D"; cd "$D"; ls; rm -rf "$D"
"""

PROTECTED = r"""
rm -rf .github
rm -r "$PWD"/.github/
rm -rf ./.githu?
cd .github && rm -rf ../.github
mv .github x
mv "my app" other
mv s* build/
git rm -r .github
git mv .github x
sudo rm -rf sub
bash -c "rm -rf sub"
find sub -delete
find . -name '*.yml' -delete
find . -type f -iname '*.YML' -exec rm {} +
find sub .github -name "ci.*" -delete
find .github -type f -exec rm {} +
ls -d .github | xargs rm -rf
tar czf a.tgz --remove-files sub
rsync -a --delete build/ sub/
D=sub; rm -rf "$D"
python3 -c "import shutil; shutil.rmtree('.github')"
rm -rf ../../other
mv -t build .github
trash sub
mv workflows .github
cp -r ci/workflows .github/
cp -r ci/. .github
rsync -a ci/ .github/
ln -s "$PWD"/ci/workflows .github
mkdir -p new/workflows && mv new .github
"""

UNPROTECTED = r"""
rm -rf build
rm -rf build/* dist
rm -rf node_modules
rm -rf sub/build
rm -rf sub/*
rm -f sub/a.txt
mv build dist
mv a.txt sub/
rmdir sub
find sub -name '*.pyc' -delete
find . -name '*.yml'
find . -name __pycache__ -exec rm -rf {} +
git commit -m "clean rm .github"
ls .github
git rm -r --cached .github
cp -r .github /tmp/x
echo "rm -rf .github"
cp sub/a.txt .github/
cp -r build .config
git add .github
cp .github/workflows.md build
grep -n "mv .github" notes.md
"""


class Spec(BaseModel):
    path: str


def commands(text: str) -> list[str]:
    """Return the commands of the lines, in which ⏎ stands for a newline."""
    return [line.replace("⏎", "\n") for line in text.strip().splitlines()]


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    workspace = home / "my work"
    for folder in ("build", "sub", "node_modules", "../../other"):
        (workspace / folder).mkdir(parents=True)
    (tmp_path / "link").symlink_to(workspace)
    (workspace / "to-home").symlink_to(home)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("UNSET", raising=False)
    return workspace


@pytest.mark.parametrize("command", commands(WHOLE))
def test_a_command_that_deletes_a_whole_folder_is_asked_about_in_mode_auto(runner, command) -> None:
    places = {"<workspace>": runner.workspace, "<home>": runner.workspace.parent, "<link>": Path("../../link")}
    for name, path in places.items():
        command = command.replace(name, str(path))
    assessment = runner.assess(bash_exec, command=command)
    assert decide("auto", assessment).decision == "ask"
    assert sum("It deletes " in reason for reason in assessment.reasons) == 1


@pytest.mark.parametrize("command", commands(ORDINARY))
def test_an_ordinary_deletion_is_not_asked_about_in_mode_auto(runner, command) -> None:
    assert decide("auto", runner.assess(bash_exec, command=command)).decision == "allow"


RUINS_HOME_OR_DISK = r"""
chmod -R 000 ~
chmod 000 "$HOME"/*
cd ~ && chmod -R a-r .
sudo chown -R nobody ~/
find ~ -type f -exec chmod 600 {} +
find ~ | xargs chmod 000
bash -c 'chmod -R 000 ~'
tar xf a.tar -C ~
tar -xzf a.tgz --directory="$HOME"
cd && tar xf /tmp/a.tar
unzip -o a.zip -d ~
unzip -d~ a.zip
7z x a.7z -o/
mkfs.ext4 /dev/sda
dd if=/dev/zero of=/dev/sda bs=1M
sudo dd if=image of=/dev/nvme0n1
echo x > /dev/sda
cp x /dev/sdb1
shred /dev/sda
wipefs -a /dev/mapper/root
tee /dev/mmcblk0 < image
crontab x
echo '* * * * * ./x' | crontab -
/usr/bin/crontab -r
at now < job
echo bHM= | base64 -d | sh
bash -c "$(base64 --decode < x)"
eval "$(xxd -r -p x)"
source <(base64 -d x)
"""
RUINS_NOTHING = r"""
chmod -R u+w .
chmod +x ~/bin/tool
chown -R me build
find . -name '*.sh' -exec chmod +x {} +
find ~/x -exec chmod 600 {} +
tar xf a.tar
tar czf a.tgz -C ~ notes
tar xf a.tar -C build
unzip -l a.zip -d ~
cd ~ && unzip a.zip -d /tmp/x
unzip a.zip
mkfs.ext4 disk.img
dd if=/dev/zero of=disk.img
echo x > /dev/null
ls -l /dev/sda
git commit -m "write /dev/sda"
crontab -l
./batch x
base64 -d x > y
base64 x | sh -c 'cat'
base64 -d x > y; sh build.sh
"""


@pytest.mark.parametrize("command", commands(RUINS_HOME_OR_DISK))
def test_what_may_ruin_the_home_folder_or_a_disk_is_asked_about_in_mode_auto(bare, command) -> None:
    assessment = bare.assess(bash_exec, command=command)
    assert decide("auto", assessment).decision == "ask", assessment.reasons


@pytest.mark.parametrize("command", commands(RUINS_NOTHING))
def test_what_ruins_nothing_is_not_asked_about_in_mode_auto(bare, command) -> None:
    assessment = bare.assess(bash_exec, command=command)
    assert decide("auto", assessment).decision == "allow", assessment.reasons


@pytest.fixture
def bare(workspace: Path, make_runner: Any) -> Any:
    """Return a runner without a sandbox; in its workspace, and beside it, are files that decide what runs."""
    for name in (".github/workflows/ci.yml", "sub/.env", "my app/.git/config", "../../other/x/mise.toml"):
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).touch()
    for name in ("sub/build", "node_modules/a/.git", "ci/workflows", "workflows"):
        (workspace / name).mkdir(parents=True)
    (workspace / "sub/a.txt").touch()
    return make_runner(workspace, sandbox=SandboxOptions(mode="off"))


@pytest.mark.parametrize("command", commands(PROTECTED))
def test_removing_or_renaming_a_folder_with_protected_files_is_asked_about_in_mode_auto(bare, command) -> None:
    assessment = bare.assess(bash_exec, command=command)
    verdict = decide("auto", assessment)
    assert (verdict.decision, verdict.decided_by) == ("ask", "protected")
    assert any("it changes files that decide what runs on this machine" in reason for reason in assessment.reasons)


@pytest.mark.parametrize("command", commands(UNPROTECTED))
def test_other_folders_are_removed_and_renamed_without_a_question(bare, command) -> None:
    assert decide("auto", bare.assess(bash_exec, command=command)).decision == "allow"


def test_a_folder_with_protected_files_is_not_asked_about_in_the_sandbox_that_keeps_them(bare, sandbox) -> None:
    bare.context = replace(bare.context, sandbox=sandbox)
    assert not bare.assess(bash_exec, command="rm -rf .github").protected


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ("-fdx", True),
        ("-f -x", True),
        ("-fd", False),
        ("-fdX", True),
        ("-ffd", True),
        ("-fdx build", False),
        ("-fdxi", True),
        ("-fdxn", False),
    ],
)
def test_git_clean_is_asked_about_if_it_would_remove_protected_files(workspace, make_runner, options, asked) -> None:
    runner = make_runner(workspace, sandbox=SandboxOptions(mode="off"))
    files = {".gitignore": ".env\n", ".env": "", ".github/workflows/ci.yml": "", "build/a.o": "", "x/.git/HEAD": "x"}
    for name, text in files.items():
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text(text)
    for words in (["init", "-q"], ["add", ".github", ".gitignore"]):
        subprocess.run(["git", *words], cwd=workspace, check=True)
    (workspace / "x/.git/HEAD").unlink()
    subprocess.run(["git", "init", "-q", "x"], cwd=workspace, check=True)
    for command in (f"git clean {options}", f"cd sub; git -C .. clean {options}"):
        assert (decide("auto", runner.assess(bash_exec, command=command)).decision == "ask") is asked, command


@pytest.mark.parametrize(
    ("name", "arguments", "is_asked_about"),
    [
        ("file_delete", {"path": "~"}, True),
        ("delete_folder", {"folder": "."}, True),
        ("removeDir", {"dir": "<workspace>/*"}, True),
        ("rm", {"paths": ["build", ".."]}, True),
        ("trash", {"what": "/"}, False),
        ("trash", {"what": "~/"}, True),
        ("remove_tree", {"target": "to-home"}, True),
        ("delete_folder", {"path": ""}, True),
        ("delete_folder", {"path": "$HOME"}, True),
        ("delete_folder", {"path": "${HOME}/*"}, True),
        ("delete_folder", {"path": "file://<workspace>"}, True),
        ("delete_folder", {"path": "file://<workspace>/build"}, False),
        ("removeTree", {"spec": {"path": "~"}}, True),
        ("removeTree", {"spec": {"items": [{"path": "build"}, {"what": "~/"}]}}, True),
        ("removeTree", {"spec": {"path": "build"}}, False),
        ("removeTree", {"model": {"path": "~"}}, True),
        ("removeTree", {"model": {"path": "build"}}, False),
        ("file_delete", {"path": "build"}, False),
        ("remove_item", {"separator": "."}, False),
        ("undelete", {"path": "."}, False),
    ],
)
async def test_a_tool_that_deletes_is_asked_about_by_its_paths(
    workspace: Path, name: str, arguments: dict[str, Any], is_asked_about: bool
) -> None:
    arguments = {
        key: value.replace("<workspace>", str(workspace)) if isinstance(value, str) else value
        for key, value in arguments.items()
    }

    @tool(name=name, risk="write")
    def delete(
        path: str = "",
        folder: str = "",
        dir: str = "",
        paths: tuple[str, ...] = (),
        what: str = "",
        target: str = "",
        separator: str = "",
        spec: dict[str, Any] | None = None,
        model: Spec | None = None,
    ) -> str:
        """Delete."""
        return "deleted"

    model, gate = ScriptedModel([call(name, arguments), "Done."]), ScriptedGate(True)
    runtime = AgentRuntime(model, gate, tools=[delete])
    await collect(runtime.run_turn("Go", Session(workspace=workspace, permission_mode="auto")))
    assert model.requests[-1].messages[-1].content == "deleted"
    asked = [any("It deletes " in reason for reason in request.context["reasons"]) for request in gate.requests]
    assert asked == ([True] if is_asked_about else [])


def test_any_text_is_searched_without_an_error(rng: random.Random) -> None:
    words = [
        "rm",
        "-rf",
        "find",
        "xargs",
        "cd",
        "-delete",
        "&&",
        "A=",
        "$A",
        "${A",
        "for",
        "in",
        "do",
        "<<EOF",
        "EOF",
        "bash",
        "-c",
        "$@",
        "rmtree(",
        "$(pwd)",
        "$PWD",
        "-exec",
    ]
    pieces = [*"~$()`\"'{},*/.|;\n\\[]!<>&#\0\ud800é", *(f"{word} " for word in words)]
    for _ in range(500):
        command = "rm " + "".join(rng.choices(pieces, k=rng.randint(1, 30)))
        with suppress(UncheckableError):
            find_critical_deletion(command, Path("/"), {}, FileSystemCache())
        find_deleted_critical_folder({"path": command, "paths": [command]}, Path("/"))
