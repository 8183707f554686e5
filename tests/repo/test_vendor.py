"""Foreign code of the page is what `vendor.toml` names, and is made again with equal bytes from the npm packages."""

from __future__ import annotations

import hashlib
import json
import subprocess
import tomllib
from pathlib import Path

import pytest

import studio
from tests.support.javascript import NODE
from tests.support.timeouts import PATIENCE

VENDOR = Path(studio.__file__).parent / "web" / "vendor"
NODE_FOLDER = Path(__file__).parents[1] / "node"


def test_each_file_is_one_that_vendor_toml_names_with_the_licences_of_what_is_in_it() -> None:
    modules = tomllib.loads((VENDOR / "vendor.toml").read_text(encoding="utf-8"))
    packages = [package for module in modules.values() for package in module["packages"]]
    licences = {package["licence_file"] for package in packages}
    types = {name.replace(".js", ".d.ts") for name in modules}
    assert {path.name for path in VENDOR.iterdir()} == {"vendor.toml", *modules, *licences, *types}
    for name, module in modules.items():
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == module["sha256"], name
    locked = json.loads((NODE_FOLDER / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    for package in packages:
        assert (VENDOR / package["licence_file"]).read_text(encoding="utf-8")
        assert package["version"] == locked[f"node_modules/{package['name']}"]["version"]


@pytest.mark.ci_lane
@pytest.mark.skipif(NODE is None, reason="needs node")
@pytest.mark.skipif(not (NODE_FOLDER / "node_modules" / "esbuild").exists(), reason=f"run `npm ci` in {NODE_FOLDER}")
def test_the_npm_packages_give_the_same_bytes(tmp_path: Path) -> None:
    assert NODE is not None
    command = [NODE, str(NODE_FOLDER / "vendor" / "build.mjs"), str(tmp_path)]
    subprocess.run(command, check=True, timeout=PATIENCE)
    assert {path.name: (VENDOR / path.name).read_bytes() == path.read_bytes() for path in tmp_path.iterdir()} == (
        dict.fromkeys((path.name for path in VENDOR.iterdir() if not path.name.endswith(".d.ts")), True)
    )
