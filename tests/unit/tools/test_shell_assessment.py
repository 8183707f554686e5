"""Tests of the shell tool's assessment: its question, its binding, protected paths and secrets."""

from __future__ import annotations

import os
import sys

import pytest

from agenticx.tools.builtin import bash_exec
from tests.support.verdicts import decide

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="descendants are followed on Linux only"),
]


POWERS = {
    "off": ("It runs without a sandbox, with all your permissions, and could read AgenticX's access token.",),
    "auto": (
        "It runs in a sandbox (bubblewrap): it can change files of the workspace only, sees your home folder only as"
        " far as toolchains are in it, and has no network."
        " Until it has ended, git and other programs that you start in the workspace follow new settings of it, such"
        " as .git/commondir.",
    ),
}


@pytest.mark.promise("E4")
def test_the_question_shows_the_command_and_its_possible_effects(both_worlds) -> None:
    runner = both_worlds
    assessment = runner.assess(bash_exec, command="make test")
    assert (assessment.risk, assessment.question, assessment.command, assessment.protected) == (
        "execute",
        "Run this command?",
        "make test",
        False,
    )
    assert assessment.reasons == (f"It runs in {runner.workspace}.", *POWERS[runner.sandbox.mode])
    assert assessment.sandboxed == {"off": False, "auto": "bubblewrap"}[runner.sandbox.mode]
    assert decide("auto", assessment).decision == "allow"
    assert decide("default", assessment).decision == "ask"
    assert decide("accept_edits", assessment).decision == {"off": "ask", "auto": "allow"}[runner.sandbox.mode]


def test_a_call_that_asks_for_more_than_the_sandbox_gives_is_never_allowed_as_an_edit(both_worlds) -> None:
    runner, bare = both_worlds, POWERS["off"]
    wide = "It asks to run outside of the sandbox."
    sandboxed = runner.sandbox.mode == "auto"
    for arguments, reasons in (
        ({"unsandboxed": True}, (wide, *bare) if sandboxed else bare),
        (
            {"network": True},
            (
                POWERS["auto"][0].replace("has no network", "has the network"),
                "It asks for the network: it can send what it reads, and use the servers of this machine.",
            )
            if sandboxed
            else bare,
        ),
    ):
        assessment = runner.assess(bash_exec, command="ls", **arguments)
        assert assessment.reasons == (f"It runs in {runner.workspace}.", *reasons)
        assert (assessment.risk, decide("accept_edits", assessment).decision) == ("execute", "ask")


@pytest.mark.promise("E6")
def test_hidden_characters_of_a_command_are_shown_and_its_length_is_stated(runner) -> None:
    assessment = runner.assess(bash_exec, command="ls\x1b[2K" + " " * 300 + "; rm -rf \u202ex\n\ntrue")
    assert assessment.command == "ls⟨U+001B⟩[2K⟨300 spaces⟩; rm -rf ⟨U+202E⟩x\n\ntrue"
    assert assessment.reasons[2:] == (
        "The command has 323 characters in 3 lines.",
        "Invisible characters and long runs of blanks are shown in ⟨⟩.",
    )


@pytest.mark.promise("E6")
def test_a_hidden_character_detects_a_command_that_is_shown_as_it_is(runner, monkeypatch) -> None:
    command = "ls \u202e; rm -rf x"
    assert "\u202e" not in runner.assess(bash_exec, command=command).command
    monkeypatch.setattr("agenticx.tools.shell.assessment.visible", lambda text: text)
    assert "\u202e" in runner.assess(bash_exec, command=command).command


def test_a_command_is_bound_to_the_files_and_programs_it_names(runner, tmp_path, monkeypatch) -> None:
    (runner.workspace / "script.sh").write_text("echo 1")
    (runner.workspace / "data").mkdir()
    (runner.workspace / "other").mkdir()
    (runner.workspace / "link").symlink_to("data")
    programs = tmp_path / "bin"
    programs.mkdir()
    command = "mytool ./script.sh <link/x ; cat 'data'"

    def change_script() -> None:
        (runner.workspace / "script.sh").write_text("echo 2")

    def change_link() -> None:
        (runner.workspace / "link").unlink()
        (runner.workspace / "link").symlink_to("other")
        (runner.workspace / "other" / "x").touch()

    def change_search_path() -> None:
        monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")

    def add_program() -> None:
        (programs / "mytool").write_text("#!/bin/sh\n")
        (programs / "mytool").chmod(0o755)

    def swap_program() -> None:
        (programs / "mytool").write_text("#!/bin/sh\nrm -rf /")

    def swap_workspace() -> None:
        runner.workspace.rename(tmp_path / "old")
        runner.workspace.mkdir()

    shown = runner.assess(bash_exec, command=command).binding
    assert runner.assess(bash_exec, command=command).binding == shown
    for change in (change_script, change_link, change_search_path, add_program, swap_program, swap_workspace):
        change()
        now = runner.assess(bash_exec, command=command).binding
        assert now != shown, change.__name__
        shown = now


