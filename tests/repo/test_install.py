"""Installation: a wheel built without git works outside the checkout, and so does the checkout."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SAMPLE = Path(__file__).with_name("typed_sample.py")
PROMPT = "Write hello.txt with the text Hello from the wheel"


@dataclass(frozen=True)
class InstalledWheel:
    """A wheel and the Python of a fresh environment in which it is installed."""

    wheel: Path
    python: Path


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> InstalledWheel:
    """Return one wheel and one environment for all parallel test processes; the first one makes them."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    folder = folder / "install"
    folder.mkdir(exist_ok=True)
    done = folder / "done"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            done.write_text(str(install(folder)), encoding="utf-8")
    return InstalledWheel(Path(done.read_text(encoding="utf-8")), folder / "venv" / "bin" / "python")


def install(folder: Path) -> Path:
    """Build a wheel, install it into a fresh environment in `folder` and return the wheel."""
    wheel = build_wheel(copy_without_git(folder / "source"), folder / "dist")
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    python = folder / "venv" / "bin" / "python"
    run([str(python), "-m", "pip", "install", "-q", "--no-index", "--no-deps", str(wheel)], cwd=folder)
    link_dependencies(python)
    return wheel


def copy_without_git(target: Path) -> Path:
    for folder in ("agenticx", "studio", "config"):
        shutil.copytree(ROOT / folder, target / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, target / file)
    return target


def build_wheel(source: Path, target: Path) -> Path:
    run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)], cwd=source)
    (wheel,) = target.glob("*.whl")
    return wheel


def link_dependencies(python: Path) -> None:
    """Make the packages of this environment importable in a fresh one, which has no network to fetch them."""
    site_packages = run(
        [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], cwd=python.parent
    )
    (Path(site_packages.strip()) / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")


def run(command: list[str], *, cwd: Path, **environ: str) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AGX_", "PYTHON"))}
    kept |= {"PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **environ}
    done = subprocess.run(command, cwd=cwd, env=kept, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"{command} exited with {done.returncode}:\n{done.stderr}"
    return done.stdout


def demo_turn(agx: list[str], *, cwd: Path, home: Path, workspace: Path) -> list[dict[str, Any]]:
    """Return the envelopes of one turn of the demo model that writes a file."""
    workspace.mkdir()
    command = [*agx, "run", PROMPT, "--model", "demo", "--json", "--yes", "--cwd", str(workspace)]
    return [json.loads(line) for line in run(command, cwd=cwd, AGX_HOME=str(home)).splitlines()]


def assert_wrote_hello(envelopes: list[dict[str, Any]], workspace: Path) -> None:
    seen = [envelope["type"] for envelope in envelopes]
    assert (seen[0], seen[-1]) == ("turn_started", "final")
    assert [kind for kind in seen if kind in {"tool_call", "confirm_required", "confirm_response", "tool_result"}] == [
        "tool_call",
        "confirm_required",
        "confirm_response",
        "tool_result",
    ]
    assert (workspace / "hello.txt").read_text(encoding="utf-8").strip() == "Hello from the wheel"


@pytest.mark.cases(quick=0)
def test_the_wheel_runs_a_demo_turn_outside_the_checkout(installed: InstalledWheel, tmp_path: Path) -> None:
    agx = [str(installed.python.with_name("agx"))]
    envelopes = demo_turn(agx, cwd=tmp_path, home=tmp_path / "home", workspace=tmp_path / "work")
    assert_wrote_hello(envelopes, tmp_path / "work")


@pytest.mark.cases(quick=0)
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_type_checkers_see_the_types_of_an_installed_wheel(
    installed: InstalledWheel, tmp_path: Path, checker: str
) -> None:
    if find_spec(checker) is None:
        pytest.skip(f"{checker} is not installed; it comes with the extra dev")
    sample = tmp_path / "typed_sample.py"
    shutil.copy(SAMPLE, sample)
    if checker == "mypy":
        options = ["--strict", "--python-executable", str(installed.python), "--cache-dir", str(tmp_path / "cache")]
    else:
        (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}', encoding="utf-8")
        options = ["--pythonpath", str(installed.python)]
    run([sys.executable, "-m", checker, *options, str(sample)], cwd=tmp_path)
    assert run([str(installed.python), str(sample)], cwd=tmp_path, AGX_HOME=str(tmp_path / "home")) == "ok\n"


@pytest.mark.ci_lane
def test_the_checkout_runs_a_demo_turn(tmp_path: Path) -> None:
    agx = [sys.executable, "-m", "agenticx.cli"]
    envelopes = demo_turn(agx, cwd=ROOT, home=tmp_path / "home", workspace=tmp_path / "work")
    assert_wrote_hello(envelopes, tmp_path / "work")


@pytest.mark.cases(quick=0)
def test_both_names_of_the_command_print_the_version(installed: InstalledWheel, tmp_path: Path) -> None:
    versions = {run([str(installed.python.with_name(name)), "--version"], cwd=tmp_path) for name in ("agx", "agenticx")}
    assert versions == {"agx 0.1.0\n"}


@pytest.mark.cases(quick=0)
def test_the_installed_library_reads_the_config_folder_of_the_wheel(installed: InstalledWheel, tmp_path: Path) -> None:
    program = (
        "import agenticx.settings as s; print(s.__file__);"
        "print(s.config_text('default.toml') == open(s.__file__.replace('settings.py', '_config/default.toml')).read())"
    )
    where, same = run([str(installed.python), "-c", program], cwd=tmp_path, AGX_HOME=str(tmp_path)).splitlines()
    assert Path(where).is_relative_to(installed.python.parents[1])
    assert same == "True"


@pytest.mark.cases(quick=0)
def test_the_installed_library_lists_the_models_of_the_wheel_and_of_the_user(
    installed: InstalledWheel, tmp_path: Path
) -> None:
    (tmp_path / "models.toml").write_text('[models."openai:gpt-4o"]\nwindow = 7\n', encoding="utf-8")
    program = (
        "from agenticx.llms.model_catalog import load_model_catalog; models = load_model_catalog().models;"
        "print(len(models) > 50, models['openai:gpt-4o'].window, models['openai:gpt-4o'].price.output)"
    )
    assert run([str(installed.python), "-c", program], cwd=tmp_path, AGX_HOME=str(tmp_path)) == "True 7 10.00\n"


@pytest.mark.cases(quick=0)
def test_the_wheel_holds_the_packages_the_config_and_nothing_else(installed: InstalledWheel) -> None:
    with zipfile.ZipFile(installed.wheel) as wheel:
        names = wheel.namelist()
    assert {name.split("/")[0] for name in names} == {"agenticx", "studio", "agenticx_studio-0.1.0.dist-info"}
    shipped = {name.removeprefix("agenticx/_config/") for name in names if name.startswith("agenticx/_config/")}
    ours = {str(path.relative_to(ROOT / "config")) for path in (ROOT / "config").rglob("*") if path.is_file()}
    assert shipped == ours
    assert "agenticx_studio-0.1.0.dist-info/licenses/LICENSE" in names
