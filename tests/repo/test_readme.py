"""The README: its Python and its tour run, and its commands and settings exist."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from agenticx.settings import Settings
from tests.support.forked import Process
from tests.support.program import PROGRAM
from tests.support.timeouts import PATIENCE

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BIN = Path(sys.executable).parent


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def clean_environment(home: Path) -> dict[str, str]:
    """Return our environment without the variables that the user or the test run has set."""
    ours = ("AGX_", "PYTEST_", "COV_", "OPENAI_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return kept | {"HOME": str(home), "AGX_MODEL": "demo"}


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(
        command, cwd=folder, env=clean_environment(folder), capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_forked(module: str, *arguments: str, folder: Path) -> str:
    """Run `python -m module arguments` in a process that has imported AgenticX, which takes a tenth of the time."""
    with Process(module, arguments, cwd=folder, env=clean_environment(folder)) as process:
        try:
            out, errors = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert process.returncode == 0, out + errors
    return out


def test_the_first_library_example_prints_the_answer(tmp_path: Path) -> None:
    (example,) = [block for block in blocks("python") if 'run_sync("say hello"' in block]
    assert run([sys.executable, "-c", example], tmp_path) == "hello\n"


def test_the_example_of_a_hub_prints_a_call_and_the_answer_each_time_it_runs(tmp_path: Path) -> None:
    (example,) = [block for block in blocks("python") if "open_hub" in block]
    (tmp_path / "here.txt").touch()
    for _ in range(2):
        lines = run_forked(PROGRAM, example, folder=tmp_path).splitlines()
        assert [line.split()[0] for line in lines] == ["tool_call", "final"]
        assert "'list_files'" in lines[0]
        assert "here.txt" in lines[1]
        assert "chat.db" not in lines[1]  # the store is not the agent's
    assert (tmp_path / "chat.db").is_file()


def test_the_output_type_example_returns_the_object(tmp_path: Path) -> None:
    (example,) = [block for block in blocks("python") if "output_type" in block]
    assert run_forked(PROGRAM, example, folder=tmp_path) == "name='Lyon' rivers=['Rhône', 'Saône']\n"


def test_the_preview_arguments_example_prints_partial_arguments(tmp_path: Path) -> None:
    (example,) = [block for block in blocks("python") if "preview_arguments" in block]
    lines = run_forked(PROGRAM, example, folder=tmp_path).splitlines()
    assert lines == ["look_up {'name': 'Ad'}", "look_up {'name': 'Ada Lovelace'}"]


def test_the_example_of_a_tool_a_gate_and_a_hook_runs(tmp_path: Path) -> None:
    (example,) = [block for block in blocks("python") if "class NoSecrets(AgentHook)" in block]
    lines = run_forked(PROGRAM, example, folder=tmp_path).splitlines()
    kinds = [line.split()[0] for line in lines]
    assert (kinds[-1], kinds.count("confirm_required")) == ("final", 1)
    assert any("'sent to a@example.com'" in line for line in lines if line.startswith("tool_result"))
    stranger = run_forked(PROGRAM, example.replace('"a@example.com"', '"a@evil.example"'), folder=tmp_path)
    assert "'outcome': 'denied'" in stranger
    secret = run_forked(PROGRAM, example.replace('"hi"', '"password"'), folder=tmp_path)
    assert "That is a secret." in secret
    assert "confirm_required" not in secret


def test_the_test_example_passes(tmp_path: Path) -> None:
    (example,) = [block for block in blocks("python") if "def test_" in block]
    (tmp_path / "test_example.py").write_text(example, encoding="utf-8")
    without = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")
    assert "1 passed" in run([sys.executable, "-m", "pytest", *without, "test_example.py"], tmp_path)


@pytest.mark.skipif(not shutil.which("node"), reason="needs node")
def test_the_example_of_a_desktop_app_prints_a_turn_and_ends(tmp_path: Path) -> None:
    (example,) = blocks("js")
    (tmp_path / "app.mjs").write_text(example, encoding="utf-8")
    environment = clean_environment(tmp_path)
    environment["PATH"] = f"{BIN}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        ["node", "app.mjs"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    assert '"type":"final","data":{"text":"hello"' in done.stdout
    assert not (tmp_path / ".agenticx" / "studio.json").exists()


def test_the_example_of_an_own_studio_can_be_served(tmp_path: Path) -> None:
    (example,) = [block for block in blocks("python") if "create_app" in block]
    (tmp_path / "my_studio.py").write_text(example, encoding="utf-8")
    arguments = ["serve", "--json", "--port", "0", "--exit-with-parent", "--app", "my_studio:app"]
    with Process("agenticx.cli", arguments, cwd=tmp_path, env=clean_environment(tmp_path)) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline().startswith('{"url": "http://127.0.0.1:')
        process.stdin.close()
        assert process.wait(PATIENCE) == 0


@pytest.mark.skipif(not shutil.which("curl"), reason="needs curl")
def test_the_http_example_writes_the_file_and_ends_in_one_terminal_event(tmp_path: Path) -> None:
    (tour,) = [block for block in blocks("bash") if "curl" in block]
    port = free_port()
    server = subprocess.Popen(
        [str(BIN / "agx"), "serve", "--port", str(port)],
        cwd=tmp_path,
        env=clean_environment(tmp_path),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stderr is not None
        assert f"http://127.0.0.1:{port}/#" in server.stderr.readline()
        out = run(["bash", "-euc", tour.replace("8765", str(port))], tmp_path)
    finally:
        server.terminate()
        server.communicate(timeout=PATIENCE)
    assert (tmp_path / "hello.txt").read_text(encoding="utf-8") == "Hello"
    kinds = re.findall(r'^data: {"type":"(\w+)"', out, re.MULTILINE)
    assert (kinds[0], kinds[-1], kinds.count("final")) == ("turn_started", "final", 1)
    assert kinds.index("confirm_required") < kinds.index("confirm_response") < kinds.index("tool_result")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def test_the_commands_of_the_terminal_section_work(tmp_path: Path) -> None:
    section = README.partition("## In a terminal")[2].partition("\n## ")[0]
    commands = [shlex.split(line) for line in re.findall(r"^\.venv/bin/agx (.*)$", section, re.MULTILINE)]
    outputs = {tuple(words): run([str(BIN / "agx"), *words], tmp_path) for words in commands if words[0] != "chat"}
    assert (tmp_path / "hello.txt").read_text(encoding="utf-8") == "Hello"
    assert [words[:2] for words, text in outputs.items() if "Hello" in text] == [
        ("run", "Read hello.txt"),
        ("sessions", "list"),
        ("sessions", "show"),
        ("sessions", "export"),
    ]
    assert not [words for words, text in outputs.items() if "failed" in text]


def test_every_agx_command_named_exists(tmp_path: Path) -> None:
    named = set(re.findall(r"\bagx (serve|open|run|chat|model|permissions|doctor|sessions)\b", README))
    help_text = run_forked("agenticx.cli", "--help", folder=tmp_path)
    offered = set(re.findall(r"^  (\w+) +", help_text, re.MULTILINE))
    assert named <= offered


def test_the_two_commands_install_from_the_folder_and_never_from_an_index() -> None:
    assert re.findall(r"pip install (?!-q \.| ?-q -e \"\.)", README) == []
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    (extra,) = set(re.findall(r"pip install -q -e \"\.\[(\w+)\]\"", README))
    assert extra in extras


def test_the_settings_table_matches_the_code() -> None:
    rows = re.findall(r"^\| `AGX_(\w+)` \| (?:`(.*?)`)? ?\|", README, re.MULTILINE)
    assert len(rows) > 15
    for name, default in rows:
        field = Settings.model_fields[name.lower()]
        assert default == (str(field.default) if field.default else "0" if field.default == 0 else ""), name


def test_every_module_and_file_named_exists() -> None:
    for module in re.findall(r"python -m ([\w.]+)", README):
        assert find_spec(module), module
    for path in re.findall(r"\]\(([\w./-]+)\)", README):
        assert (ROOT / path).exists(), path