@pytest.mark.promise("H3")
@pytest.mark.parametrize(
    "command",
    [
        "tee .git/config",
        "echo x > .git/hooks/pre-commit",
        "echo x>>.bashrc",
        "echo x >> ~/.zshrc",
        'echo x >> "$HOME/.profile"',
        "cd .git; rm config",
        'rm ".g""it"/config',
        "rm .g\\it/config",
        "rm .gi*/config",
        "rm .[g]it/config",
        "rm ./.git*",
        "cp x .{git,y}/config",
        "git --git-dir=.git config core.fsmonitor x",
        "tee .env",
        "cp a sub/.vscode/tasks.json",
        "rm .GIT/config",
        'python -c \'open(".mcp.json","w")\'',
        "ln -s .git x",
        "cat {home}/token",
        "cat ../agx-home/token",
        "cat $AGX_HOME/token",
        "cat $AGX_SECRET_FILE",
        "true;\\\n rm .gi\\\nt/config",
        "echo `cat .ssh/id`",
        "tee .config/fish/config.fish",
        "cat {parent}/agx-h*me/tok*n",
        "cat {parent}/[^x]gx-home/token",
        "cat ../*/token",
        "cd ..; cat agx-home/token",
        "cd ..; cat a*/token",
        "cd {parent}; cd ag?-home && cat token",
        "cat $PWD/../agx-*/token",
        "cat ${{PWD}}/../agx-home/token",
        "grep -r . {parent}/agx-{{x,home}}",
        "cat way-in/token",
        "cat *-in/token",
        "echo x >> ~/.vim*",
        "echo x > .github/workflows/ci.yml",
        "cp x ~/.local/bin/ls",
    ],
)
def test_a_command_that_names_a_protected_path_is_asked_about_even_in_auto_mode(
    workspace, make_runner, command
) -> None:
    home = workspace.with_name("agx-home")
    home.mkdir()
    (home / "token").touch()
    (workspace / "way-in").symlink_to(home)
    runner = make_runner(workspace, protected_roots=(home,))
    command = command.replace("{home}", str(home)).replace("{parent}", str(home.parent))
    assessment = runner.assess(bash_exec, command=command.replace("{{", "{").replace("}}", "}"))
    assert decide("auto", assessment).decision == "ask"


@pytest.mark.promise("H3")
@pytest.mark.parametrize(
    "command",
    [
        "ls",
        "git status",
        "cat .gitignore",
        "ls *",
        "rm *.o",
        "echo git",
        "make env",
        "ls ./*",
        "echo .",
        "ls .github",
        "[ -f x ]",
        "cd .. && ls",
        "cd src; ls *",
        "ls ../*.txt",
        ". .venv/bin/activate && pytest tests/conftest.py",
        "git diff HEAD",
        "kubectl get secrets",
        "jq .a.key data.json",
        "cat id_rsa.pub",
        "ls /tmp/work/src",
    ],
)
def test_an_ordinary_command_names_nothing_protected(workspace, make_runner, command) -> None:
    (workspace / "src").mkdir()
    (workspace / "src" / "a.py").touch()
    (workspace / "id_rsa.pub").touch()
    runner = make_runner(workspace, protected_roots=(workspace.with_name("agx-home"),))
    assert not runner.assess(bash_exec, command=command).protected


@pytest.mark.promise("I1")
@pytest.mark.parametrize(
    "command",
    [
        *("cat id_rsa", "cat *_rsa", "cat conf/*.pem", "cd conf; cat server.pem", "cat conf/innocent"),
        *("base64 {x,id_rsa}", "cat 'a key.pem'", 'cat "conf/a key.pem"', "cat a\\ key.pem", "cat .npmrc\u3000"),
        *("cat .n\u202fetrc", "cat '.n\netrc'", "cat .netrc\ufe0f; ls"),
    ],
)
def test_a_command_that_names_a_file_with_secrets_is_asked_about_even_in_auto_mode(runner, command) -> None:
    (runner.workspace / "id_rsa").touch()
    (runner.workspace / "conf").mkdir()
    (runner.workspace / "conf" / "server.pem").touch()
    (runner.workspace / "conf" / "innocent").symlink_to("server.pem")
    for name in ("a key.pem", "conf/a key.pem", ".npmrc\u3000", ".n\u202fetrc", ".n\netrc", ".netrc\ufe0f"):
        (runner.workspace / name).touch()
    assessment = runner.assess(bash_exec, command=command)
    assert decide("auto", assessment).decision == "ask"
    assert assessment.reasons[0].endswith(", a file that usually holds keys or passwords.")
