"""Rules of the user: what they match in a call, and what can hide from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from agenticx.errors import InvalidArguments
from agenticx.permissions import Call, Rule, decide, parse_rule
from agenticx.permissions.explain import explain
from agenticx.permissions.offers import describe, is_narrower, offer_rules
from agenticx.sandbox import SandboxOptions, find_sandbox
from agenticx.tools import Assessment, ToolContext
from agenticx.tools.builtin import bash_exec, file_search, file_write, list_files
from agenticx.tools.shell.command_reader import read_commands


def command(text: str, workspace: Path, **wishes: object) -> Call:
    """Return the call of a command in a workspace."""
    arguments = bash_exec.validate({"command": text, **wishes})
    assessment = bash_exec.assess(arguments, ToolContext(workspace=workspace))
    return Call(tool="bash_exec", assessment=assessment, arguments=arguments, workspace=workspace.resolve())


def edit(path: str, workspace: Path) -> Call:
    arguments = file_write.validate({"path": path, "content": "x"})
    assessment = file_write.assess(arguments, ToolContext(workspace=workspace))
    return Call(tool="file_write", assessment=assessment, arguments=arguments, workspace=workspace.resolve())


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for folder in ("src/inner", "lib", "srcs"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "notes.txt").write_text("x")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ('allow bash_exec command="git commit"', {"command": "git commit"}),
        ("deny file_write path=secrets/**", {"path": "secrets/**"}),
        ("ask web_fetch host=*.Example.com", {"host": "*.example.com"}),
        ("allow github__issue server=github", {"server": "github"}),
        ("allow bash_exec command='pip install' network=true", {"network": True}),
        (
            "allow bash_exec command=curl network=PyPI.org,*.a.test,[::1]:80",
            {"network": ["pypi.org", "*.a.test", "[::1]:80"]},
        ),
        ("deny *", {"tool": "*"}),
    ],
)
def test_a_rule_is_read_and_written_in_the_same_way(text: str, fields: dict[str, object]) -> None:
    rule = parse_rule(text, workspace="/work")
    assert {name: getattr(rule, name) for name in fields} == fields
    assert parse_rule(str(rule), workspace="/work") == rule
    assert Rule.model_validate(rule.to_json()) == rule


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("permit bash_exec", "allow, ask or deny"),
        ("allow", "allow, ask or deny"),
        ("allow bash_exec cmd=ls", "no part of a rule"),
        ("allow *", "names its tool"),
        ("allow edit path=/etc/**", "relative to the workspace"),
        ("allow edit path=../x", "relative to the workspace"),
        ("allow bash_exec path=src/**", "has a command, not a path"),
        ("allow web_fetch host=https://x/", "no host"),
        ('allow bash_exec command="git', "cannot be read"),
        ("allow bash_exec command=curl network=false", "is wrong in network: it is true or a list of hosts"),
        ("allow bash_exec command=curl network=https://x/", "is wrong in network: .https://x/. is no host"),
    ],
)
def test_a_wrong_rule_is_refused_with_what_would_be_right(text: str, right: str) -> None:
    with pytest.raises(InvalidArguments, match=right.replace("*", r"\*")):
        parse_rule(text)


@pytest.fixture
def bubblewrap() -> None:
    if (status := find_sandbox(SandboxOptions())).kind != "bubblewrap":
        pytest.skip(status.reason)


@pytest.mark.promise("E5")
@pytest.mark.parametrize(
    ("rule", "network", "decision"),
    [
        ('allow bash_exec command="pip install" network=pypi.org,*.a.test', network, decision)
        for network, decision in (
            (["pypi.org"], "allow"),
            (["pypi.org:443", "x.y.a.test", "*.y.a.test"], "allow"),
            (False, "allow"),
            (True, "ask"),
            *(
                (["pypi.org", host], "ask")
                for host in ("evil.test", "a.test", "pypi.org:8443", "xpypi.org", "*.test.org")
            ),
        )
    ]
    + [
        ('allow bash_exec command="pip install" network=true', ["pypi.org", "10.0.0.1:81"], "allow"),
        ('allow bash_exec command="pip install"', ["pypi.org"], "ask"),
        ('allow bash_exec command="pip download" network=pypi.org', ["pypi.org"], "ask"),
        ("allow bash_exec host=pypi.org", ["pypi.org"], "ask"),
        ("deny bash_exec network=*.evil.test", ["pypi.org", "a.evil.test"], "deny"),
        ("deny bash_exec network=a.evil.test", ["*.evil.test"], "deny"),
        ("deny * host=a.evil.test", ["*.evil.test"], "deny"),
        ("deny bash_exec network=evil.test", True, "deny"),
        ("deny bash_exec network=evil.test", ["pypi.org"], "ask"),
        ("deny bash_exec network=true", ["pypi.org"], "deny"),
        ("deny * network=true", False, "ask"),
    ],
)
def test_a_rule_about_hosts_covers_calls_that_name_no_others(
    project: Path, bubblewrap, rule: str, network: object, decision: str
) -> None:
    call = command("pip install x", project, network=network)
    assert decide("default", call, rules=[parse_rule(rule)]).decision == decision


@pytest.mark.promise("E5")
def test_hosts_are_part_of_the_kind_of_a_command_and_hold_only_where_they_are_enforced(
    project: Path, bubblewrap
) -> None:
    call = command("pip install x", project, network=["pypi.org", "a.test:81"])
    offer = offer_rules(call)
    assert [describe(rule) for rule in offer.rules] == [
        "pip install … with pypi.org, a.test:81 (it runs the project's code)"
    ]
    assert describe(offer.exact) == "exactly this command with pypi.org, a.test:81: pip install x"
    verdicts = [
        decide("auto", call, rules=rules, sources=sources) for rules in ((), offer.rules) for sources in ((), "p")
    ]
    assert [verdict.decided_by for verdict in verdicts] == ["sandbox", "untrusted", "rule", "rule"]
    assert verdicts[3].decision == "allow"
    (kind,) = offer.rules
    for network, narrower in ((["pypi.org"], True), (["pypi.org", "b.test"], False), (True, False)):
        assert is_narrower(kind.model_copy(update={"network": network}), offer) == narrower
    short = parse_rule('allow bash_exec command="pip install" network=pypi.org')
    reasons = explain(call, decide("default", call, rules=[short]), [short])
    assert f"`pip install x` asks: a rule allows it, but not with this much of the network: {short}." in reasons
    weaker = replace(call.assessment, sandboxed="landlock", shell=replace(call.assessment.shell, network=True))
    handwritten = parse_rule('allow bash_exec command="pip install" network=pypi.org,a.test:81')
    assert decide("auto", call, rules=[handwritten]).decision == "allow"
    for assessment in (weaker, replace(weaker, shell=replace(weaker.shell, network=False))):
        assert not decide("default", replace(call, assessment=assessment), rules=[handwritten, kind]).rules


@pytest.mark.promise("E5")
@pytest.mark.parametrize(
    ("fields", "kinds", "other", "denying"),
    [
        (
            {"risk": "write", "paths": ("src/a.py", "src/b.py", "lib/c.py")},
            ["edit files in src/", "edit files in lib/"],
            {"risk": "write", "paths": ("src/a.py", "notes.txt")},
            "deny edit path=lib/**",
        ),
        (
            {"risk": "execute", "sends": True, "hosts": ("a.test", "b.test")},
            ["fetch_all at a.test", "fetch_all at b.test"],
            {"risk": "execute", "sends": True, "hosts": ("a.test", "x.b.test")},
            "deny * host=b.test",
        ),
    ],
)
def test_rules_cover_a_call_about_several_folders_or_hosts_together(
    project: Path, fields: dict[str, Any], kinds: list[str], other: dict[str, Any], denying: str
) -> None:
    def made(fields: dict[str, Any]) -> Call:
        return Call(tool="fetch_all", assessment=Assessment(**fields), arguments={}, workspace=project)

    call = made(fields)
    both = offer_rules(call).rules
    assert [describe(rule) for rule in both] == kinds
    verdict = decide("default", call, rules=both, sources=["a page"])
    assert (verdict.decision, verdict.rules) == ("allow", both)
    assert decide("default", call, rules=[parse_rule(denying), *both]).decision == "deny"
    assert decide("default", made(other), rules=both).decision == "ask"
    for rule, left in zip(both, kinds[::-1], strict=True):
        assert decide("default", call, rules=[rule]).decision == "ask"
        assert [describe(rule) for rule in offer_rules(call, [rule]).rules] == [left]


def test_a_rule_about_a_host_allows_no_command_that_names_another_one(project: Path, bubblewrap) -> None:
    rules = [parse_rule(f"allow bash_exec host={host} network=a.test,b.test") for host in ("a.test", "b.test")]
    for hosts, decision in ((["a.test"], "allow"), (["a.test", "b.test"], "ask")):
        assert decide("default", command("curl a.test", project, network=hosts), rules=rules).decision == decision


@pytest.mark.promise("E5")
def test_a_kind_of_edits_covers_the_folder_and_nothing_beside_it(project: Path) -> None:
    offer = offer_rules(edit("src/a.py", project))
    assert [describe(rule) for rule in offer.rules] == ["edit files in src/"]
    for path, decision in {
        "src/a.py": "allow",
        "src/b.py": "allow",
        "src/inner/c.py": "allow",
        "notes.txt": "ask",
        "lib/a.py": "ask",
        "srcs/a.py": "ask",
        "src2.py": "ask",
        "src/.git/config": "ask",  # protected
    }.items():
        assert (path, decide("default", edit(path, project), rules=offer.rules).decision) == (path, decision)
    (project / "src" / "link").symlink_to(project / "lib", target_is_directory=True)
    assert decide("default", edit("src/link/a.py", project), rules=offer.rules).decision == "ask"
    top = offer_rules(edit("notes.txt", project)).rules
    assert [decide("default", edit(path, project), rules=top).decision for path in ("a.txt", "lib/a")] == [
        "allow",
        "ask",
    ]


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("pytest -q tests", ["pytest … (it runs the project's code)"]),
        ("python -m pytest -x", ["python -m pytest … (it runs the project's code)"]),
        ("uv run pytest", ["uv run pytest … (it runs the project's code)"]),
        ("git add -A && git commit -m 'two words'", ["git add …", "git commit …"]),
        ("npm run build", ["npm run build … (it runs the project's code)"]),
        ("pytest | tail -n 3", ["pytest … (it runs the project's code)"]),
        ("mkdir -p build; touch build/x", ["mkdir …", "touch …"]),
        ("terraform fmt x", ["terraform fmt …"]),
        *(
            (text, [f"{text} … (it runs the project's code)"])
            for text in (
                "npm install",
                "npm start",
                "cargo build",
                "mvn package",
                "uv sync",
                "make all",
                "eslint",
                "ninja",
            )
        ),
        ("poetry run black", ["poetry run black …"]),
        ("venv/bin/python -m pytest", ["venv/bin/python -m pytest … (it runs the project's code)"]),
        *(
            (text, [])
            for text in (
                "python -c 'print(1)'",
                "bash -c pytest",
                "env pytest",
                "xargs pytest",
                "sudo pytest",
                "git",
                "git -c core.pager=x diff",
                "git config core.pager x",
                "npm",
                "npx cowsay",
                "docker",
                "docker run image",
                "uv run python -c 1",
                "timeout 5 pytest",
                "rm -rf build",
                "sed -i s/a/b/ notes.txt",
                "cd src && pytest",
                "pytest > out.txt",
                "pytest; python -c 1",
                "'pytest'",
                "git 'commit'",
                "git fetch --upload-pack=./x",
                "/bin/bash -c id",
                "/usr/bin/env x",
                "venv/bin/python -c 1",
                "bin/sudo x",
                "../x/tool",
                "/usr/bin/git commit",
                "docker compose exec x y",
                "unshare x",
                "pdm run x",
                "cmake -E env x",
                "git merge-index ./e -a",
                "git remote-ext origin './e %S'",
                "git daemon --access-hook=./e",
                "mix eval e",
                "mix cmd ./e",
                "npm init e",
                "pnpm create e",
                "yarn create e",
                "podman unshare ./e",
                "pre-commit try-repo ./e",
                "dotnet fsi e.fsx",
                "systemctl enable ./e.service",
                "kubectl debug x -- ./e",
                "gh codespace ssh -- -o ProxyCommand=./e",
                "cargo watch -s ./e",
                "git for-each-repo --config=x y",
                "brew ruby -e e",
            )
        ),
    ],
)
@pytest.mark.promise("E5")
def test_a_kind_of_commands_is_its_fixed_words_and_code_is_of_none(project: Path, text: str, kinds: list[str]) -> None:
    call = command(text, project)
    offer = offer_rules(call)
    assert [describe(rule) for rule in offer.rules] == kinds
    assert offer.exact is not None
    for rules in ((offer.exact,), offer.rules):
        assert not rules or decide("default", call, rules=rules).decision == "allow"


@pytest.mark.promise("E5")
@pytest.mark.parametrize(
    ("text", "decision"),
    [
        ('git commit -m "Größe ändern\n\n- `ls`"', "ask"),
        ('git commit -m "Größe ändern\n\n- ls; rm x 🎉"', "allow"),
        ("git commit -am '修复\n\n$(rm x) `rm x`'", "allow"),
        ("git commit -F - <<'EOF'\nÄndern\n\n$(rm x)\nEOF", "allow"),
        ("git commit -F - <<EOF\n$(rm x)\nEOF", "ask"),
        ("git commit -F - <<'EOF' && rm x\nA\nEOF", "ask"),
        ("git commit -F - <<'EOF'\nA\nEOF\nrm x", "ask"),
        ("git commit -m 'é'; rm x", "ask"),
        ("git commit -m 'é' > é", "ask"),
        ("git commit -m é", "ask"),
        ("git commit -m 'a\u202eb'", "ask"),
        ("git 'commit' -m 'é'", "ask"),
        ("git commit '--template=é'", "ask"),
    ],
)
def test_a_message_of_any_language_and_of_several_lines_is_covered_by_the_kind_of_its_command(
    project: Path, text: str, decision: str
) -> None:
    call = command(text, project)
    assert decide("default", call, rules=[parse_rule('allow bash_exec command="git commit"')]).decision == decision
    assert ([describe(rule) for rule in offer_rules(call).rules] == ["git commit …"]) == (decision == "allow")


def test_a_command_with_text_of_any_language_is_no_read_and_says_so(project: Path) -> None:
    for text in ("grep 'é' notes.txt", "ls && echo 'a\nb'", "cat <<'EOF'\na\nEOF"):
        call = command(text, project)
        assert (text, decide("default", call).decision) == (text, "ask")
        assert any(
            "line breaks or characters other than plain ones" in one for one in explain(call, decide("default", call))
        )


@pytest.mark.promise("E5")
def test_a_file_with_an_odd_name_is_offered_no_rule_that_is_about_others(project: Path) -> None:
    for path, kinds, exact in (
        ("~me/a.py", [], None),
        ("src/*", ["edit files in src/"], None),
        ("s?c/a.py", [], None),
        ("src/a.py", ["edit files in src/"], "src/a.py"),
    ):
        offer = offer_rules(edit(path, project))
        assert [describe(rule) for rule in offer.rules] == kinds
        assert (path, None if offer.exact is None else offer.exact.path) == (path, exact)


@pytest.mark.promise("H4")
def test_a_long_name_of_a_program_is_looked_at_in_linear_time(project: Path) -> None:
    offer = offer_rules(command("a" * 5_000 + ": x", project))
    assert (offer.rules, offer.exact is not None) == ((), True)


LOOK_ALIKES = str.maketrans("aeopсty", "аеорсту")  # Cyrillic letters


# Each makes a near miss of a command: of the words that a rule allows, and the arguments after them.
CHANGES: list[Callable[[str, str], str]] = [
    lambda words, rest: f"{words}{rest}\nrm x",
    lambda words, rest: f"rm x\n{words}{rest}",
    lambda words, rest: f"cd src && {words}{rest}",
    lambda words, rest: f"A=1 {words}{rest}",
    lambda words, rest: f"./{words}{rest}",
    lambda words, rest: f"/usr/bin/{words}{rest}",
    lambda words, rest: f"'{words[:3]}'{words[3:]}{rest}",
    lambda words, rest: f'{words[:-3]}"{words[-3:]}"{rest}',
    lambda words, rest: f"{words[:-1]}\\{words[-1]}{rest}",
    lambda words, rest: f"{words[:-1]}?{rest}",
    lambda words, rest: f"{words[:-2]}*{rest}",
    lambda words, rest: words.translate(LOOK_ALIKES) + rest,
    lambda words, rest: f"{words}\u200b{rest}",
    lambda words, rest: f"{words}{rest} > out",
    lambda words, rest: f"{words}{rest} & rm x",
    lambda words, rest: f"{words}{rest}; python -c 1",
    lambda words, rest: f"{words}{rest} || rm x",
    lambda words, rest: f"{words}{rest} | sh",
    lambda words, rest: f"{words}{rest} $(rm x)",
    lambda words, rest: f"{words}{rest} `rm x`",
    lambda words, rest: f"{words}{rest} <(rm x)",
    lambda words, rest: f"{words}{rest} $HOME",
    lambda words, rest: f"! {words}{rest}",
    lambda words, rest: f"time {words}{rest}",
    lambda words, rest: f"env {words}{rest}",
    lambda words, rest: f"xargs {words}{rest}",
    lambda words, rest: f"{words}-watch{rest}",
    lambda words, rest: f"{words}.py{rest}",
    lambda words, rest: words.upper() + rest,
    lambda words, rest: f"{{ {words}{rest}; }}",
    lambda words, rest: f"({words}{rest})",
    lambda words, rest: f"{words}{rest}\r\nrm x",
    lambda words, rest: f"pushd src; {words}{rest}",
    lambda words, rest: f"{words}\u00a0{rest}",
]
# By what a rule allows: two arguments after it, and commands that only resemble it.
COMMANDS = {
    "pytest": (" -q", " -k 'a or b'", ["py test", "pytest3 -q", "python -m pytest", "tests/pytest"]),
    "git commit": (
        " -m x",
        " -qam 'a b'",
        ["git", "git -C src commit", "git -c a.b=x commit", "git --no-pager commit", "git commit-tree x", "git push",
         "git -- commit", "git add commit", "git m commit"],
    ),
    "git add": (" -A", " src", ["git addx", "git -C src add -A", "git --work-tree=x add .", "git am x", "git rm src"]),
    "npm run build": (
        " --if-present",
        " -- --mode=x",
        ["npm run", "npm run build:all", "npm run test", "npm build", "npm -s run build", "npm --prefix x run build",
         "npm run-script build", "npm run --prefix=x build", "npx run build", "npm run build --script-shell=./x"],
    ),
    "python -m pytest": (
        " -x",
        " tests/test_a.py",
        ["python", "python -m", "python -m pytest.x", "python -m unittest", "python -mpytest", "python3 -m pytest",
         "python -c 1 -m pytest", "python -I -m pytest", "python pytest", "python -m -m pytest"],
    ),
}  # fmt: skip
# By the files that a rule allows to be edited: such a file, and others.
FILES = {
    "src/**": (
        "src/inner/a.py",
        "src2/a.py srcs/a.py src.py lib/src/a.py SRC/a.py s/rc/a.py .src/a.py src./a.py src\\a.py srс/a.py "
        "./notes.txt src/link/a.py src/.git/config "
        "src/.env src/.vscode/tasks.json",
    ),
    "src/*": ("src/a.py", "src/inner/a.py lib/a.py a.py src/link/a.py"),
    "src/a.py": ("src/a.py", "src/b.py src/A.py src/a.pyc src/a src/a.py.orig src/inner/a.py a.py"),
    "**/test_*.py": ("src/test_a.py", "src/test_a.pyc src/atest_.py src/test.py test_a .git/test_a.py"),
}


def near_misses() -> list[tuple[str, str]]:
    """Return rules that allow commands, each with a command that it is not about."""
    pairs = [
        (words, text)
        for words, (*arguments, others) in COMMANDS.items()
        for text in [*(change(words, rest) for rest in arguments for change in CHANGES), *others]
    ]
    assert len(set(pairs)) == len(pairs) >= 300
    return pairs


def allowed_commands(project: Path) -> Iterator[tuple[str, str]]:
    """Yield the near misses that run without a question, each after the rule."""
    rules = {words: [parse_rule(f'allow bash_exec command="{words}"')] for words in COMMANDS}
    for words, text in near_misses():
        if decide("default", command(text, project), rules=rules[words]).decision != "ask":
            yield words, text


def allowed_edits(project: Path) -> Iterator[tuple[str, str]]:
    """Yield the same for edits."""
    (project / "src/link").symlink_to(project / "lib", target_is_directory=True)
    for glob, (_, misses) in FILES.items():
        rules = [parse_rule(f"allow edit path={glob}")]
        for path in misses.split():
            if decide("default", edit(path, project), rules=rules).decision != "ask":
                yield glob, path


@pytest.mark.promise("E5")
def test_near_misses_of_a_rule_about_commands_ask(project: Path) -> None:
    for words, (*arguments, _) in COMMANDS.items():
        rules = [parse_rule(f'allow bash_exec command="{words}"')]
        for text in (words + arguments[0], f"{words}{arguments[1]}; {words} | tail -n 2"):
            assert (text, decide("default", command(text, project), rules=rules).decision) == (text, "allow")
    assert list(allowed_commands(project)) == []
    elsewhere = parse_rule('allow bash_exec command="pytest"', workspace=str(project / "src"))
    assert decide("default", command("pytest", project), rules=[elsewhere]).decision == "ask"


@pytest.mark.promise("E5")
def test_near_misses_of_a_rule_about_files_ask(project: Path) -> None:
    for glob, (hit, _) in FILES.items():
        assert decide("default", edit(hit, project), rules=[parse_rule(f"allow edit path={glob}")]).decision == "allow"
    assert list(allowed_edits(project)) == []


BROKEN_RULES: dict[str, tuple[str, Callable[..., Any]]] = {
    "commands by their text": (
        "permissions.verdict._allowing_parts",
        lambda rules, shell: tuple(rule for rule in rules if rule.command and shell.text.startswith(rule.command)),
    ),
    "quoted words": (
        "permissions.verdict.allows_part",
        lambda rule, part: part.words[: len(rule.words)] == rule.words,
    ),
    "any part of a command": (
        "permissions.verdict._allowing_parts",
        lambda rules, shell: tuple(
            rule for rule in rules for run in shell.runs if run[: len(rule.words)] == rule.words
        ),
    ),
    "commands after a cd": ("permissions.verdict.may_be_allowed", lambda shell: shell.parts is not None),
    "options that run a program": ("permissions.command_rules._may_run_another", lambda word, words: False),
    "the words in any case": (
        "permissions.verdict.allows_part",
        lambda rule, part: " ".join(part.words).lower().startswith(" ".join(rule.words)),
    ),
    "paths by their text": (
        "permissions.rules.path_matches",
        lambda glob, path: path.startswith(glob.rstrip("*/")),
    ),
    "paths in folders below": ("permissions.rules.path_matches", lambda glob, path: fnmatch(path, glob)),
    "names with more at the end": ("permissions.rules.path_matches", lambda glob, path: fnmatch(path, f"{glob}*")),
}  # fmt: skip


@pytest.mark.promise("E5")
@pytest.mark.parametrize("matched", BROKEN_RULES)
def test_near_misses_detect_rules_that_match_too_much(
    project: Path, monkeypatch: pytest.MonkeyPatch, matched: str
) -> None:
    name, broken = BROKEN_RULES[matched]
    monkeypatch.setattr(f"agenticx.{name}", broken)
    assert next(allowed_edits(project) if "path_matches" in name else allowed_commands(project), None) is not None


@pytest.mark.promise("E5")
def test_a_rule_about_words_does_not_allow_a_command_to_leave_the_sandbox(project: Path) -> None:
    wishes = [{}, {"unsandboxed": True}, {"network": True}, {"unsandboxed": True, "network": True}]
    for rules in ([], [parse_rule("allow bash_exec command=pytest")]):
        decisions = [decide("auto", command("pytest", project, **wish), rules=rules).decision for wish in wishes]
        assert decisions == ["allow", "ask", "ask", "ask"]
    every = [parse_rule("allow bash_exec"), parse_rule("allow bash_exec network=true")]
    for wish, decision in zip(wishes, ["allow", "ask", "allow", "ask"], strict=True):
        assert decide("auto", command("pytest", project, **wish), rules=every).decision == decision


@pytest.mark.promise("E5")
def test_the_kind_of_a_call_of_a_server_is_its_tool_there_and_that_of_a_fetch_its_host(project: Path) -> None:
    def made(tool: str, **fields: Any) -> Call:
        assessment = Assessment(risk="execute", sends=True, **fields)
        return Call(tool=tool, assessment=assessment, arguments={"a": 1}, workspace=project, digest="d")

    for call, kind, others in (
        (
            made("forge__comment", server="forge"),
            "forge__comment of forge",
            [made("forge__comment", server="other"), made("forge__merge", server="forge"), made("forge__comment")],
        ),
        (
            made("web_fetch", hosts=("a.test",)),
            "web_fetch at a.test",
            [made("web_fetch", hosts=hosts) for hosts in ((), ("b.test",), ("x.a.test",), ("a.test", "b.test"))],
        ),
    ):
        offer = offer_rules(call)
        assert ", ".join(describe(rule) for rule in offer.rules) == kind
        assert describe(offer.exact) == f"{call.tool} with exactly these arguments"
        assert decide("default", replace(call, digest="other"), rules=offer.rules).decision == "allow"
        assert {decide("default", other, rules=offer.rules).decision for other in others} == {"ask"}


HIDDEN_PUSHES = """\
git push
git push origin main
git -C src push
git --no-pager push
/usr/bin/git push
g'i't "push"
true && git push
true | git push
echo $(git push)
echo "`git push`"
x=$(git push)
bash -c 'git push'
bash -lc "true; git push"
sudo -u me git push
env A=1 timeout 5 git push
nohup nice -n 5 git push &
xargs -n 1 git push
find . -exec git push {} ;
if true; then git push; fi
for x in a b; do git push $x; done
f() { git push; }; f
( cd src; git push )
eval "git push"
trap "git push" EXIT
diff <(git push) x
cat <<END\n$(git push)\nEND
A=1 git push >out 2>&1
command git push
exec git push
$'git' push
git \\\npush
""".replace("\\n", "\n").replace("END\n\n", "END\n")


@pytest.mark.promise("E5")
def test_a_denied_command_is_found_in_whatever_it_is_wrapped(project: Path) -> None:
    denied = [parse_rule('deny bash_exec command="git push"')]
    hidden = HIDDEN_PUSHES.replace("\n$(git push)\n", "\0$(git push)\0").replace("\\\npush", "\\\0push").splitlines()
    for text in (line.replace("\0", "\n") for line in hidden):
        verdict = decide("auto", command(text, project), rules=denied)
        assert (text, verdict.decision, verdict.rules) == (text, "deny", tuple(denied))
    for text in (
        "git pull",
        "git stash push",
        "echo git push",
        "grep 'git push' notes.txt",
        "# git push\nls",
        "make test",
    ):
        assert (text, decide("auto", command(text, project), rules=denied).decision) == (text, "allow")
    for text in (
        "$X push",
        "git $X",
        "git -c alias.x=push x",
        "python -c 'x'",
        "bash x.sh",
        "gi? push",
        ". ./x",
    ):
        verdict = decide("auto", command(text, project), rules=denied)
        assert (text, verdict.decision, verdict.decided_by) == (text, "ask", "unread")
        assert decide("auto", command(text, project)).decision == "allow"


def test_the_order_of_what_decides(project: Path) -> None:
    allow, ask, deny = (parse_rule(f"{decision} file_write") for decision in ("allow", "ask", "deny"))
    plain, protected = edit("src/a.py", project), edit(".git/config", project)
    assert decide("auto", protected, rules=[allow, deny]).decision == "deny"
    assert decide("plan", plain, rules=[allow]).decided_by == "plan"
    assert decide("auto", protected, rules=[allow]).decided_by == "protected"
    assert decide("auto", plain, rules=[allow, ask]).rules == (ask,)
    assert decide("default", plain, rules=[allow]).decision == "allow"
    remembering = Call(
        tool="memory_save", assessment=Assessment(risk="write", remembers=True), arguments={}, workspace=project
    )
    assert decide("auto", remembering, rules=[parse_rule("allow memory_save")]).decided_by == "remembers"


@pytest.mark.promise("E5")
def test_only_a_rule_that_covers_no_more_than_the_offered_one_is_narrower(project: Path) -> None:
    offer = offer_rules(command("git commit -m x", project))
    for text, expected in {
        'allow bash_exec command="git commit"': True,
        'allow bash_exec command="git commit -m"': True,
        'allow bash_exec command="git"': False,
        'allow bash_exec command="git push"': False,
        "allow bash_exec": False,
        'allow bash_exec command="git commit" network=true': False,
        'deny bash_exec command="git commit"': False,
    }.items():
        assert (text, is_narrower(parse_rule(text), offer)) == (text, expected)
    files = offer_rules(edit("src/a.py", project))
    for path, expected in {
        "src/**": True,
        "src/a.py": True,
        "src/inner/**": True,
        "**": False,
        "lib/**": False,
    }.items():
        assert (path, is_narrower(parse_rule(f"allow edit path={path}"), files)) == (path, expected)


@pytest.mark.promise("H4")
@pytest.mark.parametrize(
    "part",
    [
        "$(",
        '"',
        "`",
        "a(",
        "<<a\n",
        "\\",
        "${",
        "bash -c ",
        "strace -f ",
        "strace -f 'bash -c a' ",
        "sudo ",
        "{",
        "find -exec a ",
        "$'",
        "<(",
        "a=(",
        "((",
        "$((1",
        '${x:-"',
        "${x:-'a",
    ],
)
def test_any_command_is_read_in_bounded_time(part: str) -> None:
    reading = read_commands(part * (60_000 // len(part)))
    assert len(reading.runs) <= 2_000


@pytest.mark.promise("E5")
def test_options_that_run_another_program_are_of_no_kind_and_covered_by_no_rule(project: Path) -> None:
    for text in """\
