"""Completion of the words of `agx` in shells, set up as a user sets it up."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

INSTALLATIONS = {
    "bash": ("bash-completion/agx", ".bashrc"),
    "zsh": ("functions/_agx", ".zshrc"),
    "fish": (".config/fish/completions/agx.fish", ".config/fish/config.fish"),
}
"""Where the script of each shell is stored, and the file that an interactive shell reads first."""

STARTUP_FILES = {
    "bash": """\
PS1="ready> "
source ~/bash-completion/agx
bind -x '"\\C-x": printf "<%s>\\n" "$READLINE_LINE"'
""",
    "zsh": """\
PS1="ready> "
fpath=(~/functions $fpath)
autoload -U compinit && compinit -u
print-line() { print -r -- "<$BUFFER>" }
zle -N print-line
bindkey "^X" print-line
""",
    "fish": "",
}

LINES = {
    "agx cha": "chat",
    "agx sessions ren": "rename",
    "agx chat --mo": "--model",
    "agx help comp": "completion",
    "agx run 'two words' --perm": "--permission-mode",
    "agx run --permission-mode ac": "accept_edits",
    "agx chat --model openai:gpt-4.1-m": "openai:gpt-4.1-mini",
    "agx chat --model=openai:gpt-4.1-m": "--model=openai:gpt-4.1-mini",
    "agx team run tri": "triage",
    "agx team run triage --a": "--attach",
    "agx chat --agent pa": "page-builder",
    "agx sessions export la": "last",
    "agx run --attach two": "two\\ words.txt",
    "agx run --cwd fol": "folder/",
    "true; agx cha": "chat",
}
"""Lines, and the only completion of the last word of each."""


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("agx cha", ["chat"]),
        ("agx sessions re", ["rename", "replay", "rewind"]),
        ("agx sessions list --j", ["--json"]),
        ("agx completion ", ["bash", "fish", "zsh"]),
        ("agx serve --po", ["--port"]),
        ("agx run --permission-mode a", ["accept_edits", "auto"]),
        ("agx run -m d", ["demo"]),
        ("agx chat --model openai:gpt-4.1-m", ["gpt-4.1-mini"]),
        ("agx chat --session la", ["last"]),
    ],
)
@pytest.mark.cases(quick=1)
def test_bash_completes_commands_actions_options_and_values(agx: Any, typed: str, expected: list[str]) -> None:
    script = agx("completion", "bash").stdout
    agx.environment |= {"OPENAI_API_KEY": "key", "PATH": f"{Path(sys.executable).parent}:{agx.environment['PATH']}"}
    ask = f"COMP_LINE={shlex.quote(typed)}; COMP_POINT={len(typed)}; _agx; echo ${{COMPREPLY[@]}}"
    command = ["bash", "-euc", f"{script}\n{ask}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=agx.environment)
    assert sorted(set(done.stdout.split()) - {"-h", "--help"}) == expected


@pytest.mark.ci_lane
def test_sessions_are_read_without_making_or_owning_the_store(agx: Any) -> None:
    assert agx("completion", "--values", "session").stdout == "last\n"
    assert not Path(agx.environment["AGX_HOME"]).exists()
    agx("run", "hello")
    [session] = agx("sessions", "list", "--json").stdout.splitlines()
    assert agx("completion", "--values", "session").stdout.split() == ["last", json.loads(session)["id"]]


@pytest.fixture
def home(agx: Any) -> Path:
    """The home folder of a user, with files in the current folder and the key of a provider."""
    (agx.folder / "two words.txt").touch()
    (agx.folder / "folder").mkdir()
    agx.environment |= {"OPENAI_API_KEY": "key", "PATH": f"{Path(sys.executable).parent}:{agx.environment['PATH']}"}
    return Path(agx.environment["HOME"])


def install(agx: Any, home: Path, shell: str) -> str:
    """Install the completion for a shell, and return the program; skip the test if that is missing."""
    if (program := shutil.which(shell)) is None:
        pytest.skip(f"needs {shell}")
    script, startup_file = (home / name for name in INSTALLATIONS[shell])
    script.parent.mkdir(parents=True)
    script.write_text(agx("completion", shell).stdout)
    startup_file.write_text(STARTUP_FILES[shell])
    return program


@pytest.mark.parametrize("shell", ["bash", "zsh"])
@pytest.mark.ci_lane
def test_tab_completes_the_last_word(agx: Any, home: Path, interactive_shell: Callable[[str], Any], shell: str) -> None:
    terminal = interactive_shell(install(agx, home, shell))
    for line, word in LINES.items():
        terminal.wait_for("ready> ")
        terminal.type(f"{line}\t\x18")
        before, space = line[: line.rindex(" ") + 1], "" if word.endswith("/") else " "
        terminal.wait_for(f"<{before}{word}{space}>")
        terminal.type("\x15\r")


@pytest.mark.ci_lane
def test_fish_offers_the_same_words(agx: Any, home: Path) -> None:
    program = install(agx, home, "fish")
    ask = "; ".join(f"complete -C {shlex.quote(line)}" for line in LINES)
    command = [program, "-c", ask]
    done = subprocess.run(command, cwd=agx.folder, env=agx.environment, capture_output=True, text=True, check=True)
    assert [line.partition("\t")[0] for line in done.stdout.splitlines()] == [
        word.replace("\\", "") for word in LINES.values()
    ]
