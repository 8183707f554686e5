"""Tests of globs, braces and quoting in shell commands that may or may not name protected paths."""

from __future__ import annotations

import pytest

from agenticx.tools.builtin import bash_exec
from agenticx.tools.shell.braces import expand_braces
from agenticx.tools.shell.globs import ShellGlob, simplify_classes
from agenticx.tools.shell.quoting import QUOTED, remove_quoting
from tests.support.verdicts import decide

pytestmark = pytest.mark.promise("H3")

PROTECTED = r"""
wc -c ~/.agen[t,]icx/token
cut -c1-6 ~/.agen[[:alpha:]]icx/token
cat ~/.agen[[=t=]]icx/token
cat ~/.agen[[.t.]]icx/token
cat ~/.agen[t:]icx/token
cat ~/.agen[t=]icx/token
cat ~/.agen[t\]]icx/token
cat ~/.agen[t']']icx/token
cat ~/.agen[t" "]icx/token
cat ~/.agen[t\;]icx/token
echo "$(cat ~/.agen[t\]]icx/token)"
bash -c 'cat ~/.agen[t,]icx/token'
bash -c "cut -c1-6 ~/.agen[[:alpha:]]icx/token"
touch .g{i,i}t/hooks/x
touch .g{i,"i"}t/hooks/x
bash -c 'touch .g{i,i}t/hooks/x'
ls .g[[:lower:]]t/hooks
tee .g{i..i}t/config
tee .m{2..2}/settings.xml
touch .{g,g}it/config
tee {.g,.g}it/config
tee {x,.{g,h}}it/config
cat > lef{t,t}hook.yml
cat > lef{t,x{y,z}}hook.yml
cat > lefthook.y*ml
cat mc[p].json
cat [m]cp.json
cat mise.tom[l]
cat .env[.]local
cat .lintstaged[r]c.x
cat mise[.]local.toml
tee team.code-work*
cat team[.]code-workspace
cd .github; echo x > workflows/ci.yml
cd .github/; cp ci.yml workflows
cd ./.github && tee ./workflows/ci.yml
cd .gith?b && tee workflows/ci.yml
git -C .github mv x workflows/ci.yml
echo x > .github/w*/new.yml
cp x .git[h]ub/workflows/ci.yml
cd .config; echo > git/config
cd ~/.config; echo x > fish/config.fish
cd mise; echo x > config.toml
python -c "subprocess.run(['tee', '.git/config'])"
""".strip().splitlines()
UNCHECKED = r"""
echo x > $'\056git/config'
echo x > $'\x2egit/config'
bash -c "echo x > \$'\056git/config'"
shopt -s dotglob; echo x > ?git/config
bash -O dotglob -c 'echo x > ?git/config'
GLOBIGNORE=x; cat ?git/config
tee .g@(i)t/config
tee .g+(i)t/config
tee .g!(x)t/config
echo 'x
""".strip().splitlines()
ORDINARY = r"""
ls src/*.py
ls *
ls -la *.json *.toml *.yml
rm -f build/*.o
echo {a,b}
for i in {1..10}; do echo $i; done
for i in {1..1000}; do echo $i; done
touch file{1..100}.txt
mkdir -p src/{a,b,c}/{tests,docs}
cp config.yml{,.bak}
mv notes.{txt,md}
grep -E 'a(b|c)' x
grep -rn "TODO" src --include='*.py'
grep '[[:space:]]' file
grep -E '^[[:alpha:]_]+=[^,]*$' file
grep -oE "[0-9]+\.[0-9]+" file
grep -P '\d{1,3}(,\d{3})*' file
python -c "print([1,2])"
python -c "print({'a': 1, 'b': [2, 3]})"
python -c 'import json; print(json.dumps({"a": [1, 2], "b": {"c": 3}}))'
python - <<'EOF'
python -m pytest -k "a and not b" tests/test_x.py::test_y[a-b]
git commit -m "fix [x]: y"
git commit -m "Don't break {a,b} in [c, d]"
git log --format='%h %an, %s' HEAD~3..HEAD
git show HEAD@{1}:src/x.py
git stash show stash@{0}
git diff --stat origin/main...HEAD
git log --since="2 weeks ago" -- '*.py'
jq '.[0]' data.json
jq .[0] data.json
jq '.items[] | select(.a == "b") | {name, size: .b[0]}' data.json
jq -r '.[] | [.a, .b] | @csv' data.json
awk '{print $1, $2}' file
awk -F, 'NR>1 {a[$1]+=$2} END {for (k in a) print k, a[k]}' file
sed 's/[^,]*//' file
sed -i 's/a\(b\)/\1/g' file
sed -n '1,10p;20,30p' file
sed -E "s/^[[:space:]]+//; s/[[:space:]]+$//" file
echo "${x[0]}"
echo ${x[@]} ${#x[@]}
echo ${x:-a,b} ${x,,} ${x%%.*}
echo "$(date +%Y-%m-%d): $(git rev-parse --short HEAD)"
echo $((2*(3+4)))
echo $(( (1 << 2) + 3 ))
[ -f x ] && echo "yes, it is"
[[ $x == *.py ]] && echo y
[[ "$x" =~ ^[a-z]+$ ]] || exit 1
case $x in a|b) echo 1;; *) echo 2;; esac
IFS=$'\n' read -r a b
cut -d$'\t' -f1,2 file
printf '%s\n' "it's"
find . -name '*.py' -not -path './venv/*' -exec wc -l {} +
find . -type f \( -name '*.js' -o -name '*.ts' \) | xargs grep -l "import {a, b} from"
curl -s -X POST localhost:8000/x -H 'Content-Type: application/json' -d '{"a": [1, 2], "b": {"c": "d"}}'
curl 'http://localhost/x?a[]=1&b={c,d}'
docker ps --format '{{.Names}}: {{.Status}}'
docker run --rm -v "$PWD":/app -w /app node:20 npm test
node -e 'const {a, b} = require("./x"); console.log([a, b].map(x => x * 2))'
npm run build -- --mode=production
cargo test --features "a,b"
go test ./... -run 'Test[A-Z]'
make -j4 test CFLAGS="-O2 -g"
tar czf out.tar.gz --exclude='*.pyc' src
xargs -I{} cp {} out/{} < list
tr '[:upper:]' '[:lower:]' < file
tr -d '[]{},' < file
kubectl get pods -o jsonpath='{.items[*].metadata.name}'
psql -c "select a, b from t where c in ('x', 'y')"
cat file # don't {a,b} [c
if [ "$a" = "b" ]; then echo "[x]"; fi
f() { echo "$1, $2"; }; f a b
while read -r line; do echo "${line}"; done < file
ls -d */ | sort -k1,1 -t, | uniq -c
diff <(sort a) <(sort b)
ls .github && cat docs/workflows.md
pip install 'x[extra,more]>=1.0,<2'
pip install x[extra,more]
uv run ruff check --select=E,F src tests/{unit,integration}
""".strip().splitlines()