git push origin --exec=./e
git push origin --e ./e
git push --e ./e origin
git fetch origin --up ./e
git grep -O./e x
go test --exec ./e
go build -toolexec=./e
make test SHELL=./e
make test -sf e.mk
make test -kC x
make test --dir x
go build -ldflags='-linkmode=external -extld=./e' .
go vet -vettool ./e
terraform init -plugin-dir=x
black --config x .
tar -c --check=1 --checkpoint-a=exec=./e x
tar --checkpoint-act exec=./e -cf x
uv run pip install -i https://x.test y
python -m pip install --index https://x.test y
npm test -C x
npm install --userconfig x
cargo test --config x
cmake -P x.cmake
mypy --python-executable ./e src
eslint --plugin x
pip install --index-url https://x.test y
pip install -i https://x.test y
git fetch --up*
git init -*
git clone -c core.x=y x
pytest -*
tar -cIf ./e x
rsync -ae ./e a b
apt-get install -o Dpkg::Pre-Invoke::=./e x
apt install -yoAPT::Update::Pre-Invoke::=./e x
apt-get update --config-f x
gh repo clone o/r -- -u ./e
gh repo fork o/r --clone -- --config core.sshCommand=./e
helm template x --post-renderer ./e
helm upgrade x --kubeconfig=e
kubectl get pods --kubeconfig e
podman build --runtime=./e .
pylint --init-hook 'import e'
git svn fetch --authors-prog=./e
tox -q exec -- ./e
tox -e py e ./e""".splitlines():
        program, subcommand, *_ = text.split()
        words = program if subcommand.startswith("-") else f"{program} {subcommand}"
        call = command(text, project)
        assert (text, [describe(rule) for rule in offer_rules(call).rules]) == (text, [])
        rule = parse_rule(f'allow bash_exec command="{words}"')
        assert (text, decide("default", call, rules=[rule]).decision) == (text, "ask")
    for text in """\
