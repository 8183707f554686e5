"""The lock file: installed packages are the reviewed ones."""

from __future__ import annotations

import re
import site
import sysconfig
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.promise("I2")

ROOT = Path(__file__).parents[2]
POISONED = {("litellm", "1.82.7"), ("litellm", "1.82.8")}


@cache
def packages() -> list[dict[str, Any]]:
    """Return the locked packages without our own."""
    lock = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))
    return [package for package in lock["package"] if package["name"] != "agenticx-studio"]


def test_the_two_compromised_releases_are_not_locked() -> None:
    assert POISONED.isdisjoint({(package["name"], package["version"]) for package in packages()})


def test_every_file_comes_from_pypi_with_a_sha256() -> None:
    assert len(packages()) > 20
    for package in packages():
        assert package["source"] == {"registry": "https://pypi.org/simple"}, package["name"]
        files = [*package.get("wheels", []), *([package["sdist"]] if "sdist" in package else [])]
        assert files, package["name"]
        for file in files:
            assert re.fullmatch(r"sha256:[0-9a-f]{64}", file["hash"]), file
            assert file["url"].startswith("https://files.pythonhosted.org/packages/"), file


def test_the_lock_covers_the_dependencies_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = {name_of(requirement) for requirement in project["dependencies"]}
    for extra in project["optional-dependencies"].values():
        asked |= {name_of(requirement) for requirement in extra}
    assert asked - {"agenticx-studio"} <= {package["name"] for package in packages()}


def name_of(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9-]", requirement, maxsplit=1)[0]


def test_no_unlisted_file_runs_code_when_python_starts() -> None:
    """A `.pth` line that begins with `import` runs at each start of Python; attackers have stolen keys this way."""
    known = {"distutils-precedence.pth", "_virtualenv.pth", "a1_coverage.pth", "coverage.pth", "pytest-cov.pth"}
    folders = {*site.getsitepackages(), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    found = {path for folder in folders for path in Path(folder).glob("*.pth") if path.name not in known}
    assert [path for path in sorted(found) if re.search(r"^import\s", path.read_text("utf-8"), re.MULTILINE)] == []
