"""The page's modules agree with the types in their comments."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.javascript import NODE
from tests.support.timeouts import PATIENCE

NODE_FOLDER = Path(__file__).parents[1] / "node"
COMPILER = NODE_FOLDER / "node_modules" / "typescript" / "bin" / "tsc"


@pytest.mark.skipif(NODE is None, reason="needs node")
@pytest.mark.skipif(not COMPILER.exists(), reason=f"run `npm ci` in {NODE_FOLDER}")
def test_the_compiler_finds_no_wrong_type_in_the_page() -> None:
    assert NODE is not None
    command = [NODE, str(COMPILER), "-p", str(NODE_FOLDER)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.stdout, done.returncode) == ("", 0)