black --check .
black . --check --diff
go test -v ./...
go test -c
go test -p 1 -run TestX -o x.test
go build -o bin/x .
pytest --co
pytest --collect-only -q
prettier --check src
cargo fmt --check
cargo test --no-run
git diff --check
git diff --text
git apply --check a.patch
git commit --file=message.txt
ruff format --check
isort --check .
isort --check-only .
terraform fmt -check
terraform fmt --check
rustfmt --check a.rs
eslint --ext .ts src
uv run pytest --co
python -m black --check .
npm install --global
pip install --user x
pip install --pre x""".splitlines():
        program, subcommand, *rest = text.split()
        words = program if subcommand.startswith("-") or program in ("prettier", "black", "isort") else text
        if words == text:
            words = " ".join([program, subcommand, *rest[: 1 if subcommand in ("-m", "run") else 0]])
        rule = parse_rule(f'allow bash_exec command="{words}"')
        assert (text, decide("default", command(text, project), rules=[rule]).decision) == (text, "allow")
    remote = offer_rules(command("git push origin main", project)).rules
    assert [describe(rule) for rule in remote] == ["git push origin …"]
    for text in ("git push", "git push other main", "git push https://x.test/y"):
        assert decide("default", command(text, project), rules=remote).decision == "ask"


@pytest.mark.promise("E5")
def test_a_rule_holds_in_no_weaker_sandbox_than_the_one_it_was_made_in(project: Path) -> None:
    call = command("git commit -m x", project)
    kinds = ("bubblewrap", "landlock", False)
    in_kind = {kind: replace(call, assessment=replace(call.assessment, sandboxed=kind)) for kind in kinds}
    for made, holds in {"bubblewrap": ["bubblewrap"], "landlock": ["bubblewrap", "landlock"], False: [*kinds]}.items():
        rules = offer_rules(in_kind[made]).rules
        assert [kind for kind in kinds if decide("default", in_kind[kind], rules=rules).decision == "allow"] == holds


@pytest.mark.promise("H3")
@pytest.mark.parametrize(
    "text", ["agx permissions add allow bash_exec --user", "python -m agenticx memory list", "env agx trust --yes"]
)
def test_a_command_that_changes_what_agents_may_do_asks_in_every_mode(project: Path, text: str) -> None:
    verdict = decide("auto", command(text, project), rules=[parse_rule("allow bash_exec")])
    assert (verdict.decision, verdict.decided_by) == ("ask", "protected")


@pytest.mark.promise("E5")
@pytest.mark.parametrize(
    "text",
    [
        "echo $((1<<2))\ngit push",
        "(( 1<<2 ))\ngit push",
        "echo $(( $(x) << 2 ))\ngit push",
        "for ((i=1; i<<2; i++)); do\ngit push; done",
        "a[1<<2]=3\ngit push",
        "echo $[1<<2]\ngit push",
        "((git push) )",
        "function f { git push; }; f",
        "coproc f { git push; }",
        "echo ${x:-'}'}; git push",
        "echo ${x:-{}; git push",
        'echo "${x:-"}"}"; git push',
        "echo ${x:-${y:-'}'}}; git push",
    ],
)
def test_a_denied_command_is_found_behind_arithmetic_and_quotes(project: Path, text: str) -> None:
    denied = [parse_rule('deny bash_exec command="git push"')]
    assert decide("auto", command(text, project), rules=denied).decision == "deny"


def test_arithmetic_and_parameters_are_read_as_such(project: Path) -> None:
    denied = [parse_rule('deny bash_exec command="git push"')]
    for text in ("echo $((1<<2)) $(( (x + 1) * 2 ))", "cat <<END\n$((1<<2))\ngit push\nEND", "echo ${x:-'git push'}"):
        assert (text, decide("auto", command(text, project), rules=denied).decision) == (text, "allow")
    for text in ('echo "${x:-\'}"', "echo $(case a in b) git push;; esac)"):
        assert (text, decide("auto", command(text, project), rules=denied).decided_by) == (text, "unread")


@pytest.mark.promise("E5")
def test_a_denied_command_is_found_behind_options_of_what_runs_it(project: Path) -> None:
    denied = [parse_rule('deny bash_exec command="git push"')]
    for text in """\
