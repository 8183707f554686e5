"""`agx trust`: AGENTS.md files shown, trusted by their content, listed, and trusted no more."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.ci_lane
def test_files_are_trusted_without_a_terminal_by_yes_alone_listed_and_removed(agx: Any, tmp_path: Path) -> None:
    file, digest = agx.folder / "AGENTS.md", hashlib.sha256(b"Use tabs.").hexdigest()[:12]
    assert agx("trust").stderr == "agx trust: no AGENTS.md applies in this folder\n"
    file.write_text("Use tabs.")
    finding = f"--  instructions {file} is not trusted yet; `agx trust` shows it and asks\n"
    assert finding in agx("doctor").stdout
    explain = ("permissions", "explain", "bash_exec", '{"command": "make"}', "--permission-mode", "auto")
    agx.environment["AGX_SANDBOX"] = "off"
    asks = agx(*explain).stdout
    assert asks.startswith("ask (rule: untrusted)\n")
    assert "  AGENTS.md counts as written by others until you trust it: `agx trust`." in asks

    refused = agx("trust")
    assert (refused.returncode, refused.stdout) == (2, f"{file}: 9 bytes\n\n  Use tabs.\n\n")
    assert refused.stderr == "agx trust: nobody can be asked here; --yes trusts it without a question\n"
    trusted = agx("trust", "--yes", "AGENTS.md", "other.md")
    assert (trusted.returncode, trusted.stdout) == (1, "")
    assert trusted.stderr == (
        f"agx trust: {file} is trusted from now on ({digest})\n"
        f"agx trust: {agx.folder / 'other.md'} is no AGENTS.md with text in it\n"
    )
    assert agx("trust").stderr == f"agx trust: {file} is trusted\n"
    assert agx(*explain).stdout.startswith("allow (rule: auto)\n")
    assert "is not trusted yet" not in agx("doctor").stdout
    (line,) = agx("trust", "--list").stdout.splitlines()
    assert (line.split()[0], line.split()[2]) == (digest, str(file))

    file.write_text("Use spaces.")
    assert "is not trusted yet" in agx("doctor").stdout
    assert agx("trust", "--remove").stderr == f"agx trust: {file} is trusted no more ({digest})\n"
    again = agx("trust", "--remove")
    assert (again.returncode, agx("trust", "--list").stdout) == (1, "")


def test_at_a_terminal_the_content_is_shown_and_what_was_shown_is_trusted(
    agx: Any, terminal: Callable[..., Any]
) -> None:
    file = agx.folder / "AGENTS.md"
    file.write_text("Use\u202e tabs.\n" + "more\n" * 50)
    screen = terminal("trust")
    screen.wait_for("  Use⟨U+202E⟩ tabs.\n  more\n")
    screen.wait_for("  … 11 more lines: read them in the file before you trust it\n")
    screen.wait_for("Trust this content? [y/N]: ")
    screen.type("n\n")
    screen.wait_for("is not trusted\n")
    assert screen.exit_code() == 1

    screen = terminal("trust")
    screen.wait_for("Trust this content? [y/N]: ")
    file.write_text("Something else.")
    screen.type("y\n")
    screen.wait_for(", which was shown, is trusted, what it has now is not; `agx trust` shows that\n")
    assert screen.exit_code() == 1
    screen = terminal("chat")
    screen.wait_for("instructions: AGENTS.md\n")
    screen.wait_for("not trusted yet: AGENTS.md; `agx trust` there changes that\n")
    screen.type("\x04")
    assert screen.exit_code() == 0


@pytest.mark.ci_lane
def test_a_question_at_a_terminal_is_answered_once_the_file_is_trusted_in_another_one(
    agx: Any, terminal: Callable[..., Any]
) -> None:
    (agx.folder / "AGENTS.md").write_text("Use tabs.")
    agx.environment["AGX_SANDBOX"] = "off"
    chat = terminal("chat", "--permission-mode", "auto")
    chat.wait_for("› ")
    chat.type("run touch made\r")
    chat.wait_for("AGENTS.md counts as written by others until you trust it: `agx trust`.")
    chat.wait_for("[e]dit: ")
    assert agx("trust", "--yes").returncode == 0
    chat.wait_for("› ")
    assert (agx.folder / "made").exists()
    chat.type("\x04")
    assert chat.exit_code() == 0


@pytest.mark.ci_lane
def test_a_question_that_waits_is_asked_anew_once_the_file_is_trusted(agx: Any, terminal: Callable[..., Any]) -> None:
    (agx.folder / "AGENTS.md").write_text("Use tabs.")
    run = terminal("run", "Write note.txt with the text hi")
    run.wait_for("AGENTS.md counts as written by others until you trust it")
    run.wait_for("[e]dit: ")
    assert agx("trust", "--yes").returncode == 0
    run.wait_for("\n  The reasons for the question have changed: it is asked anew.")
    at = len(run.screen)
    run.wait_for("[e]dit: ")
    run.type("y\n")
    run.wait_for("← file_write ok")
    assert run.exit_code() == 0
    assert "AGENTS.md" not in run.screen[at:]
