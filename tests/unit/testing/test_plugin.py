"""The pytest plugin in a project that only has AgenticX installed, and the package's own example."""

from __future__ import annotations

import pydoc
import subprocess
import sys
import textwrap

import pytest

import agenticx.testing
from tests.repo.documented_code import docstring_example


def pytest_run(folder, code, *options):
    """Run a test file in a new pytest without Hypothesis, whose import takes half of the time."""
    (folder / "test_it.py").write_text(textwrap.dedent(code))
    without = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")
    command = [sys.executable, "-m", "pytest", "-q", *without, "--basetemp=tmp", *options, "."]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)


def test_pydoc_lists_the_names_of_the_package():
    text = pydoc.render_doc(agenticx.testing, renderer=pydoc.plaintext)
    assert [name for name in agenticx.testing.__all__ if f" {name}(" not in text and f" {name} = " not in text] == []


@pytest.mark.ci_lane
def test_fixtures_are_available_without_an_import(tmp_path):
    run = pytest_run(
        tmp_path,
        """
        import asyncio
        from agenticx.llms.base import ModelRequest, complete

        def test_fixtures(agx_session, agx_clock, scripted_model, scripted_gate, fake_openai_server, tmp_path):
            assert agx_session.workspace == tmp_path
            assert agx_clock.real(100) == 1
            reply, _ = asyncio.run(complete(scripted_model(["hi"]), ModelRequest(messages=[])))
            assert reply.text == "hi"
        """,
    )
    assert (run.returncode, run.stdout.splitlines()[-1][:8]) == (0, "1 passed"), run.stdout + run.stderr


@pytest.mark.ci_lane
def test_unused_replies_and_answers_fail_the_test(tmp_path):
    run = pytest_run(
        tmp_path,
        """
        def test_model(scripted_model):
            scripted_model(["hi"])

        def test_gate(scripted_gate):
            scripted_gate(True)
        """,
    )
    assert run.returncode == 1
    assert "1 of 1 replies of model 'scripted' were never asked for" in run.stdout
    assert "the gate has 1 answers and was asked 0 times" in run.stdout


@pytest.mark.ci_lane
def test_an_unused_plugin_imports_nothing(tmp_path):
    run = pytest_run(
        tmp_path,
        """
        import sys

        def test_imports():
            heavy = {"pydantic", "httpx", "structlog", "agenticx.runtime", "agenticx.llms", "anyio.from_thread"}
            assert heavy & set(sys.modules) == set()
        """,
        *("-p", "no:anyio"),
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_public_names_are_sorted_and_exist():
    assert agenticx.testing.__all__ == sorted(agenticx.testing.__all__)
    for name in agenticx.testing.__all__:
        assert getattr(agenticx.testing, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nope'"):
        _ = agenticx.testing.nope


@pytest.mark.ci_lane
@pytest.mark.parametrize("number", [0, 1])
def test_an_example_of_the_docstring_runs(tmp_path, number):
    run = pytest_run(tmp_path, docstring_example("agenticx.testing", number), "-W", "error")
    assert (run.returncode, run.stdout.splitlines()[-1][:8]) == (0, "1 passed"), run.stdout + run.stderr