echo a | xargs -rn 1 git push
timeout -vk 5 10 git push
env -iS '/usr/bin/git push x'
env -S 'A=1 git' push
sudo -iu me git push
sudo -i git push
nice -n5 git push
env -u X git push
xargs --max-chars 5 git push
xargs -in git push
flock lock git push -c x
rbash -c 'git push'
uv run git push
uv run --with x git push
npx git push
poetry run git push
bundle exec git push
strace -f git push
script -qc 'git push' /dev/null
script -qc'git push'
su me --command='git push'
ssh-agent git push
dbus-run-session -- git push
unshare -r git push
nsenter -t 1 -m git push
bwrap --ro-bind / / git push
docker exec -it x git push
git --attr-source X push
docker compose exec x git push
uv tool run git push
docker run --rm x sh -c 'git push'
systemd-run --user git push
hyperfine 'git push'
fd -x git push
fd -Hx git push
fd . src --exec git push ;
chronic git push
ifne git push
eatmydata git push
conda run git push
conda run -n x git push
proxychains4 -q git push
torsocks git push
capsh -- -c 'git push'
nix shell nixpkgs#git -c git push
nix-shell --run 'git push'
watchexec -e py -- git push
faketime 'last week' git push
direnv exec . git push
mise x -- git push
pnpm dlx git push
cargo watch -s 'git push'
git send-pack origin main
git lfs push origin main
git subtree push --prefix=x origin main
hub push
git send-email --sendmail-cmd='git push' x
cmake -E env git push
tox exec -- git push
pee 'git push'
setarch -R git push
runuser -u me -- git push
ssh -p 22 host git push""".splitlines():
        assert (text, decide("auto", command(text, project), rules=denied).decision) == (text, "deny")
    for text in """\
