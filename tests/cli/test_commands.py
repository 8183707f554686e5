"""Command lookup: help, version, misspelt names, and commands that other packages add."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agenticx import __version__
from studio.http.openapi import openapi_document
from studio.routes.table import TABLE


def test_help_lists_every_command_on_stdout(agx: Any) -> None:
    done = agx("--help")
    assert (done.returncode, done.stderr) == (0, "")
    for command in ("run", "chat", "model", "permissions", "doctor", "serve", "open"):
        assert f"\n  {command} " in done.stdout


@pytest.mark.ci_lane
def test_help_shows_the_help_of_a_command_or_action(agx: Any) -> None:
    for command in re.findall(r"^  (\w+) +", agx("--help").stdout.partition("examples:")[0], re.MULTILINE):
        done = agx("help", command)
        assert done.returncode == 0
        assert done.stdout.startswith(f"usage: agx {command} ")
    for words in (["sessions", "rewind"], ["model", "call"]):
        assert agx("help", *words).stdout == agx(*words, "--help").stdout
    assert agx("help", "rnu").returncode == 2


@pytest.mark.ci_lane
def test_openapi_prints_the_document_of_the_server_without_one(agx: Any) -> None:
    done = agx("openapi")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == openapi_document(TABLE)


def test_models_are_listed_with_the_reason(agx: Any) -> None:
    agx.environment["OPENAI_API_KEY"] = "sk-not-a-key-but-long-enough"
    done = agx("models")
    assert (done.returncode, done.stderr) == (0, "")
    listed = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert "AGX_MODEL" in listed["demo"]
    assert any(name.startswith("openai:") and line.endswith("OPENAI_API_KEY is set") for name, line in listed.items())
    rows = [json.loads(line) for line in agx("models", "--json").stdout.splitlines()]
    assert [row["model"] for row in rows] == list(listed)
    assert "sk-not" not in done.stdout
    assert not Path(agx.environment["AGX_HOME"]).exists()


def test_the_package_is_the_same_program(agx: Any) -> None:
    command = [sys.executable, "-m", "agenticx", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == agx("--version").stdout


def test_without_a_command_the_help_is_printed(agx: Any) -> None:
    assert agx().stdout == agx("--help").stdout


def test_help_imports_no_large_packages() -> None:
    script = (
        "import sys; from agenticx.cli import main; main(['--help']);"
        "sys.exit(str({'pydantic', 'rich', 'httpx', 'asyncio', 'structlog', 'uvicorn'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "set()"


def test_version_is_the_installed_one(agx: Any) -> None:
    assert agx("--version").stdout == f"agx {__version__}\n"


def test_an_unknown_command_is_a_usage_error_with_the_nearest_ones(agx: Any) -> None:
    done = agx("modle", "call")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "agx: unknown command 'modle'; did you mean `agx mode` or `agx model`?\n"


def test_an_option_in_place_of_the_command_is_explained(agx: Any) -> None:
    done = agx("--model", "demo")
    assert done.returncode == 2
    assert done.stderr == (
        "agx: unknown command '--model'; options come after the command; agx --help shows the commands\n"
    )


def test_bad_arguments_are_a_usage_error_on_stderr(agx: Any) -> None:
    done = agx("run")
    assert (done.returncode, done.stdout) == (2, "")
    assert "the following arguments are required: TASK" in done.stderr


def test_a_bad_setting_is_refused_at_start_by_name_and_range(agx: Any) -> None:
    agx.environment["AGX_LLM_HARD_TIMEOUT_SECONDS"] = "soon"
    done = agx("run", "hello")
    assert (done.returncode, done.stdout) == (2, "")
    assert "AGX_LLM_HARD_TIMEOUT_SECONDS is 'soon'; it must be a decimal number from 0.05 to 86400" in done.stderr


_GREET = """
class Greet:
    name = "greet"
    summary = "Say hello"
    def configure(self, parser):
        parser.add_argument("who")
    def run(self, arguments):
        print("hello", arguments.who)
        return 7
GREET = Greet()
"""


def test_a_package_can_add_commands_and_one_that_cannot_be_imported_is_only_listed(agx: Any, tmp_path: Path) -> None:
    site = tmp_path / "site"
    info = site / "greeting-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "greeting.py").write_text(_GREET)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[agenticx.commands]\ngreet = greeting:GREET\nbroken = missing_module:X\n")
    agx.environment["PYTHONPATH"] = str(site)
    done = agx("greet", "you")
    assert (done.returncode, done.stdout, done.stderr) == (7, "hello you\n", "")

    help_text = agx("--help").stdout
    assert "  greet        Say hello\n" in help_text
    assert "  broken       (cannot be loaded: No module named 'missing_module')\n" in help_text
