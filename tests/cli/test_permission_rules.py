"""`agx permissions`: rules that are listed, added, removed, imported, and tried on past sessions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def rows(agx: Any, *words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in agx("permissions", "list", "--json", *words).stdout.splitlines()]


def test_rules_are_added_listed_and_removed(agx: Any) -> None:
    assert (agx("permissions", "list").stdout, (agx.folder.parent / "home").exists()) == ("", False)
    added = agx("permissions", "add", "allow", "bash_exec", "command=git commit")
    assert added.returncode == 0
    assert added.stderr.endswith(
        "also allows the command where there is no sandbox; the rule of an answer keeps its sandbox\n"
    )
    agx("permissions", "add", "deny file_write path=secrets/**", "--user")
    here, everywhere = rows(agx)
    assert (here["command"], here["scope"], here["workspace"]) == ("git commit", "workspace", str(agx.folder))
    assert (everywhere["path"], everywhere["scope"]) == ("secrets/**", "user")
    assert [row["holds_here"] for row in rows(agx, "--cwd", "/")] == [False, True]
    assert agx("permissions", "list").stdout.splitlines() == [
        f'* {here["id"]}  {here["created_at"][:10]}  allow bash_exec command="git commit"  '
        f"(in {agx.folder}; added by agx)",
        f"* {everywhere['id']}  {everywhere['created_at'][:10]}  deny file_write path=secrets/**  "
        "(everywhere; added by agx)",
    ]
    assert "`agx permissions remove ID` takes a rule back" in agx("permissions", "list").stderr
    explained = agx("permissions", "explain", "file_write", '{"path": "secrets/a", "content": ""}', "--json")
    assert json.loads(explained.stdout)["rule"] == {key: everywhere[key] for key in everywhere if key != "holds_here"}
    assert agx("completion", "--values", "rule").stdout.split() == [here["id"], everywhere["id"]]
    assert agx("permissions", "remove", here["id"]).returncode == 0
    again = agx("permissions", "remove", here["id"])
    assert (again.returncode, again.stderr) == (
        1,
        f"agx: no rule has the id '{here['id']}'; `agx permissions list` shows them\n",
    )
    assert rows(agx) == [everywhere]


def test_a_file_that_is_a_link_is_changed_behind_it_and_refused_where_its_target_is_missing(agx: Any) -> None:
    home, target = agx.folder.parent / "home", agx.folder.parent / "dotfiles" / "rules.toml"
    home.mkdir()
    link = home / "permissions.toml"
    link.symlink_to(target)
    missing = f"the rules in '{link}' cannot be read: it is a link to '{target}', which is missing"
    for words in ("add", "deny edit"), ("explain", "file_read", '{"path": "a"}'):
        refused = agx("permissions", *words)
        assert (refused.returncode != 0 or "denied" in refused.stdout, missing in refused.stdout + refused.stderr) == (
            True,
            True,
        )
    assert missing in agx("doctor").stdout
    target.parent.mkdir()
    target.write_text("")
    assert agx("permissions", "add", "deny edit").returncode == 0
    assert (link.is_symlink(), 'tool = "edit"' in target.read_text(), list(target.parent.iterdir())) == (
        True,
        True,
        [target],
    )


@pytest.mark.ci_lane
def test_what_allows_very_much_is_stored_with_a_warning_and_what_is_wrong_is_refused(agx: Any) -> None:
    for words, why in {
        ("allow", "bash_exec"): "it covers all commands",
        ("allow bash_exec command=git",): "`git` alone could be followed by anything",
        ("allow", "bash_exec", "command=git push"): "`git push` names no remote before its options",
        ("allow", "bash_exec", "command=npm --version"): "files of the project or the user may decide which `npm` runs",
        ("allow", "bash_exec", "command=python -c"): "`python` runs any code",
        ("allow", "bash_exec", "command=/usr/bin/env"): "what `env` does or runs is up to its arguments",
        ("deny file_read path=src/**",): "commands and other tools may reach these files too; a rule about * is about",
        ("deny edit_fil",): "no tool is called 'edit_fil', unless an application or a server has one of that name",
        ("deny", "bash_exec", "command=git push --force"): "'--force' may be written in other ways, for example as its",
        ("ask", "bash_exec", "command=npm run *"): "* and ? are no wildcards in a command",
        ("deny", "bash_exec", "command=rm -rf"): "",
        (
            "allow",
            "bash_exec",
            "command=rm -rf build",
        ): 'command="rm -rf") is about all of these calls, and decides first',
    }.items():
        done = agx("permissions", "add", *words)
        assert (done.returncode, why in done.stderr, bool(done.stderr)) == (0, True, bool(why)), done.stderr
    assert len(rows(agx)) == 12
    assert "--  rules        12 rules in " in agx("doctor").stdout
    added = agx("permissions", "add", "deny * path=private/**")
    assert (
        "is looked for in the words of commands; what `make`, tests or git read or change is not seen" in added.stderr
    )
    for words, why in {
        ("permit", "bash_exec"): "a rule begins with allow, ask or deny",
        ("allow", "edit", "path=/etc/**"): "relative to the workspace",
        ("allow *",): "names its tool",
        ("allow memory_save",): "no rule can allow memory_save: what later sessions will have is asked about each",
        (
            "allow",
            "bash_exec",
            "command=git add && git commit",
        ): "its words are those of one command; add a rule for each",
        ("allow", "bash_exec", "command=FOO=1 make"): "an assignment before its program is no first word of a command",
        ("allow", "bash_exec", "command=npm run *"): "* and ? are no wildcards in a command; leave them out",
    }.items():
        done = agx("permissions", "add", *words)
        assert (done.returncode, done.stdout, why in done.stderr) == (2, "", True), done.stderr
    assert len(rows(agx)) == 13


def test_a_file_is_imported_once_and_a_damaged_one_is_named(agx: Any, tmp_path: Path) -> None:
    file = tmp_path / "old.toml"
    file.write_text('[[rules]]\ndecision = "ask"\ntool = "web_fetch"\nhost = "*.example.com"\n')
    first, second = (agx("permissions", "import", str(file)) for _ in range(2))
    assert first.stdout.count("ask web_fetch host=*.example.com  (everywhere; written in the file)") == 1
    assert second.stdout == ""
    assert "added 0 rules; 1 were there already" in second.stderr
    own = tmp_path / "home" / "permissions.toml"
    own.write_text('[[rules]]\ndecision = "maybe"\ntool = "x"\n')
    for words in (["list"], ["explain", "file_read", '{"path": "a"}'], ["add", "deny", "x"]):
        done = agx("permissions", *words)
        assert (done.returncode, done.stdout) == (1, "")
        assert f"agx: '{own}', rule 1: the rule is wrong in decision" in done.stderr
    assert f"!!  rules        '{own}', rule 1: the rule is wrong in decision" in agx("doctor").stdout


@pytest.mark.promise("E5")
def test_a_rule_is_tried_on_past_sessions(agx: Any) -> None:
    agx("run", "Write src/a.txt with the text one", "--yes")
    agx("run", "run touch made", "--yes")
    agx("run", "Write b.txt with the text two")
    agx("run", "list the files here")
    edits = json.loads(agx("permissions", "replay", "allow", "edit", "path=src/**", "--json").stdout)
    assert [(edits[name]["count"], edits[name]["were_asked"]) for name in ("allow", "ask", "deny")] == [
        (1, 1),
        (0, 0),
        (0, 0),
    ]
    assert [(call["subject"], call["was_asked"]) for call in edits["allow"]["calls"]] == [("src/a.txt", True)]
    denied = agx("permissions", "replay", "deny edit").stdout.splitlines()
    assert denied[:2] == ["deny edit", "would have denied: 2 calls (asked about then: 2)"]
    assert [line.split()[-1] for line in denied[2:]] == ["b.txt", "src/a.txt"]  # newest first
    touch = agx("permissions", "replay", "allow", "bash_exec", "command=touch", "--since", "1d").stdout
    assert touch.endswith("bash_exec  touch made\n")
    none = agx("permissions", "replay", "allow", "bash_exec", "command=touch", "--since", "2999-01-01")
    assert (none.returncode, "it decides about none of 0 past calls" in none.stderr) == (0, True)
    elsewhere = agx("permissions", "replay", "deny edit", "--cwd", "/")
    assert "none of 0 past calls" in elsewhere.stderr
    assert sorted(path.name for path in agx.folder.iterdir()) == ["made", "src"]
    assert agx("permissions", "replay", "allow edit", "--since", "soon").returncode == 2


@pytest.mark.ci_lane
def test_a_chat_lists_the_rules_that_hold_and_removes_them(agx: Any, terminal: Callable[..., Any]) -> None:
    agx("permissions", "add", "deny bash_exec command=curl", "--user")
    agx("permissions", "add", "deny web_fetch", "--cwd", "/")
    chat = terminal("chat")
    chat.wait_for("› ")
    chat.type("/permissions\r")
    chat.wait_for("deny bash_exec command=curl  (everywhere)\n")
    chat.wait_for("› ")
    chat.type("Write a.txt with the text one\r")
    chat.wait_for("[e]dit: ")
    chat.type("s\n")
    chat.wait_for("allowed by you for this session")
    chat.wait_for("› ")
    second = terminal("chat", "-c")  # through the first one
    second.wait_for("› ")
    second.type("/permissions\r")
    second.wait_for("deny bash_exec command=curl  (everywhere)\n")
    second.wait_for("allow edit path=*  (this session)\n")
    second.wait_for("› ")
    [row] = [row for row in rows(agx) if row.get("command") == "curl"]
    second.type(f"/permissions remove {row['id']}\r")
    second.wait_for("removed: deny bash_exec command=curl\n")
    second.type("/permissions remove\r")
    second.wait_for("/permissions remove ID removes one\n")
    second.type("\x04")
    assert second.exit_code() == 0
    chat.type("/permissions\r")
    chat.wait_for("allow edit path=*  (this session)\n")
    chat.wait_for("› ")
    assert "web_fetch" not in chat.screen
    chat.type("\x04")
    assert chat.exit_code() == 0
    assert [row["tool"] for row in rows(agx)] == ["web_fetch"]
