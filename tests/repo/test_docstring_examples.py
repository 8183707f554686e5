"""The examples in docstrings run, with the results that they describe."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.repo.documented_code import clean_environment, docstring_example, run, run_forked
from tests.support.forked import Process
from tests.support.program import PROGRAM
from tests.support.timeouts import PATIENCE


def test_the_example_of_the_package_runs(tmp_path: Path) -> None:
    assert run_forked(PROGRAM, docstring_example("agenticx"), folder=tmp_path) == "hello\n"


def test_the_output_type_example_returns_the_object(tmp_path: Path) -> None:
    example = docstring_example("agenticx.runtime.run_results")
    assert run_forked(PROGRAM, example, folder=tmp_path) == "name='Lyon' rivers=['Rhône', 'Saône']\n"


def test_the_example_of_agents_prints_the_result(tmp_path: Path) -> None:
    out = run_forked(PROGRAM, docstring_example("agenticx.core"), folder=tmp_path)
    assert out == "True Billing that it is paid\n"


def test_the_preview_arguments_example_prints_partial_arguments(tmp_path: Path) -> None:
    lines = run_forked(PROGRAM, docstring_example("agenticx.llms.arguments"), folder=tmp_path).splitlines()
    assert lines == ["look_up {'name': 'Ad'}", "look_up {'name': 'Ada Lovelace'}"]


def test_the_example_of_a_tool_a_gate_and_a_hook_runs(tmp_path: Path) -> None:
    example = docstring_example("agenticx.runtime.hooks")
    lines = run_forked(PROGRAM, example, folder=tmp_path).splitlines()
    kinds = [line.split()[0] for line in lines]
    assert (kinds[-1], kinds.count("confirm_required")) == ("final", 1)
    assert any("'sent to a@example.com'" in line for line in lines if line.startswith("tool_result"))
    stranger = run_forked(PROGRAM, example.replace('"a@example.com"', '"a@evil.example"'), folder=tmp_path)
    assert "'outcome': 'denied'" in stranger
    secret = run_forked(PROGRAM, example.replace('"hi"', '"password"'), folder=tmp_path)
    assert "That is a secret." in secret
    assert "confirm_required" not in secret


@pytest.mark.ci_lane
@pytest.mark.skipif(not shutil.which("curl"), reason="needs curl")
def test_the_http_example_writes_the_file_and_ends_in_one_terminal_event(tmp_path: Path) -> None:
    server = Process(
        "agenticx.cli",
        ["serve", "--port", "0"],
        cwd=tmp_path,
        env=clean_environment(tmp_path),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    try:
        assert server.stderr is not None
        ready = re.search(r"http://127\.0\.0\.1:(\d+)/#", server.stderr.readline())
        assert ready is not None
        out = run(["bash", "-euc", docstring_example("studio").replace("8765", ready[1])], tmp_path)
    finally:
        server.terminate()
        server.communicate(timeout=PATIENCE)
    assert (tmp_path / "hello.txt").read_text(encoding="utf-8") == "Hello"
    kinds = re.findall(r'^data: {"type":"(\w+)"', out, re.MULTILINE)
    assert (kinds[0], kinds[-1], kinds.count("final")) == ("turn_started", "final", 1)
    assert kinds.index("confirm_required") < kinds.index("confirm_response") < kinds.index("tool_result")
