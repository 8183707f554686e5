"""What the machine does to `agx` is said in a sentence: no traceback, no claim that it is a bug."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def under_a_shell(agx: Any, program: str) -> subprocess.CompletedProcess[str]:
    """Run a shell program in which `"$@"` is `agx`."""
    return subprocess.run(
        ["sh", "-c", program, "sh", sys.executable, "-m", "agenticx.cli"],
        cwd=agx.folder,
        env=agx.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )


@pytest.mark.parametrize("command", ["run hi", "chat", "permissions explain file_read {}"])
def test_a_current_folder_that_is_gone_is_said(agx: Any, command: str) -> None:
    done = under_a_shell(agx, f'mkdir gone && cd gone && rmdir ../gone && exec "$@" {command}')
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "agx: the current folder was deleted; change to another one\n"


def test_doctor_still_answers_in_a_folder_that_is_gone(agx: Any) -> None:
    done = under_a_shell(agx, 'mkdir gone && cd gone && rmdir ../gone && exec "$@" doctor')
    assert done.returncode == 1
    assert "!!  settings     the current folder was deleted; change to another one\n" in done.stdout


@pytest.mark.parametrize("command", ['"$@" run "say hi"', '"$@" run "say hi" --json', '"$@" --help'])
def test_a_full_disk_is_said(agx: Any, command: str) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    done = under_a_shell(agx, f"{command} >/dev/full")
    assert done.returncode == 1
    assert done.stderr.startswith("agx: ")
    assert done.stderr.count("\n") == 1
    assert "No space left on device" in done.stderr


def test_closed_streams_read_nothing_and_take_all(agx: Any) -> None:
    done = under_a_shell(agx, '"$@" run "Write a.txt with the text hi" --yes <&- >&-')
    assert (done.returncode, done.stdout, (agx.folder / "a.txt").read_text()) == (0, "", "hi")
    assert "Traceback" not in done.stderr
    assert under_a_shell(agx, '"$@" run "say hi" <&- >&- 2>&-').returncode == 0


def test_a_home_that_cannot_be_made_is_said(agx: Any) -> None:
    agx.environment["AGX_HOME"] = "/proc/none"
    done = agx("serve", "--port", "0")
    assert done.returncode in (1, 2)
    assert "/proc/none" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_sentence_is_one_line_whatever_it_names(agx: Any) -> None:
    done = agx("run", "hi", "--cwd", "x\x1b[2J\nagx: all is well")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "\x1b" not in done.stderr


INTERRUPTED = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "agenticx.cli.commands":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
from agenticx.cli import main
sys.exit(main(["run", "hi"]))
"""


def test_ctrl_c_while_the_command_is_being_loaded_is_a_plain_130(agx: Any) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED],
        env=agx.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
