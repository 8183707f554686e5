"""The README: every block of it runs, and its commands, settings, figures and links are right."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import IO

import httpx
import pytest

from agenticx.guide import guide_pages
from agenticx.settings import Settings
from tests.benchmarks import loop_corpus
from tests.linear.measure import MAX_HOLD, MAX_RATIO
from tests.repo.documented_code import (
    README,
    ROOT,
    clean_environment,
    code_blocks,
    copy_project,
    lend_packages,
    run,
    run_forked,
)
from tests.support.program import PROGRAM
from tests.support.timeouts import PATIENCE

BLOCKS = code_blocks(README)
RUN: list[str] = []
"""The blocks that a test runs."""


def runs(language: str, marker: str) -> pytest.MarkDecorator:
    """Give a test, as `block`, the one block in that language that contains `marker`."""
    (found,) = [block.text for block in BLOCKS if block.language == language and marker in block.text]
    RUN.append(found)
    return pytest.mark.parametrize("block", [pytest.param(found, id=language)])


def test_every_block_is_run() -> None:
    assert README.count("```") == 2 * len(BLOCKS)
    assert [block.text for block in BLOCKS if block.text not in RUN] == []
    assert re.findall(r"\n\n(?: {4}|\t).*", README) == [], "a block without fences"


# --- the two commands -------------------------------------------------------------------------------------------------


@pytest.mark.cases(quick=0)
@runs("bash", "agx serve")
def test_the_first_command_installs_the_project_and_starts_the_studio(block: str, tmp_path: Path) -> None:
    project = copy_project(tmp_path / "project")
    environment = clean_environment(tmp_path) | lend_packages(tmp_path / "lent")
    command = ["bash", "-euc", block.replace("agx serve", "agx serve --port 0")]
    server = subprocess.Popen(
        command, cwd=project, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert server.stderr is not None
        assert httpx.get(f"{printed_address(server.stderr)}/api/health", timeout=PATIENCE).json()["status"] == "ok"
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.communicate(timeout=PATIENCE)
    assert (tmp_path / ".agenticx").is_dir()
    assert not (tmp_path / ".agenticx" / "studio.json").exists()


def printed_address(stderr: IO[str]) -> str:
    """Return the address that a starting studio prints."""
    lines: list[str] = []
    for line in stderr:
        if ready := re.search(r"(http://127\.0\.0\.1:\d+)/#", line):
            return ready[1]
        lines.append(line)
    pytest.fail("".join(lines))


@pytest.mark.cases(quick=0)
@runs("bash", "pytest -n auto")
def test_the_second_command_installs_the_project_and_runs_tests(block: str, tmp_path: Path) -> None:
    project, environment = copy_project(tmp_path / "project"), lend_packages(tmp_path / "lent")
    scripts = project / ".venv" / "bin"
    scripts.mkdir(parents=True)
    (scripts / "pytest").write_text('#!/bin/sh\nexec "$(dirname "$0")/python" -m pytest "$@"\n')  # pip fetches nothing
    (scripts / "pytest").chmod(0o755)
    out = run(["bash", "-euc", f"{block.strip()} tests/unit/tools/test_schema.py"], project, **environment)
    assert re.search(r"\d+ passed", out)


def test_the_two_commands_install_from_the_folder_and_never_from_an_index() -> None:
    assert re.findall(r"pip install (?!-q \.| ?-q -e \"\.)", README) == []
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert {"test"} == set(re.findall(r"pip install -q -e \"\.\[(\w+)\]\"", README)) <= extras.keys()


# --- the library ------------------------------------------------------------------------------------------------------


@runs("python", 'run_sync("say hello"')
def test_the_first_example_prints_the_answer(block: str, tmp_path: Path) -> None:
    assert run([sys.executable, "-c", block], tmp_path) == "hello\n"


@runs("python", "handoffs=[billing]")
def test_the_example_of_a_handoff_prints_the_result(block: str, tmp_path: Path) -> None:
    assert run_forked(PROGRAM, block, folder=tmp_path) == "billing hi\n"


@runs("python", "match event.type")
def test_the_streaming_example_approves_a_call_and_prints_the_answer(block: str, tmp_path: Path) -> None:
    first, *lines = run_forked(PROGRAM, block, folder=tmp_path).splitlines()
    assert first == "I'll write hello.txt.file_write {'path': 'hello.txt', 'content': 'Hello'}"
    assert lines
    assert (tmp_path / "hello.txt").read_text("utf-8") == "Hello"


@runs("python", "open_hub")
def test_the_example_of_a_hub_prints_a_call_and_the_answer_each_time_it_runs(block: str, tmp_path: Path) -> None:
    (tmp_path / "here.txt").touch()
    for _ in range(2):
        lines = run_forked(PROGRAM, block, folder=tmp_path).splitlines()
        assert [line.split()[0] for line in lines] == ["tool_call", "final", "hello"]
        assert "'list_files'" in lines[0]
        assert "here.txt" in lines[1]
        assert "chat.db" not in lines[1]  # the store is not the agent's
    assert (tmp_path / "chat.db").is_file()


# --- the terminal -----------------------------------------------------------------------------------------------------


@runs("bash", "agx chat")
def test_the_commands_of_the_terminal_section_work(block: str, tmp_path: Path) -> None:
    printed: dict[str, str] = {}
    for line in block.splitlines():
        program, *words = shlex.split(line)
        assert program == ".venv/bin/agx"
        typed = "say good day\n" if words[0] == "chat" else ""
        printed[" ".join(words)] = run_forked("agenticx.cli", *words, folder=tmp_path, stdin=typed)
    assert (tmp_path / "hello.txt").read_text(encoding="utf-8") == "Hello"
    assert "Hello" in printed["run -c Read hello.txt"]
    assert printed["chat"] == printed["chat -c"] == "good day\n"
    assert len(printed["sessions list"].splitlines()) == 3
    assert "good day" in printed["sessions show last"]
    assert printed["sessions export last --format markdown"].count("## Assistant\n\ngood day\n") == 2
    assert not [words for words, text in printed.items() if "failed" in text]


def test_every_agx_command_named_exists(tmp_path: Path) -> None:
    named = set(re.findall(r"(?<=`)agx (\w+)", README)) - {"help"}
    help_text = run_forked("agenticx.cli", "--help", folder=tmp_path)
    offered = set(re.findall(r"^  (\w+) +", help_text, re.MULTILINE))
    assert named
    assert named - offered == set()


# --- settings, figures, links -----------------------------------------------------------------------------------------


def test_the_settings_table_matches_the_code() -> None:
    rows = re.findall(r"^\| `AGX_(\w+)` \| (?:`(.*?)`)? ?\|", README, re.MULTILINE)
    assert len(rows) > 10
    for name, default in rows:
        field = Settings.model_fields[name.lower()]
        assert default == (str(field.default) if field.default else "0" if field.default == 0 else ""), name


def test_the_figures_are_those_that_their_commands_print() -> None:
    sequences = [sequence for file in loop_corpus.FILES for sequence in loop_corpus.corpus(file)]
    figures = loop_corpus.measure(sequences)
    text = " ".join(README.split())
    assert f"On {len(sequences)} labelled sequences" in text
    assert f"precision {figures.precision:.3f} and recall {figures.recall:.3f}" in text
    assert f"more than {MAX_HOLD * 1000:.0f} ms with a megabyte" in text
    assert f"at most {MAX_RATIO} times as long" in text


def test_every_page_of_the_guide_is_linked() -> None:
    linked = set(re.findall(r"\]\(agenticx/guide/([\w-]+)\.md\)", README))
    assert linked == {page.name for page in guide_pages()}


def test_every_module_and_file_named_exists() -> None:
    modules = re.findall(r"python -m ([\w.]+)", README) + re.findall(
        r"`(?:python -m pydoc )?((?:agenticx|studio)\.[\w.]+)`", README
    )
    assert len(modules) > 6
    for module in modules:
        assert find_spec(module), module
    for path in re.findall(r"\]\(([\w./-]+)(?:#[\w-]+)?\)", README) + re.findall(r"`(tests/[\w./-]+)`", README):
        assert (ROOT / path).exists(), path
