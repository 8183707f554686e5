"""Tests of the question about a command that moves files to a folder whose content ends with the sandbox."""

from __future__ import annotations

import pytest

from agenticx.tools.builtin import bash_exec
from tests.support.verdicts import decide

MOVES = {
    "mv a /tmp": "/tmp",
    "mv -v a b/../../../../../../../../../tmp/x": "b/../../../../../../../../../tmp/x",
    "mv -ft /var/tmp a": "/var/tmp",
    "mv --target-directory=/run a": "/run",
    "cd /dev/shm && mv {work}/a .": ".",
    "mv a out": "out",
    "mv a ~/.cache/x": "~/.cache/x",
    'mv a "$HOME"/.cargo': 'HOME"/.cargo',
    "mv a $(mktemp -d)": "mktemp",
    "d=/tmp/x; mkdir $d; mv a $d": "/tmp",
    "ls | xargs -I% mv % /tmp": "/tmp",
    r"find . -name a -exec mv {{}} /tmp \;": "/tmp",
    "sudo mv a /tmp": "/tmp",
    "rsync -a --remove-source-files b/ /tmp/b": "/tmp/b",
    "zip -rm /tmp/a.zip b": "/tmp/a.zip",
    "tar --remove-files -cf /tmp/a.tar b": "/tmp/a.tar",
    "git worktree move b /tmp/b": "/tmp/b",
    "mv /tmp/x .": None,
    "mv a b": None,
    "mv a {work}/b": None,
    "for f in *.txt; do mv $f ${{f%.txt}}.md; done": None,
    'mv a "${{x:-b}}"': None,
    "rsync -a b/ /tmp/b": None,
    "tar -cf /tmp/a.tar b": None,
    "cp a /tmp": None,
    "grep mv /tmp/x": None,
}


@pytest.mark.parametrize("command", MOVES)
def test_moving_files_to_where_they_end_with_the_command_is_asked_about(
    sandbox, make_runner, workspace, monkeypatch, command
) -> None:
    home = workspace.parent / "me"
    (home / ".cargo").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    (workspace / "out").symlink_to("/tmp")
    (workspace / "a").touch()
    (workspace / "b").mkdir()
    runner = make_runner(workspace, sandbox=sandbox)
    assessment = runner.assess(bash_exec, command=command.format(work=workspace))
    place = MOVES[command]
    reason = f"It moves files to {place}: what is moved there is lost when the command ends."
    assert (decide("accept_edits", assessment).decision, reason in assessment.reasons) == (
        ("allow", False) if place is None else ("ask", True)
    )


@pytest.mark.anyio
async def test_a_command_that_moved_files_to_where_they_are_lost_says_so(sandbox, make_runner, workspace) -> None:
    runner = make_runner(workspace, sandbox=sandbox)
    (workspace / "a").touch()
    assert "lost" not in await runner.call(bash_exec, command="mv a b")
    result = await runner.call(bash_exec, command="mv b /tmp")
    assert result == "(no output)\n[exit code 0]\n[What the command moved to /tmp is lost: that ended with it.]"