def rule(runner, command: str) -> str:
    return decide("auto", runner.assess(bash_exec, command=command)).decided_by


@pytest.mark.parametrize("command", PROTECTED)
def test_a_pattern_that_may_match_a_protected_path_is_asked_about(runner, command) -> None:
    assert rule(runner, command) == "protected"


@pytest.mark.parametrize("command", UNCHECKED)
def test_unsupported_syntax_is_asked_about_in_every_mode(runner, command) -> None:
    assessment = runner.assess(bash_exec, command=command)
    assert assessment.unchecked
    assert [decide(mode, assessment).decision for mode in ("default", "accept_edits", "auto")] == ["ask"] * 3


@pytest.mark.parametrize("command", ORDINARY)
def test_an_ordinary_command_is_allowed_in_auto_mode(runner, command) -> None:
    assessment = runner.assess(bash_exec, command=command)
    assert decide("auto", assessment).decision == "allow", assessment.reasons


def test_a_here_document_is_quoted_text(runner) -> None:
    command = "cat <<EOF > notes.txt\nDon't {1..99999,b} [c\nEOF\necho 'done'"
    assert decide("auto", runner.assess(bash_exec, command=command)).decision == "allow"
    hidden = "cat <<EOF\nDon't\nEOF\ncat ~/.agen[t\\]]icx/token"
    assert rule(runner, hidden) == "protected"


def test_a_link_below_a_folder_that_the_command_changes_to_is_followed(make_runner, workspace) -> None:
    home = workspace.with_name("agx-home")
    home.mkdir()
    (workspace / "sub").mkdir()
    (workspace / "sub" / "way-in").symlink_to(home)
    runner = make_runner(workspace, protected_roots=(home,))
    for command in ("cd sub; cat way-in/token", "cd sub && ls way*", "git -C sub add way-in"):
        assert rule(runner, command) == "protected", command


@pytest.mark.parametrize(
    ("word", "expanded"),
    [
        ("a{b,c}d", {"abd", "acd"}),
        ("{a,{b,c}d}", {"a", "bd", "cd"}),
        ("{a,b}{c,d}", {"ac", "ad", "bc", "bd"}),
        ("a{,b}", {"a", "ab"}),
        ("a{b}c", {"a{b}c"}),
        ("{a,b{x}}", {"a", "b{x}"}),
        ("${x,,}", {"${x,,}"}),
        ("{a,b", {"{a,b"}),
        ("x{a..c}", {"x?"}),
        ("x{1..10}", {"x[-0-9]", "x[-0-9][-0-9]"}),
    ],
)
def test_braces_are_expanded_as_in_bash(word, expanded) -> None:
    assert set(expand_braces(word, lambda _: True) or ()) == expanded


def test_braces_that_make_more_than_64_words_are_not_expanded(runner) -> None:
    assert expand_braces("{a,b}" * 6, lambda _: True) is not None
    assert expand_braces("{a,b}" * 7, lambda _: True) is None
    assert rule(runner, "echo " + "{a,b}" * 7) == "unchecked"


def test_quoted_characters_are_literal() -> None:
    assert remove_quoting("""a'[b]'"{c}"\\*d""").text == f"a{QUOTED}b{QUOTED * 2}c{QUOTED * 2}d"
    assert remove_quoting("\"a$(b '*' [c])\"").text == f"a$(b {QUOTED} [c])"
    assert not remove_quoting("a 'b").is_complete


def test_named_classes_match_any_character() -> None:
    assert simplify_classes("a[b,c]d/[[:x:]]/[ab]") == "a?d/?/[ab]"
    assert ShellGlob.parse("[[:alpha:]]x").match("ax", lambda _: None)
