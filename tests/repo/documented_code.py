"""The code in README and in docstrings, and the means to run it as a user would."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from textwrap import dedent

from tests.support.forked import Process
from tests.support.timeouts import PATIENCE

__all__ = [
    "BIN",
    "README",
    "ROOT",
    "CodeBlock",
    "clean_environment",
    "code_blocks",
    "copy_project",
    "docstring_example",
    "lend_packages",
    "run",
    "run_forked",
]

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BIN = Path(sys.executable).parent

_NOT_LENT = ("agenticx", "_agenticx", "pip", "setuptools", "_distutils_hack", "distutils-precedence")


@dataclass(frozen=True)
class CodeBlock:
    """A fenced block; `language` is empty if its fence names none."""

    language: str
    text: str


def code_blocks(markdown: str) -> list[CodeBlock]:
    """Return the fenced blocks of a document in order."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", markdown, re.MULTILINE | re.DOTALL)
    return [CodeBlock(language, text) for language, text in found]


def docstring_example(module: str, number: int = 0) -> str:
    """Return an indented block of a module's docstring, by default the first."""
    blocks = re.findall(r"(?:^    .*\n|^\n(?=\n?    ))+", f"{inspect.getdoc(import_module(module))}\n", re.MULTILINE)
    return dedent(blocks[number]).strip() + "\n"


def clean_environment(home: Path) -> dict[str, str]:
    """Return our environment without the variables that the user or the test run has set."""
    ours = ("AGX_", "PYTEST_", "COV_", "OPENAI_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return kept | {"HOME": str(home), "AGX_MODEL": "demo"}


def run(command: list[str], folder: Path, **environment: str) -> str:
    """Run a command and return its standard output; fail with all of its output unless it exits with 0."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=clean_environment(folder) | environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_forked(module: str, *arguments: str, folder: Path, stdin: str = "") -> str:
    """Run `python -m module arguments` in a process that has imported AgenticX, which takes a tenth of the time."""
    with Process(module, arguments, cwd=folder, env=clean_environment(folder)) as process:
        try:
            out, errors = process.communicate(stdin, timeout=PATIENCE)
        finally:
            process.kill()
    assert process.returncode == 0, out + errors
    return out


# --- installing from the folder ---------------------------------------------------------------------------------------


def copy_project(target: Path) -> Path:
    """Copy what is installed, and the tests, to a folder without an environment."""
    unwanted = shutil.ignore_patterns("__pycache__", "node_modules")
    for folder in ("agenticx", "studio", "config", "tests"):
        shutil.copytree(ROOT / folder, target / folder, ignore=unwanted)
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, target / file)
    return target


def lend_packages(folder: Path) -> dict[str, str]:
    """Return the variables with which `pip install` of a fresh environment needs no network.

    The packages that it would fetch, the build backend included, are lent by this environment.
    """
    folder.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith(_NOT_LENT):
            (folder / entry.name).symlink_to(entry)
    return {
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(folder),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # pip takes the value for `--build-isolation`
        "PIP_NO_DEPS": "1",
        "PIP_NO_INDEX": "1",
    }