echo push | xargs git
echo push | xargs -I % git %
echo git | xargs -I % % push
echo push | parallel git
sudo --unknown x git push
ssh -o ProxyCommand=x host ls
docker run x push
fd push -x git
make -f /dev/stdin
make -f- x
coverage run x.py
cmake -P x.cmake
git archive --remote=ext::'git push' HEAD
rg --pre git push
rsync -e git push:a b
gdb --args git push
expect -c 'spawn git push'
pnpm git push
some-unknown-tool git push
some-unknown-tool --then 'cd x; git push'
socat - SYSTEM:'git push'
apt-get -o DPkg::Pre-Invoke::='git push' install x
git diff | less '+!git push'
gcc -wrapper git,push a.c
echo '.shell git push' | sqlite3
sqlite3 a.db < script
psql -c '\\! git push'""".splitlines():
        assert (text, decide("auto", command(text, project), rules=denied).decided_by) == (text, "unread")
    for text in (
        "uv run pytest -q",
        "npx eslint src",
        "docker compose up",
        "uv pip list",
        "find . | xargs -n1 grep x",
        "some-unknown-tool git status",
        "sqlite3 a.db 'select 1'",
        "psql -c 'select 1' x",
        "fd -e py",
        "rg push",
        "apt-get install -y git",
        "gcc -O2 -Wall a.c -o a",
        "tree src",
        "jq .push a.json",
    ):
        assert (text, decide("auto", command(text, project), rules=denied).decision) == (text, "allow")


@pytest.mark.promise("E5")
def test_what_changes_or_runs_programs_in_other_ways_is_unknown_to_rules_that_deny(project: Path) -> None:
    denied = [parse_rule('deny bash_exec command="git push"')]
    for text in """\
GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=alias.p GIT_CONFIG_VALUE_0=push git p
env GIT_CONFIG_COUNT=1 git p
export GIT_CONFIG_COUNT=1
declare -x PATH=/tmp
PATH=/tmp:$PATH ls
LD_PRELOAD=x ls
BASH_ENV=x make
HOME=/tmp/x git p
sed '1e git push' a
sed -ne 's/a/git push/e' a
sed -f x a
tar -cIf x y
git config alias.p push
git --exec-path=/tmp p
./x.sh
python x.py
node x.js
bash x.sh
./g push
uv run x.py
go run x.go
make SHELL='git push'
awk -f x.awk""".splitlines():
        verdict = decide("auto", command(text, project), rules=denied)
        assert (text, verdict.decision, verdict.decided_by) == (text, "ask", "unread")
    for text in """\
GIT_X=1 git push
mapfile -C 'git push' -c 1
tar --checkpoint-action=exec='git push' -cf x y
git rebase -x 'git push' main
git rebase -i --exec='git push' main
git bisect run git push
git submodule foreach --recursive 'git push'
/usr/lib/git-core/git-push""".splitlines():
        assert (text, decide("auto", command(text, project), rules=denied).decision) == (text, "deny")
    for text in """\
A=1 pytest -q
make test
npm test
cargo test
python -m pytest -q
sed -i 's/the/a/g; 3d' a
sed -n '/begin/,/end/p' a
GIT_PAGER=cat git log
GIT_X=1 git
git config user.name x
git rebase -x 'make test' main
tar -xzf a.tar.gz -C here
export A=1; make""".replace("GIT_X=1 git\n", "").splitlines():
        assert (text, decide("auto", command(text, project), rules=denied).decision) == (text, "allow")


@pytest.mark.promise("E5")
def test_denied_short_options_are_found_in_whatever_order_and_place(project: Path) -> None:
    denied = [parse_rule('deny bash_exec command="rm -rf"')]
    for options in ("-rf x", "-fr x", "-r -f x", "-rfv x", "x -rf", "-Rf x", "--recursive --force x", "--rec -f x"):
        text = f"rm {options}"
        assert (text, decide("auto", command(text, project), rules=denied).decision) == (text, "deny")
    removing = [parse_rule("deny bash_exec command=rm")]
    for text, decision in {
        "sqlite3 :memory: '.shell rm -rf b'": "ask",
        "echo | zip -q -TT 'rm -rf b; true' -T z.zip -": "deny",
        "zip -qTT'rm -rf b; true' z.zip a": "deny",
        "dpkg --pre-invoke='rm -rf b' --configure -a": "deny",
        "git commit -m 'rm x'": "allow",
        "docker run --rm x": "ask",  # what it runs is not known
        "docker build -t rm .": "allow",
        "zip -r a.zip src": "allow",
    }.items():
        assert (text, decide("auto", command(text, project), rules=removing).decision) == (text, decision)
    for text, decision in {"rm -r x": "allow", "rm -f -- -r": "allow", "rm -f $x": "ask", "ls -rf": "allow"}.items():
        assert (text, decide("auto", command(text, project), rules=denied).decision) == (text, decision)


@pytest.mark.promise("E5")
def test_a_rule_about_a_path_is_found_in_the_words_of_commands_and_in_folders(project: Path) -> None:
    (project / "lib" / "x").write_text("private")
    (project / "link").symlink_to(project / "lib")
    every, shell, edits, markdown = (
        [parse_rule(text)]
        for text in (
            "deny * path=lib/**",
            "deny bash_exec path=lib/**",
            "deny edit path=lib/**",
            "ask * path=**/*.md",
        )
    )
    for rules, texts in {
        (*every, *shell): {
            "deny": [
                "cat lib/x", "cat ./src/../lib/x", f"cat {project}/lib/x", "cat < lib/x", "cat link/x",
                "echo a > lib/x", "cat src/a | tee lib/y", "bash -c 'cat lib/x'", "cd lib && cat x",
                "cd src && cat ../lib/x",
                "grep -r a lib", "sudo cat lib/x", "tar c lib", "cp -r lib other",
            ],
            "ask": [
                "grep -r a .", "rg a", "tar c .", "cp -r . /tmp/x", "cat $X", "cat lib*/x", "python x.py",
                "git show HEAD:lib/x", "tar --directory=lib -c x", "find . -newer x -exec cat {} +", "cat l?b/x",
                "sed -n 'w lib/x' a", "git grep a",
            ],
            "allow": [
                "cat src/a", "echo lib/x", "ls", "cat notes.txt > out", "pytest -q tests", "cat library/x 2>&1",
                "git status", "grep -r a src", "echo $X", "cat notes.txt > /dev/null",
            ],
        },
        tuple(edits): {
            "deny": [
                "echo bad > lib/x", "cat notes.txt >> lib/x", "echo bad 2>lib/x", "cd lib && echo a > x", "rm -r lib",
            ],
            "ask": ["sed -i s/a/b/ lib/x", "rm -rf .", "ruff check lib/x", "python x.py", "cp a $X"],
            "allow": ["cat lib/x", "echo bad > src/x", "touch src/x", "grep -r a ."],
        },
        tuple(markdown): {
            "ask": ["cat a.md", "cat src/b.md", "grep -r x src", "tar c src"],
            "allow": ["cat notes.txt", "make test", "git add notes.txt"],
        },
    }.items():  # fmt: skip
        for rule in rules:
            for decision, commands in texts.items():
                for text in commands:
                    verdict = decide("auto", command(text, project), rules=[rule])
                    assert (str(rule), text, verdict.decision) == (str(rule), text, decision)
    for tool, arguments, decision in (
        (file_search, {"pattern": "a", "path": "lib"}, "deny"),
        (file_search, {"pattern": "a", "path": "lib/x"}, "deny"),
        (file_search, {"pattern": "a"}, "ask"),
        (file_search, {"pattern": "a", "path": "src"}, "allow"),
        (list_files, {"path": "lib"}, "deny"),
        (list_files, {"depth": 2}, "ask"),
        (list_files, {}, "allow"),
    ):
        validated = tool.validate(arguments)
        assessment = tool.assess(validated, ToolContext(workspace=project))
        call = Call(tool=tool.schema.name, assessment=assessment, arguments=validated, workspace=project.resolve())
        assert (arguments, decide("auto", call, rules=every).decision) == (arguments, decision)
        assert decide("auto", call, rules=edits).decision == "allow"
